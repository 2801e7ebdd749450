"""From the slices of a pool to what a node sees of it.

Of each pool a node sees the slices that it can use; they count only if they are of one generation and complete. The
rules are those of ``k8s.io/dynamic-resource-allocation/structured`` (GatherPools).
"""

from collections.abc import Hashable, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import chain
from weakref import WeakValueDictionary

from api.model.devices import Device, DeviceTaint, DeviceTaintRuleSpec
from driver.allocation.pools.interning import PublishedSlice, Slot, Texts, counter_fault, duplicate
from driver.allocation.pools.pool_view import PoolView, Problem
from driver.allocation.pools.template import Layout, Template
from driver.allocation.semantics.allocated_state import PoolId
from driver.allocation.semantics.counters import Counters, pack_counters
from driver.allocation.semantics.matching import node_matches
from driver.allocation.semantics.outcomes import Features, NodeView


class Layouts:
    """The layouts that are in use."""

    def __init__(self) -> None:
        self._known: WeakValueDictionary[Hashable, Layout] = WeakValueDictionary()

    def lay_out(
        self,
        driver: str,
        visible: Sequence[PublishedSlice],
        hidden: Sequence[PublishedSlice],
        rules: tuple[DeviceTaintRuleSpec, ...],
        features: Features,
    ) -> Layout | str:
        """The layout of a pool of which ``visible`` slices can be used; a text says why the pool is invalid."""
        texts = tuple(chain.from_iterable(slice_.texts for slice_ in visible))
        first = {text: at for at, text in reversed([*enumerate(texts)])}
        key = (
            tuple([slice_.shape for slice_ in visible]),
            tuple([slice_.shape for slice_ in hidden]),
            tuple([first[text] for text in texts]),  # which texts are the same: constraints compare them
            rules,
            features.partitionable_devices,
        )
        layout = self._known.get(key)
        if layout is None:
            made = _lay_out(driver, visible, hidden, rules, with_counters=features.partitionable_devices)
            if isinstance(made, str):
                return made
            layout = self._known[key] = made
        layout.seen(texts)
        return layout


def _lay_out(
    driver: str,
    visible: Sequence[PublishedSlice],
    hidden: Sequence[PublishedSlice],
    rules: tuple[DeviceTaintRuleSpec, ...],
    *,
    with_counters: bool,
) -> Layout | str:
    templates = tuple(_templates(visible, rules))
    others = [device for slice_ in hidden for device in slice_.shape.spec.devices]
    fault = duplicate("device", (template.device.name for template in templates))
    counters: Counters | None = None
    if with_counters and not fault:
        sets = [set_ for slice_ in chain(visible, hidden) for set_ in slice_.shape.spec.shared_counters]
        devices = [*(template.device for template in templates), *others]
        fault = duplicate("counter set", (set_.name for set_ in sets)) or counter_fault(sets, devices)
        counters = None if fault else pack_counters(sets, devices)
    return fault or Layout(driver, templates, others, counters)


def _templates(slices: Sequence[PublishedSlice], rules: Sequence[DeviceTaintRuleSpec]) -> Iterator[Template]:
    first_text = 0
    for position, slice_ in enumerate(slices):
        shape = slice_.shape
        for device, slots, fault in zip(shape.spec.devices, shape.slots, shape.faults, strict=True):
            yield Template(
                device=device,
                slots=tuple(Slot(slot.attribute, first_text + slot.text) for slot in slots),
                slice=position,
                spec=shape.spec,
                taints=device.taints + _taints(device, rules),
                fault=fault,
            )
        first_text += len(slice_.texts)


def _taints(device: Device, rules: Iterable[DeviceTaintRuleSpec]) -> tuple[DeviceTaint, ...]:
    return tuple(
        rule.taint
        for rule in rules
        if rule.device_selector is None or rule.device_selector.device in (None, device.name)
    )


class Pool:
    """All slices of a pool, of every generation. A node sees a part of it; equal parts share one view."""

    def __init__(
        self, id_: PoolId, slices: Iterable[PublishedSlice], rules: tuple[DeviceTaintRuleSpec, ...], layouts: Layouts
    ) -> None:
        self.id = id_
        self.slices = tuple(sorted(slices, key=lambda slice_: slice_.name))
        self.nodes = frozenset({slice_.node_name for slice_ in self.slices if slice_.node_name})
        self.is_shared = any(not slice_.node_name for slice_ in self.slices)
        self._rules = rules
        self._layouts = layouts
        self._views: dict[Hashable, PoolView | None] = {}

    @cached_property
    def _is_of_one_node(self) -> bool:
        return len(self.nodes) == 1 and not self.is_shared

    def view(self, node: NodeView, features: Features) -> PoolView | None:
        """What ``node`` sees of the pool; None: nothing."""
        visible: Hashable = None  # all, of a pool of one node
        if not (self._is_of_one_node and node.name in self.nodes):
            visible = sum(1 << index for index, slice_ in enumerate(self.slices) if _is_for(slice_, node))
        key = (visible, features.partitionable_devices, features.compatibility_groups)
        if key not in self._views:
            self._views[key] = self._view([each for each in self.slices if _is_for(each, node)], features)
        return self._views[key]

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
            if slice_.generation == generation and (features.compatibility_groups or not slice_.shape.has_groups)
        ]
        if len(current) != wanted:
            message = f"pool {self.id} is being updated: {len(current)} of {wanted} slices are published"
            return PoolView(self.id, Problem("incomplete", message))
        names = {slice_.name for slice_ in visible}
        return self._complete_view(visible, [each for each in current if each.name not in names], features)

    def _complete_view(
        self, visible: Sequence[PublishedSlice], hidden: Sequence[PublishedSlice], features: Features
    ) -> PoolView:
        layout = self._layouts.lay_out(self.id.driver, visible, hidden, self._rules, features)
        if isinstance(layout, str):
            return PoolView(self.id, Problem("invalid", f"pool {self.id} is invalid: {layout}"))
        texts: Texts = tuple(chain.from_iterable(slice_.texts for slice_ in visible))
        return PoolView(id=self.id, problem=None, layout=layout, slices=tuple(visible), texts=texts)


def _is_understood(slice_: PublishedSlice, features: Features) -> bool:
    """Whether switched-off features leave the slice readable; one that is not may leave the pool incomplete."""
    if slice_.shape.has_groups and not features.compatibility_groups:
        return False
    return features.partitionable_devices or not slice_.shape.needs_partitions


def _is_for(slice_: PublishedSlice, node: NodeView) -> bool:
    """Whether the node can use anything in the slice; one that names no nodes at all is of an unknown, later kind."""
    spec = slice_.shape.spec
    if slice_.node_name or spec.all_nodes or spec.node_selector is not None:
        return node_matches(node, slice_.node_name, spec.all_nodes, spec.node_selector)
    return bool(spec.per_device_node_selection) and any(
        node_matches(node, device.node_name, device.all_nodes, device.node_selector) for device in spec.devices
    )
