"""Everything that one node offers, with what is taken of it: the ground on which a search moves.

The devices of all pools stand in one row, in search order; bit *i* of a mask is the *i*-th of them. Counter sets stand
in a row too.
"""

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, chain
from typing import Final, overload

from api.model.claims import DeviceClass
from driver.allocation.pools.index import Inventory
from driver.allocation.pools.pool_view import PoolView, PublishedDevice
from driver.allocation.pools.template import Selection, Standing
from driver.allocation.semantics.allocated_state import Allocated
from driver.allocation.semantics.bitset import bits
from driver.allocation.semantics.counters import Field, Groups, Use, admitted
from driver.allocation.semantics.matching import Selectors
from driver.allocation.semantics.outcomes import Features, NodeView

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


class Devices(Sequence[PublishedDevice]):
    """The devices of several pools, in search order; each is made when somebody looks at it."""

    def __init__(self, views: Sequence[PoolView], firsts: Sequence[int]) -> None:
        self._views = views
        self._firsts = firsts
        self._made: dict[int, PublishedDevice] = {}

    def __len__(self) -> int:
        return self._firsts[-1]

    @overload
    def __getitem__(self, at: int) -> PublishedDevice: ...
    @overload
    def __getitem__(self, at: slice) -> list[PublishedDevice]: ...
    def __getitem__(self, at: int | slice) -> PublishedDevice | list[PublishedDevice]:
        if isinstance(at, slice):
            return [self[index] for index in range(*at.indices(len(self)))]
        made = self._made.get(at)
        if made is None:
            index = range(len(self))[at]  # refuses what is out of range
            pool = bisect_right(self._firsts, index) - 1
            made = self._made[at] = self._views[pool].device(index - self._firsts[pool])
        return made


