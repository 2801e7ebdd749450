"""API discovery: the versions, groups, kinds and verbs that clients learn before their first request.

Both forms are served: one document for each group and version, and the aggregated one (KEP-3352), which current clients
fetch in two requests.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from kerf_dra.api.model.base import JsonObject
from kerf_dra.driver.local.apiserver.kinds.served_kinds import ServedKinds
from kerf_dra.driver.local.apiserver.kinds.types import ApiVersion, ResourceType
from kerf_dra.driver.local.apiserver.settings import ApiServerSettings

_AGGREGATED: Final = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
_PLAIN: Final = "application/json"


@dataclass(frozen=True, slots=True)
class DiscoveryDocument:
    """A discovery document with its media type."""

    body: JsonObject
    media_type: str = _PLAIN


def build_document(path: str, accept: str, kinds: ServedKinds, settings: ApiServerSettings) -> DiscoveryDocument | None:
    """Return the document at a path that names no object; None when there is none."""
    parts = [part for part in path.split("/") if part]
    aggregated = "as=APIGroupDiscoveryList" in accept and "v=v2," in f"{accept},".replace("v2;", "v2,")
    match parts:
        case ["version"]:
            return DiscoveryDocument(_version(settings))
        case ["api"]:
            return _aggregated(kinds, core=True) if aggregated else DiscoveryDocument(_core_versions())
        case ["apis"]:
            return _aggregated(kinds, core=False) if aggregated else DiscoveryDocument(_groups(kinds))
        case ["api", version]:
            return _resources(kinds, "", version)
        case ["apis", group]:
            return _group(kinds, group)
        case ["apis", group, version]:
            return _resources(kinds, group, version)
        case []:
            return DiscoveryDocument({"paths": sorted(_list_paths(kinds))})
        case _:
            return None


def _version(settings: ApiServerSettings) -> JsonObject:
    major, minor = settings.kubernetes
    return {
        "major": str(major),
        "minor": str(minor),
        "gitVersion": f"v{major}.{minor}.0+kerf",
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "",
        "compiler": "",
        "platform": "linux/amd64",
    }


def _core_versions() -> JsonObject:
    return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}


def _by_group(kinds: ServedKinds) -> dict[str, list[ResourceType]]:
    groups: dict[str, list[ResourceType]] = {}
    for type_ in kinds:
        groups.setdefault(type_.group, []).append(type_)
    return groups


def _version_names(types: Iterable[ResourceType]) -> list[str]:
    """Order a group's versions, preferred first: v2, v1, v1beta2, v1beta1, v1alpha1 (``apimachinery`` ``version``)."""
    names = {version.name for type_ in types for version in type_.versions}
    return sorted(names, key=_priority, reverse=True)


def _priority(name: str) -> tuple[int, int, int]:
    for stage, rank in (("alpha", 0), ("beta", 1)):
        major, mark, minor = name.removeprefix("v").partition(stage)
        if mark:
            return rank, int(major or 0), int(minor or 0)
    return 2, int(name.removeprefix("v") or 0), 0


def _group_entry(group: str, types: Iterable[ResourceType]) -> JsonObject:
    versions = [{"groupVersion": f"{group}/{name}", "version": name} for name in _version_names(types)]
    return {"name": group, "versions": versions, "preferredVersion": versions[0]}


def _groups(kinds: ServedKinds) -> JsonObject:
    groups = [_group_entry(group, types) for group, types in _by_group(kinds).items() if group]
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}


def _group(kinds: ServedKinds, group: str) -> DiscoveryDocument | None:
    types = _by_group(kinds).get(group)
    return DiscoveryDocument({"kind": "APIGroup", "apiVersion": "v1", **_group_entry(group, types)}) if types else None


def _resources(kinds: ServedKinds, group: str, version: str) -> DiscoveryDocument | None:
    served = _served(_by_group(kinds).get(group) or (), version)
    if not served:
        return None
    resources = [row for type_, api_version in served for row in _rows(type_, api_version)]
    group_version = f"{group}/{version}" if group else version
    return DiscoveryDocument(
        {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": resources}
    )


def _served(types: Iterable[ResourceType], name: str) -> list[tuple[ResourceType, ApiVersion]]:
    return [(type_, version) for type_ in types if (version := type_.version(name))]


def _rows(type_: ResourceType, version: ApiVersion) -> Iterable[JsonObject]:
    yield {
        "name": type_.plural,
        "singularName": type_.singular,
        "namespaced": type_.namespaced,
        "kind": type_.kind,
        "verbs": list(type_.verbs),
        **_short_names_and_categories(type_),
    }
    for name, kind, verbs in _subresources(type_, version):
        yield {
            "name": f"{type_.plural}/{name}",
            "singularName": "",
            "namespaced": type_.namespaced,
            "kind": kind,
            "verbs": list(verbs),
        }


def _short_names_and_categories(type_: ResourceType) -> JsonObject:
    lists = {"shortNames": list(type_.short_names), "categories": list(type_.categories)}
    return {name: values for name, values in lists.items() if values}


def _subresources(type_: ResourceType, version: ApiVersion) -> Iterable[tuple[str, str, Sequence[str]]]:
    if version.has_status:
        yield "status", type_.kind, ("get", "patch", "update")
    for name, kind in type_.subresources.items():
        yield name, kind, ("update",) if name == "finalize" else ("create",)


def _aggregated(kinds: ServedKinds, *, core: bool) -> DiscoveryDocument:
    groups = _by_group(kinds)
    items = [_aggregated_group(group, types) for group, types in groups.items() if (not group) == core]
    body = {"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items}
    return DiscoveryDocument(body, _AGGREGATED)


def _aggregated_group(group: str, types: Sequence[ResourceType]) -> JsonObject:
    versions = [
        {
            "version": name,
            "freshness": "Current",
            "resources": [_aggregated_row(type_, version, group) for type_, version in _served(types, name)],
        }
        for name in _version_names(types)
    ]
    return {"metadata": {"name": group, "creationTimestamp": None} if group else {}, "versions": versions}


def _aggregated_row(type_: ResourceType, version: ApiVersion, group: str) -> JsonObject:
    def kind_of(name: str) -> JsonObject:
        return {"group": group, "version": version.name, "kind": name}

    row: JsonObject = {
        "resource": type_.plural,
        "responseKind": kind_of(type_.kind),
        "scope": "Namespaced" if type_.namespaced else "Cluster",
        "singularResource": type_.singular,
        "verbs": list(type_.verbs),
        **_short_names_and_categories(type_),
    }
    subresources = [
        {"subresource": name, "responseKind": kind_of(kind), "verbs": list(verbs)}
        for name, kind, verbs in _subresources(type_, version)
    ]
    return {**row, "subresources": subresources} if subresources else row


def _list_paths(kinds: ServedKinds) -> Iterable[str]:
    yield from ("/api", "/api/v1", "/apis", "/healthz", "/livez", "/openapi/v3", "/readyz", "/version")
    for group, types in _by_group(kinds).items():
        if group:
            yield f"/apis/{group}"
            yield from (f"/apis/{group}/{name}" for name in _version_names(types))
