"""What a check finds: a level, a sentence, and what to do."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from kerf_dra.api.model.names import list_names


class CheckLevel(StrEnum):
    """How bad a result is."""

    OK = "ok"
    WARNING = "warning"
    """Kerf works; something is missing, unavailable, or could not be found out."""
    PROBLEM = "problem"
    """Kerf does not work, or not safely."""


_WORST_FIRST: Final = (CheckLevel.PROBLEM, CheckLevel.WARNING, CheckLevel.OK)


@dataclass(frozen=True, slots=True, kw_only=True)
class Unread:
    """Stands in place of a fact that could not be read."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """One line of a report."""

    check: str
    """The name of the check, the same in every version."""
    level: CheckLevel
    message: str
    """What was found, as a clause that names the object."""
    next_step: str = ""
    """What to do; empty where there is nothing to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PreflightReport:
    """The results of one run, in the order of the checks."""

    subject: str
    """``cluster``, or ``node`` with its name."""
    results: tuple[CheckResult, ...]

    @property
    def worst(self) -> CheckLevel:
        """The worst level of all results; OK without any."""
        found = {result.level for result in self.results}
        return next((level for level in _WORST_FIRST if level in found), CheckLevel.OK)


def ok(check: str, message: str) -> CheckResult:
    return CheckResult(check=check, level=CheckLevel.OK, message=message)


def warning(check: str, message: str, next_step: str) -> CheckResult:
    return CheckResult(check=check, level=CheckLevel.WARNING, message=message, next_step=next_step)


def problem(check: str, message: str, next_step: str) -> CheckResult:
    return CheckResult(check=check, level=CheckLevel.PROBLEM, message=message, next_step=next_step)


def unread(check: str, what: str, fact: Unread) -> CheckResult:
    """Return the warning about a fact that could not be read."""
    return warning(check, f"{what} cannot be read: {fact.reason}", "run it as an account that may, such as an admin's")


def name_first(names: Iterable[str], most: int = 3) -> str:
    """Return the first of ``names`` by name, and the number of the others."""
    return list_names(sorted(names), most)
