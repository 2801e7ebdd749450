"""``v1beta1.DevicePlugin``, served by a plugin for one extended resource, and the kubelet's ``v1beta1.Registration``.

The interface counts: a pod asks for a number of a resource, the kubelet chooses that many device IDs of the plugin's
list, and calls Allocate once for each container. It names no pod, and has no call that ends an allocation.
"""

from collections.abc import Mapping, Sequence
from typing import Final, Literal

from kerf_dra.api._generated.deviceplugin_v1beta1 import api_pb2
from kerf_dra.api.grpc_method import GrpcMethod
from kerf_dra.api.model.base import Value

VERSION: Final = "v1beta1"
"""The version that a registration names."""
MAX_ID: Final = 63
"""The most characters of a device ID."""
KUBELET_SOCKET: Final = "kubelet.sock"
"""The kubelet's own socket in the folder of the plugins' sockets."""
PRE_START_LIMIT_S: Final = 30.0
"""How long the kubelet waits for PreStartContainer."""

_REGISTRATION: Final = api_pb2.DESCRIPTOR.services_by_name["Registration"].full_name
_PLUGIN: Final = api_pb2.DESCRIPTOR.services_by_name["DevicePlugin"].full_name


class DevicePluginOptions(Value):
    """Which optional calls the kubelet should make."""

    pre_start_required: bool
    """Whether PreStartContainer is called before each start of a container."""
    preferred_allocation: bool
    """Whether GetPreferredAllocation is called before the kubelet chooses devices."""


class Registration(Value):
    """A plugin's request to the kubelet to take it on for one resource."""

    version: str = VERSION
    endpoint: str
    """The file name of the plugin's socket."""
    resource: str
    """The extended resource, ``vendor-domain/name``."""
    options: DevicePluginOptions


class ListedDevice(Value):
    """One device of a resource, as the kubelet counts it."""

    id: str
    health: Literal["Healthy", "Unhealthy"] = "Healthy"
    """An unhealthy device counts as capacity and is not allocated."""
    numa_nodes: tuple[int, ...] = ()
    """The NUMA nodes that it is near to; empty: unknown."""


class PreferenceRequest(Value):
    """Which devices the kubelet could choose for one container."""

    available: tuple[str, ...]
    must_include: tuple[str, ...] = ()
    size: int
    """How many devices the container gets, those of ``must_include`` among them."""


class ContainerAllocation(Value):
    """What one container gets."""

    cdi_devices: tuple[str, ...] = ()
    """Qualified CDI names."""
    environment: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}
    """Annotations for the container runtime; the pod has none of them."""


def _encode_empty(_: None) -> bytes:
    return api_pb2.Empty().SerializeToString()


def _decode_empty(data: bytes) -> None:
    api_pb2.Empty.FromString(data)


def _options_message(options: DevicePluginOptions) -> api_pb2.DevicePluginOptions:
    return api_pb2.DevicePluginOptions(
        pre_start_required=options.pre_start_required,
        get_preferred_allocation_available=options.preferred_allocation,
    )


def _read_options(message: api_pb2.DevicePluginOptions) -> DevicePluginOptions:
    return DevicePluginOptions(
        pre_start_required=message.pre_start_required,
        preferred_allocation=message.get_preferred_allocation_available,
    )


def _encode_registration(registration: Registration) -> bytes:
    return api_pb2.RegisterRequest(
        version=registration.version,
        endpoint=registration.endpoint,
        resource_name=registration.resource,
        options=_options_message(registration.options),
    ).SerializeToString()


def _decode_registration(data: bytes) -> Registration:
    message = api_pb2.RegisterRequest.FromString(data)
    return Registration(
        version=message.version,
        endpoint=message.endpoint,
        resource=message.resource_name,
        options=_read_options(message.options),
    )


def _encode_list(devices: Sequence[ListedDevice]) -> bytes:
    return api_pb2.ListAndWatchResponse(
        devices=[
            api_pb2.Device(
                ID=device.id,
                health=device.health,
                topology=api_pb2.TopologyInfo(nodes=[api_pb2.NUMANode(ID=node) for node in device.numa_nodes])
                if device.numa_nodes
                else None,
            )
            for device in devices
        ]
    ).SerializeToString()


def _decode_list(data: bytes) -> tuple[ListedDevice, ...]:
    return tuple(
        ListedDevice(
            id=device.ID,
            health="Healthy" if device.health == "Healthy" else "Unhealthy",
            numa_nodes=tuple(node.ID for node in device.topology.nodes),
        )
        for device in api_pb2.ListAndWatchResponse.FromString(data).devices
    )


def _encode_preferences(requests: Sequence[PreferenceRequest]) -> bytes:
    return api_pb2.PreferredAllocationRequest(
        container_requests=[
            api_pb2.ContainerPreferredAllocationRequest(
                available_deviceIDs=request.available,
                must_include_deviceIDs=request.must_include,
                allocation_size=request.size,
            )
            for request in requests
        ]
    ).SerializeToString()


