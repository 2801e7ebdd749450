"""The versions of ``resource.k8s.io`` that Kerf speaks, newest first, and how a cluster's version is chosen.

| version | on by default | shape |
|---|---|---|
| v1 | 1.34 | the model's |
| v1beta2 | never (1.33 has it) | the model's |
| v1beta1 | never (1.32 has it) | flat requests, ``basic`` devices |
| v1alpha3 | never (1.31 has it) | claims of a controller: ``spec.controller`` |
| v1alpha2 | never (1.27 to 1.30 have it) | claims of a controller: the class says which |
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from api.errors import UnsupportedError
from api.resource import v1, v1alpha2, v1alpha3, v1beta1, v1beta2
from api.resource.classic import CONTEXTS, ClassicKinds
from api.resource.codec import GROUP, ResourceKinds

VERSIONS: Final[tuple[ResourceKinds, ...]] = (v1.KINDS, v1beta2.KINDS, v1beta1.KINDS)
CLASSIC_VERSIONS: Final[tuple[ClassicKinds, ...]] = (v1alpha3.KINDS, v1alpha2.KINDS)
"""The versions in which a driver's controller may allocate (KEP-3063)."""


def choose(served: Iterable[str]) -> ResourceKinds:
    """The newest version among ``served`` (as discovery lists them: ``v1``, ``v1beta1`` …).

    Raises UnsupportedError when there is none: the cluster is too old, or its API is switched off.
    """
    offered = frozenset(served)
    for kinds in VERSIONS:
        if kinds.version in offered:
            return kinds
    known = ", ".join(kinds.version for kinds in VERSIONS)
    found = ", ".join(sorted(offered)) or "no version"
    raise UnsupportedError(
        f"the API server serves {found} of {GROUP}; Kerf needs one of {known}: use Kubernetes 1.34 or later, or switch "
        f"the API on with --runtime-config={GROUP}/v1beta1=true and the feature gate DynamicResourceAllocation"
    )


def choose_classic(resources: Mapping[str, Collection[str]]) -> ClassicKinds | None:
    """The newest version in which controllers allocate; None where there is none, or the scheduler does it all.

    ``resources`` are the plurals that discovery lists, by version. v1alpha3 lives on in later releases with other
    content: what tells is PodSchedulingContext.
    """
    if any(kinds.version in resources for kinds in VERSIONS):
        return None
    return next((kinds for kinds in CLASSIC_VERSIONS if CONTEXTS in resources.get(kinds.version, ())), None)
