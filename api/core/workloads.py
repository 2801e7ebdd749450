"""Objects that make pods from a template (``apps/v1``, ``batch/v1``), with the few fields that Kerf reads.

Decoding drops all other fields, so such an object must never be written back as a whole: changes are merge patches.
"""

from typing import Final

import msgspec

from kerf_dra.api.model.base import JsonObject, Value
from kerf_dra.api.model.metadata import Object
from kerf_dra.api.wire import Kind, identity_kind


class PodTemplate(Value):
    """The pods that a workload makes, as its author wrote them."""

    metadata: JsonObject = {}
    spec: JsonObject = {}


class WorkloadSpec(Value):
    """The spec of any of the kinds: each has some of the numbers."""

    replicas: int = 1
    """Pods of a Deployment, a ReplicaSet or a StatefulSet."""
    parallelism: int = 1
    """Pods of a Job at one time."""
    completions: int | None = None
    """Pods of a Job in all; None: any number."""
    suspend: bool = False
    """Whether a Job has no pods for now."""
    selector: JsonObject | msgspec.UnsetType = msgspec.UNSET
    template: PodTemplate = PodTemplate()


class WorkloadStatus(Value):
    """The numbers that are the same in the status of all kinds but Jobs."""

    replicas: int = 0


class WorkloadObject(Object):
    """A Deployment, a ReplicaSet, a StatefulSet or a Job."""

    spec: WorkloadSpec = WorkloadSpec()
    status: WorkloadStatus = WorkloadStatus()


def _kind(group: str, kind: str) -> Kind[WorkloadObject]:
    return identity_kind(
        WorkloadObject, group=group, version="v1", plural=f"{kind.lower()}s", namespaced=True, kind=kind
    )


DEPLOYMENTS: Final = _kind("apps", "Deployment")
REPLICA_SETS: Final = _kind("apps", "ReplicaSet")
STATEFUL_SETS: Final = _kind("apps", "StatefulSet")
JOBS: Final = _kind("batch", "Job")

WORKLOADS: Final = (DEPLOYMENTS, REPLICA_SETS, STATEFUL_SETS, JOBS)
"""The kinds that make pods themselves, or through another one of them."""
