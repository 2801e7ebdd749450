"""The request handler: it dispatches one API request by verb and builds the response; it knows no HTTP library."""

import logging
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from http import HTTPStatus
from typing import Final

from kerf_dra.api.model.base import JsonObject
from kerf_dra.api.model.times import format_time
from kerf_dra.driver.local.apiserver.http.query_options import DeleteOptions, ListOptions, WriteOptions
from kerf_dra.driver.local.apiserver.http.request_info import RequestInfo
from kerf_dra.driver.local.apiserver.http.serializer import ObjectEncoder, encode, negotiate_form
from kerf_dra.driver.local.apiserver.kinds.served_kinds import ServedKinds, ServedVersion
from kerf_dra.driver.local.apiserver.kinds.types import ResourceType
from kerf_dra.driver.local.apiserver.meta import protobuf
from kerf_dra.driver.local.apiserver.meta.documents import lookup
from kerf_dra.driver.local.apiserver.meta.status_errors import bad_request, method_not_allowed, path_not_found, success
from kerf_dra.driver.local.apiserver.registry.create_update import ObjectWriter, WriteRequest, WriteResult
from kerf_dra.driver.local.apiserver.registry.delete import ObjectDeleter
from kerf_dra.driver.local.apiserver.registry.patch import decode_document, parse_patch
from kerf_dra.driver.local.apiserver.registry.read import check_revision, get_object, list_objects, parse_selector
from kerf_dra.driver.local.apiserver.registry.subresources import bind_pod, finalize_namespace
from kerf_dra.driver.local.apiserver.registry.watch import Watch, WatchNotifier
from kerf_dra.driver.local.apiserver.settings import ApiServerSettings
from kerf_dra.driver.local.apiserver.storage import ObjectKey, Storage, StoredObject

_log: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiRequest:
    """A request for API objects, parsed as far as HTTP goes."""

    method: str
    info: RequestInfo
    query: Mapping[str, str] = field(default_factory=dict)
    accept: str = ""
    content_type: str = ""
    user_agent: str = ""
    body: bytes = b""

    def document(self) -> JsonObject:
        """Return the one object in the body. Raises ApiStatusError (400, 415)."""
        return decode_document(self.body, self.content_type)

    @property
    def key(self) -> ObjectKey:
        return ObjectKey(self.info.namespace, self.info.name)

    @property
    def verb(self) -> str:
        """The API verb, by the names of authorization; fault plans use them too."""
        if self.method == "GET" and not self.info.name:
            return "watch" if ListOptions.parse(self.query).watch else "list"
        if self.method == "DELETE" and not self.info.name:
            return "deletecollection"
        return _VERBS.get(self.method, self.method.lower())


