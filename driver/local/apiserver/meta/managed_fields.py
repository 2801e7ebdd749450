"""Who set which field: ``metadata.managedFields``, and server-side apply on top of it.

Rules (Kubernetes "Server-Side Apply"; ``structured-merge-diff`` ``merge/update.go``): an update owns what it changed
and takes it from everybody else. An apply owns all it says; what another owner set to something else is a conflict,
unless forced; what the same applier said last time, says no more, and nobody else owns, is removed.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from api.model.base import JsonObject
from driver.local.apiserver.meta.apply import merged, removed
from driver.local.apiserver.meta.documents import without
from driver.local.apiserver.meta.field_sets import (
    Fields,
    Path,
    compare,
    fields_of,
    from_fields_v1,
    shown,
    to_fields_v1,
    with_parents,
)
from driver.local.apiserver.meta.merge_keys import Shape
from driver.local.apiserver.meta.status_errors import RefusedError, apply_conflict, bad_request, quoted

_BEFORE_FIRST_APPLY: Final = "before-first-apply"
"""Owns what an object without any owners already had when it is applied to for the first time."""

# Nobody owns these: they identify the object, or the server sets them.
_UNOWNED: Final[Fields] = frozenset(
    {
        ("f:apiVersion",),
        ("f:kind",),
        ("f:metadata",),
        *(
            ("f:metadata", f"f:{name}")
            for name in (
                "name",
                "namespace",
                "creationTimestamp",
                "selfLink",
                "uid",
                "generation",
                "managedFields",
                "resourceVersion",
            )
        ),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Author:
    """Who writes, through which version and endpoint, and when."""

    manager: str
    api_version: str
    subresource: str
    time: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Owner:
    """What makes two entries of ``managedFields`` the same owner. Applies are the same over versions."""

    manager: str
    operation: str
    api_version: str
    subresource: str


@dataclass(frozen=True, slots=True)
class _Owned:
    api_version: str
    time: str
    fields: Fields


_Owners: TypeAlias = dict[_Owner, _Owned]


def _decoded(entries: Iterable[JsonObject]) -> _Owners:
    owners: _Owners = {}
    for entry in entries:
        operation, api_version = entry.get("operation", ""), entry.get("apiVersion", "")
        owner = _Owner(
            manager=entry.get("manager", ""),
            operation=operation,
            api_version=api_version if operation == "Update" else "",
            subresource=entry.get("subresource", ""),
        )
        owners[owner] = _Owned(api_version, entry.get("time", ""), from_fields_v1(entry.get("fieldsV1") or {}))
    return owners


def _encoded(owners: Mapping[_Owner, _Owned]) -> list[JsonObject]:
    entries = []
    for owner, owned in owners.items():
        entry = {
            "manager": owner.manager,
            "operation": owner.operation,
            "apiVersion": owned.api_version,
            "time": owned.time,
            "fieldsType": "FieldsV1",
            "fieldsV1": to_fields_v1(owned.fields),
            "subresource": owner.subresource,
        }
        entries.append({name: value for name, value in entry.items() if value or name == "manager"})
    return sorted(entries, key=lambda entry: (entry["operation"], entry.get("time", ""), entry["manager"]))


def _present_entries(old: JsonObject | None, new: JsonObject) -> list[JsonObject]:
    """The entries that a write starts from: the client may hand in its own, or reset them with ``[{}]``."""
    given = new["metadata"].get("managedFields")
    if given == [{}]:
        return []
    return given or (old["metadata"].get("managedFields") if old else None) or []


def after_update(
    old: JsonObject | None, new: JsonObject, *, author: Author, shape: Shape, zero: JsonObject
) -> list[JsonObject]:
    """The entries after an update from ``old`` (None: a creation) to ``new``.

    ``zero`` is what every object of the kind has even when it is empty: nobody comes to own that by writing into it.
    """
    owners = _decoded(_present_entries(old, new))
    if old is not None and not owners:
        return []  # tracking starts at creation or with the first apply, never in between
    before = _filled(_without_managed(old or {"metadata": {}}), zero)
    change = compare(before, _without_managed(new), shape)
    taken = change.written - _UNOWNED
    owners = {
        owner: _Owned(owned.api_version, owned.time, owned.fields - taken - change.removed)
        for owner, owned in owners.items()
    }
    if taken:
        self = _Owner(
            manager=author.manager,
            operation="Update",
            api_version=author.api_version,
            subresource=author.subresource,
        )
        had = owners[self].fields if self in owners else frozenset()
        owners[self] = _Owned(author.api_version, author.time, had | taken)
    return _encoded({owner: owned for owner, owned in owners.items() if owned.fields})


def apply(live: JsonObject | None, applied: JsonObject, *, author: Author, shape: Shape, force: bool) -> JsonObject:
    """The object after an apply, with its new ``managedFields``.

    Raises RefusedError: 400 when ``applied`` brings managedFields, 409 with one cause for each conflicting field.
    """
    if applied.get("metadata", {}).get("managedFields") is not None:
        raise bad_request("metadata.managedFields must be nil")
    base = live or {"metadata": {}}
    owners = _decoded(base["metadata"].get("managedFields") or [])
    base = _without_managed(base)
    if live is not None and not owners:
        owners = _unclaimed(base, author, shape)
    self = _Owner(manager=author.manager, operation="Apply", api_version="", subresource=author.subresource)
    said = fields_of(applied, shape) - _UNOWNED
    last = owners[self].fields if self in owners else frozenset()
    others = {owner: owned for owner, owned in owners.items() if owner != self}
    everybody = frozenset().union(said, *(owned.fields for owned in others.values()))
    laid_over = merged(base, without(applied, "kind", "apiVersion"), shape)
    result = _with_what_is_unsaid_removed(laid_over, last, everybody, shape)
    change = compare(base, result, shape)
    if not force:
        _check_conflicts(others, change.written)
    kept = {
        owner: _Owned(owned.api_version, owned.time, owned.fields - change.written - change.removed)
        for owner, owned in others.items()
    }
    # The time is that of the last apply that changed something; of one that never did there is none.
    before = owners[self].time if self in owners else ""
    time = before if result == base else author.time
    kept[self] = _Owned(author.api_version, time, said)
    entries = _encoded({owner: owned for owner, owned in kept.items() if owned.fields})
    named: JsonObject = {name: applied[name] for name in ("kind", "apiVersion") if name in applied}
    return {**named, **result, "metadata": {**result["metadata"], "managedFields": entries}}


def _unclaimed(base: JsonObject, author: Author, shape: Shape) -> _Owners:
    owner = _Owner(
        manager=_BEFORE_FIRST_APPLY, operation="Update", api_version=author.api_version, subresource=author.subresource
    )
    fields = compare({"metadata": {}}, base, shape).written - _UNOWNED
    return {owner: _Owned(author.api_version, author.time, fields)} if fields else {}


def _with_what_is_unsaid_removed(document: JsonObject, last: Fields, everybody: Fields, shape: Shape) -> JsonObject:
    """Takes out what this applier said last time and nobody says now."""
    claimed = with_parents(last)
    there = with_parents(fields_of(document, shape))
    left = with_parents(fields_of(removed(document, claimed, shape), shape))
    unwanted = (there & claimed) - left - with_parents(everybody) - _UNOWNED
    return removed(document, unwanted, shape) if unwanted else document


def _check_conflicts(others: Mapping[_Owner, _Owned], written: Fields) -> None:
    conflicts = {
        owner: sorted(owned.fields & written, key=_members_first)
        for owner, owned in others.items()
        if owned.fields & written
    }
    if conflicts:
        raise _conflict(conflicts)


def _members_first(path: Path) -> list[tuple[bool, str]]:
    """Of each level first what ends there, then what goes on."""
    return [(index < len(path) - 1, step) for index, step in enumerate(path)]


def _conflict(conflicts: Mapping[_Owner, list[Path]]) -> RefusedError:
    said = {owner: _said_owner(owner) for owner in conflicts}
    causes = [
        {"reason": "FieldManagerConflict", "message": f"conflict with {said[owner]}", "field": shown(path)}
        for owner, paths in conflicts.items()
        for path in paths
    ]
    if len(causes) == 1:
        return apply_conflict(f"Apply failed with 1 conflict: {causes[0]['message']}: {causes[0]['field']}", causes)
    lines = []
    for owner in sorted(conflicts, key=lambda owner: said[owner]):
        lines.append(f"conflicts with {said[owner]}:")
        lines += [f"- {shown(path)}" for path in conflicts[owner]]
    return apply_conflict(f"Apply failed with {len(causes)} conflicts: " + "\n".join(lines), causes)


def _said_owner(owner: _Owner) -> str:
    name = quoted(owner.manager)
    if owner.subresource:
        name += f" with subresource {quoted(owner.subresource)}"
    if owner.operation == "Update":
        name += f" using {owner.api_version}"
    return name


def _filled(document: JsonObject, zero: JsonObject) -> JsonObject:
    """The document with what it lacks of ``zero``."""
    out = {**zero, **document}
    for name, value in zero.items():
        if isinstance(value, dict) and isinstance(out[name], dict):
            out[name] = _filled(out[name], value)
    return out


def _without_managed(document: JsonObject) -> JsonObject:
    body = without(document, "kind", "apiVersion")
    return {**body, "metadata": without(body["metadata"], "managedFields")}


def same(new: JsonObject, old: JsonObject) -> bool:
    """Whether a write changes nothing: a newer time stamp of an owner is no change."""
    if without(new, "metadata") != without(old, "metadata"):
        return False
    return _timeless(new["metadata"]) == _timeless(old["metadata"])


def _timeless(metadata: JsonObject) -> JsonObject:
    entries = metadata.get("managedFields") or []
    return {**metadata, "managedFields": [without(entry, "time") for entry in entries]}
