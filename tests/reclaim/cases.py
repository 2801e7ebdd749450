"""Pods and claims on two cards of two nodes, for tests of who holds a card."""

from collections.abc import Iterable, Sequence
from typing import Final

from msgspec.structs import replace

from kerf_dra.api.core.v1 import Pod, PodResourceClaim, PodSpec, PodStatus
from kerf_dra.api.model.allocations import (
    AllocationResult,
    DeviceAllocationResult,
    DeviceRequestAllocationResult,
    ResourceClaimConsumerReference,
    ResourceClaimStatus,
)
from kerf_dra.api.model.claims import ResourceClaim
from kerf_dra.api.model.devices import DeviceTaint, DeviceToleration, ResourceSlice
from kerf_dra.api.model.metadata import ObjectMeta, OwnerReference
from kerf_dra.driver.families.gpu import GPU
from kerf_dra.driver.reclaim.cards import DrainableCard
from tests.fakes.cluster_states import slices

CARD: Final = DrainableCard(
    driver=GPU.driver,
    pool="node-1/gpu",
    node="node-1",
    name="gpu-1",
    uuid="GPU-node-1-1",
    pci_bus_id="0000:01:00.0",
    is_withheld=True,
    is_in_use=True,
)
"""The second card of the first node."""
OWNER: Final = OwnerReference(api_version="apps/v1", kind="ReplicaSet", name="web-7d9", uid="uid-web", controller=True)
TOLERATION: Final = DeviceToleration(key=f"{GPU.driver}/maintenance", operator="Exists")


def result(
    device: str, *, pool: str = "node-1/gpu", driver: str = GPU.driver, admin: bool = False, tolerates: bool = False
) -> DeviceRequestAllocationResult:
    return DeviceRequestAllocationResult(
        request="gpu",
        driver=driver,
        pool=pool,
        device=device,
        admin_access=admin or None,
        tolerations=(TOLERATION,) if tolerates else (),
    )


def claim(
    name: str,
    *results: DeviceRequestAllocationResult,
    users: Sequence[str] = (),
    namespace: str = "default",
    is_own: bool | None = None,
) -> ResourceClaim:
    """Return an allocated claim that is reserved for the pods ``users``; it is the own one of a single user."""
    is_own = len(users) == 1 if is_own is None else is_own
    owners = tuple(OwnerReference(api_version="v1", kind="Pod", name=one, uid=f"uid-{one}") for one in users[:1])
    reserved = tuple(ResourceClaimConsumerReference(resource="pods", name=one, uid=f"uid-{one}") for one in users)
    allocation = AllocationResult(devices=DeviceAllocationResult(results=results))
    return ResourceClaim(
        metadata=ObjectMeta(
            name=name,
            namespace=namespace,
            uid=f"uid-of-claim-{name}",
            owner_references=owners if is_own else (),
        ),
        status=ResourceClaimStatus(allocation=allocation, reserved_for=reserved),
    )


def pod(
    name: str,
    *claims: str,
    owner: OwnerReference | None = OWNER,
    namespace: str = "default",
    node: str = "node-1",
    phase: str = "Running",
    is_terminating: bool = False,
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    finalizers: tuple[str, ...] = (),
) -> Pod:
    return Pod(
        metadata=ObjectMeta(
            name=name,
            namespace=namespace,
            uid=f"uid-{name}",
            owner_references=() if owner is None else (owner,),
            deletion_timestamp="2026-11-27T10:00:00Z" if is_terminating else None,
            labels=labels or {},
            annotations=annotations or {},
            finalizers=finalizers,
        ),
        spec=PodSpec(
            node_name=node,
            resource_claims=tuple(PodResourceClaim(name=one, resource_claim_name=one) for one in claims),
        ),
        status=PodStatus(phase=phase),
    )


def tainted_slices(node: str, card: str, *, value: str, cards: int = 2) -> list[ResourceSlice]:
    """Return the slices of a node whose plugin withholds ``card``."""
    return taint_slices(slices(node, cards), card, value=value)


def taint_slices(
    published: Iterable[ResourceSlice], card: str, *, value: str, name: str = "maintenance"
) -> list[ResourceSlice]:
    """Return slices with a taint of each device of ``card``."""
    taint = DeviceTaint(key=f"{GPU.driver}/{name}", value=value, effect="NoSchedule")

    def taint_devices(one: ResourceSlice) -> ResourceSlice:
        devices = tuple(
            replace(device, taints=(taint,)) if device.name == card or device.name.startswith(f"{card}-") else device
            for device in one.spec.devices
        )
        return replace(one, spec=replace(one.spec, devices=devices))

    return [taint_devices(one) for one in published]
