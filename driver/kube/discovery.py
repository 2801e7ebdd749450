"""What the cluster offers: its version, and which version of which DRA kind it serves."""

import re
from dataclasses import dataclass
from typing import Final

from api.errors import UnsupportedError
from api.model.base import JsonObject
from api.model.devices import DeviceTaintRule
from api.resource import registry
from api.resource.classic import ClassicKinds
from api.resource.kinds import GROUP, ResourceKinds, kinds_of_model_shape
from api.wire import Kind
from driver.kube.http.client import Client
from driver.kube.http.errors import NotFoundError

_SPLIT_COUNTER_SLICES: Final = (1, 35)
"""From here on a slice holds devices or counters (KEP-4815); before, counters had to be beside their devices."""

_TAINT_RULE_VERSIONS: Final = ("v1", "v1beta2", "v1alpha3")
"""Where DeviceTaintRule was: Kubernetes 1.37, 1.36, 1.33 (KEP-5055). Its shape is the same in all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiFeatures:
    """What a cluster can do for DRA, as far as discovery tells; feature gates show only in what writes drop."""

    kubernetes: tuple[int, int]
    """Major and minor version of the API server."""
    resource: ResourceKinds
    """The newest version of resource.k8s.io that both sides know."""
    device_taint_rules: Kind[DeviceTaintRule] | None
    """In the version that serves it, which need not be that of ``resource``; None: not served."""

    @property
    def split_counter_slices(self) -> bool:
        """Counters of a pool go into slices of their own; else they stand beside the devices that consume them."""
        return self.kubernetes >= _SPLIT_COUNTER_SLICES


async def discover(client: Client) -> ApiFeatures:
    """Ask the server. Raises UnsupportedError when it serves no usable version of resource.k8s.io, and ApiError."""
    version = await client.get_json("/version")
    try:
        group = await client.get_json(f"/apis/{GROUP}")
    except NotFoundError:
        group = {}
    served = [entry["version"] for entry in group.get("versions", ())]
    return ApiFeatures(
        kubernetes=_minor(version),
        resource=registry.choose_kinds(served),
        device_taint_rules=await _device_taint_rules(client, served),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicFeatures:
    """A cluster in which drivers allocate (KEP-3063)."""

    kubernetes: tuple[int, int]
    """Major and minor version of the API server."""
    resource: ClassicKinds


async def discover_classic(client: Client) -> ClassicFeatures | None:
    """Ask the server whether drivers allocate; None: they do not, or there is no DRA at all. Raises ApiError."""
    try:
        group = await client.get_json(f"/apis/{GROUP}")
    except NotFoundError:
        return None
    served = [entry["version"] for entry in group.get("versions", ())]
    if any(version in served for version in registry.VERSIONS):
        return None
    resources: dict[str, list[str]] = {}
    for version in served:
        listed = (await client.get_json(f"/apis/{GROUP}/{version}")).get("resources", ())
        resources[version] = [resource["name"] for resource in listed]
    kinds = registry.choose_classic_kinds(resources)
    if kinds is None:
        return None
    return ClassicFeatures(kubernetes=_minor(await client.get_json("/version")), resource=kinds)


def _minor(version: JsonObject) -> tuple[int, int]:
    """``{"major": "1", "minor": "37+"}``: hosted clusters append things."""
    major = re.match(r"\d+", str(version.get("major", "")))
    minor = re.match(r"\d+", str(version.get("minor", "")))
    if major is None or minor is None:
        raise UnsupportedError(f"the API server does not tell its version: /version says {version!r:.200}")
    return int(major[0]), int(minor[0])


async def _device_taint_rules(client: Client, served: list[str]) -> Kind[DeviceTaintRule] | None:
    for version in _TAINT_RULE_VERSIONS:
        if version in served:
            resources = (await client.get_json(f"/apis/{GROUP}/{version}")).get("resources", ())
            if any(resource["name"] == "devicetaintrules" for resource in resources):
                return kinds_of_model_shape(version).device_taint_rules
    return None
