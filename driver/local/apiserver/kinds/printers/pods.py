"""The printer columns of pods: a pod can be many things that are neither Pending nor Running.

Source: ``printPod`` in ``kubernetes/pkg/printers/internalversion`` of 1.37.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from kerf_dra.api.model.base import JsonObject
from kerf_dra.driver.local.apiserver.kinds.printers.columns import AGE, NAME, field
from kerf_dra.driver.local.apiserver.kinds.types import Cell, Column
from kerf_dra.driver.local.apiserver.meta.documents import lookup
from kerf_dra.driver.local.apiserver.times import format_age

_FINISHED: Final = frozenset({"Succeeded", "Failed"})


@dataclass(frozen=True, slots=True, kw_only=True)
class PodSummary:
    """The columns Ready, Status and Restarts of a pod."""

    ready: int
    total: int
    reason: str
    restarts: int
    last_restart: str = ""


def summarize_pod(pod: JsonObject) -> PodSummary:
    """Return the state of a pod as ``printPod`` sums it up; of several reasons the most specific one wins."""
    initializing = _init_reason(pod)
    sidecars = _sidecars(pod)
    statuses = _statuses(pod, "initContainerStatuses")
    if initializing and not _has_condition(pod, "Initialized"):
        counted = statuses
        reason = initializing
        ready = 0
    else:
        containers = _statuses(pod, "containerStatuses")
        counted = [*(each for each in statuses if each.get("name") in sidecars), *containers]
        ready = sum(1 for each in counted if each.get("ready") and lookup(each, "state", "running") is not None)
        reason = _running_reason(pod, containers)
    return PodSummary(
        ready=ready,
        total=len(lookup(pod, "spec", "containers") or ()) + len(sidecars),
        reason=_deletion_reason(pod) or reason,
        restarts=sum(int(each.get("restartCount") or 0) for each in counted),
        last_restart=max(
            (str(lookup(each, "lastState", "terminated", "finishedAt") or "") for each in counted), default=""
        ),
    )


def _statuses(pod: JsonObject, name: str) -> list[JsonObject]:
    return list(lookup(pod, "status", name) or ())


def _sidecars(pod: JsonObject) -> frozenset[str]:
    containers = lookup(pod, "spec", "initContainers") or ()
    return frozenset(each["name"] for each in containers if each.get("restartPolicy") == "Always")


def _has_condition(pod: JsonObject, type_: str) -> bool:
    conditions = lookup(pod, "status", "conditions") or ()
    return any(each.get("type") == type_ and each.get("status") == "True" for each in conditions)


def _phase_reason(pod: JsonObject) -> str:
    for condition in lookup(pod, "status", "conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("reason") == "SchedulingGated":
            return "SchedulingGated"
    return str(lookup(pod, "status", "reason") or lookup(pod, "status", "phase") or "")


def _exit_reason(terminated: JsonObject) -> str:
    if terminated.get("reason"):
        return str(terminated["reason"])
    if terminated.get("signal"):
        return f"Signal:{terminated['signal']}"
    return f"ExitCode:{terminated.get('exitCode', 0)}"


def _init_reason(pod: JsonObject) -> str:
    """Return the reason why a pod is still initializing; empty when it is not."""
    sidecars = _sidecars(pod)
    total = len(lookup(pod, "spec", "initContainers") or ())
    for index, status in enumerate(_statuses(pod, "initContainerStatuses")):
        terminated, waiting = lookup(status, "state", "terminated"), lookup(status, "state", "waiting", "reason")
        if terminated and not terminated.get("exitCode"):
            continue
        if status.get("name") in sidecars and status.get("started"):
            continue
        if terminated:
            return f"Init:{_exit_reason(terminated)}"
        if waiting and waiting != "PodInitializing":
            return f"Init:{waiting}"
        return f"Init:{index}/{total}"
    return ""


def _running_reason(pod: JsonObject, containers: Sequence[JsonObject]) -> str:
    reason, error, running = _phase_reason(pod), "", False
    for status in reversed(containers):
        terminated, waiting = lookup(status, "state", "terminated"), lookup(status, "state", "waiting", "reason")
        if waiting:
            reason = str(waiting)
        elif terminated:
            reason = _exit_reason(terminated)
            error = reason if terminated.get("exitCode") else error
        elif status.get("ready"):
            running = True
    if reason != "Completed":
        return reason
    if running and _has_condition(pod, "Ready"):
        return "Running"
    return error or ("NotReady" if running else reason)


def _deletion_reason(pod: JsonObject) -> str:
    if not lookup(pod, "metadata", "deletionTimestamp"):
        return ""
    if lookup(pod, "status", "reason") == "NodeLost":
        return "Unknown"
    return "" if lookup(pod, "status", "phase") in _FINISHED else "Terminating"


def _ready(pod: JsonObject, _now: datetime) -> Cell:
    summary = summarize_pod(pod)
    return f"{summary.ready}/{summary.total}"


def _restarts(pod: JsonObject, now: datetime) -> Cell:
    summary = summarize_pod(pod)
    ago = f" ({format_age(summary.last_restart, now)} ago)" if summary.restarts and summary.last_restart else ""
    return f"{summary.restarts}{ago}"


def _readiness_gates(pod: JsonObject, _now: datetime) -> Cell:
    gates = lookup(pod, "spec", "readinessGates") or ()
    if not gates:
        return "<none>"
    passed = sum(1 for gate in gates if _has_condition(pod, str(gate.get("conditionType"))))
    return f"{passed}/{len(gates)}"


def _address(pod: JsonObject, _now: datetime) -> Cell:
    addresses = lookup(pod, "status", "podIPs") or ()
    return str(addresses[0].get("ip")) if addresses else "<none>"


PODS: Final = (
    NAME,
    Column(name="Ready", cell=_ready, description="How many of the containers accept traffic."),
    Column(name="Status", cell=lambda pod, _now: summarize_pod(pod).reason, description="The aggregate status."),
    Column(name="Restarts", cell=_restarts, description="How often containers were restarted, and when last."),
    AGE,
    Column(name="IP", cell=_address, priority=1),
    field("Node", "spec", "nodeName", priority=1, missing="<none>"),
    field("Nominated Node", "status", "nominatedNodeName", priority=1, missing="<none>"),
    Column(name="Readiness Gates", cell=_readiness_gates, priority=1),
)
