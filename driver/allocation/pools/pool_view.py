"""Pools and devices as nodes see them.

What a node sees of a pool is a *view*. Views of one layout differ in names and texts only.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from api.model.devices import Attribute, Device
from api.model.metadata import NodeSelector
from api.model.names import DeviceId
from driver.allocation.pools.interning import PublishedSlice, Texts, with_texts
from driver.allocation.pools.template import NO_LAYOUT, Layout, Selection, Template
from driver.allocation.semantics.allocated_state import PoolId
from driver.allocation.semantics.matching import Selectors, node_matches
from driver.allocation.semantics.outcomes import NodeView


@dataclass(frozen=True, slots=True)
class Problem:
    """Why a pool cannot be used for now."""

    kind: Literal["incomplete", "invalid"]
    message: str


@dataclass(frozen=True, eq=False)
class PoolView:
    """A pool as the nodes see it that can use the same slices of it."""

    id: PoolId
    problem: Problem | None
    layout: Layout = NO_LAYOUT
    slices: tuple[PublishedSlice, ...] = ()
    """That hold the layout's devices, in its order."""
    texts: Texts = ()

    def select(self, selectors: Selectors) -> Selection:
        """The devices that ``selectors`` select."""
        return self.layout.select(selectors, self.texts)

    @property
    def devices(self) -> "list[PublishedDevice]":
        """All devices, in search order. Empty when there is a problem."""
        return [self.device(index) for index in range(len(self.layout.templates))]

    def device(self, index: int) -> "PublishedDevice":
        return PublishedDevice(self, self.layout.templates[index])


class PublishedDevice:
    """A device with what its slice, its pool and rules say of it."""

    def __init__(self, view: PoolView, template: Template) -> None:
        self._view = view
        self._template = template
        self.id = DeviceId(view.id.driver, view.id.name, template.device.name)
        self.taints = template.taints
        """All: those that it is published with, and those of rules."""
        self.capacity = template.device.capacity
        self.skip_node_operations = template.spec.skip_node_operations

    @cached_property
    def device(self) -> Device:
        """As it is published."""
        return with_texts(self._template.device, self._template.slots, self._view.texts)

    def attribute(self, name: str) -> Attribute | None:
        """An attribute by the very name that it is published with."""
        found = self._template.device.attributes.get(name)
        if found is not None and found.string is not None:
            text = next(slot.text for slot in self._template.slots if slot.attribute == name)
            return Attribute(string=self._view.texts[text])
        return found

    @property
    def node_name(self) -> str | None:
        """The one node that can use it; None: ``node_selector`` says which can, or all can."""
        if self._template.spec.per_device_node_selection:
            return self._template.device.node_name
        return self._view.slices[self._template.slice].node_name

    @property
    def node_selector(self) -> NodeSelector | None:
        spec = self._template.spec
        return (self._template.device if spec.per_device_node_selection else spec).node_selector

    def is_for(self, node: NodeView) -> bool:
        """Whether the node can use the device, given that it can use the slice. Raises InvalidNodeSelectorError."""
        if not self._template.spec.per_device_node_selection:
            return True
        device = self._template.device
        return node_matches(node, device.node_name, device.all_nodes, device.node_selector)
