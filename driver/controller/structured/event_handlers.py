"""Event handlers of the informers: they update derived indexes and queue the classes to reconcile."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Protocol

from kerf_dra.api.core.v1 import Node
from kerf_dra.api.kerf.v1alpha1 import ResourceClassObject
from kerf_dra.api.model.claims import DeviceClass
from kerf_dra.api.model.devices import ResourceSlice
from kerf_dra.driver.controller.structured.device_groups import DeviceGroupIndex, GroupedSlice, SliceChange
from kerf_dra.driver.controller.structured.resource_names import resource_of
from kerf_dra.driver.kube.assume_cache import AssumeCache
from kerf_dra.driver.kube.store import ObjectChange, Store


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassCaches:
    """The known objects of the cluster, own writes included."""

    resource_classes: AssumeCache[ResourceClassObject]
    device_classes: AssumeCache[DeviceClass]
    nodes: Store[Node]
    published: DeviceGroupIndex
    """The devices of all slices of the installed families' drivers."""


class ClassQueue(Protocol):
    """The work queue of class names: equal names are merged, and the earlier time counts."""

    def add(self, key: str, *, after_s: float = 0.0) -> None: ...


class ClassEventHandlers:
    """One handler for each informer. They return at once and never raise."""

    def __init__(self, queue: ClassQueue, caches: ClassCaches, *, recount_s: float, settle_s: float) -> None:
        """``recount_s`` and ``settle_s`` are those of the Settings."""
        self._queue = queue
        self._caches = caches
        self._recount_s = recount_s
        self._settle_s = settle_s

    def on_resource_class(self, change: ObjectChange[ResourceClassObject]) -> None:
        self._caches.resource_classes.on_change(change)
        self._queue.add(change.ref.name)
        self._requeue_resources({resource_of(held.spec) for held in (change.old, change.new) if held is not None})

    def on_device_class(self, change: ObjectChange[DeviceClass]) -> None:
        """Queue the class of the same name; reconciling a name without a class does nothing."""
        self._caches.device_classes.on_change(change)
        self._queue.add(change.ref.name)
        held = (each for each in (change.old, change.new) if each is not None)
        self._requeue_resources({each.spec.extended_resource_name or "" for each in held})

    def _requeue_resources(self, resources: Collection[str]) -> None:
        """Queue the classes whose device plugins have one of ``resources``: who may offer it may be another one now."""
        for held in self._caches.resource_classes.values():
            if (resource := resource_of(held.spec)) and resource in resources:
                self._queue.add(held.metadata.name)

    def on_slice(self, change: ObjectChange[GroupedSlice] | ObjectChange[ResourceSlice]) -> None:
        """Queue all classes: soon if a new kind of device makes a class possible, later if only counts change."""
        effect = self._caches.published.update(change.ref, change.new)
        if effect is not SliceChange.NONE:
            self.requeue_all(after_s=self._settle_s if effect is SliceChange.DEVICE_KINDS else self._recount_s)

    def on_node(self, change: ObjectChange[Node]) -> None:
        """Queue the classes that choose nodes, if labels have changed; no other field of a node matters to a class."""
        if _labels(change.old) != _labels(change.new):
            for held in self._caches.resource_classes.values():
                if held.spec.get("nodes"):
                    self._queue.add(held.metadata.name, after_s=self._settle_s)

    def requeue_all(self, *, after_s: float = 0.0) -> None:
        for held in self._caches.resource_classes.values():
            self._queue.add(held.metadata.name, after_s=after_s)


def _labels(node: Node | None) -> Mapping[str, str] | None:
    return None if node is None else node.metadata.labels
