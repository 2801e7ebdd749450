"""What is legal in a pod and its claims, and has no effect, is found."""

from collections.abc import Sequence

import pytest

from kerf_dra.api.core.v1 import Container, ContainerClaim, Pod, PodResourceClaim, PodSpec, ResourceRequirements
from kerf_dra.api.model.allocations import (
    AllocationResult,
    ConfigSource,
    DeviceAllocationConfiguration,
    DeviceAllocationResult,
    DeviceRequestAllocationResult,
    OpaqueAllocationConfiguration,
    ResourceClaimStatus,
)
from kerf_dra.api.model.claims import (
    DeviceClaim,
    DeviceClaimConfiguration,
    DeviceRequest,
    DeviceSubRequest,
    ExactDeviceRequest,
    OpaqueDeviceConfiguration,
    ResourceClaim,
    ResourceClaimSpec,
)
from kerf_dra.api.model.metadata import ObjectMeta
from kerf_dra.driver.scheduling.ineffective_fields import find_ineffective_configurations, find_ineffective_fields

KERF, OTHER = "gpu.kerf.dev", "gpu.nvidia.com"
Config = tuple[str, tuple[str, ...]]
"""A driver, and requests."""


def container(name: str, *claims: str) -> Container:
    """A container with these claims, each as ``claim`` or ``claim/request``."""
    wanted = tuple(ContainerClaim(name=each.partition("/")[0], request=each.partition("/")[2]) for each in claims)
    return Container(name=name, resources=ResourceRequirements(claims=wanted))


def pod(*containers: Container, claims: Sequence[str] = ("gpu",), init: tuple[Container, ...] = ()) -> Pod:
    entries = tuple(PodResourceClaim(name=each, resource_claim_name=f"own-{each}") for each in claims)
    return Pod(spec=PodSpec(containers=containers, init_containers=init, resource_claims=entries))


def claim(
    *config: Config,
    results: Sequence[tuple[str, str]] = (),
    from_class: Sequence[Config] = (),
    alternatives: Sequence[str] = (),
) -> ResourceClaim:
    """A claim with the requests a and b and these configurations; ``results``: request and driver of devices."""
    first = DeviceRequest(name="a", exactly=ExactDeviceRequest(device_class_name="x"))
    if alternatives:
        subs = tuple(DeviceSubRequest(name=each, device_class_name="x") for each in alternatives)
        first = DeviceRequest(name="a", first_available=subs)
    second = DeviceRequest(name="b", exactly=ExactDeviceRequest(device_class_name="x"))
    configured = tuple(
        DeviceClaimConfiguration(requests=requests, opaque=OpaqueDeviceConfiguration(driver=driver, parameters={}))
        for driver, requests in config
    )
    spec = ResourceClaimSpec(devices=DeviceClaim(requests=(first, second), config=configured))
    return ResourceClaim(metadata=ObjectMeta(name="c"), spec=spec, status=_status(results, from_class))


def _status(results: Sequence[tuple[str, str]], from_class: Sequence[Config]) -> ResourceClaimStatus:
    if not results:
        return ResourceClaimStatus()
    source: ConfigSource = "FromClass"
    devices = DeviceAllocationResult(
        results=tuple(
            DeviceRequestAllocationResult(request=request, driver=driver, pool="p", device=f"d{number}")
            for number, (request, driver) in enumerate(results)
        ),
        config=tuple(
            DeviceAllocationConfiguration(
                source=source,
                requests=requests,
                opaque=OpaqueAllocationConfiguration(driver=driver, parameters={}),
            )
            for driver, requests in from_class
        ),
    )
    return ResourceClaimStatus(allocation=AllocationResult(devices=devices))


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (pod(container("main", "gpu")), []),
        (pod(container("main", "gpu"), container("log")), []),
        (pod(container("main"), init=(container("load", "gpu"),)), []),
        (pod(container("main", "gpu/a"), container("more", "gpu/b")), []),
        (pod(container("main"), claims=()), []),
        (
            pod(container("main"), container("log")),
            [
                (
                    "spec.resourceClaims[0]: no container uses claim gpu, so none gets its devices: name it in "
                    "resources.claims of main, log"
                )
            ],
        ),
        (
            pod(container("main", "gpu"), claims=("gpu", "nic")),
            [
                (
                    "spec.resourceClaims[1]: no container uses claim nic, so none gets its devices: name it in "
                    "resources.claims of main"
                )
            ],
        ),
        (
            pod(container("main", "gpu/a", "gpu/c")),
            [
                (
                    "container main, resources.claims[1].request: claim gpu has no request c, so the container gets "
                    "none of its devices; there is a, b"
                )
            ],
        ),
        (
            pod(container("main", "gpu", "gpus")),
            [
                (
                    "container main, resources.claims[1].name: the pod has no claim gpus, only gpu: the API server "
                    "refuses such a pod"
                )
            ],
        ),
    ],
)
def test_a_claim_that_reaches_no_container_and_a_container_that_reaches_no_claim_are_found(
    asked: Pod, said: list[str]
) -> None:
    assert [*find_ineffective_fields(asked, {"gpu": claim()}, {KERF})] == said


