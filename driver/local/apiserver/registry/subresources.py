"""Subresources other than status: binding and evicting a pod, finalizing a namespace.

Source: ``kubernetes/pkg/registry/core/pod/storage`` and ``pkg/registry/core/namespace/storage`` of 1.37.
"""

from kerf_dra.api.model.base import JsonObject
from kerf_dra.driver.local.apiserver.meta.documents import lookup
from kerf_dra.driver.local.apiserver.meta.status_errors import (
    bad_request,
    conflict,
    object_invalid,
    object_not_found,
    required,
)
from kerf_dra.driver.local.apiserver.storage import GroupResource, ObjectKey, Storage, StoredObject

PODS = GroupResource("", "pods")
NAMESPACES = GroupResource("", "namespaces")


def bind_pod(storage: Storage, key: ObjectKey, binding: JsonObject, now: str) -> StoredObject:
    """Assign a pod to a node.

    Raises ApiStatusError (400, 404, 409 when it has a node, is gated or is being deleted, 422).
    """
    node = lookup(binding, "target", "name")
    if not node:
        raise object_invalid("", "Binding", key.name, [required("target.name")])
    if lookup(binding, "target", "kind") not in {None, "", "Node"}:
        raise bad_request("target.kind must be Node")
    pod = _existing(storage, PODS, key)
    if why := _unbindable(pod.body):
        raise conflict("", "pods/binding", key.name, why)
    status = pod.body.get("status") or {}
    others = [each for each in status.get("conditions") or [] if each.get("type") != "PodScheduled"]
    scheduled = {"type": "PodScheduled", "status": "True", "lastProbeTime": None, "lastTransitionTime": now}
    metadata = dict(pod.body["metadata"])
    for field in ("annotations", "labels"):
        if extra := lookup(binding, "metadata", field):
            metadata[field] = {**(metadata.get(field) or {}), **extra}
    return storage.put(
        PODS,
        key,
        {
            **pod.body,
            "metadata": metadata,
            "spec": {**pod.body["spec"], "nodeName": node},
            "status": {**status, "conditions": [*others, scheduled]},
        },
    )


def _unbindable(pod: JsonObject) -> str:
    name = pod["metadata"]["name"]
    if pod["metadata"].get("deletionTimestamp"):
        return f"pod {name} is being deleted, cannot be assigned to a host"
    if node := lookup(pod, "spec", "nodeName"):
        return f'pod {name} is already assigned to node "{node}"'
    if lookup(pod, "spec", "schedulingGates"):
        return f"pod {name} has non-empty .spec.schedulingGates"
    return ""


def finalize_namespace(storage: Storage, key: ObjectKey, wanted: JsonObject) -> StoredObject:
    """Set ``spec.finalizers`` of a namespace; a deleted one without any is removed. Raises ApiStatusError (404)."""
    namespace = _existing(storage, NAMESPACES, key)
    finalizers = lookup(wanted, "spec", "finalizers") or []
    body = {**namespace.body, "spec": {"finalizers": finalizers} if finalizers else {}}
    metadata = body["metadata"]
    if metadata.get("deletionTimestamp") and not finalizers and not metadata.get("finalizers"):
        return storage.remove(NAMESPACES, key, body)
    return storage.put(NAMESPACES, key, body)


def _existing(storage: Storage, resource: GroupResource, key: ObjectKey) -> StoredObject:
    stored = storage.get(resource, key)
    if stored is None:
        raise object_not_found(resource.group, resource.plural, key.name)
    return stored
