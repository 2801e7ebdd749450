"""The DRA services for kubelets 1.27 to 1.31: paths, messages, and the choice by kubelet version."""

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from kerf_dra.api._generated.dra_v1alpha3 import api_pb2 as dra_v1alpha3
from kerf_dra.api.dra import v1alpha2, v1alpha3, v1alpha4, v1beta1
from kerf_dra.api.dra.registry import STRUCTURED_SERVICES, services_for_kubelet
from kerf_dra.api.dra.service import DraService
from kerf_dra.api.errors import UnsupportedError
from kerf_dra.api.grpc_method import RefusedCallError
from kerf_dra.api.model.names import ClaimRef
from kerf_dra.api.model.prepared import PrepareOutcome, ReportedDevice
from tests.api.dra.strategies import CLAIMS, OUTCOMES
from tests.strategies import TEXT

CLAIM = ClaimRef("ns", "claim", "uid-1")
TWO_DEVICES = PrepareOutcome(
    devices=(
        ReportedDevice(requests=("a",), pool="node-1/gpu", device="gpu-0", cdi_ids=("kerf.dev/claim=a", "x/y=both")),
        ReportedDevice(requests=("b",), pool="node-1/gpu", device="gpu-1", cdi_ids=("kerf.dev/claim=b", "x/y=both")),
    )
)


@pytest.mark.parametrize(
    ("service", "paths"),
    [
        (v1alpha2.SERVICE, ["/v1alpha2.Node/NodePrepareResource", "/v1alpha2.Node/NodeUnprepareResource"]),
        (v1alpha3.SERVICE, ["/v1alpha3.Node/NodePrepareResources", "/v1alpha3.Node/NodeUnprepareResources"]),
        (v1alpha4.SERVICE, ["/v1alpha3.Node/NodePrepareResources", "/v1alpha3.Node/NodeUnprepareResources"]),
    ],
    ids=["v1alpha2", "v1alpha3", "v1alpha4"],
)
def test_method_paths_are_those_that_the_kubelet_calls(service: DraService, paths: list[str]) -> None:
    assert [service.prepare.path, service.unprepare.path] == paths


@pytest.mark.parametrize(
    ("kubelet", "services", "versions"),
    [
        ("v1.27.16", [v1alpha3.SERVICE, v1alpha2.SERVICE], ("1.0.0",)),
        ("v1.28.0", [v1alpha3.SERVICE, v1alpha2.SERVICE], ("1.0.0",)),
        ("v1.30.14", [v1alpha3.SERVICE, v1alpha2.SERVICE], ("1.0.0",)),
        ("v1.31.0-rc.1+k3s", [v1alpha4.SERVICE], ("1.0.0",)),
        ("v1.32.2", list(STRUCTURED_SERVICES.services), STRUCTURED_SERVICES.supported_versions),
        ("v1.37.0", list(STRUCTURED_SERVICES.services), STRUCTURED_SERVICES.supported_versions),
        ("", list(STRUCTURED_SERVICES.services), STRUCTURED_SERVICES.supported_versions),
    ],
)
def test_the_kubelets_version_decides_what_it_is_served(
    kubelet: str, services: list[DraService], versions: tuple[str, ...]
) -> None:
    offer = services_for_kubelet(kubelet)
    assert list(offer.services) == services
    assert offer.supported_versions == versions


def test_no_kubelet_is_offered_two_services_at_one_path() -> None:
    for minor in range(27, 40):
        paths = [service.prepare.path for service in services_for_kubelet(f"v1.{minor}.0").services]
        assert len(paths) == len(set(paths))


def test_a_kubelet_before_1_27_is_refused() -> None:
    with pytest.raises(UnsupportedError, match=r"v1\.26\.1; Kerf needs 1\.27"):
        services_for_kubelet("v1.26.1")


@given(claims=st.lists(CLAIMS, max_size=4).map(tuple), errors=st.dictionaries(TEXT, TEXT, max_size=3))
def test_requests_and_unprepare_answers_of_v1alpha3_round_trip(
    claims: tuple[ClaimRef, ...], errors: dict[str, str]
) -> None:
    service = v1alpha3.SERVICE
    assert service.prepare.decode_request(service.prepare.encode_request(claims)) == claims
    assert service.unprepare.decode_request(service.unprepare.encode_request(claims)) == claims
    assert service.unprepare.decode_response(service.unprepare.encode_response(errors)) == errors


