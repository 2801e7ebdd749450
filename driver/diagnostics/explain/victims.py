"""The search for victims: running claims that would have to end so that waiting claims fit on a node.

The problem is to find a small set of claims without which the allocator succeeds. Whether a set suffices is decided by
allocating again without it, never by reasoning. A set is minimized by deletion, as in kube-scheduler's preemption,
which removes all victims and then reprieves them one by one (``SelectVictimsOnNode``). Invariant: a set that is found
is minimal, so none of its claims could stay. Example: of the claims of a full card, the smallest one that suffices
alone is the result; without one, all are removed, the small ones are reprieved first, and then smaller sets are tried.

The budget keeps a report on thousands of nodes within seconds: the nodes with the fewest blocking claims come first,
each has ``DEFAULT_TRIALS`` allocations, and the search ends with the first node on which a single claim suffices.
"""

from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Final, Generic, TypeVar

from kerf_dra.api.core.v1 import Node
from kerf_dra.api.model.claims import ResourceClaim
from kerf_dra.api.model.names import ObjectRef
from kerf_dra.driver.allocation import Fits
from kerf_dra.driver.diagnostics.cluster_index import ClusterIndex, pods_of
from kerf_dra.driver.diagnostics.explain.report import Victim, Victims
from kerf_dra.driver.diagnostics.progress import ProgressTracker

T = TypeVar("T", bound=Hashable)

DEFAULT_TRIALS: Final = 1000
"""Allocations for one node: enough for every set of the claims of eight cards with seven claims each."""
_MOST_NODES: Final = 5
"""Nodes that are searched: the first are the most promising, and users need only a few proposals."""
_MOST_SHOWN: Final = 3
"""Nodes with victims that are reported."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A node on which the end of claims may help (kube-scheduler's preemption has the same term)."""

    node: Node
    groups: tuple[tuple[str, ...], ...]
    """Names of the claims that block hardware there, one group for each card."""


@dataclass(slots=True)
class Trials(Generic[T]):
    """A predicate with a limited number of calls, because each call costs an allocation."""

    suffices: Callable[[frozenset[T]], bool]
    left: int = DEFAULT_TRIALS

    def __call__(self, ended: Iterable[T]) -> bool:
        """Return whether ending ``ended`` suffices; False when no call is left."""
        if self.left <= 0:
            return False
        self.left -= 1
        return self.suffices(frozenset(ended))


def find_victims(
    cluster: ClusterIndex,
    claims: Sequence[ResourceClaim],
    candidates: Sequence[Candidate],
    staying: Collection[ObjectRef],
    track: ProgressTracker,
) -> tuple[tuple[Victims, ...], int]:
    """Return the smallest sets of victims for ``claims``, at most one per node, and how many nodes were searched.

    The claims ``staying`` are never victims.
    """
    promising = sorted(
        candidates, key=lambda candidate: min((len(group) for group in candidate.groups if group), default=0)
    )
    found: list[Victims] = []
    searched = 0
    for candidate in track(promising[:_MOST_NODES], "searching for victims"):
        searched += 1
        victims = _find_on_node(cluster, claims, candidate, staying)
        if victims is not None:
            found.append(victims)
            if len(victims.claims) == 1:
                break
    return tuple(sorted(found, key=lambda victims: len(victims.claims))[:_MOST_SHOWN]), searched


def _find_on_node(
    cluster: ClusterIndex, claims: Sequence[ResourceClaim], candidate: Candidate, staying: Collection[ObjectRef]
) -> Victims | None:
    holdings = cluster.holdings(candidate.node)
    held = {str(claim.ref): claim for claim in holdings.claims}

    def suffices(ended: frozenset[str]) -> bool:
        left = [claim for name, claim in held.items() if name not in ended]
        return isinstance(cluster.attempt(claims, candidate.node, left), Fits)

    def order(groups: Iterable[Iterable[str]]) -> list[list[str]]:
        """Order the claims of each group, small ones first: they may stay if the end of larger ones suffices."""
        may_end = ([name for name in group if held[name].ref not in staying] for group in groups)
        return [sorted(group, key=lambda name: (holdings.weight(held[name]), name)) for group in may_end]

    trials = Trials(suffices)
    ended = find_smallest_set(order(candidate.groups), trials)
    if ended is None:  # another obstacle may appear once these claims have ended
        ended = find_smallest_set(order([held]), trials)
    if not ended:
        return None
    return Victims(
        node=candidate.node.metadata.name,
        claims=tuple(Victim(claim=name, pods=tuple(map(str, pods_of(held[name])))) for name in sorted(ended)),
    )


def find_smallest_set(groups: Sequence[Sequence[T]], trials: Trials[T]) -> tuple[T, ...] | None:
    """Return a minimal set that suffices: the smallest inside one group, else a small one; None when none is found.

    ``groups`` hold what competes for the same hardware, such as the claims of one card; groups may overlap. In a group
    the items whose end is the least desirable come first. The set is empty when nothing has to end.
    """
    everything = list(dict.fromkeys(each for group in groups for each in group))
    if trials(()):
        return ()
    if not trials(everything):
        return None
    for each in everything:
        if trials([each]):
            return (each,)
    enough = [group for group in groups if len(group) > 1 and trials(group)]
    best = min((_minimize(group, trials) for group in enough or [everything]), key=len)
    return (_find_smaller(enough, len(best), trials) or best) if trials.left else None


def _find_smaller(groups: Iterable[Sequence[T]], size: int, trials: Trials[T]) -> tuple[T, ...] | None:
    """Return the smallest set inside one group that suffices, with 2 to ``size`` - 1 items."""
    sets = (ended for few in range(2, size) for group in groups for ended in combinations(reversed(group), few))
    return next((ended for ended in sets if trials(ended)), None)


def _minimize(ended: Sequence[T], trials: Trials[T]) -> tuple[T, ...]:
    """Return ``ended``, which suffices, without the items that may stay."""
    needed = list(ended)
    for each in ended:
        others = [other for other in needed if other != each]
        if trials(others):
            needed = others
    return tuple(needed)
