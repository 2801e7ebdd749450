"""What a version of ``resource.k8s.io`` offers to a controller that allocates claims by itself (KEP-3063)."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from api.model.base import JsonObject
from api.model.claims import ResourceClaim
from api.model.classic import ClassicAllocation, ClassicClaim, ClassicClass, ClassicTemplate, PodSchedulingContext
from api.resource.kinds import GROUP
from api.wire import Kind, identity_kind

CONTEXTS: Final = "podschedulingcontexts"
"""The resource whose presence in discovery tells that such controllers have a place in the cluster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicKinds:
    """The kinds of one version, and what its claims' status looks like."""

    version: str
    claims: Kind[ClassicClaim]
    templates: Kind[ClassicTemplate]
    classes: Kind[ClassicClass]
    scheduling_contexts: Kind[PodSchedulingContext]
    resource_claims: Kind[ResourceClaim]
    """The same claims as the kubelet plugin looks at them: only what they got."""
    allocated: Callable[[ClassicAllocation, str], JsonObject]
    """The fields of ``status`` that make a claim allocated by a driver. Raises HandleTooLargeError."""
    released: JsonObject
    """The merge patch of ``status`` that makes a claim unallocated again."""


def scheduling_contexts(version: str) -> Kind[PodSchedulingContext]:
    """Its JSON is the model's own shape in every version."""
    return identity_kind(PodSchedulingContext, group=GROUP, version=version, plural=CONTEXTS, namespaced=True)
