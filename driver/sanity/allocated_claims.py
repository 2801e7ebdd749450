"""The claims of a run: made in the cluster, and allocated from the driver's own slices by Kerf's allocator.

What kube-scheduler writes is written here, by its rules (KEP-4381): an allocation of the driver's devices on the node,
reserved for a pod. The pod exists, or kube-controller-manager would take the allocation back; it has a scheduling gate,
so that nothing runs.
"""

import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Final
from uuid import uuid4

from kerf_dra.api.core.v1 import NODES, PODS, Pod
from kerf_dra.api.errors import KerfError
from kerf_dra.api.model.base import JsonObject
from kerf_dra.api.model.claims import (
    CelSelector,
    DeviceClaim,
    DeviceClass,
    DeviceClassSpec,
    DeviceRequest,
    DeviceSelector,
    ExactDeviceRequest,
    ResourceClaim,
    ResourceClaimSpec,
)
from kerf_dra.api.model.devices import ResourceSlice
from kerf_dra.api.model.metadata import ObjectMeta
from kerf_dra.api.model.names import ClaimRef
from kerf_dra.api.wire import to_builtins
from kerf_dra.driver.allocation import Budget, ClusterAllocator, Features, Fits, PoolIndex
from kerf_dra.driver.kube.discovery import ApiFeatures
from kerf_dra.driver.kube.http.client import Client, PatchType
from kerf_dra.driver.kube.http.errors import NotFoundError
from kerf_dra.driver.kube.patches import if_unchanged
from kerf_dra.driver.scheduling.node_filter import node_view

LABEL: Final = "kerf.dev/sanity"
"""Label of every object that a run makes; the value is the driver's name."""
REQUEST: Final = "device"
"""The name of each claim's request."""
_FIELD_MANAGER: Final = "kerf-sanity"
_IMAGE: Final = "registry.k8s.io/pause:3.10"
"""The image of pods that never run."""
_BUDGET: Final = Budget(seconds=10.0, clock=time.monotonic)
"""kube-scheduler's limit for one node."""


FOREIGN_DRIVER: Final = "kerf-sanity.example.com"
"""A driver that does not exist, of which claims may have a device besides."""
FOREIGN_DEVICE: Final = "kerf-sanity-device"
"""That device."""


class NoDeviceError(KerfError):
    """The driver's free devices do not suffice for another claim."""


