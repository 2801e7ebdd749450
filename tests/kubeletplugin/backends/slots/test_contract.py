"""The backend ``slots`` keeps the contract of backends, on a stand-in for a board and its daemon."""

from pathlib import Path

import pytest

from kerf_dra.driver.families.fpga import FPGA
from kerf_dra.driver.testing import BackendContract, MachineUnderTest
from tests.kubeletplugin.backends.slots.machine import SlotsMachineUnderTest


class TestSlotsBackend(BackendContract):
    family = FPGA
    management_nodes = ("*dfx-mgrd*", "/run*", "/var/run*")

    def new_machine(self, folder: Path) -> MachineUnderTest:
        return SlotsMachineUnderTest(folder)


@pytest.mark.long  # what layouts add is in test_layouts.py
class TestSlotsBackendWithLayouts(BackendContract):
    """Three base designs are layouts of one shell: three slots, two, and a flat one."""

    family = FPGA
    management_nodes = TestSlotsBackend.management_nodes

    def new_machine(self, folder: Path) -> MachineUnderTest:
        return SlotsMachineUnderTest(folder, has_layouts=True)
