"""What simulated devices are used for: a model of processes, memory, activity and energy. Pure.

Each prepared device of a GPU has one process, which uses a part of its memory, and is busy in waves of some minutes:
the length of the waves and the memory follow from the name of the device, so that the same times give the same figures.
``use.json`` in the state directory says something else of some devices, and of which cards nothing can be read:

.. code-block:: json

    {"devices": {"gpu-0-1g-10gb-at-0": {"processes": 0}, "gpu-1": {"busy": 0.9, "memory": 0.5}},
     "unreadable": ["gpu-2"]}

FPGAs have neither processes nor activity that could be measured, as real ones; their energy is counted.
"""

import math
import zlib
from typing import Annotated, Final

import msgspec

from kerf_dra.api.kerf.v1alpha1 import Strict

Ratio = Annotated[float, msgspec.Meta(ge=0, le=1)]

_IDLE_W: Final = 70.0
_FULL_W: Final = 700.0
"""The power of a card that does nothing, and of one that does all it can: those of an H100 SXM, roughly."""
_MJ_PER_J: Final = 1000
_LONGEST_S: Final = 3600.0
"""The longest time between two samples that counts: while no plugin runs, a simulated card uses no energy."""
_PERIODS_S: Final = (120, 420)
"""The shortest and the longest wave: some minutes, so that two samples of 15 s differ and a demo shows a change."""
_MIDDLE: Final = 0.6
_SWING: Final = 0.35
"""The activity of a busy device, around which it moves, and by how much: from 0.25 to 0.95."""
_LEAST_MEMORY: Final = 0.2
"""The least part of its memory that a process of a device uses by itself; the most is 0.9."""


class DeviceUse(Strict):
    """What one device is used for, as ``use.json`` says it."""

    processes: Annotated[int, msgspec.Meta(ge=0, le=1_000_000)] = 1
    """The processes that compute on it; of none there is no activity and no memory."""
    busy: Ratio | None = None
    """The part of the time in which it computes; null: it changes in waves."""
    memory: Ratio | None = None
    """The part of its memory that is in use; null: what follows from its name."""


class CardsUse(Strict):
    """The document ``use.json``."""

    devices: dict[str, DeviceUse] = {}
    """By the name of the device: a whole card or a partition."""
    unreadable: tuple[str, ...] = ()
    """The names of cards of which no sample can be taken."""


class EnergyCounter(msgspec.Struct, frozen=True, kw_only=True):
    """The energy counter of one card."""

    at_s: float
    """When it was counted last, in seconds since 1970."""
    mj: int = 0
    """The energy until then, in millijoules."""


class EnergyCounters(msgspec.Struct, frozen=True, kw_only=True):
    """The state of all energy counters; each is at 0 where the file is removed, as after a reset of the card."""

    cards: dict[str, EnergyCounter] = {}
    """By the name of the card."""


def find_busy_ratio(name: str, use: DeviceUse, since_s: float, now_s: float) -> float:
    """Return the part of the time from ``since_s`` to ``now_s`` in which the device ``name`` computes, 0 to 1.

    A wave is a sine, whose mean is taken exactly: several samples in a row give as much as one over all of their time.
    """
    if not use.processes:
        return 0.0
    if use.busy is not None:
        return use.busy
    seed = _seed(name)
    shortest, longest = _PERIODS_S
    turn = 2 * math.pi / (shortest + seed % (longest - shortest))
    begin, end = turn * since_s + seed, turn * now_s + seed
    mean = (math.cos(begin) - math.cos(end)) / (end - begin) if end > begin else math.sin(end)
    return _MIDDLE + _SWING * mean


def find_memory_bytes(name: str, use: DeviceUse, available_bytes: int) -> int:
    """Return how many of the bytes that a device has are in use."""
    if not use.processes:
        return 0
    ratio = _LEAST_MEMORY + _seed(name) % 71 / 100 if use.memory is None else use.memory
    return int(available_bytes * ratio)


def count_energy(before: EnergyCounter | None, load: float, now_s: float) -> EnergyCounter:
    """Return the counter of a card at ``now_s``, of which the part ``load``, 0 to 1, has computed since ``before``."""
    if before is None:
        return EnergyCounter(at_s=now_s)
    seconds = min(max(0.0, now_s - before.at_s), _LONGEST_S)
    joules = (_IDLE_W + (_FULL_W - _IDLE_W) * min(1.0, load)) * seconds
    return EnergyCounter(at_s=max(now_s, before.at_s), mj=before.mj + round(joules * _MJ_PER_J))


def _seed(name: str) -> int:
    """Return a number that is the same for a name in every process, which ``hash`` is not."""
    return zlib.crc32(name.encode())
