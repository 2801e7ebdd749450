"""A node's state that notes what its parts do to it, and what else stands at the edges of those parts."""

from collections import Counter
from collections.abc import Callable, Mapping

from kerf_dra.api.model.prepared import PreparedClaim
from kerf_dra.driver.kube.events import EventKind
from kerf_dra.driver.kubeletplugin.inventory.devices import DeviceSet
from kerf_dra.driver.kubeletplugin.inventory.node_state import NodeState, build_node_state
from kerf_dra.driver.kubeletplugin.inventory.plugin_resources import PluginResource
from kerf_dra.driver.partitions.geometry import Card, Partition
from tests.fakes.claims import DRIVER


class ObservedState(NodeState):
    """The state of a node whose ``clock`` stands still, unless a test gives one."""

    def __init__(
        self,
        records: Mapping[str, PreparedClaim] | None = None,
        *,
        devices: DeviceSet | None = None,
        now: Callable[[], float] = lambda: 0.0,
        clock: Callable[[], float] = lambda: 0.0,
        driver: str = DRIVER,
    ) -> None:
        built = build_node_state(driver, {} if records is None else records, now=now, clock=clock)
        super().__init__(built.records, built.health, built.restrictions)
        if devices is not None:
            self.devices = devices
        self.noted: Counter[str] = Counter()
        """How often what was noted."""
        self.surveyed_cards: list[str] = []

    def request_publication(self) -> None:
        self.noted["publication"] += 1
        super().request_publication()

    def note_surveys(self) -> None:
        self.noted["surveys"] += 1
        super().note_surveys()

    def note_refusals(self) -> None:
        self.noted["refusals"] += 1
        super().note_refusals()

    def note_orphans(self) -> None:
        self.noted["orphans"] += 1
        super().note_orphans()

    def note_health(self) -> None:
        self.noted["health"] += 1
        super().note_health()

    def note_surveyed(self, card_uuid: str) -> None:
        self.surveyed_cards.append(card_uuid)
        super().note_surveyed(card_uuid)


class ReportedEvents(list[tuple[str, str, str]]):
    """Type, reason and message of each event about the node."""

    def report_node(self, type_: EventKind, reason: str, message: str) -> None:
        self.append((type_, reason, message))


class SmallestGpus:
    """``PlacementRules`` of classes that select the smallest partition of GPUs, all of which are healthy."""

    def selects(self, resource: PluginResource, card: Card, partition: Partition) -> bool:
        del resource
        return card.kind == "gpu" and partition.profile == "1g.1gb"

    def is_healthy(self, partition: Partition) -> bool:
        del partition
        return True
