"""Whether requests can be paired with devices, each with devices of its own: Hall's condition, by augmenting paths.

Only counts: that devices exclude each other through counters, or that a constraint binds them, is not seen here. So a
"no" is certain and a "yes" is not, which is what a bound needs.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from driver.allocation.semantics.bitset import bits

_MOST: Final = 256
"""Requests in one question: beyond that a "yes" is given without looking, because paths could outgrow the stack."""


class Need(NamedTuple):
    """What one request needs: ``number`` different ones of ``devices``."""

    devices: int
    number: int


def can_pair(needs: Sequence[Need], rooms: Mapping[int, int]) -> bool:
    """Whether each need can have its devices. ``rooms``: for how many needs a device has room, if not for one."""
    return len(needs) > _MOST or _Pairing(needs, rooms).run()


class _Pairing:
    def __init__(self, needs: Sequence[Need], rooms: Mapping[int, int]) -> None:
        self._needs = needs
        self._rooms = rooms
        self._given = [0] * len(needs)
        self._owners: dict[int, list[int]] = defaultdict(list)
        self._full = sum(1 << device for device, room in rooms.items() if room <= 0)
        self._tried = 0

    def run(self) -> bool:
        for position, need in enumerate(self._needs):
            for _ in range(need.number):
                self._tried = 0
                if not self._give_one(position):
                    return False
        return True

    def _give_one(self, position: int) -> bool:
        """One more device for a need, if others can give way; False: there is none."""
        options = self._needs[position].devices & ~self._given[position] & ~self._tried
        free = options & ~self._full
        if free:
            self._give(position, (free & -free).bit_length() - 1)
            return True
        for device in bits(options):
            self._tried |= 1 << device
            for owner in self._owners[device]:
                if self._give_one(owner):
                    self._owners[device].remove(owner)
                    self._given[owner] &= ~(1 << device)
                    self._full &= ~(1 << device)
                    self._give(position, device)
                    return True
        return False

    def _give(self, position: int, device: int) -> None:
        self._given[position] |= 1 << device
        owners = self._owners[device]
        owners.append(position)
        if len(owners) >= self._rooms.get(device, 1):
            self._full |= 1 << device
