"""The kinds of ``resource.k8s.io``: stored in the form of v1, converted for v1beta1."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from kerf_dra.driver.local.apiserver.kinds import builtin_merge_schemas as merge_schemas
from kerf_dra.driver.local.apiserver.kinds import conversion
from kerf_dra.driver.local.apiserver.kinds.classic import CLASSIC_KINDS, RESOURCE
from kerf_dra.driver.local.apiserver.kinds.classic import VERSION as CLASSIC
from kerf_dra.driver.local.apiserver.kinds.kind_definition import define_kind, define_version, field_reader
from kerf_dra.driver.local.apiserver.kinds.printers import columns
from kerf_dra.driver.local.apiserver.kinds.types import ResourceType
from kerf_dra.driver.local.apiserver.kinds.validation import claims, slices
from kerf_dra.driver.local.apiserver.settings import ApiServerSettings
from kerf_dra.driver.local.apiserver.storage import Converter

_DEPRECATED: Final[Mapping[str, tuple[int, int]]] = {"v1beta1": (35, 38), "v1beta2": (36, 39)}
"""Versions: the minor release that deprecates each, and the one that no longer has it."""
_SLICE_FIELDS: Final = {
    "spec.driver": field_reader("spec", "driver"),
    "spec.nodeName": field_reader("spec", "nodeName"),
    "spec.pool.name": field_reader("spec", "pool", "name"),
}


def build_resource_kinds(settings: ApiServerSettings) -> Sequence[ResourceType]:
    """Return the kinds of the group, in the versions that the settings serve."""
    served = settings.resource_versions
    if tuple(served) == (CLASSIC,):
        return CLASSIC_KINDS

    def define(
        kind: str,
        *,
        v1beta1: tuple[Converter, Converter] | None = None,
        since_v1beta2: bool = False,
        scope: Mapping[str, Any] = {},
        **fields: Any,  # noqa: ANN401  (fields of ApiVersion, which checks them)
    ) -> ResourceType:
        versions = [
            define_version(
                name,
                converters=v1beta1 if name == "v1beta1" else None,
                warning=_deprecation_warning(settings, name, kind),
                **fields,
            )
            for name in served
            if not (since_v1beta2 and name == "v1beta1")
        ]
        return define_kind(RESOURCE, kind, *versions, returns_deleted=True, **scope)

    cluster_scoped = {"namespaced": False, "counts_generation": True}
    types = [
        define(
            "ResourceClaim",
            strategy=claims.CLAIMS,
            columns=columns.CLAIMS,
            merge_schema=merge_schemas.RESOURCE_CLAIM,
            has_status=True,
            zero_spec={"devices": {}},
            v1beta1=(conversion.claim_to_v1beta1, conversion.claim_from_v1beta1),
        ),
        define(
            "ResourceClaimTemplate",
            strategy=claims.TEMPLATES,
            merge_schema=merge_schemas.RESOURCE_CLAIM_TEMPLATE,
            zero_spec={"metadata": {}, "spec": {"devices": {}}},
            v1beta1=(conversion.template_to_v1beta1, conversion.template_from_v1beta1),
        ),
        define("DeviceClass", strategy=claims.CLASSES, scope=cluster_scoped),
        define(
            "ResourceSlice",
            strategy=slices.SLICES,
            columns=columns.SLICES,
            merge_schema=merge_schemas.RESOURCE_SLICE,
            zero_spec={"pool": {}},
            v1beta1=(conversion.slice_to_v1beta1, conversion.slice_from_v1beta1),
            scope={**cluster_scoped, "selectable_fields": _SLICE_FIELDS},
        ),
        define(
            "DeviceTaintRule",
            strategy=slices.TAINT_RULES,
            columns=columns.TAINT_RULES,
            merge_schema=merge_schemas.CONDITIONED,
            has_status=True,
            zero_spec={"taint": {}},
            since_v1beta2=True,
            scope=cluster_scoped,
        ),
    ]
    return [type_ for type_ in types if type_.versions]


def _deprecation_warning(settings: ApiServerSettings, version: str, kind: str) -> str:
    since, until = _DEPRECATED.get(version, (0, 0))
    if not since or settings.kubernetes < (1, since):
        return ""
    return f"{RESOURCE}/{version} {kind} is deprecated in v1.{since}+, unavailable in v1.{until}+"
