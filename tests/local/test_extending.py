"""A pod asks for devices in its limits, and one claim is made for all of them (KEP-5004)."""

import pytest

from api.core.v1 import Container, ContainerExtendedResourceRequest, Pod, PodSpec, ResourceRequirements
from api.model.claims import DeviceClass, DeviceClassSpec
from api.model.metadata import ObjectMeta
from api.model.quantity import Quantity
from driver.local.extending import asked, claim_for, classes_by_resource

CLASSES = classes_by_resource(
    [
        DeviceClass(metadata=ObjectMeta(name="gpu"), spec=DeviceClassSpec(extended_resource_name="example.com/gpu")),
        DeviceClass(metadata=ObjectMeta(name="fpga")),
    ]
)


def pod(*containers: dict[str, int], init: tuple[dict[str, int], ...] = ()) -> Pod:
    """A pod whose containers ask for these amounts."""

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
    requests, mappings = asked(asking, CLASSES)
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
    requests, mappings = asked(asking, CLASSES)
    claim = claim_for(asking, requests)
    assert claim.metadata.generate_name == "p-extended-resources-"
    assert claim.metadata.annotations == {"resource.kubernetes.io/extended-resource-claim": "true"}
    (owner,) = claim.metadata.owner_references
    assert (owner.kind, owner.uid, owner.controller) == ("Pod", "uid-of-p", True)
    assert mappings == (
        ContainerExtendedResourceRequest(
            container_name="main-0", resource_name="example.com/gpu", request_name="container-0-request-0"
        ),
    )
