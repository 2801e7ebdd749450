"""A proxy that opens tunnels by CONNECT, and remembers for whom."""

import socket
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

_CHUNK: Final = 1 << 16


class ConnectProxy:
    """``tunnels`` are the servers it was asked for, ``authorizations`` the credentials that came with them."""

    def __init__(self) -> None:
        self.tunnels: list[str] = []
        self.authorizations: list[str] = []
        self.refusal = ""
        """A status line in place of a tunnel."""
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


class _Handler(socketserver.StreamRequestHandler):
    server: "_Server"

    def handle(self) -> None:
        proxy = self.server.proxy
        method, target, _ = self.rfile.readline().decode().split()
        headers = dict(line.decode().strip().split(": ", 1) for line in iter(self.rfile.readline, b"\r\n"))
        proxy.tunnels.append(f"{method} {target}")
        proxy.authorizations.append(headers.get("Proxy-Authorization", ""))
        if proxy.refusal:
            self.wfile.write(f"HTTP/1.1 {proxy.refusal}\r\nContent-Length: 0\r\n\r\n".encode())
            return
        # Whatever name was asked for, the server is on this machine.
        with socket.create_connection(("127.0.0.1", int(target.rpartition(":")[2]))) as server:
            self.wfile.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            back = threading.Thread(target=_copy, args=(server, self.connection), daemon=True)
            back.start()
            _copy(self.connection, server)
            back.join()


def _copy(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):
        while chunk := source.recv(_CHUNK):
            sink.sendall(chunk)
    for one, how in ((sink, socket.SHUT_WR), (source, socket.SHUT_RD)):
        with suppress(OSError):
            one.shutdown(how)


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True

    def __init__(self, proxy: ConnectProxy) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.proxy = proxy
        proxy.port = self.server_address[1]


@contextmanager
def connect_proxy() -> Iterator[ConnectProxy]:
    """Serve until the end of the block."""
    proxy = ConnectProxy()
    server = _Server(proxy)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield proxy
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
