"""The events of a history. Times are seconds of the test's clock; claims are named by their UIDs."""

from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from kerf_dra.driver.partitions.geometry import Partition


class Actor(StrEnum):
    """Whoever has changed the hardware."""

    PLUGIN = "the plugin"
    HAND = "somebody by hand"
    MACHINE = "the machine"
    """A boot, a reset of the card, or a driver that was loaded anew."""


class Operation(StrEnum):
    """A call of the kubelet."""

    PREPARE = "prepare"
    UNPREPARE = "unprepare"


class Outcome(StrEnum):
    """What the kubelet knows of a call (Jepsen: ok, fail, info)."""

    DONE = "done"
    FAILED = "failed"
    UNKNOWN = "unknown"
    """The kubelet waits no longer: the work may go on."""


class End(StrEnum):
    """Why a claim no longer needs its devices."""

    DELETED = "deleted"
    DEALLOCATED = "deallocated"
    UNRESERVED = "reserved for no pod"


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that has happened at a time."""

    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocated(Event):
    """The API server has the claim with these places from now on, reserved for a pod."""

    claim: str
    places: frozenset[Partition]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended(Event):
    """The API server has the claim no longer, or without devices, or without a pod."""

    claim: str
    how: End


@dataclass(frozen=True, slots=True, kw_only=True)
class Used(Event):
    """The kubelet lists a pod that uses the claim, or no longer does."""

    claim: str
    is_used: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Called(Event):
    """The kubelet calls the plugin; ``call`` is the number of the call."""

    call: int
    operation: Operation
    claim: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """One device that a prepare was answered with."""

    place: Partition
    uuid: str
    """The UUID by which programs address it; that of the card for a whole one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered(Event):
    """The call has ended for the kubelet; ``given`` are the devices of a prepare that is done."""

    call: int
    outcome: Outcome
    given: tuple[Given, ...] = ()
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Appeared(Event):
    """A partition is on the hardware. ``partition`` is its identity: made anew at the same place, it is another."""

    partition: str
    place: Partition
    by: Actor


@dataclass(frozen=True, slots=True, kw_only=True)
class Named(Event):
    """Programs can address the partition by this UUID, which another one at its place may have had before."""

    partition: str
    uuid: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Unnamed(Event):
    """The partition is there, and programs cannot address it any more: its compute instance is gone."""

    partition: str
    by: Actor


@dataclass(frozen=True, slots=True, kw_only=True)
class Disappeared(Event):
    """A partition is no longer on the hardware."""

    partition: str
    by: Actor


@dataclass(frozen=True, slots=True, kw_only=True)
class Started(Event):
    """A process of the plugin serves the kubelet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Died(Event):
    """The process of the plugin is no more, and neither are its calls."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Booted(Event):
    """The node was booted: no container of before runs any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rested(Event):
    """Nothing is under way, all faults are over, and the plugin had time for what it does by itself.

    ``wanted`` are the claims that pods wait for or use, and that nothing keeps from being prepared.
    """

    wanted: frozenset[str] = frozenset()


History: TypeAlias = list[Event]
