"""Every wire version of ``resource.k8s.io`` carries the model through a round trip."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kerf_dra.api.errors import UnsupportedError
from kerf_dra.api.model.claims import ResourceClaim
from kerf_dra.api.model.devices import Attribute, Device, ResourceSlice
from kerf_dra.api.model.names import ObjectRef
from kerf_dra.api.model.quantity import Quantity
from kerf_dra.api.resource import v1, v1beta1, v1beta2
from kerf_dra.api.resource.kinds import ResourceKinds
from kerf_dra.api.resource.registry import VERSIONS, choose_kinds, load_kinds
from kerf_dra.api.wire import Kind, UndecodableObjectError
from kerf_dra.driver.kube.watch_decoder import decode_page
from tests.conftest import COSTLY
from tests.strategies import values

KIND_FIELDS = ["resource_claims", "resource_claim_templates", "device_classes", "resource_slices", "device_taint_rules"]
EVERY_KIND = [(kinds, field) for kinds in map(load_kinds, VERSIONS) for field in KIND_FIELDS]


def normal(kind: Kind[Any], value: Any) -> Any:
    """``value`` as far as the version can tell: v1beta1 has no word for an empty nodeName or a false allNodes."""
    if kind.version != "v1beta1":
        return value
    if isinstance(value, ResourceSlice):
        spec = msgspec.structs.replace(
            value.spec,
            node_name=value.spec.node_name or None,
            all_nodes=value.spec.all_nodes or None,
            partition_type_attribute=None,
            skip_node_operations=(),
        )
        return msgspec.structs.replace(value, spec=spec)
    return value


def says_something(request: Any) -> bool:
    return (request.exactly is None) != (not request.first_available)


def is_valid(value: Any) -> bool:
    """What the API server guarantees of a request: exactly one of its two forms."""
    spec = getattr(value, "spec", None)
    claim = getattr(spec, "spec", spec)
    requests = getattr(getattr(claim, "devices", None), "requests", ()) if not isinstance(value, ResourceSlice) else ()
    return all(map(says_something, requests))


@pytest.mark.parametrize(("kinds", "field"), EVERY_KIND, ids=lambda value: getattr(value, "version", value))
@COSTLY
@given(data=st.data())
def test_any_value_survives_the_round_trip(kinds: ResourceKinds, field: str, data: st.DataObject) -> None:
    kind: Kind[Any] = getattr(kinds, field)
    value = data.draw(values(kind.type).filter(is_valid))
    document = kind.encode(value)
    assert kind.decode(json.dumps(document).encode()) == normal(kind, value)
    body = kind.encode_body(value)
    assert json.loads(body) == document
    metadata = json.loads(body).get("metadata", {})
    assert [*metadata] == sorted(metadata)


@pytest.mark.parametrize(("kinds", "field"), EVERY_KIND, ids=lambda value: getattr(value, "version", value))
def test_an_object_on_the_wire_names_its_version_and_kind(kinds: ResourceKinds, field: str) -> None:
    kind: Kind[Any] = getattr(kinds, field)
    wire = kind.encode(kind.decode(json.dumps(MINIMAL[field]).encode()))
    assert (wire["apiVersion"], wire["kind"]) == (f"resource.k8s.io/{kinds.version}", kind.type.__name__)


MINIMAL: dict[str, dict[str, Any]] = {
    "resource_claims": {"metadata": {"name": "c"}},
    "resource_claim_templates": {"metadata": {"name": "t"}, "spec": {}},
    "device_classes": {"metadata": {"name": "d"}},
    "resource_slices": {
        "metadata": {"name": "s"},
        "spec": {"driver": "kerf.dev", "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1}},
    },
    "device_taint_rules": {"metadata": {"name": "r"}, "spec": {"taint": {"key": "k", "effect": "NoSchedule"}}},
}

FLAT_REQUEST = {"name": "gpu", "deviceClassName": "c", "allocationMode": "ExactCount", "count": 2}
NESTED_REQUEST = {"name": "gpu", "exactly": {"deviceClassName": "c", "allocationMode": "ExactCount", "count": 2}}


def test_v1beta1_spells_requests_flat_and_devices_wrapped() -> None:
    claim = {"metadata": {"name": "c"}, "spec": {"devices": {"requests": [FLAT_REQUEST]}}}
    model = v1beta1.KINDS.resource_claims.decode(json.dumps(claim).encode())
    assert model.spec.devices.requests[0].exactly is not None
    newer = v1.KINDS.resource_claims.encode(model)
    assert newer["spec"]["devices"]["requests"] == [NESTED_REQUEST]
    assert v1.KINDS.resource_claims.decode(json.dumps(newer).encode()) == model

    device = Device(name="gpu-0", attributes={"model": Attribute.of("h100")})
    slice_ = v1.KINDS.resource_slices.decode(json.dumps(MINIMAL["resource_slices"]).encode())
    slice_ = msgspec.structs.replace(slice_, spec=msgspec.structs.replace(slice_.spec, devices=(device,)))
    assert v1beta1.KINDS.resource_slices.encode(slice_)["spec"]["devices"] == [
        {"name": "gpu-0", "basic": {"attributes": {"model": {"string": "h100"}}}}
    ]


@pytest.mark.parametrize("wire", [{}, {"allocationMode": ""}, {"allocationMode": "All"}], ids=str)
def test_every_version_reads_the_same_allocation_mode(wire: dict[str, str]) -> None:
    """v1beta1 took an empty one, which no API server leaves, for the default; the others kept it as it is."""
    exactly = {"deviceClassName": "gpu", **wire}
    flat, nested = ({"name": "a", **exactly}, {"name": "a", "exactly": exactly})
    read = [
        kinds.resource_claims.decode(
            json.dumps({"spec": {"devices": {"requests": [flat if kinds is v1beta1.KINDS else nested]}}}).encode()
        )
        for kinds in map(load_kinds, VERSIONS)
    ]
    assert [claim.spec for claim in read] == [read[0].spec] * len(VERSIONS)


def test_unknown_fields_of_newer_servers_are_ignored() -> None:
    wire = {**MINIMAL["resource_claims"], "spec": {"devices": {}, "futureField": 1}}
    assert v1.KINDS.resource_claims.decode(json.dumps(wire).encode()) == v1.KINDS.resource_claims.decode(
        json.dumps(MINIMAL["resource_claims"]).encode()
    )


def test_a_page_keeps_its_position_and_a_null_list_is_empty() -> None:
    kind = v1beta2.KINDS.resource_claims
    page = kind.decode_list(
        b'{"metadata":{"resourceVersion":"7","continue":"next"},"items":[{"metadata":{"name":"a"}}]}'
    )
    assert (page.metadata.resource_version, page.metadata.continue_) == ("7", "next")
    assert [claim.metadata.name for claim in page.items] == ["a"]
    assert kind.decode_list(b'{"metadata":{},"items":null}').items == ()


@pytest.mark.parametrize(
    "data", [b"", b"{", b"[]", b'{"metadata": 5}', b'{"spec":{"devices":{"requests":[{}]}}}', b"\xff"]
)
def test_what_is_not_of_the_kinds_shape_is_our_error(data: bytes) -> None:
    with pytest.raises(UndecodableObjectError, match=r"ResourceClaim of resource\.k8s\.io/v1"):
        v1.KINDS.resource_claims.decode(data)


def test_a_quantity_that_is_none_names_the_object_it_is_in() -> None:
    slice_ = json.loads(json.dumps(MINIMAL["resource_slices"]))
    slice_["spec"]["devices"] = [{"name": "d", "capacity": {"memory": {"value": "lots"}}}]
    with pytest.raises(UndecodableObjectError, match="lots"):
        v1.KINDS.resource_slices.decode(json.dumps(slice_).encode())


@pytest.mark.parametrize("amount", [None, True, ["1Gi"], {"value": "1Gi"}], ids=str)
def test_a_quantity_of_another_type_is_an_error_of_its_object_and_hides_no_other(amount: object) -> None:
    """It was an error of the program, which ended every informer that met it."""
    allocated = {"request": "a", "driver": "d", "pool": "p", "device": "x", "consumedCapacity": {"memory": amount}}
    odd = {"metadata": {"name": "odd"}, "status": {"allocation": {"devices": {"results": [allocated]}}}}
    with pytest.raises(UndecodableObjectError, match=r"not a quantity.*at `\$\.status\.allocation\.devices\.results"):
        v1.KINDS.resource_claims.decode(json.dumps(odd).encode())
    page = decode_page(v1.KINDS.resource_claims, json.dumps({"items": [odd, MINIMAL["resource_claims"]]}).encode())
    assert ([claim.metadata.name for claim in page.items], [*page.unreadable]) == (["c"], [ObjectRef("", "odd")])


def test_numbers_are_quantities_too() -> None:
    claim = {
        "spec": {
            "devices": {
                "requests": [
                    {"name": "a", "exactly": {"deviceClassName": "c", "capacity": {"requests": {"m": 5, "n": 1.5}}}}
                ]
            }
        }
    }
    exactly = v1.KINDS.resource_claims.decode(json.dumps(claim).encode()).spec.devices.requests[0].exactly
    assert exactly is not None
    assert exactly.capacity is not None
    assert exactly.capacity.requests == {"m": Quantity("5"), "n": Quantity("1.5")}


def test_paths_follow_the_kinds_place_in_the_api() -> None:
    claims, classes = v1.KINDS.resource_claims, v1.KINDS.device_classes
    assert claims.path() == "/apis/resource.k8s.io/v1/resourceclaims"
    assert claims.path("ns", "c", "status") == "/apis/resource.k8s.io/v1/namespaces/ns/resourceclaims/c/status"
    assert classes.path("ignored", "d") == "/apis/resource.k8s.io/v1/deviceclasses/d"


def test_the_newest_served_version_is_chosen() -> None:
    assert choose_kinds(["v1beta1", "v1", "v1alpha3"]).version == "v1"
    assert choose_kinds(["v1beta1"]).version == "v1beta1"


def test_a_cluster_without_dra_is_told_how_to_get_it() -> None:
    with pytest.raises(UnsupportedError, match="--runtime-config"):
        choose_kinds(["v1alpha2"])


def test_an_attribute_tells_its_one_value() -> None:
    assert [Attribute.of(value).value for value in (True, 0, "x")] == [True, 0, "x"]
    assert Attribute(version="1.0.0").value == "1.0.0"
    assert Attribute(strings=("a",)).value == ("a",)
    assert Attribute().value is None


def test_a_claim_is_hashable_by_its_reference() -> None:
    claim = ResourceClaim()
    assert claim.ref == ("", "")
