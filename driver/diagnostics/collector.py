"""The collector, which reads a ``ClusterState`` from an API server: the only I/O of diagnostics."""

from collections.abc import Callable
from typing import Any, Final

import anyio

from api.core.v1 import NODES, PODS, Pod
from api.wire import Kind
from driver.diagnostics.cluster_state import ClusterState
from driver.kube.discovery import discover
from driver.kube.http.client import Client

_FINISHED: Final = "status.phase!=Succeeded,status.phase!=Failed"
"""A field selector without finished pods, which neither hold nor need devices."""


async def collect_state(client: Client, now: Callable[[], str]) -> ClusterState:
    """Return the state of the cluster; ``now`` gives the time in RFC 3339.

    The lists are read concurrently, not at one resource version: a claim may name a pod that no longer exists.

    Raises UnsupportedError when the server serves no usable version of the API, ApiError and AccessError when discovery
    fails, and an exception group of these when a list fails.
    """
    api = await discover(client)
    gathered_at = now()
    lists: dict[str, tuple[Any, ...]] = {}
    unreadable: list[str] = []

    async def read(field: str, kind: Kind[Any] | None, field_selector: str = "") -> None:
        if kind is not None:
            listed = await client.list_all(kind, field_selector=field_selector)
            lists[field] = listed.items
            unreadable.extend(f"{kind.kind} {ref}" for ref in listed.unreadable)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(read, "nodes", NODES)
        tasks.start_soon(read, "pods", PODS, _FINISHED)
        tasks.start_soon(read, "claims", api.resource.resource_claims)
        tasks.start_soon(read, "templates", api.resource.resource_claim_templates)
        tasks.start_soon(read, "classes", api.resource.device_classes)
        tasks.start_soon(read, "slices", api.resource.resource_slices)
        tasks.start_soon(read, "taint_rules", api.device_taint_rules)
    lists["pods"] = tuple(pod for pod in lists["pods"] if _uses_devices(pod))
    return ClusterState(
        kubernetes=".".join(map(str, api.kubernetes)),
        gathered_at=gathered_at,
        unreadable=tuple(sorted(unreadable)),
        **lists,
    )


def _uses_devices(pod: Pod) -> bool:
    """Whether a pod has claims, or extended resources that a class may back (KEP-5004): their names have a domain."""
    containers = (*pod.spec.init_containers, *pod.spec.containers)
    return bool(pod.spec.resource_claims) or any(
        "/" in name for container in containers for name in container.resources.limits
    )
