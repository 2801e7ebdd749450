"""Checks of ``capacity[].requestPolicy``: which shares of a capacity may be asked for (KEP-5075).

Source: ``validateRequestPolicy`` in ``kubernetes/pkg/apis/resource/validation`` of 1.37, with the gate
DRAFractionalCapacityRange off, as it is by default.
"""

from collections.abc import Iterator
from itertools import pairwise
from typing import Final

from api.model.base import JsonObject
from api.model.quantity import Quantity
from driver.local.apiserver.meta.status_errors import FieldError, duplicate, forbidden, invalid, required, too_many

MAX_VALID_VALUES: Final = 10


def policy_errors(policy: JsonObject, most: Quantity, path: str) -> Iterator[FieldError]:
    """``most``: the capacity that shares are taken from."""
    values, range_ = policy.get("validValues") or [], policy.get("validRange")
    if values and range_ is not None:
        yield forbidden(
            path, 'exactly one policy can be specified, cannot specify "validValues" and "validRange" at the same time'
        )
        return
    default = _amount(policy, "default")
    if default is None:
        if values or range_ is not None:
            kind = "validValues" if values else "validRange"
            yield required(f"{path}.default", f"required when {kind} is defined")
    elif values:
        yield from _value_errors([Quantity(value) for value in values], default, most, f"{path}.validValues")
    elif range_ is not None:
        yield from _range_errors(range_, default, most, f"{path}.validRange")


def _amount(fields: JsonObject, name: str) -> Quantity | None:
    return Quantity(fields[name]) if name in fields else None


def _value_errors(values: list[Quantity], default: Quantity, most: Quantity, path: str) -> Iterator[FieldError]:
    for index, (before, value) in enumerate(pairwise(values), 1):
        if before > value:
            yield invalid(f"{path}[{index}]", str(value), "values must be sorted in ascending order")
    too_long = len(values) > MAX_VALID_VALUES
    if too_long:
        yield too_many(path, len(values), MAX_VALID_VALUES)
    else:
        for index, value in enumerate(values):
            if value > most:
                yield invalid(f"{path}[{index}]", str(value), f"option is larger than capacity value: {most}")
        for index, value in enumerate(values):
            if value in values[:index]:
                yield duplicate(f"{path}[{index}]", str(value))
    if too_long or default not in values:  # of too many values none is looked at
        yield invalid(path, str(default), "default value is not valid according to the requestPolicy")


def _range_errors(range_: JsonObject, default: Quantity, most: Quantity, path: str) -> Iterator[FieldError]:
    least, top, step = (_amount(range_, field) for field in ("min", "max", "step"))
    if least is None:
        yield required(f"{path}.min", "required when validRange is defined")
        return
    if least > most:
        yield invalid(f"{path}.min", str(least), f"min is larger than capacity value: {most}")
    if default < least:
        yield invalid(f"{path}.default", str(default), f"default is less than min: {least}")
    if top is not None:
        if least > top:
            yield invalid(f"{path}.max", str(least), f"min is larger than max: {top}")
        if top > most:
            yield invalid(f"{path}.max", str(top), f"max is larger than capacity value: {most}")
        if default > top:
            yield invalid(f"{path}.default", str(default), f"default is more than max: {top}")
    if step is not None:
        yield from _step_errors(step, least, [default, *([top] if top is not None else [])], most, f"{path}.step")


def _step_errors(
    step: Quantity, least: Quantity, values: list[Quantity], most: Quantity, path: str
) -> Iterator[FieldError]:
    if step.nano <= 0:
        yield invalid(path, str(step), "must be greater than zero")
        return
    if least + step > most:
        yield invalid(path, str(step), f"one step {least + step} is larger than capacity value: {most}")
    for value in values:
        if (value.nano - least.nano) % step.nano:
            yield invalid(path, str(value), f"value is not a multiple of a given step ({step}) from ({least})")
