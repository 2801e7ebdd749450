"""The health of DFL cards: what their errors, power states and sensors mean, and a watcher that reports changes.

The kernel reports none of it by itself without an interrupt for each card, so the watcher reads at an interval. A state
ends when what caused it is gone: errors stay logged until they are cleared, by the release of the slot or by hand.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from driver.families.fpga.geometry import KIND
from driver.kubeletplugin.backends.base import (
    CardAbsentError,
    CardChange,
    DiscoveryChange,
    HealthChange,
    HealthState,
    UnhealthyState,
)
from driver.kubeletplugin.backends.dfl.sysfs import ALL_ONES, CardCondition, PortCondition
from driver.partitions.geometry import Partition, Placement

_FATAL: Final = "catfatal_errors"
"""Catastrophic and fatal errors: the card does not work any more."""
_STOPPING: Final = ("_crit_alarm", "_emergency_alarm")
"""Temperatures at which the hardware stops all functions, or is about to shut itself off."""
_POWER_STATES: Final[Mapping[int, UnhealthyState]] = {
    1: UnhealthyState(HealthState.UNHEALTHY, "its function is slowed down by 50 % (power state AP1)"),
    2: UnhealthyState(HealthState.UNHEALTHY, "its function is slowed down by 90 % (power state AP2)"),
    6: UnhealthyState(HealthState.LOST, "its function's clock stands still (power state AP6)"),
}
"""By ``power_state`` of a port (``Documentation/ABI/testing/sysfs-platform-dfl-port``)."""

States = Mapping[Partition | None, UnhealthyState]
"""What is not healthy of a card, by partition; None: the whole card."""
Snapshot = tuple[States, object]
"""The health of a card, and what else is on it, of which only a change counts."""


def judge_condition(card_uuid: str, condition: CardCondition) -> dict[Partition | None, UnhealthyState]:
    """Return what is not healthy of a card, by partition; None: the whole card."""
    found: dict[Partition | None, UnhealthyState] = {}
    reasons = [f"{name} are {value:#x}" for name, value in condition.errors.items()]
    reasons += [f"{alarm} is on" for alarm in condition.alarms]
    if reasons:
        is_hot = any(_is_stopping(alarm) for alarm in condition.alarms)
        is_lost = _FATAL in condition.errors or is_hot
        found[None] = UnhealthyState(HealthState.LOST if is_lost else HealthState.UNHEALTHY, "; ".join(reasons))
    for slot, port in condition.ports.items():
        state = _judge_port(port)
        if state is not None:
            found[Partition(kind=KIND, card_uuid=card_uuid, placement=Placement(slot, 1))] = state
    return found


def _is_stopping(alarm: str) -> bool:
    return alarm.rpartition(" ")[2].startswith("temp") and alarm.endswith(_STOPPING)


def _judge_port(port: PortCondition) -> UnhealthyState | None:
    state = _POWER_STATES.get(port.power_state)
    if not port.errors:
        return state
    if port.errors == ALL_ONES:
        return UnhealthyState(HealthState.LOST, "its port answers with ones only")
    errors = f"its port has logged the errors {port.errors:#x}"
    if state is None:
        return UnhealthyState(HealthState.UNHEALTHY, errors)
    return UnhealthyState(state.state, f"{state.reason}; {errors}")


class HealthWatcher:
    """Reports changes of the cards that a process knows."""

    def __init__(
        self,
        *,
        list_cards: Callable[[], Sequence[str]],
        read: Callable[[str], Snapshot],
        poll_s: float,
        has_news: Callable[[], bool] = lambda: False,
    ) -> None:
        """``list_cards`` returns the UUIDs of all cards ever seen; ``read`` raises CardAbsentError; ``has_news`` says
        whether discovery has changed since it was called last.
        """
        self._has_news = has_news
        self._list_cards = list_cards
        self._read = read
        self._poll_s = poll_s
        self._closed = threading.Event()
        self._reported: dict[str, Snapshot] = {}

    def close(self) -> None:
        """End waits."""
        self._closed.set()

    def wait(self, timeout_s: float) -> Sequence[HealthChange | CardChange | DiscoveryChange]:
        """Return the changes since the last call, as soon as there are some, after ``timeout_s`` at the latest."""
        left_s = timeout_s
        while not self._closed.is_set():
            events = [*self._list_changes(), *([DiscoveryChange()] if self._has_news() else ())]
            if events or left_s <= 0:
                return events
            self._closed.wait(min(left_s, self._poll_s))
            left_s -= self._poll_s
        return []

    def _list_changes(self) -> list[HealthChange | CardChange]:
        events: list[HealthChange | CardChange] = []
        for card_uuid in self._list_cards():
            new = self._read_card(card_uuid)
            before = self._reported.get(card_uuid, ({}, new[1]))
            events += _compare(card_uuid, before[0], new[0])
            if before[1] != new[1]:
                events.append(CardChange(card_uuid=card_uuid))
            self._reported[card_uuid] = new
        return events

    def _read_card(self, card_uuid: str) -> Snapshot:
        try:
            return self._read(card_uuid)
        except CardAbsentError as error:
            return {None: UnhealthyState(HealthState.LOST, str(error))}, None


def _compare(card_uuid: str, before: States, now: States) -> list[HealthChange | CardChange]:
    changed = [part for part in {**before, **now} if before.get(part) != now.get(part)]
    return [
        HealthChange(
            card_uuid=card_uuid,
            partition=part,
            state=state.state if (state := now.get(part)) else HealthState.HEALTHY,
            reason=state.reason if state else "recovered",
        )
        for part in changed
    ]
