"""Reports the cards that need a repair, and in mode Act writes the CardMaintenances by which they get it.

The cache of slices keeps of each only its node and whether a device of it asks for a repair, so that memory does not
grow with the devices of a cluster. The nodes with such slices, and those of the reclaimer's own CardMaintenances, are
read again in each pass. What is done is decided in ``kerf_dra.driver.reclaim.automatic_repairs``.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Final, Protocol

import anyio
from msgspec.structs import replace

from kerf_dra.api.core.v1 import PODS, ObjectReference, Pod
from kerf_dra.api.errors import InvalidDocumentError, KerfError
from kerf_dra.api.kerf.card_maintenance import CARD_MAINTENANCES, CardMaintenance, CardMaintenanceObject
from kerf_dra.api.kerf.decoder import decode_card_maintenance
from kerf_dra.api.model.claims import AllocatedClaim
from kerf_dra.api.model.devices import ResourceSlice
from kerf_dra.api.model.metadata import Object, ObjectMeta, ObjectT
from kerf_dra.api.wire import Kind, ObjectList, projected_kind
from kerf_dra.driver.controller.reclaim.executor import POOL_INDEX, PodEvents, pool_key
from kerf_dra.driver.controller.reclaim.settings import NAME, ReclaimSettings
from kerf_dra.driver.families.shared.node_labels import NODE_LABEL, make_node_label
from kerf_dra.driver.kube.http.errors import AlreadyExistsError, ConflictError, NotFoundError
from kerf_dra.driver.kube.store import ObjectChange, Store
from kerf_dra.driver.reclaim.automatic_repairs import (
    IllCard,
    ReclaimMode,
    RepairReport,
    RepairState,
    decide_repairs,
    is_automatic,
    list_ended,
)
from kerf_dra.driver.reclaim.cards import DrainableCard, find_cards, list_repairs
from kerf_dra.driver.reclaim.holders import find_holders
from kerf_dra.driver.runtime import metrics
from kerf_dra.driver.runtime.notifier import Notifier
from kerf_dra.driver.runtime.problem_log import ProblemLog

_log = logging.getLogger(__name__)

_LIST: Final = "CardMaintenances"
"""The subject of a problem with their list; other subjects are names of nodes and of CardMaintenances."""
_ill: Final = metrics.gauge(
    "kerf_cards_to_repair",
    "Cards whose nodes say what repairs them, by what the reclaimer does about it: reported (mode Report), waiting "
    "(for their pods to end), limited (other cards are repaired first), exhausted (the repairs of a day have not "
    "helped), or started (there is a CardMaintenance).",
    ["state"],
)


class SliceRepairs(Object):
    """What the cache keeps of a ResourceSlice."""

    node: str = ""
    """The node of the slice if a device of it asks for a repair; else empty."""


def repair_slice_kind(kind: Kind[ResourceSlice]) -> Kind[SliceRepairs]:
    """Return the kind of what the cache keeps of slices."""
    return projected_kind(kind, SliceRepairs, keep_repairs)


def keep_repairs(slice_: ResourceSlice) -> SliceRepairs:
    """Return what the cache keeps of a slice."""
    is_asking = any(True for _ in list_repairs(slice_.spec.driver, slice_.spec.devices))
    metadata = slice_.metadata
    return SliceRepairs(
        metadata=ObjectMeta(name=metadata.name, uid=metadata.uid, resource_version=metadata.resource_version),
        node=(slice_.spec.node_name or "") if is_asking else "",
    )


def _decode_all(held: Iterable[CardMaintenanceObject]) -> Iterable[CardMaintenance]:
    """Yield those that are valid."""
    for each in held:
        try:
            yield decode_card_maintenance(each)
        except InvalidDocumentError as error:
            _log.debug("%s: %s", each.metadata.name, error)


class RepairClient(Protocol):
    """The calls of ``kerf_dra.driver.kube.http.client.Client``, with its errors."""

    async def list(self, kind: Kind[ObjectT], *, field_selector: str = "") -> ObjectList[ObjectT]: ...

    async def create(self, kind: Kind[ObjectT], value: ObjectT, *, field_manager: str = "") -> ObjectT: ...

    async def delete(
        self, kind: Kind[ObjectT], name: str, *, uid: str | None = None, resource_version: str | None = None
    ) -> None: ...


class CardRepairer:
    """The part of ``kerf controller --reclaim`` that acts by itself while it leads."""

    def __init__(
        self,
        client: RepairClient,
        *,
        maintenances: Store[CardMaintenanceObject],
        claims: Store[AllocatedClaim],
        repairs: Store[SliceRepairs],
        slices: Kind[ResourceSlice],
        events: PodEvents,
        settings: ReclaimSettings,
        now: Callable[[], datetime],
    ) -> None:
        """``maintenances``, ``claims`` and ``repairs`` are the caches of informers, that of claims with
        ``CLAIM_INDEXERS``; ``now`` returns the time of day.
        """
        self._client = client
        self._maintenances = maintenances
        self._claims = claims
        self._repairs = repairs
        self._slices = slices
        self._events = events
        self._settings = settings
        self._now = now
        self._change = Notifier()
        self._reports = ProblemLog(_log)
        """What has been reported of each card."""
        self._problems = ProblemLog(_log)

    def on_slice(self, change: ObjectChange[SliceRepairs]) -> None:
        """Handle a change of a slice; one that never asked for a repair changes nothing."""
        if any(each is not None and each.node for each in (change.old, change.new)):
            self._change.notify()

    def on_maintenance(self, _change: ObjectChange[CardMaintenanceObject]) -> None:
        """Handle a change of a CardMaintenance."""
        self._change.notify()

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            change = self._change.next_event
            await self.reconcile()
            with anyio.move_on_after(self._settings.idle_s):
                await change.wait()
            await anyio.sleep(self._settings.active_s)

    async def reconcile(self) -> None:
        """Report the ill cards, and write and delete CardMaintenances.

        A node that cannot be read does not keep others from it; while one cannot be, no maintenance is written, for
        the limits count the cards of all.
        """
        maintenances = list(self._list_maintenances())
        own_nodes = {each.spec.node_name for each in maintenances if is_automatic(each)}
        ill_nodes = {each.node for each in self._repairs.values() if each.node}
        published: list[DrainableCard] = []
        ill: list[IllCard] = []
        unread: set[str] = set()
        for node in sorted(own_nodes | ill_nodes):
            try:
                cards = await self._read_node(node)
                published += cards
                ill += await self._find_ill(node, cards)
                self._problems.clear(node)
            except KerfError as error:
                unread.add(node)
                self._problems.note(node, f"the cards of node {node} cannot be judged: {error}")
        self._problems.keep({_LIST} | own_nodes | ill_nodes | {each.metadata.name for each in maintenances})
        mode = self._settings.mode
        readable = [each for each in maintenances if each.spec.node_name not in unread]
        for each in list_ended(readable, published, mode, self._now()):
            await self._delete(each)
        if mode is not ReclaimMode.OFF:
            decision = decide_repairs(ill, maintenances, published, mode, self._settings.limits)
            self._report(decision.reports)
            if decision.create and not unread:
                await self._create_wanted(ill, published)

    def _list_maintenances(self) -> Iterable[CardMaintenance]:
        """Yield the valid CardMaintenances, those that are being deleted, too: their cards are not given back yet."""
        return _decode_all(self._maintenances.values())

    async def _create_wanted(self, ill: Sequence[IllCard], published: Sequence[DrainableCard]) -> None:
        """Write the CardMaintenances that are wanted by those that the API server has: a late cache may lack the one
        of a card that was written in place of an older one of its name.
        """
        try:
            held = (await self._client.list(CARD_MAINTENANCES)).items
        except KerfError as error:
            self._problems.note(_LIST, f"the CardMaintenances cannot be listed, and none is created: {error}")
            return
        self._problems.clear(_LIST)
        mode, limits = self._settings.mode, self._settings.limits
        for each in decide_repairs(ill, [*_decode_all(held)], published, mode, limits).create:
            await self._create(each)

    async def _read_node(self, node: str) -> list[DrainableCard]:
        """Return the cards of a node. Raises ApiError."""
        return find_cards((await self._client.list(self._slices, field_selector=f"spec.nodeName={node}")).items, node)

    async def _find_ill(self, node: str, cards: Iterable[DrainableCard]) -> list[IllCard]:
        """Return the cards of a node that need a repair, with who holds them. Raises ApiError."""
        asking = [(card, card.repair) for card in cards if card.repair is not None]
        if not asking:
            return []
        pods: Sequence[Pod] = (await self._client.list(PODS, field_selector=f"spec.nodeName={node}")).items
        found = []
        for card, repair in asking:
            claims = self._claims.indexed(POOL_INDEX, pool_key(card.driver, card.pool))
            holders = find_holders(card, claims, pods, evicts_bare=False)
            found.append(IllCard(card=card, repair=repair, holders=holders))
        return found

    def _report(self, reports: Sequence[RepairReport]) -> None:
        """Log what is new of ill cards, report it about their nodes, and set the metric."""
        for each in reports:
            if self._reports.note(f"{each.card.node}/{each.card.uuid}", each.message):
                about = ObjectReference(api_version="v1", kind="Node", name=each.card.node, uid=each.card.node)
                self._events.report(about, type="Warning", reason="CardNeedsRepair", message=each.message)
        self._reports.keep({f"{each.card.node}/{each.card.uuid}" for each in reports})
        for state in RepairState:
            _ill.labels(state).set(sum(each.state is state for each in reports))

    async def _create(self, wanted: CardMaintenanceObject) -> None:
        name, node = wanted.metadata.name, wanted.spec["nodeName"]
        labels = {**wanted.metadata.labels, NODE_LABEL: make_node_label(node)}
        value = replace(wanted, metadata=replace(wanted.metadata, labels=labels))
        try:
            await self._client.create(CARD_MAINTENANCES, value, field_manager=NAME)
        except AlreadyExistsError as error:  # the cache does not show it yet
            _log.debug("%s: %s", name, error)
        except KerfError as error:
            self._problems.note(name, f"CardMaintenance {name} cannot be created: {error}")
        else:
            _log.info("CardMaintenance %s is created: %s", name, wanted.spec["reason"])

    async def _delete(self, ended: CardMaintenance) -> None:
        metadata = ended.metadata
        try:
            await self._client.delete(
                CARD_MAINTENANCES, metadata.name, uid=metadata.uid, resource_version=metadata.resource_version
            )
        except (NotFoundError, ConflictError) as error:  # it is gone, or the cache does not show what it says now
            _log.debug("%s: %s", metadata.name, error)
        except KerfError as error:
            self._problems.note(metadata.name, f"CardMaintenance {metadata.name} cannot be deleted: {error}")
        else:
            _log.info("CardMaintenance %s is deleted: its card needs it no more", metadata.name)