NOT_PUBLISHED = f"the parameters are for driver {OTHER}, of which no node publishes a device: they have no effect"
NOT_GIVING = (
    f"the parameters are for driver {OTHER}, and {KERF} gives the devices: they have no effect; write driver: {KERF}, "
    "if they are for it, or remove the entry"
)


@pytest.mark.parametrize(
    ("configured", "published", "said"),
    [
        pytest.param(claim((KERF, ())), {KERF}, [], id="of a driver that publishes"),
        pytest.param(
            claim((OTHER, ())),
            {KERF},
            [f"claim c, spec.devices.config[0]: {NOT_PUBLISHED}; remove the entry"],
            id="of none",
        ),
        pytest.param(claim((OTHER, ())), (), [], id="what is published is unknown"),
        pytest.param(
            claim((KERF, ()), (OTHER, ()), results=[("a", KERF), ("b", KERF)]),
            {KERF},
            [
                (
                    f"claim c, spec.devices.config[1]: {NOT_PUBLISHED}; write driver: {KERF}, if they are for it, or "
                    "remove the entry"
                )
            ],
            id="beside one that has an effect",
        ),
        pytest.param(
            claim((KERF, ()), (OTHER, ()), results=[("a", KERF), ("b", KERF)]),
            {KERF, OTHER},
            [],
            id="for either vendor",
        ),
        pytest.param(
            claim((OTHER, ()), results=[("a", KERF), ("b", KERF)]),
            {KERF, OTHER},
            [f"claim c, spec.devices.config[0]: {NOT_GIVING}"],
            id="of a driver that gives nothing",
        ),
        pytest.param(
            claim((OTHER, ("a",)), results=[("a", KERF), ("b", OTHER)]),
            {KERF, OTHER},
            [f"claim c, spec.devices.config[0]: {NOT_GIVING}"],
            id="for the other request",
        ),
        pytest.param(claim((OTHER, ("b",)), results=[("a", KERF), ("b", OTHER)]), {KERF, OTHER}, [], id="for its own"),
        pytest.param(
            claim((OTHER, ()), results=[("a/small", KERF), ("b", KERF)], alternatives=["small", "other"]),
            {KERF, OTHER},
            [],
            id="for an alternative that was not chosen",
        ),
        pytest.param(
            claim((OTHER, ("a/small",)), results=[("a/small", OTHER), ("b", KERF)], alternatives=["small", "other"]),
            {KERF, OTHER},
            [],
            id="for the alternative that was chosen",
        ),
        pytest.param(
            claim(results=[("a", KERF), ("b", KERF)], from_class=[(OTHER, ("a",)), (KERF, ("b",))]),
            {KERF, OTHER},
            [f"claim c, class of request a: {NOT_GIVING}"],
            id="of a class",
        ),
    ],
)
def test_parameters_for_a_driver_that_gives_no_device_are_found(
    configured: ResourceClaim, published: set[str], said: list[str]
) -> None:
    assert [*find_ineffective_configurations("c", configured, published)] == said
    asked = pod(container("main", "c"), claims=("c",))
    assert [*find_ineffective_fields(asked, {"c": configured}, published)] == said
