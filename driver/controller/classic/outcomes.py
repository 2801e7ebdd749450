"""How a pass over a claim or a context ends."""

from enum import Enum, auto
from typing import NamedTuple


class Outcome(Enum):
    """When to look again."""

    FORGET = auto()
    """When something changes."""
    REQUEUE = auto()
    """Soon, without a word."""
    PERIODIC = auto()
    """After a while, whether something changes or not."""


class About(Enum):
    """Who a complaint is about."""

    CLAIM = auto()
    CLASS = auto()
    CONTEXT = auto()
    POD = auto()


class Complaint(NamedTuple):
    """A Warning event."""

    about: About
    message: str
    name: str = ""
    """Of the class or claim; empty: the one that the pass is about."""
