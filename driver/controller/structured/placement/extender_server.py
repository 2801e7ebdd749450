"""The HTTPS server of the scheduler extender.

- ``POST /prioritize``: the scores of nodes; 400 for a malformed body, 413 for one of more than ``MAX_BODY_BYTES``, 503
  while ``MOST_REQUESTS`` are being read or answered. kube-scheduler ignores all of these and uses its own scores.

A client must have a certificate of the authority in ``ca.crt``: without one the handshake fails, and nothing of the
request is read (the scheduler's configuration knows no token). When the files change, the server listens again with the
new ones. Connections are limited in number; those of the scheduler stay open.
"""

import hashlib
import logging
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import anyio
from aiohttp.web_request import BaseRequest
from aiohttp.web_response import Response
from aiohttp.web_server import Server
from anyio import to_thread
from anyio.abc import TaskStatus

from kerf_dra.api.errors import PermanentError
from kerf_dra.driver.controller.structured.placement.scheduler_extender import (
    InvalidRequestError,
    RequestOutcome,
    SchedulerExtender,
    count_request,
)
from kerf_dra.driver.runtime.connection_limiter import ConnectionLimiter
from kerf_dra.driver.runtime.documents.input_file import read_regular_file
from kerf_dra.driver.runtime.probe_address import parse_address

PATH: Final = "/prioritize"
"""The path of the only verb: ``prioritizeVerb: prioritize``."""
MAX_BODY_BYTES: Final = 4 * 2**20
"""The largest body: a pod (etcd takes 1.5 MiB) and the names of 5,000 nodes, of at most 253 bytes each."""
MOST_REQUESTS: Final = 8
"""The most requests that are read or answered at once, of up to ``MAX_BODY_BYTES`` each: a scheduler scores one pod at
a time, and a cluster has few schedulers."""

_BODY_S: Final = 2.0
"""Time for a body to arrive: the scheduler gives up much earlier (``httpTimeout``)."""
_HANDSHAKE_S: Final = 5.0
"""Time for a TLS handshake, in which a client has proved nothing yet."""
_RELOAD_S: Final = 30.0
"""The period of comparing the certificates' files with what is in use: the kubelet updates them within a minute."""
_MOST_PENDING: Final = 64
"""Connections that have not sent a request yet; more end the oldest."""
_PENDING_S: Final = 10.0
"""The longest life of a connection without a request."""
_STOP_S: Final = 1.0
"""Time for requests in flight when serving ends."""
_LONGEST_HEADERS: Final[Mapping[str, Any]] = {"max_line_size": 1024, "max_field_size": 8190, "max_headers": 64}
"""Limits of a request's head: what kube-scheduler sends has a tenth of it."""
_FILES: Final = ("tls.crt", "tls.key", "ca.crt")
"""The files of a certificate's folder, as in a Secret of the type ``kubernetes.io/tls``."""

_log = logging.getLogger(__name__)


class ExtenderError(PermanentError):
    """The extender cannot serve: its address is taken, or its certificates cannot be used."""


