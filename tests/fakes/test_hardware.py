"""The fake backend of the plugin's tests keeps the contract of backends (``kerf_dra.driver.testing``), as real ones
do."""

from collections.abc import Sequence
from pathlib import Path

from kerf_dra.driver.families.gpu import GPU
from kerf_dra.driver.partitions.geometry import Partition
from kerf_dra.driver.testing import BackendContract, MachineUnderTest
from tests.fakes.hardware import FakeBackend
from tests.partitions.cards import gpus


class FakeMachine(MachineUnderTest):
    """Two GPUs whose state is in a file."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "hardware.json"
        self._opened: Sequence[FakeBackend] = ()

    def open_backend(self) -> FakeBackend:
        backend = FakeBackend(gpus(2), self._file)
        self._opened = [backend]
        return backend

    def cut_by_hand(self, partition: Partition) -> None:
        self._opened[0].cut_by_hand(partition)

    def remove_by_hand(self, partition: Partition) -> None:
        [made] = [made for made in self._opened[0].made.values() if made.placement == partition.placement]
        self._opened[0].remove_by_hand(made.serial)


class TestFakeBackend(BackendContract):
    family = GPU

    def new_machine(self, folder: Path) -> FakeMachine:
        return FakeMachine(folder)
