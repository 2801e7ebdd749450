"""The body of a write request: as a document, or as a function that updates the present one."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from functools import partial
from http import HTTPStatus
from typing import Final

import msgspec

from kerf_dra.api.errors import InvalidDocumentError, UnsupportedError
from kerf_dra.api.model.base import JsonObject
from kerf_dra.api.model.json_limits import MAX_LEVELS, check_levels
from kerf_dra.api.model.times import format_time
from kerf_dra.driver.local.apiserver.crd.structural_schema import prune
from kerf_dra.driver.local.apiserver.meta import managed_fields, protobuf
from kerf_dra.driver.local.apiserver.meta.documents import JsonValue, deep_copy, without
from kerf_dra.driver.local.apiserver.meta.patches import json_patched, merge_patched
from kerf_dra.driver.local.apiserver.meta.status_errors import (
    ApiStatusError,
    FieldError,
    bad_request,
    forbidden,
    object_invalid,
    required,
)
from kerf_dra.driver.local.apiserver.meta.strategic_merge import apply_strategic_merge_patch
from kerf_dra.driver.local.apiserver.registry.create_update import UpdateFunction, WriteRequest
from kerf_dra.driver.runtime.documents.yaml_file import parse_request_body

JSON_PATCH: Final = "application/json-patch+json"
MERGE_PATCH: Final = "application/merge-patch+json"
STRATEGIC_PATCH: Final = "application/strategic-merge-patch+json"
APPLY_PATCH: Final = "application/apply-patch+yaml"
_PATCHES: Final = (JSON_PATCH, MERGE_PATCH, APPLY_PATCH, STRATEGIC_PATCH)
"""The patch types; the last one for built-in kinds only, as custom ones have no merge keys."""
_BODIES: Final = ("application/json", "application/yaml", protobuf.MEDIA_TYPE)
_IDENTITY: Final = ("name", "namespace", "uid", "resourceVersion", "managedFields")
"""The fields of ``metadata`` that an apply through the status subresource may have."""


def decode_document(body: bytes, content_type: str) -> JsonObject:
    """Return the one object in the body of a request. Raises ApiStatusError (400, 415)."""
    if content_type not in _BODIES:  # kube-apiserver takes none for JSON; a web page can send a body without one
        raise _unsupported_media_type(_BODIES)
    document = _decode(body, content_type)
    if not isinstance(document, dict):
        raise bad_request("the body of the request is no object")
    return document


def parse_patch(
    write: WriteRequest, body: bytes, content_type: str, clock: Callable[[], datetime]
) -> tuple[WriteRequest, UpdateFunction]:
    """Return the update of a patch, and the request to run it with. Raises ApiStatusError (400, 415, 422)."""
    known = _PATCHES[:-1] if write.type.is_custom else _PATCHES
    if content_type not in known:
        raise _unsupported_media_type(known)
    if content_type != APPLY_PATCH and write.options.force:
        raise _invalid_options(forbidden("force", "may not be specified for non-apply patch"))
    if content_type == APPLY_PATCH and not write.options.has_field_manager:
        raise _invalid_options(required("fieldManager", "is required for apply patch"))
    patch = _decode(body, content_type)
    if content_type == JSON_PATCH:
        return write, lambda current: _require_object(json_patched(_require_present(write, current), patch))
    if not isinstance(patch, dict):
        raise bad_request("error decoding patch: it must be an object")
    if content_type == APPLY_PATCH:
        return replace(write, operation="Apply", allow_create=True), partial(_apply, write, patch, clock)
    if content_type == MERGE_PATCH:
        return write, lambda current: _require_object(merge_patched(_require_present(write, current), patch))
    return write, lambda current: apply_strategic_merge_patch(
        _require_present(write, current), patch, write.version.merge_schema
    )


def _decode(body: bytes, content_type: str) -> JsonValue:
    """Decode a body of at most MAX_LEVELS levels; kube-apiserver takes 10,000, where this process has a stack."""
    try:
        if content_type == protobuf.MEDIA_TYPE:
            document: JsonValue = protobuf.decode(body)
        else:
            document = _decode_yaml(body) if "yaml" in content_type else msgspec.json.decode(body)
        check_levels(document)
        return document
    except RecursionError as error:
        raise bad_request(f"the body of the request is nested more than {MAX_LEVELS} levels deep") from error
    except ValueError as error:  # of msgspec, of Unicode, of the YAML reader, of ``check_levels``
        raise bad_request(f"couldn't get version/kind; json parse error: {error}") from error
    except InvalidDocumentError as error:
        raise bad_request(str(error)) from error
    except UnsupportedError as error:
        raise ApiStatusError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "UnsupportedMediaType", str(error)) from error


def _decode_yaml(body: bytes) -> JsonValue:
    """Decode YAML; JSON, which is YAML and what programs send, in a hundredth of the time."""
    with suppress(msgspec.DecodeError):
        return msgspec.json.decode(body)
    decoded: JsonValue = parse_request_body(body)
    return decoded


def _require_present(write: WriteRequest, current: JsonObject | None) -> JsonObject:
    if current is None:  # the writer refuses to patch an absent object before it calls this
        raise AssertionError(write)
    return current


def _require_object(document: JsonValue) -> JsonObject:
    if not isinstance(document, dict):
        raise bad_request("the patched document is no object")
    return document


def _apply(
    write: WriteRequest, patch: JsonObject, clock: Callable[[], datetime], current: JsonObject | None
) -> JsonObject:
    applied = _select_applied(write, patch)
    _check_declared(write, applied)
    manager = managed_fields.FieldManager(
        name=write.options.field_manager,
        api_version=write.type.api_version(write.version),
        subresource=write.subresource,
        time=format_time(clock()),
    )
    return managed_fields.apply(
        current, applied, by=manager, schema=write.version.merge_schema, force=write.options.force
    )


def _select_applied(write: WriteRequest, patch: JsonObject) -> JsonObject:
    """Return the part of a configuration that this endpoint applies: the status, or all but the status."""
    expected = write.type.api_version(write.version)
    if patch.get("apiVersion") != expected:
        raise bad_request(
            f"Incorrect version specified in apply patch. Specified patch version: {patch.get('apiVersion') or ''}, "
            f"expected: {expected}"
        )
    metadata = {"name": write.key.name, **(patch.get("metadata") or {})}
    if write.subresource == "status":
        named = {name: metadata[name] for name in _IDENTITY if name in metadata}
        status = {"status": patch["status"]} if "status" in patch else {}
        return {"apiVersion": expected, "kind": patch.get("kind"), "metadata": named, **status}
    body = without(patch, "status") if write.version.has_status else patch
    return {**body, "metadata": metadata}


def _check_declared(write: WriteRequest, applied: JsonObject) -> None:
    """Raise ApiStatusError (500, as kube-apiserver) when an apply has fields that the schema does not declare."""
    body = deep_copy(without(applied, "kind", "apiVersion", "metadata"))
    unknown = prune(body, write.version.schema) if write.version.schema else []
    if unknown:
        namespace, name = applied["metadata"].get("namespace") or "", applied["metadata"]["name"]
        kind = f"{write.type.api_version(write.version)}, Kind={write.type.kind}"
        listed = ", ".join(f".{path}: field not declared in schema" for path in unknown)
        message = f"failed to create typed patch object ({namespace}/{name}; {kind}): {listed}"
        raise ApiStatusError(HTTPStatus.INTERNAL_SERVER_ERROR, "", message)


def _invalid_options(error: FieldError) -> ApiStatusError:
    return object_invalid("meta.k8s.io", "PatchOptions", "", [error])


def _unsupported_media_type(known: Sequence[str]) -> ApiStatusError:
    return ApiStatusError(
        HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
        "UnsupportedMediaType",
        "the body of the request was in an unknown format - accepted media types include: " + ", ".join(known),
    )
