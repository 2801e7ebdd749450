"""Allocated claims, as the scheduler leaves them."""

from collections.abc import Sequence
from dataclasses import replace

from kerf_dra.api.model.allocations import (
    AllocationResult,
    ConfigSource,
    DeviceAllocationConfiguration,
    DeviceAllocationResult,
    DeviceRequestAllocationResult,
    OpaqueAllocationConfiguration,
    ResourceClaimConsumerReference,
    ResourceClaimStatus,
)
from kerf_dra.api.model.base import JsonObject
from kerf_dra.api.model.claims import ResourceClaim
from kerf_dra.api.model.metadata import ObjectMeta
from kerf_dra.api.model.names import ClaimRef
from kerf_dra.driver.families.fpga import FPGA
from kerf_dra.driver.families.gpu import GPU

FAMILY = replace(GPU, configurations={**GPU.configurations, **FPGA.configurations})
"""A family whose cards are GPUs and FPGAs, for tests of what is the same for all."""
VOCABULARIES = {GPU.name: GPU.vocabulary, FPGA.name: FPGA.vocabulary}
DRIVER = GPU.driver
CONFIGURATIONS = FAMILY.configurations
NODE = "node-1"
NAMESPACE = "default"
CONSUMER = ResourceClaimConsumerReference(resource="pods", name="pod", uid="uid-of-pod")


def result(
    device: str,
    *,
    request: str = "accelerator",
    driver: str = DRIVER,
    admin: bool | None = None,
    share: str | None = None,
) -> DeviceRequestAllocationResult:
    """One allocated device of the node; the pool follows from its name."""
    kind = device.partition("-")[0]
    return DeviceRequestAllocationResult(
        request=request, driver=driver, pool=f"{NODE}/{kind}", device=device, admin_access=admin, share_id=share
    )


def config(
    parameters: JsonObject, *, requests: Sequence[str] = (), source: ConfigSource = "FromClaim", driver: str = DRIVER
) -> DeviceAllocationConfiguration:
    opaque = OpaqueAllocationConfiguration(driver=driver, parameters=parameters)
    return DeviceAllocationConfiguration(source=source, requests=tuple(requests), opaque=opaque)


def claim(
    name: str,
    *devices: str | DeviceRequestAllocationResult,
    uid: str = "",
    configs: Sequence[DeviceAllocationConfiguration] = (),
    is_reserved: bool = True,
) -> ResourceClaim:
    """A claim that got ``devices``, reserved for a pod; without devices it is not allocated."""
    results = tuple(result(device) if isinstance(device, str) else device for device in devices)
    allocation = AllocationResult(devices=DeviceAllocationResult(results=results, config=tuple(configs)))
    return ResourceClaim(
        metadata=ObjectMeta(namespace=NAMESPACE, name=name, uid=uid or f"uid-of-{name}"),
        status=ResourceClaimStatus(
            allocation=allocation if results else None, reserved_for=(CONSUMER,) if results and is_reserved else ()
        ),
    )


def ref(claim: ResourceClaim) -> ClaimRef:
    return ClaimRef(claim.metadata.namespace, claim.metadata.name, claim.metadata.uid)
