"""The health of DFL cards: what their errors, power states and sensors mean, and ports that cannot be used.

A state ends when what caused it is gone: errors stay logged until they are cleared, by the release of the slot or by
hand. A port that is kept in reset or has no driver gets no claims, but no pod is evicted for it: a bad image fails in
one slot after the other, and pods that wait for theirs are moved with care (``claims.refused_claims``).
"""

from collections.abc import Mapping
from typing import Final

from kerf_dra.driver.families.fpga.geometry import KIND
from kerf_dra.driver.kubeletplugin.backends.base import HealthState, UnhealthyState
from kerf_dra.driver.kubeletplugin.backends.dfl.sysfs import (
    ALL_ONES,
    CardCondition,
    PortCondition,
    SensorAlarm,
)
from kerf_dra.driver.partitions.geometry import Partition, Placement

_FATAL: Final = "catfatal_errors"
"""Catastrophic and fatal errors: the card does not work any more."""
_STOPPING: Final = ("_crit", "_emergency")
"""Temperatures at which the hardware stops all functions, or is about to shut itself off."""
_POWER_STATES: Final[Mapping[int, UnhealthyState]] = {
    1: UnhealthyState(HealthState.UNHEALTHY, "its function is slowed down by 50 % (power state AP1)"),
    2: UnhealthyState(HealthState.UNHEALTHY, "its function is slowed down by 90 % (power state AP2)"),
    6: UnhealthyState(HealthState.LOST, "its function's clock stands still (power state AP6)"),
}
"""By ``power_state`` of a port (``Documentation/ABI/testing/sysfs-platform-dfl-port``)."""


def judge_condition(
    card_uuid: str, condition: CardCondition, unusable: Mapping[int, str]
) -> dict[Partition | None, UnhealthyState]:
    """Return what is not healthy of a card, by partition; None: the whole card.

    ``unusable`` is why ports cannot be used now, by slot.
    """
    found: dict[Partition | None, UnhealthyState] = {}
    reasons = [f"{name} are {value:#x}" for name, value in condition.errors.items()]
    reasons += [alarm.reason for alarm in condition.alarms]
    if reasons:
        is_stopping = any(_is_stopping(alarm) for alarm in condition.alarms)
        is_lost = _FATAL in condition.errors or is_stopping
        found[None] = UnhealthyState(HealthState.LOST if is_lost else HealthState.UNHEALTHY, "; ".join(reasons))
    for slot in sorted({*condition.ports, *unusable}):
        state = _judge_port(condition.ports.get(slot, PortCondition()), unusable.get(slot, ""))
        if state is not None:
            found[Partition(kind=KIND, card_uuid=card_uuid, placement=Placement(slot, 1))] = state
    return found


def _is_stopping(alarm: SensorAlarm) -> bool:
    """Whether the hardware itself says that it stops. A comparison alone, of sensors that may err, evicts no pod."""
    return not alarm.is_compared and alarm.limit.startswith("temp") and alarm.limit.endswith(_STOPPING)


def _judge_port(port: PortCondition, unusable: str) -> UnhealthyState | None:
    if port.errors == ALL_ONES:
        return UnhealthyState(HealthState.LOST, "its port answers with ones only")
    state = _POWER_STATES.get(port.power_state)
    reasons = [state.reason] if state is not None else []
    reasons += [unusable] if unusable else []
    reasons += [f"its port has logged the errors {port.errors:#x}"] if port.errors else []
    if not reasons:
        return None
    return UnhealthyState(HealthState.UNHEALTHY if state is None else state.state, "; ".join(reasons))
