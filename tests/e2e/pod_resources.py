"""A client of the kubelet's pod-resources API, which lists the devices of each container."""

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from grpc_tools import protoc  # type: ignore[import-untyped]

_PROTO: Final = Path(__file__).with_suffix(".proto")
_LIST: Final = "/v1.PodResourcesLister/List"
_TIMEOUT_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class ContainerDevice:
    """One device of one container."""

    container: str
    driver: str
    pool: str
    device: str
    cdi_devices: tuple[str, ...]


def devices_of(socket: Path, namespace: str, pod: str) -> Sequence[ContainerDevice]:
    """Return the devices of the pod according to the kubelet behind ``socket``."""
    messages = _messages()
    with grpc.insecure_channel(f"unix://{socket}") as channel:
        call: Any = channel.unary_unary(
            _LIST,
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=messages["v1.ListPodResourcesResponse"].FromString,
        )
        answer = call(messages["v1.ListPodResourcesRequest"](), timeout=_TIMEOUT_S)
    return [
        ContainerDevice(
            container=container.name,
            driver=device.driver_name,
            pool=device.pool_name,
            device=device.device_name,
            cdi_devices=tuple(one.name for one in device.cdi_devices),
        )
        for found in answer.pod_resources
        if (found.namespace, found.name) == (namespace, pod)
        for container in found.containers
        for claim in container.dynamic_resources
        for device in claim.claim_resources
    ]


def _messages() -> dict[str, Any]:
    """Return the message classes, in a descriptor pool of their own because other packages are named ``v1``, too."""
    with tempfile.NamedTemporaryFile() as compiled:
        arguments = ["protoc", f"-I{_PROTO.parent}", f"--descriptor_set_out={compiled.name}", str(_PROTO)]
        if protoc.main(arguments) != 0:
            raise RuntimeError(f"{_PROTO} cannot be compiled")
        files = descriptor_pb2.FileDescriptorSet.FromString(Path(compiled.name).read_bytes())
    return message_factory.GetMessages(files.file, pool=descriptor_pool.DescriptorPool())
