"""From the slices of a pool to what a node sees of it.

Of each pool a node sees the slices that it can use; they count only if they are of one generation and complete. The
rules are those of ``k8s.io/dynamic-resource-allocation/structured`` (GatherPools).
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from itertools import chain

from api.model.devices import Attribute, CounterSet, Device, DeviceTaint, DeviceTaintRule, ResourceSlice
from api.model.names import DeviceId
from driver.allocation.counting import Counters, pack_counters
from driver.allocation.decisions import Features, NodeView
from driver.allocation.matching import node_matches
from driver.allocation.pools import PoolId, PoolView, Problem, PublishedDevice
from driver.allocation.versions import parse_version


class Pool:
    """All slices of a pool, of every generation. A node sees a part of it; equal parts share one view."""

    def __init__(self, id_: PoolId, slices: Iterable[ResourceSlice], rules: tuple[DeviceTaintRule, ...]) -> None:
        self.id = id_
        self.slices = sorted(slices, key=lambda slice_: slice_.metadata.name)
        self.nodes = {slice_.spec.node_name for slice_ in self.slices if slice_.spec.node_name}
        self.is_shared = any(not slice_.spec.node_name for slice_ in self.slices)
        self._rules = rules
        self._views: dict[tuple[int, bool, bool], PoolView | None] = {}

    @cached_property
    def _grouped(self) -> frozenset[str]:
        """The names of the slices with compatibility groups."""
        return frozenset(slice_.metadata.name for slice_ in self.slices if _has_groups(slice_))

    def view(self, node: NodeView, features: Features) -> PoolView | None:
        """What ``node`` sees of the pool; None: nothing."""
        visible = [
            (1 << index, slice_)
            for index, slice_ in enumerate(self.slices)
            if self._is_understood(slice_, features) and _is_for(slice_, node)
        ]
        key = (sum(bit for bit, _ in visible), features.partitionable_devices, features.compatibility_groups)
        if key not in self._views:
            self._views[key] = self._view([slice_ for _, slice_ in visible], features)
        return self._views[key]

    def _is_understood(self, slice_: ResourceSlice, features: Features) -> bool:
        """Whether switched-off features leave the slice readable; one that is not may leave the pool incomplete."""
        if slice_.metadata.name in self._grouped and not features.compatibility_groups:
            return False
        return features.partitionable_devices or not _needs_partitions(slice_)

    def _view(self, visible: Sequence[ResourceSlice], features: Features) -> PoolView | None:
        if not visible:
            return None
        generation = max(slice_.spec.pool.generation for slice_ in visible)
        visible = [slice_ for slice_ in visible if slice_.spec.pool.generation == generation]
        wanted = visible[0].spec.pool.resource_slice_count
        if len(visible) == wanted:
            return self._complete_view(visible, [], features)
        if any(slice_.spec.pool.generation > generation for slice_ in self.slices):
            return None  # being replaced: the newer generation has nothing for this node
        current = [
            slice_
            for slice_ in self.slices
            if slice_.spec.pool.generation == generation
            and (features.compatibility_groups or slice_.metadata.name not in self._grouped)
        ]
        if len(current) != wanted:
            return PoolView(self.id, _incomplete(self.id, len(current), wanted))
        names = {slice_.metadata.name for slice_ in visible}
        return self._complete_view(visible, [each for each in current if each.metadata.name not in names], features)

    def _complete_view(
        self, visible: Sequence[ResourceSlice], hidden: Sequence[ResourceSlice], features: Features
    ) -> PoolView:
        devices = tuple(self._published(visible))
        others = tuple(self._published(hidden))
        fault = _duplicate("device", (published.id.device for published in devices))
        counters: Counters | None = None
        if features.partitionable_devices and not fault:
            sets = [set_ for slice_ in chain(visible, hidden) for set_ in slice_.spec.shared_counters]
            all_devices = [published.device for published in chain(devices, others)]
            fault = _duplicate("counter set", (set_.name for set_ in sets)) or _missing_counter(sets, all_devices)
            counters = None if fault else pack_counters(sets, all_devices)
        if fault:
            return PoolView(self.id, Problem("invalid", f"pool {self.id} is invalid: {fault}"))
        return PoolView(
            id=self.id,
            problem=None,
            devices=devices,
            others=others,
            counters=counters,
        )

    def _published(self, slices: Iterable[ResourceSlice]) -> Iterable[PublishedDevice]:
        for slice_ in slices:
            for device in slice_.spec.devices:
                yield PublishedDevice(
                    id=DeviceId(self.id.driver, self.id.name, device.name),
                    device=device,
                    slice=slice_,
                    taints=device.taints + self._taints(device),
                    fault=_attribute_fault(device.attributes),
                )

    def _taints(self, device: Device) -> tuple[DeviceTaint, ...]:
        return tuple(
            rule.spec.taint
            for rule in self._rules
            if (selector := rule.spec.device_selector) is None or selector.device in (None, device.name)
        )


def _needs_partitions(slice_: ResourceSlice) -> bool:
    return slice_.spec.per_device_node_selection is not None or bool(slice_.spec.shared_counters)


def _has_groups(slice_: ResourceSlice) -> bool:
    return any(use.compatibility_groups for device in slice_.spec.devices for use in device.consumes_counters)


def _is_for(slice_: ResourceSlice, node: NodeView) -> bool:
    """Whether the node can use anything in the slice; one that names no nodes at all is of an unknown, later kind."""
    spec = slice_.spec
    if spec.node_name or spec.all_nodes or spec.node_selector is not None:
        return node_matches(node, spec.node_name, spec.all_nodes, spec.node_selector)
    return bool(spec.per_device_node_selection) and any(
        node_matches(node, device.node_name, device.all_nodes, device.node_selector) for device in spec.devices
    )


def _incomplete(pool: PoolId, found: int, wanted: int) -> Problem:
    return Problem("incomplete", f"pool {pool} is being updated: {found} of {wanted} slices are published")


def _duplicate(what: str, names: Iterable[str]) -> str:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return f"{what} {name} is published twice"
        seen.add(name)
    return ""


def _missing_counter(sets: Iterable[CounterSet], devices: Iterable[Device]) -> str:
    """What a device takes from but nobody publishes; empty: nothing."""
    known = {set_.name: set_.counters for set_ in sets}
    for device in devices:
        for consumption in device.consumes_counters:
            if consumption.counter_set not in known:
                return (
                    f"device {device.name} takes from the counter set {consumption.counter_set}, which does not exist"
                )
            missing = consumption.counters.keys() - known[consumption.counter_set].keys()
            if missing:
                return f"device {device.name} takes from {consumption.counter_set}/{min(missing)}, which does not exist"
    return ""


def _attribute_fault(attributes: Mapping[str, Attribute]) -> str | None:
    """Why an attribute is no value: nothing is set, or a version is none. No selector can be evaluated then."""
    for name, attribute in attributes.items():
        if attribute.value is None:
            return f"attribute {name}: unsupported attribute value"
        versions = (attribute.version,) if attribute.version is not None else attribute.versions or ()
        for version in versions:
            if parse_version(version) is None:
                return f"attribute {name}: {version!r} is no semantic version"
    return None