class ExtenderServer:
    """Serves a ``SchedulerExtender`` over HTTPS."""

    def __init__(
        self, extender: SchedulerExtender, certificates: Path, *, body_s: float = _BODY_S, reload_s: float = _RELOAD_S
    ) -> None:
        """``certificates`` is the folder with ``tls.crt``, ``tls.key`` and ``ca.crt``, the authority of clients.

        A body may take ``body_s`` seconds to arrive; the certificates are compared every ``reload_s`` seconds.
        """
        self._extender = extender
        self._certificates = certificates
        self._body_s = body_s
        self._reload_s = reload_s
        self._in_flight = 0

    async def serve(self, address: str, *, task_status: TaskStatus[int] = anyio.TASK_STATUS_IGNORED) -> None:
        """Serve at ``host:port`` until cancelled; the task's start value is the port in use.

        Raises ExtenderError when the address is taken or the certificates cannot be read at the start, and AddressError
        for a malformed address.
        """
        host, port = parse_address(address)
        digest, context = await self._load()
        while True:
            server = Server(self._answer, access_log=None, lingering_time=0.0, **_LONGEST_HEADERS)
            self._limiter = ConnectionLimiter(server, most_pending=_MOST_PENDING, pending_s=_PENDING_S)
            try:
                async with self._limiter.listen(host, port, tls=context, handshake_s=_HANDSHAKE_S) as (
                    _,
                    bound,
                    *_rest,
                ):
                    task_status.started(bound)
                    task_status, port = anyio.TASK_STATUS_IGNORED, bound
                    digest, context = await self._wait_for_change(digest)
            except OSError as error:
                raise ExtenderError(f"cannot serve the scheduler extender at {address}: {error.strerror}") from error
            finally:
                with anyio.CancelScope(shield=True), anyio.move_on_after(2 * _STOP_S):
                    await server.shutdown(_STOP_S)
            _log.info("the certificates of the scheduler extender have changed; serving with the new ones")

    async def _wait_for_change(self, digest: bytes) -> tuple[bytes, ssl.SSLContext]:
        """Return new certificates once they can be used; until then the present ones serve."""
        reported = ""
        while True:
            await anyio.sleep(self._reload_s)
            try:
                found, context = await self._load()
            except ExtenderError as error:
                if str(error) != reported:
                    _log.warning("%s; serving with the former certificates", error)
                reported = str(error)
                continue
            if found != digest:
                return found, context

    async def _load(self) -> tuple[bytes, ssl.SSLContext]:
        return await to_thread.run_sync(_load_certificates, self._certificates)

    async def _answer(self, request: BaseRequest) -> Response:
        self._limiter.admit(request.protocol)
        if request.path != PATH:
            return Response(text=f"not found; there is {PATH}\n", status=404)
        if request.method != "POST":
            return Response(text="only POST\n", status=405, headers={"Allow": "POST"})
        if self._in_flight >= MOST_REQUESTS:
            count_request(RequestOutcome.BUSY)
            return _refuse(503, "too many requests at once")
        self._in_flight += 1
        try:
            return await self._prioritize(request)
        finally:
            self._in_flight -= 1

    async def _prioritize(self, request: BaseRequest) -> Response:
        body = await _read_body(request, within_s=self._body_s)
        if isinstance(body, Response):
            count_request(RequestOutcome.INVALID)
            return body
        try:
            return Response(body=self._extender.prioritize(body), content_type="application/json")
        except InvalidRequestError as error:
            return _refuse(400, str(error))


async def _read_body(request: BaseRequest, *, within_s: float) -> bytes | Response:
    """Return the body; a response: it is too large, or did not arrive in time."""
    body = bytearray()
    with anyio.move_on_after(within_s):
        async for chunk in request.content.iter_any():
            body += chunk
            if len(body) > MAX_BODY_BYTES:
                return _refuse(413, f"the body has more than {MAX_BODY_BYTES} bytes")
        return bytes(body)
    return _refuse(408, f"the body did not arrive within {within_s:g} s")


def _refuse(status: int, reason: str) -> Response:
    response = Response(text=f"{reason}\n", status=status)
    response.force_close()  # the rest of a body that was refused is not read
    return response


def _load_certificates(folder: Path) -> tuple[bytes, ssl.SSLContext]:
    """Return the digest of the files in ``folder`` and the context made of them. Raises ExtenderError."""
    paths = [folder / name for name in _FILES]
    try:
        digest = hashlib.sha256(b"\0".join(map(read_regular_file, paths))).digest()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.load_cert_chain(paths[0], paths[1])
        context.load_verify_locations(paths[2])
    except (OSError, ValueError) as error:  # SSLError is an OSError
        reason = f"cannot use the certificates of the scheduler extender in {folder}: {error}"
        raise ExtenderError(f"{reason}; it needs {', '.join(_FILES)}") from error
    context.verify_mode = ssl.CERT_REQUIRED
    return digest, context
