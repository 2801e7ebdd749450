"""Whose end would make it fit: tried by allocating again without them.

Trials are bounded, so that an answer about thousands of nodes takes seconds: the nodes where least stands in the way
come first, and the search ends with the first single claim that would be enough.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from api.core.v1 import Node
from api.model.claims import ResourceClaim
from api.model.names import ObjectRef
from driver.allocation import Fits
from driver.diagnostics.cluster_index import Cluster
from driver.diagnostics.explain.report import EndingClaim, Remedy
from driver.diagnostics.explain.victims import Trials, smallest_release
from driver.diagnostics.progress import Track

_NODES: Final = 5
"""Nodes that are looked at: the first are the most promising, and more than a few remedies help nobody."""
_SHOWN: Final = 3


@dataclass(frozen=True, slots=True)
class Candidate:
    """A node where the end of claims may help, and the claims in the way there, card by card."""

    node: Node
    areas: tuple[tuple[str, ...], ...]


def find_remedies(
    cluster: Cluster,
    claims: Sequence[ResourceClaim],
    candidates: Sequence[Candidate],
    staying: Collection[ObjectRef],
    track: Track,
) -> tuple[tuple[Remedy, ...], int]:
    """The best remedies for ``claims``, the smallest first, and on how many nodes they were looked for.

    The claims ``staying`` are in no remedy.
    """
    promising = sorted(
        candidates, key=lambda candidate: min((len(area) for area in candidate.areas if area), default=0)
    )
    found: list[Remedy] = []
    searched = 0
    for candidate in track(promising[:_NODES], "looking for claims whose end would help"):
        searched += 1
        remedy = _remedy(cluster, claims, candidate, staying)
        if remedy is not None:
            found.append(remedy)
            if len(remedy.claims) == 1:
                break
    return tuple(sorted(found, key=lambda remedy: len(remedy.claims))[:_SHOWN]), searched


def _remedy(
    cluster: Cluster, claims: Sequence[ResourceClaim], candidate: Candidate, staying: Collection[ObjectRef]
) -> Remedy | None:
    holdings = cluster.holdings(candidate.node)
    held = {str(claim.ref): claim for claim in holdings.claims}

    def suffices(ended: frozenset[str]) -> bool:
        left = [claim for name, claim in held.items() if name not in ended]
        return isinstance(cluster.attempt(claims, candidate.node, left), Fits)

    def smallest_first(areas: Iterable[Iterable[str]]) -> list[list[str]]:
        """Claims that take little may stay if the end of larger ones is enough."""
        may_end = ([name for name in area if held[name].ref not in staying] for area in areas)
        return [sorted(area, key=lambda name: (holdings.weight(held[name]), name)) for area in may_end]

    trials = Trials(suffices)
    ended = smallest_release(smallest_first(candidate.areas), trials)
    if ended is None:  # something else comes up once these have gone
        ended = smallest_release(smallest_first([held]), trials)
    if not ended:
        return None
    return Remedy(
        node=candidate.node.metadata.name,
        claims=tuple(EndingClaim(claim=name, pods=_pods(held[name])) for name in sorted(ended)),
    )


def _pods(claim: ResourceClaim) -> tuple[str, ...]:
    users = (user.name for user in claim.status.reserved_for if user.resource == "pods")
    return tuple(str(ObjectRef(claim.metadata.namespace, name)) for name in users)
