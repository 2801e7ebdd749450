"""A small API server in memory, for tests of everything above HTTP.

It is a Transport, so that a Client talks to it without sockets, under virtual time. ``faults`` make calls fail.
"""

import json
import math
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import anyio

from kerf_dra.driver.kube.http.client import Client
from kerf_dra.driver.kube.http.credentials import Access
from kerf_dra.driver.kube.http.errors import StatusError, UnreachableError, build_status_error
from kerf_dra.driver.kube.http.transport import HttpRequest
from kerf_dra.driver.kube.http.write_history import WriteHistory
from kerf_dra.driver.local.apiserver.meta.label_selectors import parse_labels
from kerf_dra.driver.runtime.notifier import Notifier
from tests.kube.identified import identified
from tests.kube.open_transport import OpenTransport

Json = dict[str, Any]
Fault = Callable[[HttpRequest], "Exception | None"]


def status(
    request: HttpRequest,
    code: int,
    reason: str = "",
    message: str = "",
    retry_after_s: int = 0,
    missing: "ResourcePath | None" = None,
) -> StatusError:
    """The error of a Status; ``missing`` is the object that does not exist."""
    named = {"group": missing.group, "kind": missing.collection, "name": missing.name} if missing else {}
    body = {
        "kind": "Status",
        "code": code,
        "reason": reason,
        "message": message or reason,
        "details": {"retryAfterSeconds": retry_after_s, **named},
    }
    return build_status_error(str(request), code, json.dumps(body).encode())


class HangError(Exception):
    """Raised by a fault: the server never answers."""


@dataclass(frozen=True)
class ResourcePath:
    """The collection or object that a path names."""

    collection: str
    namespace: str
    name: str
    subresource: str
    group: str = field(default="", compare=False)

    @classmethod
    def of(cls, path: str) -> "ResourcePath":
        parts = path.strip("/").split("/")
        group = parts[1] if parts[0] == "apis" else ""
        parts = parts[2:] if parts[0] == "api" else parts[3:]
        namespace = ""
        if len(parts) > 2 and parts[0] == "namespaces":
            namespace, parts = parts[1], parts[2:]
        collection, name, subresource = (*parts, "", "", "")[:3]
        return cls(collection, namespace, name, subresource, group)


@dataclass
class Entry:
    """One change in the history."""

    version: int
    type: str
    place: ResourcePath
    object: Json
    before: Json | None


