"""Calls to the API server on objects of any kind that ``api`` knows.

Objects are decoded to values of the model and lose the fields that it does not have. So never write back what was read:
change fields by ``patch`` or ``apply``; ``update`` is for objects that Kerf owns as a whole.

Every answer passes one door before it is decoded: one that is not the object asked for (``answer_identity``) is no
answer, is counted, and raises UnexpectedAnswerError. The answers to ``delete`` and ``create_subresource`` are not read.
"""

import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from enum import StrEnum
from random import Random
from types import TracebackType
from typing import Any, Final, Generic, Self, TypeAlias

import msgspec

from kerf_dra.api.model.base import JsonObject
from kerf_dra.api.model.metadata import ObjectT
from kerf_dra.api.model.names import ObjectRef
from kerf_dra.api.wire import Kind, ListMeta, ObjectList, UndecodableObjectError
from kerf_dra.driver.kube.http.answer_identity import ExpectedAnswer, find_mismatch
from kerf_dra.driver.kube.http.credentials import Access
from kerf_dra.driver.kube.http.errors import (
    AnswerTooLargeError,
    ExpiredError,
    InconsistentAnswerError,
    InvalidError,
    MissingObject,
    NotFoundError,
    UnexpectedAnswerError,
)
from kerf_dra.driver.kube.http.list_progress import ListProgress
from kerf_dra.driver.kube.http.transport import ClientSettings, HttpRequest, HttpTransport, Transport
from kerf_dra.driver.kube.http.write_history import WriteHistory
from kerf_dra.driver.kube.watch_decoder import EventType, ListPage, WatchEvent, decode_event, decode_object, decode_page
from kerf_dra.driver.runtime import metrics

PAGE: Final = 500
"""Objects per page of a list, as in client-go: some 20 MiB of GPUs' slices."""
_SMALLER_PAGES: Final = (100, 10)
"""Objects per page where larger ones are too large to read: slices of 100 KB fit in the first size, and ten of the
largest objects (1.5 MiB) in the last."""

JsonPatch: TypeAlias = list[JsonObject]
"""Operations of RFC 6902."""

_MOST_REPORTED: Final = 10_000
"""The unreadable objects that one client reports: a user who creates them must not fill memory or log."""

_LONGEST_REASON: Final = 500
"""Characters of the reason why an answer is none: it quotes the answer."""

_log = logging.getLogger(__name__)

_unreadable: Final = metrics.counter(
    "kerf_unreadable_objects_total",
    "Objects of the API server that cannot be read, as a whole (object) or in part; each name counts once.",
    ("resource", "extent"),
)
_unexpected: Final = metrics.counter(
    "kerf_api_unexpected_answers_total",
    "Answers and watch events that are not what was asked for: another object, kind or version, or no JSON.",
    ("method", "resource"),
)