class Offer:
    """The devices that a node can use, as they stand before a search."""

    def __init__(self, views: Sequence[PoolView], node: NodeView, allocated: Allocated, features: Features) -> None:
        self.views = views
        self.standings = [view.layout.standing(allocated.of(view.id)) for view in views]
        """Of each view."""
        self.node = node
        self.allocated = allocated
        self.features = features
        layouts = [view.layout for view in views]
        self._first_devices = tuple(accumulate((len(layout.templates) for layout in layouts), initial=0))
        self._first_sets = tuple(
            accumulate((len(layout.counters.names) if layout.counters else 0 for layout in layouts), initial=0)
        )
        self.devices = Devices(views, self._first_devices)
        self._uses: dict[int, tuple[Use, ...]] = {}
        self._beyond: dict[tuple[int, int], int] = {}

    @classmethod
    def build(cls, inventory: Inventory, node: NodeView, allocated: Allocated, features: Features) -> "Offer":
        """What ``node`` offers. Raises InvalidNodeSelectorError."""
        return cls(inventory.views(node, features), node, allocated, features)

    def _mask(self, of_view: Callable[[PoolView], int]) -> int:
        """The masks of the pools, side by side."""
        return sum(of_view(view) << first for view, first in zip(self.views, self._first_devices, strict=False))

    def _standing(self, of_standing: Callable[[Standing], int]) -> int:
        return sum(of_standing(each) << first for each, first in zip(self.standings, self._first_devices, strict=False))

    def select(self, class_: DeviceClass, selectors: Selectors) -> Selection:
        """The devices that a class and a request select."""
        of_class = tuple(selector.cel.expression for selector in class_.spec.selectors if selector.cel)
        selections = [view.select(of_class + selectors) for view in self.views]
        errors = {
            first + index: message
            for selection, first in zip(selections, self._first_devices, strict=False)
            for index, message in selection.errors.items()
        }
        pairs = zip(selections, self._first_devices, strict=False)
        return Selection(sum(selection.selected << first for selection, first in pairs), errors)

    @cached_property
    def held(self) -> int:
        """Devices that are held exclusively."""
        return self._standing(lambda standing: standing.held)

    @cached_property
    def shared(self) -> int:
        """Devices of which a share is held."""
        return self._standing(lambda standing: standing.shared)

    @cached_property
    def recognized(self) -> int:
        """Devices without binding conditions, unless these are switched on: the others are not looked at."""
        everything = (1 << len(self.devices)) - 1
        if self.features.device_binding_and_status:
            return everything
        return everything & ~self._mask(lambda view: view.layout.traits.conditional)

    @cached_property
    def on_node(self) -> int:
        """Devices that the node can use; it can use something of every slice. Raises InvalidNodeSelectorError."""
        mask = (1 << len(self.devices)) - 1
        for index in bits(self._mask(lambda view: view.layout.traits.node_bound)):
            if not self.devices[index].is_for(self.node):
                mask &= ~(1 << index)
        return mask

    @cached_property
    def shareable(self) -> int:
        """Devices that can be allocated several times."""
        return self._mask(lambda view: view.layout.traits.shareable) if self.features.consumable_capacity else 0

    @cached_property
    def measured(self) -> int:
        """Devices whose capacity matters even to a request that asks for none: all of it may not be there to take."""
        return self.shareable | self.shared | self._mask(lambda view: view.layout.traits.with_policy)

    @cached_property
    def tainted(self) -> int:
        """Devices with taints of any effect."""
        return self._mask(lambda view: view.layout.traits.tainted)

    @cached_property
    def consumed(self) -> Mapping[int, Mapping[str, int]]:
        """What allocated shares take of each device, in units of 1e-9, by the device's own names of capacities."""
        return {
            first + index: amounts
            for standing, first in zip(self.standings, self._first_devices, strict=False)
            for index, amounts in standing.consumed.items()
        }

    def uses(self, index: int) -> tuple[Use, ...]:
        """What a device takes from which counter sets of the node."""
        uses = self._uses.get(index)
        if uses is None:
            pool = bisect_right(self._first_devices, index) - 1
            first = self._first_sets[pool]
            local = self.views[pool].layout.uses[index - self._first_devices[pool]]
            uses = self._uses[index] = tuple(use._replace(set=first + use.set) for use in local)
        return uses

    def fields(self, set_: int) -> Mapping[str, Field]:
        """Where the counters of a set lie in its integer."""
        pool = bisect_right(self._first_sets, set_) - 1
        counters = self.views[pool].layout.counters
        return counters.fields[set_ - self._first_sets[pool]] if counters else {}

    def total(self, set_: int) -> int:
        """What a set has when nothing is taken."""
        pool = bisect_right(self._first_sets, set_) - 1
        counters = self.views[pool].layout.counters
        return counters.totals[set_ - self._first_sets[pool]] if counters else 0

    def beyond(self, set_: int, remaining: int) -> int:
        """Devices that take more from a set than ``remaining``."""
        mask = self._beyond.get((set_, remaining))
        if mask is None:
            pool = bisect_right(self._first_sets, set_) - 1
            local = self.views[pool].layout.beyond(set_ - self._first_sets[pool], remaining)
            mask = self._beyond[set_, remaining] = local << self._first_devices[pool]
        return mask

    @cached_property
    def counters(self) -> CounterState:
        """What allocated devices, also those for other nodes, leave of the counter sets."""
        return CounterState(
            remaining=tuple(chain.from_iterable(standing.remaining for standing in self.standings)),
            groups=tuple(chain.from_iterable(standing.groups for standing in self.standings)),
            guards=tuple(
                chain.from_iterable(view.layout.counters.guards for view in self.views if view.layout.counters)
            ),
        )

    @cached_property
    def joinable(self) -> int:
        """Devices that can be allocated as the counters stand, and the features and the kubelet are.

        Devices that skip node operations need a kubelet that knows of it; devices that consume counters need
        partitionable devices to be on. A device of which shares exist has taken its counters already.
        """
        unable = 0
        if not (self.features.optional_node_operations and OPTIONAL_OPERATIONS in self.node.declared_features):
            unable |= self._mask(lambda view: view.layout.traits.without_node_operations)
        if not self.features.partitionable_devices:
            unable |= self._mask(lambda view: view.layout.traits.consuming)
        blocked = self._standing(lambda standing: standing.blocked)
        return (1 << len(self.devices)) - 1 & ~unable & ~(blocked & ~(self.shareable & self.shared))

    def obstacle(self, index: int) -> str:
        """What keeps the device at ``index`` from being allocated when it is not ``joinable``; for messages."""
        for use in self.uses(index):
            pool = bisect_right(self._first_sets, use.set) - 1
            counters, remaining = self.views[pool].layout.counters, self.counters.remaining[use.set]
            if counters is None or admitted(self.counters.groups[use.set], use.groups) is None:
                return f"{self.views[pool].id} (devices that do not go together)"
            local = use._replace(set=use.set - self._first_sets[pool])
            counter = counters.exhausted(remaining, local) if remaining is not None else "counters"
            if counter:
                return f"{counter} of {counters.names[local.set]}"
        return "a feature that is switched off, or that the kubelet lacks"
