"""The slices of a pool in another order: what a node would publish if nothing of its orders were that of other nodes.

Devices and counter sets change places within the whole pool, so that a slice has other devices, too; the attributes,
capacities and counters of each device and set change places as members of a JSON object.
"""

from collections.abc import Iterator, Mapping, Sequence
from random import Random
from typing import Any

import msgspec

from kerf_dra.api.model.base import JsonObject

_SHUFFLED_LISTS = ("devices", "sharedCounters")
_SHUFFLED_OBJECTS = ("attributes", "capacity", "counters")


def shuffle_slices(slices: Sequence[JsonObject], random: Random) -> Iterator[bytes]:
    """Yield the slices of one pool, as JSON, in an order of their content that ``random`` chooses."""
    shuffled = {name: _shuffle_elements(slices, name, random) for name in _SHUFFLED_LISTS}
    for slice_ in slices:
        spec = slice_["spec"]
        lists = {name: [next(shuffled[name]) for _ in spec[name]] for name in _SHUFFLED_LISTS if name in spec}
        yield msgspec.json.encode({**slice_, "spec": {**spec, **lists}})


def _shuffle_elements(slices: Sequence[JsonObject], name: str, random: Random) -> Iterator[JsonObject]:
    elements = [element for slice_ in slices for element in slice_["spec"].get(name, ())]
    for element in random.sample(elements, len(elements)):
        consumed = element.get("consumesCounters")
        changed = {"consumesCounters": [_shuffle_members(each, random) for each in consumed]} if consumed else {}
        yield _shuffle_members({**element, **changed}, random)


def _shuffle_members(value: Mapping[str, Any], random: Random) -> JsonObject:
    objects = {
        name: random.sample([*value[name].items()], len(value[name])) for name in _SHUFFLED_OBJECTS if name in value
    }
    return {**value, **{name: dict(members) for name, members in objects.items()}}