class PatchType(StrEnum):
    """The format of a patch; the value is its content type."""

    MERGE = "application/merge-patch+json"
    """RFC 7396: objects are merged, lists replaced, null removes."""
    JSON = "application/json-patch+json"
    """RFC 6902: a list of operations."""
    APPLY = "application/apply-patch+yaml"
    """Server-side apply (KEP-555); JSON is YAML."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListResult(Generic[ObjectT]):
    """All objects of a list at ``resource_version``; ``unreadable`` are those of an unknown shape."""

    resource_version: str
    items: tuple[ObjectT, ...]
    unreadable: frozenset[ObjectRef]

    @classmethod
    def of_pages(cls, pages: Sequence[ListPage[ObjectT]]) -> Self:
        """Return the list of which these are all pages, one at least."""
        return cls(
            resource_version=pages[-1].metadata.resource_version,
            items=tuple(item for page in pages for item in page.items),
            unreadable=frozenset(ref for page in pages for ref in page.unreadable),
        )


class Client:
    """A client of one API server as one user: ``async with Client(access, user_agent=…) as client``.

    ``user_agent`` is ``name/version``; the server takes the name as field manager where none is given. ``transport``
    replaces HTTP to ``access``.

    Every call ends within ``settings.call_timeout_s``. Every call raises subclasses of ApiError, UnexpectedAnswerError
    among them when the answer is not what was asked for or cannot be read, and AccessError when there are no
    credentials.
    """

    def __init__(
        self,
        access: Access,
        *,
        user_agent: str,
        settings: ClientSettings | None = None,
        random: Random | None = None,
        transport: Transport | None = None,
        history: WriteHistory | None = None,
    ) -> None:
        """``history`` is asked before each write whether another program undoes it again and again; None: no matter."""
        settings = settings or ClientSettings()
        self.calls_at_once: Final = settings.calls_at_once
        self._transport: Transport = transport or HttpTransport(
            access,
            user_agent=user_agent,
            settings=settings,
            random=random or Random(),  # noqa: S311  (jitter, not a secret)
        )
        self._most_pages: Final = settings.most_pages
        self._history = history
        self._reported: set[tuple[str, ObjectRef]] = set()
        self._unexpected: set[tuple[str, str]] = set()
        """Methods and resources whose latest answer was none."""

    async def __aenter__(self) -> Self:
        await self._transport.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._transport.__aexit__(kind, error, traceback)

    async def get(self, kind: Kind[ObjectT], name: str, namespace: str = "", *, resource_version: str = "") -> ObjectT:
        """Read one object. What is nested too deeply in it is cut off (``json_limits``), and logged once.

        With ``resource_version`` the server may answer from its cache, which must not be older; 0: any. Raises
        NotFoundError for any 404: ``find`` says whether the object does not exist.
        """
        query = {"resourceVersion": resource_version} if resource_version else {}
        request = self._build_request("GET", kind, namespace, name, query=query)
        return await self._call_for(kind, request, ExpectedAnswer.of_object(kind, namespace, name))

    async def find(
        self, kind: Kind[ObjectT], name: str, namespace: str = "", *, resource_version: str = ""
    ) -> ObjectT | None:
        """Read one object as ``get`` does; None: the API server itself says that this object does not exist.

        Any other 404, such as a proxy's page or that of a version that is not served, is an UnexpectedAnswerError.
        """
        try:
            return await self.get(kind, name, namespace, resource_version=resource_version)
        except NotFoundError as error:
            if error.missing == MissingObject(kind.group, kind.plural, name):
                return None
            reason = f"no answer that {kind.kind} {ObjectRef(namespace, name)} does not exist: {error.message}"
            raise self._refuse("GET", kind.plural, error.call, reason) from error

    async def list(
        self, kind: Kind[ObjectT], namespace: str = "", *, label_selector: str = "", field_selector: str = ""
    ) -> ObjectList[ObjectT]:
        """List all objects, in pages; without a namespace: of all namespaces.

        Objects that cannot be read are logged and omitted. Raises InconsistentAnswerError when the list does not end,
        or says itself that it is incomplete.
        """
        listed = await self.list_all(kind, namespace, label_selector=label_selector, field_selector=field_selector)
        return ObjectList(ListMeta(resource_version=listed.resource_version), listed.items)

    async def list_all(
        self, kind: Kind[ObjectT], namespace: str = "", *, label_selector: str = "", field_selector: str = ""
    ) -> ListResult[ObjectT]:
        """List objects as ``list`` does, and name those that cannot be read."""
        listed = self.list_in_pages(kind, namespace, label_selector=label_selector, field_selector=field_selector)
        pages: Sequence[ListPage[ObjectT]] = ()
        async for so_far in listed:
            pages = so_far
        return ListResult.of_pages(pages)

    async def list_in_pages(
        self, kind: Kind[ObjectT], namespace: str = "", *, label_selector: str = "", field_selector: str = ""
    ) -> AsyncGenerator[Sequence[ListPage[ObjectT]], None]:
        """List objects as ``list_all`` does, and yield all pages read so far after each page, at last the whole list.

        The list may begin again, with smaller pages or in one: then fewer objects are yielded than before.
        """
        query = _selectors(label_selector, field_selector)
        for size in (PAGE, *_SMALLER_PAGES):
            pages: list[ListPage[ObjectT]] = []
            try:
                async for page in self._pages(kind, namespace, query | {"limit": str(size)}):
                    pages.append(page)
                    yield pages
            except AnswerTooLargeError:
                if size == _SMALLER_PAGES[-1]:
                    raise
            except ExpiredError:
                if not pages:
                    raise
                break  # the pages took longer than the server keeps its state, some five minutes
            else:
                return
        pages = []
        async for page in self._pages(kind, namespace, query):  # in one
            pages.append(page)
            yield pages

    async def create(
        self,
        kind: Kind[ObjectT],
        value: ObjectT,
        *,
        namespace: str = "",
        field_manager: str = "",
        dry_run: bool = False,
    ) -> ObjectT:
        """Create an object. The result is the object as the server stored it, which may lack fields of ``value``.

        With ``dry_run`` nothing is stored (KEP-576). Raises AlreadyExistsError when there is an object of this name.
        """
        query = {"fieldManager": field_manager} if field_manager else {}
        if dry_run:
            query["dryRun"] = "All"
        namespace = namespace or value.metadata.namespace
        request = self._build_request("POST", kind, namespace, query=query, text=kind.encode_body(value))
        expected = ExpectedAnswer.of_object(kind, namespace, value.metadata.name, is_stored=not dry_run)
        return await self._call_for(kind, request, expected)

    async def create_subresource(self, kind: Kind[ObjectT], value: ObjectT, subresource: str) -> None:
        """Create the ``subresource`` of the existing object of ``value``'s name, such as a pod's binding.

        Raises NotFoundError when there is no such object, ConflictError when it has the subresource already.
        """
        namespace, name = value.ref
        text = kind.encode_body(value)
        await self._transport.call(self._build_request("POST", kind, namespace, name, subresource, text=text))

    async def update(self, kind: Kind[ObjectT], value: ObjectT, *, subresource: str = "") -> ObjectT:
        """Replace the whole object (PUT).

        Raises ConflictError when it is no longer at ``value``'s resource version, NotFoundError when it does not exist.
        """
        namespace, name = value.ref
        request = self._build_request("PUT", kind, namespace, name, subresource, text=kind.encode_body(value))
        expected = ExpectedAnswer.of_object(kind, namespace, name, uid=value.metadata.uid)
        return await self._call_for(kind, request, expected)

    async def patch(
        self,
        kind: Kind[ObjectT],
        name: str,
        patch: JsonObject | JsonPatch,
        *,
        type: PatchType,  # noqa: A002  (the usual name)
        namespace: str = "",
        subresource: str = "",
        field_manager: str = "",
        force: bool = False,
    ) -> ObjectT:
        """Change some fields. ``force`` takes over fields from other managers; only for APPLY."""
        query = {"fieldManager": field_manager} if field_manager else {}
        if force:
            query["force"] = "true"
        request = self._build_request(
            "PATCH", kind, namespace, name, subresource, query=query, body=patch, content_type=type.value
        )
        uid = patch.get("metadata", {}).get("uid", "") if isinstance(patch, dict) else ""
        return await self._call_for(kind, request, ExpectedAnswer.of_object(kind, namespace, name, uid=uid))

    async def apply(
        self,
        kind: Kind[ObjectT],
        value: JsonObject,
        *,
        field_manager: str,
        subresource: str = "",
        force: bool = True,
    ) -> ObjectT:
        """Set the fields of ``value``, and remove those that this manager applied before (server-side apply).

        Name and namespace are in its metadata; ``apiVersion`` and ``kind`` are added. Raises ConflictError when another
        manager owns a field and ``force`` is off.
        """
        metadata = value["metadata"]
        return await self.patch(
            kind,
            metadata["name"],
            {"apiVersion": kind.api_version, "kind": kind.kind, **value},
            type=PatchType.APPLY,
            namespace=metadata.get("namespace", ""),
            subresource=subresource,
            field_manager=field_manager,
            force=force,
        )

    async def delete(
        self,
        kind: Kind[ObjectT],
        name: str,
        namespace: str = "",
        *,
        uid: str | None = None,
        resource_version: str | None = None,
        grace_s: int | None = None,
    ) -> None:
        """Delete one object; it may stay until its finalizers are removed.

        Raises NotFoundError when it does not exist, ConflictError when its UID or resource version is not the given
        one.
        """
        preconditions = {"uid": uid, "resourceVersion": resource_version}
        options: JsonObject = {"apiVersion": "v1", "kind": "DeleteOptions"}
        if uid is not None or resource_version is not None:
            options["preconditions"] = {key: value for key, value in preconditions.items() if value is not None}
        if grace_s is not None:
            options["gracePeriodSeconds"] = grace_s
        request = self._build_request("DELETE", kind, namespace, name, body=options)
        write = self._history.begin(kind, request, ObjectRef(namespace, name)) if self._history is not None else None
        await self._transport.call(request)
        if self._history is not None and write is not None:
            self._history.note(write, "")

    def forget_write(self, kind: Kind[Any], ref: ObjectRef) -> None:
        """Note that this program has a reason of its own to repeat its last write of an object (``WriteHistory``)."""
        if self._history is not None:
            self._history.forget(kind, ref)

    async def watch(
        self,
        kind: Kind[ObjectT],
        namespace: str = "",
        *,
        resource_version: str,
        label_selector: str = "",
        field_selector: str = "",
    ) -> AsyncGenerator[WatchEvent[ObjectT], None]:
        """Yield the changes after ``resource_version``, until the server ends the watch, as it does every hour or so.

        Close the generator when leaving it early (``contextlib.aclosing``). An object that cannot be read is logged
        once. Raises ExpiredError when ``resource_version`` is too old, UnexpectedAnswerError for a line that is no
        event of the kind.
        """
        query = _selectors(label_selector, field_selector) | {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": resource_version,
        }
        request = HttpRequest(method="GET", path=kind.path(namespace), resource=kind.plural, query=query)
        async with aclosing(self._transport.lines(request)) as lines:
            async for line in lines:
                event = self._decode_event(kind, request, line)
                if event.unreadable is not None and event.ref is not None:
                    self._report(kind, event.ref, event.unreadable, is_ignored=event.object is None)
                yield event

    async def get_json(self, path: str, *, has: str = "") -> JsonObject:
        """Read the JSON object at ``path``, for discovery and version; ``has`` is a field that each such object has."""
        request = HttpRequest(method="GET", path=path, resource="discovery")
        body = await self._transport.call(request)
        try:
            found = msgspec.json.decode(body, type=JsonObject)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise self._refuse_answer(request, f"the answer is no JSON object: {error}") from error
        if has and has not in found:
            raise self._refuse_answer(request, f"the answer has no {has}: {sorted(found)!r:.200}")
        return found

    async def _pages(
        self, kind: Kind[ObjectT], namespace: str, query: dict[str, str]
    ) -> AsyncGenerator[ListPage[ObjectT], None]:
        more, progress = "", ListProgress(int(query.get("limit", PAGE)), self._most_pages)
        while True:
            request = self._build_request("GET", kind, namespace, query={**query, "continue": more} if more else query)
            page = await self._call_for_page(kind, request)
            for ref, error in page.unreadable.items():
                self._report(kind, ref, error, is_ignored=True)
            for ref, error in page.shortened.items():
                self._report(kind, ref, error, is_ignored=False)
            yield page
            more = page.metadata.continue_
            refs = (*(value.ref for value in page.items), *page.unreadable)
            if (reason := progress.note_page(refs, more)) is not None:
                raise InconsistentAnswerError(f"GET {kind.path(namespace)}", f"the list does not end: {reason}")
            if not more:
                if left := page.metadata.remaining_item_count or 0:
                    reason = f"the list is incomplete: its last page says that {left} objects follow"
                    raise InconsistentAnswerError(f"GET {kind.path(namespace)}", reason)
                return

    def _build_request(
        self,
        method: str,
        kind: Kind[Any],
        namespace: str,
        name: str | None = None,
        subresource: str = "",
        *,
        query: dict[str, str] | None = None,
        body: object = None,
        text: bytes | None = None,
        content_type: str = "application/json",
    ) -> HttpRequest:
        """Build a request to a collection (``name`` is None) or to an object. Raises InvalidError.

        Its body is the JSON of ``body``, or ``text``.
        """
        request = HttpRequest(
            method=method,
            path=kind.path(namespace, name or "", subresource),
            resource=kind.plural,
            query=query or {},
            # The API server sorts the keys of opaque parameters in a server-side apply of any field, and then takes
            # parameters that it keeps in another order for changed.
            body=text if body is None else msgspec.json.encode(body, order="deterministic"),
            content_type=content_type,
            is_object_read=method == "GET" and name is not None,
        )
        if name is not None:
            _check_name(request, kind, ObjectRef(namespace, name))
        return request

    async def _call_for(self, kind: Kind[ObjectT], request: HttpRequest, expected: ExpectedAnswer) -> ObjectT:
        """Send ``request``, and decode the answer if it is the ``expected`` object."""
        if self._history is None or request.method == "GET" or "dryRun" in request.query:
            return await self._send_for(kind, request, expected)
        write = self._history.begin(kind, request, ObjectRef(expected.namespace, expected.name))
        value = await self._send_for(kind, request, expected)
        self._history.note(write, value.metadata.uid)
        return value

    async def _send_for(self, kind: Kind[ObjectT], request: HttpRequest, expected: ExpectedAnswer) -> ObjectT:
        body = await self._transport.call(request)
        self._check(request, expected, body)
        try:
            decoded = decode_object(kind, body)
        except UndecodableObjectError as error:
            raise self._refuse_answer(request, f"cannot read {expected}: {error.reason}") from error
        if decoded.unreadable is not None:
            self._report(kind, decoded.value.ref, decoded.unreadable, is_ignored=False)
        return decoded.value

    async def _call_for_page(self, kind: Kind[ObjectT], request: HttpRequest) -> ListPage[ObjectT]:
        body = await self._transport.call(request)
        self._check(request, ExpectedAnswer.of_list(kind), body)
        try:
            return decode_page(kind, body)
        except UndecodableObjectError as error:
            raise self._refuse_answer(request, str(error)) from error

    def _decode_event(self, kind: Kind[ObjectT], request: HttpRequest, line: bytes) -> WatchEvent[ObjectT]:
        try:
            return decode_event(kind, str(request), line)
        except UndecodableObjectError as error:
            raise self._refuse_answer(request, str(error)) from error

    def _check(self, request: HttpRequest, expected: ExpectedAnswer, body: bytes) -> None:
        if (mismatch := find_mismatch(expected, body)) is not None:
            raise self._refuse_answer(request, f"the answer is not {expected}: {mismatch}")
        self._unexpected.discard((request.method, request.resource))

    def _refuse_answer(self, request: HttpRequest, reason: str) -> UnexpectedAnswerError:
        return self._refuse(request.method, request.resource, str(request), reason)

    def _refuse(self, method: str, resource: str, call: str, reason: str) -> UnexpectedAnswerError:
        """Count an answer that is none, log the first of several, and return the error that says so."""
        doubt = "" if method == "GET" else "; the write may have happened"
        error = UnexpectedAnswerError(call, f"{reason:.{_LONGEST_REASON}}{doubt}")
        _unexpected.labels(method, resource).inc()
        if (method, resource) not in self._unexpected:
            self._unexpected.add((method, resource))
            _log.warning("%s; it counts as no answer, and is asked for again", error)
        return error

    def _report(self, kind: Kind[ObjectT], ref: ObjectRef, error: UndecodableObjectError, *, is_ignored: bool) -> None:
        """Log and count an object that cannot be read as a whole, once."""
        if (kind.plural, ref) in self._reported or len(self._reported) >= _MOST_REPORTED:
            return
        self._reported.add((kind.plural, ref))
        _unreadable.labels(kind.plural, "object" if is_ignored else "part").inc()
        consequence = "it is ignored until it can be read" if is_ignored else "the rest of it counts"
        _log.error("%s %s: %s; %s", kind.kind, ref, error, consequence)


def _selectors(label_selector: str, field_selector: str) -> dict[str, str]:
    selectors = {"labelSelector": label_selector, "fieldSelector": field_selector}
    return {name: selector for name, selector in selectors.items() if selector}


def _check_name(request: HttpRequest, kind: Kind[ObjectT], ref: ObjectRef) -> None:
    """Refuse names that would make the path that of another object (``IsValidPathSegmentName`` upstream)."""
    segments = (ref.namespace, ref.name) if kind.namespaced else (ref.name,)
    if any(segment in {"", ".", ".."} or "/" in segment or "%" in segment for segment in segments):
        raise InvalidError(str(request), 400, "BadRequest", f"{ref!s:.300} cannot be the name of a {kind.kind}")


__all__ = ["PAGE", "Client", "ClientSettings", "EventType", "ListResult", "PatchType", "WatchEvent"]