def _decode_preferences(data: bytes) -> tuple[PreferenceRequest, ...]:
    return tuple(
        PreferenceRequest(
            available=tuple(request.available_deviceIDs),
            must_include=tuple(request.must_include_deviceIDs),
            size=request.allocation_size,
        )
        for request in api_pb2.PreferredAllocationRequest.FromString(data).container_requests
    )


def _encode_preferred(preferred: Sequence[Sequence[str]]) -> bytes:
    return api_pb2.PreferredAllocationResponse(
        container_responses=[api_pb2.ContainerPreferredAllocationResponse(deviceIDs=ids) for ids in preferred]
    ).SerializeToString()


def _decode_preferred(data: bytes) -> tuple[tuple[str, ...], ...]:
    answer = api_pb2.PreferredAllocationResponse.FromString(data)
    return tuple(tuple(response.deviceIDs) for response in answer.container_responses)


def _encode_container_ids(containers: Sequence[Sequence[str]]) -> bytes:
    return api_pb2.AllocateRequest(
        container_requests=[api_pb2.ContainerAllocateRequest(devices_ids=ids) for ids in containers]
    ).SerializeToString()


def _decode_container_ids(data: bytes) -> tuple[tuple[str, ...], ...]:
    return tuple(tuple(request.devices_ids) for request in api_pb2.AllocateRequest.FromString(data).container_requests)


def _encode_allocations(containers: Sequence[ContainerAllocation]) -> bytes:
    return api_pb2.AllocateResponse(
        container_responses=[
            api_pb2.ContainerAllocateResponse(
                envs=dict(container.environment),
                annotations=dict(container.annotations),
                cdi_devices=[api_pb2.CDIDevice(name=name) for name in container.cdi_devices],
            )
            for container in containers
        ]
    ).SerializeToString(deterministic=True)


def _decode_allocations(data: bytes) -> tuple[ContainerAllocation, ...]:
    return tuple(
        ContainerAllocation(
            cdi_devices=tuple(device.name for device in response.cdi_devices),
            environment=dict(response.envs),
            annotations=dict(response.annotations),
        )
        for response in api_pb2.AllocateResponse.FromString(data).container_responses
    )


def _encode_pre_start(ids: Sequence[str]) -> bytes:
    return api_pb2.PreStartContainerRequest(devices_ids=ids).SerializeToString()


def _decode_pre_start(data: bytes) -> tuple[str, ...]:
    return tuple(api_pb2.PreStartContainerRequest.FromString(data).devices_ids)


def _encode_started(_: None) -> bytes:
    return api_pb2.PreStartContainerResponse().SerializeToString()


def _decode_started(data: bytes) -> None:
    api_pb2.PreStartContainerResponse.FromString(data)


REGISTER: Final[GrpcMethod[Registration, None]] = GrpcMethod(
    service=_REGISTRATION,
    name="Register",
    encode_request=_encode_registration,
    decode_request=_decode_registration,
    encode_response=_encode_empty,
    decode_response=_decode_empty,
)
GET_OPTIONS: Final[GrpcMethod[None, DevicePluginOptions]] = GrpcMethod(
    service=_PLUGIN,
    name="GetDevicePluginOptions",
    encode_request=_encode_empty,
    decode_request=_decode_empty,
    encode_response=lambda options: _options_message(options).SerializeToString(),
    decode_response=lambda data: _read_options(api_pb2.DevicePluginOptions.FromString(data)),
)
LIST_AND_WATCH: Final[GrpcMethod[None, Sequence[ListedDevice]]] = GrpcMethod(
    service=_PLUGIN,
    name="ListAndWatch",
    encode_request=_encode_empty,
    decode_request=_decode_empty,
    encode_response=_encode_list,
    decode_response=_decode_list,
)
GET_PREFERRED_ALLOCATION: Final[GrpcMethod[Sequence[PreferenceRequest], Sequence[Sequence[str]]]] = GrpcMethod(
    service=_PLUGIN,
    name="GetPreferredAllocation",
    encode_request=_encode_preferences,
    decode_request=_decode_preferences,
    encode_response=_encode_preferred,
    decode_response=_decode_preferred,
)
ALLOCATE: Final[GrpcMethod[Sequence[Sequence[str]], Sequence[ContainerAllocation]]] = GrpcMethod(
    service=_PLUGIN,
    name="Allocate",
    encode_request=_encode_container_ids,
    decode_request=_decode_container_ids,
    encode_response=_encode_allocations,
    decode_response=_decode_allocations,
)
PRE_START_CONTAINER: Final[GrpcMethod[Sequence[str], None]] = GrpcMethod(
    service=_PLUGIN,
    name="PreStartContainer",
    encode_request=_encode_pre_start,
    decode_request=_decode_pre_start,
    encode_response=_encode_started,
    decode_response=_decode_started,
)