@given(outcomes=st.dictionaries(TEXT, OUTCOMES, max_size=3))
def test_v1alpha3_answers_every_claim_with_all_its_cdi_names_once(outcomes: dict[str, PrepareOutcome]) -> None:
    # K-5, K-6, R-14: an entry for every claim that was asked for, and nothing but CDI names in it
    service = v1alpha3.SERVICE
    read = service.prepare.decode_response(service.prepare.encode_response(outcomes))
    assert read.keys() == outcomes.keys()
    for uid, outcome in outcomes.items():
        wanted = list(dict.fromkeys(cdi_id for device in outcome.devices for cdi_id in device.cdi_ids))
        assert [cdi_id for device in read[uid].devices for cdi_id in device.cdi_ids] == wanted
        assert read[uid].error == outcome.error


def test_a_handle_that_a_kubelet_sends_along_is_not_needed_to_know_the_claim() -> None:
    # fields 4 and 5 of 1.30: the claim itself is read, it holds the same handle
    claim = dra_v1alpha3.Claim(namespace="ns", uid="uid-1", name="claim", resource_handle="{}")
    data = dra_v1alpha3.NodePrepareResourcesRequest(claims=[claim]).SerializeToString()
    assert v1alpha3.SERVICE.prepare.decode_request(data) == (CLAIM,)


def test_v1alpha2_carries_one_claim_and_its_cdi_names() -> None:
    service = v1alpha2.SERVICE
    assert service.prepare.decode_request(service.prepare.encode_request([CLAIM])) == (CLAIM,)
    assert service.unprepare.decode_request(service.unprepare.encode_request([CLAIM])) == (CLAIM,)
    (read,) = service.prepare.decode_response(service.prepare.encode_response({"uid-1": TWO_DEVICES})).values()
    assert read.devices[0].cdi_ids == ("kerf.dev/claim=a", "x/y=both", "kerf.dev/claim=b")
    assert service.unprepare.decode_response(service.unprepare.encode_response({"uid-1": ""})) == {"": ""}


def test_v1alpha2_has_no_room_for_an_error_so_the_call_fails_with_it() -> None:
    with pytest.raises(RefusedCallError, match="card is lost"):
        v1alpha2.SERVICE.prepare.encode_response({"uid-1": PrepareOutcome(error="card is lost")})
    with pytest.raises(RefusedCallError, match="still busy"):
        v1alpha2.SERVICE.unprepare.encode_response({"uid-1": "still busy"})


def test_kubelets_1_30_and_1_31_read_different_things_from_one_path() -> None:
    data = v1alpha4.SERVICE.prepare.encode_response({"uid-1": TWO_DEVICES})
    assert data == v1beta1.SERVICE.prepare.encode_response({"uid-1": TWO_DEVICES})
    assert data != v1alpha3.SERVICE.prepare.encode_response({"uid-1": TWO_DEVICES})


def test_kubelet_1_31_is_told_what_was_allocated_although_it_does_not_compare() -> None:
    # K-12
    service = v1alpha4.SERVICE
    read = service.prepare.decode_response(service.prepare.encode_response({"uid-1": TWO_DEVICES}))
    assert read == {"uid-1": TWO_DEVICES}


@given(claims=st.lists(CLAIMS, min_size=2, max_size=4, unique_by=lambda claim: claim.uid))
def test_all_claims_of_a_pod_come_in_one_call(claims: list[ClaimRef]) -> None:
    # K-4
    for service in (v1alpha3.SERVICE, v1alpha4.SERVICE):
        assert service.prepare.decode_request(service.prepare.encode_request(claims)) == tuple(claims)


@pytest.mark.parametrize("service", [v1alpha2.SERVICE, v1alpha3.SERVICE, v1alpha4.SERVICE])
def test_bytes_that_are_no_message_are_a_decode_error(service: DraService) -> None:
    with pytest.raises(DecodeError):
        service.prepare.decode_request(b"\xff\xff\xff")
