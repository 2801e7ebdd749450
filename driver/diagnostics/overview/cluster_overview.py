"""The document of ``kerf top``: the claims of a cluster, and what is used and free of its hardware."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Final

from kerf_dra.driver.allocation.explain.holders import PoolKey
from kerf_dra.driver.diagnostics.cluster_index import ClusterIndex
from kerf_dra.driver.diagnostics.counter_usage import CounterSetFigures, PoolFigures
from kerf_dra.driver.diagnostics.explain.report import Subject, WhyReport
from kerf_dra.driver.diagnostics.frag import CardFigures, SizeFigures, measure_hardware
from kerf_dra.driver.diagnostics.overview.claim_rows import ClaimRow, find_pool_nodes, find_rows


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFigures:
    """A node."""

    name: str
    is_ready: bool
    is_schedulable: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterOverview:
    """The document that ``kerf top --output json`` prints; its field names are the format.

    ``cards``, ``sizes``, ``unknown_cards``, ``counter_sets`` and ``whole_devices`` are those of ``kerf frag``, and
    ``why`` of a claim is the document of ``kerf why``.
    """

    kubernetes: str
    gathered_at: str
    """When the cluster was read, in RFC 3339."""
    nodes: tuple[NodeFigures, ...]
    cards: tuple[CardFigures, ...]
    sizes: tuple[SizeFigures, ...]
    unknown_cards: tuple[str, ...]
    counter_sets: tuple[CounterSetFigures, ...]
    whole_devices: tuple[PoolFigures, ...]
    claims: tuple[ClaimRow, ...]
    forbidden_lists: Mapping[str, str]
    """The lists that may not be read, and without which less is known: the reason, by plural."""

    @property
    def waiting(self) -> tuple[ClaimRow, ...]:
        """The claims that wait."""
        return tuple(row for row in self.claims if row.waits)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """Which part of a cluster is shown."""

    nodes: frozenset[str] = frozenset()
    """Only these nodes, and claims of which something is there or that have no node; empty: all."""
    namespace: str = ""
    """Only claims of this namespace; empty: all."""


EVERYTHING: Final = Scope()


def build_overview(cluster: ClusterIndex, scope: Scope = EVERYTHING) -> ClusterOverview:
    """Return what ``cluster`` has of ``scope``, without reports on why claims wait."""
    hardware = measure_hardware(cluster, scope.nodes)
    nodes = [node for node in cluster.nodes if not scope.nodes or node.metadata.name in scope.nodes]
    return ClusterOverview(
        kubernetes=cluster.state.kubernetes,
        gathered_at=cluster.state.gathered_at,
        nodes=tuple(
            NodeFigures(name=node.metadata.name, is_ready=node.is_ready, is_schedulable=not node.spec.unschedulable)
            for node in nodes
        ),
        cards=hardware.cards,
        sizes=hardware.sizes,
        unknown_cards=hardware.unknown_cards,
        counter_sets=hardware.counter_sets,
        whole_devices=hardware.whole_devices,
        claims=tuple(row for row in find_rows(cluster) if _is_in_scope(row, scope)),
        forbidden_lists=cluster.state.forbidden_lists,
    )


def with_reports(overview: ClusterOverview, reports: Mapping[Subject, WhyReport]) -> ClusterOverview:
    """Return ``overview`` with these reports on the claims of them that wait."""
    rows = (
        replace(row, why=reports[row.subject] if row.waits else None) if row.subject in reports else row
        for row in overview.claims
    )
    return replace(overview, claims=tuple(rows))


def list_pools(cluster: ClusterIndex, nodes: Collection[str] = ()) -> list[PoolKey]:
    """Return the pools of ``nodes``, or of all nodes if it is empty, by node; those of no single node are last."""
    found = {pool: node for pool, node in find_pool_nodes(cluster).items() if not nodes or not node or node in nodes}
    return sorted(found, key=lambda pool: (not found[pool], found[pool], pool))


def _is_in_scope(row: ClaimRow, scope: Scope) -> bool:
    is_near = not scope.nodes or not row.nodes or bool(scope.nodes.intersection(row.nodes))
    return is_near and scope.namespace in ("", row.subject.namespace)
