"""The backend ``xrt`` keeps the contract of backends, on stand-ins of cards."""

from pathlib import Path

from kerf_dra.driver.families.fpga import FPGA
from kerf_dra.driver.testing import BackendContract, MachineUnderTest
from tests.fakes.xrt import NEEDS_COMPILER
from tests.kubeletplugin.backends.xrt.machine import XrtMachineUnderTest


@NEEDS_COMPILER
class TestXrtBackend(BackendContract):
    family = FPGA
    management_nodes = ("*xclmgmt*", "/dev/xfpga/*.m[0-9]*")

    def new_machine(self, folder: Path) -> MachineUnderTest:
        return XrtMachineUnderTest(folder)
