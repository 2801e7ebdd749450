"""Keeps the published devices up to date: discovers cards, watches their health, orders devices for the next claims.

With each claim the devices in use change, and with them the best order (``kerf_dra.driver.partitions.publish_order``).
A change is published only when it makes a difference to the scheduler, and computed no sooner than it could be
published.
"""

import logging
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol

import anyio

from kerf_dra.api.errors import KerfError
from kerf_dra.api.model.devices import Pool
from kerf_dra.api.model.prepared import ClaimState, PreparedClaim, PreparedDevice
from kerf_dra.api.model.recorded_cards import CardRecord
from kerf_dra.driver.kubeletplugin.backends.base import CardChange, HealthChange, OutdatedProcessError
from kerf_dra.driver.kubeletplugin.backends.card_executor import CardExecutor
from kerf_dra.driver.kubeletplugin.inventory.devices import (
    PublishTarget,
    build_device_set,
    selects_partition,
)
from kerf_dra.driver.kubeletplugin.inventory.metrics.card_metrics import CardMetrics, CardUse
from kerf_dra.driver.kubeletplugin.inventory.node_state import NodeEvents, NodeState
from kerf_dra.driver.kubeletplugin.inventory.plugin_resources import PluginResource
from kerf_dra.driver.kubeletplugin.inventory.state.health import HeldCard, find_lost
from kerf_dra.driver.kubeletplugin.inventory.state.reservations import ReservationContext, list_in_use
from kerf_dra.driver.kubeletplugin.inventory.state.restrictions import KeptOutCards
from kerf_dra.driver.kubeletplugin.inventory.surveyor import HardwareSurveyor
from kerf_dra.driver.kubeletplugin.settings import Settings
from kerf_dra.driver.partitions.device_attributes import is_describable
from kerf_dra.driver.partitions.device_names import card_name
from kerf_dra.driver.partitions.geometry import Card, Partition
from kerf_dra.driver.partitions.recorded_cards import (
    RecordedDevice,
    from_card_record,
    has_devices,
    rebuild_card,
    to_card_record,
    without_load,
)
from kerf_dra.driver.partitions.records import from_card_part
from kerf_dra.driver.runtime import metrics
from kerf_dra.driver.runtime.problem_log import ProblemLog

SETTLE_S: Final = 0.2
"""Wait this long after the last change: a claim changes its record twice, pods come in groups, and an unhealthy card
takes its partitions with it. Ordering and publishing would keep the processor from claims that are being prepared."""
MAX_SETTLE_S: Final = 1.0
"""Wait at most this long after the first change, however fast claims come: the scheduler's first back-off for a pod
that found no device."""
BUS_S: Final = 600.0
"""Read the bus after this long though its cards are the same: that costs a file for each PCI function, and a card is
bound to another driver by hand."""

_log = logging.getLogger(__name__)

_PUBLISHED: Final = metrics.counter(
    "kerf_inventory_published_total", "Times that this node's devices were published.", ["driver"]
)
_UNHEALTHY: Final = metrics.gauge(
    "kerf_unhealthy_devices", "Cards and partitions that are unhealthy or lost.", ["driver"]
)


class RecordedCards(Protocol):
    """What the records of claims say of cards, by UUID: it outlives the process."""

    @property
    def cards(self) -> Mapping[str, CardRecord]: ...

    def note_cards(self, cards: Mapping[str, CardRecord]) -> None:
        """Take what is known of ``cards`` now. Raises KerfError; the next call tries it again."""
        ...


class TargetSource(Protocol):
    """Where the devices are published."""

    @property
    def target(self) -> PublishTarget:
        """The target of published devices, as far as known now."""
        ...


