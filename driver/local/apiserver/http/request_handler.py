"""One API request, from its parsed pieces to its answer. No HTTP library in here."""

import logging
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from http import HTTPStatus
from typing import Final

from api.model.base import JsonObject
from driver.local.apiserver.admission.admission import Admission
from driver.local.apiserver.http.content_negotiation import negotiate_form
from driver.local.apiserver.http.paths import RequestInfo
from driver.local.apiserver.http.query_options import DeleteOptions, ListOptions, WriteOptions
from driver.local.apiserver.http.serializer import ObjectEncoder, encode
from driver.local.apiserver.kinds.served_kinds import ServedKinds, ServedVersion
from driver.local.apiserver.kinds.types import ResourceType
from driver.local.apiserver.meta.documents import lookup
from driver.local.apiserver.meta.status_errors import bad_request, method_not_allowed, path_not_found, success
from driver.local.apiserver.registry.create_update import ObjectWriter, WriteRequest, WriteResult
from driver.local.apiserver.registry.delete import ObjectDeleter
from driver.local.apiserver.registry.patch import decode_document, parse_patch
from driver.local.apiserver.registry.read import get, list_page, parse_selector
from driver.local.apiserver.registry.subresources import bind_pod, created_status, finalize_namespace
from driver.local.apiserver.registry.watch import Watch, WatchNotifier
from driver.local.apiserver.settings import ApiServerSettings
from driver.local.apiserver.storage import ObjectKey, Storage, StoredObject
from driver.local.apiserver.times import format_time

_log: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiRequest:
    """What an HTTP request for an API object says."""

    method: str
    target: RequestInfo
    query: Mapping[str, str] = field(default_factory=dict)
    accept: str = ""
    content_type: str = ""
    user_agent: str = ""
    body: bytes = b""

    def document(self) -> JsonObject:
        """The body, as one object. Raises RefusedError (400, 415)."""
        return decode_document(self.body, self.content_type)

    @property
    def key(self) -> ObjectKey:
        return ObjectKey(self.target.namespace, self.target.name)

    @property
    def verb(self) -> str:
        """The API verb, as authorization and fault plans name it."""
        if self.method == "GET" and not self.target.name:
            return "watch" if ListOptions.parse(self.query).watch else "list"
        if self.method == "DELETE" and not self.target.name:
            return "deletecollection"
        return _VERBS.get(self.method, self.method.lower())


