"""Faults of released kube-schedulers that would do harm to Kerf's users, and what Kerf does about each. Pure data.

A program that publishes or allocates asks ``find_fault`` whether a feature is to be left off; ``docs/compatibility.md``
has the table. kube-scheduler does not report its release, so that of the API server stands for it: Kubernetes allows
a scheduler that is one minor release older for as long as an upgrade takes.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple


class Release(NamedTuple):
    """A release of Kubernetes; pre-releases and builds of vendors count as the release that they are named after."""

    major: int
    minor: int
    patch: int

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}.{self.patch}"


class Feature(StrEnum):
    """What Kerf can leave off."""

    SHARES = "shares of partitions"


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerFault:
    """One fault."""

    issue: str
    """The upstream thread: ``owner/repository#number``."""
    fault: str
    """What kube-scheduler does."""
    since: Release
    """The first release that has it, of those with the feature."""
    fixed_in: Release | None
    """The first release without it, for all later ones; None: there is none yet."""
    left_off: Feature | None = None
    """What Kerf leaves off in these releases; None: nothing."""
    measure: str
    """What Kerf does, or what its users can do, as a sentence without its end."""

    def affects(self, release: Release) -> bool:
        """Whether kube-scheduler of ``release`` has the fault."""
        return self.since <= release and (self.fixed_in is None or release < self.fixed_in)

    @property
    def releases(self) -> str:
        """The releases that have it, for people."""
        return f"{self.since} and later" if self.fixed_in is None else f"from {self.since}, fixed in {self.fixed_in}"


FAULTS: Final = (
    SchedulerFault(
        issue="kubernetes/kubernetes#139034",
        fault="The counters of shared devices that are in use count as free in the next scheduling cycle: partitions "
        "that exclude each other are given to two pods",
        since=Release(1, 34, 0),
        fixed_in=Release(1, 36, 2),
        left_off=Feature.SHARES,
        measure="No shares are published; the log, and an event about the node where a class wants shares, say why",
    ),
    SchedulerFault(
        issue="kubernetes/kubernetes#138885",
        fault="A claim with `allocationMode: All` for devices that consume counters ends kube-scheduler with a panic",
        since=Release(1, 36, 0),
        fixed_in=Release(1, 36, 2),
        measure="None: all of Kerf's GPUs and their partitions consume counters, so request them by count",
    ),
    SchedulerFault(
        issue="kubernetes/kubernetes#140806",
        fault="The counters of an allocated device that is no longer published count as free",
        since=Release(1, 33, 0),
        fixed_in=None,
        measure="A device that a claim has stays published, with a taint, until the claim ends",
    ),
)
"""The known faults, those that make Kerf leave something off first."""


def find_fault(release: Release, feature: Feature) -> SchedulerFault | None:
    """Return the fault for which ``feature`` is to be left off in ``release``; None: there is none."""
    return next((each for each in FAULTS if each.left_off is feature and each.affects(release)), None)
