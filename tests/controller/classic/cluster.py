"""A cluster where drivers allocate, with the whole controller: an embedded API server of 1.30, and no scheduler."""

from collections.abc import Awaitable, Callable
from typing import Any

import anyio

from kerf_dra.api.core.v1 import EVENTS, PODS, Pod
from kerf_dra.api.kerf.classic_parameters import CLAIM_PARAMETERS, CLASS_PARAMETERS
from kerf_dra.api.kerf.node_inventory import NODE_INVENTORIES
from kerf_dra.api.model.base import JsonObject
from kerf_dra.api.model.classic import ClassicClaim
from kerf_dra.api.resource.v1alpha2 import KINDS
from kerf_dra.api.wire import Kind, to_builtins
from kerf_dra.driver.kube.http.client import Client, PatchType
from kerf_dra.driver.partitions.geometry import Card
from tests.controller.classic.cluster_builder import FINALIZER
from tests.controller.classic.hardware import DRIVER, inventory

PATIENCE_S = 120.0
"""For something that takes some ten milliseconds, on a busy machine."""
PARAMETERS = {kind.kind: kind for kind in (*CLASS_PARAMETERS, *CLAIM_PARAMETERS)}


class ClassicCluster:
    """A cluster with node ``n1``, which has one H100, and an administrator who does not always know better."""

    def __init__(self, admin: Client) -> None:
        self.admin = admin

    async def tell(self, *cards: Card, **fields: Any) -> None:
        """Write the inventory that the plugin of n1 would write."""
        told = inventory("n1", *cards, **fields)
        await self._apply(NODE_INVENTORIES, told.metadata.name, spec=to_builtins(told.spec))

    async def class_(self, name: str = "gpu", *, driver: str = DRIVER, kind: str = "GpuClassParameters") -> None:
        reference = {"apiGroup": "kerf.dev", "kind": kind, "name": name}
        await self._apply(KINDS.classes, name, driverName=driver, parametersRef=reference)

    async def parameters(self, name: str, spec: JsonObject, kind: str = "GpuClassParameters") -> None:
        await self._apply(PARAMETERS[kind], name, spec=spec)

    async def claim(self, name: str, class_name: str = "gpu", **spec: Any) -> None:
        """An Immediate one."""
        body = {"resourceClassName": class_name, "allocationMode": "Immediate", **spec}
        await self._apply(KINDS.claims, name, spec=body)

    async def pod(self, name: str, *names: str) -> Pod:
        """A pod of the claims ``names``; its entry for the first is ``gpu``."""
        claims = [
            {"name": "gpu" if number == 0 else f"claim-{number}", "source": {"resourceClaimName": claim}}
            for number, claim in enumerate(names)
        ]
        containers = [{"name": "main", "image": "i"}]
        made: Pod = await self._apply(PODS, name, spec={"containers": containers, "resourceClaims": claims})
        return made

    async def negotiate(self, *names: str) -> None:
        """A pod of the claims ``names``, which the scheduler would have on n1."""
        made = await self.pod("pod", *names)
        owner = {"apiVersion": "v1", "kind": "Pod", "name": "pod", "uid": made.metadata.uid, "controller": True}
        await self._apply(
            KINDS.scheduling_contexts,
            "pod",
            {"ownerReferences": [owner]},
            spec={"selectedNode": "n1", "potentialNodes": ["n1"]},
        )

    async def read(self, name: str) -> ClassicClaim:
        return await self.admin.get(KINDS.claims, name, "default")

    async def edit(self, name: str, body: JsonObject, subresource: str = "") -> None:
        """What nobody but the controller should do to a claim."""
        await self.admin.patch(
            KINDS.claims, name, body, type=PatchType.MERGE, namespace="default", subresource=subresource
        )

    async def has(self, name: str) -> list[str]:
        """The devices of a claim, once it has some."""
        found: list[str] = []

        async def probe() -> bool:
            allocation = (await self.read(name)).status.allocation
            found[:] = [result.device for result in allocation.devices.results] if allocation else ()
            return bool(found)

        await eventually(probe)
        return found

    async def released(self, name: str) -> None:
        async def probe() -> bool:
            claim = await self.read(name)
            return claim.status.allocation is None and FINALIZER not in claim.metadata.finalizers

        await eventually(probe)

    async def told(self, kind: str, name: str) -> list[str]:
        """The messages of Warning events about an object."""
        events = (await self.admin.list(EVENTS)).items
        about = [event for event in events if (event.involved_object.kind, event.involved_object.name) == (kind, name)]
        assert all(event.involved_object.uid for event in about), "kubectl describe finds events by it"
        return [event.message for event in about if event.type == "Warning"]

    async def says(self, kind: str, name: str, words: str) -> None:
        async def probe() -> bool:
            return any(words in message for message in await self.told(kind, name))

        await eventually(probe)

    async def _apply(self, kind: Kind[Any], name: str, metadata: JsonObject | None = None, **body: Any) -> Any:
        named = {"name": name, **({"namespace": "default"} if kind.namespaced else {}), **(metadata or {})}
        return await self.admin.apply(kind, {"metadata": named, **body}, field_manager="admin")


async def eventually(holds: Callable[[], Awaitable[bool]]) -> None:
    with anyio.fail_after(PATIENCE_S):
        while not await holds():  # noqa: ASYNC110  (another program's doing, which sets no event of ours)
            await anyio.sleep(0.01)
