"""The API server behind ``syncing.Api``."""

from collections.abc import Sequence

import anyio

from api.core.v1 import LEASES, PODS, Pod
from api.model.base import JsonObject
from api.model.classic import ClassicClaim
from api.model.names import ObjectRef
from api.resource.classic import ClassicKinds
from driver.controller.classic.reconciler import NotLeadingError
from driver.kube.http.client import Client, PatchType
from driver.kube.http.errors import NotFoundError


class KubeApi:
    """A real one. ``identity`` holds ``lease`` while this process leads."""

    def __init__(self, client: Client, kinds: ClassicKinds, *, lease: ObjectRef, identity: str) -> None:
        self._client = client
        self._kinds = kinds
        self._lease = lease
        self._identity = identity
        self._looking = anyio.Lock()
        self._begun = 0
        self._confirmed = 0
        """The number of the last look at the Lease that was begun, and of the last that found it to be ours."""

    async def pod(self, ref: ObjectRef) -> Pod | None:
        try:
            return await self._client.get(PODS, ref.name, ref.namespace)
        except NotFoundError:
            return None

    async def claims(self) -> Sequence[ClassicClaim]:
        return (await self._client.list(self._kinds.claims)).items

    async def read_claim(self, ref: ObjectRef) -> ClassicClaim | None:
        try:
            return await self._client.get(self._kinds.claims, ref.name, ref.namespace)
        except NotFoundError:
            return None

    async def patch_claim(self, ref: ObjectRef, metadata: JsonObject) -> ClassicClaim:
        return await self._client.patch(
            self._kinds.claims, ref.name, {"metadata": metadata}, type=PatchType.MERGE, namespace=ref.namespace
        )

    async def patch_claim_status(self, ref: ObjectRef, metadata: JsonObject, status: JsonObject) -> ClassicClaim:
        return await self._client.patch(
            self._kinds.claims,
            ref.name,
            {"metadata": metadata, "status": status},
            type=PatchType.MERGE,
            namespace=ref.namespace,
            subresource="status",
        )

    async def patch_context_status(self, ref: ObjectRef, metadata: JsonObject, status: JsonObject) -> None:
        await self._client.patch(
            self._kinds.scheduling_contexts,
            ref.name,
            {"metadata": metadata, "status": status},
            type=PatchType.MERGE,
            namespace=ref.namespace,
            subresource="status",
        )

    async def confirm_leading(self) -> None:
        """Those who ask while a look is under way share the next one: it has to begin after they asked."""
        begun = self._begun
        async with self._looking:
            if self._confirmed <= begun:
                self._begun = number = self._begun + 1
                await self._look_at_lease()
                self._confirmed = number

    async def _look_at_lease(self) -> None:
        lease = await self._client.get(LEASES, self._lease.name, self._lease.namespace)
        if lease.spec.holder_identity != self._identity:
            raise NotLeadingError(f"{lease.spec.holder_identity or 'nobody'} leads, not {self._identity}")
