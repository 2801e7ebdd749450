"""The versions of ``resource.k8s.io`` that Kerf speaks, newest first, and how a cluster's version is chosen.

| version | on by default | shape |
|---|---|---|
| v1 | 1.34 | the model's |
| v1beta2 | never (1.33 has it) | the model's |
| v1beta1 | never (1.32 has it) | flat requests, ``basic`` devices |
| v1alpha3 | never (1.31 has it) | claims of a controller: ``spec.controller`` |
| v1alpha2 | never (1.27 to 1.30 have it) | claims of a controller: the class says which |

What is not chosen is not imported: a plugin lives on every node.
"""

from collections.abc import Collection, Iterable, Mapping
from importlib import import_module
from typing import Final

from api.errors import UnsupportedError
from api.resource.classic import CONTEXTS, ClassicKinds
from api.resource.kinds import GROUP, ResourceKinds

VERSIONS: Final = ("v1", "v1beta2", "v1beta1")
CLASSIC_VERSIONS: Final = ("v1alpha3", "v1alpha2")
"""The versions in which a driver's controller may allocate (KEP-3063)."""


def load_kinds(version: str) -> ResourceKinds:
    """The kinds of one of ``VERSIONS``."""
    kinds: ResourceKinds = import_module(f"api.resource.{version}").KINDS
    return kinds


def choose_kinds(served: Iterable[str]) -> ResourceKinds:
    """The newest version among ``served`` (as discovery lists them: ``v1``, ``v1beta1`` …).

    Raises UnsupportedError when there is none: the cluster is too old, or its API is switched off.
    """
    offered = frozenset(served)
    for version in VERSIONS:
        if version in offered:
            return load_kinds(version)
    known = ", ".join(VERSIONS)
    found = ", ".join(sorted(offered)) or "no version"
    raise UnsupportedError(
        f"the API server serves {found} of {GROUP}; Kerf needs one of {known}: use Kubernetes 1.34 or later, or switch "
        f"the API on with --runtime-config={GROUP}/v1beta1=true and the feature gate DynamicResourceAllocation"
    )


def choose_classic_kinds(resources: Mapping[str, Collection[str]]) -> ClassicKinds | None:
    """The newest version in which controllers allocate; None where there is none, or the scheduler does it all.

    ``resources`` are the plurals that discovery lists, by version. v1alpha3 lives on in later releases with other
    content: what tells is PodSchedulingContext.
    """
    if not resources.keys().isdisjoint(VERSIONS):
        return None
    for version in CLASSIC_VERSIONS:
        if CONTEXTS in resources.get(version, ()):
            kinds: ClassicKinds = import_module(f"api.resource.{version}").KINDS
            return kinds
    return None
