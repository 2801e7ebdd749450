"""Discovery of what a cluster serves: its version, and which version of which DRA kind."""

import re
from dataclasses import dataclass
from typing import Any, Final

from kerf_dra.api.errors import UnsupportedError
from kerf_dra.api.model.base import JsonObject
from kerf_dra.api.model.devices import DeviceTaintRule
from kerf_dra.api.resource import registry
from kerf_dra.api.resource.classic import ClassicKinds
from kerf_dra.api.resource.kinds import GROUP, ResourceKinds, kinds_of_model_shape
from kerf_dra.api.wire import Kind
from kerf_dra.driver.kube.http.client import Client
from kerf_dra.driver.kube.http.errors import NotFoundError, UnexpectedAnswerError

_SPLIT_COUNTER_SLICES: Final = (1, 35)
"""Since this release a slice holds devices or counters (KEP-4815); before, counters stood beside their devices."""

_TAINT_RULE_VERSIONS: Final = ("v1", "v1beta2", "v1alpha3")
"""Versions with DeviceTaintRule: Kubernetes 1.37, 1.36, 1.33 (KEP-5055). Its shape is the same in all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiFeatures:
    """What a cluster serves of structured DRA. Feature gates are not in it: they show only in dropped fields."""

    kubernetes: tuple[int, int]
    """Major and minor version of the API server."""
    patch: int
    """Its patch version; 0 where it reports none."""
    resource: ResourceKinds
    """The kinds of the newest version of resource.k8s.io that both the server and Kerf know."""
    device_taint_rules: Kind[DeviceTaintRule] | None
    """The kind DeviceTaintRule, in a version that need not be that of ``resource``; None: it is not served."""

    @property
    def split_counter_slices(self) -> bool:
        """Whether counters go into slices of their own; else they stand beside the devices that consume them."""
        return self.kubernetes >= _SPLIT_COUNTER_SLICES


async def discover(client: Client) -> ApiFeatures:
    """Discover what the server serves of structured DRA.

    Raises UnsupportedError when it serves no usable version of resource.k8s.io, ApiError when a call fails, and
    UnexpectedAnswerError when an answer is no discovery, a 404 that the list of all groups contradicts included.
    """
    version = await _read(client, "/version", "major")
    served = await list_versions(client)
    return ApiFeatures(
        kubernetes=parse_version(version),
        patch=_parse_patch(version),
        resource=registry.choose_kinds(served),
        device_taint_rules=await _device_taint_rules(client, served),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicFeatures:
    """What a cluster serves of classic DRA, where drivers allocate (KEP-3063)."""

    kubernetes: tuple[int, int]
    """Major and minor version of the API server."""
    resource: ClassicKinds


async def discover_classic(client: Client) -> ClassicFeatures | None:
    """Discover what the server serves of classic DRA; None: drivers do not allocate there, or it serves no DRA.

    Raises ApiError as ``discover`` does.
    """
    served = await list_versions(client)
    if any(version in served for version in registry.VERSIONS):
        return None
    kinds = registry.choose_classic_kinds({version: await _list_resources(client, version) for version in served})
    if kinds is None:
        return None
    return ClassicFeatures(kubernetes=parse_version(await _read(client, "/version", "major")), resource=kinds)


async def discover_any(client: Client) -> ApiFeatures | ClassicFeatures:
    """Discover the generation of DRA that the server has. Raises what ``discover`` raises."""
    return await discover_classic(client) or await discover(client)


async def list_versions(client: Client) -> list[str]:
    """Return the served versions of resource.k8s.io; none where the group does not exist. Raises ApiError.

    An API server answers a path of a group that it does not serve with a bare 404 (``http.NotFound``), and so does any
    proxy: only its list of all groups proves that a group is absent.
    """
    try:
        versions = await _read_names(client, f"/apis/{GROUP}", "versions", "version")
    except NotFoundError:
        versions = []
    if not versions:
        await _prove_group_absence(client, GROUP)
    return versions


async def prove_absence(client: Client, kind: Kind[Any]) -> None:
    """Check that the API server does not serve ``kind``, whose list was answered by 404, as any proxy may.

    Raises UnexpectedAnswerError when discovery does not prove that, and ApiError.
    """
    group, version = f"/apis/{kind.group}", f"/apis/{kind.api_version}"
    try:
        served, path = kind.version in await _read_names(client, group, "versions", "version"), group
        if served:
            served, path = kind.plural in await _read_names(client, version, "resources", "name"), version
    except NotFoundError:
        await _prove_group_absence(client, kind.group)
        return
    if served:
        raise UnexpectedAnswerError(f"GET {kind.path()}", f"no answer that the kind is not served: {path} has it")


async def _prove_group_absence(client: Client, group: str) -> None:
    """Check that the list of all groups lacks ``group``. Raises UnexpectedAnswerError when it does not."""
    try:
        groups = await _read_names(client, "/apis", "groups", "name")
    except NotFoundError as error:
        raise UnexpectedAnswerError(error.call, f"every API server has /apis: {error.message}") from error
    if not groups or group in groups:  # every API server has some
        has = "it is in the list of all groups" if groups else "the list of all groups is empty"
        raise UnexpectedAnswerError(f"GET /apis/{group}", f"no answer that the group is not served: {has}")


async def _list_resources(client: Client, version: str) -> list[str]:
    try:
        return await _read_names(client, f"/apis/{GROUP}/{version}", "resources", "name")
    except NotFoundError as error:
        raise UnexpectedAnswerError(error.call, f"{version} is in the list of versions: {error.message}") from error


async def _read_names(client: Client, path: str, field: str, name: str) -> list[str]:
    """Return the ``name`` of each entry of a list in a document of discovery. Raises ApiError."""
    entries = (await client.get_json(path, has=field))[field] or []
    named = [each.get(name) for each in entries if isinstance(each, dict)] if isinstance(entries, list) else []
    found = [each for each in named if isinstance(each, str) and each]
    if not isinstance(entries, list) or len(found) < len(entries):
        raise UnexpectedAnswerError(f"GET {path}", f"the {field} of the answer have no {name}: {entries!r:.200}")
    return found


async def _read(client: Client, path: str, has: str) -> JsonObject:
    """Read a document that every API server has. Raises ApiError."""
    try:
        return await client.get_json(path, has=has)
    except NotFoundError as error:
        raise UnexpectedAnswerError(error.call, f"every API server has {path}: {error.message}") from error


def parse_version(version: JsonObject) -> tuple[int, int]:
    """Parse major and minor of ``{"major": "1", "minor": "37+"}``: hosted clusters append suffixes.

    Raises UnsupportedError when they are not there.
    """
    major = re.match(r"\d+", str(version.get("major", "")))
    minor = re.match(r"\d+", str(version.get("minor", "")))
    if major is None or minor is None:
        raise UnsupportedError(f"the API server does not report its version: /version says {version!r:.200}")
    return int(major[0]), int(minor[0])


def _parse_patch(version: JsonObject) -> int:
    """Parse the patch version of ``{"gitVersion": "v1.36.1-eks-1234"}``."""
    found = re.match(r"v?\d+\.\d+\.(\d+)", str(version.get("gitVersion", "")))
    return int(found[1]) if found is not None else 0


async def _device_taint_rules(client: Client, served: list[str]) -> Kind[DeviceTaintRule] | None:
    for version in _TAINT_RULE_VERSIONS:
        if version in served and "devicetaintrules" in await _list_resources(client, version):
            return kinds_of_model_shape(version).device_taint_rules
    return None
