"""What becomes of a CardMaintenance: which pods are evicted now, and its status.

The state is the status and the cluster, so a restart at any moment goes on. Phases::

    Pending ──its node has tainted the card──> Withheld ──its turn──> Evicting ──nothing holds the card──> Free
                                                                        │  ^
                                       a holder is not evicted, or the  v  │ that holder has gone, the deadline is
                                                 deadline is over     Stuck   later

    Free ──its node begins what ``then`` says──> Acting ──> Verifying ──the card is well──> Returned
                    its node cannot begin, or the card is not well  v
                                                                  Stuck

A pod that comes to hold the card after all, because it was allocated before the taint, leads back to Evicting. From
Acting on ``status.work`` says what the phase is: the node has begun, and refuses to prepare anything of the card.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Final

from msgspec.structs import replace

from kerf_dra.api.kerf.card_maintenance import (
    MAX_HOLDERS,
    CardHolder,
    CardMaintenance,
    CardMaintenanceStatus,
    MaintenancePhase,
    MaintenanceWork,
    WorkState,
    find_work,
)
from kerf_dra.api.model.metadata import Condition
from kerf_dra.api.model.names import list_names
from kerf_dra.driver.reclaim.cards import DrainableCard
from kerf_dra.driver.reclaim.holders import STAYING, Holder, HolderVerdict

ACCEPTED: Final = "Accepted"
WITHHELD: Final = "Withheld"
FREE: Final = "Free"
"""The condition without which the node of a card does nothing to it."""
_WORK_PHASES: Final[Mapping[WorkState, MaintenancePhase]] = MappingProxyType(
    {"Acting": "Acting", "Verifying": "Verifying", "Done": "Returned", "Failed": "Stuck"}
)
"""The phases that the node's work says; while it waits, who holds the card says it."""
_MAX_MESSAGE: Final = 1024
"""The most characters of a message in a status: a person reads it in one line of ``kubectl describe``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What is known of one maintenance and its card now."""

    maintenance: CardMaintenance
    card: DrainableCard | None
    """None: the node publishes no such card."""
    published: Sequence[DrainableCard]
    """All cards that the node publishes."""
    holders: Sequence[Holder]
    answers: Mapping[str, str]
    """The last answer to the eviction of a pod that was refused, by the pod's UID."""
    earlier: str = ""
    """The older maintenance of the same card, which acts in place of this one; empty: there is none."""
    waits_for: str = ""
    """The limit that keeps its pods from being evicted now, because of other cards; empty: none does."""

    @property
    def work(self) -> MaintenanceWork | None:
        """What the node has done for this generation of the spec; None: nothing."""
        return find_work(self.maintenance.metadata.generation, self.maintenance.status)

    @property
    def is_returned(self) -> bool:
        """Whether the card gets claims again, though the object is still there."""
        return self.work is not None and self.work.state == "Done"


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenanceProgress:
    """What follows from an observation."""

    status: CardMaintenanceStatus
    evict: tuple[Holder, ...]
    """The pods to evict now."""


def build_invalid_status(
    status: CardMaintenanceStatus, generation: int, problem: str, now: datetime
) -> CardMaintenanceStatus:
    """Return the status of a maintenance whose spec is invalid: it withholds no card."""
    accepted = _condition(ACCEPTED, "Invalid", problem, is_true=False)
    return CardMaintenanceStatus(
        observed_generation=generation,
        phase="Pending",
        message=_shorten(problem),
        conditions=_keep_times((accepted,), status.conditions, now),
        work=status.work,
    )


def decide_progress(seen: Observation, now: datetime) -> MaintenanceProgress:
    """Return what is evicted now, and the status that says so."""
    phase, message = _decide_phase(seen, now)
    holding = [each for each in seen.holders if each.verdict is not HolderVerdict.ADMIN_ACCESS]
    entries = tuple(_to_entry(each, seen.answers) for each in [*holding, *_list_watching(seen.holders)])
    held = seen.maintenance
    status = CardMaintenanceStatus(
        observed_generation=held.metadata.generation,
        phase=phase,
        message=_shorten(message),
        holder_count=len(holding),
        holders=entries[:MAX_HOLDERS],
        conditions=_keep_times(_build_conditions(seen, phase, message), held.status.conditions, now),
        work=held.status.work,
    )
    evicts = _may_evict(seen, now)
    return MaintenanceProgress(
        status=status, evict=tuple(each for each in holding if evicts and each.verdict is HolderVerdict.EVICT)
    )


def find_deadline(maintenance: CardMaintenance) -> datetime | None:
    """Return when the eviction of pods ends; None: there is no limit."""
    seconds, created = maintenance.spec.deadline_seconds, maintenance.metadata.creation_timestamp
    if seconds is None or created is None:
        return None
    return datetime.fromisoformat(created).astimezone(UTC) + timedelta(seconds=seconds)


def _may_evict(seen: Observation, now: datetime) -> bool:
    deadline = find_deadline(seen.maintenance)
    is_late = deadline is not None and now >= deadline
    is_withheld = seen.card is not None and seen.card.is_withheld and not seen.earlier
    return is_withheld and _find_phase_of(seen.work) is None and not seen.waits_for and not is_late


