"""Documents of ``resource.k8s.io`` are read in every version that the API server converts, with all their problems."""

from typing import Any

import kubernetes.client
import msgspec
import pytest

from kerf_dra.api.manifests.claim_documents import convert_to_v1, find_claim_problems
from kerf_dra.api.manifests.documents import find_document_problems
from kerf_dra.api.model import claims as model
from kerf_dra.api.resource.registry import VERSIONS, load_kinds
from kerf_dra.api.resource.v1beta1 import FlatDeviceRequest

Document = dict[str, Any]

EXACT = {
    "deviceClassName": "gpu.example.com",
    "count": 2,
    "selectors": [{"cel": {"expression": "true"}}],
    "capacity": {"requests": {"memory": "5Gi"}},
}
ALTERNATIVES = [{"name": "large", "deviceClassName": "a.example.com"}, {"name": "small", "deviceClassName": "b"}]
CONFIG = [{"requests": ["one"], "opaque": {"driver": "gpu.example.com", "parameters": {"any": {"thing": [1]}}}}]


def claim(version: str, *requests: Document, **devices: Any) -> Document:
    return {
        "apiVersion": f"resource.k8s.io/{version}",
        "kind": "ResourceClaim",
        "metadata": {"name": "c", "managedFields": [{"manager": "kubectl"}]},
        "spec": {"devices": {"requests": list(requests), **devices}},
    }


def template(version: str, *requests: Document) -> Document:
    body = claim(version, *requests)
    return {**body, "kind": "ResourceClaimTemplate", "spec": {"metadata": {"labels": {"a": "b"}}, "spec": body["spec"]}}


def as_written(version: str) -> list[Document]:
    """Return a request for two devices and one with alternatives, in the form of a version."""
    exact = EXACT if version == "v1beta1" else {"exactly": EXACT}
    return [{"name": "one", **exact}, {"name": "other", "firstAvailable": ALTERNATIVES}]


def problems(body: Document) -> list[str]:
    return [str(problem) for problem in find_document_problems(body)]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("build", [claim, template])
def test_every_version_that_the_api_server_converts_becomes_the_same_v1(version: str, build: Any) -> None:
    """``kerf plan`` once refused what ``kerf claim gpu --api-version v1beta1`` had printed."""
    written, expected = build(version, *as_written(version)), build("v1", *as_written("v1"))
    assert problems(written) == []
    converted = convert_to_v1(written)
    kinds = load_kinds("v1")
    kind = kinds.resource_claims if build is claim else kinds.resource_claim_templates
    assert kind.decode(msgspec.json.encode(converted)) == kind.decode(msgspec.json.encode(expected))
    assert converted["apiVersion"] == "resource.k8s.io/v1"
    assert converted["metadata"] == written["metadata"], "fields that Kerf does not know survive"


def test_a_device_class_of_each_version_is_read() -> None:
    for version in VERSIONS:
        body = {"apiVersion": f"resource.k8s.io/{version}", "kind": "DeviceClass", "metadata": {"name": "c"}}
        assert problems({**body, "spec": {"extendedResourceName": "example.com/gpu"}}) == []
        assert convert_to_v1(body)["apiVersion"] == "resource.k8s.io/v1"


def test_a_document_of_another_group_is_not_converted() -> None:
    body = {"apiVersion": "example.com/v1beta1", "kind": "ResourceClaim"}
    assert convert_to_v1(body) is body


