"""Evicts the pods that hold cards in maintenance, and writes the status of CardMaintenances.

One pass looks at all of them: there are as many as administrators drain cards, not as many as cards. In a pass each
maintenance's node is read again, its slices and its pods; claims are cached, because those of a card are not to be
found by node. Pods are evicted by the Eviction API alone, each with its UID as a precondition, so a pod that has been
created again under the name of another is never evicted in its place. Nothing is kept but when a refused eviction is
tried again: a restart in the middle goes on from the status and the cluster.
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from types import MappingProxyType
from typing import Final, Protocol, get_args

import anyio
from msgspec import structs

from kerf_dra.api.core.policy import EVICTIONS, Eviction, EvictionOptions, EvictionPreconditions
from kerf_dra.api.core.v1 import PODS, ObjectReference, Pod
from kerf_dra.api.errors import InvalidDocumentError, KerfError
from kerf_dra.api.kerf.card_maintenance import (
    CARD_MAINTENANCES,
    CardMaintenance,
    CardMaintenanceObject,
    CardMaintenanceStatus,
    MaintenancePhase,
)
from kerf_dra.api.kerf.decoder import decode_card_maintenance
from kerf_dra.api.model.base import JsonObject
from kerf_dra.api.model.claims import AllocatedClaim
from kerf_dra.api.model.devices import ResourceSlice
from kerf_dra.api.model.metadata import ObjectMeta, ObjectT
from kerf_dra.api.wire import Kind, ObjectList, to_builtins
from kerf_dra.driver.controller.reclaim.settings import NAME, ReclaimSettings
from kerf_dra.driver.families.shared.node_labels import NODE_LABEL, make_node_label
from kerf_dra.driver.kube.events import EventKind
from kerf_dra.driver.kube.http.client import PatchType
from kerf_dra.driver.kube.http.errors import ApiError, ConflictError, NotFoundError, StatusError, ThrottledError
from kerf_dra.driver.kube.patches import replace_by_merge
from kerf_dra.driver.kube.store import ObjectChange, Store
from kerf_dra.driver.reclaim.automatic_repairs import ReclaimMode
from kerf_dra.driver.reclaim.cards import DrainableCard, find_card, find_cards
from kerf_dra.driver.reclaim.eviction_budget import EvictionBudget
from kerf_dra.driver.reclaim.holders import Holder, find_holders
from kerf_dra.driver.reclaim.progress import Observation, build_invalid_status, decide_progress
from kerf_dra.driver.runtime import metrics
from kerf_dra.driver.runtime.backoff import Backoff
from kerf_dra.driver.runtime.notifier import Notifier
from kerf_dra.driver.runtime.problem_log import ProblemLog

_RETRIES: Final = Backoff(first_s=2.0, factor=2, limit_s=60.0, jitter=0.2)
"""The times between two tries of an eviction that a disruption budget refuses: pods of the budget become ready in
seconds to minutes."""
_ACTIVE: Final = frozenset({"Pending", "Withheld", "Evicting"})
"""The phases that change with what nodes and pods do, of which this process has no events: it looks again soon."""
POOL_INDEX: Final = "pool"
"""The index of claims by the pools of what is allocated to them: a cluster has very many more claims than a node."""
_PHASES: Final[tuple[MaintenancePhase, ...]] = get_args(MaintenancePhase)

_log = logging.getLogger(__name__)

_maintenances: Final = metrics.gauge("kerf_card_maintenances", "CardMaintenances, by phase.", ["phase"])
_evictions: Final = metrics.counter(
    "kerf_card_evictions_total",
    "Evictions of pods that hold cards in maintenance: accepted, refused by a disruption budget (budget), of a pod "
    "that was gone, or failed; and those that were not tried because of the limits of an hour (limited).",
    ["result"],
)


@dataclass(slots=True)
class _Refusal:
    """The last refused eviction of one pod."""

    message: str
    again_at: float
    """When it is tried again, in monotonic seconds."""
    delays: Iterator[float]
    """The times in seconds to wait after further refusals."""


@dataclass(slots=True)
class _Pass:
    """What one pass has found so far."""

    turns: int
    """How many cards more may be drained."""
    node_turns: Counter[str] = field(default_factory=Counter)
    """How many cards of each node are drained."""
    phases: list[MaintenancePhase] = field(default_factory=list)
    cards: list[DrainableCard] = field(default_factory=list)
    owners: dict[tuple[str, str], str] = field(default_factory=dict)
    """The oldest maintenance of each card that it has not left, by node and UUID."""
    pods: set[str] = field(default_factory=set)
    """The UIDs of the pods to be evicted."""


def pool_key(driver: str, pool: str) -> str:
    """Return the key of a pool in ``POOL_INDEX``."""
    return f"{driver} {pool}"


def list_pool_keys(claim: AllocatedClaim) -> tuple[str, ...]:
    """Return the keys of the pools that a claim has something of."""
    allocation = claim.status.allocation
    results = allocation.devices.results if allocation is not None else ()
    return tuple({pool_key(result.driver, result.pool): None for result in results})


CLAIM_INDEXERS: Final = MappingProxyType({POOL_INDEX: list_pool_keys})
"""The indexes of claims that the reclaimer needs."""


class ReclaimClient(Protocol):
    """The calls of ``kerf_dra.driver.kube.http.client.Client``, with its errors."""

    async def list(self, kind: Kind[ObjectT], *, field_selector: str = "") -> ObjectList[ObjectT]: ...

    async def find(self, kind: Kind[ObjectT], name: str) -> ObjectT | None: ...

    async def create_subresource(self, kind: Kind[ObjectT], value: ObjectT, subresource: str) -> None: ...

    async def patch(
        self,
        kind: Kind[ObjectT],
        name: str,
        patch: JsonObject,
        *,
        type: PatchType,  # noqa: A002  (the client's name)
        subresource: str = "",
        field_manager: str = "",
    ) -> ObjectT: ...


class PodEvents(Protocol):
    """Reports events about pods."""

    def report(self, about: ObjectReference, *, type: EventKind, reason: str, message: str) -> None:  # noqa: A002
        """Report an event. Returns at once."""
        ...


class CardReclaimer:
    """The part of ``kerf controller --reclaim`` that acts while it leads."""

    def __init__(
        self,
        client: ReclaimClient,
        *,
        maintenances: Store[CardMaintenanceObject],
        claims: Store[AllocatedClaim],
        slices: Kind[ResourceSlice],
        events: PodEvents,
        settings: ReclaimSettings,
        now: Callable[[], datetime],
        monotonic: Callable[[], float],
    ) -> None:
        """``maintenances`` and ``claims`` are the caches of informers, that of claims with ``CLAIM_INDEXERS``.

        ``now`` returns the time of day, ``monotonic`` seconds since whenever.
        """
        self._client = client
        self._maintenances = maintenances
        self._claims = claims
        self._slices = slices
        self._events = events
        self._settings = settings
        self._now = now
        self._monotonic = monotonic
        self._change = Notifier()
        self._cards: tuple[DrainableCard, ...] = ()
        """The cards in maintenance, as of the last pass."""
        self._refusals: dict[str, _Refusal] = {}
        """By the UID of the pod."""
        self._budget = EvictionBudget(settings.evictions, settings.namespace_evictions)
        self._problems = ProblemLog(_log)

    def on_maintenance(self, _change: ObjectChange[CardMaintenanceObject]) -> None:
        """Handle a change of a CardMaintenance."""
        self._change.notify()

    def on_claim(self, change: ObjectChange[AllocatedClaim]) -> None:
        """Handle a change of a claim; one that has nothing of a card in maintenance changes nothing."""
        if any(self.concerns(claim) for claim in (change.old, change.new) if claim is not None):
            self._change.notify()

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            change = self._change.next_event
            is_active = await self.reconcile()
            with anyio.move_on_after(self._settings.active_s if is_active else self._settings.idle_s):
                await change.wait()
            await anyio.sleep(self._settings.settle_s)

    async def reconcile(self) -> bool:
        """Evict what is to be evicted now, and write each status that differs; returns whether to look again soon.

        A maintenance whose node cannot be read, or whose status cannot be written, does not keep others from it.
        """
        if self._settings.mode is ReclaimMode.OFF:
            return False
        found = _Pass(turns=self._settings.limits.cards)
        held = (each for each in self._maintenances.values() if not each.is_terminating)
        for each in sorted(held, key=lambda each: (each.metadata.creation_timestamp or "", each.metadata.name)):
            name = each.metadata.name
            try:
                await self._advance(each, found)
                self._problems.clear(name)
            except KerfError as error:
                self._problems.note(name, f"CardMaintenance {name}: {error}")
                found.phases.append("Pending")
        self._problems.keep({ref.name for ref in self._maintenances.refs()})
        self._cards = tuple(found.cards)
        self._refusals = {uid: each for uid, each in self._refusals.items() if uid in found.pods}
        for phase in _PHASES:
            _maintenances.labels(phase).set(found.phases.count(phase))
        return any(phase in _ACTIVE for phase in found.phases)

    async def _advance(self, held: CardMaintenanceObject, found: _Pass) -> None:
        """Evict what is to be evicted now for one maintenance, and write its status. Raises ApiError."""
        await self._label(held)
        try:
            maintenance = decode_card_maintenance(held)
        except InvalidDocumentError as error:
            status = build_invalid_status(held.status, held.metadata.generation, str(error), self._now())
            await self._write_status(held, status)
            found.phases.append("Pending")
            return
        seen = await self._observe(maintenance, found)
        if seen.card is not None:
            found.cards.append(seen.card)
            if not seen.is_returned:  # else the next maintenance of the card has its turn
                found.owners.setdefault((seen.card.node, seen.card.uuid), held.metadata.name)
        progress = decide_progress(seen, self._now())
        if progress.evict and await self._is_current(held):
            found.pods |= {holder.uid for holder in progress.evict}
            await self._evict(seen, progress.evict)
            progress = decide_progress(replace(seen, answers=self._list_answers()), self._now())
        phase = progress.status.phase or "Pending"
        found.turns -= phase == "Evicting"
        found.node_turns[maintenance.spec.node_name] += phase == "Evicting"
        found.phases.append(phase)
        await self._write_status(held, progress.status)

    async def _observe(self, maintenance: CardMaintenance, found: _Pass) -> Observation:
        """Read the node of a maintenance. Raises ApiError."""
        spec, node = maintenance.spec, maintenance.spec.node_name
        slices = (await self._client.list(self._slices, field_selector=f"spec.nodeName={node}")).items
        published = find_cards(slices, node)
        card = find_card(published, spec.card)
        holders: Sequence[Holder] = ()
        if card is not None:
            pods: Iterable[Pod] = (await self._client.list(PODS, field_selector=f"spec.nodeName={node}")).items
            claims = self._claims.indexed(POOL_INDEX, pool_key(card.driver, card.pool))
            holders = find_holders(card, claims, pods, evicts_bare=spec.evict_bare_pods)
        return Observation(
            maintenance=maintenance,
            card=card,
            published=published,
            holders=holders,
            answers=self._list_answers(),
            earlier="" if card is None else found.owners.get((card.node, card.uuid), ""),
            waits_for=self._find_limit(node, found),
        )

    def _find_limit(self, node: str, found: _Pass) -> str:
        """Return which limit keeps the pods of a further card of a node from being evicted now; empty: none."""
        limits = self._settings.limits
        if found.turns <= 0:
            return f"{limits.cards} cards of the cluster are drained at a time (--reclaim-cards)"
        if found.node_turns[node] >= limits.node_cards:
            return f"{limits.node_cards} cards of a node are drained at a time (--reclaim-node-cards)"
        return ""

    async def _is_current(self, held: CardMaintenanceObject) -> bool:
        """Whether a maintenance is still there as it was seen: a late watch must not have pods evicted for one that has
        been ended. Raises ApiError.
        """
        now = await self._client.find(CARD_MAINTENANCES, held.metadata.name)
        return (
            now is not None
            and not now.is_terminating
            and (now.metadata.uid, now.spec) == (held.metadata.uid, held.spec)
        )

    def _list_answers(self) -> dict[str, str]:
        return {uid: each.message for uid, each in self._refusals.items()}

    async def _evict(self, seen: Observation, holders: Iterable[Holder]) -> None:
        """Evict the pods of ``holders``, without those whose refused eviction is not to be tried again yet."""
        for holder in holders:
            refusal = self._refusals.get(holder.uid)
            if holder.pod is None or (refusal is not None and self._monotonic() < refusal.again_at):
                continue
            if limit := self._budget.take(holder.pod.namespace, self._monotonic()):
                self._note_limit(holder, limit)
                continue
            metadata = ObjectMeta(namespace=holder.pod.namespace, name=holder.pod.name)
            options = EvictionOptions(preconditions=EvictionPreconditions(uid=holder.uid))
            eviction = Eviction(metadata=metadata, delete_options=options)
            try:
                await self._client.create_subresource(EVICTIONS, eviction, "eviction")
            except (NotFoundError, ConflictError):  # it has gone, or another pod has its name: the next pass sees it
                self._budget.give_back()
                _evictions.labels("gone").inc()
            except ThrottledError as error:
                self._budget.give_back()
                self._note_refusal(holder, f"its eviction waits: {error.message}")
                _evictions.labels("budget").inc()
            except ApiError as error:
                if isinstance(error, StatusError):  # else it may have happened: the answer is lost
                    self._budget.give_back()
                self._note_refusal(holder, f"its eviction failed: {error.message}")
                _evictions.labels("failed").inc()
            else:
                self._refusals.pop(holder.uid, None)
                _evictions.labels("accepted").inc()
                self._report(seen, holder)

    def _note_refusal(self, holder: Holder, message: str) -> None:
        before = self._refusals.get(holder.uid)
        delays = _RETRIES.delays() if before is None else before.delays
        self._refusals[holder.uid] = _Refusal(message, self._monotonic() + next(delays), delays)
        if before is None or before.message != message:
            _log.info("pod %s: %s", holder.pod, message)

    def _note_limit(self, holder: Holder, limit: str) -> None:
        """Note that the eviction of a pod waits for the next hour; the next pass looks again."""
        before, message = self._refusals.get(holder.uid), f"its eviction waits: {limit}"
        if before is None or before.message != message:
            _evictions.labels("limited").inc()
        delays = _RETRIES.delays() if before is None else before.delays
        self._refusals[holder.uid] = _Refusal(message, self._monotonic(), delays)

    def _report(self, seen: Observation, holder: Holder) -> None:
        """Log an eviction, and report it about the pod."""
        if holder.pod is None or seen.card is None:
            return
        why = f": {seen.maintenance.spec.reason}" if seen.maintenance.spec.reason else ""
        card = f"card {seen.card.name} of node {seen.card.node} is in maintenance{why}"
        _log.info("pod %s (%s) is evicted: %s", holder.pod, holder.uid, card)
        about = ObjectReference(
            api_version="v1", kind="Pod", namespace=holder.pod.namespace, name=holder.pod.name, uid=holder.uid
        )
        self._events.report(about, type="Normal", reason="CardDrained", message=f"the pod is evicted: {card}")

    async def _label(self, held: CardMaintenanceObject) -> None:
        """Set the label by which the plugin of its node follows the object. Raises ApiError."""
        node = held.spec.get("nodeName")
        wanted = make_node_label(node) if isinstance(node, str) else None
        if wanted is None or held.metadata.labels.get(NODE_LABEL) == wanted:
            return
        patch = {"metadata": {"uid": held.metadata.uid, "labels": {NODE_LABEL: wanted}}}
        await self._patch(held, patch, subresource="")

    async def _write_status(self, held: CardMaintenanceObject, status: CardMaintenanceStatus) -> None:
        """Write a status if it is another one, without ``work``, which the node alone writes. Raises ApiError."""
        if status == held.status:
            return
        before, after = (to_builtins(structs.replace(each, work=None)) for each in (held.status, status))
        change = replace_by_merge(before, after)
        patch = {"metadata": {"uid": held.metadata.uid}, "status": change}
        await self._patch(held, patch, subresource="status")
        if status.phase != held.status.phase:
            _log.info("CardMaintenance %s is %s: %s", held.metadata.name, status.phase, status.message)

    async def _patch(self, held: CardMaintenanceObject, patch: JsonObject, *, subresource: str) -> None:
        try:
            await self._client.patch(
                CARD_MAINTENANCES,
                held.metadata.name,
                patch,
                type=PatchType.MERGE,
                subresource=subresource,
                field_manager=NAME,
            )
        except (NotFoundError, ConflictError) as error:  # it was deleted, perhaps created again: the next pass sees it
            _log.debug("%s: %s", held.metadata.name, error)

    def concerns(self, claim: AllocatedClaim) -> bool:
        """Whether a claim has some of a card that was in maintenance in the last pass."""
        allocation = claim.status.allocation
        results = allocation.devices.results if allocation is not None else ()
        return any(card.owns(result.id) for card in self._cards for result in results)
