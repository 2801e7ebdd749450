"""Allocated claims, as the scheduler leaves them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from uuid import NAMESPACE_OID, uuid5

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
from kerf_dra.api.model.claims import (
    DeviceClaim,
    DeviceRequest,
    DeviceSubRequest,
    ExactDeviceRequest,
    ResourceClaim,
    ResourceClaimSpec,
)
from kerf_dra.api.model.metadata import ObjectMeta
from kerf_dra.api.model.names import ClaimRef, RequestName
from kerf_dra.api.model.quantity import Quantity
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
    consumed: Mapping[str, str] | None = None,
) -> DeviceRequestAllocationResult:
    """One allocated device of the node; the pool follows from its name.

    A ``share`` has any name, from which its ID follows, and consumes some memory if ``consumed`` does not say what.
    """
    kind = device.partition("-")[0]
    if consumed is None:
        consumed = {} if share is None else {"memory": "64Mi"}
    return DeviceRequestAllocationResult(
        request=request,
        driver=driver,
        pool=f"{NODE}/{kind}",
        device=device,
        admin_access=admin,
        share_id=None if share is None else share_id(share),
        consumed_capacity={name: Quantity(amount) for name, amount in consumed.items()},
    )


def share_id(name: str) -> str:
    """The ID of the share of this name: a UUID, as kube-scheduler makes them."""
    return str(uuid5(NAMESPACE_OID, name))


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
    requests: Sequence[DeviceRequest] | None = None,
) -> ResourceClaim:
    """A claim that got ``devices``, reserved for a pod; without devices it is not allocated.

    Its requests are by default those that ``devices`` and ``configs`` name.
    """
    results = tuple(result(device) if isinstance(device, str) else device for device in devices)
    allocation = AllocationResult(devices=DeviceAllocationResult(results=results, config=tuple(configs)))
    return ResourceClaim(
        metadata=ObjectMeta(namespace=NAMESPACE, name=name, uid=uid or f"uid-of-{name}"),
        spec=ResourceClaimSpec(
            devices=DeviceClaim(requests=tuple(list_requests(results, configs) if requests is None else requests))
        ),
        status=ResourceClaimStatus(
            allocation=allocation if results else None, reserved_for=(CONSUMER,) if results and is_reserved else ()
        ),
    )


def list_requests(
    results: Iterable[DeviceRequestAllocationResult], configs: Iterable[DeviceAllocationConfiguration]
) -> list[DeviceRequest]:
    """The requests of a claim that was allocated ``results`` and ``configs``."""
    names = [RequestName.parse(each.request) for each in results]
    names += [RequestName.parse(name) for each in configs for name in each.requests]
    alternatives: dict[str, dict[str, None]] = {}
    for name, alternative in names:
        alternatives.setdefault(name, {}).update({alternative: None} if alternative else {})
    admin = {each.request for each in results if each.admin_access}
    return [
        DeviceRequest(
            name=name,
            first_available=tuple(DeviceSubRequest(name=each, device_class_name="gpu") for each in of_request),
            exactly=None
            if of_request
            else ExactDeviceRequest(device_class_name="gpu", admin_access=True if name in admin else None),
        )
        for name, of_request in alternatives.items()
    ]


def ref(claim: ResourceClaim) -> ClaimRef:
    return ClaimRef(claim.metadata.namespace, claim.metadata.name, claim.metadata.uid)
