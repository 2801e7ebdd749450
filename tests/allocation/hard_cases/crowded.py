"""Small problems with many interacting rules: several claims, constraints over some of their requests,
devices that take from two counter sets, lists, alternatives, ``All``, attributes that some devices lack.
"""

from collections.abc import Sequence
from random import Random
from typing import Final

from kerf_dra.api.model.base import JsonObject
from kerf_dra.api.model.claims import DeviceConstraint, DeviceRequest, ResourceClaim
from kerf_dra.api.model.devices import Attribute, Device, ResourceSlice
from tests.allocation.builders import (
    DRIVER,
    alternative,
    claim,
    device,
    distinct,
    first_of,
    partitioned,
    request,
    same,
    slice_,
)

_SETS: Final = ("s0", "s1", "s2")


def crowded(seed: int) -> tuple[list[ResourceSlice], list[ResourceClaim]]:
    """Draw the slices of a small problem, and its claims."""
    return _Author(Random(seed)).question()


class _Author:
    def __init__(self, random: Random) -> None:
        self._random = random
        self._kinds = random.choice([1, 2, 2, 3])
        self._roots = random.choice([2, 3, 4])
        self._has_counters = self._often(0.4)
        self._devices_left = random.randint(3, 7)
        """An exhaustive search takes hours for more."""

    def _often(self, probability: float) -> bool:
        return self._random.random() < probability

    def question(self) -> tuple[list[ResourceSlice], list[ResourceClaim]]:
        devices = [self._device(f"d{number}") for number in range(self._random.randint(3, 9))]
        sets = {set_: {"c": self._random.choice([1, 1, 2, 3])} for set_ in _SETS}
        claims = (self._claim(f"c{number}") for number in range(self._random.choice([1, 1, 2, 2, 3, 4])))
        return (
            partitioned(*devices, sets=sets) if self._has_counters else [slice_(*devices)],
            [each for each in claims if each.spec.devices.requests],
        )

    def _device(self, name: str) -> Device:
        random = self._random
        attributes: JsonObject = {}
        if self._often(0.97):
            attributes["kind"] = random.randrange(self._kinds)
        for attribute in ("root", "column"):
            if self._often(0.95):
                attributes[attribute] = random.randrange(self._roots)
        if self._often(0.7):
            attributes["tags"] = Attribute(strings=tuple(random.sample("wxyz", random.randint(1, 2))))
        elif self._often(0.7):
            attributes["tags"] = random.choice("wxyz")
        used = random.sample(_SETS, random.choice([0, 1, 2, 2])) if self._has_counters else []
        return device(name, attributes=attributes, uses={set_: {"c": random.choice([1, 1, 1, 2])} for set_ in used})

    def _claim(self, name: str) -> ResourceClaim:
        requests = []
        for number in range(self._random.choice([1, 2, 2, 3, 4])):
            if self._devices_left > 0:
                requests.append(self._request(f"r{number}"))
        names = [each.name for each in requests]
        constraints = (self._constraint(names) for _ in range(self._random.choice([0, 1, 1, 2, 2, 3])))
        return claim(*requests, name=name, constraints=tuple(constraints) if names else ())

    def _request(self, name: str) -> DeviceRequest:
        count = self._random.choice([1, 1, 1, 2, 3])
        self._devices_left -= count
        if self._often(0.15):
            alternatives = (
                alternative(f"a{number}", *self._selectors(0.6), count=self._random.choice([1, 1, 2]))
                for number in range(self._random.choice([1, 2, 2]))
            )
            return first_of(name, *alternatives)
        if self._often(0.1):
            return request(name, *self._selectors(1), count=None)
        return request(name, *self._selectors(0.5), count=count)

    def _selectors(self, probability: float) -> list[str]:
        if not self._often(probability):
            return []
        return [f'device.attributes["{DRIVER}"].kind == {self._random.randrange(self._kinds)}']

    def _constraint(self, names: Sequence[str]) -> DeviceConstraint:
        over = () if self._often(0.4) else self._random.sample(names, self._random.randint(1, len(names)))
        kind = self._random.choice([same, same, distinct])
        return kind(f"{DRIVER}/{self._random.choice(['root', 'root', 'column', 'tags'])}", *over)
