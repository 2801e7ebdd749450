"""The query parameters and options documents of requests, validated as kube-apiserver does."""

from collections.abc import Mapping
from dataclasses import dataclass

from kerf_dra.api.model.base import JsonObject
from kerf_dra.driver.local.apiserver.meta.status_errors import (
    ApiStatusError,
    FieldError,
    FieldErrors,
    bad_request,
    forbidden,
    invalid,
    not_supported,
    object_invalid,
    quoted,
)

_TRUE = frozenset({"true", "1", "True", "TRUE", "t", "T"})
FIELD_VALIDATIONS = ("Ignore", "Strict", "Warn")


def parse_bool(query: Mapping[str, str], name: str) -> bool:
    return query.get(name, "") in _TRUE


def parse_int(query: Mapping[str, str], name: str) -> int:
    """Return a non-negative integer, 0 when absent. Raises ApiStatusError (400)."""
    text = query.get(name, "")
    if not text:
        return 0
    if not text.isascii() or not text.isdigit():
        raise bad_request(f"strconv.ParseInt: parsing {quoted(text)}: invalid syntax")
    return int(text)


def parse_revision(query: Mapping[str, str]) -> int | None:
    """Return the resource version of a read, None when absent. Raises ApiStatusError (400)."""
    text = query.get("resourceVersion", "")
    if text and not (text.isascii() and text.isdigit()):
        message = f"strconv.ParseUint: parsing {quoted(text)}: invalid syntax"
        raise bad_request(f"invalid resource version: {invalid('resourceVersion', text, message)}")
    return int(text) if text else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ListOptions:
    """The options of a list or watch. ``revision`` None: the most recent state."""

    label_selector: str
    field_selector: str
    revision: int | None
    match: str
    limit: int
    continue_: str
    watch: bool
    bookmarks: bool
    timeout_s: int
    send_initial_events: bool

    @classmethod
    def parse(cls, query: Mapping[str, str]) -> "ListOptions":
        """Parse the query. Raises ApiStatusError (400, 422 for parameters that exclude one another)."""
        options = cls(
            label_selector=query.get("labelSelector", ""),
            field_selector=query.get("fieldSelector", ""),
            revision=parse_revision(query),
            match=query.get("resourceVersionMatch", ""),
            limit=parse_int(query, "limit"),
            continue_=query.get("continue", ""),
            watch=parse_bool(query, "watch"),
            bookmarks=parse_bool(query, "allowWatchBookmarks"),
            timeout_s=parse_int(query, "timeoutSeconds"),
            send_initial_events=parse_bool(query, "sendInitialEvents"),
        )
        errors = list(options._validate_watch() if options.watch else options._validate_list())
        if errors:
            raise object_invalid("meta.k8s.io", "ListOptions", "", errors)
        return options

    def _validate_watch(self) -> FieldErrors:
        field = "resourceVersionMatch"
        if self.match and not self.send_initial_events:
            yield forbidden(field, f"{field} is forbidden for watch unless sendInitialEvents is provided")
        if self.send_initial_events and self.match != "NotOlderThan":
            yield forbidden(field, f"sendInitialEvents requires setting {field} to NotOlderThan")
        if self.continue_:
            yield forbidden("continue", "continue is forbidden for watch")

    def _validate_list(self) -> FieldErrors:
        field = "resourceVersionMatch"
        if not self.match:
            return
        if self.revision is None:
            yield forbidden(field, f"{field} is forbidden unless resourceVersion is provided")
        if self.continue_:
            yield forbidden(field, f"{field} is forbidden when continue is provided")
        if self.match not in {"Exact", "NotOlderThan"}:
            yield not_supported(field, self.match, ("Exact", "NotOlderThan", ""))
        if self.match == "Exact" and self.revision == 0:
            yield forbidden(field, f'{field} "exact" is forbidden for resourceVersion "0"')


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """The options of a create, update or patch."""

    dry_run: bool = False
    field_manager: str = ""
    has_field_manager: bool = False
    """Whether the request names its field manager."""
    field_validation: str = "Ignore"
    force: bool = False

    @classmethod
    def parse(cls, query: Mapping[str, str], *, user_agent: str, kind: str) -> "WriteOptions":
        """Parse the query. Raises ApiStatusError (422). The default field manager is the start of the user agent.

        ``kind`` (CreateOptions, UpdateOptions or PatchOptions) is for the message.
        """
        errors = []
        dry_run = query.get("dryRun", "")
        if dry_run not in {"", "All"}:
            errors.append(not_supported("dryRun", [dry_run], ("All",)))
        manager = query.get("fieldManager", "")
        if len(manager) > _MAX_MANAGER:
            errors.append(invalid("fieldManager", manager, f"may not be more than {_MAX_MANAGER} bytes"))
        validation = query.get("fieldValidation", "") or "Warn"
        if validation not in FIELD_VALIDATIONS:
            errors.append(not_supported("fieldValidation", validation, ("", *FIELD_VALIDATIONS)))
        if errors:
            raise object_invalid("meta.k8s.io", kind, "", errors)
        return cls(
            dry_run=bool(dry_run),
            has_field_manager=bool(manager),
            field_manager=manager or user_agent.split("/", maxsplit=1)[0][:_MAX_MANAGER] or "unknown",
            field_validation=validation,
            force=parse_bool(query, "force"),
        )


_MAX_MANAGER = 128
"""``FieldManagerMaxLength`` of apimachinery."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteOptions:
    """The options of a delete. ``grace_s`` None: the object's own grace period."""

    grace_s: int | None = None
    propagation: str = ""
    uid: str | None = None
    resource_version: str | None = None
    dry_run: bool = False

    @classmethod
    def parse(cls, query: Mapping[str, str], body: JsonObject) -> "DeleteOptions":
        """Parse the body, or else the query. Raises ApiStatusError (400, 422)."""
        grace = body.get("gracePeriodSeconds")
        if grace is None and query.get("gracePeriodSeconds"):
            grace = parse_int(query, "gracePeriodSeconds")
        propagation = body.get("propagationPolicy") or query.get("propagationPolicy") or _orphaning(query, body)
        if propagation not in {"", "Background", "Foreground", "Orphan"}:
            raise _delete_refused(
                not_supported("propagationPolicy", propagation, ("Foreground", "Background", "Orphan", "nil"))
            )
        preconditions = body.get("preconditions") or {}
        return cls(
            grace_s=grace,
            propagation=propagation,
            uid=preconditions.get("uid"),
            resource_version=preconditions.get("resourceVersion"),
            dry_run=bool(body.get("dryRun") or query.get("dryRun")),
        )


def _orphaning(query: Mapping[str, str], body: JsonObject) -> str:
    """Return the propagation policy that ``orphanDependents`` stands for, its predecessor until 1.7."""
    value = body.get("orphanDependents", query.get("orphanDependents"))
    if value is None:
        return ""
    return "Orphan" if value in {True, *_TRUE} else "Background"


def _delete_refused(error: FieldError) -> ApiStatusError:
    return object_invalid("meta.k8s.io", "DeleteOptions", "", [error])
