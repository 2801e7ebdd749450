"""The result of reconciling one claim or scheduling context: when to reconcile it again, and the events to record."""

from dataclasses import dataclass
from enum import Enum, auto
from typing import NamedTuple


class Requeue(Enum):
    """The time when a key is reconciled again; the three cases are those of upstream's controller library."""

    ON_CHANGE = auto()
    """The key is reconciled again when an object changes that it depends on."""
    BACKOFF = auto()
    """The key is reconciled again soon, with the work queue's back-off."""
    PERIODIC = auto()
    """The key is reconciled again after ``Settings.recheck_s``, or earlier when something changes."""


class EventSubject(Enum):
    """The kind of object that an event is about."""

    CLAIM = auto()
    CLASS = auto()
    CONTEXT = auto()
    POD = auto()


class WarningEvent(NamedTuple):
    """A Warning event to record."""

    about: EventSubject
    message: str
    name: str = ""
    """The name of the class, or of another claim; empty: that of the key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReconcileResult:
    """The result of reconciling a key; plans extend it with the writes to be made first."""

    rule: str
    """The id of the rule that decided, C-1 to C-19 or S-1 to S-18 (docs/classic.md)."""
    warnings: tuple[WarningEvent, ...] = ()
    requeue: Requeue = Requeue.ON_CHANGE
