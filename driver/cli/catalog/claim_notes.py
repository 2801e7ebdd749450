"""Notes of ``kerf claim`` about amounts that are a little more than a size of a known model."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from kerf_dra.api.model.names import list_names
from kerf_dra.api.model.quantity import Quantity
from kerf_dra.driver.scheduling.size_notes import (
    DeviceSize,
    choose_smaller,
    describe_near_size,
    is_near,
    is_waste,
)

_MOST: Final = 3
"""Notes about one amount: models whose sizes have the same names have one in common."""


def describe_near_sizes(requested: Quantity, sizes: Iterable[DeviceSize]) -> Iterator[str]:
    """Yield a sentence for each group of models of which a request takes a larger size for the lack of a little.

    Models are in a group if the sizes have the same names.
    """
    groups: dict[tuple[str, str], list[tuple[DeviceSize, DeviceSize | None]]] = {}
    for own in _group_by_model(sizes).values():
        if missed := [each for each in own if is_near(requested, each.amount)]:
            smaller = choose_smaller(missed)
            having = [each for each in own if each.amount >= requested]
            larger = min(having, key=lambda each: each.amount, default=None)
            if larger is None or is_waste(requested, larger.amount):
                names = smaller.profile, larger.profile if larger is not None else "none"
                groups.setdefault(names, []).append((smaller, larger))
    for group in sorted(groups.values(), key=len, reverse=True)[:_MOST]:
        smaller, larger = group[0]
        others = [each.model for each, _ in group[1:]]
        alike = f"; so it is with {list_names(others)}" if others else ""
        yield f"{describe_near_size(requested, smaller, larger, 'takes')}{alike}"


def _group_by_model(sizes: Iterable[DeviceSize]) -> Mapping[str, Sequence[DeviceSize]]:
    by_model: dict[str, list[DeviceSize]] = {}
    for each in sizes:
        by_model.setdefault(each.model, []).append(each)
    return by_model
