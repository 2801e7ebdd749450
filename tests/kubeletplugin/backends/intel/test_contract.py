"""The backend ``intel`` keeps the contract of backends, on stand-ins of cards."""

from pathlib import Path

from kerf_dra.driver.families.gpu_intel import GPU_INTEL
from kerf_dra.driver.kubeletplugin.backends.intel import IntelBackend
from kerf_dra.driver.kubeletplugin.backends.intel.config import IntelConfig
from kerf_dra.driver.testing import BackendContract, MachineUnderTest
from tests.fakes.intel import GIB, MAX_1550, FakeDrmCalls, IntelMachine


class IntelMachineUnderTest(MachineUnderTest):
    """Two cards with two tiles each."""

    lists_idle = False

    def __init__(self, folder: Path) -> None:
        self.hardware = IntelMachine(folder)
        for number in range(2):
            self.hardware.add_card(number, f"0000:{number + 3:02x}:00.0", MAX_1550, tiles=2, render=128 + number)
        self.numbers: dict[str, int] = {}

    def open_backend(self) -> IntelBackend:
        calls = FakeDrmCalls(memory={f"card{number}": [64 * GIB, 64 * GIB] for number in range(2)})
        return IntelBackend(IntelConfig(system_root=str(self.hardware.root)), calls=calls)

    def take_away(self, card_uuid: str) -> None:
        for card in self.open_backend().discover():
            self.numbers[card.uuid] = card.index
        self.hardware.take_away(self.numbers[card_uuid])

    def bring_back(self, card_uuid: str) -> None:
        self.hardware.bring_back(self.numbers[card_uuid])


class TestIntelBackend(BackendContract):
    family = GPU_INTEL

    def new_machine(self, folder: Path) -> MachineUnderTest:
        return IntelMachineUnderTest(folder)
