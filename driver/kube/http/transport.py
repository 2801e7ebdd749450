"""HTTP to the API server: connections, credentials, time limits, retries, and the errors of ``errors``.

What is retried, at most ``attempts`` times within ``call_timeout_s``:

- a GET that got no answer, after a back-off with jitter;
- any request that was throttled (429) and a GET that failed (5xx), when the server says how long to wait and that is
  not too long: a throttled request was not begun, while a failed write may have been done in part;
- any request once, immediately, when it was refused (401) and there are newer credentials.

Beneath, aiohttp sends a GET, PUT or DELETE once more when its connection broke before any answer, as a kept connection
may have just been closed. Done twice, a PUT is a conflict (it carries a resource version) and a DELETE finds nothing.

There is no rate limit here: the API server has its own (priority and fairness) and answers 429.

Answers are asked for as they are, not compressed: 380 KB can be made to unfold to hundreds of megabytes.
"""

import logging
import os
import time
from collections.abc import AsyncGenerator, Iterable, Mapping
from dataclasses import dataclass, field
from random import Random
from types import TracebackType
from typing import Final, Protocol, Self
from urllib.parse import quote

import aiohttp
import anyio
from aiohttp.http_exceptions import HttpProcessingError
from yarl import URL

from kerf_dra.api.model.printable_text import to_one_line
from kerf_dra.driver.kube.http.credentials import Access, Credentials
from kerf_dra.driver.kube.http.errors import (
    AnswerTooLargeError,
    ApiError,
    ServerError,
    StatusError,
    ThrottledError,
    UnreachableError,
    build_status_error,
)
from kerf_dra.driver.kube.http.list_progress import MOST_PAGES
from kerf_dra.driver.runtime import metrics
from kerf_dra.driver.runtime.backoff import Backoff

RETRIES: Final = Backoff(first_s=0.2, factor=3, limit_s=5, jitter=0.5)
"""0.2 + 0.6 + 1.8 s: longer than a load balancer takes to switch to another server."""

_MOST_WARNINGS: Final = 100
"""Distinct warnings that are logged: some name objects, so their number has no bound."""

_DNS_CACHE_S: Final = 30
"""A server's address may change; a lookup for every connection would double the cost of one."""

_CLOSE_S: Final = 2.0
"""Time for closing TLS connections; the server also notices when they are aborted."""

_BROKEN: Final = (aiohttp.ClientError, HttpProcessingError, OSError)
"""What aiohttp raises for a connection that breaks, and for bytes on it that are no HTTP."""

_CLOSED_CHECK_S: Final = 5.0
"""Time between two looks whether the connection of a watch is still there."""

_log = logging.getLogger(__name__)

