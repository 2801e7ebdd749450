"""Removes the slices of nodes that are gone, where nobody else does.

A node's slices belong to its Node object and go with it. But ``kubectl delete node --cascade=orphan`` cuts that tie,
and the scheduler would go on giving away devices that nobody can use. Everything else that a lost node leaves is
Kubernetes' own to clean: its pods by the pod garbage collector, their claims by the claim controller.
"""

import logging
from collections.abc import Callable, Collection, Iterable
from typing import Final, Protocol

import anyio

from api.core.v1 import NODES, Node
from api.errors import KerfError
from api.model.devices import ResourceSlice
from api.model.metadata import ObjectT
from api.wire import Kind
from driver.kube.http.errors import ConflictError, NotFoundError
from driver.runtime import metrics

_log = logging.getLogger(__name__)

_SWEPT: Final = metrics.counter("kerf_controller_swept_total", "Slices removed because their node is gone.")


class Deleting(Protocol):
    """What this needs of ``driver.kube.http.client.Client``, with its errors."""

    async def get(self, kind: Kind[ObjectT], name: str) -> ObjectT: ...

    async def delete(self, kind: Kind[ObjectT], name: str, *, uid: str | None = None) -> None: ...


def orphans(slices: Iterable[ResourceSlice], nodes: Collection[str]) -> list[ResourceSlice]:
    """Those of ``slices`` whose node is not among ``nodes``, by name."""
    return [one for one in slices if one.spec.node_name is not None and one.spec.node_name not in nodes]


class Sweeping:
    """Looks again and again. What it sees twice in a row it takes for gone: a new node's slices may be seen first."""

    def __init__(
        self,
        client: Deleting,
        resource_slices: Kind[ResourceSlice],
        slices: Callable[[], Iterable[ResourceSlice]],
        nodes: Callable[[], Iterable[Node]],
        *,
        interval_s: float,
    ) -> None:
        """``slices`` and ``nodes`` are what caches show: the driver's slices, all nodes."""
        self._client = client
        self._resource_slices = resource_slices
        self._slices = slices
        self._nodes = nodes
        self._interval_s = interval_s
        self._suspects: frozenset[str] = frozenset()

    async def run(self) -> None:
        """For ever."""
        while True:
            await self.look()
            await anyio.sleep(self._interval_s)

    async def look(self) -> None:
        """Look once, and remove what was seen before, too."""
        found = orphans(self._slices(), {node.metadata.name for node in self._nodes()})
        for one in found:
            if one.metadata.uid in self._suspects:
                await self._remove(one)
        self._suspects = frozenset(one.metadata.uid for one in found)

    async def _remove(self, orphan: ResourceSlice) -> None:
        name, node = orphan.metadata.name, orphan.spec.node_name or ""
        try:
            await self._client.get(NODES, node)
            return  # the cache was late
        except NotFoundError:
            pass
        except KerfError as error:
            _log.info("ResourceSlice %s: cannot tell whether node %s is gone: %s", name, node, error)
            return
        try:
            await self._client.delete(self._resource_slices, name, uid=orphan.metadata.uid)
        except (NotFoundError, ConflictError):
            return  # somebody else was quicker
        except KerfError as error:
            _log.warning("ResourceSlice %s of node %s, which is gone, cannot be removed: %s", name, node, error)
            return
        _SWEPT.inc()
        _log.info("ResourceSlice %s removed: its node %s is gone", name, node)
