"""The strategy of pods: defaults, quality of service, validation, and which fields an update may change.

Source: ``kubernetes/pkg/apis/core/v1/defaults.go``, ``pkg/apis/core/validation`` and ``pkg/registry/core/pod`` of 1.37.
Service accounts and their token volumes are left out, as nothing in this cluster authenticates.
"""

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from kerf_dra.api.model.base import JsonObject
from kerf_dra.api.model.quantity import Quantity
from kerf_dra.driver.local.apiserver.kinds.types import Strategy
from kerf_dra.driver.local.apiserver.meta.documents import deep_copy, lookup, without
from kerf_dra.driver.local.apiserver.meta.names import dns_label, dns_subdomain, validate_format, validate_name
from kerf_dra.driver.local.apiserver.meta.status_errors import (
    FieldErrors,
    duplicate,
    forbidden,
    invalid,
    not_found,
    not_supported,
    required,
)

_CONTAINER_LISTS: Final = ("containers", "initContainers", "ephemeralContainers")
_RESTART_POLICIES: Final = ("Always", "OnFailure", "Never")
_NO_CLAIMS: Final = "must be one of the names in pod.spec.resourceClaims which is empty"
_UNREACHABLE_S: Final = 300
"""Seconds that a pod stays on a node that is not ready (admission plugin DefaultTolerationSeconds)."""
_NOT_READY_TAINTS: Final = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")

_SPEC_DEFAULTS: Final[JsonObject] = {
    "dnsPolicy": "ClusterFirst",
    "enableServiceLinks": True,
    "restartPolicy": "Always",
    "schedulerName": "default-scheduler",
    "securityContext": {},
    "terminationGracePeriodSeconds": 30,
}
_SET_AT_CREATION: Final[JsonObject] = {
    "preemptionPolicy": "PreemptLowerPriority",
    "priority": 0,
    "serviceAccount": "default",
    "serviceAccountName": "default",
}
"""The fields that the admission plugins Priority and ServiceAccount set; the account need not exist here."""
_CONTAINER_DEFAULTS: Final[JsonObject] = {
    "resources": {},
    "terminationMessagePath": "/dev/termination-log",
    "terminationMessagePolicy": "File",
}

_CONDITION_DEFAULTS: Final[JsonObject] = {"lastProbeTime": None, "lastTransitionTime": None}
"""The times of a pod condition, which are written out even when they are unset."""


def _fill(document: JsonObject, defaults: JsonObject) -> None:
    for name, value in defaults.items():
        if name not in document:
            document[name] = deep_copy(value) if isinstance(value, dict) else value


def _containers(spec: JsonObject) -> Iterator[JsonObject]:
    for field in _CONTAINER_LISTS:
        yield from (each for each in spec.get(field) or [] if isinstance(each, dict))


def _default_container(container: JsonObject) -> None:
    _fill(container, _CONTAINER_DEFAULTS)
    image = str(container.get("image") or "")
    tag = image.rpartition("/")[2].partition(":")[2]
    is_moving = "@" not in image and tag in {"", "latest"}
    container.setdefault("imagePullPolicy", "Always" if is_moving else "IfNotPresent")
    for port in container.get("ports") or []:
        port.setdefault("protocol", "TCP")
    resources = container["resources"]
    for name, value in (resources.get("limits") or {}).items():
        resources.setdefault("requests", {}).setdefault(name, value)
    for env in container.get("env") or []:
        if field := lookup(env, "valueFrom", "fieldRef"):
            field.setdefault("apiVersion", "v1")


def _default(body: JsonObject, _now: str) -> None:
    spec = body.setdefault("spec", {})
    _fill(spec, _SPEC_DEFAULTS)
    for container in _containers(spec):
        _default_container(container)
    for condition in lookup(body, "status", "conditions") or []:
        _fill(condition, _CONDITION_DEFAULTS)


def _add_tolerations(spec: JsonObject) -> None:
    tolerations = spec.setdefault("tolerations", [])
    tolerated = {(each.get("key") or "", each.get("effect") or "") for each in tolerations}
    for key in _NOT_READY_TAINTS:
        if not any((known, effect) in tolerated for known in (key, "") for effect in ("NoExecute", "")):
            tolerations.append(
                {"effect": "NoExecute", "key": key, "operator": "Exists", "tolerationSeconds": _UNREACHABLE_S}
            )


