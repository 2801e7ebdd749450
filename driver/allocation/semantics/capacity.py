"""Consumable capacity: how much of each capacity a request takes from a shareable device (KEP-5075).

A requested amount is rounded up according to the capacity's policy; without a request it is the policy's default, or
else the whole capacity. Kubernetes computes ranges in 64-bit integers, of units, or of thousandths if the range has a
fraction (gate DRAFractionalCapacityRange), and fails the pod on overflow; so does this module, with the same limits.

Example: a range from 1Gi by steps of 1Gi turns a request for 1.5Gi into 2Gi.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from kerf_dra.api.errors import PermanentError
from kerf_dra.api.model.devices import Capacity, CapacityRange, CapacityRequestPolicy
from kerf_dra.api.model.quantity import NANO, Quantity

_MAX: Final = 2**63 - 1
"""The largest int64 of Go, in which Kubernetes rounds."""
_WHOLE: Final = NANO
_THOUSANDTH: Final = NANO // 1000


class CapacityRequestError(PermanentError):
    """A capacity cannot be requested like this from any device: the pod fails, not just the device."""


@dataclass(frozen=True, slots=True)
class CapacityDemand:
    """The amounts that one request takes from one device, by capacity name as the device spells it."""

    amounts: Mapping[str, Quantity]

    def fits(self, capacity: Mapping[str, Capacity], *taken: Mapping[str, int]) -> bool:
        """Whether the demand fits into ``capacity`` beside the ``taken`` amounts, in units of 1e-9 by name."""
        return all(
            amount.nano + sum(part.get(name, 0) for part in taken) <= capacity[name].value.nano
            for name, amount in self.amounts.items()
        )


def compute_demand(
    driver: str, capacity: Mapping[str, Capacity], requests: Mapping[str, Quantity], *, fractional: bool
) -> CapacityDemand | None:
    """The demand of the capacity ``requests`` on a device with ``capacity``.

    None: the device cannot serve the request, because it lacks a capacity or its policy forbids the amount. Raises
    CapacityRequestError if the request names a capacity twice, or if an amount cannot be rounded up or is negative.
    """
    wanted = _resolved(driver, capacity, requests)
    if wanted is None:
        return None
    amounts = {name: _amount(name, wanted.get(name), each, fractional=fractional) for name, each in capacity.items()}
    is_allowed = all(
        _obeys(amount, capacity[name].request_policy, fractional=fractional) for name, amount in amounts.items()
    )
    return CapacityDemand(amounts) if is_allowed else None


class RequiredAmount(NamedTuple):
    """What a request takes of one capacity."""

    amount: Quantity
    requested: Quantity | None
    """The amount as it is requested; None: the request does not name the capacity."""
    is_allowed: bool
    """Whether the capacity's policy allows the amount."""


def find_required_amounts(
    driver: str, capacity: Mapping[str, Capacity], requests: Mapping[str, Quantity], *, fractional: bool
) -> Mapping[str, RequiredAmount]:
    """Return what a request takes of each capacity of a device, to explain why it does not fit.

    Requested capacities that the device lacks are left out. Raises CapacityRequestError as ``compute_demand`` does.
    """
    own = {unqualified(driver, name) for name in capacity}
    known = {name: amount for name, amount in requests.items() if unqualified(driver, name) in own}
    wanted = _resolved(driver, capacity, known) or {}
    required: dict[str, RequiredAmount] = {}
    for name, each in capacity.items():
        amount = _amount(name, wanted.get(name), each, fractional=fractional)
        is_allowed = _obeys(amount, each.request_policy, fractional=fractional)
        required[name] = RequiredAmount(amount=amount, requested=wanted.get(name), is_allowed=is_allowed)
    return required


def unqualified(driver: str, name: str) -> str:
    """A capacity's name without the driver's own domain, which is optional."""
    return name.removeprefix(f"{driver}/")


