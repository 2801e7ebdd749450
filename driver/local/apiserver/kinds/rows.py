"""How a row of the table of built-in kinds is written: only what differs from most kinds is said."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from api.model.base import JsonObject
from driver.local.apiserver.kinds.printers import columns
from driver.local.apiserver.kinds.types import ApiVersion, Column, ResourceType, Rules
from driver.local.apiserver.meta.documents import lookup
from driver.local.apiserver.meta.label_selectors import FieldReader
from driver.local.apiserver.meta.merge_keys import METADATA_ONLY, Shape
from driver.local.apiserver.storage import Converter, GroupResource


def field(*path: str) -> FieldReader:
    """A field that objects can be selected by."""
    return lambda body: str(lookup(body, *path) or "")


NAME: Final[Mapping[str, FieldReader]] = {"metadata.name": field("metadata", "name")}
NAME_AND_NAMESPACE: Final[Mapping[str, FieldReader]] = {**NAME, "metadata.namespace": field("metadata", "namespace")}
_NO_RULES: Final = Rules()


def version(
    name: str,
    *,
    rules: Rules = _NO_RULES,
    columns_: Sequence[Column] = columns.NAME_AND_AGE,
    shape: Shape = METADATA_ONLY,
    status: bool = False,
    converters: tuple[Converter, Converter] | None = None,
    zero_spec: JsonObject | None = None,
    warning: str = "",
) -> ApiVersion:
    """One version. ``converters``: from the stored body and to it; ``zero_spec``: the spec of an empty object."""
    to_wire, to_stored = converters or (None, None)
    return ApiVersion(
        name=name,
        rules=rules,
        columns=columns_,
        shape=shape,
        status=status,
        to_wire=to_wire,
        to_stored=to_stored,
        zero={"spec": zero_spec or {}, "status": {}},
        warning=warning,
    )


def kind(
    group: str,
    plural: str,
    name: str,
    versions: Sequence[ApiVersion],
    *,
    namespaced: bool = True,
    fields: Mapping[str, FieldReader] | None = None,
    **more: Any,  # noqa: ANN401  (further fields of ResourceType, which checks them)
) -> ResourceType:
    """One kind. ``fields`` are those it can be selected by beside name and namespace."""
    derived: dict[str, Any] = {
        "singular": name.lower(),
        "list_kind": f"{name}List",
        "store": GroupResource(group, plural),
    }
    return ResourceType(
        group=group,
        plural=plural,
        kind=name,
        versions=versions,
        namespaced=namespaced,
        fields={**(NAME_AND_NAMESPACE if namespaced else NAME), **(fields or {})},
        **{**derived, **more},
    )
