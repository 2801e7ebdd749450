"""A port that a test chooses."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def reserved_port() -> Iterator[int]:
    """A free port of 127.0.0.1 that the system gives to nobody who asks for any, while a server may listen there.

    One that is free again before the server listens may be another process's by then. Linux lets two sockets with
    SO_REUSEADDR, which asyncio's servers have, be bound to one port as long as one of them at most listens.
    """
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]
