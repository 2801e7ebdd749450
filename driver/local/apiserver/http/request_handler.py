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
from driver.local.apiserver.http.content_negotiation import form_of
from driver.local.apiserver.http.paths import Target
from driver.local.apiserver.http.query_options import DeleteOptions, ListOptions, WriteOptions
from driver.local.apiserver.http.serializer import View, encode
from driver.local.apiserver.kinds.registry import Catalogue, Served
from driver.local.apiserver.kinds.types import ResourceType
from driver.local.apiserver.meta.documents import lookup
from driver.local.apiserver.meta.status_errors import bad_request, method_not_allowed, path_not_found, success
from driver.local.apiserver.registry.create_update import Writer, WriteRequest, Written
from driver.local.apiserver.registry.delete import Deleter
from driver.local.apiserver.registry.patch import change_of, document_of
from driver.local.apiserver.registry.read import get, list_page, selector_for
from driver.local.apiserver.registry.subresources import bind, created_status, finalize
from driver.local.apiserver.registry.watch import Feed, Watch
from driver.local.apiserver.settings import ApiServerSettings
from driver.local.apiserver.storage import Key, Storage, Stored
from driver.local.apiserver.times import stamp

_log: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What an HTTP request for an API object says."""

    method: str
    target: Target
    query: Mapping[str, str] = field(default_factory=dict)
    accept: str = ""
    content_type: str = ""
    user_agent: str = ""
    body: bytes = b""

    def document(self) -> JsonObject:
        """The body, as one object. Raises RefusedError (400, 415)."""
        return document_of(self.body, self.content_type)

    @property
    def key(self) -> Key:
        return Key(self.target.namespace, self.target.name)

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
class Answer:
    """A whole response."""

    body: bytes
    code: HTTPStatus = HTTPStatus.OK
    warnings: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Handler:
    """Answers requests from one storage."""

    storage: Storage
    feed: Feed
    catalogue: Catalogue
    settings: ApiServerSettings
    clock: Callable[[], datetime]
    uid: Callable[[], str]
    random: random.Random

    @property
    def writer(self) -> Writer:
        return Writer(
            storage=self.storage,
            admission=Admission(self.storage),
            clock=self.clock,
            uid=self.uid,
            random=self.random,
            dropped_fields=self.settings.dropped_fields,
        )

    @property
    def deleter(self) -> Deleter:
        return Deleter(self.storage, self.clock)

    def handle(self, request: Request) -> Answer | Watch:
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

    def served(self, target: Target) -> Served:
        """The kind that a target is about. Raises RefusedError (404)."""
        return self.catalogue.served(target.group, target.version, target.plural)

    @staticmethod
    def _check_scope(type_: ResourceType, target: Target) -> None:
        if type_.namespaced and target.name and not target.namespace:
            raise path_not_found()
        if not type_.namespaced and target.namespace:
            raise path_not_found()

    def _view(self, served: Served, request: Request) -> View:
        include = request.query.get("includeObject", "Metadata")
        return View(type=served.type, version=served.version, form=form_of(request.accept), include_object=include)

    def _get(self, served: Served, request: Request) -> Answer:
        stored = get(self.storage, served.type, request.key)
        return Answer(body=self._view(served, request).one(stored, self.clock()))

    def _list(self, served: Served, request: Request) -> Answer:
        page = list_page(self.storage, served.type, request.target.namespace, ListOptions.parse(request.query))
        return Answer(body=self._view(served, request).many(page.items, page.metadata, self.clock()))

    def _watch(self, served: Served, request: Request) -> Watch:
        options = ListOptions.parse(request.query)
        return Watch(
            storage=self.storage,
            feed=self.feed,
            view=self._view(served, request),
            namespace=request.target.namespace,
            selector=selector_for(served.type, options),
            options=options,
            clock=self.clock,
            bookmark_interval_s=self.settings.bookmark_interval_s,
            max_s=self.settings.max_watch_s,
        )

    def _create(self, served: Served, request: Request) -> Answer:
        if request.target.name or (served.type.namespaced and not request.target.namespace):
            raise method_not_allowed()
        written = self.writer.create(self._write_request(served, request), request.document())
        return self._written(served, request, written)

    def _write_request(self, served: Served, request: Request) -> WriteRequest:
        return WriteRequest(
            type=served.type,
            version=served.version,
            key=request.key,
            subresource=request.target.subresource,
            options=WriteOptions.parse(request.query, user_agent=request.user_agent, kind=_OPTIONS[request.method]),
        )

    def _write(self, served: Served, request: Request, verb: str) -> Answer:
        write = self._write_request(served, request)
        if verb == "update":
            document = request.document()
            write = replace(write, allow_create=served.type.create_on_update, replaces=True)
            return self._written(served, request, self.writer.update(write, lambda _current: document))
        write, change = change_of(write, request.body, request.content_type, self.clock)
        return self._written(served, request, self.writer.update(write, change))

    def _written(self, served: Served, request: Request, written: Written) -> Answer:
        body = self._view(served, request).one(written.stored, self.clock())
        code = HTTPStatus.CREATED if written.created else HTTPStatus.OK
        return Answer(body=body, code=code, warnings=written.warnings)

    def _delete(self, served: Served, request: Request) -> Answer:
        options = _delete_options(request)
        deleted = self.deleter.delete(served.type, request.key, options)
        if not deleted.gone or served.type.returns_deleted:
            return Answer(body=self._view(served, request).one(deleted.stored, self.clock()))
        return Answer(body=encode(success(_deletion_details(served.type, deleted.stored))))

    def _delete_collection(self, served: Served, request: Request) -> Answer:
        namespace = request.target.namespace
        page = list_page(self.storage, served.type, namespace, ListOptions.parse(request.query))
        options = _delete_options(request)
        for stored in page.items:
            self.deleter.delete(served.type, stored.key, options)
        metadata = {"resourceVersion": str(self.storage.revision)}
        return Answer(body=self._view(served, request).many(page.items, metadata, self.clock()))

    def _subresource(self, served: Served, request: Request, verb: str) -> Answer:
        name = request.target.subresource
        match served.type.plural, name, verb:
            case _, "status", _ if not served.version.status:
                raise path_not_found()
            case _, "status", "get":
                return self._get(served, request)
            case _, "status", "update" | "patch":
                return _well_typed(served.type, partial(self._write, served, request, verb))
            case "pods", "binding", "create":
                bind(self.storage, request.key, request.document(), stamp(self.clock()))
                return _CREATED
            case "pods", "eviction", "create":
                options = DeleteOptions.parse({}, lookup(request.document(), "deleteOptions") or {})
                self.deleter.delete(served.type, request.key, options)
                return _CREATED
            case "namespaces", "finalize", "update":
                stored = finalize(self.storage, request.key, request.document())
                return Answer(body=self._view(served, request).one(stored, self.clock()))
            case _ if name in {"status", *served.type.subresources}:
                raise method_not_allowed()
            case _:
                raise path_not_found()


_CREATED: Final = Answer(body=encode(created_status()), code=HTTPStatus.CREATED)


def _well_typed(type_: ResourceType, write: Callable[[], Answer]) -> Answer:
    """Runs a write whose document may have values of the wrong JSON type. Raises RefusedError (400) then.

    There is no schema of the built-in kinds here, so it is their rules that trip over such values.
    """
    try:
        return write()
    except (AttributeError, KeyError, TypeError) as error:
        _log.debug("a document of the wrong shape", exc_info=True)
        raise bad_request(f"the document cannot be handled as a {type_.kind}: {error}") from error


def _delete_options(request: Request) -> DeleteOptions:
    return DeleteOptions.parse(request.query, request.document() if request.body.strip() else {})


def _deletion_details(type_: ResourceType, stored: Stored) -> JsonObject:
    details = {"name": stored.key.name, "group": type_.group, "kind": type_.plural}
    uid = lookup(stored.body, "metadata", "uid")
    return {**{name: value for name, value in details.items() if value}, "uid": uid}
