"""Core kinds, events in both their groups, and leases, as rows."""

from collections.abc import Mapping
from typing import Final

from driver.local.apiserver.kinds import merge_keys
from driver.local.apiserver.kinds.conversion import event_from_events_group, event_to_events_group
from driver.local.apiserver.kinds.printers import columns, pods
from driver.local.apiserver.kinds.rows import field, kind, version
from driver.local.apiserver.kinds.types import ResourceType
from driver.local.apiserver.kinds.validation import core, quantities
from driver.local.apiserver.meta.documents import lookup
from driver.local.apiserver.meta.label_selectors import FieldReader
from driver.local.apiserver.meta.names import dns_label
from driver.local.apiserver.storage import GroupResource


def core_types() -> list[ResourceType]:
    """Kinds of the core group, and leases."""
    return [
        kind(
            "",
            "namespaces",
            "Namespace",
            [
                version(
                    "v1", rules=core.NAMESPACES, columns_=columns.NAMESPACES, shape=merge_keys.NAMESPACE, status=True
                )
            ],
            namespaced=False,
            short_names=("ns",),
            name_check=dns_label,
            fields={"name": field("metadata", "name"), "status.phase": field("status", "phase")},
            verbs=("create", "delete", "get", "list", "patch", "update", "watch"),
            subresources={"finalize": "Namespace"},
            returns_deleted=True,
        ),
        kind(
            "",
            "nodes",
            "Node",
            [version("v1", rules=core.NODES, columns_=columns.NODES, shape=merge_keys.NODE, status=True)],
            namespaced=False,
            short_names=("no",),
            status_on_create=True,
            quantities=quantities.NODES,
            fields={"spec.unschedulable": lambda body: str(bool(lookup(body, "spec", "unschedulable"))).lower()},
        ),
        kind(
            "",
            "pods",
            "Pod",
            [
                version(
                    "v1",
                    rules=core.PODS,
                    columns_=pods.PODS,
                    shape=merge_keys.POD,
                    status=True,
                    zero_spec={"containers": []},
                )
            ],
            short_names=("po",),
            categories=("all",),
            fields={
                "spec.nodeName": field("spec", "nodeName"),
                "spec.restartPolicy": field("spec", "restartPolicy"),
                "spec.schedulerName": field("spec", "schedulerName"),
                "spec.serviceAccountName": field("spec", "serviceAccountName"),
                "spec.hostNetwork": lambda body: str(bool(lookup(body, "spec", "hostNetwork"))).lower(),
                "status.phase": field("status", "phase"),
                "status.podIP": field("status", "podIP"),
                "status.nominatedNodeName": field("status", "nominatedNodeName"),
            },
            subresources={"binding": "Binding", "eviction": "Eviction"},
            generation=True,
            returns_deleted=True,
            grace=core.pod_grace,
            quantities=quantities.PODS,
        ),
        kind(
            "",
            "events",
            "Event",
            [version("v1", rules=core.EVENTS, columns_=columns.EVENTS, shape=merge_keys.EVENT)],
            short_names=("ev",),
            fields=_EVENT_FIELDS,
            create_on_update=True,
        ),
        kind(
            "events.k8s.io",
            "events",
            "Event",
            [
                version(
                    "v1",
                    rules=core.EVENTS,
                    columns_=columns.EVENTS,
                    shape=merge_keys.EVENTS_GROUP_EVENT,
                    converters=(event_to_events_group, event_from_events_group),
                )
            ],
            short_names=("ev",),
            fields=_EVENT_FIELDS,
            create_on_update=True,
            store=GroupResource("", "events"),
        ),
        kind(
            "",
            "serviceaccounts",
            "ServiceAccount",
            [version("v1", shape=merge_keys.SERVICE_ACCOUNT)],
            short_names=("sa",),
            returns_deleted=True,
        ),
        kind(
            "",
            "configmaps",
            "ConfigMap",
            [version("v1", columns_=columns.CONFIG_MAPS)],
            short_names=("cm",),
        ),
        kind(
            "coordination.k8s.io",
            "leases",
            "Lease",
            [version("v1", rules=core.LEASES, columns_=columns.LEASES)],
            create_on_update=True,
            unconditional_update=False,
        ),
    ]


_EVENT_FIELDS: Final[Mapping[str, FieldReader]] = {
    **{
        f"involvedObject.{name}": field("involvedObject", name)
        for name in ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")
    },
    "reason": field("reason"),
    "reportingComponent": field("reportingComponent"),
    "source": field("source", "component"),
    "type": field("type"),
}
