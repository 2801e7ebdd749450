"""The kinds of ``resource.k8s.io`` as rows: stored in the shape of v1, converted for v1beta1."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from api.model.base import JsonObject
from driver.local.apiserver.kinds import merge_keys, rows
from driver.local.apiserver.kinds.classic import VERSION as CLASSIC
from driver.local.apiserver.kinds.classic import classic_types
from driver.local.apiserver.kinds.conversion import (
    claim_from_flat,
    claim_to_flat,
    slice_from_wrapped,
    slice_to_wrapped,
    template_from_flat,
    template_to_flat,
)
from driver.local.apiserver.kinds.printers import columns
from driver.local.apiserver.kinds.types import Column, ResourceType, Rules
from driver.local.apiserver.kinds.validation import claims, quantities, slices
from driver.local.apiserver.meta.merge_keys import METADATA_ONLY, Shape
from driver.local.apiserver.settings import ApiServerSettings
from driver.local.apiserver.storage import Converter

RESOURCE: Final = "resource.k8s.io"
_DEPRECATED: Final[Mapping[str, tuple[int, int]]] = {"v1beta1": (35, 38), "v1beta2": (36, 39)}
"""Versions: the minor release that deprecates each, and the one that no longer has it."""


def resource_types(settings: ApiServerSettings) -> list[ResourceType]:
    """The kinds of the group, in the versions that the settings serve."""
    if tuple(settings.resource_versions) == (CLASSIC,):
        return classic_types()
    types = [
        _row(
            settings,
            "resourceclaims",
            "ResourceClaim",
            rules=claims.CLAIMS,
            columns_=columns.CLAIMS,
            shape=merge_keys.RESOURCE_CLAIM,
            status=True,
            flat=(claim_to_flat, claim_from_flat),
            zero_spec={"devices": {}},
            quantities=quantities.CLAIMS,
        ),
        _row(
            settings,
            "resourceclaimtemplates",
            "ResourceClaimTemplate",
            rules=claims.TEMPLATES,
            shape=merge_keys.RESOURCE_CLAIM_TEMPLATE,
            flat=(template_to_flat, template_from_flat),
            zero_spec={"metadata": {}, "spec": {"devices": {}}},
            quantities=quantities.TEMPLATES,
        ),
        _row(
            settings,
            "deviceclasses",
            "DeviceClass",
            rules=claims.CLASSES,
            namespaced=False,
            generation=True,
        ),
        _row(
            settings,
            "resourceslices",
            "ResourceSlice",
            rules=slices.SLICES,
            columns_=columns.SLICES,
            shape=merge_keys.RESOURCE_SLICE,
            flat=(slice_to_wrapped, slice_from_wrapped),
            zero_spec={"pool": {}},
            quantities=quantities.SLICES,
            namespaced=False,
            generation=True,
            fields={
                "spec.driver": rows.field("spec", "driver"),
                "spec.nodeName": rows.field("spec", "nodeName"),
                "spec.pool.name": rows.field("spec", "pool", "name"),
            },
        ),
        _row(
            settings,
            "devicetaintrules",
            "DeviceTaintRule",
            rules=slices.TAINT_RULES,
            columns_=columns.TAINT_RULES,
            shape=merge_keys.CONDITIONED,
            status=True,
            zero_spec={"taint": {}},
            served=[name for name in settings.resource_versions if name != "v1beta1"],  # v1beta2 came with it
            namespaced=False,
            generation=True,
        ),
    ]
    return [type_ for type_ in types if type_.versions]


def _row(
    settings: ApiServerSettings,
    plural: str,
    kind: str,
    *,
    rules: Rules,
    columns_: Sequence[Column] = columns.NAME_AND_AGE,
    shape: Shape = METADATA_ONLY,
    status: bool = False,
    flat: tuple[Converter, Converter] | None = None,
    zero_spec: JsonObject | None = None,
    served: Sequence[str] | None = None,
    **more: Any,  # noqa: ANN401  (further fields of ResourceType, which checks them)
) -> ResourceType:
    """``flat``: converters of v1beta1, the one version that is spelled differently."""
    versions = [
        rows.version(
            name,
            rules=rules,
            columns_=columns_,
            shape=shape,
            status=status,
            converters=flat if name == "v1beta1" else None,
            zero_spec=zero_spec,
            warning=_deprecation(settings, name, kind),
        )
        for name in (settings.resource_versions if served is None else served)
    ]
    return rows.kind(RESOURCE, plural, kind, versions, returns_deleted=True, **more)


def _deprecation(settings: ApiServerSettings, version: str, kind: str) -> str:
    since, until = _DEPRECATED.get(version, (0, 0))
    if not since or settings.kubernetes < (1, since):
        return ""
    return f"{RESOURCE}/{version} {kind} is deprecated in v1.{since}+, unavailable in v1.{until}+"
