"""The kubelet's DRA services: every message survives the round trip, and the names are those of the kubelet."""

import msgspec
import pytest
from google.protobuf.message import DecodeError, Message
from hypothesis import given
from hypothesis import strategies as st

from kerf_dra.api._generated.dra_v1 import api_pb2 as dra_v1
from kerf_dra.api._generated.dra_v1beta1 import api_pb2 as dra_v1beta1
from kerf_dra.api.dra.registry import DRA_SERVICES, SUPPORTED_VERSIONS
from kerf_dra.api.dra.service import DraService
from kerf_dra.api.model.names import ClaimRef
from kerf_dra.api.model.prepared import PrepareOutcome, ReportedDevice
from tests.api.dra.strategies import CLAIMS, OUTCOMES
from tests.strategies import TEXT

SERVICES = pytest.mark.parametrize("service", DRA_SERVICES, ids=lambda service: service.supported_version)
CARRIES_SHARES = {"v1.DRAPlugin": True, "v1beta1.DRAPlugin": False}


def test_versions_are_listed_newest_first_because_the_kubelet_takes_the_first_that_it_knows() -> None:
    assert SUPPORTED_VERSIONS == (
        "v1.DRAPlugin",
        "v1beta1.DRAPlugin",
        "v1.DRAResourceHealth",
        "v1alpha1.DRAResourceHealth",
    )


def test_method_paths_are_those_that_the_kubelet_calls() -> None:
    assert [(service.prepare.path, service.unprepare.path) for service in DRA_SERVICES] == [
        (
            "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodePrepareResources",
            "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodeUnprepareResources",
        ),
        (
            "/k8s.io.kubelet.pkg.apis.dra.v1beta1.DRAPlugin/NodePrepareResources",
            "/k8s.io.kubelet.pkg.apis.dra.v1beta1.DRAPlugin/NodeUnprepareResources",
        ),
    ]


@SERVICES
@given(claims=st.lists(CLAIMS, max_size=4).map(tuple))
def test_requests_round_trip(service: DraService, claims: tuple[ClaimRef, ...]) -> None:
    assert service.prepare.decode_request(service.prepare.encode_request(claims)) == claims
    assert service.unprepare.decode_request(service.unprepare.encode_request(claims)) == claims


@SERVICES
@given(outcomes=st.dictionaries(TEXT, OUTCOMES, max_size=3), errors=st.dictionaries(TEXT, TEXT, max_size=3))
def test_responses_round_trip_except_for_shares_in_versions_without_them(
    service: DraService, outcomes: dict[str, PrepareOutcome], errors: dict[str, str]
) -> None:
    read = service.prepare.decode_response(service.prepare.encode_response(outcomes))
    if CARRIES_SHARES[service.supported_version]:
        assert read == outcomes
    else:
        assert read == {uid: _without_shares(outcome) for uid, outcome in outcomes.items()}
    assert service.unprepare.decode_response(service.unprepare.encode_response(errors)) == errors


def _without_shares(outcome: PrepareOutcome) -> PrepareOutcome:
    devices = tuple(msgspec.structs.replace(device, share=None) for device in outcome.devices)
    return PrepareOutcome(devices=devices, error=outcome.error)


@pytest.mark.parametrize(
    ("service", "message"),
    [
        (DRA_SERVICES[0], dra_v1.NodePrepareResourcesResponse),
        (DRA_SERVICES[1], dra_v1beta1.NodePrepareResourcesResponse),
    ],
    ids=["v1", "v1beta1"],
)
@given(outcomes=st.dictionaries(TEXT, OUTCOMES, max_size=3))
def test_a_kubelet_of_that_version_finds_no_field_that_it_does_not_know(
    service: DraService, message: type[Message], outcomes: dict[str, PrepareOutcome]
) -> None:
    data = service.prepare.encode_response(outcomes)
    response = message.FromString(data)
    response.DiscardUnknownFields()
    assert len(response.SerializeToString()) == len(data)


def test_a_share_is_sent_apart_from_no_share() -> None:
    service = DRA_SERVICES[0]
    for share in (None, "", "d3a7f0d2-51c0-4f6f-9f0a-0d6a3b0f0001"):
        outcome = PrepareOutcome(devices=(ReportedDevice(pool="node-1/gpu", device="gpu-0", share=share),))
        read = service.prepare.decode_response(service.prepare.encode_response({"uid": outcome}))
        assert read["uid"].devices[0].share == share


@SERVICES
def test_bytes_that_are_no_message_are_a_decode_error(service: DraService) -> None:
    with pytest.raises(DecodeError):
        service.prepare.decode_request(b"\xff\xff\xff")