@dataclass
class MemoryServer(OpenTransport):
    """Objects by collection, with a history that can be watched and forgotten."""

    objects: dict[tuple[str, str, str], Json] = field(default_factory=dict)
    version: int = 100
    history: list[Entry] = field(default_factory=list)
    forgotten: int = 0
    """Watches from before this version are expired."""
    requests: list[tuple[float, HttpRequest]] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    json: dict[str, Json] = field(default_factory=dict)
    """Answers by path: discovery."""
    page: int | None = None
    """At most so many objects in a page, whatever the limit."""
    on_write: Callable[[Json], Json] = lambda value: value
    """What the server makes of an object before it keeps it."""
    mute: bool = False
    """Whether watches show nothing any more, as if nothing happened."""
    streams: int = 0
    _changes: Notifier = field(default_factory=Notifier)
    _cuts: int = 0
    _ends: int = 0
    _bookmarks: int = 0
    _uids: int = 0

    # What happens at the server, from outside any client.

    def put(self, collection: str, value: Json, namespace: str = "") -> Json:
        """Create or replace an object, as another client."""
        place = ResourcePath(collection, namespace, value["metadata"]["name"], "")
        return self._keep(place, value)

    def remove(self, collection: str, name: str, namespace: str = "") -> None:
        key = (collection, namespace, name)
        before = self.objects.pop(key)
        self.version += 1
        gone = {**before, "metadata": {**before["metadata"], "resourceVersion": str(self.version)}}
        self.history.append(Entry(self.version, "DELETED", ResourcePath(collection, namespace, name, ""), gone, before))
        self._changes.notify()

    def forget(self) -> None:
        """Compact the history: watches cannot start from before now."""
        self.forgotten = self.version

    def cut(self) -> None:
        """Break the connection of all watches."""
        self._cuts += 1
        self._changes.notify()

    def end(self) -> None:
        """End all watches regularly."""
        self._ends += 1
        self._changes.notify()

    def bookmark(self) -> None:
        self._bookmarks += 1
        self._changes.notify()

    def client(self, history: WriteHistory | None = None) -> Client:
        return Client(Access(server="http://memory"), user_agent="test/1", transport=self, history=history)

    def sent(self, method: str) -> list[HttpRequest]:
        return [request for _, request in self.requests if request.method == method]

    # Transport

    async def call(self, request: HttpRequest) -> bytes:
        await self._begin(request)
        if request.path in self.json:
            return json.dumps(self.json[request.path]).encode()
        if request.method != "DELETE":
            return json.dumps(identified(request.path, self._answer(request))).encode()
        return json.dumps(self._answer(request)).encode()

    def _answer(self, request: HttpRequest) -> Json:
        place = ResourcePath.of(request.path)
        body = json.loads(request.body or b"{}")
        match request.method:
            case "GET" if place.name:
                return self._find(request, place)
            case "GET" if place.collection:
                return self._list(request, place)
            case "GET":
                raise status(request, 404, "NotFound")
            case "POST":
                return self._create(request, place, body)
            case "PUT":
                return self._update(request, place, body)
            case "PATCH":
                self._check(request, self._find(request, place), body.get("metadata", {}))
                return self._keep(place, merged(self._find(request, place), body))
            case _:
                return self._delete(request, place, body)

    async def lines(self, request: HttpRequest) -> AsyncGenerator[bytes, None]:
        await self._begin(request)
        place, version = ResourcePath.of(request.path), int(request.query["resourceVersion"])
        matches = selected(request)
        cuts, ends, bookmarks = self._cuts, self._ends, self._bookmarks
        self.streams += 1
        try:
            while True:
                if version < self.forgotten and any(entry.version > version for entry in self.history):
                    gone = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}
                    yield json.dumps({"type": "ERROR", "object": gone}).encode()
                    return
                for entry in [entry for entry in self.history if entry.version > version]:
                    version = entry.version
                    if not self.mute and in_collection(entry.place, place) and (event := event_of(entry, matches)):
                        yield json.dumps({**event, "object": identified(request.path, event["object"])}).encode()
                if bookmarks != self._bookmarks:
                    bookmarks = self._bookmarks
                    head = identified(request.path, {"metadata": {"resourceVersion": str(self.version)}})
                    yield json.dumps({"type": "BOOKMARK", "object": head}).encode()
                if cuts != self._cuts:
                    raise UnreachableError(str(request), "connection reset")
                if ends != self._ends:
                    return
                await self._changes.wait()
        finally:
            self.streams -= 1

    # Verbs

    async def _begin(self, request: HttpRequest) -> None:
        self.requests.append((anyio.current_time(), request))
        await anyio.lowlevel.checkpoint()
        for fault in list(self.faults):
            error = fault(request)
            if isinstance(error, HangError):
                await anyio.sleep_forever()
            if error is not None:
                raise error

    def _find(self, request: HttpRequest, place: ResourcePath) -> Json:
        found = self.objects.get((place.collection, place.namespace, place.name))
        if found is None:
            message = f"{place.collection} {place.name!r} not found"
            raise status(request, 404, "NotFound", message, missing=place)
        return found

    def _list(self, request: HttpRequest, place: ResourcePath) -> Json:
        matches = selected(request)
        items = [
            value
            for (collection, namespace, name), value in sorted(self.objects.items())
            if in_collection(ResourcePath(collection, namespace, name, ""), place) and matches(value)
        ]
        limit = min(int(request.query.get("limit", 10**9)), self.page or 10**9)
        start = int(request.query.get("continue") or 0)
        more = str(start + limit) if start + limit < len(items) else ""
        metadata = {"resourceVersion": str(self.version), "continue": more}
        return {"metadata": metadata, "items": items[start : start + limit]}

    def _create(self, request: HttpRequest, place: ResourcePath, body: Json) -> Json:
        place = ResourcePath(place.collection, place.namespace, body["metadata"]["name"], "")
        if (place.collection, place.namespace, place.name) in self.objects:
            raise status(request, 409, "AlreadyExists")
        return self._keep(place, body)

    def _update(self, request: HttpRequest, place: ResourcePath, body: Json) -> Json:
        self._check(request, self._find(request, place), body["metadata"])
        return self._keep(place, body)

    def _delete(self, request: HttpRequest, place: ResourcePath, body: Json) -> Json:
        self._check(request, self._find(request, place), body.get("preconditions", {}))
        self.remove(place.collection, place.name, place.namespace)
        return {"kind": "Status", "status": "Success"}

    def _check(self, request: HttpRequest, found: Json, wanted: Mapping[str, Any]) -> None:
        for precondition in ("uid", "resourceVersion"):
            if wanted.get(precondition) and wanted[precondition] != found["metadata"][precondition]:
                raise status(request, 409, "Conflict", "the object has been modified")

    def _keep(self, place: ResourcePath, value: Json) -> Json:
        key = (place.collection, place.namespace, place.name)
        before = self.objects.get(key)
        self.version += 1
        if before is None:
            self._uids += 1
        uid = before["metadata"]["uid"] if before else f"uid-{self._uids}"
        metadata = {**value["metadata"], "uid": uid, "resourceVersion": str(self.version)}
        if place.namespace:
            metadata["namespace"] = place.namespace
        kept = self.on_write({**json.loads(json.dumps(value)), "metadata": metadata})
        self.objects[key] = kept
        self.history.append(Entry(self.version, "MODIFIED" if before else "ADDED", place, kept, before))
        self._changes.notify()
        return kept


