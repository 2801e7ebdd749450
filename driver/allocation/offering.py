"""Everything that one node offers, with what is taken of it: the ground on which a search moves.

The devices of all pools stand in one row, in search order; bit *i* of a mask is the *i*-th of them. Counter sets stand
in a row too.
"""

from bisect import bisect_right
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Final

from api.model.claims import DeviceClass
from api.model.names import DeviceId
from driver.allocation.counting import CLASHING, Field, Groups, Use, admitted
from driver.allocation.decisions import Features, NodeView
from driver.allocation.inventory import Inventory
from driver.allocation.ledger import AllocatedState
from driver.allocation.matching import Selectors
from driver.allocation.pools import PoolView, PublishedDevice, Selection, bits
from driver.allocation.rounding import unqualified

OPTIONAL_OPERATIONS: Final = "DRAOptionalNodeOperations"
"""What a kubelet declares that lets drivers leave out node operations (KEP-5945)."""


@dataclass(frozen=True, slots=True)
class CounterState:
    """What is left of the counter sets of a node's pools."""

    remaining: tuple[int | None, ...]
    """For each set, with guards; None: some set of its pool is overdrawn, and nothing of the pool can be taken."""
    groups: tuple[Groups | None, ...]
    """For each set, the compatibility groups that the devices on it share; None: no device is on it."""
    guards: tuple[int, ...]


