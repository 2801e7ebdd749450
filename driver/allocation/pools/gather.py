"""Builds the view that a node has of a pool (``k8s.io/dynamic-resource-allocation/structured``, GatherPools).

A node sees the slices of a pool that it can use. They count only if they are of the newest generation and the pool is
complete, including its slices for other nodes. A pool that names a device or counter set twice, or a counter that does
not exist, is invalid. Nodes that can use the same slices share one ``PoolView``.

Example: of a pool with ``resourceSliceCount`` 2 a slice of generation 1 and one of generation 2 are published. The pool
is being updated: it is incomplete, and nothing is allocated from it.
"""

from collections import OrderedDict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Final, Literal
from weakref import WeakValueDictionary

from kerf_dra.api.model.devices import Attribute, CounterSet, Device, DeviceTaint, DeviceTaintRuleSpec
from kerf_dra.api.model.metadata import NodeSelector
from kerf_dra.api.model.names import DeviceId
from kerf_dra.driver.allocation.pools.interning import PublishedSlice, Strings, with_strings
from kerf_dra.driver.allocation.pools.template import EMPTY_TEMPLATE, DeviceTemplate, PoolTemplate, Selection
from kerf_dra.driver.allocation.semantics.allocated_state import PoolId
from kerf_dra.driver.allocation.semantics.counters import PackedCounters, pack_counters
from kerf_dra.driver.allocation.semantics.matching import Selectors, node_matches
from kerf_dra.driver.allocation.semantics.outcomes import Features, NodeView

_MAX_RECENT_VIEWS: Final = 256
"""The number of views that are kept for their next use. The nodes of a cluster in use have some dozen orders of devices
in common, so 256 nodes have nearly all of them; and as many templates of eight GPUs, of 100 KB each, take 25 MB."""


@dataclass(frozen=True, slots=True)
class PoolFault:
    """The reason why a pool cannot be used now, or as it is published."""

    kind: Literal["incomplete", "invalid"]
    message: str
    """A description of the fault, with the pool's name."""


@dataclass(frozen=True, eq=False)
class PoolView:
    """The devices of a pool that are visible to all nodes that can use the same slices of it."""

    id: PoolId
    fault: PoolFault | None
    """The reason why the view has no devices; None: the pool can be used."""
    template: PoolTemplate = EMPTY_TEMPLATE
    slices: tuple[PublishedSlice, ...] = ()
    """The slices that contain the template's devices, in its order."""
    strings: Strings = ()
    """The attribute strings of these slices."""

    def select(self, selectors: Selectors) -> Selection:
        """The devices for which all ``selectors`` hold."""
        return self.template.select(selectors, self.strings)

    @property
    def devices(self) -> "list[PublishedDevice]":
        """All devices in search order; none if the pool has a fault."""
        return [self.device(index) for index in range(len(self.template.devices))]

    def device(self, index: int) -> "PublishedDevice":
        """The device with that index in the template."""
        return PublishedDevice(self, self.template.devices[index])


class PublishedDevice:
    """A published device with its slice, its pool and the taints of taint rules."""

    def __init__(self, view: PoolView, device_template: DeviceTemplate) -> None:
        self._view = view
        self._template = device_template
        self.id = DeviceId(view.id.driver, view.id.name, device_template.device.name)
        self.taints = device_template.taints
        """The taints of the published device and of taint rules."""
        self.capacity = device_template.device.capacity
        self.skip_node_operations = device_template.spec.skip_node_operations

    @cached_property
    def device(self) -> Device:
        """The device with its own attribute strings."""
        return with_strings(self._template.device, self._template.slots, self._view.strings)

    def attribute(self, name: str) -> Attribute | None:
        """The attribute that is published under exactly this name; None: the device has no such attribute."""
        found = self._template.device.attributes.get(name)
        if found is not None and found.string is not None:
            number = next(slot.string for slot in self._template.slots if slot.attribute == name)
            return Attribute(string=self._view.strings[number])
        return found

    @property
    def node_name(self) -> str | None:
        """The only node that can use the device; None: ``node_selector`` selects the nodes, or all nodes can."""
        if self._template.spec.per_device_node_selection:
            return self._template.device.node_name
        return self._view.slices[self._template.slice].node_name

    @property
    def node_selector(self) -> NodeSelector | None:
        """The nodes that can use the device; None: ``node_name`` names the node, or all nodes can."""
        spec = self._template.spec
        return (self._template.device if spec.per_device_node_selection else spec).node_selector

    def is_for(self, node: NodeView) -> bool:
        """Whether the node can use the device, given that it can use some device of the slice.

        Raises InvalidNodeSelectorError if the device's node selector is invalid.
        """
        if not self._template.spec.per_device_node_selection:
            return True
        device = self._template.device
        return node_matches(node, device.node_name, device.all_nodes, device.node_selector)


