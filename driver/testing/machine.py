"""What a vendor supplies to the contract suite: a machine with his cards."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Hashable, Sequence
from typing import ClassVar, NoReturn

import pytest

from kerf_dra.api.kerf.v1alpha1 import DeviceConfigBase
from kerf_dra.driver.kubeletplugin.backends.base import Backend
from kerf_dra.driver.partitions.geometry import Card, Partition


class MachineUnderTest(ABC):
    """A host with cards that no process uses, whose backend is opened by one process after another.

    ``open_backend`` is all that a vendor has to write. The other methods are what befalls hardware without Kerf's
    doing: each lets more rules be tested, and a rule that needs a method which is not overridden is skipped.
    """

    lists_idle: ClassVar[bool] = True
    """Whether a survey lists partitions that no process uses. False for hardware on which what is not used occupies
    nothing, such as a function in an FPGA, which the next load replaces."""

    @abstractmethod
    def open_backend(self) -> Backend:
        """Return a backend as the factory makes it for a new process; the suite calls its ``open`` and ``close``."""

    def config(self, partition: Partition) -> DeviceConfigBase | None:
        """Return the configuration with which ``partition`` can be prepared; None: it needs none."""
        del partition
        return None

    def partitions(self, card: Card) -> Sequence[Partition]:
        """Return the partitions of ``card`` that the suite prepares, the smallest first, the whole card last."""
        return [spec.of(card.uuid) for spec in card.geometry.specs]

    def idle(self, card_uuid: str) -> Collection[Hashable]:
        """Return what is on the card and not listed by surveys, because no process uses it (``lists_idle``)."""
        del card_uuid
        return ()

    def has(self, hook: str) -> bool:
        """Whether the vendor overrides the method ``hook``."""
        return getattr(type(self), hook) is not getattr(MachineUnderTest, hook)

    def kill_at(self, point: int | None) -> None:
        """Let the process be killed by its backend's hardware from now on: raise ProcessKilled at a point of a call.

        The points are before and after each change of the hardware that a call makes, numbered from 1; None: never.
        """
        self._skip("kill_at")

    def fail_at(self, point: int | None) -> None:
        """Let the hardware answer a call of the backend with an error that says nothing of it, and all later calls.

        The calls, of whatever kind, are numbered from 1 from now on; None: the hardware answers again.
        """
        self._skip("fail_at")

    def cut_by_hand(self, partition: Partition) -> None:
        """Make ``partition`` as an administrator would, past Kerf, so that it is in use where only that counts."""
        self._skip("cut_by_hand")

    def remove_by_hand(self, partition: Partition) -> None:
        """Remove what ``cut_by_hand`` made."""
        self._skip("remove_by_hand")

    def use(self, partition: Partition) -> None:
        """Let a process use ``partition``, which is prepared."""
        self._skip("use")

    def stop_using(self, partition: Partition) -> None:
        """End the process of ``use``."""
        self._skip("stop_using")

    def take_away(self, card_uuid: str) -> None:
        """Take the card away, as when it falls off the bus."""
        self._skip("take_away")

    def bring_back(self, card_uuid: str) -> None:
        """Bring the card back that ``take_away`` took, with what was on it."""
        self._skip("bring_back")

    def make_unhealthy(self, card_uuid: str) -> None:
        """Let the card be unhealthy, so that the backend reports it."""
        self._skip("make_unhealthy")

    def _skip(self, hook: str) -> NoReturn:
        pytest.skip(f"{type(self).__name__} does not override {hook}()")