class Offer:
    """The devices that a node can use, as they stand before a search."""

    def __init__(
        self, views: Sequence[PoolView], node: NodeView, allocated: AllocatedState, features: Features
    ) -> None:
        self.views = views
        self.node = node
        self.allocated = allocated
        self.features = features
        self.devices = tuple(device for view in views for device in view.devices)
        self._first_devices = tuple(accumulate((len(view.devices) for view in views), initial=0))
        self._first_sets = tuple(
            accumulate((len(view.counters.names) if view.counters else 0 for view in views), initial=0)
        )
        self._uses: dict[int, tuple[Use, ...]] = {}

    @classmethod
    def build(cls, inventory: Inventory, node: NodeView, allocated: AllocatedState, features: Features) -> "Offer":
        """What ``node`` offers. Raises InvalidNodeSelectorError."""
        return cls(inventory.views(node, features), node, allocated, features)

    def _mask(self, of_view: Callable[[PoolView], int]) -> int:
        """The masks of the pools, side by side."""
        return sum(of_view(view) << first for view, first in zip(self.views, self._first_devices, strict=False))

    def select(self, class_: DeviceClass, selectors: Selectors) -> Selection:
        """The devices that a class and a request select."""
        class_selectors = tuple(selector.cel.expression for selector in class_.spec.selectors if selector.cel)
        selections = [view.select(class_selectors, selectors) for view in self.views]
        errors = {
            first + index: message
            for selection, first in zip(selections, self._first_devices, strict=False)
            for index, message in selection.errors.items()
        }
        return Selection(self._mask(lambda view: view.select(class_selectors, selectors).selected), errors)

    @cached_property
    def held(self) -> int:
        """Devices that are held exclusively."""
        return self._mask(lambda view: self._among(view, self.allocated.exclusive))

    @cached_property
    def shared(self) -> int:
        """Devices of which a share is held."""
        return self._mask(lambda view: self._among(view, self.allocated.shared))

    def _among(self, view: PoolView, ids: Container[DeviceId]) -> int:
        names = self.allocated.by_pool.get(view.id, frozenset())
        positions = (view.positions[name] for name in names if name in view.positions)
        return sum(1 << index for index in positions if view.devices[index].id in ids)

    @cached_property
    def recognized(self) -> int:
        """Devices without binding conditions, unless these are switched on: the others are not looked at."""
        everything = (1 << len(self.devices)) - 1
        if self.features.device_binding_and_status:
            return everything
        return everything & ~self._mask(lambda view: view.traits.conditional)

    @cached_property
    def on_node(self) -> int:
        """Devices that the node can use; it can use something of every slice. Raises InvalidNodeSelectorError."""
        mask = (1 << len(self.devices)) - 1
        for index in bits(self._mask(lambda view: view.traits.node_bound)):
            if not self.devices[index].is_for(self.node):
                mask &= ~(1 << index)
        return mask

    @cached_property
    def shareable(self) -> int:
        """Devices that can be allocated several times."""
        return self._mask(lambda view: view.traits.shareable) if self.features.consumable_capacity else 0

    @cached_property
    def measured(self) -> int:
        """Devices whose capacity matters even to a request that asks for none: all of it may not be there to take."""
        return self.shareable | self.shared | self._mask(lambda view: view.traits.with_policy)

    @cached_property
    def tainted(self) -> int:
        """Devices with taints of any effect."""
        return self._mask(lambda view: view.traits.tainted)

    @cached_property
    def consumed(self) -> Mapping[int, Mapping[str, int]]:
        """What allocated shares take of each device, in units of 1e-9, by the device's own names of capacities."""
        return {index: self._consumed_of(self.devices[index]) for index in bits(self.shared)}

    def _consumed_of(self, published: PublishedDevice) -> Mapping[str, int]:
        driver = published.id.driver
        amounts = self.allocated.consumed.get(published.id, {})
        by_name = {unqualified(driver, name): amount.nano for name, amount in amounts.items()}
        return {name: by_name.get(unqualified(driver, name), 0) for name in published.device.capacity}

    def uses(self, index: int) -> tuple[Use, ...]:
        """What a device takes from which counter sets of the node."""
        uses = self._uses.get(index)
        if uses is None:
            pool = bisect_right(self._first_devices, index) - 1
            first = self._first_sets[pool]
            local = self.views[pool].uses[index - self._first_devices[pool]]
            uses = self._uses[index] = tuple(use._replace(set=first + use.set) for use in local)
        return uses

    def fields(self, set_: int) -> Iterable[Field]:
        """Where the counters of a set lie in its integer."""
        pool = bisect_right(self._first_sets, set_) - 1
        counters = self.views[pool].counters
        return counters.fields[set_ - self._first_sets[pool]].values() if counters else ()

    @cached_property
    def counters(self) -> CounterState:
        """What allocated devices, also those for other nodes, leave of the counter sets."""
        remaining: list[int | None] = []
        groups: list[Groups | None] = []
        guards: list[int] = []
        for view in self.views:
            if view.counters is None:
                continue
            uses = view.taken(self.allocated.by_pool.get(view.id, frozenset()))
            left = view.counters.remaining(uses)
            remaining += left if left is not None else [None] * len(view.counters.names)
            groups += _groups_of(uses, len(view.counters.names))
            guards += view.counters.guards
        return CounterState(tuple(remaining), tuple(groups), tuple(guards))

    @cached_property
    def joinable(self) -> int:
        """Devices that can be allocated as the counters stand, and the features and the kubelet are.

        Devices that skip node operations need a kubelet that knows of it; devices that consume counters need
        partitionable devices to be on. A device of which shares exist has taken its counters already.
        """
        unable = 0
        if not (self.features.optional_node_operations and OPTIONAL_OPERATIONS in self.node.declared_features):
            unable |= self._mask(lambda view: view.traits.without_node_operations)
        if not self.features.partitionable_devices:
            unable |= self._mask(lambda view: view.traits.consuming)
        return (1 << len(self.devices)) - 1 & ~unable & ~(self._blocked & ~(self.shareable & self.shared))

    @property
    def _blocked(self) -> int:
        """Devices that the counters, or the compatibility groups of those allocated, keep away."""
        blocked = 0
        for first, first_set, view in zip(self._first_devices, self._first_sets, self.views, strict=False):
            for set_ in range(len(view.counters.names) if view.counters else 0):
                remaining = self.counters.remaining[first_set + set_]
                blocked |= (view.traits.consuming if remaining is None else view.blocked(set_, remaining)) << first
        if any(groups is not None for groups in self.counters.groups) and self.features.compatibility_groups:
            for index in bits(self._mask(lambda view: view.traits.consuming) & ~blocked):
                uses = self.uses(index)
                if any(admitted(self.counters.groups[use.set], use.groups) is None for use in uses):
                    blocked |= 1 << index
        return blocked

    def obstacle(self, index: int) -> str:
        """What keeps the device at ``index`` from being allocated when it is not ``joinable``; for messages."""
        for use in self.uses(index):
            pool = bisect_right(self._first_sets, use.set) - 1
            counters, remaining = self.views[pool].counters, self.counters.remaining[use.set]
            if counters is None or admitted(self.counters.groups[use.set], use.groups) is None:
                return f"{self.views[pool].id} (devices that do not go together)"
            local = use._replace(set=use.set - self._first_sets[pool])
            counter = counters.exhausted(remaining, local) if remaining is not None else "counters"
            if counter:
                return f"{counter} of {counters.names[local.set]}"
        return "a feature that is switched off, or that the kubelet lacks"


def _groups_of(uses: list[Use], sets: int) -> list[Groups | None]:
    """The groups that allocated devices share on each set."""
    groups: list[Groups | None] = [None] * sets
    for use in uses:
        present = groups[use.set]
        joined = admitted(present, use.groups)
        if joined is not None:
            groups[use.set] = joined
        elif present and use.groups:
            groups[use.set] = CLASHING  # the slices changed since: nothing can join any more
    return groups