def _prepare_for_create(body: JsonObject) -> None:
    spec = body["spec"]
    _fill(spec, _SET_AT_CREATION)
    _add_tolerations(spec)
    body["status"] = {"phase": "Pending", "qosClass": _quality_of_service(spec)}
    if spec.get("schedulingGates"):
        body["status"]["conditions"] = [
            {
                "lastProbeTime": None,
                "lastTransitionTime": body["metadata"]["creationTimestamp"],
                "message": "Scheduling is blocked due to non-empty scheduling gates",
                "reason": "SchedulingGated",
                "status": "False",
                "type": "PodScheduled",
            }
        ]


def _quality_of_service(spec: JsonObject) -> str:
    """Return the QoS class: Guaranteed if all containers limit cpu and memory to their requests, BestEffort without."""
    needs = [container["resources"] for container in _containers(spec)]
    named = {"cpu", "memory"}
    if not any(named & {*(need.get("limits") or {}), *(need.get("requests") or {})} for need in needs):
        return "BestEffort"
    for need in needs:
        limits, requests = need.get("limits") or {}, need.get("requests") or {}
        if not named <= limits.keys() or any(requests.get(name, limits[name]) != limits[name] for name in named):
            return "Burstable"
    return "Guaranteed"


def _compute_grace(pod: JsonObject, requested: int | None) -> int:
    """Return the grace period of a pod in seconds; 0 for one without node or finished, as no kubelet has to end it."""
    if not lookup(pod, "spec", "nodeName") or lookup(pod, "status", "phase") in {"Succeeded", "Failed"}:
        return 0
    period = lookup(pod, "spec", "terminationGracePeriodSeconds") if requested is None else requested
    return 1 if (period or 0) < 0 else period or 0


def _validate_pod(body: JsonObject) -> FieldErrors:
    spec = body["spec"]
    yield from _validate_claims(spec.get("resourceClaims") or [])
    claims = {str(each.get("name")) for each in spec.get("resourceClaims") or []}
    if not spec.get("containers"):
        yield required("spec.containers")
    names: set[str] = set()
    for field in _CONTAINER_LISTS:
        for index, container in enumerate(spec.get(field) or []):
            yield from _validate_container(container, f"spec.{field}[{index}]", names, claims)
    if spec.get("restartPolicy") not in _RESTART_POLICIES:
        yield not_supported("spec.restartPolicy", spec.get("restartPolicy"), _RESTART_POLICIES)
    grace = spec.get("terminationGracePeriodSeconds")
    if isinstance(grace, int) and grace < 0:
        yield invalid("spec.terminationGracePeriodSeconds", grace, "must be greater than or equal to 0")
    if node := spec.get("nodeName"):
        yield from validate_format("spec.nodeName", node, dns_subdomain)
        if spec.get("schedulingGates"):
            yield forbidden("spec.nodeName", "cannot be set until all schedulingGates have been cleared")
    yield from _validate_tolerations(spec.get("tolerations") or [])


def _validate_container(container: JsonObject, path: str, names: set[str], claims: set[str]) -> FieldErrors:
    name = container.get("name")
    if not name:
        yield required(f"{path}.name")
    elif name in names:
        yield duplicate(f"{path}.name", name)
    else:
        names.add(name)
        yield from validate_name(f"{path}.name", name, dns_label)
    image = container.get("image")
    if not image:
        yield required(f"{path}.image")
    elif image != image.strip():
        yield invalid(f"{path}.image", image, "must not have leading or trailing whitespace")
    yield from _validate_container_claims(
        lookup(container, "resources", "claims") or [], f"{path}.resources.claims", claims
    )
    yield from _validate_amounts(container.get("resources") or {}, f"{path}.resources")


