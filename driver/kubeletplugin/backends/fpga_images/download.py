"""Reads one file over HTTPS: bounded in bytes and in time, without proxies, redirected to HTTPS only.

The environment has no say: variables that name proxies do not count. A server that sends a byte now and then is given
up at the deadline, whatever it is sending.
"""

import http.client
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import BinaryIO, Final
from urllib.parse import urljoin, urlsplit

from api.errors import TransientError

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
) -> None:
    """Write what ``url`` has into ``sink``. Raises DownloadError.

    ``timeout_s`` is the time for all of it, and for what it is redirected to.
    """
    stop = threading.Event()
    try:
        for _ in range(_REDIRECTS + 1):
            with _open(url, timeout_s, context, stop) as response:
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
    url: str, timeout_s: float, context: ssl.SSLContext, stop: threading.Event
) -> Iterator[http.client.HTTPResponse]:
    """Ask for a URL; after ``timeout_s`` the connection is shut down, and ``stop`` is set."""
    parts = urlsplit(url)
    if parts.scheme != "https" or not parts.hostname:
        raise DownloadError(f"it is redirected to {parts.scheme or 'no'} URL: only https is read")
    connection = http.client.HTTPSConnection(
        parts.hostname, parts.port, timeout=min(_SILENCE_S, timeout_s), context=context
    )

    def end() -> None:
        stop.set()
        with suppress(OSError, AttributeError):
            connection.sock.shutdown(socket.SHUT_RDWR)

    timer = threading.Timer(timeout_s, end)
    timer.daemon = True
    timer.start()
    try:
        target = parts.path or "/"
        query = f"?{parts.query}" if parts.query else ""
        headers = {"Accept-Encoding": "identity", "User-Agent": "kerf", "Connection": "close"}
        connection.request("GET", f"{target}{query}", headers=headers)
        yield connection.getresponse()
    finally:
        timer.cancel()
        connection.close()


def _copy(response: http.client.HTTPResponse, sink: BinaryIO, max_bytes: int, is_stopped: Callable[[], bool]) -> None:
    if response.status != http.client.OK:
        raise DownloadError(f"the server answers {response.status} {response.reason}"[:200])
    if response.length is not None and response.length > max_bytes:
        raise TooLongError(f"it has {response.length} bytes; at most {max_bytes} are wanted")
    count = 0
    while chunk := response.read1(_CHUNK):
        count += len(chunk)
        if count > max_bytes:
            raise TooLongError(f"it has more than {max_bytes} bytes")
        if is_stopped():
            raise DownloadError("it was given up")
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
