"""The client of a real API server that implements ``reconciler.ClaimClient``."""

from collections.abc import Sequence

import anyio

from kerf_dra.api.core.v1 import LEASES, PODS, Pod
from kerf_dra.api.model.base import JsonObject
from kerf_dra.api.model.classic import ClassicClaim
from kerf_dra.api.model.metadata import ObjectT
from kerf_dra.api.model.names import ObjectRef
from kerf_dra.api.resource.classic import ClassicKinds
from kerf_dra.api.wire import Kind
from kerf_dra.driver.controller.classic.reconciler import NotLeadingError
from kerf_dra.driver.kube.http.client import Client, PatchType


class KubeClaimClient:
    """Sends the requests of ``ClaimClient``; ``identity`` holds ``lease`` while this process leads."""

    def __init__(self, client: Client, kinds: ClassicKinds, *, lease: ObjectRef, identity: str) -> None:
        self._client = client
        self._kinds = kinds
        self._lease = lease
        self._identity = identity
        self._reading = anyio.Lock()
        self._begun = 0
        self._confirmed = 0
        """The number of the last started read of the Lease, and of the last read that found this process leading."""

    async def pod(self, ref: ObjectRef) -> Pod | None:
        return await self._client.find(PODS, ref.name, ref.namespace)

    async def claims(self) -> Sequence[ClassicClaim]:
        return (await self._client.list(self._kinds.claims)).items

    async def read_claim(self, ref: ObjectRef) -> ClassicClaim | None:
        return await self._client.find(self._kinds.claims, ref.name, ref.namespace)

    async def patch_claim(self, ref: ObjectRef, metadata: JsonObject) -> ClassicClaim:
        return await self._patch(self._kinds.claims, ref, {"metadata": metadata})

    async def patch_claim_status(self, ref: ObjectRef, metadata: JsonObject, status: JsonObject) -> ClassicClaim:
        return await self._patch(self._kinds.claims, ref, {"metadata": metadata, "status": status}, "status")

    async def patch_context_status(self, ref: ObjectRef, metadata: JsonObject, status: JsonObject) -> None:
        patch = {"metadata": metadata, "status": status}
        await self._patch(self._kinds.scheduling_contexts, ref, patch, "status")

    async def confirm_leading(self) -> None:
        """Callers that wait during a read share the next one, because it has to start after their call."""
        begun = self._begun
        async with self._reading:
            if self._confirmed <= begun:
                self._begun = number = self._begun + 1
                await self._read_lease()
                self._confirmed = number

    async def _read_lease(self) -> None:
        lease = await self._client.get(LEASES, self._lease.name, self._lease.namespace)
        if lease.spec.holder_identity != self._identity:
            raise NotLeadingError(
                f"{lease.spec.holder_identity or 'no controller'} holds the lease, not {self._identity}"
            )

    async def _patch(self, kind: Kind[ObjectT], ref: ObjectRef, patch: JsonObject, subresource: str = "") -> ObjectT:
        return await self._client.patch(
            kind, ref.name, patch, type=PatchType.MERGE, namespace=ref.namespace, subresource=subresource
        )