def _validate_container_claims(entries: Sequence[JsonObject], path: str, claims: set[str]) -> FieldErrors:
    seen: set[str] = set()
    for index, entry in enumerate(entries):
        name, request = str(entry.get("name") or ""), entry.get("request")
        shown = f"{name}/{request}" if request else name
        if not name:
            yield required(f"{path}[{index}].name")
        elif shown in seen:
            yield duplicate(f"{path}[{index}]", shown)
        elif request and name in seen:  # the whole claim is already in the list
            yield duplicate(f"{path}[{index}]", name)
        elif name not in claims:
            known = ", ".join(sorted(claims))
            detail = f"must be one of the names in pod.spec.resourceClaims: {known}" if known else _NO_CLAIMS
            yield not_found(f"{path}[{index}]", name, detail)
        seen.add(shown)


def _validate_amounts(resources: JsonObject, path: str) -> FieldErrors:
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    for kind, amounts in (("limits", limits), ("requests", requests)):
        for name, amount in amounts.items():
            if Quantity(amount).nano < 0:
                yield invalid(f"{path}.{kind}[{name}]", amount, "must be greater than or equal to 0")
    for name, amount in requests.items():
        if name in limits and Quantity(amount) > Quantity(limits[name]):
            yield invalid(f"{path}.requests", amount, f"must be less than or equal to {name} limit of {limits[name]}")


def _validate_claims(claims: Sequence[JsonObject]) -> FieldErrors:
    path = "spec.resourceClaims"
    names: set[str] = set()
    for index, claim in enumerate(claims):
        here = f"{path}[{index}]"
        name = claim.get("name")
        yield from validate_name(f"{here}.name", name, dns_label)
        if name in names:
            yield duplicate(f"{here}.name", name)
        names.add(str(name))
        named = claim | (claim.get("source") or {})  # until Kubernetes 1.30 both names stood inside `source`
        direct, template = named.get("resourceClaimName"), named.get("resourceClaimTemplateName")
        given = {"Name": name, "ResourceClaimName": direct, "ResourceClaimTemplateName": template}
        if direct is not None and template is not None:
            yield invalid(
                here, given, "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified"
            )
        elif direct is None and template is None:
            yield invalid(here, given, "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`")
        if direct is not None:
            yield from validate_format(f"{here}.resourceClaimName", direct, dns_subdomain)
        if template is not None:
            yield from validate_format(f"{here}.resourceClaimTemplateName", template, dns_subdomain)


def _validate_tolerations(tolerations: Sequence[JsonObject]) -> FieldErrors:
    for index, toleration in enumerate(tolerations):
        path = f"spec.tolerations[{index}]"
        operator = toleration.get("operator") or "Equal"
        if operator not in {"Equal", "Exists"}:
            yield not_supported(f"{path}.operator", operator, ("Equal", "Exists"))
        if not toleration.get("key") and operator != "Exists":
            yield invalid(
                f"{path}.operator",
                operator,
                'operator must be Exists when `key` is empty, which means "match all values and all keys"',
            )
        elif operator == "Exists" and toleration.get("value"):
            yield invalid(f"{path}.operator", toleration["value"], "value must be empty when `operator` is 'Exists'")


_REQUIRED_TERMS: Final = (
    "affinity",
    "nodeAffinity",
    "requiredDuringSchedulingIgnoredDuringExecution",
    "nodeSelectorTerms",
)
"""The path of a pod's required node affinity."""
_MUTABLE: Final = (
    "`spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` "
    "(only additions to existing tolerations),`spec.terminationGracePeriodSeconds` "
    "(allow it to be set to 1 if it was previously negative)"
)


def _validate_update(body: JsonObject, old: JsonObject) -> FieldErrors:
    yield from _validate_pod(body)
    spec, before = body["spec"], old["spec"]
    gates = {each.get("name") for each in before.get("schedulingGates") or []}
    for index, gate in enumerate(spec.get("schedulingGates") or []):
        if gate.get("name") not in gates:
            message = f"only deletion is allowed, but found new scheduling gate '{gate.get('name')}'"
            yield forbidden(f"spec.schedulingGates[{index}].name", message)
    kept = before.get("tolerations") or []
    if (spec.get("tolerations") or [])[: len(kept)] != kept:
        yield forbidden("spec.tolerations", "existing toleration can not be modified except its tolerationSeconds")
    gated = bool(before.get("schedulingGates"))
    if gated:
        yield from _validate_node_selection(spec, before)
    if _encode_fixed(spec, gated=gated) != _encode_fixed(before, gated=gated):
        yield forbidden("spec", f"pod updates may not change fields other than {_MUTABLE}\n")