_requests: Final = metrics.counter(
    "kerf_api_requests_total",
    "Requests to the API server; code is the HTTP status, or none without an answer.",
    ("method", "resource", "code"),
)
_seconds: Final = metrics.histogram(
    "kerf_api_request_seconds",
    "Time until the API server's answer was read.",
    ("method", "resource"),
    buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """Limits of the client; times are in seconds."""

    connect_timeout_s: float = 5.0
    """Time for TCP and TLS: a live server answers within milliseconds, or within 3 s after one lost packet."""
    attempt_timeout_s: float = 30.0
    """Time for one answer, a page of 500 objects included; half of what the API server itself allows a request."""
    object_timeout_s: float = 10.0
    """Time for reading one object, which takes milliseconds: a claim that cannot be read keeps others waiting."""
    call_timeout_s: float = 60.0
    """Time for one call with its retries."""
    attempts: int = 4
    retries: Backoff = RETRIES
    longest_wait_s: float = 10.0
    """The longest Retry-After that is waited for here; a longer one is left to the caller."""
    silence_s: float = 150.0
    """Time without any event after which a watch is broken: servers send a bookmark about every minute (KEP-956)."""
    calls_at_once: int = 8
    """Concurrent reads of objects, and as many other calls, watches excluded: reads that hang keep neither slices from
    being published nor the others from their answers. Those come within milliseconds, and every TLS connection has a
    buffer (``runtime.lifecycle``)."""
    longest_answer: int = 32 * 2**20
    """The bytes that are read of an answer, and of a watch's line: more than a page of 500 slices of GPUs has (6 to 30
    MiB), and twenty times the largest object that etcd takes (1.5 MiB)."""
    most_pages: int = MOST_PAGES
    """Pages of one list that are read."""
    idle_s: float = 60.0
    """How long idle connections are kept: less than the 90 s after which the server closes them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpRequest:
    """One request. ``resource`` is the plural name, for metrics."""

    method: str
    path: str
    resource: str
    query: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    content_type: str = "application/json"
    is_object_read: bool = False
    """Whether one object is read: those reads have a budget of their own."""

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


class Transport(Protocol):
    """What a client needs of HTTP. It is an async context manager: leaving it closes all connections."""

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None: ...

    async def call(self, request: HttpRequest) -> bytes:
        """Return the body of a successful answer. Raises ApiError, or AccessError when there are no credentials."""
        ...

    def lines(self, request: HttpRequest) -> AsyncGenerator[bytes, None]:
        """Yield the lines of an answer that lasts until the server ends it. Raises as ``call`` does."""
        ...


class HttpTransport:
    """Sends requests as one user to one server."""

    def __init__(self, access: Access, *, user_agent: str, settings: ClientSettings, random: Random) -> None:
        self._access = access
        self._proxy = URL.build(scheme="http", host=access.proxy.host, port=access.proxy.port) if access.proxy else None
        self._proxy_headers = access.proxy.headers if access.proxy else None
        self._credentials = Credentials(access)
        self._user_agent = user_agent
        self._settings = settings
        self._random = random
        self._session: aiohttp.ClientSession | None = None
        self._calls = anyio.Semaphore(settings.calls_at_once, fast_acquire=True)
        self._reads = anyio.Semaphore(settings.calls_at_once, fast_acquire=True)
        self._warnings: set[str] = set()
        self.server_date: str | None = None
        """The header Date of the latest answer: the server's clock, in whole seconds; None: there was none yet."""

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=0,  # calls have their own limit, and watches must not wait for one another
                keepalive_timeout=self._settings.idle_s,
                ttl_dns_cache=_DNS_CACHE_S,
            ),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={"Accept": "application/json", "Accept-Encoding": "identity", "User-Agent": self._user_agent},
            auto_decompress=False,
            trust_env=False,  # it would read the environment and .netrc at every request: 0.6 ms each
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._session is not None
        with anyio.CancelScope(shield=True), anyio.move_on_after(_CLOSE_S):
            await self._session.close()

    async def call(self, request: HttpRequest) -> bytes:
        try:
            with anyio.fail_after(self._settings.call_timeout_s):
                return await self._call_with_retries(request)
        except TimeoutError as error:
            raise UnreachableError(str(request), f"no answer within {self._settings.call_timeout_s:g} s") from error

    async def lines(self, request: HttpRequest) -> AsyncGenerator[bytes, None]:
        """Yield lines without any retry; no data for ``silence_s`` is an UnreachableError."""
        limits = aiohttp.ClientTimeout(total=None, sock_connect=self._settings.connect_timeout_s)
        try:
            with anyio.fail_after(self._settings.attempt_timeout_s):
                response = await self._send(request, limits)
        except TimeoutError as error:
            raise UnreachableError(str(request), f"no answer within {self._settings.attempt_timeout_s:g} s") from error
        try:
            rest = b""
            while chunk := await self._next_chunk(request, response):
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    yield line
                self._check_length(request, len(rest))
        except _BROKEN as error:
            raise UnreachableError(str(request), _reason(error)) from error
        finally:
            response.close()  # the answer has no end, so the connection cannot be used again

    async def _next_chunk(self, request: HttpRequest, response: aiohttp.ClientResponse) -> bytes:
        """Return the next bytes of an answer, or nothing at its end. Raises UnreachableError when none come any more.

        aiohttp closes a connection with corrupt chunks without an error to its reader, which would wait for ever.
        """
        end_s = anyio.current_time() + self._settings.silence_s
        while (left_s := end_s - anyio.current_time()) > 0:
            with anyio.move_on_after(min(left_s, _CLOSED_CHECK_S)):
                return await response.content.readany()
            if response.connection is None or response.connection.transport is None:
                raise UnreachableError(str(request), "the connection broke")
        raise UnreachableError(str(request), f"no data for {self._settings.silence_s:g} s")

    async def _call_with_retries(self, request: HttpRequest) -> bytes:
        delays = self._settings.retries.delays(self._random)
        for delay_s in (next(delays) for _ in range(self._settings.attempts - 1)):
            try:
                return await self._attempt(request)
            except (UnreachableError, ThrottledError, ServerError) as error:
                wait_s = self._wait_s(request, error, delay_s)
                if wait_s is None:
                    raise
                _log.debug("%s; again in %.1f s", error, wait_s)
            await anyio.sleep(wait_s)
        return await self._attempt(request)

    def _wait_s(self, request: HttpRequest, error: ApiError, delay_s: float) -> float | None:
        """Return how long to wait before the request is retried; None: it is not retried."""
        is_read = request.method == "GET"
        if not isinstance(error, StatusError):
            return delay_s if is_read else None
        asked_s = error.retry_after_s
        if asked_s is None or asked_s > self._settings.longest_wait_s:
            return None
        return asked_s + delay_s if is_read or isinstance(error, ThrottledError) else None

    async def _attempt(self, request: HttpRequest) -> bytes:
        is_read = request.is_object_read
        total_s = self._settings.object_timeout_s if is_read else self._settings.attempt_timeout_s
        limits = aiohttp.ClientTimeout(total=total_s, sock_connect=self._settings.connect_timeout_s)
        started = time.perf_counter()
        async with self._reads if is_read else self._calls:
            response = await self._send(request, limits)
            body = await self._read(request, response)
        _seconds.labels(request.method, request.resource).observe(time.perf_counter() - started)
        return body

    async def _send(self, request: HttpRequest, limits: aiohttp.ClientTimeout) -> aiohttp.ClientResponse:
        """Return the successful answer, its body not yet read. Raises StatusError for an error status."""
        response = await self._send_once(request, limits)
        if response.status == 401 and await self._credentials.renew():
            response.close()
            response = await self._send_once(request, limits)
        _requests.labels(request.method, request.resource, str(response.status)).inc()
        self._log_warnings(request, response.headers.getall("Warning", ()))
        self.server_date = response.headers.get("Date")
        if 200 <= response.status < 300:
            return response
        body = await self._read(request, response)
        raise build_status_error(str(request), response.status, body, response.headers.get("Retry-After"))

    def _log_warnings(self, request: HttpRequest, warnings: Iterable[str]) -> None:
        """Log the server's warnings for users (KEP-1693), such as deprecated versions and unknown fields, each once."""
        for warning in warnings:
            if warning not in self._warnings and len(self._warnings) < _MOST_WARNINGS:
                self._warnings.add(warning)
                _log.warning("%s: the API server warns: %s", request, to_one_line(warning))

    async def _send_once(self, request: HttpRequest, limits: aiohttp.ClientTimeout) -> aiohttp.ClientResponse:
        assert self._session is not None, "use the client as a context manager"
        headers, context = await self._credentials.current()
        if request.body is not None:
            headers["Content-Type"] = request.content_type
        try:
            return await self._session.request(
                request.method,
                URL(self._access.server + quote(request.path, safe="/:"), encoded=True).with_query(request.query),
                data=request.body,
                headers=headers,
                timeout=limits,
                ssl=context or True,
                server_hostname=self._access.tls_server_name or None,
                proxy=self._proxy,
                proxy_headers=self._proxy_headers,
                allow_redirects=False,  # no API server redirects, and the token is for it alone
            )
        except _BROKEN as error:
            _requests.labels(request.method, request.resource, "none").inc()
            raise UnreachableError(str(request), _reason(error)) from error

    async def _read(self, request: HttpRequest, response: aiohttp.ClientResponse) -> bytes:
        chunks: list[bytes] = []
        length = 0
        try:
            async with response:
                async for chunk in response.content.iter_any():
                    chunks.append(chunk)
                    length += len(chunk)
                    self._check_length(request, length)
        except _BROKEN as error:
            raise UnreachableError(str(request), _reason(error)) from error
        return b"".join(chunks)

    def _check_length(self, request: HttpRequest, length: int) -> None:
        if length > self._settings.longest_answer:
            limit = self._settings.longest_answer // 2**20
            raise AnswerTooLargeError(str(request), f"the answer is longer than {limit} MiB, and is not read further")


def _reason(error: Exception) -> str:
    """Return the text of ``error``; timeouts have none of their own, and aiohttp's of no connection names its flags."""
    if isinstance(error, aiohttp.ClientHttpProxyError):
        return f"the proxy opens no connection to the API server: it answers {error.status} {error.message}"
    if isinstance(error, aiohttp.ClientConnectorError) and not isinstance(error, aiohttp.ClientSSLError):
        code = error.os_error.errno or 0
        why = os.strerror(code) if code > 0 else error.os_error.strerror  # names that are not found have codes below 0
        if isinstance(error, aiohttp.ClientProxyConnectionError):
            return f"cannot connect to the proxy {error.host}:{error.port} ({why}): see HTTPS_PROXY, proxy-url"
        return f"cannot connect to {error.host}:{error.port} ({why}): is the API server there, at this address?"
    return str(error) or ("no answer in time" if isinstance(error, TimeoutError) else type(error).__name__)