class TemplateInterner:
    """The pool templates that are in use, among them those of the views that were used last."""

    def __init__(self) -> None:
        self._known: WeakValueDictionary[Hashable, PoolTemplate] = WeakValueDictionary()
        self._recent: OrderedDict[PoolView, None] = OrderedDict()
        """The views that were used last; the latest one last."""

    def keep(self, view: PoolView) -> None:
        """Keep a view, and its template, until as many others have been used as are kept."""
        self._recent[view] = None
        self._recent.move_to_end(view)
        if len(self._recent) > _MAX_RECENT_VIEWS:
            self._recent.popitem(last=False)

    def intern(
        self,
        driver: str,
        visible: Sequence[PublishedSlice],
        hidden: Sequence[PublishedSlice],
        rules: tuple[DeviceTaintRuleSpec, ...],
        features: Features,
    ) -> PoolTemplate | str:
        """The template of a pool whose ``visible`` slices can be used; a string says why the pool is invalid."""
        strings = tuple(chain.from_iterable(slice_.strings for slice_ in visible))
        first = {string: at for at, string in reversed([*enumerate(strings)])}
        key = (
            tuple([slice_.interned for slice_ in visible]),
            tuple([slice_.interned for slice_ in hidden]),
            tuple([first[string] for string in strings]),  # which strings are equal: constraints compare them
            rules,
            features.partitionable_devices,
        )
        template = self._known.get(key)
        if template is None:
            made = _build_template(driver, visible, hidden, rules, with_counters=features.partitionable_devices)
            if isinstance(made, str):
                return made
            template = self._known[key] = made
        template.note_strings(strings)
        return template


def _build_template(
    driver: str,
    visible: Sequence[PublishedSlice],
    hidden: Sequence[PublishedSlice],
    rules: tuple[DeviceTaintRuleSpec, ...],
    *,
    with_counters: bool,
) -> PoolTemplate | str:
    device_templates = tuple(_device_templates(visible, rules))
    others = [device for slice_ in hidden for device in slice_.interned.spec.devices]
    fault = _duplicate("device", (device_template.device.name for device_template in device_templates))
    counters: PackedCounters | None = None
    if with_counters and not fault:
        sets = [set_ for slice_ in chain(visible, hidden) for set_ in slice_.interned.spec.shared_counters]
        devices = [*(device_template.device for device_template in device_templates), *others]
        fault = _duplicate("counter set", (set_.name for set_ in sets)) or _counter_fault(sets, devices)
        counters = None if fault else pack_counters(sets, devices)
    return fault or PoolTemplate(driver, device_templates, others, counters)


def _device_templates(
    slices: Sequence[PublishedSlice], rules: Sequence[DeviceTaintRuleSpec]
) -> Iterator[DeviceTemplate]:
    first_string = 0
    for position, slice_ in enumerate(slices):
        interned = slice_.interned
        slots_of = interned.slots(first_string)
        for device, slots, fault in zip(interned.spec.devices, slots_of, interned.faults, strict=True):
            yield DeviceTemplate(
                device=device,
                slots=slots,
                slice=position,
                spec=interned.spec,
                taints=device.taints + _taints(device, rules),
                fault=fault,
            )
        first_string += len(slice_.strings)


def _taints(device: Device, rules: Iterable[DeviceTaintRuleSpec]) -> tuple[DeviceTaint, ...]:
    return tuple(
        rule.taint
        for rule in rules
        if rule.device_selector is None or rule.device_selector.device in (None, device.name)
    )


