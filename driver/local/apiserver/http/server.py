"""The API server as a task: it serves HTTP, and puts its parts together.

It listens on the loopback interface, without TLS. A client with its token may do everything, any other nothing: other
users of the machine reach the port, and so does every web page in a browser on it. Clients send no credentials over
plain HTTP (client-go ``clientcmd``), so the token is a part of the address in the kubeconfig, as the path before
``/api``; those that do send a bearer token are let in by it as well.
"""

import logging
import random
import secrets
import uuid
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Final

import anyio
from aiohttp import web
from anyio.abc import TaskStatus

from kerf_dra.api.model.base import JsonObject
from kerf_dra.driver.local.apiserver.crd.definitions import DEFINITIONS, build_resource_type
from kerf_dra.driver.local.apiserver.faults import FaultPlan, InjectedFault
from kerf_dra.driver.local.apiserver.http import discovery, openapi
from kerf_dra.driver.local.apiserver.http.request_handler import ApiRequest, RequestHandler
from kerf_dra.driver.local.apiserver.http.request_info import parse_path
from kerf_dra.driver.local.apiserver.http.serializer import encode
from kerf_dra.driver.local.apiserver.kinds.served_kinds import ServedKinds, builtin_types
from kerf_dra.driver.local.apiserver.meta.status_errors import ApiStatusError, bad_request, internal_error
from kerf_dra.driver.local.apiserver.registry.create_update import WriteRequest
from kerf_dra.driver.local.apiserver.registry.garbage_collector import GarbageCollector
from kerf_dra.driver.local.apiserver.registry.watch import Watch, WatchNotifier
from kerf_dra.driver.local.apiserver.settings import ApiServerSettings
from kerf_dra.driver.local.apiserver.storage import GroupResource, ObjectKey, Storage, StorageEvent
from kerf_dra.driver.runtime.connection_limiter import ConnectionLimiter

_log: Final = logging.getLogger(__name__)
_HOST: Final = "127.0.0.1"
_SHUTDOWN_S: Final = 1.0
"""The time that open requests get when the server stops; watches end at once by themselves."""
_TOKEN_BYTES: Final = 24
"""Random bytes of the token: too many to be guessed by trial."""
_MOST_PENDING: Final = 64
"""Connections that have not sent the token yet: clients do so at once."""
_PENDING_S: Final = 10.0
_BACKLOG: Final = 128
"""As aiohttp's own listener."""
_JSON: Final = {"Content-Type": "application/json"}
NAMESPACES: Final = ("default", "kube-node-lease", "kube-public", "kube-system")


def _now() -> datetime:
    return datetime.now(tz=UTC)


def _uid() -> str:
    return str(uuid.uuid4())


