"""An HTTPS server of image files on this machine, which misbehaves by the path that is asked for."""

import http.server
import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from tests.kube.certificates import HERE

CERTIFICATE: Final = HERE / "local.pem"


class ImageServer:
    """``files`` are served by path; ``asked`` are the paths that were asked for."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.redirects: dict[str, str] = {}
        self.asked: list[str] = []
        self.headers: list[Mapping[str, str]] = []
        self.released = threading.Event()
        """Ends answers that would never end."""
        self.port = 0

    def url(self, path: str) -> str:
        return f"https://127.0.0.1:{self.port}{path}"


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: "_Server"

    def do_GET(self) -> None:
        served = self.server.served
        served.asked.append(self.path)
        served.headers.append(dict(self.headers))
        if (target := served.redirects.get(self.path)) is not None:
            self._answer(302, b"", Location=target)
        elif self.path in {"/endless", "/slow", "/silent", "/short", "/trickle", "/trickling-head"}:
            self._misbehave(served)
        elif (content := served.files.get(self.path)) is not None:
            self._answer(200, content)
        else:
            self._answer(404, b"")

    def log_message(self, *_: Any) -> None:
        """Say nothing."""

    def _misbehave(self, served: ImageServer) -> None:
        if self.path == "/short":
            self._answer(200, b"x", **{"Content-Length": "10"})
            self.close_connection = True
            return
        if self.path == "/trickling-head":
            self.wfile.write(b"HTTP/1.1 200 OK\r\nX: ")
            while not served.released.wait(0.01):
                self.wfile.write(b"x")
        if self.path != "/silent":
            self._answer(200, None)
            self.wfile.write(b"1\r\nx\r\n")
        while self.path == "/endless" and not served.released.is_set():
            self.wfile.write(b"10000\r\n" + bytes(0x10000) + b"\r\n")
        while self.path == "/trickle" and not served.released.wait(0.01):
            self.wfile.write(b"1\r\nx\r\n")
        served.released.wait()

    def _answer(self, status: int, content: bytes | None, **headers: str) -> None:
        """Answer with ``content``; None: with chunks that follow."""
        self.send_response(status)
        length = {"Transfer-Encoding": "chunked"} if content is None else {"Content-Length": str(len(content))}
        for name, value in {**length, **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content or b"")


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, served: ImageServer, certificate: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.served = served
        served.port = self.server_address[1]
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        self.socket = context.wrap_socket(self.socket, server_side=True)

    def handle_error(self, *_: Any) -> None:
        """A client that goes in the middle is what these tests are about."""


@contextmanager
def image_server(certificate: Path = CERTIFICATE) -> Iterator[ImageServer]:
    """Serve until the end of the block."""
    served = ImageServer()
    server = _Server(served, certificate)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield served
    finally:
        served.released.set()
        server.shutdown()
        server.server_close()
        thread.join()
