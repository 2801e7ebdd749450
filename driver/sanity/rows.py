"""Rows: one requirement each, with its source, how it is tried, and what to do where a driver does not meet it."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from kerf_dra.driver.sanity.driver_under_test import DriverUnderTest


class Level(StrEnum):
    """How binding a row is."""

    MUST = "must"
    """The kubelet, the API server or a container runtime depends on it."""
    SHOULD = "should"
    """Kubernetes' helper library for drivers (``k8s.io/dynamic-resource-allocation/kubeletplugin``) does so."""
    MAY = "may"
    """It is better for users, and the helper library does not do it."""


class Outcome(StrEnum):
    """What a row came to."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"
    """It could not be tried with this driver; the reason is what was seen."""
    WAIVED = "waived"
    """It failed, and the user has waived it, with a reason."""


class NotTriedError(Exception):
    """A row cannot be tried with this driver; the message says why."""


Check: TypeAlias = Callable[[DriverUnderTest], Awaitable[str]]
"""Tries a row on a driver; returns what was seen that is wrong, empty if nothing is. Raises NotTriedError."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One requirement."""

    id: str
    level: Level
    tries: str
    """What is tried."""
    source: str
    """Where the requirement stands."""
    remedy: str
    """What to do."""
    check: Check


@dataclass(frozen=True, slots=True)
class RowResult:
    """What a row came to."""

    row: Row
    outcome: Outcome
    seen: str = ""
    """What was seen that is wrong, or why the row was not tried."""
    waiver: str = ""
    """The reason why the user accepts that this driver does not meet the row; empty: it is not waived."""
