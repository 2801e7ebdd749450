"""``kerf drain``: what would be done to make a card free, as a report. It plans on the objects as they are read now."""

from collections.abc import Sequence
from dataclasses import dataclass

from kerf_dra.api.core.policy import PodDisruptionBudget
from kerf_dra.api.kerf.card_maintenance import is_named_card
from kerf_dra.api.model.names import ObjectRef, list_names
from kerf_dra.driver.diagnostics.cluster_index import ClusterIndex
from kerf_dra.driver.diagnostics.errors import QueryError
from kerf_dra.driver.diagnostics.node_fit import restore_requests
from kerf_dra.driver.reclaim.cards import DrainableCard, find_cards
from kerf_dra.driver.reclaim.holders import STAYING
from kerf_dra.driver.reclaim.plan import PlannedHolder, ReclaimSnapshot, plan_reclaim


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainedHolder:
    """A pod that holds some of the card, or a claim that no pod uses."""

    pod: str
    """As ``namespace/name``; empty: no pod uses the claim."""
    claims: tuple[str, ...]
    devices: tuple[str, ...]
    owner: str
    """Who creates the pod again, such as ``ReplicaSet web-7d9``."""
    verdict: str
    """``Evict``, or why it is not evicted, as in the status of a CardMaintenance."""
    message: str
    new_node: str
    """Where an evicted pod fits then; empty: nowhere."""
    new_devices: tuple[str, ...]
    is_undecided: bool
    """Whether a search for devices was given up."""
    disruption_budgets: tuple[str, ...]
    """Those that allow no eviction now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainReport:
    """The document that ``kerf drain --output json`` prints; its field names are the format."""

    node: str
    card: str
    """The card's name, such as ``gpu-1``."""
    uuid: str
    pci_address: str
    evict: tuple[DrainedHolder, ...]
    """The pods that are evicted, in this order."""
    others: tuple[DrainedHolder, ...]
    """The holders that are not evicted."""
    budgets_known: bool
    """Whether disruption budgets could be read."""
    unjudged: str = ""
    """Why CPU and memory are not judged; empty: they are."""
    maintenance: str = ""
    """The CardMaintenance that drains the card; empty: there is none."""
    phase: str = ""
    """Its phase, as it was seen last."""
    message: str = ""
    """Its message."""

    @property
    def is_possible(self) -> bool:
        """Whether the card becomes free without a person, and each pod that is created again fits elsewhere."""
        fits = all(each.new_node or not each.owner for each in self.evict)
        return fits and not any(each.verdict in STAYING for each in self.others)


def find_drained_card(cluster: ClusterIndex, node: str, card: str) -> DrainableCard:
    """Return the card of ``node`` with this name, UUID or PCI address. Raises QueryError."""
    names = [each.metadata.name for each in cluster.nodes]
    if node not in names:
        raise QueryError(f"no node is called {node!r}; there is {list_names(names) or 'no node'}")
    published = find_cards(cluster.slices, node)
    found = [each for each in published if each.name == card or is_named_card(card, each.uuid, each.pci_bus_id)]
    if not found:
        known = ", ".join(f"{each.name} ({each.uuid})" for each in published) or "no card"
        raise QueryError(f"node {node} publishes no card {card!r}; it publishes {known}")
    if len(found) > 1:
        known = ", ".join(f"{each.uuid} of {each.driver}" for each in found)
        raise QueryError(f"node {node} publishes several cards {card!r}: name one by its UUID, {known}")
    return found[0]


def plan_drain(
    cluster: ClusterIndex,
    card: DrainableCard,
    disruption_budgets: Sequence[PodDisruptionBudget] | None,
    *,
    evicts_bare: bool,
) -> DrainReport:
    """Return what would be done to make ``card`` free; ``disruption_budgets`` None: they may not be read."""
    state = cluster.state
    snapshot = ReclaimSnapshot(
        nodes=cluster.nodes,
        pods=state.pods,
        claims=state.claims,
        classes=state.classes,
        slices=cluster.slices,
        features=cluster.features,
        budget=cluster.budget,
        requested=restore_requests(state.requested),
        disruption_budgets=disruption_budgets,
    )
    plan = plan_reclaim(snapshot, card, evicts_bare=evicts_bare)
    return DrainReport(
        node=card.node,
        card=card.name,
        uuid=card.uuid,
        pci_address=card.pci_bus_id,
        evict=tuple(map(_describe, plan.evicted)),
        others=tuple(map(_describe, plan.others)),
        budgets_known=disruption_budgets is not None,
    )


def _describe(planned: PlannedHolder) -> DrainedHolder:
    holder = planned.holder
    return DrainedHolder(
        pod=_name(holder.pod),
        claims=tuple(map(str, holder.claims)),
        devices=holder.devices,
        owner=holder.owner,
        verdict=holder.verdict,
        message=holder.message,
        new_node=planned.new_node,
        new_devices=planned.new_devices,
        is_undecided=planned.is_undecided,
        disruption_budgets=planned.blocked_by,
    )


def _name(pod: ObjectRef | None) -> str:
    return "" if pod is None else str(pod)
