"""The constructors that the tables of built-in kinds use: an entry says only what differs from most kinds."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from kerf_dra.api.model.base import JsonObject
from kerf_dra.driver.local.apiserver.kinds.printers.columns import NAME_AND_AGE
from kerf_dra.driver.local.apiserver.kinds.types import ApiVersion, Column, ResourceType
from kerf_dra.driver.local.apiserver.meta.documents import lookup
from kerf_dra.driver.local.apiserver.meta.label_selectors import FieldReader
from kerf_dra.driver.local.apiserver.storage import Converter, GroupResource


def field_reader(*path: str) -> FieldReader:
    """Return the reader of a field that a field selector may name."""
    return lambda body: str(lookup(body, *path) or "")


_NAME: Final[Mapping[str, FieldReader]] = {"metadata.name": field_reader("metadata", "name")}
_NAMESPACE: Final[Mapping[str, FieldReader]] = {"metadata.namespace": field_reader("metadata", "namespace")}


def define_version(
    name: str = "v1",
    *,
    columns: Sequence[Column] = NAME_AND_AGE,
    converters: tuple[Converter, Converter] | None = None,
    zero_spec: JsonObject | None = None,
    **fields: Any,  # noqa: ANN401  (further fields of ApiVersion, which checks them)
) -> ApiVersion:
    """Define a version. ``converters``: from the stored body and to it; ``zero_spec``: an empty object's ``spec``."""
    to_wire, to_stored = converters or (None, None)
    zero = {"spec": zero_spec or {}, "status": {}}
    return ApiVersion(name=name, columns=columns, to_wire=to_wire, to_stored=to_stored, zero_value=zero, **fields)


def define_kind(
    group: str,
    kind: str,
    *versions: ApiVersion,
    namespaced: bool = True,
    selectable_fields: Mapping[str, FieldReader] | None = None,
    store: GroupResource | None = None,
    **more: Any,  # noqa: ANN401  (further fields of ResourceType, which checks them)
) -> ResourceType:
    """Define one kind, its preferred version first. ``selectable_fields`` are those beside name and namespace."""
    plural = _guess_plural(kind.lower())
    return ResourceType(
        group=group,
        plural=plural,
        singular=kind.lower(),
        kind=kind,
        list_kind=f"{kind}List",
        versions=versions,
        namespaced=namespaced,
        store=store or GroupResource(group, plural),
        selectable_fields={**_NAME, **(_NAMESPACE if namespaced else {}), **(selectable_fields or {})},
        **more,
    )


def _guess_plural(singular: str) -> str:
    """Guess the plural as ``UnsafeGuessKindToResource`` does (``k8s.io/apimachinery`` ``pkg/api/meta``)."""
    if singular.endswith("s"):
        return f"{singular}es"
    return f"{singular[:-1]}ies" if singular.endswith("y") else f"{singular}s"
