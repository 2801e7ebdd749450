"""The pods of an owner (a Deployment, a Job, …) or of a namespace, and why each of them waits.

A pod names its owner in ``metadata.ownerReferences``. The pods of a Deployment belong to ReplicaSets, which need not be
read: Kubernetes names a ReplicaSet after its Deployment and the hash of its pod template, which the pods have as a
label. Likewise a Job of a CronJob is named after it and a number of minutes.
"""

from collections.abc import Callable, Sequence
from typing import Final

from kerf_dra.api.core.v1 import Pod
from kerf_dra.api.model.names import ObjectRef
from kerf_dra.driver.diagnostics.cluster_index import ClusterIndex
from kerf_dra.driver.diagnostics.dump import POD_TEMPLATE_HASH
from kerf_dra.driver.diagnostics.errors import QueryError
from kerf_dra.driver.diagnostics.explain.pod_status import is_in_order
from kerf_dra.driver.diagnostics.explain.report import Subject, Verdict, WhyReport, WorkloadReport
from kerf_dra.driver.diagnostics.explain.why import explain_pod
from kerf_dra.driver.diagnostics.progress import ProgressTracker, without_progress

OWNER_KINDS: Final = ("Deployment", "ReplicaSet", "StatefulSet", "DaemonSet", "Job", "CronJob")
"""The kinds of owners whose pods can be asked for."""
_IN_ORDER: Final = frozenset({Verdict.HAS_DEVICES})


def explain_workload(
    cluster: ClusterIndex, kind: str, ref: ObjectRef, track: ProgressTracker = without_progress
) -> WorkloadReport:
    """Return why each pod of the owner ``ref`` waits; ``kind`` is one of OWNER_KINDS.

    Raises QueryError when the owner has no pod that uses devices.
    """
    pods = [
        pod
        for pod in cluster.pods.values()
        if pod.metadata.namespace == ref.namespace and _owner(pod, kind) == ref.name
    ]
    if not pods:
        owners = {
            ObjectRef(pod.metadata.namespace, name) for pod in cluster.pods.values() if (name := _owner(pod, kind))
        }
        advice = (
            f"kubectl describe {kind.lower()} {ref.name} -n {ref.namespace} says why it has none: while it is "
            "suspended or queued, for example by Kueue, no pod exists"
        )
        raise QueryError.unknown(f"pod that requests devices of {kind}", ref, owners, advice)
    subject = Subject(kind=kind, namespace=ref.namespace, name=ref.name)
    return _report(cluster, subject, pods, track)


def explain_waiting_pods(
    cluster: ClusterIndex, namespace: str, track: ProgressTracker = without_progress
) -> WorkloadReport:
    """Return why each pod of ``namespace`` with devices waits or fails: has not started, cannot, or is being deleted.

    An empty ``namespace`` means all of them.
    """
    pods = [pod for pod in cluster.pods.values() if namespace in ("", pod.metadata.namespace)]
    out_of_order = [pod for pod in pods if not is_in_order(pod)]
    subject = Subject(kind="Namespace", namespace="", name=namespace)
    return _report(cluster, subject, out_of_order, track, in_order=len(pods) - len(out_of_order))


def _report(
    cluster: ClusterIndex, subject: Subject, pods: Sequence[Pod], track: ProgressTracker, *, in_order: int = 0
) -> WorkloadReport:
    """Return the reports of ``pods``; ``in_order`` is the number of the subject's other pods with devices."""
    ordered = sorted(pods, key=lambda pod: pod.ref)
    reports: list[WhyReport] = [
        explain_pod(cluster, pod.ref, with_preference=False) for pod in track(ordered, "explaining pods")
    ]
    waiting = [report for report in reports if report.verdict not in _IN_ORDER]
    total = len(reports) + in_order
    return WorkloadReport(
        subject=subject,
        message=f"{len(waiting)} of {total} pods with devices wait" if reports else "no pod with devices waits",
        pods=(*waiting, *(report for report in reports if report.verdict in _IN_ORDER)),
    )


def find_owner(pod: Pod) -> str:
    """Return the workload that owns ``pod``, such as ``deployment/web``; empty: none of OWNER_KINDS does."""
    return next((f"{kind.lower()}/{name}" for kind in OWNER_KINDS if (name := _owner(pod, kind))), "")


def _owner(pod: Pod, kind: str) -> str:
    """Return the name of the pod's owner of ``kind``; empty when it has none."""
    for reference in pod.metadata.owner_references:
        if reference.kind == kind:
            return reference.name
        if (derive := _INDIRECT.get((reference.kind, kind))) is not None:
            return derive(pod, reference.name)
    return ""


def _deployment(pod: Pod, replica_set: str) -> str:
    suffix = f"-{pod.metadata.labels.get(POD_TEMPLATE_HASH, '')}"
    return replica_set.removesuffix(suffix) if len(suffix) > 1 and replica_set.endswith(suffix) else ""


def _cron_job(_pod: Pod, job: str) -> str:
    name, _, minutes = job.rpartition("-")
    return name if minutes.isdecimal() else ""


_INDIRECT: Final[dict[tuple[str, str], Callable[[Pod, str], str]]] = {
    ("ReplicaSet", "Deployment"): _deployment,
    ("Job", "CronJob"): _cron_job,
}
"""How the name of an owner's owner follows from the owner's name, by the kinds of both."""
