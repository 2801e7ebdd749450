"""The kinds of the core group, events in both their groups, and leases."""

from collections.abc import Mapping, Sequence
from typing import Final

from kerf_dra.driver.local.apiserver.kinds import builtin_merge_schemas as merge_schemas
from kerf_dra.driver.local.apiserver.kinds.conversion import event_from_events_group, event_to_events_group
from kerf_dra.driver.local.apiserver.kinds.kind_definition import define_kind, define_version, field_reader
from kerf_dra.driver.local.apiserver.kinds.printers import columns
from kerf_dra.driver.local.apiserver.kinds.printers.pods import PODS
from kerf_dra.driver.local.apiserver.kinds.types import ResourceType
from kerf_dra.driver.local.apiserver.kinds.validation import core, pods
from kerf_dra.driver.local.apiserver.meta.documents import lookup
from kerf_dra.driver.local.apiserver.meta.label_selectors import FieldReader
from kerf_dra.driver.local.apiserver.meta.names import dns_label
from kerf_dra.driver.local.apiserver.storage import GroupResource

_NAMESPACE: Final = define_version(
    strategy=core.NAMESPACES, columns=columns.NAMESPACES, merge_schema=merge_schemas.CONDITIONED, has_status=True
)
_NODE: Final = define_version(
    strategy=core.NODES, columns=columns.NODES, merge_schema=merge_schemas.NODE, has_status=True
)
_POD: Final = define_version(
    strategy=pods.PODS, columns=PODS, merge_schema=merge_schemas.POD, has_status=True, zero_spec={"containers": []}
)
_EVENT: Final = define_version(strategy=core.EVENTS, columns=columns.EVENTS, merge_schema=merge_schemas.EVENT)
_EVENTS_GROUP_EVENT: Final = define_version(
    strategy=core.EVENTS,
    columns=columns.EVENTS,
    merge_schema=merge_schemas.EVENTS_GROUP_EVENT,
    converters=(event_to_events_group, event_from_events_group),
)
_POD_FIELDS: Final[Mapping[str, FieldReader]] = {
    **{
        f"spec.{name}": field_reader("spec", name)
        for name in ("nodeName", "restartPolicy", "schedulerName", "serviceAccountName")
    },
    **{f"status.{name}": field_reader("status", name) for name in ("phase", "podIP", "nominatedNodeName")},
    "spec.hostNetwork": lambda body: str(bool(lookup(body, "spec", "hostNetwork"))).lower(),
}
_EVENT_FIELDS: Final[Mapping[str, FieldReader]] = {
    **{
        f"involvedObject.{name}": field_reader("involvedObject", name)
        for name in ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")
    },
    "reason": field_reader("reason"),
    "reportingComponent": field_reader("reportingComponent"),
    "source": field_reader("source", "component"),
    "type": field_reader("type"),
}

CORE_KINDS: Final[Sequence[ResourceType]] = (
    define_kind(
        "",
        "Namespace",
        _NAMESPACE,
        namespaced=False,
        short_names=("ns",),
        name_check=dns_label,
        selectable_fields={"name": field_reader("metadata", "name"), "status.phase": field_reader("status", "phase")},
        verbs=("create", "delete", "get", "list", "patch", "update", "watch"),
        subresources={"finalize": "Namespace"},
        returns_deleted=True,
    ),
    define_kind(
        "",
        "Node",
        _NODE,
        namespaced=False,
        short_names=("no",),
        status_on_create=True,
        selectable_fields={"spec.unschedulable": lambda body: str(bool(lookup(body, "spec", "unschedulable"))).lower()},
    ),
    define_kind(
        "",
        "Pod",
        _POD,
        short_names=("po",),
        categories=("all",),
        selectable_fields=_POD_FIELDS,
        subresources={"binding": "Binding", "eviction": "Eviction"},
        counts_generation=True,
        returns_deleted=True,
    ),
    define_kind("", "Event", _EVENT, short_names=("ev",), selectable_fields=_EVENT_FIELDS, allow_create_on_update=True),
    define_kind(
        "events.k8s.io",
        "Event",
        _EVENTS_GROUP_EVENT,
        short_names=("ev",),
        selectable_fields=_EVENT_FIELDS,
        allow_create_on_update=True,
        store=GroupResource("", "events"),
    ),
    define_kind(
        "",
        "ServiceAccount",
        define_version(merge_schema=merge_schemas.SERVICE_ACCOUNT),
        short_names=("sa",),
        returns_deleted=True,
    ),
    define_kind("", "Service", define_version(), short_names=("svc",), categories=("all",)),
    define_kind("", "Secret", define_version()),
    define_kind("", "ConfigMap", define_version(columns=columns.CONFIG_MAPS), short_names=("cm",)),
    define_kind(
        "coordination.k8s.io",
        "Lease",
        define_version(strategy=core.LEASES, columns=columns.LEASES),
        allow_create_on_update=True,
        allow_unconditional_update=False,
    ),
)
