"""``pluginregistration.Registration``: the service of a plugin in ``plugins_registry``, which the kubelet calls."""

from typing import Final

from kerf_dra.api._generated.registration_v1 import api_pb2
from kerf_dra.api.grpc_method import GrpcMethod
from kerf_dra.api.model.base import Value

DRA_PLUGIN: Final = "DRAPlugin"
"""The plugin type of DRA drivers."""

_SERVICE: Final = api_pb2.DESCRIPTOR.services_by_name["Registration"].full_name


class PluginInfo(Value):
    """The identity of a plugin and the socket that it serves."""

    type: str = DRA_PLUGIN
    name: str
    """The name of the driver."""
    endpoint: str
    """The absolute path of the socket of the plugin's own services."""
    supported_versions: tuple[str, ...]
    """The versions of the services, newest first: the kubelet takes the first that it knows."""


class RegistrationStatus(Value):
    """The kubelet's answer to a registration."""

    registered: bool
    error: str = ""


def _encode_no_request(_: None) -> bytes:
    return api_pb2.InfoRequest().SerializeToString()


def _decode_no_request(data: bytes) -> None:
    api_pb2.InfoRequest.FromString(data)


def _encode_info(info: PluginInfo) -> bytes:
    return api_pb2.PluginInfo(
        type=info.type, name=info.name, endpoint=info.endpoint, supported_versions=info.supported_versions
    ).SerializeToString()


def _decode_info(data: bytes) -> PluginInfo:
    info = api_pb2.PluginInfo.FromString(data)
    return PluginInfo(
        type=info.type, name=info.name, endpoint=info.endpoint, supported_versions=tuple(info.supported_versions)
    )


def _encode_status(status: RegistrationStatus) -> bytes:
    return api_pb2.RegistrationStatus(plugin_registered=status.registered, error=status.error).SerializeToString()


def _decode_status(data: bytes) -> RegistrationStatus:
    status = api_pb2.RegistrationStatus.FromString(data)
    return RegistrationStatus(registered=status.plugin_registered, error=status.error)


def _encode_no_response(_: None) -> bytes:
    return api_pb2.RegistrationStatusResponse().SerializeToString()


def _decode_no_response(data: bytes) -> None:
    api_pb2.RegistrationStatusResponse.FromString(data)


GET_INFO: Final[GrpcMethod[None, PluginInfo]] = GrpcMethod(
    service=_SERVICE,
    name="GetInfo",
    encode_request=_encode_no_request,
    decode_request=_decode_no_request,
    encode_response=_encode_info,
    decode_response=_decode_info,
)
NOTIFY_REGISTRATION_STATUS: Final[GrpcMethod[RegistrationStatus, None]] = GrpcMethod(
    service=_SERVICE,
    name="NotifyRegistrationStatus",
    encode_request=_encode_status,
    decode_request=_decode_status,
    encode_response=_encode_no_response,
    decode_response=_decode_no_response,
)