class ApiServer:
    """A Kubernetes API server in memory.

    ``clock`` and ``uid`` give its times and identities, ``pod_log`` the logs of containers, ``faults`` its faults.
    """

    def __init__(
        self,
        *,
        clock: Callable[[], datetime] = _now,
        uid: Callable[[], str] = _uid,
        settings: ApiServerSettings = ApiServerSettings(),  # noqa: B008  (immutable)
        pod_log: Callable[[JsonObject, str], str] = lambda _pod, _container: "",
    ) -> None:
        self.settings = settings
        self.token: Final = secrets.token_urlsafe(_TOKEN_BYTES)
        self.faults = FaultPlan()
        self._watch_notifier = WatchNotifier()
        self._port = 0
        self.storage = Storage(history=settings.history, listener=self._handle_event)
        self._served_kinds = ServedKinds(builtin_types(settings))
        self._handler = RequestHandler(
            storage=self.storage,
            watch_notifier=self._watch_notifier,
            served_kinds=self._served_kinds,
            settings=settings,
            clock=clock,
            uid=uid,
            random=random.Random(),  # noqa: S311  (suffixes of generated names, no secrets)
            pod_log=pod_log,
        )
        self._garbage_collector = GarbageCollector(
            storage=self.storage,
            served_kinds=self._served_kinds,
            deleter=self._handler.deleter,
            writer=self._handler.writer,
        )
        self._create_namespaces()

    @property
    def url(self) -> str:
        """The address for clients, with the token; known once ``serve`` has started."""
        return f"{self.address}/{self.token}"

    @property
    def address(self) -> str:
        """The address without the token."""
        return f"http://{_HOST}:{self._port}"

    def kubeconfig(self) -> JsonObject:
        """Return a kubeconfig for clients on this machine. It holds the secret: keep it from other users."""
        name = "kerf"
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": name, "cluster": {"server": self.url}}],
            "users": [{"name": name, "user": {}}],
            "contexts": [{"name": name, "context": {"cluster": name, "user": name, "namespace": "default"}}],
            "current-context": name,
        }

    async def serve(self, *, port: int = 0, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled; ``port`` 0 is any free one. Raises OSError when the port is taken."""
        application = web.Application(client_max_size=self.settings.max_body_bytes)
        application.router.add_route("*", "/{path:.*}", self._handle_http)
        # The handler of a watch whose client has disconnected is cancelled, instead of waiting for the next change.
        runner = web.AppRunner(application, handler_cancellation=True, access_log=None, shutdown_timeout=_SHUTDOWN_S)
        await runner.setup()
        assert runner.server is not None, "it is set up"
        self._limiter = ConnectionLimiter(runner.server, most_pending=_MOST_PENDING, pending_s=_PENDING_S)
        try:
            async with self._limiter.listen(_HOST, port, backlog=_BACKLOG) as (_, self._port):
                task_status.started()
                await self._garbage_collector.run()
        finally:
            self._watch_notifier.close()
            with anyio.CancelScope(shield=True):
                await runner.cleanup()

    def _handle_event(self, resource: GroupResource, event: StorageEvent) -> None:
        if resource == DEFINITIONS:
            self._serve_definition(event)
        self._garbage_collector.handle_event(resource, event)
        self._watch_notifier.notify(resource)

    def _serve_definition(self, event: StorageEvent) -> None:
        """Serve what a definition defines from its creation until its last object is gone."""
        if event.old:
            self._served_kinds.remove(build_resource_type(event.old.body).group_resource)
        if event.new:
            self._served_kinds.add(build_resource_type(event.new.body))

    def _create_namespaces(self) -> None:
        served = self._served_kinds.find("", "v1", "namespaces")
        for name in NAMESPACES:
            request = WriteRequest(type=served.type, version=served.version, key=ObjectKey("", ""))
            self._handler.writer.create(request, {"metadata": {"name": name}})

    async def _handle_http(self, http: web.Request) -> web.StreamResponse:
        path = ""
        try:
            path = self._authenticate(http)
            return await self._respond(http, path)
        except ApiStatusError as refusal:
            return _status_response(refusal)
        except RecursionError:
            return _status_response(bad_request("the request is nested too deeply"))
        except Exception as error:  # noqa: BLE001  (the boundary: the client learns of an internal error)
            _log.exception("cannot answer %s %s", http.method, path)
            return _status_response(internal_error(str(error)))

    def _authenticate(self, http: web.Request) -> str:
        """Return the path of a request without the token. Raises ApiStatusError (401, 403)."""
        own = {f"{host}:{self._port}" for host in (_HOST, "localhost")}
        origin = http.headers.get("Origin")
        if http.headers.get("Host", "") not in own or (
            origin is not None and origin not in {f"http://{o}" for o in own}
        ):
            message = "the request comes from a web page, or names another host"
            raise ApiStatusError(HTTPStatus.FORBIDDEN, "Forbidden", message)
        _, _, beneath = http.path.partition("/")
        given, slash, path = beneath.partition("/")
        if self._is_token(given):
            path = slash + path or "/"
        else:
            scheme, _, token = http.headers.get("Authorization", "").partition(" ")
            if scheme.lower() != "bearer" or not self._is_token(token):
                raise ApiStatusError(HTTPStatus.UNAUTHORIZED, "Unauthorized", "use the kubeconfig of this cluster")
            path = http.path
        self._limiter.admit(http.protocol)
        return path

    def _is_token(self, given: str) -> bool:
        return secrets.compare_digest(given.encode("utf-8", "surrogateescape"), self.token.encode())

    async def _respond(self, http: web.Request, path: str) -> web.StreamResponse:
        info = parse_path(path)
        if info is None:
            return self._respond_about_api(path, http.headers.get("Accept", ""))
        if not self._served_kinds.has_group(info.group):
            return _page_not_found()
        request = ApiRequest(
            method=http.method,
            info=info,
            query=http.query,
            accept=http.headers.get("Accept", ""),
            content_type=http.content_type if http.headers.get("Content-Type") else "",
            user_agent=http.headers.get("User-Agent", ""),
            body=await self._read_body(http),
        )
        fault = self.faults.next(request.verb, info.plural, info.name)
        if fault and (response := await _apply_fault(fault, http, request)):
            return response
        try:
            answer = self._handler.handle(request)
        except ApiStatusError as refusal:
            return _add_warnings(_status_response(refusal), self._warnings(request))
        warnings = self._warnings(request)
        if isinstance(answer, Watch):
            return await _stream(http, answer, fault, warnings)
        response = web.Response(status=answer.code, body=answer.body, headers={"Content-Type": answer.media_type})
        return _add_warnings(response, [*warnings, *answer.warnings])

    def _warnings(self, request: ApiRequest) -> list[str]:
        try:
            version = self._handler.find_version(request.info).version
        except ApiStatusError:
            return []
        return [version.warning] if version.warning else []

    async def _read_body(self, http: web.Request) -> bytes:
        try:
            return await http.read()
        except web.HTTPRequestEntityTooLarge as error:
            limit = self.settings.max_body_bytes
            raise ApiStatusError(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                "RequestEntityTooLarge",
                f"Request entity too large: limit is {limit}",
            ) from error

    def _respond_about_api(self, path: str, accept: str) -> web.StreamResponse:
        """Return the response to all that is not about objects: discovery, version, health."""
        if path.rstrip("/") in {"/healthz", "/livez", "/readyz"}:
            return web.Response(text="ok")
        if path.startswith("/openapi/v3"):
            document = openapi.build_document(path, self._served_kinds, self.settings)
            found = None if document is None else discovery.DiscoveryDocument(document)
        else:
            found = discovery.build_document(path, accept, self._served_kinds, self.settings)
        if found is None:
            return _page_not_found()
        return web.Response(body=encode(found.body), headers={"Content-Type": found.media_type})


def _page_not_found() -> web.Response:
    """Return the plain text, instead of a Status, with which kube-apiserver answers where it serves nothing."""
    return web.Response(status=HTTPStatus.NOT_FOUND, text="404 page not found\n")


def _status_response(refusal: ApiStatusError) -> web.Response:
    headers = dict(_JSON)
    if refusal.retry_after_s is not None:
        headers["Retry-After"] = str(refusal.retry_after_s)
    return web.Response(status=refusal.code, body=encode(refusal.status), headers=headers)


def _add_warnings(response: web.StreamResponse, warnings: Iterable[str]) -> web.StreamResponse:
    for warning in warnings:
        response.headers.add("Warning", f'299 - "{_escape(warning)}"')
    return response


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


async def _apply_fault(fault: InjectedFault, http: web.Request, request: ApiRequest) -> web.StreamResponse | None:
    """Return the response to a request that meets a fault; None for a watch, which is cut while it runs."""
    match fault.kind:
        case "answer":
            raise fault.refusal(request.info.plural, request.info.name)
        case "hang":
            await anyio.sleep_forever()
        case "cut" if request.verb != "watch" or not fault.after_lines:
            _abort(http)
            return web.Response()
    return None


def _abort(http: web.Request) -> None:
    if http.transport is not None:
        http.transport.abort()


async def _stream(
    http: web.Request, watch: Watch, fault: InjectedFault | None, warnings: Iterable[str]
) -> web.StreamResponse:
    headers = {"Content-Type": watch.encoder.watch_media_type}
    response = _add_warnings(web.StreamResponse(headers=headers), warnings)
    await response.prepare(http)
    sent = 0
    try:
        async for line in watch.lines():
            await response.write(line)
            sent += 1
            if fault and sent >= fault.after_lines:
                _abort(http)
                return response
        await response.write_eof()
    except ConnectionResetError:  # the client has closed the connection
        pass
    return response
