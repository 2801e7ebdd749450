"""The contract of backends, for Acme's (in Kerf's checkout ``pip install '.[testing]' ./docs/examples/npu``)."""

import errno
from collections.abc import Generator
from pathlib import Path, PosixPath
from typing import Any, ClassVar

from acme_npu import NPU, AcmeBackend

from kerf_dra.driver.partitions.geometry import Partition
from kerf_dra.driver.testing import BackendContract, MachineUnderTest, ProcessKilled


class DyingPath(PosixPath):
    """A file or folder on which a process can be killed before and after each change, or a call can fail."""

    points_left: ClassVar[int | None] = None
    calls_left: ClassVar[int | None] = None

    def iterdir(self) -> Generator["DyingPath", None, None]:
        self._call()
        return super().iterdir()

    def touch(self, *args: Any, **options: Any) -> None:
        self._call()
        self._pass_point()
        super().touch(*args, **options)
        self._pass_point()

    def unlink(self, *args: Any, **options: Any) -> None:
        self._call()
        self._pass_point()
        super().unlink(*args, **options)
        self._pass_point()

    @classmethod
    def _pass_point(cls) -> None:
        if DyingPath.points_left is not None:
            DyingPath.points_left -= 1
            if DyingPath.points_left == 0:
                raise ProcessKilled

    @classmethod
    def _call(cls) -> None:
        if DyingPath.calls_left is not None:
            DyingPath.calls_left = max(0, DyingPath.calls_left - 1)
            if DyingPath.calls_left == 0:
                raise OSError(errno.EIO, "the NPU does not answer")


class DyingBackend(AcmeBackend):
    def _folder(self, card_uuid: str) -> Path:
        return DyingPath(super()._folder(card_uuid))


class AcmeMachine(MachineUnderTest):
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        for number in range(2):
            (folder / f"npu-{number}").mkdir()
        self._cards = {card.uuid: folder / f"npu-{card.index}" for card in AcmeBackend(folder).discover()}

    def open_backend(self) -> AcmeBackend:
        return DyingBackend(self._folder)

    def kill_at(self, point: int | None) -> None:
        DyingPath.points_left = point

    def fail_at(self, point: int | None) -> None:
        DyingPath.calls_left = point

    def cut_by_hand(self, partition: Partition) -> None:
        self._file_of(partition).touch()

    def remove_by_hand(self, partition: Partition) -> None:
        self._file_of(partition).unlink()

    def take_away(self, card_uuid: str) -> None:
        self._cards[card_uuid].rename(self._folder / "away")

    def bring_back(self, card_uuid: str) -> None:
        (self._folder / "away").rename(self._cards[card_uuid])

    def _file_of(self, partition: Partition) -> Path:
        assert partition.placement is not None
        return self._cards[partition.card_uuid] / f"{partition.profile}-{partition.placement.start}-by-hand"


class TestAcmeBackend(BackendContract):
    family = NPU

    def new_machine(self, folder: Path) -> AcmeMachine:
        return AcmeMachine(folder)
