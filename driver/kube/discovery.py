"""Discovery of what a cluster serves: its version, and which version of which DRA kind."""

import re
from dataclasses import dataclass
from typing import Final

from kerf_dra.api.errors import UnsupportedError
from kerf_dra.api.model.base import JsonObject
from kerf_dra.api.model.devices import DeviceTaintRule
from kerf_dra.api.resource import registry
from kerf_dra.api.resource.classic import ClassicKinds
from kerf_dra.api.resource.kinds import GROUP, ResourceKinds, kinds_of_model_shape
from kerf_dra.api.wire import Kind
from kerf_dra.driver.kube.http.client import Client
from kerf_dra.driver.kube.http.errors import NotFoundError

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

    Raises UnsupportedError when it serves no usable version of resource.k8s.io, ApiError when a call fails.
    """
    version = await client.get_json("/version", has="major")
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

    Raises ApiError when a call fails.
    """
    served = await list_versions(client)
    if any(version in served for version in registry.VERSIONS):
        return None
    kinds = registry.choose_classic_kinds({version: await _list_resources(client, version) for version in served})
    if kinds is None:
        return None
    return ClassicFeatures(kubernetes=parse_version(await client.get_json("/version", has="major")), resource=kinds)


async def list_versions(client: Client) -> list[str]:
    """Return the served versions of resource.k8s.io; none where the group does not exist. Raises ApiError."""
    try:
        group = await client.get_json(f"/apis/{GROUP}", has="versions")
    except NotFoundError:
        return []
    return [entry["version"] for entry in group["versions"] or ()]


async def _list_resources(client: Client, version: str) -> list[str]:
    found = await client.get_json(f"/apis/{GROUP}/{version}", has="resources")
    return [resource["name"] for resource in found["resources"] or ()]


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
