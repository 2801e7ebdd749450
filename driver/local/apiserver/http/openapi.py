"""OpenAPI v3, as far as ``kubectl`` uses it.

``kubectl create`` and ``apply`` look whether the PATCH of a kind takes ``fieldValidation``; ``kubectl explain`` reads
the schemas. Built-in kinds show their outer fields only. PATCH does not offer strategic merge patch, although the
server takes it: kubectl would compute such patches from these schemas, which lack the merge keys, instead of from its
own types, which have them.
"""

import hashlib
from collections.abc import Iterable
from typing import Final

from kerf_dra.api.model.base import JsonObject
from kerf_dra.driver.local.apiserver.http.serializer import encode
from kerf_dra.driver.local.apiserver.kinds.served_kinds import ServedKinds
from kerf_dra.driver.local.apiserver.kinds.types import ApiVersion, ResourceType
from kerf_dra.driver.local.apiserver.settings import ApiServerSettings

_PATCH_TYPES: Final = ("application/apply-patch+yaml", "application/json-patch+json", "application/merge-patch+json")
_OBJECT: Final[JsonObject] = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
_METADATA: Final = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
_METADATA_SCHEMA: Final[JsonObject] = {
    "description": "Name, labels, annotations, owners and what the server keeps of every object.",
    "type": "object",
    "properties": {
        **{name: {"type": "string"} for name in ("name", "generateName", "namespace", "uid", "resourceVersion")},
        **{name: {"type": "object", "additionalProperties": {"type": "string"}} for name in ("labels", "annotations")},
        "finalizers": {"type": "array", "items": {"type": "string"}},
        "ownerReferences": {"type": "array", "items": _OBJECT},
        "generation": {"type": "integer", "format": "int64"},
        "creationTimestamp": {"type": "string", "format": "date-time"},
        "deletionTimestamp": {"type": "string", "format": "date-time"},
    },
}


def build_document(path: str, kinds: ServedKinds, settings: ApiServerSettings) -> JsonObject | None:
    """Return the document at a path under ``/openapi/v3``; None when there is none."""
    parts = [part for part in path.split("/") if part]
    match parts[2:]:
        case []:
            return _index(kinds, settings)
        case ["api", version]:
            return _group_version(kinds, settings, "", version)
        case ["apis", group, version]:
            return _group_version(kinds, settings, group, version)
        case _:
            return None


def _index(kinds: ServedKinds, settings: ApiServerSettings) -> JsonObject:
    """Return the index; the address of each document has a digest, by which clients cache it."""
    paths = {}
    for group, version in sorted({(type_.group, version.name) for type_ in kinds for version in type_.versions}):
        place = f"apis/{group}/{version}" if group else f"api/{version}"
        content = _group_version(kinds, settings, group, version)
        digest = hashlib.sha256(encode(content)).hexdigest()
        paths[place] = {"serverRelativeURL": f"/openapi/v3/{place}?hash={digest}"}
    return {"paths": paths}


def _group_version(kinds: ServedKinds, settings: ApiServerSettings, group: str, version: str) -> JsonObject | None:
    served = [(type_, found) for type_ in kinds if type_.group == group and (found := type_.version(version))]
    if not served:
        return None
    major, minor = settings.kubernetes
    return {
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": f"v{major}.{minor}.0"},
        "paths": dict(path for type_, found in served for path in _paths(type_, found)),
        "components": {
            "schemas": {
                _METADATA: _METADATA_SCHEMA,
                **{_schema_name(type_, found): _schema(type_, found) for type_, found in served},
            }
        },
    }


def _schema_name(type_: ResourceType, version: ApiVersion) -> str:
    domain = ".".join(reversed(type_.group.split("."))) if type_.group else "io.k8s.api.core"
    return f"{domain}.{version.name}.{type_.kind}"


def _group_version_kind(type_: ResourceType, version: ApiVersion) -> JsonObject:
    return {"group": type_.group, "version": version.name, "kind": type_.kind}


def _paths(type_: ResourceType, version: ApiVersion) -> Iterable[tuple[str, JsonObject]]:
    prefix = f"/apis/{type_.group}/{version.name}" if type_.group else f"/api/{version.name}"
    scope = "/namespaces/{namespace}" if type_.namespaced else ""
    schema = {"$ref": f"#/components/schemas/{_schema_name(type_, version)}"}
    answer = {"200": {"description": "OK", "content": {"application/json": {"schema": schema}}}}
    kind = _group_version_kind(type_, version)
    get = {"x-kubernetes-action": "get", "x-kubernetes-group-version-kind": kind, "responses": answer}
    patch = {
        "x-kubernetes-action": "patch",
        "x-kubernetes-group-version-kind": kind,
        "parameters": [_parameter(name) for name in ("dryRun", "fieldManager", "fieldValidation", "force")],
        "requestBody": {"content": {each: {"schema": _OBJECT} for each in _PATCH_TYPES}},
        "responses": answer,
    }
    yield f"{prefix}{scope}/{type_.plural}/{{name}}", {"get": get, "patch": patch}
    listing = {**get, "x-kubernetes-action": "list"}
    yield f"{prefix}{scope}/{type_.plural}", {"get": listing}


def _parameter(name: str) -> JsonObject:
    return {"name": name, "in": "query", "schema": {"type": "string"}}


def _schema(type_: ResourceType, version: ApiVersion) -> JsonObject:
    schema = version.schema or {
        "description": f"{type_.kind} of {type_.api_version(version)}.",
        "type": "object",
        "properties": {"spec": _OBJECT, **({"status": _OBJECT} if version.has_status else {})},
    }
    return {
        **schema,
        "properties": {
            **(schema.get("properties") or {}),
            "apiVersion": {"type": "string", "description": "Version of the schema of this object."},
            "kind": {"type": "string", "description": "What this object is."},
            "metadata": {"allOf": [{"$ref": f"#/components/schemas/{_METADATA}"}]},
        },
        "x-kubernetes-group-version-kind": [_group_version_kind(type_, version)],
    }