def in_collection(place: ResourcePath, of: ResourcePath) -> bool:
    return place.collection == of.collection and of.namespace in {"", place.namespace}


def event_of(entry: Entry, matches: Callable[[Json], bool]) -> Json | None:
    """Return the event as a watch with a selector shows it: an object that stops matching is deleted."""
    now = entry.type != "DELETED" and matches(entry.object)
    was = entry.before is not None and matches(entry.before)
    if not now and not was:
        return None
    return {"type": "DELETED" if not now else "MODIFIED" if was else "ADDED", "object": entry.object}


def selected(request: HttpRequest) -> Callable[[Json], bool]:
    """The objects that a list or watch chooses by its selectors."""
    fields = selector(request.query.get("fieldSelector", ""))
    labels = parse_labels(request.query.get("labelSelector", ""))
    return lambda value: fields(value) and labels.matches(value["metadata"].get("labels", {}))


def selector(text: str) -> Callable[[Json], bool]:
    """A field selector of equalities: ``spec.driver=a,spec.nodeName=b``."""
    wanted = [requirement.split("=", 1) for requirement in text.split(",") if requirement]

    def matches(value: Json) -> bool:
        return all(field_of(value, path) == text for path, text in wanted)

    return matches


def field_of(value: Json, path: str) -> object:
    found: Any = value
    for part in path.split("."):
        found = found.get(part) if isinstance(found, dict) else None
    return found


def merged(value: Any, patch: Any) -> Any:
    """RFC 7396."""
    if not isinstance(patch, dict):
        return patch
    result = dict(value) if isinstance(value, dict) else {}
    for name, part in patch.items():
        if part is None:
            result.pop(name, None)
        else:
            result[name] = merged(result.get(name), part)
    return result


def failing(
    *errors: Callable[[HttpRequest], Exception], times: float = math.inf, method: str = "", name: str = ""
) -> Fault:
    """A fault for matching requests: each of ``errors`` in turn, the last one ``times`` times in all."""
    left: Iterator[int] = iter(range(int(times) if times != math.inf else 10**9))

    def fault(request: HttpRequest) -> Exception | None:
        if (method and request.method != method) or (name and name not in request.path):
            return None
        index = next(left, None)
        return None if index is None else errors[min(index, len(errors) - 1)](request)

    return fault


def unreachable(request: HttpRequest) -> Exception:
    return UnreachableError(str(request), "connection refused")


def hanging(_request: HttpRequest) -> Exception:
    return HangError()


def answering(code: int, reason: str = "", retry_after_s: int = 0) -> Callable[[HttpRequest], Exception]:
    return lambda request: status(request, code, reason, retry_after_s=retry_after_s)