_OPTIONS: Final = {"POST": "CreateOptions", "PUT": "UpdateOptions", "PATCH": "PatchOptions"}
_VERBS: Final = {"GET": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiResponse:
    """A complete response, in contrast to a watch."""

    body: bytes
    media_type: str = "application/json"
    code: HTTPStatus = HTTPStatus.OK
    warnings: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestHandler:
    """Handles the requests to one storage."""

    storage: Storage
    watch_notifier: WatchNotifier
    served_kinds: ServedKinds
    settings: ApiServerSettings
    clock: Callable[[], datetime]
    uid: Callable[[], str]
    random: random.Random
    pod_log: Callable[[JsonObject, str], str]
    """(pod, container): the log of a container, which the kubelet of the pod's node has."""

    @property
    def writer(self) -> ObjectWriter:
        return ObjectWriter(
            storage=self.storage,
            served_kinds=self.served_kinds,
            clock=self.clock,
            uid=self.uid,
            random=self.random,
            dropped_fields=self.settings.dropped_fields,
        )

    @property
    def deleter(self) -> ObjectDeleter:
        return ObjectDeleter(self.storage, self.clock)

    def handle(self, request: ApiRequest) -> ApiResponse | Watch:
        """Return the response, or the watch, to a request. Raises ApiStatusError when the request is refused."""
        served = self.find_version(request.info)
        self._check_scope(served.type, request.info)
        info, verb = request.info, request.verb
        if info.subresource:
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
                return _check_types(served.type, partial(self._create, served, request))
            case "update" | "patch" if info.name:
                return _check_types(served.type, partial(self._write, served, request, verb))
            case "delete":
                return self._delete(served, request)
            case "deletecollection":
                return self._delete_collection(served, request)
            case _:
                raise method_not_allowed()

    def find_version(self, info: RequestInfo) -> ServedVersion:
        """Return the kind and version that a path names. Raises ApiStatusError (404)."""
        return self.served_kinds.find(info.group, info.version, info.plural)

    @staticmethod
    def _check_scope(type_: ResourceType, info: RequestInfo) -> None:
        if (type_.namespaced and info.name and not info.namespace) or (info.namespace and not type_.namespaced):
            raise path_not_found()

    def _encoder(self, served: ServedVersion, request: ApiRequest) -> ObjectEncoder:
        include = request.query.get("includeObject", "Metadata")
        in_protobuf = protobuf.can_encode(served.type.api_version(served.version), served.type.kind)
        form = negotiate_form(request.accept, in_protobuf=in_protobuf)
        return ObjectEncoder(type=served.type, version=served.version, form=form, include_object=include)

    def _get(self, served: ServedVersion, request: ApiRequest) -> ApiResponse:
        check_revision(self.storage, request.query)
        return self._object_response(served, request, get_object(self.storage, served.type, request.key))

    def _list(self, served: ServedVersion, request: ApiRequest) -> ApiResponse:
        page = list_objects(self.storage, served.type, request.info.namespace, ListOptions.parse(request.query))
        return self._list_response(served, request, page.items, page.metadata)

    def _watch(self, served: ServedVersion, request: ApiRequest) -> Watch:
        options = ListOptions.parse(request.query)
        return Watch(
            storage=self.storage,
            watch_notifier=self.watch_notifier,
            encoder=self._encoder(served, request),
            namespace=request.info.namespace,
            selector=parse_selector(served.type, options),
            options=options,
            clock=self.clock,
            bookmark_interval_s=self.settings.bookmark_interval_s,
            max_s=self.settings.max_watch_s,
        )

    def _create(self, served: ServedVersion, request: ApiRequest) -> ApiResponse:
        if request.info.name or (served.type.namespaced and not request.info.namespace):
            raise method_not_allowed()
        written = self.writer.create(self._write_request(served, request), request.document())
        return self._write_response(served, request, written)

    def _write_request(self, served: ServedVersion, request: ApiRequest) -> WriteRequest:
        return WriteRequest(
            type=served.type,
            version=served.version,
            key=request.key,
            subresource=request.info.subresource,
            options=WriteOptions.parse(request.query, user_agent=request.user_agent, kind=_OPTIONS[request.method]),
        )

    def _write(self, served: ServedVersion, request: ApiRequest, verb: str) -> ApiResponse:
        write = self._write_request(served, request)
        if verb == "update":
            document = request.document()
            write = replace(write, allow_create=served.type.allow_create_on_update, replaces=True)
            return self._write_response(served, request, self.writer.update(write, lambda _current: document))
        write, change = parse_patch(write, request.body, request.content_type, self.clock)
        return self._write_response(served, request, self.writer.update(write, change))

    def _object_response(self, served: ServedVersion, request: ApiRequest, stored: StoredObject) -> ApiResponse:
        encoder = self._encoder(served, request)
        return ApiResponse(body=encoder.one(stored, self.clock()), media_type=encoder.media_type)

    def _list_response(
        self, served: ServedVersion, request: ApiRequest, items: Sequence[StoredObject], metadata: JsonObject
    ) -> ApiResponse:
        encoder = self._encoder(served, request)
        return ApiResponse(body=encoder.many(items, metadata, self.clock()), media_type=encoder.media_type)

    def _write_response(self, served: ServedVersion, request: ApiRequest, result: WriteResult) -> ApiResponse:
        code = HTTPStatus.CREATED if result.created else HTTPStatus.OK
        return replace(self._object_response(served, request, result.stored), code=code, warnings=result.warnings)

    def _delete(self, served: ServedVersion, request: ApiRequest) -> ApiResponse:
        options = _delete_options(request)
        deleted = self.deleter.delete(served.type, request.key, options)
        if not deleted.gone or served.type.returns_deleted:
            return self._object_response(served, request, deleted.stored)
        return ApiResponse(body=encode(success(details=_deletion_details(served.type, deleted.stored))))

    def _delete_collection(self, served: ServedVersion, request: ApiRequest) -> ApiResponse:
        namespace = request.info.namespace
        page = list_objects(self.storage, served.type, namespace, ListOptions.parse(request.query))
        options = _delete_options(request)
        for stored in page.items:
            self.deleter.delete(served.type, stored.key, options)
        return self._list_response(served, request, page.items, {"resourceVersion": str(self.storage.revision)})

    def _subresource(self, served: ServedVersion, request: ApiRequest, verb: str) -> ApiResponse:
        name = request.info.subresource
        match served.type.plural, name, verb:
            case _, "status", _ if not served.version.has_status:
                raise path_not_found()
            case _, "status", "get":
                return self._get(served, request)
            case _, "status", "update" | "patch":
                return _check_types(served.type, partial(self._write, served, request, verb))
            case "pods", "binding", "create":
                bind_pod(self.storage, request.key, request.document(), format_time(self.clock()))
                return _CREATED
            case "pods", "eviction", "create":
                options = DeleteOptions.parse({}, lookup(request.document(), "deleteOptions") or {})
                self.deleter.delete(served.type, request.key, options)
                return _CREATED
            case "pods", "log", "get":
                pod = get_object(self.storage, served.type, request.key).body
                text = self.pod_log(pod, request.query.get("container", ""))
                return ApiResponse(body=text.encode(), media_type="text/plain")
            case "pods", "exec" | "attach" | "portforward", _:
                get_object(self.storage, served.type, request.key)
                raise bad_request(f"pods/{name} needs containers that run, and no container runs in this cluster")
            case "namespaces", "finalize", "update":
                stored = finalize_namespace(self.storage, request.key, request.document())
                return self._object_response(served, request, stored)
            case _ if name in {"status", *served.type.subresources}:
                raise method_not_allowed()
            case _:
                raise path_not_found()


_CREATED: Final = ApiResponse(body=encode(success(code=HTTPStatus.CREATED)), code=HTTPStatus.CREATED)


def _check_types(type_: ResourceType, write: Callable[[], ApiResponse]) -> ApiResponse:
    """Run a write. Raises ApiStatusError (400) for a document with values of the wrong JSON type.

    Built-in kinds have no schema here, so it is their strategies that fail on such values.
    """
    try:
        return write()
    except (AttributeError, KeyError, TypeError) as error:
        _log.debug("a document has values of the wrong type", exc_info=True)
        raise bad_request(f"the document cannot be handled as a {type_.kind}: {error}") from error


def _delete_options(request: ApiRequest) -> DeleteOptions:
    return DeleteOptions.parse(request.query, request.document() if request.body.strip() else {})


def _deletion_details(type_: ResourceType, stored: StoredObject) -> JsonObject:
    details = {"name": stored.key.name, "group": type_.group, "kind": type_.plural}
    uid = lookup(stored.body, "metadata", "uid")
    return {**{name: value for name, value in details.items() if value}, "uid": uid}
