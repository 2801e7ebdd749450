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
from contextlib import contextmanager, suppress
from typing import BinaryIO, Final
from urllib.parse import urljoin, urlsplit

from kerf_dra.api.errors import TransientError
from kerf_dra.driver.runtime.https.proxy import HttpsProxy, find_proxy

_REDIRECTS: Final = 5
"""Redirects that are followed: object stores need one or two."""
_REDIRECTED: Final = frozenset({301, 302, 303, 307, 308})
_SILENCE_S: Final = 30.0
"""The longest time without a byte."""
_CHUNK: Final = 256 * 1024


class DownloadError(TransientError):
    """A file cannot be read now; the message says why."""


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
) -> None:
    """Write what ``url`` has into ``sink``. Raises DownloadError, and InvalidProxyError for a wrong ``HTTPS_PROXY``.

    ``timeout_s`` is the time for all of it, and for what it is redirected to.
    """
    stop = threading.Event()
    try:
        for _ in range(_REDIRECTS + 1):
            with _open(url, timeout_s, context, stop, environ) as response:
                if response.status not in _REDIRECTED:
                    _copy(response, sink, max_bytes, lambda: is_stopped() or stop.is_set())
                    return
                url = _find_target(url, response.getheader("Location"))
    except (OSError, http.client.HTTPException, ValueError) as error:  # ValueError: a host name that is none
        if stop.is_set():
            raise DownloadError(f"it took more than {timeout_s:g} s") from error
        raise DownloadError(_describe(error)) from error
    raise DownloadError(f"it is redirected more than {_REDIRECTS} times")


@contextmanager
def _open(
    url: str, timeout_s: float, context: ssl.SSLContext, stop: threading.Event, environ: Mapping[str, str]
) -> Iterator[http.client.HTTPResponse]:
    """Ask for a URL; after ``timeout_s`` the connection is shut down, and ``stop`` is set."""
    parts = urlsplit(url)
    if parts.scheme != "https" or not parts.hostname:
        raise DownloadError(f"it is redirected to {parts.scheme or 'no'} URL: only https is read")
    port = parts.port or http.client.HTTPS_PORT
    proxy = find_proxy(parts.hostname, port, environ)
    target = (parts.hostname, port) if proxy is None else (proxy.host, proxy.port)
    connection = http.client.HTTPSConnection(*target, timeout=min(_SILENCE_S, timeout_s), context=context)
    if proxy is not None:
        connection.set_tunnel(parts.hostname, port, proxy.headers)

    def end() -> None:
        stop.set()
        with suppress(OSError, AttributeError):
            connection.sock.shutdown(socket.SHUT_RDWR)

    timer = threading.Timer(timeout_s, end)
    timer.daemon = True
    timer.start()
    try:
        _connect(connection, proxy)
        query = f"?{parts.query}" if parts.query else ""
        headers = {"Accept-Encoding": "identity", "User-Agent": "kerf", "Connection": "close"}
        connection.request("GET", f"{parts.path or '/'}{query}", headers=headers)
        yield connection.getresponse()
    finally:
        timer.cancel()
        connection.close()


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
