"""``DRAResourceHealth`` (KEP-4680): v1 for kubelet 1.37 and later, v1alpha1 for 1.34 and later, with the same messages.

Reports expire in the kubelet, so all devices are reported again periodically. The kubelet shows health in the pod's
status; only taints keep pods from an unhealthy device.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Final

from kerf_dra.api._generated.health_v1 import api_pb2
from kerf_dra.api._generated.health_v1alpha1 import api_pb2 as api_pb2_v1alpha1
from kerf_dra.api.grpc_method import GrpcMethod
from kerf_dra.api.model.base import Value

MAX_MESSAGE_BYTES: Final = 1024
"""The most bytes of UTF-8 of a message that the kubelet accepts (KEP-4680)."""

_SERVICE: Final = "DRAResourceHealth"


class Health(IntEnum):
    """The health of a device, with the numbers of the wire."""

    UNKNOWN = api_pb2.UNKNOWN
    HEALTHY = api_pb2.HEALTHY
    UNHEALTHY = api_pb2.UNHEALTHY


_HEALTH_OF_NUMBER: Final = {int(health): health for health in Health}
"""Other numbers, which later versions may add, are decoded as unknown."""


class DeviceHealth(Value):
    """A report on the health of one device."""

    pool: str
    device: str
    health: Health
    checked_at_s: int
    """The time of the check, in seconds since 1970."""
    valid_s: int = 0
    """Seconds after which the report expires; 0: the kubelet's default of 30."""
    message: str = ""
    """An explanation for people, truncated to MAX_MESSAGE_BYTES on the wire."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthService:
    """One wire version of ``DRAResourceHealth``."""

    supported_version: str
    watch: GrpcMethod[None, Sequence[DeviceHealth]]
    """Watch the health of devices: a stream whose answers each hold every device."""


def _encode_request(_: None) -> bytes:
    return api_pb2.NodeWatchResourcesRequest().SerializeToString()


def _decode_request(data: bytes) -> None:
    api_pb2.NodeWatchResourcesRequest.FromString(data)


def _to_wire(report: DeviceHealth) -> api_pb2.DeviceHealth:
    return api_pb2.DeviceHealth(
        device=api_pb2.DeviceIdentifier(pool_name=report.pool, device_name=report.device),
        health=api_pb2.HealthStatus.ValueType(report.health),
        last_updated_time=report.checked_at_s,
        health_check_timeout_seconds=report.valid_s,
        message=report.message.encode()[:MAX_MESSAGE_BYTES].decode(errors="ignore"),
    )


def _to_model(report: api_pb2.DeviceHealth) -> DeviceHealth:
    return DeviceHealth(
        pool=report.device.pool_name,
        device=report.device.device_name,
        health=_HEALTH_OF_NUMBER.get(int(report.health), Health.UNKNOWN),
        checked_at_s=report.last_updated_time,
        valid_s=report.health_check_timeout_seconds,
        message=report.message,
    )


def _encode_response(reports: Sequence[DeviceHealth]) -> bytes:
    return api_pb2.NodeWatchResourcesResponse(devices=map(_to_wire, reports)).SerializeToString()


def _decode_response(data: bytes) -> tuple[DeviceHealth, ...]:
    return tuple(map(_to_model, api_pb2.NodeWatchResourcesResponse.FromString(data).devices))


V1: Final = HealthService(
    supported_version="v1.DRAResourceHealth",
    watch=GrpcMethod(
        service=api_pb2.DESCRIPTOR.services_by_name[_SERVICE].full_name,
        name="NodeWatchResources",
        encode_request=_encode_request,
        decode_request=_decode_request,
        encode_response=_encode_response,
        decode_response=_decode_response,
    ),
)
V1ALPHA1: Final = HealthService(
    supported_version="v1alpha1.DRAResourceHealth",
    watch=replace(V1.watch, service=api_pb2_v1alpha1.DESCRIPTOR.services_by_name[_SERVICE].full_name),
)
