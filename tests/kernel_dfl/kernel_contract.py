"""The backend ``dfl`` keeps the contract of backends on the kernel's own driver; collected in the guest only."""

from pathlib import Path

from kerf_dra.driver.families.fpga import FPGA
from kerf_dra.driver.testing import BackendContract, MachineUnderTest
from tests.kernel_dfl.machine import GuestUnderTest


class TestDflBackendOnTheKernel(BackendContract):
    family = FPGA
    management_nodes = ("*dfl-fme*",)

    def new_machine(self, folder: Path) -> MachineUnderTest:
        return GuestUnderTest(folder)
