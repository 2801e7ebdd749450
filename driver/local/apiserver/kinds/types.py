"""What the API server knows of a kind: its names, its versions, its rules."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, TypeAlias

from api.model.base import JsonObject
from driver.local.apiserver.meta.label_selectors import FieldReader
from driver.local.apiserver.meta.merge_schema import METADATA_ONLY, MergeSchema
from driver.local.apiserver.meta.names import NameCheck, dns_subdomain
from driver.local.apiserver.meta.status_errors import FieldError, qualified
from driver.local.apiserver.storage import Converter, GroupResource

Cell: TypeAlias = str | int | float | bool | None

ALL_VERBS: Final = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column that ``kubectl get`` prints. ``priority`` above 0 is printed only with ``-o wide``."""

    name: str
    cell: Callable[[JsonObject, datetime], Cell]
    type: str = "string"
    format: str = ""
    description: str = ""
    priority: int = 0

    @property
    def definition(self) -> JsonObject:
        return {
            "name": self.name,
            "type": self.type,
            "format": self.format,
            "description": self.description,
            "priority": self.priority,
        }


GracePeriod: TypeAlias = Callable[[JsonObject, int | None], int]
"""From the object and what the deletion asked for."""


def _nothing(_body: JsonObject) -> None:
    return None


def _no_defaults(_body: JsonObject, _now: str) -> None:
    return None


def _nothing_to_prepare(_new: JsonObject, _old: JsonObject, _now: str) -> None:
    return None


def _nothing_changed(_new: JsonObject, _old: JsonObject) -> None:
    return None


def _keep_everything(_body: JsonObject, _field_validation: str) -> Sequence[str]:
    return ()


def _no_errors(*_bodies: JsonObject) -> Iterable[FieldError]:
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Strategy:
    """What writes of one kind obey. Whoever returns nothing changes its first argument, a private copy, in place."""

    prune: Callable[[JsonObject, str], Sequence[str]] = _keep_everything
    """Drops unknown fields and returns warnings about them; with ``Strict`` it raises RefusedError instead."""
    quantities: Sequence[str] = ()
    """Paths of the quantities in the stored body, e.g. ``status.capacity{}``: each is stored in its canonical form."""
    default: Callable[[JsonObject, str], None] = _no_defaults
    """Fills in what every object has, written or not. Second: the time stamp of now."""
    prepare_for_create: Callable[[JsonObject], None] = _nothing
    """What the server itself decides when an object is created."""
    prepare_for_update: Callable[[JsonObject, JsonObject, str], None] = _nothing_to_prepare
    """What of the old body (second) an update cannot change. Third: the time stamp of now."""
    prepare_for_status_update: Callable[[JsonObject, JsonObject], None] = _nothing_changed
    """The same for a write to the status subresource."""
    prepare_for_delete: Callable[[JsonObject, str], None] = _no_defaults
    """What a deletion that has to wait changes beside metadata. Second: the time stamp of now."""
    validate: Callable[[JsonObject], Iterable[FieldError]] = _no_errors
    """Of a created object."""
    validate_update: Callable[[JsonObject, JsonObject], Iterable[FieldError]] = _no_errors
    """New body, old body."""
    validate_status: Callable[[JsonObject, JsonObject], Iterable[FieldError]] = _no_errors
    """New body, old body of a write to the status subresource."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiVersion:
    """One served version of a kind. Without converters its bodies are the stored ones."""

    name: str
    to_wire: Converter | None = None
    to_stored: Converter | None = None
    merge_schema: MergeSchema = METADATA_ONLY
    strategy: Strategy = Strategy()
    zero_value: JsonObject = field(default_factory=dict)
    """What every object has, even an empty one: the parts of the Go type that are no pointers."""
    columns: Sequence[Column] = ()
    schema: JsonObject | None = None
    """Structural schema of a custom resource."""
    status: bool = False
    """Whether ``status`` is written through a subresource of its own."""
    warning: str = ""
    """Sent with every answer, e.g. that the version is deprecated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceType:
    """One kind in all its served versions, the preferred one first."""

    group: str
    plural: str
    singular: str
    kind: str
    list_kind: str
    short_names: Sequence[str] = ()
    categories: Sequence[str] = ()
    namespaced: bool
    versions: Sequence[ApiVersion]
    store: GroupResource
    name_check: NameCheck = dns_subdomain
    verbs: Sequence[str] = ALL_VERBS
    subresources: Mapping[str, str] = field(default_factory=dict)
    """Besides status: name to the kind that is posted there."""
    generation: bool = False
    """Whether ``metadata.generation`` counts the changes of what is neither metadata nor status."""
    status_on_create: bool = False
    """Whether a new object may bring its status (nodes register themselves with theirs)."""
    create_on_update: bool = False
    unconditional_update: bool = True
    """Whether PUT may leave out ``resourceVersion``."""
    returns_deleted: bool = False
    """Whether a deletion answers with the object instead of a Status."""
    grace: GracePeriod | None = None
    """How long a deletion waits before the object may go, in seconds, for kinds that are deleted gracefully."""
    fields: Mapping[str, FieldReader] = field(default_factory=dict)
    any_finalizer: bool = False
    """Whether finalizers may be names without a domain, beside the standard ones."""
    custom: bool = False
    """Defined by a CustomResourceDefinition."""

    @property
    def group_resource(self) -> GroupResource:
        return GroupResource(self.group, self.plural)

    def version(self, name: str) -> ApiVersion | None:
        return next((version for version in self.versions if version.name == name), None)

    def api_version(self, version: ApiVersion) -> str:
        return f"{self.group}/{version.name}" if self.group else version.name

    def __str__(self) -> str:
        return qualified(self.group, self.plural)
