"""Claims for single devices of a pool, one after another, as kube-scheduler allocates them."""

from collections.abc import Iterable

from msgspec.structs import replace

from kerf_dra.api.model.allocations import DeviceRequestAllocationResult, ResourceClaimStatus
from kerf_dra.api.model.claims import (
    CapacityRequirements,
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
from kerf_dra.api.model.devices import Pool, ResourcePool, ResourceSlice, ResourceSliceSpec
from kerf_dra.api.model.metadata import ObjectMeta
from kerf_dra.api.model.quantity import Quantity
from kerf_dra.driver.allocation import AllocatedState, Budget, Features, Fits, NodeView, PoolIndex, allocate

DRIVER = "kerf.dev"
"""The driver of the pool, whatever its family: its name is also the domain of attributes without one."""


def ask(name: str, where: str, **capacity: str) -> tuple[ResourceClaim, DeviceClass]:
    """A claim for one device that the CEL expression selects, with amounts of its capacities."""
    asked = CapacityRequirements(requests={key: Quantity(amount) for key, amount in capacity.items()})
    request = DeviceRequest(
        name="device", exactly=ExactDeviceRequest(device_class_name=name, capacity=asked if capacity else None)
    )
    claim = ResourceClaim(
        metadata=ObjectMeta(namespace="default", name=name, uid=name),
        spec=ResourceClaimSpec(devices=DeviceClaim(requests=(request,))),
    )
    expression = f'device.driver == "{DRIVER}" && {where}'
    selectors = (DeviceSelector(cel=CelSelector(expression=expression)),)
    return claim, DeviceClass(metadata=ObjectMeta(name=name), spec=DeviceClassSpec(selectors=selectors))


def allocate_each(
    pool: Pool, asked: Iterable[tuple[ResourceClaim, DeviceClass]]
) -> list[DeviceRequestAllocationResult | None]:
    """Allocate the claims in their order, each while those before it hold theirs; None: it does not fit."""
    inventory = PoolIndex.build(
        ResourceSlice(
            metadata=ObjectMeta(name=f"{index}-node-1"),
            spec=ResourceSliceSpec(
                driver=DRIVER,
                pool=ResourcePool(name=pool.name, generation=1, resource_slice_count=len(pool.slices)),
                node_name="node-1",
                devices=content.devices,
                shared_counters=content.shared_counters,
            ),
        )
        for index, content in enumerate(pool.slices)
    )
    held: list[ResourceClaim] = []
    given: list[DeviceRequestAllocationResult | None] = []
    for number, (claim, class_) in enumerate(asked):
        outcome = allocate(
            inventory,
            [claim],
            NodeView("node-1", {}),
            {class_.metadata.name: class_},
            AllocatedState.from_claims(held),
            Features(),
            share_id=lambda number=number: f"share-{number}",  # type: ignore[misc]
            budget=Budget(),
        )
        if not isinstance(outcome, Fits):
            given.append(None)
            continue
        held.append(replace(claim, status=ResourceClaimStatus(allocation=outcome.results[0])))
        given += outcome.results[0].devices.results
    return given
