"""Amounts that a device lacks: what a request takes of each capacity, where that comes from, and what is free.

A request need not name the amount that it takes: without one it takes the default of the capacity's policy, or all of
it, and with one what the policy rounds it up to (``semantics.capacity``). Example: of a device with 80Gi, of which 4Gi
are taken, a request without amounts wants ``memory >= 80Gi (no amount is requested: all of it)``, and 76Gi are free.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from kerf_dra.api.model.devices import Capacity, CapacityRequestPolicy
from kerf_dra.api.model.names import DeviceId
from kerf_dra.api.model.quantity import Quantity
from kerf_dra.driver.allocation.explain.near_misses import MAX_NEAR_MISSES, FailedCondition, NearMissGroup, format_value
from kerf_dra.driver.allocation.search.problem import AllocationProblem, RequestAlternative
from kerf_dra.driver.allocation.semantics.bitset import iter_bits
from kerf_dra.driver.allocation.semantics.capacity import (
    CapacityRequestError,
    RequiredAmount,
    find_required_amounts,
    unqualified,
)

SOURCE: Final = "capacity"
"""The source of the conditions that amounts are."""
FREE: Final = "free"
"""The name of the amount that is left of a device, beside its total."""


def find_short_devices(
    problem: AllocationProblem, alternative: RequestAlternative, devices: int
) -> tuple[NearMissGroup, ...]:
    """Group those of ``devices`` that have too little of a capacity by what they lack, the nearest first."""
    groups: dict[tuple[FailedCondition, ...], list[DeviceId]] = {}
    free: dict[tuple[FailedCondition, ...], int] = {}
    for index in iter_bits(devices):
        short = dict(_find_short(problem, alternative, index))
        if short:
            key = tuple(short)
            groups.setdefault(key, []).append(problem.node_devices.device(index).id)
            free[key] = sum(short.values())
    nearest = sorted(groups, key=lambda short: (len(short), -free[short]))
    return tuple(
        NearMissGroup(device=groups[short][0], devices=len(groups[short]), unmet=short)
        for short in nearest[:MAX_NEAR_MISSES]
    )


def find_short_names(problem: AllocationProblem, alternative: RequestAlternative, devices: int) -> list[str]:
    """Return the capacities of which some of ``devices`` has too little for the request, by name."""
    short = (each for index in iter_bits(devices) for each, _ in _find_short(problem, alternative, index))
    return sorted({condition.condition.partition(" ")[0] for condition in short})


def _find_short(
    problem: AllocationProblem, alternative: RequestAlternative, index: int
) -> Iterator[tuple[FailedCondition, int]]:
    """Yield what a device has too little of, each with the amount that is free, in units of 1e-9."""
    published = problem.node_devices.device(index)
    driver, capacity = published.id.driver, published.capacity
    requests = alternative.spec.capacity.requests if alternative.spec.capacity else {}
    known = {unqualified(driver, name) for name in capacity}
    for name, amount in requests.items():
        if unqualified(driver, name) not in known:
            yield FailedCondition(SOURCE, f"{name} >= {amount}", ((name, format_value(None)),)), 0
    fractional = problem.node_devices.features.fractional_capacity_range
    try:
        required = find_required_amounts(driver, capacity, requests, fractional=fractional)
    except CapacityRequestError:
        return
    taken: Mapping[str, int] = problem.node_devices.consumed.get(index, {})
    for name, needed in required.items():
        total = capacity[name].value
        left = total.nano - taken.get(name, 0)
        if needed.is_allowed and needed.amount.nano <= left:
            continue
        values = (FREE, str(Quantity.of_nano(left, total.family))), ("total", str(total))
        yield FailedCondition(SOURCE, _describe(name, needed, capacity[name]), values), left


def _describe(name: str, needed: RequiredAmount, capacity: Capacity) -> str:
    origin = _origin(needed, capacity)
    if needed.is_allowed:
        return f"{name} >= {needed.amount} ({origin})"
    policy = capacity.request_policy
    return f"{name} = {needed.amount} ({origin}), which the device does not allow: {_describe_policy(policy)}"


def _origin(needed: RequiredAmount, capacity: Capacity) -> str:
    everything = "all of it" if needed.amount == capacity.value else ""
    if needed.requested is None:
        policy = capacity.request_policy
        default = "the default" if policy is not None and policy.default is not None else ""
        return f"no amount is requested: {', '.join(filter(None, (default, everything)))}"
    if needed.requested != needed.amount:
        return f"rounded up from {needed.requested}"
    return "as requested"


def _describe_policy(policy: CapacityRequestPolicy | None) -> str:
    if policy is None:
        return "a negative amount"
    if policy.valid_range is not None:
        range_ = policy.valid_range
        most = f" to {range_.max}" if range_.max is not None else ""
        steps = f" in steps of {range_.step}" if range_.step is not None else ""
        return f"from {range_.min}{most}{steps}"
    return f"one of {', '.join(map(str, policy.valid_values))}"
