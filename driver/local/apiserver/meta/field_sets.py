"""Sets of fields of a document, and what differs between two documents: the basis of ``managedFields``.

A path is a tuple of path elements in the spelling of FieldsV1: ``f:name`` for a field, ``k:{"name":"a"}`` for the item
of a list of type map, ``v:"a"`` for a value of a list of type set. Items have no index: they keep their identity
wherever they stand. A field set is a plain set of paths; ``{"a": {"b": 1}}`` sets ``{("f:a", "f:b")}``.
Source: ``sigs.k8s.io/structured-merge-diff`` v6 (``fieldpath``, ``typed``).
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, TypeAlias

import msgspec

from kerf_dra.api.model.base import JsonObject
from kerf_dra.driver.local.apiserver.meta.documents import JsonValue
from kerf_dra.driver.local.apiserver.meta.merge_schema import MergeSchema

FieldPath: TypeAlias = tuple[str, ...]
FieldSet: TypeAlias = frozenset[FieldPath]

_MEMBER: Final = "."
"""The key in FieldsV1 which says that a path is itself a member of the set, beside its children."""
_ABSENT: Final = object()


def to_fields_v1(fields: Iterable[FieldPath]) -> JsonObject:
    """Return the nested form in which ``managedFields`` stores a set."""
    paths = sorted(fields)
    root: JsonObject = {}
    for path in paths:
        node = root
        for step in path:
            node = node.setdefault(step, {})
        node[_MEMBER] = {}
    return _without_lone_members(root)


def _without_lone_members(node: JsonObject) -> JsonObject:
    if node.keys() == {_MEMBER}:
        return {}
    return {step: _without_lone_members(child) for step, child in sorted(node.items())}


def from_fields_v1(node: JsonObject) -> FieldSet:
    """Return the set that an entry of ``managedFields`` stores."""
    return frozenset(_members(node, ()))


def _members(node: JsonObject, path: FieldPath) -> Iterator[FieldPath]:
    for step, child in node.items():
        if step == _MEMBER:
            yield path
        elif not child:
            yield (*path, step)
        else:
            yield from _members(child, (*path, step))


def with_parents(fields: Iterable[FieldPath]) -> FieldSet:
    """Return the set with all parents of its members: who removes the last child removes the parent too."""
    everything = set(fields)
    for path in list(everything):
        everything.update(path[:end] for end in range(1, len(path)) if path[end - 1].startswith("f:"))
    return frozenset(everything)


def path_element(item: JsonValue, schema: MergeSchema) -> str:
    """Return the path element of an item of an associative list."""
    if schema.keys:
        fields = item if isinstance(item, dict) else {}
        key = {name: fields.get(name, schema.key_defaults.get(name)) for name in sorted(schema.keys)}
        present = {name: value for name, value in key.items() if value is not None}
        return "k:" + msgspec.json.encode(present).decode()
    return "v:" + msgspec.json.encode(item).decode()


def is_associative(schema: MergeSchema) -> bool:
    """Whether a list is associative, i.e. its items have an identity: a list of type map or set."""
    return bool(schema.keys) or schema.unique


def field_set_of(document: JsonObject, schema: MergeSchema) -> FieldSet:
    """Return the fields that a document sets: an apply of it owns them."""
    return frozenset(_fields_in(document, schema, ()))


def _fields_in(value: JsonValue, schema: MergeSchema, path: FieldPath) -> Iterator[FieldPath]:
    if isinstance(value, dict) and not schema.atomic:
        for name, child in value.items():
            here = (*path, f"f:{name}")
            inner = schema.of(name)
            yield from _fields_in(child, inner, here)
            free_form = schema.items is not None and name not in schema.fields
            if child is None or child == {} or (free_form and isinstance(child, dict | list)):
                yield here
    elif isinstance(value, list) and is_associative(schema):
        for item in value:
            here = (*path, path_element(item, schema))
            yield from _fields_in(item, schema.of_items, here)
            yield here
    else:
        yield path


@dataclass(frozen=True, slots=True)
class FieldComparison:
    """The fields in which one document differs from another (``typed.Comparison``)."""

    added: FieldSet
    modified: FieldSet
    removed: FieldSet

    @property
    def written(self) -> FieldSet:
        return self.added | self.modified


def compare(old: JsonObject, new: JsonObject, schema: MergeSchema) -> FieldComparison:
    """Return what ``new`` adds to ``old``, changes in it, and removes from it."""
    walk = _ComparisonWalker(set(), set(), set())
    walk.value(old, new, schema, ())
    return FieldComparison(*map(frozenset, (walk.added, walk.modified, walk.removed)))


_Part: TypeAlias = tuple[str, JsonValue, JsonValue, MergeSchema]
"""A path element, the two values there, and their merge schema."""


@dataclass(slots=True)
class _ComparisonWalker:
    added: set[FieldPath]
    modified: set[FieldPath]
    removed: set[FieldPath]

    def value(self, old: JsonValue, new: JsonValue, schema: MergeSchema, path: FieldPath) -> None:
        if old is new or old == new:
            return
        parts = self._parts(old, new, schema)
        if parts is None:
            self._leaf(old, new, path)
            if type(old) is not type(new):
                # An object became a scalar, or the reverse: its old content is removed, its new content added.
                self.removed.update(inner for inner in _fields_in(old, schema, path) if inner != path)
                self.added.update(inner for inner in _fields_in(new, schema, path) if inner != path)
            return
        for step, old_part, new_part, inner in parts:
            self.value(old_part, new_part, inner, (*path, step))
        if path and (old is _ABSENT or new is _ABSENT):
            (self.added if old is _ABSENT else self.removed).add(path)

    def _leaf(self, old: object, new: object, path: FieldPath) -> None:
        if old is _ABSENT:
            self.added.add(path)
        elif new is _ABSENT:
            self.removed.add(path)
        else:
            self.modified.add(path)

    @staticmethod
    def _parts(old: JsonValue, new: JsonValue, schema: MergeSchema) -> list[_Part] | None:
        """Return the children of both values, paired by path element; None where the value is compared as a whole."""
        present = [side for side in (old, new) if side is not _ABSENT]
        if not any(present) or schema.atomic:  # two empty values are a leaf: empty and absent differ
            return None
        if all(isinstance(side, dict) for side in present):
            before, after = ({} if side is _ABSENT else side for side in (old, new))
            return [
                (f"f:{name}", before.get(name, _ABSENT), after.get(name, _ABSENT), schema.of(name))
                for name in {**before, **after}
            ]
        if is_associative(schema) and all(isinstance(side, list) for side in present):
            before, after = (
                {} if side is _ABSENT else {path_element(item, schema): item for item in side} for side in (old, new)
            )
            return [
                (step, before.get(step, _ABSENT), after.get(step, _ABSENT), schema.of_items)
                for step in {**before, **after}
            ]
        return None


def format_path(path: FieldPath) -> str:
    """Return a path as messages about conflicts print it: ``.spec.containers[name="a"].image``."""
    return "".join(map(_format_element, path))


def _format_element(step: str) -> str:
    kind, _, rest = step.partition(":")
    if kind == "f":
        return f".{rest}"
    if kind == "k":
        pairs = msgspec.json.decode(rest).items()
        return "[" + ",".join(f"{name}={msgspec.json.encode(value).decode()}" for name, value in pairs) + "]"
    return f"[={rest}]"
