"""Pools and devices as nodes see them.

Bits stand for devices throughout the allocator: bit *i* of a mask is the *i*-th device of a view, in search order.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Final, Literal, NamedTuple

from api.model.devices import Device, DeviceTaint, ResourceSlice
from api.model.names import DeviceId
from driver.allocation.counting import Counters, Use, fits
from driver.allocation.decisions import NodeView
from driver.allocation.matching import Selectors, holds, node_matches

_BLOCKED: Final = 1024
"""Masks kept for each view: a set of a GPU stands at some fifty values, a node has eight of them."""


def bits(mask: int) -> Iterator[int]:
    """The positions of the bits that are set, ascending."""
    while mask:
        lowest = mask & -mask
        yield lowest.bit_length() - 1
        mask ^= lowest


class PoolId(NamedTuple):
    """A pool: its name is unique within the driver only."""

    driver: str
    name: str

    def __str__(self) -> str:
        return f"{self.driver}/{self.name}"


@dataclass(frozen=True, slots=True)
class PublishedDevice:
    """A device with the slice that publishes it and all taints on it."""

    id: DeviceId
    device: Device
    slice: ResourceSlice
    taints: tuple[DeviceTaint, ...]
    fault: str | None
    """Why no selector can be evaluated on it: an attribute that is no value."""

    def is_for(self, node: NodeView) -> bool:
        """Whether the node can use the device, given that it can use the slice. Raises InvalidNodeSelectorError."""
        if not self.slice.spec.per_device_node_selection:
            return True
        return node_matches(node, self.device.node_name, self.device.all_nodes, self.device.node_selector)

    def satisfies(self, selectors: Selectors) -> bool | str:
        """Whether all ``selectors`` hold; a text says why none can tell."""
        return self.fault if self.fault and selectors else holds(self.id.driver, self.device, selectors)


class Selection(NamedTuple):
    """The devices of a view that selectors select, and why they fail on others."""

    selected: int
    errors: Mapping[int, str]


@dataclass(frozen=True, slots=True)
class Problem:
    """Why a pool cannot be used for now."""

    kind: Literal["incomplete", "invalid"]
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """Masks of the devices that need a second look."""

    conditional: int = 0
    """With binding conditions (KEP-5007)."""
    node_bound: int = 0
    """That say for themselves which nodes can use them."""
    shareable: int = 0
    """That can be allocated several times (KEP-5075)."""
    with_policy: int = 0
    """With rules for requests of some capacity."""
    tainted: int = 0
    without_node_operations: int = 0
    """Of slices that skip node operations (KEP-5945)."""
    consuming: int = 0
    """That take from counters."""

    @classmethod
    def of(cls, devices: Sequence[PublishedDevice]) -> "Traits":
        masks = dict.fromkeys((field.name for field in fields(cls)), 0)
        for index, published in enumerate(devices):
            device, spec = published.device, published.slice.spec
            found = {
                "conditional": device.binding_conditions,
                "node_bound": spec.per_device_node_selection,
                "shareable": device.allow_multiple_allocations,
                "with_policy": any(capacity.request_policy for capacity in device.capacity.values()),
                "tainted": published.taints,
                "without_node_operations": spec.skip_node_operations,
                "consuming": device.consumes_counters,
            }
            for name, value in found.items():
                masks[name] |= bool(value) << index
        return cls(**masks)


@dataclass(frozen=True)
class PoolView:
    """A pool as the nodes see it that can use the same slices of it."""

    id: PoolId
    problem: Problem | None
    devices: tuple[PublishedDevice, ...] = ()
    """In search order. Empty when there is a problem."""
    others: tuple[PublishedDevice, ...] = ()
    """Devices for other nodes: they take from the same counters."""
    counters: Counters | None = None
    """None without counter sets, or with partitionable devices switched off."""

    @cached_property
    def traits(self) -> Traits:
        return Traits.of(self.devices)

    @cached_property
    def positions(self) -> Mapping[str, int]:
        """Where each device stands in ``devices``, by its name."""
        return {published.id.device: index for index, published in enumerate(self.devices)}

    @cached_property
    def uses(self) -> tuple[tuple[Use, ...], ...]:
        """What each device takes from the counters."""
        return tuple(self.counters.use(each.device) if self.counters else () for each in self.devices)

    def taken(self, names: Collection[str]) -> list[Use]:
        """What the devices of those names take from the counters, in search order; those for other nodes follow."""
        if self.counters is None:
            return []
        positions = sorted(self.positions[name] for name in names if name in self.positions)
        taken = [use for position in positions for use in self.uses[position]]
        for other in self.others:
            if other.id.device in names:
                taken += self.counters.use(other.device)
        return taken

    def blocked(self, set_: int, remaining: int) -> int:
        """The devices that take more from a set than ``remaining``. Kept: sets stand at few values in practice."""
        assert self.counters is not None
        mask = self._blocked.get((set_, remaining))
        if mask is None:
            guards = self.counters.guards[set_]
            mask = sum(
                1 << index
                for index, uses in enumerate(self.uses)
                if any(use.set == set_ and not fits(remaining, use.amount, guards) for use in uses)
            )
            if len(self._blocked) >= _BLOCKED:
                self._blocked.clear()
            self._blocked[set_, remaining] = mask
        return mask

    @cached_property
    def _blocked(self) -> dict[tuple[int, int], int]:
        return {}

    def select(self, class_selectors: Selectors, request_selectors: Selectors) -> Selection:
        """The devices that a class and a request select. Kept: it changes with the pool only."""
        selectors = class_selectors + request_selectors
        selection = self._selections.get(selectors)
        if selection is None:
            selection = self._selections[selectors] = self._select(selectors)
        return selection

    @cached_property
    def _selections(self) -> dict[Selectors, Selection]:
        return {}

    def _select(self, selectors: Selectors) -> Selection:
        selected = 0
        errors: dict[int, str] = {}
        for index, published in enumerate(self.devices):
            outcome = published.satisfies(selectors)
            if outcome is True:
                selected |= 1 << index
            elif outcome is not False:
                errors[index] = outcome
        return Selection(selected=selected, errors=errors)
