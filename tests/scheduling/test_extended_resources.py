"""A pod requests devices in its limits, and gets one claim for all of them (KEP-5004)."""

import pytest

from kerf_dra.api.core.v1 import Container, ContainerExtendedResourceRequest, Pod, PodSpec, ResourceRequirements
from kerf_dra.api.model.claims import DeviceClass, DeviceClassSpec
from kerf_dra.api.model.metadata import ObjectMeta
from kerf_dra.api.model.quantity import Quantity
from kerf_dra.driver.scheduling.extended_resources import (
    build_claim,
    build_requests,
    classes_by_resource,
    expected_claim,
)

CLASSES = classes_by_resource(
    [
        DeviceClass(metadata=ObjectMeta(name="gpu"), spec=DeviceClassSpec(extended_resource_name="example.com/gpu")),
        DeviceClass(metadata=ObjectMeta(name="fpga")),
    ]
)


def pod(*containers: dict[str, int], init: tuple[dict[str, int], ...] = ()) -> Pod:
    """Return a pod whose containers request these amounts."""

    def container(name: str, wanted: dict[str, int]) -> Container:
        limits = {resource: Quantity(amount) for resource, amount in wanted.items()}
        return Container(name=name, resources=ResourceRequirements(limits=limits))

    return Pod(
        metadata=ObjectMeta(name="p", namespace="ns", uid="uid-of-p"),
        spec=PodSpec(
            init_containers=tuple(container(f"init-{number}", wanted) for number, wanted in enumerate(init)),
            containers=tuple(container(f"main-{number}", wanted) for number, wanted in enumerate(containers)),
        ),
    )


@pytest.mark.parametrize(
    ("asking", "expected"),
    [
        (pod({"cpu": 1}), []),
        (pod({"example.com/gpu": 0}), []),
        (pod({"example.com/other": 1}), []),
        (pod({"cpu": 1, "example.com/gpu": 2}), [("container-0-request-1", "gpu", 2, "main-0")]),
        (pod({"deviceclass.resource.kubernetes.io/fpga": 1}), [("container-0-request-0", "fpga", 1, "main-0")]),
        (
            pod({"example.com/gpu": 1}, {"example.com/gpu": 1}, init=({"cpu": 1},)),
            [("container-1-request-0", "gpu", 1, "main-0"), ("container-2-request-0", "gpu", 1, "main-1")],
        ),
    ],
)
def test_what_a_pod_asks_for(asking: Pod, expected: list[tuple[str, str, int, str]]) -> None:
    requests, mappings = build_requests(asking, CLASSES)
    found = [
        (request.name, request.exactly.device_class_name, request.exactly.count, mapping.container_name)
        for request, mapping in zip(requests, mappings, strict=True)
        if request.exactly is not None
    ]
    assert found == expected
    assert [mapping.request_name for mapping in mappings] == [request.name for request in requests]


def test_of_two_classes_with_one_name_the_newer_counts() -> None:
    spec = DeviceClassSpec(extended_resource_name="example.com/gpu")
    classes = [
        DeviceClass(metadata=ObjectMeta(name=name, creation_timestamp=f"2026-01-0{day}T00:00:00Z"), spec=spec)
        for name, day in (("new", 2), ("old", 1))
    ]
    assert classes_by_resource(classes)["example.com/gpu"] == "new"


def test_the_claim_belongs_to_the_pod() -> None:
    asking = pod({"example.com/gpu": 1})
    requests, mappings = build_requests(asking, CLASSES)
    claim = build_claim(asking, requests)
    assert claim.metadata.generate_name == "p-extended-resources-"
    assert claim.metadata.annotations == {"resource.kubernetes.io/extended-resource-claim": "true"}
    (owner,) = claim.metadata.owner_references
    assert (owner.kind, owner.uid, owner.controller) == ("Pod", "uid-of-p", True)
    assert mappings == (
        ContainerExtendedResourceRequest(
            container_name="main-0", resource_name="example.com/gpu", request_name="container-0-request-0"
        ),
    )


def named(name: str, created: str | None = None) -> DeviceClass:
    """Return a class that backs ``example.com/gpu``."""
    metadata = ObjectMeta(name=name, creation_timestamp=created)
    return DeviceClass(metadata=metadata, spec=DeviceClassSpec(extended_resource_name="example.com/gpu"))


def test_of_classes_as_old_as_one_another_the_first_by_name_counts() -> None:
    day = "2026-11-20T00:00:00Z"
    classes = classes_by_resource([named("c", day), named("b", day), named("a", "2026-11-01T00:00:00Z")])
    assert classes["example.com/gpu"] == "b"


def test_a_request_is_named_by_its_place_among_all_that_the_container_asks_for() -> None:
    """As kube-scheduler does (createDeviceRequests): ``cpu`` counts too."""
    claim = expected_claim(
        pod({"example.com/gpu": 2, "cpu": 4}, {"example.com/gpu": 1}, init=({"memory": 1},)), [named("gpu")]
    )
    assert claim is not None
    assert [(each.name, each.exactly and each.exactly.count) for each in claim.spec.devices.requests] == [
        ("container-1-request-1", 2),
        ("container-2-request-0", 1),
    ]


def test_the_claim_that_is_expected_has_a_name() -> None:
    claim = expected_claim(
        pod({"deviceclass.resource.kubernetes.io/plain": 1}), [DeviceClass(metadata=ObjectMeta(name="plain"))]
    )
    assert claim is not None
    assert (claim.metadata.name, claim.metadata.generate_name) == ("p-extended-resources", "")


@pytest.mark.parametrize("asking", [pod({"cpu": 1}), pod({"example.com/fpga": 1}), pod({"example.com/gpu": 0})])
def test_what_no_class_stands_for_is_no_claim(asking: Pod) -> None:
    assert expected_claim(asking, [named("gpu")]) is None