class Pool:
    """All slices of a pool, of every generation. Nodes that see the same slices share one view while it is in use."""

    def __init__(
        self,
        id_: PoolId,
        slices: Iterable[PublishedSlice],
        rules: tuple[DeviceTaintRuleSpec, ...],
        template_interner: TemplateInterner,
    ) -> None:
        self.id = id_
        self.slices = tuple(sorted(slices, key=lambda slice_: slice_.name))
        self.nodes = frozenset({slice_.node_name for slice_ in self.slices if slice_.node_name})
        self.is_shared = any(not slice_.node_name for slice_ in self.slices)
        self._rules = rules
        self._template_interner = template_interner
        self._views: WeakValueDictionary[Hashable, PoolView] = WeakValueDictionary()

    @cached_property
    def _is_of_one_node(self) -> bool:
        return len(self.nodes) == 1 and not self.is_shared

    def view(self, node: NodeView, features: Features) -> PoolView | None:
        """The view of ``node``; None: it sees nothing. Raises InvalidNodeSelectorError if a selector is invalid."""
        visible: Hashable = None  # all, of a pool of one node
        if not (self._is_of_one_node and node.name in self.nodes):
            visible = sum(1 << index for index, slice_ in enumerate(self.slices) if _is_for(slice_, node))
        key = (visible, features.partitionable_devices, features.compatibility_groups)
        view = self._views.get(key) or self._view([each for each in self.slices if _is_for(each, node)], features)
        if view is not None:
            self._views[key] = view
            self._template_interner.keep(view)
        return view

    def _view(self, usable: Sequence[PublishedSlice], features: Features) -> PoolView | None:
        usable = [slice_ for slice_ in usable if _is_understood(slice_, features)]
        if not usable:
            return None
        generation = max(slice_.generation for slice_ in usable)
        visible = [slice_ for slice_ in usable if slice_.generation == generation]
        wanted = visible[0].slice_count
        if len(visible) == wanted:
            return self._complete_view(visible, [], features)
        if any(slice_.generation > generation for slice_ in self.slices):
            return None  # being replaced: the newer generation has nothing for this node
        current = [
            slice_
            for slice_ in self.slices
            if slice_.generation == generation and (features.compatibility_groups or not slice_.interned.has_groups)
        ]
        if len(current) != wanted:
            message = f"pool {self.id} is being updated: {len(current)} of {wanted} slices are published"
            return PoolView(self.id, PoolFault("incomplete", message))
        names = {slice_.name for slice_ in visible}
        return self._complete_view(visible, [each for each in current if each.name not in names], features)

    def _complete_view(
        self, visible: Sequence[PublishedSlice], hidden: Sequence[PublishedSlice], features: Features
    ) -> PoolView:
        template = self._template_interner.intern(self.id.driver, visible, hidden, self._rules, features)
        if isinstance(template, str):
            return PoolView(self.id, PoolFault("invalid", f"pool {self.id} is invalid: {template}"))
        strings: Strings = tuple(chain.from_iterable(slice_.strings for slice_ in visible))
        return PoolView(id=self.id, fault=None, template=template, slices=tuple(visible), strings=strings)


def _is_understood(slice_: PublishedSlice, features: Features) -> bool:
    """Whether the enabled features suffice to read the slice; the pool may be incomplete without it."""
    if slice_.interned.has_groups and not features.compatibility_groups:
        return False
    return features.partitionable_devices or not slice_.interned.needs_partitions


def _is_for(slice_: PublishedSlice, node: NodeView) -> bool:
    """Whether the node can use a device of the slice; a slice that names no nodes is of an unknown, later kind."""
    spec = slice_.interned.spec
    if slice_.node_name or spec.all_nodes or spec.node_selector is not None:
        return node_matches(node, slice_.node_name, spec.all_nodes, spec.node_selector)
    return bool(spec.per_device_node_selection) and any(
        node_matches(node, device.node_name, device.all_nodes, device.node_selector) for device in spec.devices
    )


def _duplicate(what: str, names: Iterable[str]) -> str:
    """Return a message about the first name that occurs twice; empty: none does."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return f"{what} {name} is published twice"
        seen.add(name)
    return ""


def _counter_fault(sets: Sequence[CounterSet], devices: Iterable[Device]) -> str:
    """Return a message about the first counter that is negative, or missing although a device consumes it; or empty."""
    for set_ in sets:
        for name, counter in set_.counters.items():
            if counter.value.nano < 0:
                return f"counter {name} of {set_.name} is negative: {counter.value}"
    known = {set_.name: set_.counters for set_ in sets}
    for device in devices:
        for use in device.consumes_counters:
            if use.counter_set not in known:
                return f"device {device.name} takes from the counter set {use.counter_set}, which does not exist"
            missing = use.counters.keys() - known[use.counter_set].keys()
            if missing:
                return f"device {device.name} takes from {use.counter_set}/{min(missing)}, which does not exist"
            for name, counter in use.counters.items():
                if counter.value.nano < 0:
                    return f"device {device.name} takes a negative amount of {use.counter_set}/{name}: {counter.value}"
    return ""
