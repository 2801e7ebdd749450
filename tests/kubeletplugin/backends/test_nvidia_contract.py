"""The backend ``nvidia`` keeps the contract of backends, on stand-ins of cards and with unmodified bindings."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from driver.families.gpu import GPU
from driver.testing import BackendContract, MachineUnderTest
from tests.fakes.nvml import NEEDS_COMPILER
from tests.kubeletplugin.backends.nvidia_machine import (
    NvidiaMachineUnderTest,
    StaticMachineUnderTest,
    nvml_of_one_test,
)

__all__ = ["nvml_of_one_test"]


@NEEDS_COMPILER
@pytest.mark.usefixtures("nvml_of_one_test")
class TestNvidiaBackend(BackendContract):
    family = GPU

    def new_machine(self, folder: Path) -> MachineUnderTest:
        return NvidiaMachineUnderTest(folder)


@NEEDS_COMPILER
@pytest.mark.usefixtures("nvml_of_one_test")
class TestStaticMigDevices(BackendContract):
    family = GPU
    machines: list[StaticMachineUnderTest]

    def new_machine(self, folder: Path) -> MachineUnderTest:
        machine = StaticMachineUnderTest(folder)
        self.machines = [*getattr(self, "machines", ()), machine]
        return machine

    @pytest.fixture(autouse=True)
    def nothing_was_made_or_destroyed(self, nvml_of_one_test: None) -> Iterator[None]:
        yield
        for machine in (one for one in self.machines if one.hardware.exists):
            assert machine.hardware.list_instances() == machine.made