_OPTIONS: Final = {"POST": "CreateOptions", "PUT": "UpdateOptions", "PATCH": "PatchOptions"}
_VERBS: Final = {"GET": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiResponse:
    """A whole response."""

    body: bytes
    code: HTTPStatus = HTTPStatus.OK
    warnings: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestHandler:
    """Answers requests from one storage."""

    storage: Storage
    watch_notifier: WatchNotifier
    served_kinds: ServedKinds
    settings: ApiServerSettings
    clock: Callable[[], datetime]
    uid: Callable[[], str]
    random: random.Random

    @property
    def writer(self) -> ObjectWriter:
        return ObjectWriter(
            storage=self.storage,
            admission=Admission(self.storage),
            clock=self.clock,
            uid=self.uid,
            random=self.random,
            dropped_fields=self.settings.dropped_fields,
        )

    @property
    def deleter(self) -> ObjectDeleter:
        return ObjectDeleter(self.storage, self.clock)

    def handle(self, request: ApiRequest) -> ApiResponse | Watch:
        """Raises RefusedError for everything that has no good answer."""
        served = self.served(request.target)
        self._check_scope(served.type, request.target)
        target, verb = request.target, request.verb
        if target.subresource:
            return self._subresource(served, request, verb)
        if verb not in served.type.verbs:
            raise method_not_allowed()
        match verb:
            case "get":
                return self._get(served, request)
            case "list":
                return self._list(served, request)
            case "watch":
                return self._watch(served, request)
            case "create":
                return _well_typed(served.type, partial(self._create, served, request))
            case "update" | "patch" if target.name:
                return _well_typed(served.type, partial(self._write, served, request, verb))
            case "delete":
                return self._delete(served, request)
            case "deletecollection":
                return self._delete_collection(served, request)
            case _:
                raise method_not_allowed()

    def served(self, target: RequestInfo) -> ServedVersion:
        """The kind that a target is about. Raises RefusedError (404)."""
        return self.served_kinds.served(target.group, target.version, target.plural)

    @staticmethod
    def _check_scope(type_: ResourceType, target: RequestInfo) -> None:
        if type_.namespaced and target.name and not target.namespace:
            raise path_not_found()
        if not type_.namespaced and target.namespace:
            raise path_not_found()

    def _encoder(self, served: ServedVersion, request: ApiRequest) -> ObjectEncoder:
        include = request.query.get("includeObject", "Metadata")
        return ObjectEncoder(
            type=served.type, version=served.version, form=negotiate_form(request.accept), include_object=include
        )

    def _get(self, served: ServedVersion, request: ApiRequest) -> ApiResponse:
        stored = get(self.storage, served.type, request.key)
        return ApiResponse(body=self._encoder(served, request).one(stored, self.clock()))

    def _list(self, served: ServedVersion, request: ApiRequest) -> ApiResponse:
        page = list_page(self.storage, served.type, request.target.namespace, ListOptions.parse(request.query))
        return ApiResponse(body=self._encoder(served, request).many(page.items, page.metadata, self.clock()))

    def _watch(self, served: ServedVersion, request: ApiRequest) -> Watch:
        options = ListOptions.parse(request.query)
        return Watch(
            storage=self.storage,
            watch_notifier=self.watch_notifier,
            view=self._encoder(served, request),
            namespace=request.target.namespace,
            selector=parse_selector(served.type, options),
            options=options,
            clock=self.clock,
            bookmark_interval_s=self.settings.bookmark_interval_s,
            max_s=self.settings.max_watch_s,
        )

    def _create(self, served: ServedVersion, request: ApiRequest) -> ApiResponse:
        if request.target.name or (served.type.namespaced and not request.target.namespace):
            raise method_not_allowed()
        written = self.writer.create(self._write_request(served, request), request.document())
        return self._write_response(served, request, written)

    def _write_request(self, served: ServedVersion, request: ApiRequest) -> WriteRequest:
        return WriteRequest(
            type=served.type,
            version=served.version,
            key=request.key,
            subresource=request.target.subresource,
            options=WriteOptions.parse(request.query, user_agent=request.user_agent, kind=_OPTIONS[request.method]),
        )

    def _write(self, served: ServedVersion, request: ApiRequest, verb: str) -> ApiResponse:
        write = self._write_request(served, request)
        if verb == "update":
            document = request.document()
            write = replace(write, allow_create=served.type.create_on_update, replaces=True)
            return self._write_response(served, request, self.writer.update(write, lambda _current: document))
        write, change = parse_patch(write, request.body, request.content_type, self.clock)
        return self._write_response(served, request, self.writer.update(write, change))

    def _write_response(self, served: ServedVersion, request: ApiRequest, written: WriteResult) -> ApiResponse:
        body = self._encoder(served, request).one(written.stored, self.clock())
        code = HTTPStatus.CREATED if written.created else HTTPStatus.OK
        return ApiResponse(body=body, code=code, warnings=written.warnings)

    def _delete(self, served: ServedVersion, request: ApiRequest) -> ApiResponse:
        options = _delete_options(request)
        deleted = self.deleter.delete(served.type, request.key, options)
        if not deleted.gone or served.type.returns_deleted:
            return ApiResponse(body=self._encoder(served, request).one(deleted.stored, self.clock()))
        return ApiResponse(body=encode(success(_deletion_details(served.type, deleted.stored))))

    def _delete_collection(self, served: ServedVersion, request: ApiRequest) -> ApiResponse:
        namespace = request.target.namespace
        page = list_page(self.storage, served.type, namespace, ListOptions.parse(request.query))
        options = _delete_options(request)
        for stored in page.items:
            self.deleter.delete(served.type, stored.key, options)
        metadata = {"resourceVersion": str(self.storage.revision)}
        return ApiResponse(body=self._encoder(served, request).many(page.items, metadata, self.clock()))

    def _subresource(self, served: ServedVersion, request: ApiRequest, verb: str) -> ApiResponse:
        name = request.target.subresource
        match served.type.plural, name, verb:
            case _, "status", _ if not served.version.status:
                raise path_not_found()
            case _, "status", "get":
                return self._get(served, request)
            case _, "status", "update" | "patch":
                return _well_typed(served.type, partial(self._write, served, request, verb))
            case "pods", "binding", "create":
                bind_pod(self.storage, request.key, request.document(), format_time(self.clock()))
                return _CREATED
            case "pods", "eviction", "create":
                options = DeleteOptions.parse({}, lookup(request.document(), "deleteOptions") or {})
                self.deleter.delete(served.type, request.key, options)
                return _CREATED
            case "namespaces", "finalize", "update":
                stored = finalize_namespace(self.storage, request.key, request.document())
                return ApiResponse(body=self._encoder(served, request).one(stored, self.clock()))
            case _ if name in {"status", *served.type.subresources}:
                raise method_not_allowed()
            case _:
                raise path_not_found()


_CREATED: Final = ApiResponse(body=encode(created_status()), code=HTTPStatus.CREATED)


def _well_typed(type_: ResourceType, write: Callable[[], ApiResponse]) -> ApiResponse:
    """Runs a write whose document may have values of the wrong JSON type. Raises RefusedError (400) then.

    There is no schema of the built-in kinds here, so it is their rules that trip over such values.
    """
    try:
        return write()
    except (AttributeError, KeyError, TypeError) as error:
        _log.debug("a document of the wrong shape", exc_info=True)
        raise bad_request(f"the document cannot be handled as a {type_.kind}: {error}") from error


def _delete_options(request: ApiRequest) -> DeleteOptions:
    return DeleteOptions.parse(request.query, request.document() if request.body.strip() else {})


def _deletion_details(type_: ResourceType, stored: StoredObject) -> JsonObject:
    details = {"name": stored.key.name, "group": type_.group, "kind": type_.plural}
    uid = lookup(stored.body, "metadata", "uid")
    return {**{name: value for name, value in details.items() if value}, "uid": uid}
