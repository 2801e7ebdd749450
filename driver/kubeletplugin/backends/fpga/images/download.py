"""Reads one file over HTTPS: bounded in bytes and in time, redirected to HTTPS only.

A proxy that the environment names is used as other programs use it (``kerf_dra.driver.runtime.https.proxy``); it cannot
read what it passes on. A server that sends a byte now and then is given up at the deadline, whatever it is sending.
"""

import http.client
import os
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from typing import BinaryIO, Final
from urllib.parse import urljoin, urlsplit

from kerf_dra.api.errors import TransientError
from kerf_dra.driver.runtime.https.proxy import HttpsProxy, find_proxy

_REDIRECTS: Final = 5
"""Redirects that are followed: object stores need one or two."""
_REDIRECTED: Final = frozenset({301, 302, 303, 307, 308})
_SILENCE_S: Final = 30.0
"""The longest time without a byte."""
_HEAD_S: Final = 30.0
"""The longest time until a server has answered with a complete head, however it sends it."""
_CHUNK: Final = 256 * 1024


class DownloadError(TransientError):
    """A file cannot be read now; the message says why."""


class _Deadlines:
    """The limits of one fetch: the first that passes says so, and its connection is shut down."""

    def __init__(self) -> None:
        self.passed = ""
        """Which limit has passed; empty: none."""

    def check(self) -> None:
        """Raise DownloadError when a limit has passed."""
        if self.passed:
            raise DownloadError(self.passed)

    @contextmanager
    def within(self, limit_s: float, message: str, connection: http.client.HTTPSConnection) -> Iterator[None]:
        """Shut ``connection`` down when the block takes longer."""

        def end() -> None:
            self.passed = self.passed or message
            with suppress(OSError, AttributeError):
                connection.sock.shutdown(socket.SHUT_RDWR)

        timer = threading.Timer(limit_s, end)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()


class TooLongError(DownloadError):
    """A file has more bytes than are wanted."""


def download(
    url: str,
    sink: BinaryIO,
    *,
    max_bytes: int,
    timeout_s: float,
    context: ssl.SSLContext,
    is_stopped: Callable[[], bool] = lambda: False,
    environ: Mapping[str, str] = os.environ,
    head_s: float = _HEAD_S,
) -> None:
    """Write what ``url`` has into ``sink``. Raises DownloadError, and InvalidProxyError for a wrong ``HTTPS_PROXY``.

    ``timeout_s`` is the time for all of it, and for what it is redirected to; ``head_s`` that until a server answers.
    ``is_stopped`` is asked at each chunk.
    """
    deadlines = _Deadlines()
    try:
        for _ in range(_REDIRECTS + 1):
            with _open(url, (timeout_s, head_s), context, deadlines, environ) as response:
                if response.status not in _REDIRECTED:
                    _copy(response, sink, max_bytes, lambda: is_stopped() or bool(deadlines.passed))
                    return
                url = _find_target(url, response.getheader("Location"))
    except (OSError, http.client.HTTPException, ValueError) as error:  # ValueError: a host name that is none
        if deadlines.passed:
            raise DownloadError(deadlines.passed) from error
        raise DownloadError(_describe(error)) from error
    raise DownloadError(f"it is redirected more than {_REDIRECTS} times")


@contextmanager
def _open(
    url: str,
    limits: tuple[float, float],
    context: ssl.SSLContext,
    deadlines: _Deadlines,
    environ: Mapping[str, str],
) -> Iterator[http.client.HTTPResponse]:
    """Ask for a URL within ``limits``, the seconds for all of it and for the head of the answer."""
    timeout_s, head_s = limits
    parts = urlsplit(url)
    if parts.scheme != "https" or not parts.hostname:
        raise DownloadError(f"it is redirected to {parts.scheme or 'no'} URL: only https is read")
    port = parts.port or http.client.HTTPS_PORT
    proxy = find_proxy(parts.hostname, port, environ)
    target = (parts.hostname, port) if proxy is None else (proxy.host, proxy.port)
    connection = http.client.HTTPSConnection(*target, timeout=min(_SILENCE_S, timeout_s), context=context)
    if proxy is not None:
        connection.set_tunnel(parts.hostname, port, proxy.headers)
    query = f"?{parts.query}" if parts.query else ""
    headers = {"Accept-Encoding": "identity", "User-Agent": "kerf", "Connection": "close"}
    with closing(connection), deadlines.within(timeout_s, f"it took more than {timeout_s:g} s", connection):
        with deadlines.within(head_s, f"the server did not answer within {head_s:g} s", connection):
            _connect(connection, proxy)
            connection.request("GET", f"{parts.path or '/'}{query}", headers=headers)
            response = connection.getresponse()
        deadlines.check()  # a connection that is shut down ends a head, or a body without a length, as a server does
        yield response
        deadlines.check()


def _connect(connection: http.client.HTTPSConnection, proxy: HttpsProxy | None) -> None:
    try:
        connection.connect()
    except OSError as error:
        if proxy is None:
            raise
        raise OSError(f"through the proxy {proxy}: {_describe(error)}") from error


def _copy(response: http.client.HTTPResponse, sink: BinaryIO, max_bytes: int, is_stopped: Callable[[], bool]) -> None:
    if response.status != http.client.OK:
        raise DownloadError(f"the server answers {response.status} {response.reason}"[:200])
    if response.length is not None and response.length > max_bytes:
        raise TooLongError(f"it has {response.length} bytes; at most {max_bytes} are allowed")
    count = 0
    while chunk := response.read1(_CHUNK):
        count += len(chunk)
        if count > max_bytes:
            raise TooLongError(f"it has more than {max_bytes} bytes")
        if is_stopped():
            raise DownloadError("the fetch was stopped")
        sink.write(chunk)
    if response.length:
        raise DownloadError(f"it ended {response.length} bytes too early")


def _find_target(url: str, location: str | None) -> str:
    if not location:
        raise DownloadError("it is redirected to nowhere")
    target = urljoin(url, location)
    parts = urlsplit(target)
    if parts.scheme != "https":
        raise DownloadError(f"it is redirected to a URL of {parts.scheme or 'no scheme'}: only https is read")
    if parts.username is not None or parts.password is not None:
        raise DownloadError("it is redirected to a URL with a user")
    return target


def _describe(error: Exception) -> str:
    """Return one line about a failure; what a server has sent is not quoted at length."""
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return " ".join(str(text).split())[:200]
