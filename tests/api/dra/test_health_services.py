"""The device health services: reports survive the round trip, and stay within the kubelet's limits."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kerf_dra.api._generated.health_v1 import api_pb2
from kerf_dra.api.dra.health import MAX_MESSAGE_BYTES, DeviceHealth, Health, HealthService
from kerf_dra.api.dra.registry import HEALTH_SERVICES
from tests.strategies import TEXT

SECONDS = st.integers(0, 2**40)
REPORTS = st.builds(
    DeviceHealth,
    pool=TEXT,
    device=TEXT,
    health=st.sampled_from(Health),
    checked_at_s=SECONDS,
    valid_s=SECONDS,
    message=TEXT,
)


def test_method_paths_are_those_that_the_kubelet_calls() -> None:
    assert [service.watch.path for service in HEALTH_SERVICES] == [
        "/v1.DRAResourceHealth/NodeWatchResources",
        "/v1alpha1.DRAResourceHealth/NodeWatchResources",
    ]


@pytest.mark.parametrize("service", HEALTH_SERVICES, ids=lambda service: service.supported_version)
@given(reports=st.lists(REPORTS, max_size=3).map(tuple))
def test_reports_round_trip(service: HealthService, reports: tuple[DeviceHealth, ...]) -> None:
    assert service.watch.decode_response(service.watch.encode_response(reports)) == reports
    assert service.watch.decode_request(service.watch.encode_request(None)) is None


@given(character=st.sampled_from("aé€𝄞"), extra=st.integers(0, 3))
def test_a_long_message_is_cut_to_whole_characters_within_the_limit(character: str, extra: int) -> None:
    service = HEALTH_SERVICES[0]
    message = "x" * extra + character * MAX_MESSAGE_BYTES
    report = DeviceHealth(pool="p", device="d", health=Health.UNHEALTHY, checked_at_s=0, message=message)
    (read,) = service.watch.decode_response(service.watch.encode_response([report]))
    assert message.startswith(read.message)
    assert MAX_MESSAGE_BYTES - 4 < len(read.message.encode()) <= MAX_MESSAGE_BYTES


def test_a_health_of_a_newer_kubelet_reads_as_unknown() -> None:
    device = api_pb2.DeviceHealth(health=api_pb2.HealthStatus.ValueType(7))
    data = api_pb2.NodeWatchResourcesResponse(devices=[device]).SerializeToString()
    (read,) = HEALTH_SERVICES[0].watch.decode_response(data)
    assert read.health is Health.UNKNOWN
