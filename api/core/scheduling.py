"""PodGroups (``scheduling.k8s.io``), with the few fields that Kerf reads from manifests.

The pods of a group name it in ``spec.schedulingGroup``. A pod's entry of ``resourceClaims`` that has the name and the
template of an entry of its group stands for the group's claim, which all its pods share (KEP-5729; feature gates
GenericWorkload and DRAWorkloadResourceClaims, off by default in 1.37).
"""

from typing import Final

from kerf_dra.api.core.v1 import PodResourceClaim
from kerf_dra.api.model.base import Value
from kerf_dra.api.model.metadata import Object
from kerf_dra.api.wire import Kind, identity_kind

GROUP: Final = "scheduling.k8s.io"
VERSIONS: Final = ("v1beta1", "v1alpha3", "v1alpha2")
"""The versions that have PodGroups with claims: since 1.37, and those of 1.37 and 1.36 behind feature gates."""


class PodGroupSpec(Value):
    """The claims of a group; how its pods are placed together is not read."""

    resource_claims: tuple[PodResourceClaim, ...] = ()


class PodGroup(Object):
    """Pods that are scheduled together, with the claims that they share."""

    spec: PodGroupSpec = PodGroupSpec()


def pod_group_kind(version: str) -> Kind[PodGroup]:
    """Build the kind of PodGroups in one of ``VERSIONS``; they differ in fields that Kerf does not read."""
    return identity_kind(PodGroup, group=GROUP, version=version, plural="podgroups", namespaced=True)
