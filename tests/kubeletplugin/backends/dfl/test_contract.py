"""The backend ``dfl`` keeps the contract of backends, on stand-ins of cards."""

from pathlib import Path

from kerf_dra.driver.families.fpga import FPGA
from kerf_dra.driver.testing import BackendContract, MachineUnderTest
from tests.fakes.dfl import NEEDS_COMPILER
from tests.kubeletplugin.backends.dfl.machine import DflMachineUnderTest


@NEEDS_COMPILER
class TestDflBackend(BackendContract):
    family = FPGA
    management_nodes = ("*dfl-fme*",)

    def new_machine(self, folder: Path) -> MachineUnderTest:
        return DflMachineUnderTest(folder)
