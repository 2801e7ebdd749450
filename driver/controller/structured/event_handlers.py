"""Which classes need a pass after a change in the cluster."""

from collections.abc import Mapping
from typing import Protocol

from api.core.v1 import Node
from api.kerf.v1alpha1 import ResourceClassObject
from api.model.claims import DeviceClass
from api.model.devices import ResourceSlice
from driver.controller.structured.matching_devices import News, Published
from driver.kube.assume_cache import AssumeCache
from driver.kube.store import ObjectChange


class Queueing(Protocol):
    """What this needs of the work queue: a key that waits already is merged, the earlier time wins."""

    def add(self, key: str, *, after_s: float = 0.0) -> None: ...


class Triggers:
    """Turns changes that informers see into keys of work. Quick, and never raises."""

    def __init__(
        self,
        queue: Queueing,
        published: Published,
        classes: AssumeCache[ResourceClassObject],
        device_classes: AssumeCache[DeviceClass],
        *,
        recount_s: float,
        settle_s: float,
    ) -> None:
        self._queue = queue
        self._published = published
        self._classes = classes
        self._device_classes = device_classes
        self._recount_s = recount_s
        self._settle_s = settle_s

    def on_resource_class(self, change: ObjectChange[ResourceClassObject]) -> None:
        self._classes.on_change(change)
        self._queue.add(change.ref.name)

    def on_device_class(self, change: ObjectChange[DeviceClass]) -> None:
        """A DeviceClass bears the name of its class; one without a class ends its pass at once."""
        self._device_classes.on_change(change)
        self._queue.add(change.ref.name)

    def on_slice(self, change: ObjectChange[ResourceSlice]) -> None:
        """Counts can wait; somebody may wait for a class that new hardware makes possible."""
        news = self._published.update(change.ref, change.new)
        if news is not News.NONE:
            self.all_classes(after_s=self._settle_s if news is News.HARDWARE else self._recount_s)

    def on_node(self, change: ObjectChange[Node]) -> None:
        """Nodes report much that is of no interest here: only labels decide, of classes that look at nodes."""
        if _labels(change.old) != _labels(change.new):
            for held in self._classes.values():
                if held.spec.get("nodes"):
                    self._queue.add(held.metadata.name, after_s=self._settle_s)

    def all_classes(self, *, after_s: float = 0.0) -> None:
        for held in self._classes.values():
            self._queue.add(held.metadata.name, after_s=after_s)


def _labels(node: Node | None) -> Mapping[str, str] | None:
    return None if node is None else node.metadata.labels
