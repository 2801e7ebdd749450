"""The kinds of a version of ``resource.k8s.io`` for a controller that allocates claims itself (KEP-3063)."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final, NoReturn, TypeAlias, TypeVar

from kerf_dra.api.model.base import JsonObject
from kerf_dra.api.model.claims import ResourceClaim
from kerf_dra.api.model.classic import (
    ClassicAllocation,
    ClassicClaim,
    ClassicClass,
    ClassicTemplate,
    PodSchedulingContext,
)
from kerf_dra.api.model.metadata import Object
from kerf_dra.api.resource.kinds import GROUP
from kerf_dra.api.wire import Kind, converted_kind, identity_kind

WireT = TypeVar("WireT", bound=Object)
WireClaimT = TypeVar("WireClaimT", bound=Object)
WireClassT = TypeVar("WireClassT", bound=Object)
ModelT = TypeVar("ModelT")

CONTEXTS: Final = "podschedulingcontexts"
"""The resource whose presence in discovery shows that the cluster supports such controllers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicKinds:
    """The kinds of one version, and the form of its claims' status."""

    version: str
    claims: Kind[ClassicClaim]
    templates: Kind[ClassicTemplate]
    classes: Kind[ClassicClass]
    scheduling_contexts: Kind[PodSchedulingContext]
    resource_claims: Kind[ResourceClaim]
    """The claims as the kubelet plugin reads them, with their allocation only."""
    allocated: Callable[[ClassicAllocation, str], JsonObject]
    """The fields of ``status`` that make a claim allocated by a driver. Raises HandleTooLargeError."""
    released: JsonObject
    """The merge patch of ``status`` that makes a claim unallocated again."""


Conversion: TypeAlias = tuple[type[WireT], Callable[[WireT], ModelT], Callable[[ModelT], WireT]]
"""A wire type, with the functions to the model and back."""


def build_kinds(
    version: str,
    *,
    claims: Conversion[WireClaimT, ClassicClaim],
    templates: Conversion[WireT, ClassicTemplate],
    classes: Conversion[WireClassT, ClassicClass],
    class_kind: str,
    to_resource_claim: Callable[[WireClaimT], ResourceClaim],
    allocated: Callable[[ClassicAllocation, str], JsonObject],
    released: JsonObject,
) -> ClassicKinds:
    """Build the kinds of ``version``, which calls its classes ``class_kind``; the rest is as in ClassicKinds."""
    named = partial(converted_kind, group=GROUP, version=version)
    return ClassicKinds(
        version=version,
        claims=named(ClassicClaim, *claims, plural="resourceclaims", namespaced=True, kind="ResourceClaim"),
        templates=named(
            ClassicTemplate,
            *templates,
            plural="resourceclaimtemplates",
            namespaced=True,
            kind="ResourceClaimTemplate",
        ),
        classes=named(ClassicClass, *classes, plural=f"{class_kind.lower()}es", namespaced=False, kind=class_kind),
        # The JSON of this kind has the model's own shape in every version.
        scheduling_contexts=identity_kind(
            PodSchedulingContext, group=GROUP, version=version, plural=CONTEXTS, namespaced=True
        ),
        resource_claims=named(
            ResourceClaim, claims[0], to_resource_claim, _refuse_to_write, plural="resourceclaims", namespaced=True
        ),
        allocated=allocated,
        released=released,
    )


def _refuse_to_write(_claim: ResourceClaim) -> NoReturn:
    raise NotImplementedError("the kubelet plugin reads claims, it writes none")