class DevicePublisher:
    """The publisher of one node's devices."""

    def __init__(
        self,
        *,
        cluster: TargetSource,
        card_executor: CardExecutor,
        state: NodeState,
        settings: Settings,
        events: NodeEvents,
        surveyor: HardwareSurveyor | None = None,
        recorded_cards: RecordedCards | None = None,
        boot_id: str = "",
    ) -> None:
        """``recorded_cards`` is what records say of cards. ``boot_id`` is the ID of this boot; empty: all records are
        of it. Without a ``surveyor`` cards are published as they are discovered.
        """
        self._cluster = cluster
        self._card_executor = card_executor
        self._state = state
        self._records = state.records
        self._health_tracker = state.health
        self._restrictions = state.restrictions
        self._settings = settings
        self._events = events
        self._surveyor = surveyor
        self._recorded_cards = recorded_cards
        self._boot_id = boot_id
        self._found: dict[str, Sequence[Card]] = {}
        """What each backend has listed last."""
        self._seen: dict[str, Card] = {}
        """The cards of this process as they were discovered last, with nothing loaded, by UUID."""
        self._record_problems = ProblemLog(_log)
        self._problems = ProblemLog(_log, logging.ERROR)
        self._bus_reads: dict[str, tuple[frozenset[str], float]] = {}
        """The addresses of a backend's cards when the bus was read last, and when that was."""
        self._unlisted = {name: ProblemLog(_log) for name in card_executor.backends}
        self._unknown_cards = ProblemLog(_log)
        self._kept_out = ProblemLog(_log, logging.INFO)
        self._withheld = ProblemLog(_log, logging.INFO)
        self._metrics = CardMetrics(settings.driver_name, settings.node_name)

    @property
    def problem(self) -> str | None:
        """The reason why devices may be missing or out of date; None: they are not."""
        return "; ".join(self._problems.messages) or None

    async def refresh(self) -> None:
        """Discover the cards and compute the devices. A backend that fails keeps the cards that it had.

        Raises OutdatedProcessError.
        """
        self._health_tracker.expire_load_failures()
        async with anyio.create_task_group() as group:
            for name in self._card_executor.backends:
                group.start_soon(self._discover, name)
        self._note_cards()
        missed = self._list_missed()
        cards = {name: [*found] for name, found in (await self._survey_new(missed)).items()}
        for held in self._apply_lost(missed):
            cards.setdefault(held.backend, []).append(held.card)
        self._report_kept_out(self._restrictions.kept_out)
        self._report_withheld([card for found in cards.values() for card in found])
        self._reserve(cards)
        devices = self._state.devices
        try:
            taken = _list_taken(self._records.values())
            devices = build_device_set(
                self._find_target(), cards, taken, self._health_tracker, devices, self._restrictions
            )
        except KerfError as error:
            self._problems.note("inventory", f"the devices cannot be published: {error}")
        else:
            self._problems.clear("inventory")
        unhealthy = [part for part in self._health_tracker.unhealthy if not self._is_kept_out(part[0])]
        _UNHEALTHY.labels(self._settings.driver_name).set(len(unhealthy))
        known = [card for found in cards.values() for card in found]
        self._metrics.update(known, self._find_use())
        self._state.note_devices(devices, known)

    async def _survey_new(self, missed: Sequence[HeldCard]) -> Mapping[str, Sequence[Card]]:
        """Have new cards surveyed, before their devices are computed; returns those to be published, by backend."""
        selected = self._select_cards()
        if self._surveyor is not None:
            await self._surveyor.meet(selected, missed)
            again = self._select_cards()
            if again != selected:  # the claims that were listed have some of a card that is kept out
                selected = again
                await self._surveyor.meet(selected, missed)
        return selected

    def _select_cards(self) -> Mapping[str, Sequence[Card]]:
        """Return the discovered cards that are published, by backend."""
        return {name: self._restrictions.kept_out.select(name, found) for name, found in self._found.items()}

    def _find_target(self) -> PublishTarget:
        """Return the target, with binding conditions only while claims are prepared early, which sets them."""
        is_active = self._state.prepares_early
        early_load_s = self._settings.early_load_s if is_active else None
        return replace(self._cluster.target, early_load_s=early_load_s, sets_conditions=is_active)

    def _report_kept_out(self, kept_out: KeptOutCards) -> None:
        """Log and report what is new of the cards that are kept out, and which entries are no cards."""
        self._unknown_cards.replace(kept_out.unknown)
        messages = kept_out.describe()
        self._kept_out.keep(messages)
        for card_uuid, message in messages.items():
            if self._kept_out.note(card_uuid, message):
                self._events.report_node("Normal", "CardKeptOut", message)

    def _report_withheld(self, cards: Sequence[Card]) -> None:
        """Log and report which of ``cards`` CardMaintenances withhold, each once."""
        messages = self._restrictions.maintenances.describe(cards)
        self._withheld.keep(messages)
        for card_uuid, message in messages.items():
            if self._withheld.note(card_uuid, message):
                self._events.report_node("Normal", "CardWithheld", message)

    def _find_use(self) -> CardUse:
        return CardUse(
            claims=_list_taken(record for record in self._records.values() if not record.resource),
            containers=_list_taken(record for record in self._records.values() if record.resource),
            foreign=self._restrictions.surveys.list_foreign(),
            reserved=self._restrictions.reservations.idle,
            kept_out=self._restrictions.kept_out,
        )

    def _reserve(self, cards: Mapping[str, Sequence[Card]]) -> None:
        """Choose which placements are kept for extended resources, before what is published is computed."""
        target, reservations = self._find_target(), self._restrictions.reservations
        drained = self._restrictions.kept_out.drained
        claims = _list_taken(record for record in self._records.values() if not record.resource)
        context = ReservationContext(
            cards=tuple(
                card
                for found in cards.values()
                for card in found
                if card.kind in target.vocabularies and card not in drained
            ),
            in_use=list_in_use(self._records.values()),
            taken=(*claims, *(reservations.claimed or ()), *self._restrictions.surveys.list_foreign()),
            can_grow=reservations.claimed is not None,
            rules=_PlacementRules(target, self._state),
        )
        reservations.update(target.plugin_resources, context)

    async def run(self) -> None:
        """Publish now and whenever it makes a difference, until cancelled."""
        published: tuple[Pool, ...] | None = None
        next_at = -math.inf
        settings = self._settings
        delays = settings.retry.delays()
        while True:
            change = self._state.changed.next_event
            await self.refresh()
            devices = self._state.devices
            if devices.pools != published:
                published = devices.pools
                self._state.note_publication(devices)
                _PUBLISHED.labels(self._settings.driver_name).inc()
                next_at = anyio.current_time() + settings.publish_min_interval_s
            if self._problems.messages:
                # A driver may be loaded any moment: it is asked soon, then as often as cards are surveyed.
                next_discovery_s = min(next(delays), settings.survey_interval_s)
            else:
                delays, next_discovery_s = settings.retry.delays(), settings.discovery_interval_s
            with anyio.move_on_after(min(next_discovery_s, self._health_tracker.load_failures_left_s)):
                await change.wait()
            noticed_at = anyio.current_time()
            await anyio.sleep_until(next_at)
            await self._settle(noticed_at + MAX_SETTLE_S)

    async def watch_health(self, name: str) -> None:
        """Apply the health changes that backend ``name`` reports, until cancelled. Raises OutdatedProcessError.

        The cards are discovered again once they are watched: a card that came between the latest discovery and the
        first events is reported by neither.
        """
        delays, subject = self._settings.retry.delays(), f"events of {name}"
        is_watched = False
        while True:
            try:
                events = await self._card_executor.wait_for_events(name)
            except OutdatedProcessError:
                raise
            except Exception as error:  # noqa: BLE001  (backends are third parties': the others go on)
                self._problems.note(subject, f"backend {name} cannot watch its cards: {error!r}")
                is_watched = False
                await anyio.sleep(next(delays))
                continue
            self._problems.clear(subject)
            if not is_watched:
                is_watched = True
                self._state.request_publication()
            delays = self._settings.retry.delays()
            for event in events:
                if isinstance(event, HealthChange):
                    self._apply_health_change(event)
                elif isinstance(event, CardChange):
                    if self._surveyor is not None and not self._is_kept_out(event.card_uuid):
                        self._surveyor.request(event.card_uuid)
                else:
                    self._state.request_publication()

    def _is_kept_out(self, card_uuid: str) -> bool:
        """Whether nothing of a card is published, because an administrator uses it for something else."""
        return self._restrictions.kept_out.is_unpublished(card_uuid)

    def _apply_health_change(self, change: HealthChange) -> None:
        if self._health_tracker.update(change) and not self._is_kept_out(change.card_uuid):
            _log.warning(
                "card %s%s is %s%s",
                change.card_uuid,
                f" {change.partition.placement}" if change.partition else "",
                change.state,
                f": {change.reason}" if change.reason else "",
            )
            self._state.note_health()

    async def _settle(self, latest: float) -> None:
        """Wait until changes pause, by the clock: a notifier would wake this task at every step of every claim."""
        while anyio.current_time() < (until := min(self._state.changed_at + SETTLE_S, latest)):  # noqa: ASYNC110  (as said)
            await anyio.sleep_until(until)

    async def _discover(self, name: str) -> None:
        try:
            found = await self._card_executor.discover(name)
        except OutdatedProcessError:
            raise
        except Exception as error:  # noqa: BLE001  (as above)
            problem = f"backend {name} cannot discover its cards: {error}"
            if self._problems.note(name, problem):
                self._events.report_node("Warning", "CardsNotDiscovered", problem)
            await self._log_unlisted(name, ())
        else:
            if self._problems.clear(name):
                self._events.report_node(
                    "Normal", "CardsDiscovered", f"backend {name} has discovered its cards: {len(found)}"
                )
            self._found[name] = found
            await self._log_unlisted(name, found)

    async def _log_unlisted(self, name: str, found: Sequence[Card]) -> None:
        """Log once which cards on the bus the backend does not list, where that does not look intended.

        The bus is read when other cards are discovered than before, and otherwise every BUS_S seconds.
        """
        addresses = frozenset(card.pci_bus_id for card in found)
        before, read_at = self._bus_reads.get(name, (None, -math.inf))
        if addresses == before and anyio.current_time() - read_at < BUS_S:
            return
        self._bus_reads[name] = (addresses, anyio.current_time())
        try:
            unlisted = await self._card_executor.list_unlisted(name, found)
        except Exception as error:  # noqa: BLE001  (as above)
            _log.debug("backend %s cannot say which cards are on the bus: %r", name, error)
            return
        unlisted = self._restrictions.kept_out.note_unlisted(name, unlisted)
        wanted = [card for card in unlisted if not card.is_expected]
        self._unlisted[name].replace(f"no card for claims: {card}; {card.next_step}" for card in wanted)

    def _list_missed(self) -> list[HeldCard]:
        """List the cards that claims have and that discovery misses, as they were when they were discovered last."""
        target = self._cluster.target
        if target.is_network_attached:  # the controller publishes them, and knows whether they are there
            return []
        found = {card.uuid: card for cards in self._found.values() for card in cards}
        slots = {card.pci_bus_id: card.uuid for card in found.values() if card.pci_bus_id}
        names = {card_name(card) for card in found.values()}
        missed: list[HeldCard] = []
        for card_uuid, devices in self._list_held().items():
            if card_uuid in found or (card := self._restore(card_uuid, devices, target)) is None:
                continue
            held = HeldCard(
                card,
                devices[0].backend,
                frozenset(replace(from_card_part(device.part), shared=False) for device in devices),
                replaced_by=slots.get(card.pci_bus_id, ""),
                is_name_taken=card_name(card) in names,
            )
            names.add(card_name(card))
            missed.append(held)
        return missed

    def _list_held(self) -> dict[str, list[PreparedDevice]]:
        """List what claims have, by the UUID of its card.

        Nothing runs with what is left of an earlier boot, so it counts only once its backend has listed its cards: the
        driver may be about to be loaded. What a container had as an extended resource then does not count: no taint
        evicts its pod, and it is prepared again when it starts.
        """
        held: dict[str, list[PreparedDevice]] = {}
        for record in self._records.values():
            if record.state is ClaimState.RELEASING:
                continue
            is_of_boot = self._boot_id in {"", record.boot_id}
            for device in record.devices:
                if is_of_boot or (not record.resource and device.backend in self._found):
                    held.setdefault(device.part.card_uuid, []).append(device)
        return held

    def _restore(self, card_uuid: str, devices: Sequence[PreparedDevice], target: PublishTarget) -> Card | None:
        """Return a card as it was discovered last, else one of its ``devices`` alone; None: it cannot be published.

        What is known of the card counts only where it has the devices, and this version can publish it.
        """
        parts = [RecordedDevice(name=one.share.id.device, partition=from_card_part(one.part)) for one in devices]
        recorded = None if self._recorded_cards is None else self._recorded_cards.cards.get(card_uuid)
        card = self._seen.get(card_uuid) or (None if recorded is None else from_card_record(recorded))
        if card is not None and has_devices(card, parts) and is_describable(card, target.vocabularies):
            return card
        card = rebuild_card(parts)
        return card if card is not None and is_describable(card, target.vocabularies) else None

    def _note_cards(self) -> None:
        """Have the records say what the discovered cards are: that outlives this process."""
        cards = {card.uuid: without_load(card) for cards in self._found.values() for card in cards}
        news = {uuid: card for uuid, card in cards.items() if self._seen.get(uuid) != card}
        self._seen |= news
        if self._recorded_cards is None:
            return
        try:
            self._recorded_cards.note_cards({uuid: to_card_record(card) for uuid, card in news.items()})
        except KerfError as error:
            self._record_problems.note("cards", f"cards cannot be described in the records of their claims: {error}")
        else:
            self._record_problems.clear("cards")

    def _apply_lost(self, missed: Sequence[HeldCard]) -> tuple[HeldCard, ...]:
        """Take note of which of the cards ``missed`` are lost; returns those that stay published."""
        lost = find_lost(missed, self._restrictions.surveys, self._found, self._health_tracker.is_lost)
        if self._health_tracker.replace_lost(lost.reasons):
            for card_uuid, reason in lost.reasons.items():
                _log.warning("card %s is lost: %s", card_uuid, reason)
            self._state.health_changed.notify()
        return lost.published


@dataclass(frozen=True, slots=True)
class _PlacementRules:
    """The rules by which placements are kept for extended resources: those by which they are published."""

    target: PublishTarget
    state: NodeState

    def selects(self, resource: PluginResource, card: Card, partition: Partition) -> bool:
        """Whether the class of a resource selects a partition."""
        return selects_partition(resource.selection, self.target, card, partition)

    def is_healthy(self, partition: Partition) -> bool:
        """Whether a container may get a partition now."""
        return self.state.find_problem(partition) is None


def _list_taken(records: Iterable[PreparedClaim]) -> list[Partition]:
    """List the partitions that claims hold, each once; admin access holds nothing (KEP-5018)."""
    devices = (device for record in records for device in record.devices)
    return list(dict.fromkeys(from_card_part(device.part) for device in devices if not device.admin_access))
