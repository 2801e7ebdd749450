"""A process that closes an event loop while gRPC ends a call and a server of its, and prints what the next loop gets.

A process of its own, because remains of the first loop would raise errors in later tests.
"""

import asyncio
import sys
from pathlib import Path
from typing import Final

import grpc
import grpc.aio

from tests.runtime.real_time import RealTimeLoop

METHOD: Final = "/service/method"


async def leave(path: Path) -> list[object]:
    """What must live as long as the next loop."""
    server = grpc.aio.server()
    server.add_insecure_port(f"unix:{path}")
    await server.start()
    channel = grpc.aio.insecure_channel(f"unix:{path}")
    call: object = channel.unary_unary(METHOD, request_serializer=bytes)(b"")
    stopping = asyncio.ensure_future(server.stop(None))
    await asyncio.sleep(0)
    return [server, channel, call, stopping]


async def go_on(path: Path) -> None:
    asyncio.get_running_loop().set_exception_handler(lambda _, context: print(context["message"]))
    server = grpc.aio.server()
    server.add_insecure_port(f"unix:{path}")
    await server.start()
    async with grpc.aio.insecure_channel(f"unix:{path}") as channel:
        try:
            await channel.unary_unary(METHOD, request_serializer=bytes)(b"")
        except grpc.aio.AioRpcError as error:
            print(error.code().name)
    await server.stop(None)


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    first, second = RealTimeLoop(), RealTimeLoop()
    left = first.run_until_complete(leave(folder / "a.sock"))
    first.close()
    second.run_until_complete(go_on(folder / "b.sock"))
    second.close()
