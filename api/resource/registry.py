"""Chooses the version of ``resource.k8s.io`` for a cluster: the newest that both sides know.

| version | on by default | shape |
|---|---|---|
| v1 | 1.34 | the model's |
| v1beta2 | never (1.33 has it) | the model's |
| v1beta1 | never (1.32 has it) | flat requests, ``basic`` devices |
| v1alpha3 | never (1.31 has it) | claims of a controller: ``spec.controller`` |
| v1alpha2 | never (1.27 to 1.30 have it) | claims of a controller: the class says which |

Only the chosen version is imported, to save memory: a plugin runs on every node.
"""

from collections.abc import Collection, Iterable, Mapping
from importlib import import_module
from typing import Final

from kerf_dra.api.errors import UnsupportedError
from kerf_dra.api.resource.classic import CONTEXTS, ClassicKinds
from kerf_dra.api.resource.kinds import GROUP, ResourceKinds

VERSIONS: Final = ("v1", "v1beta2", "v1beta1")
"""The versions in which the scheduler allocates, newest first."""
CLASSIC_VERSIONS: Final = ("v1alpha3", "v1alpha2")
"""The versions in which a driver's controller can allocate (KEP-3063), newest first."""


def load_kinds(version: str) -> ResourceKinds:
    """Import and return the kinds of one of ``VERSIONS``."""
    kinds: ResourceKinds = import_module(f"kerf_dra.api.resource.{version}").KINDS
    return kinds


def choose_kinds(served: Iterable[str]) -> ResourceKinds:
    """Return the kinds of the newest version among ``served``, the versions of the group that discovery lists.

    Raises UnsupportedError when no version is served: the cluster is too old, or its API is disabled.
    """
    known_by_server = frozenset(served)
    for version in VERSIONS:
        if version in known_by_server:
            return load_kinds(version)
    known = ", ".join(VERSIONS)
    found = ", ".join(sorted(known_by_server)) or "no version"
    raise UnsupportedError(
        f"the API server serves {found} of {GROUP}; Kerf needs one of {known}: use Kubernetes 1.34 or later, or "
        f"enable the API with --runtime-config={GROUP}/v1beta1=true and the feature gate DynamicResourceAllocation"
    )


def choose_classic_kinds(resources: Mapping[str, Collection[str]]) -> ClassicKinds | None:
    """Return the kinds of the newest version in which controllers allocate; None: no such version is served.

    ``resources`` are the plurals that discovery lists, by version. Later releases serve v1alpha3 with other content, so
    a version counts only where it has PodSchedulingContext.
    """
    if not resources.keys().isdisjoint(VERSIONS):
        return None
    for version in CLASSIC_VERSIONS:
        if CONTEXTS in resources.get(version, ()):
            kinds: ClassicKinds = import_module(f"kerf_dra.api.resource.{version}").KINDS
            return kinds
    return None
