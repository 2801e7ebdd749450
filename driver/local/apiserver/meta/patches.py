"""JSON patch (RFC 6902) and JSON merge patch (RFC 7386). Arguments are never changed."""

import copy
from http import HTTPStatus
from typing import Any, Final

import jsonpatch
import msgspec

from kerf_dra.api.model.base import JsonObject
from kerf_dra.driver.local.apiserver.meta.status_errors import ApiStatusError, bad_request, patch_misfit

MAX_OPERATIONS: Final = 10_000
"""Longest JSON patch (``maxJSONPatchOperations`` of kube-apiserver)."""
MAX_COPIED_BYTES: Final = 3 * 1024 * 1024
"""What all ``copy`` operations of a patch may copy (``AccumulatedCopySizeLimit``, the limit of a request's body in
kube-apiserver): each could double the document."""
_NEEDED: Final = {"add": "value", "replace": "value", "test": "value", "copy": "from", "move": "from", "remove": "path"}
"""What an operation must have, beside its path."""


def merge_patched(document: Any, patch: Any) -> Any:  # noqa: ANN401  (any JSON)
    """Apply a merge patch (RFC 7386): ``null`` removes, objects merge, everything else replaces."""
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
    """Apply a JSON patch. Raises ApiStatusError: 400 for what is no patch, 422 for one that does not fit."""
    if not isinstance(operations, list) or not all(isinstance(each, dict) for each in operations):
        raise bad_request("error decoding patch: json patch must be an array of operations")
    if len(operations) > MAX_OPERATIONS:
        raise ApiStatusError(
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
            "RequestEntityTooLarge",
            "Request entity too large: The allowed maximum operations in a JSON patch is "
            f"{MAX_OPERATIONS}, got {len(operations)}",
        )
    try:
        value, copied_bytes = copy.deepcopy(document), 0
        for operation in operations:
            parsed = _parse(operation)
            if operation["op"] == "copy":
                source = jsonpatch.JsonPointer(operation["from"]).resolve(value)
                copied_bytes += len(msgspec.json.encode(source, enc_hook=str))  # "/list/-" is no JSON: it fails below
                if copied_bytes > MAX_COPIED_BYTES:
                    raise patch_misfit()
            value = parsed.apply(value)
    except (jsonpatch.JsonPatchException, jsonpatch.JsonPointerException, RecursionError) as error:
        raise patch_misfit() from error
    return value


def _parse(operation: JsonObject) -> Any:  # noqa: ANN401  (the package has no types)
    """Parse an operation. Raises ApiStatusError for an unknown or incomplete one."""
    name = operation.get("op")
    if not isinstance(name, str) or name not in _NEEDED:
        raise patch_misfit()
    if _NEEDED[name] not in operation:
        raise bad_request(f"error decoding patch: operation {name} needs {_NEEDED[name]!r}")
    for field in {"path", _NEEDED[name]} - {"value"}:
        try:
            jsonpatch.JsonPointer(operation[field])
        except (KeyError, TypeError, jsonpatch.JsonPointerException) as error:
            raise bad_request(f"error decoding patch: {operation.get(field)!r} is no JSON pointer") from error
    return jsonpatch.JsonPatch.operations[name](operation)
