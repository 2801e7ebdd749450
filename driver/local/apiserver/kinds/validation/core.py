"""The strategies of namespaces, nodes, events, leases and role bindings.

Only what a cluster of nodes, pods and claims meets is validated; everything else is stored as it came.
Source: ``kubernetes/pkg/apis/core`` (defaults, validation) and ``pkg/registry/core`` (strategies) of 1.37.
"""

from typing import Final

from kerf_dra.api.model.base import JsonObject
from kerf_dra.driver.local.apiserver.kinds.types import Strategy
from kerf_dra.driver.local.apiserver.meta.documents import lookup
from kerf_dra.driver.local.apiserver.meta.status_errors import (
    FieldError,
    FieldErrors,
    immutable,
    invalid,
    not_supported,
    required,
)

NAMESPACE_FINALIZER: Final = "kubernetes"
"""The entry in ``spec.finalizers`` that every namespace has until its content is gone."""
_NAME_LABEL: Final = "kubernetes.io/metadata.name"
_TAINT_EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")


def _prepare_namespace(body: JsonObject) -> None:
    spec = body.setdefault("spec", {})
    if NAMESPACE_FINALIZER not in (spec.get("finalizers") or []):
        spec["finalizers"] = [*(spec.get("finalizers") or []), NAMESPACE_FINALIZER]
    body["status"] = {"phase": "Active"}


def _default_namespace(body: JsonObject, _now: str) -> None:
    metadata = body["metadata"]
    if metadata.get("name"):
        metadata["labels"] = {**(metadata.get("labels") or {}), _NAME_LABEL: metadata["name"]}


def _keep_namespace_finalizers(body: JsonObject, old: JsonObject, _now: str) -> None:
    body["spec"] = old.get("spec") or {}


def _terminate_namespace(body: JsonObject, _now: str) -> None:
    body["metadata"].pop("deletionGracePeriodSeconds", None)
    body["status"] = {**(body.get("status") or {}), "phase": "Terminating"}


NAMESPACES: Final = Strategy(
    default=_default_namespace,
    prepare_for_create=_prepare_namespace,
    prepare_for_update=_keep_namespace_finalizers,
    prepare_for_delete=_terminate_namespace,
)


def _validate_taints(body: JsonObject, _old: JsonObject | None = None) -> FieldErrors:
    seen = set()
    for index, taint in enumerate(lookup(body, "spec", "taints") or []):
        path = f"spec.taints[{index}]"
        if not taint.get("key"):
            yield required(f"{path}.key")
        effect = taint.get("effect")
        if not effect:
            yield required(f"{path}.effect")
        elif effect not in _TAINT_EFFECTS:
            yield not_supported(f"{path}.effect", effect, sorted(_TAINT_EFFECTS))
        identity = (taint.get("key"), effect)
        if identity in seen:
            yield FieldError(
                "FieldValueDuplicate", path, "Duplicate value: taints must be unique by key and effect pair"
            )
        seen.add(identity)


NODES: Final = Strategy(
    quantities=("status.capacity{}", "status.allocatable{}"),
    validate=_validate_taints,
    validate_update=_validate_taints,
)


def _validate_event(body: JsonObject, _old: JsonObject | None = None) -> FieldErrors:
    about, own = lookup(body, "involvedObject", "namespace") or "", lookup(body, "metadata", "namespace")
    if (about or "default") != own:
        yield invalid("involvedObject.namespace", about, "does not match event.namespace")


EVENTS: Final = Strategy(validate=_validate_event, validate_update=_validate_event)


def _validate_lease(body: JsonObject, _old: JsonObject | None = None) -> FieldErrors:
    spec = body.get("spec") or {}
    duration, transitions = spec.get("leaseDurationSeconds"), spec.get("leaseTransitions")
    if duration is not None and duration <= 0:
        yield invalid("spec.leaseDurationSeconds", duration, "must be greater than 0")
    if transitions is not None and transitions < 0:
        yield invalid("spec.leaseTransitions", transitions, "must be greater than or equal to 0")


LEASES: Final = Strategy(validate=_validate_lease, validate_update=_validate_lease)


def _validate_role_ref(body: JsonObject, old: JsonObject) -> FieldErrors:
    if body.get("roleRef") != old.get("roleRef"):
        yield immutable("roleRef", body.get("roleRef"))


ROLE_BINDINGS: Final = Strategy(validate_update=_validate_role_ref)
