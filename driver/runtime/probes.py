"""The HTTP endpoints for Kubernetes' probes and for Prometheus.

- ``/healthz``: 200 as long as the event loop answers. A restart cures nothing else, so nothing else is checked.
- ``/readyz``: 200 when every check passes, else 503; one line per check.
- ``/metrics``: Prometheus, in the format that the scraper asks for.

The port is open to every pod of the cluster, so a connection serves one request, and connections are limited in number
and time: none of them may take the file descriptors that the process needs for its work.

Three paths need no router: aiohttp's bare server is used, whose modules take 1.3 MB less than those of ``aiohttp.web``.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeAlias

import anyio
from aiohttp.web_request import BaseRequest
from aiohttp.web_response import Response
from aiohttp.web_server import Server
from anyio.abc import TaskStatus
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from kerf_dra.driver.runtime.connection_limiter import ConnectionLimiter
from kerf_dra.driver.runtime.probe_address import AddressError, parse_address

Check: TypeAlias = Callable[[], str | None]
"""A readiness check: returns what is wrong, for people, or None."""

_STOP_S: Final = 1.0
"""Time for requests in flight when serving ends; each takes milliseconds."""
_MOST_CONNECTIONS: Final = 64
"""Connections at a time. The kubelet and a few scrapers need one each; a process has at least 1,024 descriptors."""
_CONNECTION_S: Final = 10.0
"""The longest life of a connection: the kubelet waits 1 s for an answer, Prometheus 10 s by default."""
_LONGEST_HEADERS: Final[Mapping[str, Any]] = {"max_line_size": 1024, "max_field_size": 8190, "max_headers": 64}
"""Limits of a request: what the kubelet and Prometheus send has a tenth of it."""

_log = logging.getLogger(__name__)


class Probes:
    """The server of the endpoints. Checks may be added at any time; each request to ``/readyz`` runs them all."""

    def __init__(
        self,
        registry: CollectorRegistry,
        *,
        most_connections: int = _MOST_CONNECTIONS,
        connection_s: float = _CONNECTION_S,
    ) -> None:
        """At most ``most_connections`` are open, each at most ``connection_s`` seconds."""
        self._registry = registry
        self._most_connections = most_connections
        self._connection_s = connection_s
        self._checks: dict[str, Check] = {}

    def add_check(self, name: str, check: Check) -> None:
        """Have ``/readyz`` run ``check``, which must not block."""
        self._checks[name] = check

    async def serve(self, address: str, *, task_status: TaskStatus[str] = anyio.TASK_STATUS_IGNORED) -> None:
        """Serve at ``host:port`` (``:8080``: all addresses; port 0: any free one) until cancelled.

        The task's start value is the address in use. Raises AddressError when the address is malformed or taken.
        """
        host, port = parse_address(address)
        server = Server(self._answer, access_log=None, lingering_time=0.0, **_LONGEST_HEADERS)
        limiter = ConnectionLimiter(server, most_pending=self._most_connections, pending_s=self._connection_s)
        try:
            async with limiter.listen(host, port) as (bound_host, bound_port, *_):
                bound = f"[{bound_host}]:{bound_port}" if ":" in bound_host else f"{bound_host}:{bound_port}"
                task_status.started(bound)
                await anyio.sleep_forever()
        except OSError as error:
            raise AddressError(f"cannot serve probes at {host or ''}:{port}: {error.strerror or error}") from error
        finally:
            with anyio.CancelScope(shield=True), anyio.move_on_after(2 * _STOP_S):
                await server.shutdown(_STOP_S)

    async def _answer(self, request: BaseRequest) -> Response:
        response = await self._respond(request)
        response.force_close()  # probes come once in a while
        return response

    async def _respond(self, request: BaseRequest) -> Response:
        endpoints: Mapping[str, Callable[[BaseRequest], Awaitable[Response]]] = {
            "/healthz": self._healthz,
            "/readyz": self._readyz,
            "/metrics": self._metrics,
        }
        endpoint = endpoints.get(request.path)
        if endpoint is None:
            return Response(text=f"not found; there are {', '.join(endpoints)}\n", status=404)
        if request.method not in {"GET", "HEAD"}:
            return Response(text="only GET\n", status=405, headers={"Allow": "GET, HEAD"})
        return await endpoint(request)

    async def _healthz(self, _request: BaseRequest) -> Response:
        return Response(text="ok\n")

    async def _readyz(self, _request: BaseRequest) -> Response:
        results = {name: _result(name, check) for name, check in self._checks.items()}
        return Response(text=_report(results), status=503 if any(results.values()) else 200)

    async def _metrics(self, request: BaseRequest) -> Response:
        encode, content_type = choose_encoder(request.headers.get("Accept", ""))
        return Response(body=encode(self._registry), headers={"Content-Type": content_type})


def _result(name: str, check: Check) -> str | None:
    try:
        return check()
    except Exception as error:  # noqa: BLE001  (a check that fails is a problem to report)
        _log.exception("readiness check %s failed", name)
        return f"the check itself failed: {error}"


def _report(results: Mapping[str, str | None]) -> str:
    lines = [f"[-] {name}: {problem}" if problem else f"[+] {name}" for name, problem in results.items()]
    return "".join(f"{line}\n" for line in lines) or "ok\n"
