"""The backend ``nvidia`` keeps the contract of backends, on stand-ins of cards and with unmodified bindings."""

from pathlib import Path

import pytest

from driver.families.gpu import GPU
from driver.testing import BackendContract, MachineUnderTest
from tests.kubeletplugin.backends.nvidia_machine import NvidiaMachineUnderTest, machine_variable

__all__ = ["machine_variable"]


@pytest.mark.usefixtures("machine_variable")
class TestNvidiaBackend(BackendContract):
    family = GPU

    def new_machine(self, folder: Path) -> MachineUnderTest:
        return NvidiaMachineUnderTest(folder)
