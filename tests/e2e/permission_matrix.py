"""Asks an API server for every resource and verb that it has whether an account may, and compares docs/security.md.

A request is authorized before anything else is looked at, so it names no object that is there; writes are dry runs.
"""

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

import anyio

from tests.e2e.permission_cases import Who
from tests.structure.permission_table import read_permissions
from tools.realcluster.api import Api, Document, StatusError
from tools.realcluster.kerf import CONTROLLER, NAMESPACE

Right = tuple[str, str, str]
"""A verb, a group of the API (empty: the core), and a resource."""
ACCOUNTS: Final[Mapping[str, Who]] = {"the controller": "controller", "the kubelet plugin": "plugin"}
"""The identity that asks for each account of the page."""
_EVERYBODYS: Final = frozenset(
    {
        ("create", "authentication.k8s.io", "selfsubjectreviews"),
        ("create", "authorization.k8s.io", "selfsubjectaccessreviews"),
        ("create", "authorization.k8s.io", "selfsubjectrulesreviews"),
        *((verb, "certificates.k8s.io", "clustertrustbundles") for verb in ("get", "list", "watch")),
    }
)
"""What an API server lets every service account do, by its roles ``system:basic-user`` and, from 1.37 on,
``system:cluster-trust-bundle-discovery``."""
_ONLY_IN: Final = {
    ("the controller", "manifests", "leases"): NAMESPACE,
    ("the controller", "manifests", "events"): "default",
}
"""The namespace of what a role of one namespace gives, by account, folder and resource."""
_METHODS: Final = {
    "create": "POST",
    "update": "PUT",
    "patch": "PATCH",
    "delete": "DELETE",
    "deletecollection": "DELETE",
}
_NAMES: Final = {"mutatingadmissionpolicybindings": "graded-placement.gpu.kerf.dev"}
"""The names that roles have, of resources of which it is not that of the controller."""
_OF_COLLECTIONS: Final = frozenset({"list", "watch", "create", "deletecollection"})
_BY_THE_SERVER: Final = "resourceclaims/driver"
"""No resource: the API server asks for it when it admits a status (KEP-4817). ``test_permissions`` has such writes."""
_AT_A_TIME: Final = 8


def told(account: str, folders: Collection[str], namespace: str) -> set[Right]:
    """Return what the page says of ``account`` in ``namespace``, where these ``folders`` of ``deploy`` are applied."""
    rights = set(_EVERYBODYS)
    for one in read_permissions():
        if one.account != account or one.folder not in folders or one.resource == _BY_THE_SERVER:
            continue
        place = (one.account, one.folder, one.resource)
        if _ONLY_IN.get(place, namespace) == namespace:
            rights.add((one.verb, one.group, one.resource))
    return rights


@dataclass(frozen=True, slots=True)
class _Place:
    """Where to ask for a right."""

    group_path: str
    """``/apis/resource.k8s.io/v1``"""
    is_in_namespace: bool


async def find_rights(api: Api) -> Mapping[Right, _Place]:
    """Return every right that the API server could give."""
    groups: list[tuple[str, str]] = [("", "/api/v1")]
    for group in (await api.request("GET", "/apis"))["groups"]:
        groups += [(group["name"], f"/apis/{version['groupVersion']}") for version in group["versions"]]
    found: dict[Right, _Place] = {}
    for name, path in groups:
        for resource in (await api.request("GET", path))["resources"]:
            for verb in resource["verbs"]:
                found.setdefault((verb, name, resource["name"]), _Place(path, resource["namespaced"]))
    return found


async def find_allowed(client: Api, namespace: str, rights: Mapping[Right, _Place]) -> set[Right]:
    """Return those of ``rights`` that roles give to the user of ``client``, in ``namespace`` where there is one."""
    allowed: set[Right] = set()
    limit = anyio.CapacityLimiter(_AT_A_TIME)

    async def ask(right: Right, path: str) -> None:
        async with limit:
            if await _is_allowed(client, right[0], path):
                allowed.add(right)

    async with anyio.create_task_group() as group:
        for right, place in rights.items():
            folder = f"{place.group_path}/namespaces/{namespace}" if place.is_in_namespace else place.group_path
            group.start_soon(ask, right, _path(folder, right))
    return allowed


def _path(folder: str, right: Right) -> str:
    verb, _, resource = right
    kind, _, subresource = resource.partition("/")
    if verb in _OF_COLLECTIONS and not subresource:
        return f"{folder}/{kind}"
    return f"{folder}/{kind}/{_NAMES.get(kind, CONTROLLER)}/{subresource}".rstrip("/")  # a name that roles have


async def _is_allowed(client: Api, verb: str, path: str) -> bool:
    query = {"watch": "true", "timeoutSeconds": "1"} if verb == "watch" else {"limit": "1"}
    query = {"dryRun": "All"} if verb in _METHODS else query
    kind = "application/merge-patch+json" if verb == "patch" else "application/json"
    body: Document | None = {} if verb in _METHODS else None
    try:
        await client.request(_METHODS.get(verb, "GET"), path, body, query=query, content_type=kind)
    except StatusError as error:
        return error.code != 403 or " cannot " not in error.message
    except json.JSONDecodeError:
        return True  # the events of a watch: several documents
    return True
