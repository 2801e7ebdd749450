"""The devices that a demo's nodes are expected to find by discovery: what their handlers find on this machine now."""

from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from kerf_dra.api.discovery.v1alpha1 import DiscoveryRequest
from kerf_dra.api.errors import KerfError
from kerf_dra.api.kerf.decoder import decode_discovery_document
from kerf_dra.api.kerf.discovery_objects import DiscoveryConfiguration
from kerf_dra.api.model.base import JsonObject
from kerf_dra.driver.kubeletplugin.discovery_handlers.base import NodeDiscoveryHandler
from kerf_dra.driver.kubeletplugin.discovery_handlers.built_in_handlers import make_handlers
from kerf_dra.driver.kubeletplugin.discovery_handlers.found_devices import check_devices
from kerf_dra.driver.kubeletplugin.discovery_handlers.udev_devices import UdevTree
from kerf_dra.driver.runtime.worker_threads import WorkerThreads


async def list_expected_devices(
    configurations: Iterable[JsonObject], nodes: Sequence[str], *, root: Path = Path("/")
) -> dict[str, set[str]]:
    """Return the names of the DiscoveredDevices that ``nodes`` will enter for valid configurations, with those nodes.

    Nothing is expected of a configuration whose handler is a program of its own, or does not answer. ``root`` is the
    directory below which the machine has ``sys``.
    """
    decoded = [decode_discovery_document(one) for one in configurations]
    seen_by: dict[str, set[str]] = {}
    async with _open_handlers(root) as handlers:
        for one in decoded:
            if (handler := handlers.get(one.spec.discovery_handler.name)) is not None:
                for node, device in await _list_devices(handler, one, nodes):
                    seen_by.setdefault(device, set()).add(node)
    return seen_by


@asynccontextmanager
async def _open_handlers(root: Path) -> AsyncIterator[dict[str, NodeDiscoveryHandler]]:
    threads = WorkerThreads()
    try:
        yield make_handlers(root, UdevTree(root), start=threads.start)
    finally:
        threads.close()


async def _list_devices(
    handler: NodeDiscoveryHandler, configuration: DiscoveryConfiguration, nodes: Sequence[str]
) -> list[tuple[str, str]]:
    """Return each node with each device that it will see."""
    wanted, name = configuration.spec.discovery_handler, configuration.metadata.name
    lists = handler.discover(DiscoveryRequest(details=wanted.details, properties=wanted.properties))
    try:
        found = await anext(lists)
    except (KerfError, StopAsyncIteration):
        return []
    finally:
        await lists.aclose()
    return [(node, device) for node in nodes for device in check_devices(name, found, node=node).specs]
