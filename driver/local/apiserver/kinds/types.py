"""What the API server knows of a kind: names, versions, strategy, merge schema, printer columns."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, TypeAlias

from kerf_dra.api.model.base import JsonObject
from kerf_dra.driver.local.apiserver.meta.label_selectors import FieldReader
from kerf_dra.driver.local.apiserver.meta.merge_schema import METADATA_ONLY, MergeSchema
from kerf_dra.driver.local.apiserver.meta.names import NameCheck, dns_subdomain
from kerf_dra.driver.local.apiserver.meta.status_errors import FieldError, qualified
from kerf_dra.driver.local.apiserver.storage import Converter, GroupResource

Cell: TypeAlias = str | int | float | bool | None

ALL_VERBS: Final = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column that ``kubectl get`` prints; one with a ``priority`` above 0 only with ``-o wide``."""

    name: str
    cell: Callable[[JsonObject, datetime], Cell]
    type: str = "string"
    format: str = ""
    description: str = ""
    priority: int = 0

    @property
    def definition(self) -> JsonObject:
        return {name: getattr(self, name) for name in ("name", "type", "format", "description", "priority")}


GracePeriod: TypeAlias = Callable[[JsonObject, int | None], int]
"""Computes the grace period in seconds from the object and the period in the request, if any."""


def _do_nothing(*_arguments: object) -> None:
    return None


def _find_nothing(*_arguments: object) -> Sequence[Any]:
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Strategy:
    """The strategy of a kind, as in ``k8s.io/apiserver`` ``pkg/registry/rest``.

    Functions that return nothing change their first argument, a private copy, in place; ``now`` is an RFC 3339 text.
    """

    prune: Callable[[JsonObject, str], Sequence[str]] = _find_nothing
    """(body, fieldValidation): drops unknown fields and returns warnings; with Strict it raises ApiStatusError."""
    quantities: Sequence[str] = ()
    """The paths of quantities in the stored body, e.g. ``status.capacity{}``; they are stored in canonical form."""
    default: Callable[[JsonObject, str], None] = _do_nothing
    """(body, now): fills in defaults."""
    prepare_for_create: Callable[[JsonObject], None] = _do_nothing
    """(body): sets what the server decides at creation."""
    prepare_for_update: Callable[[JsonObject, JsonObject, str], None] = _do_nothing
    """(body, old body, now): restores what an update cannot change."""
    prepare_for_status_update: Callable[[JsonObject, JsonObject], None] = _do_nothing
    """(body, old body): the same for a write to the status subresource."""
    prepare_for_delete: Callable[[JsonObject, str], None] = _do_nothing
    """(body, now): what a deletion that has to wait changes outside of ``metadata``."""
    grace: GracePeriod | None = None
    """(body, period of the request): the grace period of a deletion; None for kinds that are not deleted gracefully."""
    validate: Callable[[JsonObject], Iterable[FieldError]] = _find_nothing
    """(body): the errors of a new object."""
    validate_update: Callable[[JsonObject, JsonObject], Iterable[FieldError]] = _find_nothing
    """(body, old body): the errors of an update."""
    validate_status: Callable[[JsonObject, JsonObject], Iterable[FieldError]] = _find_nothing
    """(body, old body): the errors of a write to the status subresource."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiVersion:
    """One served version of a kind; without converters its bodies are the stored ones."""

    name: str
    to_wire: Converter | None = None
    to_stored: Converter | None = None
    merge_schema: MergeSchema = METADATA_ONLY
    strategy: Strategy = Strategy()
    zero_value: JsonObject = field(default_factory=dict)
    """The fields that even an empty object has: those parts of the Go type that are no pointers."""
    columns: Sequence[Column] = ()
    schema: JsonObject | None = None
    """The structural schema of a custom resource; None for built-in kinds."""
    has_status: bool = False
    """Whether there is a status subresource."""
    warning: str = ""
    """A warning for every answer, e.g. that the version is deprecated; empty: none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceType:
    """One kind in all its served versions, the preferred one first (an APIResource of discovery)."""

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
    """Subresources beside status, each with the kind of its documents."""
    counts_generation: bool = False
    """Whether ``metadata.generation`` counts changes outside of metadata and status."""
    status_on_create: bool = False
    """Whether a new object keeps its status: nodes register themselves with theirs."""
    allow_create_on_update: bool = False
    allow_unconditional_update: bool = True
    """Whether a PUT may lack ``resourceVersion``."""
    returns_deleted: bool = False
    """Whether the response to a deletion is the object instead of a Status."""
    selectable_fields: Mapping[str, FieldReader] = field(default_factory=dict)
    any_finalizer: bool = False
    """Whether finalizers other than the standard ones may lack a domain."""
    is_custom: bool = False
    """Whether a CustomResourceDefinition defines the kind."""

    @property
    def group_resource(self) -> GroupResource:
        return GroupResource(self.group, self.plural)

    @property
    def strategy(self) -> Strategy:
        """The strategy of deletion, which is the same in all versions."""
        return self.versions[0].strategy

    def version(self, name: str) -> ApiVersion | None:
        return next((version for version in self.versions if version.name == name), None)

    def api_version(self, version: ApiVersion) -> str:
        return f"{self.group}/{version.name}" if self.group else version.name

    def __str__(self) -> str:
        return qualified(self.group, self.plural)
