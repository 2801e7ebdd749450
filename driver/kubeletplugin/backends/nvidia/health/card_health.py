"""Decides how healthy a card and its partitions are, from what NVML reports. Pure.

A condition (remapped rows, recovery action, temperature) holds for as long as the card reports it. An Xid is reported
once, so it holds until its end is known:

* the driver says which recovery a card needs, and that the card needs none: a minute after the Xid, or as soon as it
  has needed one since (for an Xid that the recovery action covers in this driver release);
* the card was away and is back, or the driver was loaded again. Both are a reset;
* the plugin has reset the card (``EventWatcher.note_reset``).

Without any of these it holds until the plugin starts again. Another program cannot reset a card while the plugin runs,
which holds it open.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

from kerf_dra.api.kerf.card_repairs import CardRepair, RepairAct, choose_repair
from kerf_dra.driver.kubeletplugin.backends.base import HealthState, UnhealthyState
from kerf_dra.driver.kubeletplugin.backends.nvidia.health.xid_policy import XidRule, find_repair, find_rule
from kerf_dra.driver.kubeletplugin.backends.nvidia.readings import ConditionReading
from kerf_dra.driver.partitions.geometry import Partition

VERDICT_S: Final = 60.0
"""Seconds after an Xid until "no recovery is needed" ends it: Xid 154, which says that one is, follows the Xid."""
_MAX_REASONS: Final = 4
"""Reasons that one message names: the kubelet accepts 1024 bytes (KEP-4680)."""

_RECOVERY_ACTIONS: Final[Mapping[int, tuple[HealthState, str, RepairAct | None]]] = MappingProxyType(
    {
        1: (HealthState.LOST, "the driver wants the card to be reset (nvidia-smi --gpu-reset)", RepairAct.RESET),
        2: (HealthState.LOST, "the driver wants the node to be booted", RepairAct.BOOT),
        3: (HealthState.UNHEALTHY, "the driver wants peer-to-peer traffic to end", None),
        4: (
            HealthState.UNHEALTHY,
            "the driver wants the card to be drained and reset",
            RepairAct.RESET_WHEN_FREE,
        ),
        5: (HealthState.UNHEALTHY, "the driver wants the IMEX domain to be recovered", None),
        6: (HealthState.LOST, "the driver wants the card's bus to be reset", RepairAct.BOOT),
        7: (HealthState.LOST, "the driver wants the machine to be booted", RepairAct.BOOT),
    }
)
"""By NVML_GPU_RECOVERY_ACTION_*. Pods are evicted where NVIDIA says "terminate all GPU processes" or wants a boot, and
"drain" lets them end by themselves (docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt, Error Recovery and Response Flags).
A boot resets the bus, too, which Kerf does not."""
_OTHER_RECOVERY: Final = UnhealthyState(HealthState.UNHEALTHY, "the driver wants a recovery that Kerf does not know")
_PENDING_ROWS: Final = "rows of its memory are remapped at the next reset of the card"
_FAILED_ROWS: Final = "rows of its memory could not be remapped: the card is to be replaced"
_TOO_HOT: Final = "the hardware has slowed it down because of its temperature"


@dataclass(frozen=True, slots=True, kw_only=True)
class XidFault:
    """An Xid whose end is not known yet."""

    xid: int
    rule: XidRule
    partition: Partition | None
    """The partition that it concerns; None: the whole card."""
    at: float
    """When it was reported last, in seconds of the caller's clock."""
    has_needed_recovery: bool = False
    """Whether the driver has wanted a recovery since."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CardHealth:
    """What is known of the health of one card."""

    condition: ConditionReading = ConditionReading()  # noqa: RUF009  (frozen)
    away: str = ""
    """The reason why the card does not answer; empty: it does."""
    faults: tuple[XidFault, ...] = ()
    """The Xids that hold, each once for each partition, the oldest first."""


def add_xid(health: CardHealth, xid: int, partition: Partition | None, now: float) -> CardHealth:
    """Return the health after an Xid; one that is ignored changes nothing."""
    rule = find_rule(xid)
    if rule.effect is HealthState.HEALTHY:
        return health
    others = [fault for fault in health.faults if (fault.xid, fault.partition) != (xid, partition)]
    return replace(health, faults=(*others, XidFault(xid=xid, rule=rule, partition=partition, at=now)))


def note_away(health: CardHealth, reason: str) -> CardHealth:
    """Return the health of a card that does not answer."""
    return replace(health, away=reason)


def note_condition(health: CardHealth, condition: ConditionReading, driver_release: int, now: float) -> CardHealth:
    """Return the health of a card that answers, of a driver of this release (``580``): some Xids end."""
    if health.away:
        return CardHealth(condition=condition)
    action = condition.recovery_action
    faults = [replace(one, has_needed_recovery=one.has_needed_recovery or bool(action)) for one in health.faults]
    kept = tuple(fault for fault in faults if not (action == 0 and _has_ended(fault, driver_release, now)))
    return CardHealth(condition=condition, faults=kept)


def list_states(health: CardHealth) -> dict[Partition | None, UnhealthyState]:
    """Return what is not healthy, by partition; None: the whole card."""
    if health.away:  # what it has said before is why
        repair = choose_repair(find_repair(fault.xid) for fault in health.faults)
        return {None: UnhealthyState(HealthState.LOST, health.away, repair)}
    found: dict[Partition | None, list[UnhealthyState]] = {}
    for state in _judge_condition(health.condition):
        found.setdefault(None, []).append(state)
    for fault in health.faults:
        state = UnhealthyState(fault.rule.effect, _describe(fault), find_repair(fault.xid))
        found.setdefault(fault.partition, []).append(state)
    return {partition: _merge(states) for partition, states in found.items()}


def _has_ended(fault: XidFault, driver_release: int, now: float) -> bool:
    """Whether a driver that wants no recovery says with this that the Xid has no effect any more."""
    since = fault.rule.recovery_since
    is_covered = since is not None and driver_release >= since
    return fault.has_needed_recovery or (is_covered and now - fault.at >= VERDICT_S)


def _judge_condition(condition: ConditionReading) -> list[UnhealthyState]:
    found = []
    if condition.recovery_action:
        found.append(_judge_recovery(condition.recovery_action))
    if condition.has_failed_rows:
        found.append(UnhealthyState(HealthState.UNHEALTHY, _FAILED_ROWS))
    if condition.has_pending_rows:
        repair = CardRepair(RepairAct.RESET_WHEN_FREE, "pending-rows")
        found.append(UnhealthyState(HealthState.UNHEALTHY, _PENDING_ROWS, repair))
    if condition.is_too_hot:
        found.append(UnhealthyState(HealthState.UNHEALTHY, _TOO_HOT))
    return found


def _judge_recovery(action: int) -> UnhealthyState:
    if action not in _RECOVERY_ACTIONS:
        return _OTHER_RECOVERY
    state, reason, act = _RECOVERY_ACTIONS[action]
    return UnhealthyState(state, reason, None if act is None else CardRepair(act, f"recovery-action-{action}"))


def _describe(fault: XidFault) -> str:
    action = f" (NVIDIA: {fault.rule.action})" if fault.rule.action else ""
    return f"Xid {fault.xid}, {fault.rule.what}{action}"


def _merge(states: list[UnhealthyState]) -> UnhealthyState:
    """Return the worst state, with the reasons of all, those of the worst first."""
    ordered = sorted(states, key=lambda one: one.state is not HealthState.LOST)
    reason = "; ".join(one.reason for one in ordered[:_MAX_REASONS])
    return UnhealthyState(ordered[0].state, reason, choose_repair(one.repair for one in states))
