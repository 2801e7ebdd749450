"""The versions of ``resource.k8s.io`` that Kerf speaks, newest first, and how a cluster's version is chosen.

| version | on by default | shape |
|---|---|---|
| v1 | 1.34 | the model's |
| v1beta2 | never (1.33 has it) | the model's |
| v1beta1 | never (1.32 has it) | flat requests, ``basic`` devices |
"""

from collections.abc import Iterable
from typing import Final

from api.errors import UnsupportedError
from api.resource import v1, v1beta1, v1beta2
from api.resource.codec import GROUP, ResourceKinds

VERSIONS: Final[tuple[ResourceKinds, ...]] = (v1.KINDS, v1beta2.KINDS, v1beta1.KINDS)


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
