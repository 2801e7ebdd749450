"""The CardMaintenances that ``kerf controller --reclaim`` writes by itself, for cards that need a repair.

Nodes say what repairs their cards by taints (``kerf_dra.api.kerf.card_repairs``), so the state is the cluster alone. A
card is *ill* while its node asks for a repair. Each repair of a card is an object of its own, of which there are three
names: it stays until a day after it was written, so that a card that falls ill again and again is repaired three times
a day at most, whatever process counts. Example: ``gpu-1`` needs a reset for the second time today. The first object
says Returned; a second one is written, unless as many other cards are being repaired as may be at a time.

An object is deleted when it is no longer needed: its card has been returned and it is a day old, or the card is well
without it or needs another repair; or the mode is Off, and its node has not begun. What a person has written is never
deleted, and no second one is written beside it.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from kerf_dra.api.kerf.card_maintenance import (
    CardMaintenance,
    CardMaintenanceObject,
    FollowingAct,
    find_work,
    is_named_card,
    maintenance_name,
)
from kerf_dra.api.kerf.card_repairs import CardRepair, RepairAct
from kerf_dra.api.model.metadata import ObjectMeta
from kerf_dra.api.model.names import list_names
from kerf_dra.driver.reclaim.cards import DrainableCard
from kerf_dra.driver.reclaim.holders import Holder, HolderVerdict

AUTOMATIC_LABEL: Final = "kerf.dev/automatic"
"""The label of the CardMaintenances that the reclaimer has written; its value is ``true``."""
MAX_REPAIRS: Final = 3
"""The most repairs of a card in a day: one may be bad luck and a second the proof, a fourth only costs pods."""
_DAY: Final = timedelta(days=1)
_ACTS: Final = MappingProxyType(
    {
        RepairAct.RESET: "needs a reset",
        RepairAct.RESET_WHEN_FREE: "needs a reset once its pods have ended",
        RepairAct.BOOT: "works again only after a boot of its node",
    }
)
_FOLLOWING: Final = MappingProxyType[RepairAct, FollowingAct](
    {RepairAct.RESET: "Reset", RepairAct.RESET_WHEN_FREE: "Reset", RepairAct.BOOT: "None"}
)
_NOT_BEGUN: Final = frozenset({None, "Pending", "Withheld"})
"""The phases in which no pod has been evicted yet."""


class ReclaimMode(StrEnum):
    """What the reclaimer does; the values are those of an option."""

    OFF = "Off"
    """It evicts nothing and writes nothing, but deletes its own CardMaintenances."""
    REPORT = "Report"
    """It carries out the CardMaintenances of people, and only reports what ill cards need."""
    ACT = "Act"
    """It has ill cards repaired, too."""


class RepairState(StrEnum):
    """What is done about an ill card; the values are those of a metric's label."""

    REPORTED = "reported"
    """Nothing, because of the mode."""
    WAITING = "waiting"
    """It is reset once its pods have ended."""
    LIMITED = "limited"
    """It waits for the repairs of other cards."""
    EXHAUSTED = "exhausted"
    """Nothing more: its repairs of today have not helped."""
    STARTED = "started"
    """There is a CardMaintenance for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairLimits:
    """How many cards are drained or repaired at a time."""

    cards: int
    """In the cluster."""
    node_cards: int
    """Of one node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IllCard:
    """A card that needs a repair."""

    card: DrainableCard
    repair: CardRepair
    holders: Sequence[Holder]

    @property
    def is_held(self) -> bool:
        """Whether claims keep it from being free."""
        return any(each.verdict is not HolderVerdict.ADMIN_ACCESS for each in self.holders)


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairReport:
    """What is done about one ill card, for people."""

    card: DrainableCard
    state: RepairState
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairDecision:
    """What follows for all ill cards."""

    reports: tuple[RepairReport, ...]
    create: tuple[CardMaintenanceObject, ...]
    """The CardMaintenances to be written."""


def is_automatic(maintenance: CardMaintenance) -> bool:
    """Whether the reclaimer has written a CardMaintenance."""
    return maintenance.metadata.labels.get(AUTOMATIC_LABEL) == "true"


def decide_repairs(
    ill: Iterable[IllCard],
    maintenances: Sequence[CardMaintenance],
    published: Sequence[DrainableCard],
    mode: ReclaimMode,
    limits: RepairLimits,
) -> RepairDecision:
    """Return what is done about the cards ``ill``, in the order of their nodes and names.

    ``published`` are the cards of the nodes that have an ill card or a CardMaintenance of the reclaimer's.
    """
    busy = [card for each in maintenances if (card := _find_busy(each, published)) is not None]
    reports, create = [], []
    for each in sorted(ill, key=lambda each: (each.card.node, each.card.name)):
        state, text, name = _decide(each, maintenances, busy, mode, limits)
        if name:
            create.append(_build(each, name))
            busy.append(each.card)
        message = f"{each.card} {_ACTS[each.repair.act]} ({each.repair.cause}): {text}"
        reports.append(RepairReport(card=each.card, state=state, message=message))
    return RepairDecision(reports=tuple(reports), create=tuple(create))


def list_ended(
    maintenances: Iterable[CardMaintenance], published: Sequence[DrainableCard], mode: ReclaimMode, now: datetime
) -> Iterator[CardMaintenance]:
    """Yield the CardMaintenances that the reclaimer has written and now deletes."""
    for each in maintenances:
        if not is_automatic(each) or each.metadata.deletion_timestamp is not None:
            continue
        card = _find_published(each, published)
        is_old = _is_before(each.metadata.creation_timestamp, now - _DAY)
        if _is_over(each) or (card is None and mode is not ReclaimMode.OFF):
            has_ended = is_old
        elif mode is ReclaimMode.OFF:
            has_ended = not _has_begun(each)
        else:
            has_ended = card is not None and _is_outdated(each, card)
        if has_ended:
            yield each


