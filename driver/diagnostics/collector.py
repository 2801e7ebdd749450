"""Reads what answers need from a cluster: the only part of the answers that does I/O."""

from collections.abc import Callable
from typing import Any, Final

import anyio

from api.core.v1 import NODES, PODS, Pod
from api.wire import Kind
from driver.diagnostics.cluster_state import ClusterState
from driver.kube.discovery import discover
from driver.kube.http.client import Client

_FINISHED: Final = "status.phase!=Succeeded,status.phase!=Failed"
"""Pods that are done hold nothing and want nothing; the API server leaves them out."""


async def gather(client: Client, now: Callable[[], str]) -> ClusterState:
    """The cluster as it is now; ``now`` gives the time as RFC 3339.

    The lists are taken side by side, not at one moment: a claim may name a pod that is gone. Raises ApiError,
    AccessError and UnsupportedError, those of lists in a group.
    """
    api = await discover(client)
    gathered_at = now()
    lists: dict[str, tuple[Any, ...]] = {}

    async def take(field: str, kind: Kind[Any] | None, field_selector: str = "") -> None:
        if kind is not None:
            lists[field] = (await client.list(kind, field_selector=field_selector)).items

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(take, "nodes", NODES)
        tasks.start_soon(take, "pods", PODS, _FINISHED)
        tasks.start_soon(take, "claims", api.resource.resource_claims)
        tasks.start_soon(take, "templates", api.resource.resource_claim_templates)
        tasks.start_soon(take, "classes", api.resource.device_classes)
        tasks.start_soon(take, "slices", api.resource.resource_slices)
        tasks.start_soon(take, "taint_rules", api.device_taint_rules)
    lists["pods"] = tuple(pod for pod in lists["pods"] if _asks_for_devices(pod))
    return ClusterState(kubernetes=".".join(map(str, api.kubernetes)), gathered_at=gathered_at, **lists)


def _asks_for_devices(pod: Pod) -> bool:
    """By claims, or perhaps by an extended resource that a class stands for (KEP-5004): those have a domain."""
    containers = (*pod.spec.init_containers, *pod.spec.containers)
    return bool(pod.spec.resource_claims) or any(
        "/" in name for container in containers for name in container.resources.limits
    )