def _find_phase_of(work: MaintenanceWork | None) -> MaintenancePhase | None:
    """Return the phase of a card that its node works on, or has worked on; None: it has not begun."""
    return None if work is None else _WORK_PHASES.get(work.state)


def _decide_phase(seen: Observation, now: datetime) -> tuple[MaintenancePhase, str]:
    spec, card, work = seen.maintenance.spec, seen.card, seen.work
    if work is not None and (phase := _find_phase_of(work)) is not None:
        return phase, work.message or f"node {spec.node_name} says {work.state}"
    if card is None:
        known = list_names([f"{each.uuid} ({each.name})" for each in seen.published]) or "none"
        return "Pending", f"node {spec.node_name} publishes no card {spec.card}; it publishes {known}"
    if not card.is_withheld:
        return "Pending", (
            f"the kubelet plugin on {card.node} has not withheld {card.name} yet; if that lasts, it does not run, or "
            "is of an older version"
        )
    if seen.earlier:
        return "Withheld", f"{card.name} is drained by CardMaintenance {seen.earlier}, which is older"
    holding = [each for each in seen.holders if each.verdict is not HolderVerdict.ADMIN_ACCESS]
    staying = [each for each in holding if each.verdict in STAYING]
    if not holding and not card.is_in_use:
        if work is not None:
            return "Stuck", work.message
        return "Free", f"nothing holds {card.name} of {card.node}"
    deadline = find_deadline(seen.maintenance)
    if deadline is not None and now >= deadline:
        return "Stuck", f"the deadline is over, and pods are no longer evicted: {_describe(seen, holding)}"
    if staying and len(staying) == len(holding):
        return "Stuck", _describe(seen, staying)
    if seen.waits_for:
        return "Withheld", f"it waits, because {seen.waits_for}"
    return "Evicting", _describe(seen, holding)


def _describe(seen: Observation, holders: Iterable[Holder]) -> str:
    """Return who holds a card, each with what is done about it."""
    texts = []
    for each in holders:
        who = f"pod {each.pod}" if each.pod is not None else f"claim {each.claims[0]}"
        answer = seen.answers.get(each.uid) or each.message
        texts.append(f"{who} holds {', '.join(each.devices)}" + (f" ({answer})" if answer else ""))
    if texts:
        return "; ".join(texts)
    return (
        "no claim holds it, and its node says that it is in use: it is being released, or a container with an "
        "extended resource of the device plugin interface, or a process outside Kerf, has it; see the node's events"
    )


def _build_conditions(seen: Observation, phase: MaintenancePhase, message: str) -> tuple[Condition, ...]:
    card = seen.card
    if card is None:
        return (_condition(ACCEPTED, "NoSuchCard", message, is_true=False),)
    is_free = _is_free(seen, phase)
    reason = {"Stuck": "PodsStay", "Returned": "Returned"}.get(phase, "InUse")
    return (
        _condition(ACCEPTED, "CardFound", f"{card.name} of pool {card.driver}/{card.pool}", is_true=True),
        _condition(
            WITHHELD,
            "Tainted" if card.is_withheld else "NotTainted",
            "all of its devices are tainted" if card.is_withheld else message,
            is_true=card.is_withheld,
        ),
        _condition(FREE, "NothingHolds" if is_free else reason, message, is_true=is_free),
    )


def _is_free(seen: Observation, phase: MaintenancePhase) -> bool:
    """Whether the node may do what ``then`` says, or go on with it."""
    if phase in ("Free", "Acting", "Verifying"):
        return True
    is_held = any(each.verdict is not HolderVerdict.ADMIN_ACCESS for each in seen.holders)
    return phase == "Stuck" and seen.work is not None and not is_held


def _list_watching(holders: Iterable[Holder]) -> list[Holder]:
    return [each for each in holders if each.verdict is HolderVerdict.ADMIN_ACCESS]


def _to_entry(holder: Holder, answers: Mapping[str, str]) -> CardHolder:
    return CardHolder(
        claim=", ".join(map(str, holder.claims)),
        pod="" if holder.pod is None else str(holder.pod),
        pod_uid=holder.uid,
        verdict=holder.verdict,
        message=_shorten(answers.get(holder.uid) or holder.message),
    )


def _condition(type_: str, reason: str, message: str, *, is_true: bool) -> Condition:
    return Condition(type=type_, status="True" if is_true else "False", reason=reason, message=_shorten(message))


def _keep_times(conditions: Sequence[Condition], before: Sequence[Condition], now: datetime) -> tuple[Condition, ...]:
    """Return ``conditions`` with the time at which each came to its status."""
    known = {(each.type, each.status): each.last_transition_time for each in before}
    stamp = now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return tuple(
        replace(each, last_transition_time=known.get((each.type, each.status)) or stamp) for each in conditions
    )


def _shorten(text: str) -> str:
    return text if len(text) <= _MAX_MESSAGE else f"{text[: _MAX_MESSAGE - 1]}…"
