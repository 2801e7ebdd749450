"""What the kernel says of an Intel GPU's health, and what follows for claims. Pure.

A card whose driver has given it up, or that is about to shut itself off, is *lost*; one that is too hot, or has had
fatal errors, gets no new claims. Errors that were corrected change nothing.
"""

from collections.abc import Iterator
from typing import Final

from kerf_dra.driver.kubeletplugin.backends.base import HealthState, UnhealthyState
from kerf_dra.driver.kubeletplugin.backends.intel.sysfs import IntelCardCondition, Temperature

COOLED_BY: Final = 5.0
"""Degrees by which a sensor must fall below its limit before a card that was too hot is healthy again: at the limit it
would come and go with each claim."""


def judge_condition(condition: IntelCardCondition, *, was_hot: bool) -> UnhealthyState | None:
    """Return what is wrong with a card; None: nothing. ``was_hot``: ``is_hot`` was true at the last read."""
    found = [*_list_problems(condition, COOLED_BY if was_hot else 0.0)]
    if not found:
        return None
    is_lost = any(state is HealthState.LOST for state, _ in found)
    return UnhealthyState(
        HealthState.LOST if is_lost else HealthState.UNHEALTHY, "; ".join(reason for _, reason in found)
    )


def is_hot(condition: IntelCardCondition, *, was_hot: bool) -> bool:
    """Whether a sensor is above one of its limits, or was and has not cooled down enough."""
    margin = COOLED_BY if was_hot else 0.0
    return any(_find_limit(each, margin) is not None for each in condition.temperatures)


def _list_problems(condition: IntelCardCondition, margin: float) -> Iterator[tuple[HealthState, str]]:
    if condition.survivability:
        mode = " ".join(condition.survivability.split())
        yield HealthState.LOST, f"its driver does not serve it until its firmware is flashed: {mode[:_SHOWN]}"
    for each in condition.temperatures:
        found = _find_limit(each, margin)
        if found is not None:
            state, name, limit = found
            yield state, f"sensor {each.name} has {each.value:g} C, and {limit:g} C is {name}"
    if condition.fatal_errors:
        counters = ", ".join(f"{name} {count}" for name, count in condition.fatal_errors)
        yield HealthState.UNHEALTHY, f"it has had fatal errors since its driver was loaded: {counters}"


def _find_limit(sensor: Temperature, margin: float) -> tuple[HealthState, str, float] | None:
    """Return the highest limit that a sensor is above."""
    if sensor.emergency is not None and sensor.value >= sensor.emergency - margin:
        return HealthState.LOST, "an emergency", sensor.emergency
    if sensor.critical is not None and sensor.value >= sensor.critical - margin:
        return HealthState.UNHEALTHY, "critical", sensor.critical
    return None


_SHOWN: Final = 200
"""Characters of what a driver says of its mode: a reason has at most 1024 bytes (KEP-4680)."""