def _validate_node_selection(spec: JsonObject, before: JsonObject) -> FieldErrors:
    """Refuse a change of a gated pod after which more nodes would be eligible (KEP-3838)."""
    selector = spec.get("nodeSelector") or {}
    if not (before.get("nodeSelector") or {}).items() <= selector.items():
        message = "only additions to spec.nodeSelector are allowed (no mutations or deletions)"
        yield invalid("spec.nodeSelector", selector, message)
    terms, kept = lookup(spec, *_REQUIRED_TERMS) or [], lookup(before, *_REQUIRED_TERMS) or []
    path = ".".join(("spec", *_REQUIRED_TERMS))
    if kept and len(terms) != len(kept):
        yield invalid(path, terms, "no additions/deletions to non-empty NodeSelectorTerms list are allowed")
        return
    for index, (term, old) in enumerate(zip(terms, kept, strict=False)):  # a pod without terms may get any
        if not _has_only_additions(term, old):
            yield invalid(f"{path}[{index}]", term, "only additions are allowed (no mutations or deletions)")


def _has_only_additions(term: JsonObject, old: JsonObject) -> bool:
    """Whether ``term`` is ``old`` with further requirements; one without any selects no node and stays so."""
    lists = [(term.get(name) or [], old.get(name) or []) for name in ("matchExpressions", "matchFields")]
    if not any(kept for _, kept in lists):
        return not any(given for given, _ in lists)
    return all(given[: len(kept)] == kept for given, kept in lists)


def _encode_fixed(spec: JsonObject, *, gated: bool) -> bytes:
    """Return the part of a spec that no update may change, of a gated pod without its node selection."""
    fixed = without(spec, "schedulingGates", "tolerations", "activeDeadlineSeconds")
    if gated:
        affinity = without(spec.get("affinity") or {}, "nodeAffinity")
        fixed = {**without(fixed, "nodeSelector", "affinity"), **({"affinity": affinity} if affinity else {})}
    for field in _CONTAINER_LISTS[:2]:
        fixed[field] = [without(each, "image") for each in spec.get(field) or []]
    return msgspec.json.encode(fixed, order="deterministic")


_KEPT_STATUS: Final = ("qosClass", "resourceClaimStatuses", "extendedResourceClaimStatus")
"""Status fields that the server restores, because an older kubelet drops those that it does not know."""


def _prepare_for_status_update(body: JsonObject, old: JsonObject) -> None:
    status, before = body.setdefault("status", {}), old.get("status") or {}
    for name in _KEPT_STATUS:
        if name not in status and name in before:
            status[name] = before[name]


def _validate_status(body: JsonObject, _old: JsonObject) -> FieldErrors:
    declared = {str(each.get("name")) for each in lookup(body, "spec", "resourceClaims") or []}
    for index, entry in enumerate(lookup(body, "status", "resourceClaimStatuses") or []):
        path = f"status.resourceClaimStatuses[{index}]"
        name, claim = entry.get("name"), entry.get("resourceClaimName")
        yield from validate_name(f"{path}.name", name, dns_label)
        if name and name not in declared:
            yield invalid(f"{path}.name", name, "must match the name of an entry in `spec.resourceClaims`")
        if claim is not None:
            yield from validate_format(f"{path}.name", claim, dns_subdomain)


_QUANTITIES: Final = tuple(
    f"spec.{each}[].resources.{part}{{}}" for each in _CONTAINER_LISTS for part in ("requests", "limits")
)
PODS: Final = Strategy(
    grace=_compute_grace,
    quantities=_QUANTITIES,
    default=_default,
    prepare_for_create=_prepare_for_create,
    prepare_for_status_update=_prepare_for_status_update,
    validate=_validate_pod,
    validate_update=_validate_update,
    validate_status=_validate_status,
)