def _resolved(
    driver: str, capacity: Mapping[str, Capacity], requests: Mapping[str, Quantity]
) -> dict[str, Quantity] | None:
    """The requests by the names that the device uses; None: the device lacks one."""
    names = {unqualified(driver, name): name for name in capacity}
    wanted: dict[str, Quantity] = {}
    for name, amount in requests.items():
        own = names.get(unqualified(driver, name))
        if own is None:
            return None
        if own in wanted:
            raise CapacityRequestError(f"capacity {name} is requested both with and without the domain {driver}")
        wanted[own] = amount
    return wanted


def _amount(name: str, wanted: Quantity | None, capacity: Capacity, *, fractional: bool) -> Quantity:
    policy = capacity.request_policy
    if wanted is None:
        amount = policy.default if policy and policy.default is not None else capacity.value
    elif policy and policy.valid_range:
        amount = _rounded_in_range(name, wanted, policy.valid_range, fractional=fractional)
    elif policy and policy.valid_values:
        amount = next((value for value in policy.valid_values if wanted <= value), wanted)
    else:
        amount = wanted
    if amount.nano < 0:
        raise CapacityRequestError(f"capacity {name}: {amount} is negative")
    return amount


class _Range(NamedTuple):
    """A range with steps, in whole multiples of ``unit`` (in 1e-9)."""

    unit: int
    min: int
    step: int


def _stepped(range_: CapacityRange, *, fractional: bool) -> _Range | None:
    """The range in the units in which Kubernetes computes; None: the range has no steps."""
    if range_.step is None:
        return None
    bounds = [bound for bound in (range_.min, range_.max, range_.step) if bound is not None]
    is_exact = fractional and range_.step.nano > 0 and all(_is_representable(bound, _THOUSANDTH) for bound in bounds)
    unit = _THOUSANDTH if is_exact else _WHOLE
    return _Range(unit, _ceil(range_.min.nano, unit), _ceil(range_.step.nano, unit))


def _rounded_in_range(name: str, wanted: Quantity, range_: CapacityRange, *, fractional: bool) -> Quantity:
    """The smallest of min, min + step, … that is at least ``wanted``."""
    if wanted < range_.min:
        return range_.min
    stepped = _stepped(range_, fractional=fractional)
    if stepped is None:
        return wanted
    is_whole = stepped.unit == _WHOLE
    if stepped.step <= 0 or (stepped.min < 0 and not is_whole):
        raise CapacityRequestError(
            f"capacity {name}: nothing can be rounded up from {range_.min} by steps of {range_.step}"
        )
    amount = _ceil(wanted.nano, stepped.unit)
    if (is_whole and wanted.nano > _MAX * NANO) or not (is_whole or _is_representable(wanted, stepped.unit)):
        raise CapacityRequestError(f"capacity {name}: a request of {wanted} cannot be represented")
    rounded = stepped.min + _ceil(amount - stepped.min, stepped.step) * stepped.step
    if rounded > _MAX:
        raise CapacityRequestError(f"capacity {name}: a request of {wanted} cannot be represented once rounded up")
    family = range_.step.family if range_.step is not None else wanted.family
    return Quantity.of_nano(rounded * stepped.unit, family)


def _obeys(amount: Quantity, policy: CapacityRequestPolicy | None, *, fractional: bool) -> bool:
    """Whether the policy allows the amount; the policy's default is always allowed."""
    if policy is None or amount == policy.default:
        return True
    if policy.valid_range is not None:
        return _is_in_range(amount, policy.valid_range, fractional=fractional)
    return not policy.valid_values or amount in policy.valid_values


def _is_in_range(amount: Quantity, range_: CapacityRange, *, fractional: bool) -> bool:
    if range_.max is not None and amount > range_.max:
        return False
    stepped = _stepped(range_, fractional=fractional)
    if stepped is None:
        return True
    if stepped.unit != _WHOLE and not _is_representable(amount, stepped.unit):
        return False
    return stepped.step != 0 and (_ceil(amount.nano, stepped.unit) - stepped.min) % stepped.step == 0


def _is_representable(amount: Quantity, unit: int) -> bool:
    return amount.nano % unit == 0 and abs(amount.nano) <= _MAX * unit


def _ceil(amount: int, unit: int) -> int:
    return -(-amount // unit)
