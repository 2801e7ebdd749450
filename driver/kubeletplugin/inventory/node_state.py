"""What the parts of one family's plugin know of their node: one object, which each part is given. Nothing here waits.

A part that learns something calls a ``note_`` method, or changes a piece of ``restrictions`` or ``health`` and requests
publication. What must hold in the same step is worked out here; everything else follows later, in the parts that wait
for a notifier. There is one for each kind of change, and no part waits for one that it notifies itself. The table in
``kerf_dra.driver.kubeletplugin`` has writers, readers and what follows of each piece.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import anyio

from kerf_dra.api.model.base import JsonObject
from kerf_dra.api.model.prepared import ClaimState, PreparedClaim
from kerf_dra.driver.kube.events import EventKind
from kerf_dra.driver.kubeletplugin.backends.card_selection import CardSelection
from kerf_dra.driver.kubeletplugin.inventory.devices import DeviceSet
from kerf_dra.driver.kubeletplugin.inventory.state.health import DeviceHealthTracker
from kerf_dra.driver.kubeletplugin.inventory.state.maintenances import CardMaintenances
from kerf_dra.driver.kubeletplugin.inventory.state.refusals import RefusalTracker
from kerf_dra.driver.kubeletplugin.inventory.state.restrictions import (
    DeviceRestrictions,
    KeptOutCards,
    KnownAllocations,
    OrphanedDevices,
    UnusableDevices,
)
from kerf_dra.driver.kubeletplugin.inventory.state.surveys import SurveyTracker
from kerf_dra.driver.kubeletplugin.inventory.state.usage import NodeUsage
from kerf_dra.driver.partitions.geometry import Card, Partition
from kerf_dra.driver.runtime.notifier import Notifier


class NodeEvents(Protocol):
    """Reports events about the node."""

    def report_node(self, type_: EventKind, reason: str, message: str) -> None:
        """Report an event. Returns at once."""
        ...


class PendingIds(Notifier):
    """IDs that wait for one part, which is notified of each."""

    def __init__(self) -> None:
        super().__init__()
        self._ids: set[str] = set()

    def add(self, id_: str) -> None:
        self._ids.add(id_)
        self.notify()

    def take(self) -> set[str]:
        """Return and forget the IDs that were added since the last call."""
        ids, self._ids = self._ids, set()
        return ids


class NodeState:
    """The state of one node, on one event loop."""

    def __init__(
        self, records: Mapping[str, PreparedClaim], health: DeviceHealthTracker, restrictions: DeviceRestrictions
    ) -> None:
        """``records`` is a live view of the records of this node's claims and extended resources."""
        self.records = records
        self.health = health
        self.restrictions = restrictions
        self.devices = DeviceSet()
        """The devices as they were computed last."""
        self.cards: Sequence[Card] = ()
        """The cards of which they are."""
        self.usage = NodeUsage()
        """What prepared devices are used for."""
        self.prepares_early = False
        """Whether claims are prepared before their pods are bound: only then may the scheduler be made to wait."""
        self.suspects = PendingIds()
        """UIDs of claims that may be gone and still hold devices, for garbage collection."""
        self.surveyed = PendingIds()
        """UUIDs of cards that have been surveyed, for repairs."""
        self.deferred = {
            uid for uid, record in records.items() if record.state is ClaimState.RELEASING and not record.resource
        }
        """UIDs of records whose release waits for a card or a process; at the start, of all that are *releasing*."""
        self.changed = Notifier()
        """Notified when something has changed on which the devices depend."""
        self.changed_at = -math.inf
        """When that was last, in the event loop's time."""
        self.refreshed = Notifier()
        """Notified when the devices have been computed."""
        self.publication: DeviceSet | None = None
        """The devices that the scheduler is to know; None: none have been computed yet."""
        self.published = Notifier()
        """Notified when they are others than before."""
        self.health_changed = Notifier()
        """Notified when the health of a device in use may have changed."""
        self.maintenances_changed = Notifier()
        """Notified when other CardMaintenances are there, or their status is another one."""

    @property
    def cards_by_uuid(self) -> Mapping[str, Card]:
        return {card.uuid: card for card in self.cards}

    def request_publication(self) -> None:
        """Have the devices computed again soon, because something has changed on which they depend."""
        self.changed_at = anyio.current_time()
        self.changed.notify()

    def note_records(self) -> None:
        """Note that a record has changed: what is kept for extended resources follows in this step."""
        reservations = self.restrictions.reservations
        if reservations.resources or reservations.kept:
            reservations.note_records(tuple(self.records.values()), self.cards_by_uuid)
        self._note_change()

    def note_surveys(self) -> None:
        """Note that what surveys show, or refusals that they end, has changed."""
        self._note_change()

    def note_refusals(self) -> None:
        """Note that the hardware has refused a device, or that a claim is known to have one."""
        self._note_change()

    def note_orphans(self) -> None:
        """Note that devices are in use of which the API server no longer has the claim, or are not any more."""
        self.request_publication()

    def note_health(self) -> None:
        """Note that the health of a card has changed."""
        self._note_change()

    def note_surveyed(self, card_uuid: str) -> None:
        """Note that a card has been surveyed: it is there, so that releases that wait for it can be finished."""
        for uid in self.deferred & self.records.keys():
            record = self.records[uid]
            if any(device.part.card_uuid == card_uuid for device in record.devices):
                self.suspects.add(uid)
        self.surveyed.add(card_uuid)

    def note_devices(self, devices: DeviceSet, cards: Sequence[Card]) -> None:
        """Note which devices of which cards the node has, as they have been computed."""
        self.devices, self.cards = devices, cards
        self.refreshed.notify()

    def note_publication(self, devices: DeviceSet) -> None:
        """Note that the scheduler is to know these devices now."""
        self.publication = devices
        self.published.notify()

    def note_usage(self, usage: NodeUsage) -> None:
        """Note what prepared devices are used for now. Nothing that is published depends on it."""
        self.usage = usage

    def note_maintenances(self, documents: Sequence[JsonObject]) -> None:
        """Note the CardMaintenances that there are now, as manifests."""
        if self.restrictions.maintenances.replace(documents):
            self._note_change()
            self.maintenances_changed.notify()

    def note_returned(self, uid: str, generation: int) -> None:
        """Note that what this generation of a CardMaintenance wants is done: it withholds its card no longer."""
        if self.restrictions.maintenances.note_returned(uid, generation):
            self._note_change()

    def note_early_preparation(self, *, is_active: bool) -> None:
        """Note whether claims are prepared before their pods are bound."""
        self.prepares_early = is_active
        self.request_publication()

    def find_problem(self, partition: Partition) -> str | None:
        """Return why no container should get a placement now; None: it may."""
        card = self.cards_by_uuid.get(partition.card_uuid)
        maintained = () if card is None else self.restrictions.maintenances.build_taints(card, ())
        taints = (*maintained, *self.health.build_taints(partition), *self.restrictions.build_taints(partition))
        return ", ".join(taint.key for taint in taints) or None

    def _note_change(self) -> None:
        self.request_publication()
        self.health_changed.notify()


def build_node_state(
    driver: str,
    records: Mapping[str, PreparedClaim],
    *,
    now: Callable[[], float],
    clock: Callable[[], float],
    node: str = "",
    selections: Mapping[str, CardSelection] | None = None,
) -> NodeState:
    """Build the state of a node of which nothing is known but ``records``, a live view.

    ``now`` returns Unix time and ``clock`` monotonic time in seconds; ``node`` is the node's name, and ``selections``
    are those of backends, by name.
    """
    allocated = KnownAllocations(records)
    return NodeState(
        records,
        DeviceHealthTracker(driver=driver, now=now, clock=clock),
        DeviceRestrictions(
            surveys=SurveyTracker(driver=driver),
            refusals=RefusalTracker(driver=driver, now=clock),
            allocated=allocated,
            orphaned=OrphanedDevices(driver=driver),
            kept_out=KeptOutCards(allocated, selections or {}, driver=driver),
            unusable=UnusableDevices(driver=driver),
            maintenances=CardMaintenances(driver=driver, node=node),
        ),
    )