BAD = {
    "the form of v1beta1 in v1": (
        claim("v1", {"name": "g", "deviceClassName": "a", "count": 2}),
        [
            (
                'spec.devices.requests[0].deviceClassName: unknown field; v1 has it below "exactly": write exactly: '
                "{deviceClassName: ...}"
            ),
            'spec.devices.requests[0].count: unknown field; v1 has it below "exactly": write exactly: {count: ...}',
        ],
    ),
    "the form of v1beta1 in a template of v1beta2": (
        template("v1beta2", {"name": "g", "adminAccess": True}),
        [
            (
                'spec.spec.devices.requests[0].adminAccess: unknown field; v1beta2 has it below "exactly": write '
                "exactly: {adminAccess: ...}"
            )
        ],
    ),
    "the form of v1 in v1beta1": (
        claim("v1beta1", {"name": "g", "exactly": EXACT}),
        [
            (
                "spec.devices.requests[0].exactly: unknown field; v1beta1 has its fields in the request itself: write "
                "apiVersion: resource.k8s.io/v1"
            )
        ],
    ),
    "several misspelt fields": (
        claim("v1", {"name": "g", "exactly": {"deviceClasName": "a"}}, constraint=[]),
        [
            'spec.devices.requests[0].exactly.deviceClasName: unknown field; did you mean "deviceClassName"?',
            "spec.devices.requests[0].exactly.deviceClassName: is required",
            'spec.devices.constraint: unknown field; did you mean "constraints"?',
        ],
    ),
    "a misspelt request": (
        template("v1", {"name": "g", "exactl": {"deviceClassName": "a"}}),
        ['spec.spec.devices.requests[0].exactl: unknown field; did you mean "exactly"?'],
    ),
    "a request for nothing": (
        claim("v1", {"name": "g"}),
        ["spec.devices.requests[0]: needs exactly, or firstAvailable with alternatives"],
    ),
    "a request of v1beta1 for nothing": (
        claim("v1beta1", {"name": "g"}),
        ["spec.devices.requests[0]: needs deviceClassName, or firstAvailable with alternatives"],
    ),
    "a request in two forms": (
        claim("v1", {"name": "g", "exactly": EXACT, "firstAvailable": ALTERNATIVES}),
        ["spec.devices.requests[0]: has both exactly and firstAvailable: remove one of the two"],
    ),
    "values of other types": (
        claim("v1", {"name": "g", "exactly": {"deviceClassName": 7, "count": "2"}}),
        [
            "spec.devices.requests[0].exactly.deviceClassName: 7 is not a string; put it in quotes",
            'spec.devices.requests[0].exactly.count: "2" is not a whole number',
        ],
    ),
    "requests that are no list": (
        {**claim("v1"), "spec": {"devices": {"requests": {"name": "g"}}}},
        ['spec.devices.requests: {"name":"g"} is not a list'],
    ),
    "a field beside spec": (
        {**claim("v1", *as_written("v1")), "specs": {}},
        ['specs: unknown field; did you mean "spec"?'],
    ),
    "a slice": (
        {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice"},
        ["kind: ResourceSlice is not read from documents, but from the cluster: leave this document out"],
    ),
    "a misspelt kind": (
        {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplat"},
        [
            (
                'kind: "ResourceClaimTemplat" is not a kind of resource.k8s.io that pods use; did you mean '
                '"ResourceClaimTemplate"?'
            )
        ],
    ),
}


@pytest.mark.parametrize(("body", "expected"), BAD.values(), ids=BAD.keys())
def test_every_problem_of_a_document_is_found_with_its_path(body: Document, expected: list[str]) -> None:
    assert problems(body) == expected


@pytest.mark.parametrize("version", ["v1alpha2", "v1alpha3", "v2", ""])
def test_a_version_that_is_not_converted_is_refused_with_the_one_to_write(version: str) -> None:
    [problem] = find_claim_problems(claim(version, {"name": "g", "deviceClassName": "a"}))
    assert problem.path == "apiVersion"
    assert "write resource.k8s.io/v1, which has the fields of a request below" in problem.message


TYPES = {
    "DeviceClassSpec": "V1DeviceClassSpec",
    "DeviceClaim": "V1DeviceClaim",
    "DeviceRequest": "V1DeviceRequest",
    "ExactDeviceRequest": "V1ExactDeviceRequest",
    "DeviceSubRequest": "V1DeviceSubRequest",
    "DeviceSelector": "V1DeviceSelector",
    "CapacityRequirements": "V1CapacityRequirements",
    "DeviceConstraint": "V1DeviceConstraint",
    "DeviceClaimConfiguration": "V1DeviceClaimConfiguration",
    "DeviceClassConfiguration": "V1DeviceClassConfiguration",
    "DeviceToleration": "V1DeviceToleration",
    "DerivedAttribute": "V1DeviceDerivedAttribute",
}


@pytest.mark.parametrize(("ours", "theirs"), TYPES.items())
def test_no_field_of_kubernetes_is_unknown(ours: str, theirs: str) -> None:
    """A strict check refuses what the API server takes as soon as the model lacks a field."""
    fields = getattr(kubernetes.client, theirs).model_fields.items()
    assert {*getattr(model, ours).__struct_encode_fields__} == {
        each.serialization_alias or name for name, each in fields
    }


def test_no_field_of_a_request_of_v1beta1_is_unknown() -> None:
    fields = kubernetes.client.V1beta1DeviceRequest.model_fields.items()
    assert {*FlatDeviceRequest.__struct_encode_fields__} == {each.serialization_alias or name for name, each in fields}
