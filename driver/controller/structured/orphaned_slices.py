"""Deletes the ResourceSlices of deleted nodes, where Kubernetes does not.

A node's slices are owned by its Node object and are garbage-collected with it. But ``kubectl delete node
--cascade=orphan`` removes the owner references, and the scheduler would continue to allocate devices that no pod can
use. Kubernetes cleans up after a lost node otherwise: the pod garbage collector its pods, the claim controller claims.

That a node is gone is said by the watch, twice, and by the API server's storage (``Client.find``).
"""

import logging
from collections.abc import Callable, Collection, Iterable
from typing import Final, Protocol

import anyio

from kerf_dra.api.core.v1 import NODES, Node
from kerf_dra.api.errors import KerfError
from kerf_dra.api.model.devices import ResourceSlice
from kerf_dra.api.model.metadata import ObjectT
from kerf_dra.api.wire import Kind
from kerf_dra.driver.kube.http.errors import ConflictError, NotFoundError
from kerf_dra.driver.runtime import metrics

_log = logging.getLogger(__name__)

_deleted: Final = metrics.counter("kerf_controller_swept_total", "Slices removed because their node was deleted.")


class DeleteClient(Protocol):
    """The reads and deletes of ``kerf_dra.driver.kube.http.client.Client``, with its errors."""

    async def find(self, kind: Kind[ObjectT], name: str) -> ObjectT | None: ...

    async def delete(
        self, kind: Kind[ObjectT], name: str, *, uid: str | None = None, resource_version: str | None = None
    ) -> None: ...


def find_orphans(slices: Iterable[ResourceSlice], nodes: Collection[str]) -> list[ResourceSlice]:
    """Return the slices of nodes whose names are not among ``nodes``; one that has an owner goes with it."""
    return [
        one
        for one in slices
        if one.spec.node_name is not None and one.spec.node_name not in nodes and not one.metadata.owner_references
    ]


class OrphanedSliceCollector:
    """Deletes slices that two checks in a row find orphaned, because caches may show a slice before its node."""

    def __init__(
        self,
        client: DeleteClient,
        resource_slices: Kind[ResourceSlice],
        slices: Callable[[], Iterable[ResourceSlice]],
        nodes: Callable[[], Iterable[Node]],
        *,
        interval_s: float,
    ) -> None:
        """``slices`` and ``nodes`` return the cached slices of our drivers and all cached nodes."""
        self._client = client
        self._resource_slices = resource_slices
        self._slices = slices
        self._nodes = nodes
        self._interval_s = interval_s
        self._suspects: frozenset[str] = frozenset()

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            await self.collect_once()
            await anyio.sleep(self._interval_s)

    async def collect_once(self) -> None:
        """Check once, and delete the slices that the previous check found, too."""
        found = find_orphans(self._slices(), {node.metadata.name for node in self._nodes()})
        for one in found:
            if one.metadata.uid in self._suspects:
                await self._delete(one)
        self._suspects = frozenset(one.metadata.uid for one in found)

    async def _delete(self, orphan: ResourceSlice) -> None:
        name, node = orphan.metadata.name, orphan.spec.node_name or ""
        try:
            if await self._client.find(NODES, node) is not None:
                return  # the cache was outdated
        except KerfError as error:
            _log.info("ResourceSlice %s: cannot find out whether node %s still exists: %s", name, node, error)
            return
        try:
            metadata = orphan.metadata
            await self._client.delete(
                self._resource_slices, name, uid=metadata.uid, resource_version=metadata.resource_version
            )
        except (NotFoundError, ConflictError):
            return  # deleted or changed meanwhile
        except KerfError as error:
            _log.warning("ResourceSlice %s of the deleted node %s cannot be removed: %s", name, node, error)
            return
        _deleted.inc()
        _log.info("ResourceSlice %s removed: its node %s no longer exists", name, node)
