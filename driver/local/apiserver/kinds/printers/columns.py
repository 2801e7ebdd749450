"""The printer columns of all built-in kinds but pods (``kubernetes/pkg/printers/internalversion`` of 1.37)."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from kerf_dra.api.model.base import JsonObject
from kerf_dra.driver.local.apiserver.kinds.types import Cell, Column
from kerf_dra.driver.local.apiserver.meta.documents import lookup
from kerf_dra.driver.local.apiserver.times import format_age

_ROLE_PREFIX: Final = "node-role.kubernetes.io/"


def _name(body: JsonObject, _now: datetime) -> Cell:
    return str(body["metadata"]["name"])


def _age(body: JsonObject, now: datetime) -> Cell:
    return format_age(body["metadata"].get("creationTimestamp"), now)


NAME: Final = Column(name="Name", format="name", cell=_name, description="Name must be unique within a namespace.")
AGE: Final = Column(name="Age", cell=_age, description="When the object was created.")
CREATED: Final = Column(
    name="Created At",
    type="date",
    cell=lambda body, _now: body["metadata"].get("creationTimestamp"),
    description="When the object was created.",
)


def field(name: str, *path: str, description: str = "", priority: int = 0, missing: str = "") -> Column:
    """Return a column with the value of one field, or ``missing``."""
    return Column(
        name=name,
        cell=lambda body, _now: str(lookup(body, *path) or missing),
        description=description,
        priority=priority,
    )


NAME_AND_AGE: Final[Sequence[Column]] = (NAME, AGE)


def _claim_state(body: JsonObject, _now: datetime) -> Cell:
    states = ["deleted"] if lookup(body, "metadata", "deletionTimestamp") else []
    if lookup(body, "status", "allocation"):
        states += ["allocated", *(["reserved"] if lookup(body, "status", "reservedFor") else [])]
    elif not states:
        states = ["pending"]
    return ",".join(states)


CLAIMS: Final = (
    NAME,
    Column(
        name="State",
        cell=_claim_state,
        description="A summary of the current state (allocated, pending, reserved, etc.).",
    ),
    AGE,
)
SLICES: Final = (
    NAME,
    field("Node", "spec", "nodeName", description="The node whose devices these are."),
    field("Driver", "spec", "driver", description="The driver that published the slice."),
    field("Pool", "spec", "pool", "name", description="The pool the slice belongs to."),
    AGE,
)
TAINT_RULES: Final = (
    NAME,
    field("Key", "spec", "taint", "key"),
    field("Value", "spec", "taint", "value"),
    field("Effect", "spec", "taint", "effect"),
    Column(
        name="TimeAdded",
        cell=lambda body, now: format_age(added, now) if (added := lookup(body, "spec", "taint", "timeAdded")) else "",
    ),
    AGE,
)
LEASES: Final = (NAME, field("Holder", "spec", "holderIdentity", description="Who holds the lease."), AGE)
NAMESPACES: Final = (NAME, field("Status", "status", "phase", description="The status of the namespace"), AGE)
CONFIG_MAPS: Final = (
    NAME,
    Column(
        name="Data",
        cell=lambda body, _now: str(len(body.get("data") or {}) + len(body.get("binaryData") or {})),
        description="Number of entries.",
    ),
    AGE,
)


def _ready(body: JsonObject, _now: datetime) -> Cell:
    wanted = next((n for key in ("replicas", "parallelism") if (n := lookup(body, "spec", key)) is not None), 1)
    ready = next((n for key in ("readyReplicas", "ready") if (n := lookup(body, "status", key))), 0)
    return f"{ready}/{wanted}"


WORKLOADS: Final = (NAME, Column(name="Ready", cell=_ready, description="Pods that run, of those that shall."), AGE)
"""What is the same for Deployments, ReplicaSets, StatefulSets and Jobs; kube-apiserver's tables have more."""
CUSTOM_RESOURCE_DEFINITIONS: Final = (NAME, CREATED)
BINDINGS: Final = (
    NAME,
    Column(name="Role", cell=lambda body, _now: f"{lookup(body, 'roleRef', 'kind')}/{lookup(body, 'roleRef', 'name')}"),
    AGE,
)
ROLES: Final = (NAME, CREATED)


def _node_status(body: JsonObject, _now: datetime) -> Cell:
    ready = next((each for each in lookup(body, "status", "conditions") or () if each.get("type") == "Ready"), None)
    words = ["Unknown" if ready is None else "Ready" if ready.get("status") == "True" else "NotReady"]
    if lookup(body, "spec", "unschedulable"):
        words.append("SchedulingDisabled")
    return ",".join(words)


def _node_roles(body: JsonObject, _now: datetime) -> Cell:
    labels = lookup(body, "metadata", "labels") or {}
    roles = {label.removeprefix(_ROLE_PREFIX) for label in labels if label.startswith(_ROLE_PREFIX)}
    roles.add(labels.get("kubernetes.io/role", ""))
    return ",".join(sorted(filter(None, roles))) or "<none>"


def _address(kind: str) -> Column:
    def cell(body: JsonObject, _now: datetime) -> Cell:
        addresses = lookup(body, "status", "addresses") or ()
        return next((str(each.get("address")) for each in addresses if each.get("type") == kind), "<none>")

    return Column(name=kind.replace("IP", "-IP"), cell=cell, priority=1)


NODES: Final = (
    NAME,
    Column(name="Status", cell=_node_status, description="The status of the node"),
    Column(name="Roles", cell=_node_roles, description="The roles of the node"),
    AGE,
    field("Version", "status", "nodeInfo", "kubeletVersion", description="Kubelet version reported by the node."),
    _address("InternalIP"),
    _address("ExternalIP"),
    field("OS-Image", "status", "nodeInfo", "osImage", priority=1, missing="<unknown>"),
    field("Kernel-Version", "status", "nodeInfo", "kernelVersion", priority=1, missing="<unknown>"),
    field("Container-Runtime", "status", "nodeInfo", "containerRuntimeVersion", priority=1, missing="<unknown>"),
)


def _first_seen(body: JsonObject, now: datetime) -> str:
    return format_age(body.get("firstTimestamp") or body.get("eventTime"), now)


def _last_seen(body: JsonObject, now: datetime) -> Cell:
    last = lookup(body, "series", "lastObservedTime") or body.get("lastTimestamp")
    return format_age(last, now) if last else _first_seen(body, now)


def _event_object(body: JsonObject, _now: datetime) -> Cell:
    about = body.get("involvedObject") or {}
    kind, name = str(about.get("kind", "")).lower(), about.get("name")
    return f"{kind}/{name}" if name else kind


def _event_source(body: JsonObject, _now: datetime) -> Cell:
    source = body.get("source") or {}
    component, host = source.get("component") or body.get("reportingComponent") or "", source.get("host")
    return f"{component}, {host}" if host else str(component)


EVENTS: Final = (
    Column(name="Last Seen", cell=_last_seen),
    field("Type", "type"),
    field("Reason", "reason"),
    Column(name="Object", cell=_event_object),
    field("Subobject", "involvedObject", "fieldPath", priority=1),
    Column(name="Source", cell=_event_source, priority=1),
    Column(name="Message", cell=lambda body, _now: str(body.get("message") or "").strip()),
    Column(name="First Seen", cell=_first_seen, priority=1),
    Column(
        name="Count", cell=lambda body, _now: str(lookup(body, "series", "count") or body.get("count") or 1), priority=1
    ),
    Column(name="Name", format="name", cell=_name, priority=1),
)
