"""The backend ``nvidia`` keeps the contract of backends, on stand-ins of cards and with unmodified bindings."""

from pathlib import Path

import pytest

from driver.families.gpu import GPU
from driver.testing import BackendContract, MachineUnderTest
from tests.fakes.nvml import NEEDS_COMPILER
from tests.kubeletplugin.backends.nvidia_machine import NvidiaMachineUnderTest, nvml_of_one_test

__all__ = ["nvml_of_one_test"]


@NEEDS_COMPILER
@pytest.mark.usefixtures("nvml_of_one_test")
class TestNvidiaBackend(BackendContract):
    family = GPU

    def new_machine(self, folder: Path) -> MachineUnderTest:
        return NvidiaMachineUnderTest(folder)