def _decide(
    ill: IllCard,
    maintenances: Sequence[CardMaintenance],
    busy: Sequence[DrainableCard],
    mode: ReclaimMode,
    limits: RepairLimits,
) -> tuple[RepairState, str, str]:
    """Return what is done about one card, the same for people, and the name of a CardMaintenance to be written."""
    its = [each for each in maintenances if _is_for(each, ill.card)]
    opened = [each.metadata.name for each in its if not _is_over(each)]
    if opened:
        return RepairState.STARTED, f"CardMaintenance {opened[0]}", ""
    if mode is not ReclaimMode.ACT:
        return RepairState.REPORTED, _describe_report(ill), ""
    if ill.repair.act is RepairAct.RESET_WHEN_FREE and ill.is_held:
        return RepairState.WAITING, f"{_list_pods(ill.holders)} hold it", ""
    known = {each.metadata.name for each in maintenances}
    names = [maintenance_name(ill.card.node, f"{ill.card.uuid}-auto-{number}") for number in range(MAX_REPAIRS)]
    name = next((each for each in names if each not in known), "")
    if not name:
        text = f"{MAX_REPAIRS} repairs within a day have not helped, and Kerf tries no more: replace it, or drain it"
        return RepairState.EXHAUSTED, text, ""
    if limit := _find_limit(ill.card, busy, limits):
        return RepairState.LIMITED, limit, ""
    return RepairState.STARTED, f"CardMaintenance {name}", name


def _find_limit(card: DrainableCard, busy: Sequence[DrainableCard], limits: RepairLimits) -> str:
    """Return which limit a further card would exceed; empty: none."""
    if len(busy) >= limits.cards:
        return f"it waits, because {limits.cards} cards of the cluster are repaired at a time (--reclaim-cards)"
    if sum(each.node == card.node for each in busy) >= limits.node_cards:
        return f"it waits, because {limits.node_cards} cards of a node are repaired at a time (--reclaim-node-cards)"
    return ""


def _describe_report(ill: IllCard) -> str:
    name = f"{ill.card.node}/{ill.card.name}"
    then = "" if ill.repair.act is RepairAct.BOOT else " --then reset"
    pods = _list_pods(each for each in ill.holders if each.verdict is HolderVerdict.EVICT)
    evicted = f"; `kerf drain {name}{then}` evicts {pods}" if pods else f"; `kerf drain {name}{then}` evicts no pod"
    return f"mode {ReclaimMode.REPORT}, so nothing is done{evicted}"


def _list_pods(holders: Iterable[Holder]) -> str:
    """Return the names of pods, and of claims that no pod uses."""
    found = [each for each in holders if each.verdict is not HolderVerdict.ADMIN_ACCESS]
    return list_names([f"claim {each.claims[0]}" if each.pod is None else str(each.pod) for each in found])


def _build(ill: IllCard, name: str) -> CardMaintenanceObject:
    node, reason = ill.card.node, f"automatic: {ill.repair.cause}"
    if ill.repair.act is RepairAct.BOOT:
        reason += "; boot the node, then the card gets claims again"
    return CardMaintenanceObject(
        metadata=ObjectMeta(name=name, labels={AUTOMATIC_LABEL: "true"}),
        spec={"nodeName": node, "card": ill.card.uuid, "reason": reason, "then": _FOLLOWING[ill.repair.act]},
    )


def _find_busy(maintenance: CardMaintenance, published: Sequence[DrainableCard]) -> DrainableCard | None:
    """Return the card of a repair that counts for the limits; one that is free and waits for a person does not."""
    is_left_to_people = maintenance.spec.then == "None" and maintenance.status.phase == "Free"
    if not is_automatic(maintenance) or _is_over(maintenance) or is_left_to_people:
        return None
    return _find_published(maintenance, published)


def _find_published(maintenance: CardMaintenance, published: Sequence[DrainableCard]) -> DrainableCard | None:
    return next((card for card in published if _is_for(maintenance, card)), None)


def _is_for(maintenance: CardMaintenance, card: DrainableCard) -> bool:
    spec = maintenance.spec
    return spec.node_name == card.node and is_named_card(spec.card, card.uuid, card.pci_bus_id)


def _is_over(maintenance: CardMaintenance) -> bool:
    """Whether its card gets claims again, though the object is still there."""
    work = find_work(maintenance.metadata.generation, maintenance.status)
    return work is not None and work.state == "Done"


def _is_outdated(maintenance: CardMaintenance, card: DrainableCard) -> bool:
    """Whether a card does not need its maintenance any more.

    One that is unhealthy and no longer says what repairs it does: a plugin that has started again does not know of the
    error. A reset that pods were evicted for is done though the card is well by then.
    """
    if card.repair is not None:
        return _FOLLOWING[card.repair.act] != maintenance.spec.then and not _has_begun(maintenance)
    if card.is_unhealthy:
        return False
    if maintenance.spec.then == "None" or maintenance.status.phase in _NOT_BEGUN:
        return True
    return maintenance.status.phase == "Stuck" and not _has_begun(maintenance)


def _has_begun(maintenance: CardMaintenance) -> bool:
    """Whether its node has begun to work on the card."""
    work = find_work(maintenance.metadata.generation, maintenance.status)
    return work is not None and work.state != "Waiting"


def _is_before(timestamp: str | None, moment: datetime) -> bool:
    return timestamp is not None and datetime.fromisoformat(timestamp).astimezone(UTC) < moment
