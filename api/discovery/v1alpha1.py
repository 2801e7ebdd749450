"""``kerf.discovery.v1alpha1``: the plugin's ``Registration``, and ``DiscoveryHandler``, which each handler serves.

A handler registers by a stream that stays open: its end shows either side that the other one has gone. It then answers
``Discover`` with the whole list of devices, at once and again after each change (docs/write-a-discovery-handler.md).
"""

from collections.abc import Mapping, Sequence
from typing import Final

from kerf_dra.api._generated.discovery_v1alpha1 import api_pb2
from kerf_dra.api.grpc_method import GrpcMethod
from kerf_dra.api.model.base import Value

REGISTRATION_SOCKET: Final = "registration.sock"
"""The plugin's own socket in the folder of the handlers' sockets."""

_REGISTRATION: Final = api_pb2.DESCRIPTOR.services_by_name["Registration"].full_name
_HANDLER: Final = api_pb2.DESCRIPTOR.services_by_name["DiscoveryHandler"].full_name


MAX_DECODED: Final = 2048
"""The devices of a list that are read, far above those that are used: a longer list costs no more than this one."""


class HandlerRegistration(Value):
    """A handler's request to the plugin to take it on."""

    name: str
    """The name by which configurations ask for the handler."""
    endpoint: str
    """The file name of the handler's socket."""


class DiscoveryRequest(Value):
    """What a handler should look for."""

    details: str = ""
    """What to look for, in the handler's own words."""
    properties: Mapping[str, str] = {}
    """Further values of the configuration."""


class FoundMount(Value, forbid_unknown_fields=True):
    """A folder or file of the node for containers that have a device."""

    host_path: str
    container_path: str = ""
    """Empty: as ``host_path``."""
    read_only: bool = False


class FoundDeviceNode(Value, forbid_unknown_fields=True):
    """A device node for containers that have a device."""

    host_path: str
    container_path: str = ""
    """Empty: as ``host_path``."""
    permissions: str = "rwm"
    """Letters of r, w and m (mknod)."""


class FoundDevice(Value, forbid_unknown_fields=True):
    """One device that a handler has found."""

    id: str
    """The same for the same device, whenever and wherever it is found."""
    properties: Mapping[str, str] = {}
    """What containers get to know of it, by names that are valid for environment variables."""
    mounts: tuple[FoundMount, ...] = ()
    device_nodes: tuple[FoundDeviceNode, ...] = ()
    shared: bool = False
    """Whether several nodes may reach it."""


def _encode_registration(registration: HandlerRegistration) -> bytes:
    return api_pb2.RegisterRequest(name=registration.name, endpoint=registration.endpoint).SerializeToString()


def _decode_registration(data: bytes) -> HandlerRegistration:
    message = api_pb2.RegisterRequest.FromString(data)
    return HandlerRegistration(name=message.name, endpoint=message.endpoint)


def _encode_registered(_: None) -> bytes:
    return api_pb2.Registered().SerializeToString()


def _decode_registered(data: bytes) -> None:
    api_pb2.Registered.FromString(data)


def _encode_request(request: DiscoveryRequest) -> bytes:
    message = api_pb2.DiscoverRequest(details=request.details, properties=dict(request.properties))
    return message.SerializeToString(deterministic=True)


def _decode_request(data: bytes) -> DiscoveryRequest:
    message = api_pb2.DiscoverRequest.FromString(data)
    return DiscoveryRequest(details=message.details, properties=dict(message.properties))


def _encode_devices(devices: Sequence[FoundDevice]) -> bytes:
    return api_pb2.DeviceList(
        devices=[
            api_pb2.Device(
                id=device.id,
                properties=dict(device.properties),
                mounts=[
                    api_pb2.Mount(
                        container_path=each.container_path, host_path=each.host_path, read_only=each.read_only
                    )
                    for each in device.mounts
                ],
                device_nodes=[
                    api_pb2.DeviceNode(
                        container_path=each.container_path, host_path=each.host_path, permissions=each.permissions
                    )
                    for each in device.device_nodes
                ],
                shared=device.shared,
            )
            for device in devices
        ]
    ).SerializeToString(deterministic=True)


def _decode_devices(data: bytes) -> tuple[FoundDevice, ...]:
    return tuple(
        FoundDevice(
            id=device.id,
            properties=dict(device.properties),
            mounts=tuple(
                FoundMount(container_path=each.container_path, host_path=each.host_path, read_only=each.read_only)
                for each in device.mounts
            ),
            device_nodes=tuple(
                FoundDeviceNode(
                    host_path=each.host_path, container_path=each.container_path, permissions=each.permissions or "rwm"
                )
                for each in device.device_nodes
            ),
            shared=device.shared,
        )
        for device in api_pb2.DeviceList.FromString(data).devices[:MAX_DECODED]
    )


REGISTER: Final[GrpcMethod[HandlerRegistration, None]] = GrpcMethod(
    service=_REGISTRATION,
    name="Register",
    encode_request=_encode_registration,
    decode_request=_decode_registration,
    encode_response=_encode_registered,
    decode_response=_decode_registered,
)
DISCOVER: Final[GrpcMethod[DiscoveryRequest, Sequence[FoundDevice]]] = GrpcMethod(
    service=_HANDLER,
    name="Discover",
    encode_request=_encode_request,
    decode_request=_decode_request,
    encode_response=_encode_devices,
    decode_response=_decode_devices,
)