class AllocatedClaims:
    """The claims of one run on one node."""

    def __init__(self, client: Client, api: ApiFeatures, *, driver: str, node: str, namespace: str) -> None:
        self._client = client
        self._kinds = api.resource
        self.driver = driver
        self.node = node
        self._namespace = namespace
        self._class = f"kerf-sanity-{driver}"[:253]
        self._labels = {LABEL: driver[:63]}

    async def list_slices(self) -> Sequence[ResourceSlice]:
        """Return the slices of the driver's pools that this node can use. Raises ApiError."""
        slices = await self._client.list(self._kinds.resource_slices)
        return [
            one
            for one in slices.items
            if one.spec.driver == self.driver and (one.spec.node_name or self.node) == self.node
        ]

    async def list_left(self) -> Sequence[ClaimRef]:
        """Return the claims that an earlier run of this driver's test has left. Raises ApiError."""
        selector = f"{LABEL}={self._labels[LABEL]}"
        claims = await self._client.list(self._kinds.resource_claims, self._namespace, label_selector=selector)
        return [_identify(claim) for claim in claims.items]

    @asynccontextmanager
    async def allocated(
        self, count: int = 1, *, at_most: int = 0, with_foreign: bool = False
    ) -> AsyncIterator[Sequence[ClaimRef]]:
        """So many claims exist inside, each with a device of its own, and up to ``at_most`` if devices suffice.

        ``with_foreign``: each has a device of FOREIGN_DRIVER, too. Raises NoDeviceError and ApiError.
        """
        made: list[ClaimRef] = []
        try:
            for number in range(max(count, at_most)):
                claim = await self._create()
                made.append(_identify(claim))
                try:
                    await self._allocate(claim, with_foreign=with_foreign)
                except NoDeviceError:
                    if number < count:
                        raise
                    await self.delete(made.pop())
                    break
            yield tuple(made)
        finally:
            for ref in made:
                await self.delete(ref)

    @asynccontextmanager
    async def made_again(self, former: ClaimRef) -> AsyncIterator[ClaimRef]:
        """A claim with the name of ``former``, which is deleted, exists inside, with a device. Raises as allocated."""
        await self.delete(former)
        claim = await self._create(former.name)
        try:
            await self._allocate(claim)
            yield _identify(claim)
        finally:
            await self.delete(_identify(claim))

    async def allocate_otherwise(self, claim: ClaimRef) -> None:
        """Take the claim's device back, and allocate it another one. Raises NoDeviceError and ApiError."""
        patch: JsonObject = {"status": {"allocation": None, "reservedFor": None}}
        kind = self._kinds.resource_claims
        await self._client.patch(
            kind, claim.name, patch, type=PatchType.MERGE, namespace=claim.namespace, subresource="status"
        )
        async with self.allocated():  # the first free device, which is the one that was taken back
            await self._allocate(await self._client.get(kind, claim.name, claim.namespace))

    @asynccontextmanager
    async def not_allocated(self) -> AsyncIterator[ClaimRef]:
        """A claim without devices exists inside. Raises ApiError."""
        ref = _identify(await self._create())
        try:
            yield ref
        finally:
            await self.delete(ref)

    async def delete(self, claim: ClaimRef) -> None:
        """Delete a claim of this run with its pod, unless they are gone. Raises ApiError."""
        with suppress(NotFoundError):
            await self._client.delete(self._kinds.resource_claims, claim.name, claim.namespace, uid=claim.uid)
        with suppress(NotFoundError):
            await self._client.delete(PODS, claim.name, claim.namespace, grace_s=0)

    def name_unknown(self) -> ClaimRef:
        """Return the name of a claim that does not exist."""
        uid = str(uuid4())
        return ClaimRef(self._namespace, f"kerf-sanity-{uid[:8]}", uid)

    async def read_allocation(self, claim: ClaimRef) -> Mapping[str, tuple[str, str]]:
        """Return pool and device of the driver in a claim by request. Raises ApiError."""
        found = await self._client.get(self._kinds.resource_claims, claim.name, claim.namespace)
        assert found.status.allocation is not None, "this run has allocated it"
        results = found.status.allocation.devices.results
        return {each.request: (each.pool, each.device) for each in results if each.driver == self.driver}

    async def create_class(self) -> None:
        """Create the class of the run's claims: any device of the driver. Raises ApiError."""
        selector = DeviceSelector(cel=CelSelector(expression=f"device.driver == '{self.driver}'"))
        value: JsonObject = {
            "metadata": {"name": self._class, "labels": dict(self._labels)},
            "spec": to_builtins(DeviceClassSpec(selectors=(selector,))),
        }
        await self._client.apply(self._kinds.device_classes, value, field_manager=_FIELD_MANAGER)

    async def delete_class(self) -> None:
        """Delete the class. Raises ApiError."""
        with suppress(NotFoundError):
            await self._client.delete(self._kinds.device_classes, self._class)

    async def delete_slices(self) -> None:
        """Delete the driver's slices of the node, as a kubelet does at its start. Raises ApiError."""
        for each in await self.list_slices():
            if each.spec.node_name:
                with suppress(NotFoundError):
                    await self._client.delete(self._kinds.resource_slices, each.metadata.name)

    async def _create(self, name: str = "") -> ResourceClaim:
        name = name or self.name_unknown().name
        request = DeviceRequest(name=REQUEST, exactly=ExactDeviceRequest(device_class_name=self._class))
        claim = ResourceClaim(
            metadata=ObjectMeta(namespace=self._namespace, name=name, labels=self._labels),
            spec=ResourceClaimSpec(devices=DeviceClaim(requests=(request,))),
        )
        return await self._client.create(self._kinds.resource_claims, claim)

    async def _create_pod(self, claim: ResourceClaim) -> Pod:
        """Create the pod of a claim, with its name. It meets the pod security standard "restricted"."""
        container: JsonObject = {
            "name": "main",
            "image": _IMAGE,
            "resources": {"claims": [{"name": REQUEST}]},
            "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        }
        name = claim.metadata.name
        pod: JsonObject = {
            "metadata": {"name": name, "namespace": self._namespace, "labels": dict(self._labels)},
            "spec": {
                "schedulingGates": [{"name": LABEL}],
                "containers": [container],
                "resourceClaims": [{"name": REQUEST, "resourceClaimName": name}],
                "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
            },
        }
        return await self._client.apply(PODS, pod, field_manager=_FIELD_MANAGER)

    async def _allocate(self, claim: ResourceClaim, *, with_foreign: bool = False) -> None:
        node = await self._client.get(NODES, self.node)
        claims = (await self._client.list(self._kinds.resource_claims)).items
        device_class: DeviceClass = await self._client.get(self._kinds.device_classes, self._class)
        allocator = ClusterAllocator(
            Features(), PoolIndex.build(await self.list_slices()), nodes=[node_view(node)], claims=claims
        )
        outcome = allocator.allocate_on(
            self.node, [claim], {self._class: device_class}, share_id=lambda: str(uuid4()), budget=_BUDGET
        )
        if not isinstance(outcome, Fits):
            raise NoDeviceError(f"{self.driver} has no free device on {self.node} for another claim")
        pod = await self._create_pod(claim)
        consumer: JsonObject = {"resource": "pods", "name": pod.metadata.name, "uid": pod.metadata.uid}
        allocation = to_builtins(outcome.results[0])
        if with_foreign:
            foreign = {"request": REQUEST, "driver": FOREIGN_DRIVER, "pool": self.node, "device": FOREIGN_DEVICE}
            allocation["devices"]["results"].append(foreign)
        patch: JsonObject = {
            "metadata": if_unchanged(claim.metadata),
            "status": {"allocation": allocation, "reservedFor": [consumer]},
        }
        await self._client.patch(
            self._kinds.resource_claims,
            claim.metadata.name,
            patch,
            type=PatchType.MERGE,
            namespace=self._namespace,
            subresource="status",
        )


def _identify(claim: ResourceClaim) -> ClaimRef:
    return ClaimRef(claim.metadata.namespace, claim.metadata.name, claim.metadata.uid)
