"""The document work of server-side apply: laying a configuration over a live object, and taking fields out of one.

Source: ``sigs.k8s.io/structured-merge-diff`` v6, ``typed/merge.go`` and ``typed/remove.go``.
"""

from collections.abc import Iterator
from typing import Any

from api.model.base import JsonObject
from driver.local.apiserver.meta.field_sets import Fields, Path, is_keyed, item_step
from driver.local.apiserver.meta.merge_keys import Shape


def merged(live: Any, applied: Any, shape: Shape) -> Any:  # noqa: ANN401  (any JSON)
    """``live`` with what ``applied`` says; keyed lists merge item by item, other values are those of ``applied``."""
    if isinstance(live, dict) and isinstance(applied, dict) and not shape.atomic:
        out = dict(live)
        for name, value in applied.items():
            out[name] = merged(live[name], value, shape.of(name)) if name in live else value
        return out
    if isinstance(live, list) and isinstance(applied, list) and is_keyed(shape):
        return list(_merged_items(live, applied, shape))
    return live if applied is None else applied


def _merged_items(live: list[Any], applied: list[Any], shape: Shape) -> Iterator[Any]:
    """Items of both, each once: those of ``applied`` in its order, with live-only items where they stood before."""
    ours = {item_step(item, shape): item for item in applied}
    theirs = {item_step(item, shape): item for item in live}
    waiting = list(ours)
    for step, item in theirs.items():
        if step not in ours:
            yield item
            continue
        # Everything applied up to and including this shared item comes now, unless an earlier turn brought it.
        if step in waiting:
            end = waiting.index(step) + 1
            yield from (_merged_item(theirs.get(each), ours[each], shape) for each in waiting[:end])
            del waiting[:end]
    yield from (_merged_item(theirs.get(each), ours[each], shape) for each in waiting)


def _merged_item(live: Any, applied: Any, shape: Shape) -> Any:  # noqa: ANN401  (any JSON)
    return applied if live is None else merged(live, applied, shape.of_items)


def removed(document: JsonObject, fields: Fields, shape: Shape) -> JsonObject:
    """A copy of the document without those fields and without what is under them."""
    out: JsonObject = _removed(document, fields, shape, ())
    return out


def _removed(value: Any, fields: Fields, shape: Shape, path: Path) -> Any:  # noqa: ANN401  (any JSON)
    if isinstance(value, dict) and not shape.atomic:
        return {
            name: _removed(child, fields, shape.of(name), (*path, f"f:{name}"))
            for name, child in value.items()
            if (*path, f"f:{name}") not in fields
        }
    if isinstance(value, list) and is_keyed(shape):
        steps = ((item, (*path, item_step(item, shape))) for item in value)
        return [_removed(item, fields, shape.of_items, here) for item, here in steps if here not in fields]
    return value
