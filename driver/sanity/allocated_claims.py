"""The claims of a run: made in the cluster, and allocated from the driver's own slices by Kerf's allocator.

Each is for one device of the driver, of a class that the run makes; or it is a copy of one of the user's manifests.

What kube-scheduler writes is written here, by its rules (KEP-4381): an allocation of the driver's devices on the node,
reserved for a pod. The pod exists, or kube-controller-manager would take the allocation back; it has a scheduling gate,
so that nothing runs.
"""

import time
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Final, NamedTuple
from uuid import uuid4

from kerf_dra.api.core.v1 import NODES, PODS, Pod
from kerf_dra.api.errors import InvalidDocumentError, KerfError, Problem
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
from kerf_dra.api.model.prepared import PrepareOutcome
from kerf_dra.api.wire import to_builtins
from kerf_dra.driver.allocation import Budget, ClusterAllocator, DoesNotFit, Failed, Features, Fits, Outcome, PoolIndex
from kerf_dra.driver.kube.discovery import ApiFeatures
from kerf_dra.driver.kube.http.client import Client, PatchType
from kerf_dra.driver.kube.http.errors import InvalidError, NotFoundError
from kerf_dra.driver.kube.patches import if_unchanged
from kerf_dra.driver.sanity.given_claims import GivenClaim, list_classes
from kerf_dra.driver.scheduling.node_filter import node_view

LABEL: Final = "kerf.dev/sanity"
"""Label of every object that a run makes; the value is the driver's name."""
REQUEST: Final = "device"
"""The name of the request of a claim that is no copy, and of the claim in its pod."""
_FIELD_MANAGER: Final = "kerf-sanity"
_IMAGE: Final = "registry.k8s.io/pause:3.10"
"""The image of pods that never run."""
_BUDGET: Final = Budget(seconds=10.0, clock=time.monotonic)
"""kube-scheduler's limit for one node."""


FOREIGN_DRIVER: Final = "kerf-sanity.example.com"
"""A driver that does not exist, of which claims may have a device besides."""
FOREIGN_DEVICE: Final = "kerf-sanity-device"
"""That device."""


class DeviceOfRequest(NamedTuple):
    """A device of an allocation, for one request of the claim."""

    request: str
    """Its name in the claim, also where one of several alternatives was allocated: drivers answer so (KEP-4816)."""
    pool: str
    device: str

    def __str__(self) -> str:
        return f"{self.pool}/{self.device} for request {self.request}"


class NoDeviceError(KerfError):
    """The driver's free devices do not suffice for another claim."""


class AllocatedClaims:
    """The claims of one run on one node; the first of each row is as the first of ``given``, the second as the second,
    and so on, from the first again.
    """

    def __init__(
        self,
        client: Client,
        api: ApiFeatures,
        *,
        driver: str,
        node: str,
        namespace: str,
        given: Sequence[GivenClaim] = (),
    ) -> None:
        self._client = client
        self._kinds = api.resource
        self.driver = driver
        self.node = node
        self._namespace = namespace
        self._given = given
        self._class = f"kerf-sanity-{driver}"[:253]
        self._labels = {LABEL: driver[:63]}

    async def check_given(self) -> None:
        """Have the API server check the user's claims, and find their classes.

        Raises InvalidDocumentError when it refuses a claim or does not have a class, and ApiError.
        """
        for each in self._given:
            try:
                await self._client.create(self._kinds.resource_claims, self._new_claim(each.spec), dry_run=True)
            except InvalidError as error:
                raise InvalidDocumentError(each.place, [Problem("", error.message)]) from error
            for path, name in list_classes(each.spec).items():
                if await self._client.find(self._kinds.device_classes, name) is None:
                    problem = Problem(path, f"the cluster has no DeviceClass {name}: apply it before")
                    raise InvalidDocumentError(each.place, [problem])

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
        """So many claims exist inside, each with devices of its own, and up to ``at_most`` if devices suffice.

        ``with_foreign``: each has a device of FOREIGN_DRIVER, too. Raises NoDeviceError and ApiError.
        """
        made: list[ClaimRef] = []
        try:
            for number in range(max(count, at_most)):
                claim = await self._create(number)
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
        claim = await self._create(name=former.name)
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

    async def read_allocation(self, claim: ClaimRef) -> frozenset[DeviceOfRequest]:
        """Return the devices of the driver in a claim. Raises ApiError."""
        found = await self._client.get(self._kinds.resource_claims, claim.name, claim.namespace)
        assert found.status.allocation is not None, "this run has allocated it"
        results = found.status.allocation.devices.results
        return frozenset(
            DeviceOfRequest(each.request_name.request, each.pool, each.device)
            for each in results
            if each.driver == self.driver
        )

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

    async def _create(self, number: int = 0, name: str = "") -> ResourceClaim:
        return await self._client.create(self._kinds.resource_claims, self._new_claim(self._choose_spec(number), name))

    def _choose_spec(self, number: int) -> ResourceClaimSpec:
        """Return the spec of the claim of a row with this number, from 0."""
        if self._given:
            return self._given[number % len(self._given)].spec
        request = DeviceRequest(name=REQUEST, exactly=ExactDeviceRequest(device_class_name=self._class))
        return ResourceClaimSpec(devices=DeviceClaim(requests=(request,)))

    def _new_claim(self, spec: ResourceClaimSpec, name: str = "") -> ResourceClaim:
        name = name or self.name_unknown().name
        return ResourceClaim(metadata=ObjectMeta(namespace=self._namespace, name=name, labels=self._labels), spec=spec)

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
        classes: dict[str, DeviceClass] = {
            name: await self._client.get(self._kinds.device_classes, name)
            for name in sorted({*list_classes(claim.spec).values()})
        }
        allocator = ClusterAllocator(
            Features(), PoolIndex.build(await self.list_slices()), nodes=[node_view(node)], claims=claims
        )
        outcome = allocator.allocate_on(self.node, [claim], classes, share_id=lambda: str(uuid4()), budget=_BUDGET)
        if not isinstance(outcome, Fits):
            raise NoDeviceError(self._describe_misfit(outcome))
        pod = await self._create_pod(claim)
        consumer: JsonObject = {"resource": "pods", "name": pod.metadata.name, "uid": pod.metadata.uid}
        allocation = to_builtins(outcome.results[0])
        if with_foreign:
            request = claim.spec.devices.requests[0].name
            foreign = {"request": request, "driver": FOREIGN_DRIVER, "pool": self.node, "device": FOREIGN_DEVICE}
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

    def _describe_misfit(self, outcome: Outcome) -> str:
        """Return why a claim does not fit; of copies of the user's claims with the allocator's first reason."""
        message = f"{self.driver} has no free device on {self.node} for another claim"
        match outcome:
            case DoesNotFit(reasons=(reason, *_)) if self._given:
                return f"{message}: request {reason.request}: {reason.message}"
            case Failed(message=failure):
                return f"{message}: {failure}"
        return message


def list_devices(outcome: PrepareOutcome) -> frozenset[DeviceOfRequest]:
    """Return the devices that a driver has prepared, each once for each request that the driver names."""
    return frozenset(
        DeviceOfRequest(request, each.pool, each.device) for each in outcome.devices for request in each.requests
    )


def format_devices(devices: Iterable[DeviceOfRequest]) -> str:
    """Return devices as text for messages."""
    return ", ".join(sorted(map(str, devices))) or "no device"


def _identify(claim: ResourceClaim) -> ClaimRef:
    return ClaimRef(claim.metadata.namespace, claim.metadata.name, claim.metadata.uid)
