"""What pages show of one snapshot: nodes with their cards, claims with their pods, and the colors of claims.

All of it is computed when a page reads it: a cluster of 500 nodes has 4,000 cards, and a page shows those of a few.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from types import MappingProxyType
from typing import Final

from kerf_dra.api.core.v1 import Pod
from kerf_dra.api.model.claims import ResourceClaim
from kerf_dra.api.model.names import DeviceId, ObjectRef, list_names
from kerf_dra.driver.allocation.explain.holders import PoolKey
from kerf_dra.driver.diagnostics.cluster_index import ClusterIndex, pods_of
from kerf_dra.driver.diagnostics.explain.pod_status import has_started
from kerf_dra.driver.diagnostics.overview.claim_rows import ClaimRow, find_rows
from kerf_dra.driver.partitions.card_pictures.card_picture import CardPicture
from kerf_dra.driver.partitions.card_pictures.claim_colors import UNCOLORED, assign_colors

NODES_OF_A_PAGE: Final = 25
"""Nodes of one page of the cluster: some 200 cards, which a browser shows at once."""
CLAIMS_OF_A_PAGE: Final = 100
"""Claims of one page of their list."""
DRAWN_NODES: Final = 8
"""Nodes up to which the cluster's page draws cards with their names: more are strips, to be opened one by one."""
_STATE_COLOR: Final = 4
"""The color of all that is held where colors say states: blue, which no pattern has."""
_PODS: Final = 2
"""Pods named in place of a claim that several use."""


class ColorBy(StrEnum):
    """What the color of a part says."""

    CLAIM = "claim"
    NAMESPACE = "namespace"
    STATE = "state"


@dataclass(frozen=True, slots=True, kw_only=True)
class ListExcerpt:
    """A page of a list."""

    names: tuple[str, ...]
    number: int
    """The number of the page, from 1."""
    pages: int
    total: int
    """How many there are on all pages."""


def cut_page(names: Sequence[str], number: int, size: int) -> ListExcerpt:
    """Return the page ``number``, or the nearest that there is.

    >>> cut_page(["a", "b", "c"], 9, 2).names
    ('c',)
    """
    pages = max(1, -(-len(names) // size))
    number = min(max(number, 1), pages)
    shown = tuple(names[(number - 1) * size : number * size])
    return ListExcerpt(names=shown, number=number, pages=pages, total=len(names))


class SnapshotView:
    """A snapshot, as pages show it."""

    def __init__(self, cluster: ClusterIndex, kept: Mapping[str, int] = UNCOLORED) -> None:
        """``kept`` are the colors that claims have in the former snapshot."""
        self.cluster = cluster
        self._kept = kept

    @cached_property
    def nodes(self) -> tuple[str, ...]:
        """The names of all nodes, and of those that have published devices and exist no more."""
        return tuple(sorted({node.metadata.name for node in self.cluster.nodes} | {*filter(None, self._pools)}))

    @cached_property
    def _pools(self) -> Mapping[str, tuple[PoolKey, ...]]:
        """The pools by node; those of no node by the empty name."""
        found: dict[str, dict[PoolKey, None]] = defaultdict(dict)
        for slice_ in self.cluster.slices.compact:
            found[slice_.published.node_name or ""][slice_.pool_id] = None
        return {node: tuple(sorted(pools)) for node, pools in found.items()}

    def find_nodes(self, text: str) -> tuple[str, ...]:
        """Return the nodes whose names have ``text`` in them."""
        return tuple(name for name in self.nodes if text in name)

    def build_pictures(self, node: str) -> list[CardPicture]:
        """Return the cards of a node, or with an empty name those of no node."""
        return self.cluster.build_pictures(self._pools.get(node, ()))

    def build_pictures_of_pool(
        self, pool: PoolKey, planned: Mapping[DeviceId, Sequence[str]] = MappingProxyType({})
    ) -> list[CardPicture]:
        return self.cluster.build_pictures([pool], planned)

    @cached_property
    def claims(self) -> tuple[ResourceClaim, ...]:
        return tuple(self.cluster.claims[ref] for ref in sorted(self.cluster.claims))

    @cached_property
    def colors(self) -> Mapping[str, int]:
        """The color of each claim that holds devices."""
        return assign_colors((str(each.ref) for each in self.claims if each.status.allocation), self._kept)

    def choose_colors(self, by: ColorBy) -> Mapping[str, int]:
        """Return the color of each claim, by what colors say."""
        if by is ColorBy.CLAIM:
            return self.colors
        if by is ColorBy.STATE:
            return dict.fromkeys(self.colors, _STATE_COLOR)
        spaces = assign_colors(sorted({name.rpartition("/")[0] for name in self.colors}))
        return {name: spaces[name.rpartition("/")[0]] for name in self.colors}

    @cached_property
    def labels(self) -> Mapping[str, str]:
        """The pods that use each claim, which are drawn in its place: people know their pods, not these claims."""
        return {
            str(each.ref): list_names([str(ref) for ref in pods], _PODS)
            for each in self.claims
            if (pods := self.find_pods(each))
        }

    def find_pods(self, claim: ResourceClaim) -> tuple[ObjectRef, ...]:
        """Return the pods that a claim is reserved for, and those that name it."""
        return tuple(sorted({*pods_of(claim), *self._named_by.get(claim.ref, ())}))

    @cached_property
    def _named_by(self) -> Mapping[ObjectRef, Sequence[ObjectRef]]:
        found: dict[ObjectRef, list[ObjectRef]] = defaultdict(list)
        for ref, pod in self.cluster.pods.items():
            for name in pod.all_claim_names:
                found[ObjectRef(ref.namespace, name)].append(ref)
        return found

    @cached_property
    def rows(self) -> Sequence[ClaimRow]:
        """The claims, and the pods that wait without one, as ``kerf top`` lists them: those that wait first."""
        return find_rows(self.cluster)

    @cached_property
    def waiting_pods(self) -> tuple[Pod, ...]:
        """The pods whose devices are not prepared, and that are not being deleted."""
        pods = (self.cluster.pods[ref] for ref in sorted(self.cluster.pods))
        return tuple(pod for pod in pods if not (has_started(pod) or pod.is_terminating or pod.is_finished))

    def find_pictures_of(self, claims: Iterable[ResourceClaim]) -> list[CardPicture]:
        """Return the cards of which ``claims`` hold something."""
        held = [*claims]
        names = {str(each.ref) for each in held}
        pools = [
            (result.driver, result.pool)
            for each in held
            for result in (each.status.allocation.devices.results if each.status.allocation else ())
        ]
        return [each for each in self.cluster.build_pictures(pools) if names.intersection(each.holders)]
