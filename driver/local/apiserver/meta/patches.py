"""JSON patch (RFC 6902) and JSON merge patch (RFC 7386). Arguments are never changed."""

from http import HTTPStatus
from typing import Any, Final

from api.model.base import JsonObject
from driver.local.apiserver.meta.status_errors import ApiStatusError, bad_request, patch_misfit

MAX_OPERATIONS: Final = 10_000
"""Longest JSON patch (``maxJSONPatchOperations`` of kube-apiserver)."""


def merge_patched(document: Any, patch: Any) -> Any:  # noqa: ANN401  (any JSON)
    """RFC 7386: ``null`` removes, objects merge, everything else replaces."""
    if not isinstance(patch, dict):
        return patch
    out = dict(document) if isinstance(document, dict) else {}
    for name, value in patch.items():
        if value is None:
            out.pop(name, None)
        else:
            out[name] = merge_patched(out.get(name), value)
    return out


def json_patched(document: JsonObject, operations: object) -> Any:  # noqa: ANN401  (a patch may replace the root)
    """RFC 6902. Raises ApiStatusError: 400 for what is no patch, 422 for one that does not fit the document."""
    if not isinstance(operations, list) or not all(isinstance(each, dict) for each in operations):
        raise bad_request("error decoding patch: json patch must be an array of operations")
    if len(operations) > MAX_OPERATIONS:
        raise ApiStatusError(
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
            "RequestEntityTooLarge",
            "Request entity too large: The allowed maximum operations in a JSON patch is "
            f"{MAX_OPERATIONS}, got {len(operations)}",
        )
    value: Any = document
    for operation in operations:
        value = _operated(value, operation)
    return value


def _operated(document: Any, operation: JsonObject) -> Any:  # noqa: ANN401  (any JSON)
    path = _steps(operation.get("path"))
    match operation.get("op"):
        case "add":
            return _put(document, path, _value_of(operation), insert=True)
        case "replace":
            _at(document, path)
            return _put(document, path, _value_of(operation), insert=False)
        case "remove":
            return _without(document, path)
        case "test":
            if not _same(_at(document, path), _value_of(operation)):
                raise patch_misfit()
            return document
        case "copy":
            return _put(document, path, _at(document, _steps(operation.get("from"))), insert=True)
        case "move":
            source = _steps(operation.get("from"))
            if path[: len(source)] == source and path != source:
                raise patch_misfit()
            value = _at(document, source)
            return _put(_without(document, source), path, value, insert=True)
        case _:
            raise patch_misfit()


def _same(left: Any, right: Any) -> bool:  # noqa: ANN401  (any JSON)
    """JSON equality: ``true`` is not 1, unlike in Python; 1 and 1.0 are the same number."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(_same(left[name], right[name]) for name in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(_same, left, right))
    return bool(left == right)


def _value_of(operation: JsonObject) -> Any:  # noqa: ANN401  (any JSON)
    if "value" not in operation:
        raise bad_request(f"error decoding patch: operation {operation.get('op')} needs a value")
    return operation["value"]


def _steps(pointer: object) -> tuple[str, ...]:
    """RFC 6901."""
    if not isinstance(pointer, str) or (pointer and not pointer.startswith("/")):
        raise bad_request(f"error decoding patch: {pointer!r} is no JSON pointer")
    return tuple(step.replace("~1", "/").replace("~0", "~") for step in pointer.split("/")[1:])


def _index(step: str, *, end: int) -> int:
    if not step.isascii() or not step.isdigit() or (len(step) > 1 and step[0] == "0") or int(step) >= end:
        raise patch_misfit()
    return int(step)


def _at(document: Any, path: tuple[str, ...]) -> Any:  # noqa: ANN401  (any JSON)
    for step in path:
        if isinstance(document, dict) and step in document:
            document = document[step]
        elif isinstance(document, list):
            document = document[_index(step, end=len(document))]
        else:
            raise patch_misfit()
    return document


def _put(document: Any, path: tuple[str, ...], value: Any, *, insert: bool) -> Any:  # noqa: ANN401
    """A copy with a value at a path whose parent exists; ``insert`` makes room in a list."""
    if not path:
        return value
    step, rest = path[0], path[1:]
    if isinstance(document, dict):
        if rest and step not in document:
            raise patch_misfit()
        return {**document, step: _put(document.get(step), rest, value, insert=insert)}
    if not isinstance(document, list):
        raise patch_misfit()
    if not rest and insert:
        index = len(document) if step == "-" else _index(step, end=len(document) + 1)
        return [*document[:index], value, *document[index:]]
    index = _index(step, end=len(document))
    return [*document[:index], _put(document[index], rest, value, insert=insert), *document[index + 1 :]]


def _without(document: Any, path: tuple[str, ...]) -> Any:  # noqa: ANN401  (any JSON)
    if not path:
        raise patch_misfit()
    step, rest = path[0], path[1:]
    _at(document, (step,))
    if isinstance(document, dict):
        kept = {name: value for name, value in document.items() if name != step}
        return {**document, step: _without(document[step], rest)} if rest else kept
    index = _index(step, end=len(document))
    middle = [_without(document[index], rest)] if rest else []
    return [*document[:index], *middle, *document[index + 1 :]]
