"""A discovery handler: every file in a folder is a camera, and the camera's address is in the file."""

import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc

from kerf_dra.api.discovery.v1alpha1 import DISCOVER, REGISTER, DiscoveryRequest, FoundDevice, HandlerRegistration


def find_cameras(folder: Path) -> tuple[FoundDevice, ...]:
    return tuple(
        FoundDevice(id=file.name, shared=True, properties={"CAMERA_URL": file.read_text().strip()})
        for file in sorted(folder.iterdir())
    )


class FolderHandler(grpc.GenericRpcHandler):
    def service(self, call: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        if call.method == DISCOVER.path:
            return grpc.unary_stream_rpc_method_handler(
                self.discover,
                request_deserializer=DISCOVER.decode_request,
                response_serializer=DISCOVER.encode_response,
            )
        return None

    def discover(self, request: DiscoveryRequest, context: grpc.ServicerContext) -> Iterator[tuple[FoundDevice, ...]]:
        last = None
        while context.is_active():
            cameras = find_cameras(Path(request.details))
            if cameras != last:
                last = cameras
                yield cameras
            time.sleep(0.2)


def register(sockets: Path) -> None:
    """Register, and return when the plugin has gone."""
    with grpc.insecure_channel(f"unix:{sockets}/registration.sock") as channel:
        call = channel.unary_stream(
            REGISTER.path,
            request_serializer=REGISTER.encode_request,
            response_deserializer=REGISTER.decode_response,
        )
        for _ in call(HandlerRegistration(name="folder", endpoint="folder.sock")):
            print("registered", flush=True)


def main() -> None:
    sockets = Path(sys.argv[1])
    server = grpc.server(ThreadPoolExecutor(max_workers=16))  # a thread for each configuration
    server.add_generic_rpc_handlers((FolderHandler(),))
    server.add_insecure_port(f"unix:{sockets}/folder.sock")
    server.start()
    while True:
        try:
            register(sockets)
        except grpc.RpcError as error:
            print(error.details(), flush=True)
        time.sleep(0.5)


if __name__ == "__main__":
    main()
