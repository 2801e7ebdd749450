"""``NodeDevices``: all devices that one node can use, with their allocation.

The devices of all pools are numbered in search order, and a bitset has bit *i* set for the *i*-th device. The counter
sets of all pools are numbered, too. Everything that is the same on nodes with the same hardware is kept by
``PoolTemplate``; here it is only shifted to the position of the pool.
"""

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from itertools import accumulate, chain
from typing import Final

from kerf_dra.driver.allocation.pools.gather import PoolView, PublishedDevice
from kerf_dra.driver.allocation.pools.index import PoolIndex
from kerf_dra.driver.allocation.pools.template import PoolUsage, Selection
from kerf_dra.driver.allocation.semantics.allocated_state import AllocatedDevices
from kerf_dra.driver.allocation.semantics.bitset import iter_bits
from kerf_dra.driver.allocation.semantics.counters import CounterUse, Groups, PackedField, join_groups
from kerf_dra.driver.allocation.semantics.matching import Selectors
from kerf_dra.driver.allocation.semantics.outcomes import Features, NodeView

OPTIONAL_OPERATIONS: Final = "DRAOptionalNodeOperations"
"""The declared feature of a kubelet that lets drivers omit node operations (KEP-5945)."""


class NodeDevices:
    """The devices of the pools that a node can use. Properties typed ``int`` are bitsets unless they say otherwise."""

    def __init__(
        self, views: Sequence[PoolView], node: NodeView, allocated: AllocatedDevices, features: Features
    ) -> None:
        self.views = views
        self.usages = [view.template.usage(allocated.of(view.id)) for view in views]
        """The usage of the pool of each view."""
        self.node = node
        self.allocated = allocated
        self.features = features
        templates = [view.template for view in views]
        self._first_devices = tuple(accumulate((len(each.devices) for each in templates), initial=0))
        sets = (len(template.counters.names) if template.counters else 0 for template in templates)
        self._first_sets = tuple(accumulate(sets, initial=0))
        self.count = self._first_devices[-1]
        """The number of devices."""
        self._devices: dict[int, PublishedDevice] = {}
        self._uses: dict[int, tuple[CounterUse, ...]] = {}
        self._exceeding: dict[tuple[int, int], int] = {}

    @classmethod
    def build(
        cls, pool_index: PoolIndex, node: NodeView, allocated: AllocatedDevices, features: Features
    ) -> "NodeDevices":
        """The devices of ``node``. Raises InvalidNodeSelectorError if a published node selector is invalid."""
        return cls(pool_index.views(node, features), node, allocated, features)

    def _of_views(self, of_view: Callable[[PoolView], int]) -> int:
        return sum(of_view(view) << first for view, first in zip(self.views, self._first_devices, strict=False))

    def _of_usages(self, of_usage: Callable[[PoolUsage], int]) -> int:
        return sum(of_usage(each) << first for each, first in zip(self.usages, self._first_devices, strict=False))

    def device(self, index: int) -> PublishedDevice:
        device = self._devices.get(index)
        if device is None:
            pool = bisect_right(self._first_devices, index) - 1
            device = self._devices[index] = self.views[pool].device(index - self._first_devices[pool])
        return device

    def select(self, selectors: Selectors) -> Selection:
        """Select the devices for which all ``selectors`` hold, with the errors of those that cannot be evaluated."""
        selected = 0
        errors: dict[int, str] = {}
        for view, first in zip(self.views, self._first_devices, strict=False):
            selection = view.select(selectors)
            selected |= selection.selected << first
            for index, message in selection.errors.items():
                errors[first + index] = message
        return Selection(selected, errors)

    @cached_property
    def held(self) -> int:
        """Devices that allocated claims hold exclusively."""
        return self._of_usages(lambda usage: usage.held)

    @cached_property
    def shared(self) -> int:
        """Devices of which allocated claims hold a share."""
        return self._of_usages(lambda usage: usage.shared)

    @cached_property
    def recognized(self) -> int:
        """Devices that the enabled features cover: without binding conditions, or all if that feature is enabled."""
        everything = (1 << self.count) - 1
        if self.features.device_binding_and_status:
            return everything
        return everything & ~self._of_views(lambda view: view.template.device_sets.conditional)

    @cached_property
    def on_node(self) -> int:
        """Devices that the node can use. Raises InvalidNodeSelectorError if a device's selector is invalid."""
        bitset = (1 << self.count) - 1
        for index in iter_bits(self._of_views(lambda view: view.template.device_sets.node_bound)):
            if not self.device(index).is_for(self.node):
                bitset &= ~(1 << index)
        return bitset

    @cached_property
    def available(self) -> int:
        """Devices that a request without admin access can get. Raises InvalidNodeSelectorError as ``on_node`` does."""
        return self.recognized & self.on_node & ~self.held & self.unblocked

    @cached_property
    def shareable(self) -> int:
        """Devices that can be allocated several times (KEP-5075)."""
        return (
            self._of_views(lambda view: view.template.device_sets.shareable) if self.features.consumable_capacity else 0
        )

    @cached_property
    def measured(self) -> int:
        """Devices whose capacity matters even to a request that names none: it takes all of it, or the default."""
        return self.shareable | self.shared | self._of_views(lambda view: view.template.device_sets.with_policy)

    @cached_property
    def tainted(self) -> int:
        """Devices with taints of any effect."""
        return self._of_views(lambda view: view.template.device_sets.tainted)

    @cached_property
    def consumed(self) -> Mapping[int, Mapping[str, int]]:
        """The consumption of each device by allocated shares, in units of 1e-9, by the device's capacity names."""
        return {
            first + index: amounts
            for usage, first in zip(self.usages, self._first_devices, strict=False)
            for index, amounts in usage.consumed.items()
        }

    def uses(self, index: int) -> tuple[CounterUse, ...]:
        """The counters that a device consumes."""
        uses = self._uses.get(index)
        if uses is None:
            pool = bisect_right(self._first_devices, index) - 1
            first = self._first_sets[pool]
            in_pool = self.views[pool].template.uses[index - self._first_devices[pool]]
            uses = self._uses[index] = tuple(use._replace(set=first + use.set) for use in in_pool)
        return uses

    def fields(self, set_: int) -> Mapping[str, PackedField]:
        """The positions of the counters in the packed integer of a set, by name."""
        pool = bisect_right(self._first_sets, set_) - 1
        counters = self.views[pool].template.counters
        return counters.fields[set_ - self._first_sets[pool]] if counters else {}

    def total(self, set_: int) -> int:
        """The packed counters of a set from which nothing is consumed."""
        pool = bisect_right(self._first_sets, set_) - 1
        counters = self.views[pool].template.counters
        return counters.totals[set_ - self._first_sets[pool]] if counters else 0

    def exceeding(self, set_: int, remaining: int) -> int:
        """The bitset of devices that consume more of a set than ``remaining``."""
        bitset = self._exceeding.get((set_, remaining))
        if bitset is None:
            pool = bisect_right(self._first_sets, set_) - 1
            in_pool = self.views[pool].template.exceeding(set_ - self._first_sets[pool], remaining)
            bitset = self._exceeding[set_, remaining] = in_pool << self._first_devices[pool]
        return bitset

    @cached_property
    def remaining(self) -> Sequence[int | None]:
        """The remaining counters of each set, packed; None: a set of its pool is overdrawn."""
        return tuple(chain.from_iterable(usage.remaining for usage in self.usages))

    @cached_property
    def groups(self) -> Sequence[Groups | None]:
        """The compatibility groups common to all devices on each counter set; None: no device is on it."""
        return tuple(chain.from_iterable(usage.groups for usage in self.usages))

    @cached_property
    def guards(self) -> Sequence[int]:
        """The guard bits of the packed counters of each set."""
        counters = (view.template.counters for view in self.views)
        return tuple(chain.from_iterable(each.guards for each in counters if each))

    @cached_property
    def unblocked(self) -> int:
        """Devices that no counter, compatibility group or feature keeps from being allocated.

        Devices that skip node operations need a kubelet that declares it; devices that consume counters need the
        feature for partitionable devices. The counters of a device with shares were consumed by its first share.
        """
        unable = 0
        if not (self.features.optional_node_operations and OPTIONAL_OPERATIONS in self.node.declared_features):
            unable |= self._of_views(lambda view: view.template.device_sets.without_node_operations)
        if not self.features.partitionable_devices:
            unable |= self._of_views(lambda view: view.template.device_sets.consuming)
        blocked = self._of_usages(lambda usage: usage.blocked)
        return (1 << self.count) - 1 & ~unable & ~(blocked & ~(self.shareable & self.shared))

    def describe_block(self, index: int) -> str:
        """Describe what keeps a device that is not ``unblocked`` from being allocated."""
        for use in self.uses(index):
            pool = bisect_right(self._first_sets, use.set) - 1
            counters, remaining = self.views[pool].template.counters, self.remaining[use.set]
            if counters is None or join_groups(self.groups[use.set], use.groups) is None:
                return f"{self.views[pool].id} (devices that do not go together)"
            in_pool = use._replace(set=use.set - self._first_sets[pool])
            counter = counters.find_exhausted(remaining, in_pool) if remaining is not None else "counters"
            if counter:
                return f"{counter} of {counters.names[in_pool.set]}"
        return "a feature that is disabled, or that the kubelet lacks"
