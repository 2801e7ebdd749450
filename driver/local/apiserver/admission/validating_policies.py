"""ValidatingAdmissionPolicies: what an administrator forbids of creations and updates, in CEL (KEP-3488).

Policies with parameters or selectors, and those that name what the requesting user may do, are more than is here: they
refuse whatever they match, so that nothing passes unchecked. Nobody is authenticated; everybody is anonymous.

Source: ``k8s.io/apiserver`` ``pkg/admission/plugin/policy/validating``.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final, Literal

from api.model.base import JsonObject
from driver.local.apiserver.admission.cel import RuleError, evaluate
from driver.local.apiserver.meta.documents import lookup
from driver.local.apiserver.meta.status_errors import ApiStatusError, object_forbidden
from driver.local.apiserver.storage import GroupResource, ObjectKey, Storage

_POLICIES: Final = GroupResource("admissionregistration.k8s.io", "validatingadmissionpolicies")
_BINDINGS: Final = GroupResource("admissionregistration.k8s.io", "validatingadmissionpolicybindings")
_VARIABLES: Final = ("object", "oldObject", "request", "variables")
ANONYMOUS: Final[JsonObject] = {"username": "system:anonymous", "groups": ["system:unauthenticated"], "extra": {}}
_CODES: Final = {
    "Unauthorized": HTTPStatus.UNAUTHORIZED,
    "Forbidden": HTTPStatus.FORBIDDEN,
    "Invalid": HTTPStatus.UNPROCESSABLE_ENTITY,
    "RequestEntityTooLarge": HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
}
"""By a validation's ``reason``."""
_UNSUPPORTED_POLICY_FIELDS: Final = (
    ("spec", "paramKind"),
    ("spec", "matchConstraints", "namespaceSelector"),
    ("spec", "matchConstraints", "objectSelector"),
    ("spec", "matchConstraints", "excludeResourceRules"),
)
"""Fields of a policy that are not evaluated here."""
_UNSUPPORTED_BINDING_FIELDS: Final = (("spec", "paramRef"), ("spec", "matchResources"))


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionAttributes:
    """A creation or update as policies see it, in the version of the request."""

    operation: Literal["CREATE", "UPDATE"]
    resource: GroupResource
    version: str
    subresource: str
    key: ObjectKey
    new: JsonObject
    old: JsonObject | None
    user: JsonObject = field(default_factory=lambda: ANONYMOUS)
    """``request.userInfo``."""

    @property
    def data(self) -> JsonObject:
        """What expressions may name, but for ``variables``."""
        request = {
            "operation": self.operation,
            "resource": {"group": self.resource.group, "version": self.version, "resource": self.resource.plural},
            "subResource": self.subresource,
            "namespace": self.key.namespace,
            "name": self.key.name,
            "userInfo": self.user,
        }
        return {"object": self.new, "oldObject": self.old, "request": request}


def check(storage: Storage, write: AdmissionAttributes) -> None:
    """Raises RefusedError for the first policy that denies ``write``. Policies are exempt: one may be wrong."""
    if write.resource in {_POLICIES, _BINDINGS}:
        return
    for binding in storage.items(_BINDINGS):
        spec = binding.body.get("spec") or {}
        policy = storage.get(_POLICIES, ObjectKey("", spec.get("policyName", "")))
        if policy is None or "Deny" not in (spec.get("validationActions") or ()) or not _matches(policy.body, write):
            continue
        found = _evaluate_policy(policy.body, binding.body, write)
        if found is not None:
            reason, message = found
            raise _refusal(write, policy.key.name, binding.key.name, reason, message)


def _refusal(write: AdmissionAttributes, policy: str, binding: str, reason: str, message: str) -> ApiStatusError:
    why = f"ValidatingAdmissionPolicy '{policy}' with binding '{binding}' denied request: {message}"
    error = object_forbidden(write.resource.group, write.resource.plural, write.key.name, why, [{"message": message}])
    return ApiStatusError(_CODES.get(reason, HTTPStatus.FORBIDDEN), reason, error.message, details=error.details)


def _matches(policy: JsonObject, write: AdmissionAttributes) -> bool:
    resource = "/".join(part for part in (write.resource.plural, write.subresource) if part)
    return any(
        _contains(rule.get("apiGroups"), write.resource.group)
        and _contains(rule.get("apiVersions"), write.version)
        and _contains(rule.get("operations"), write.operation)
        and any(_is_resource(pattern, resource) for pattern in rule.get("resources") or ())
        and (not rule.get("resourceNames") or write.key.name in rule["resourceNames"])
        for rule in lookup(policy, "spec", "matchConstraints", "resourceRules") or ()
    )


def _contains(wanted: list[str] | None, value: str) -> bool:
    return "*" in (wanted or ()) or value in (wanted or ())


def _is_resource(pattern: str, resource: str) -> bool:
    """``*`` stands for all without subresources, ``*/*`` for everything."""
    wanted, _, wanted_sub = pattern.partition("/")
    found, _, found_sub = resource.partition("/")
    return wanted in {"*", found} and wanted_sub in {"*", found_sub}


def _evaluate_policy(policy: JsonObject, binding: JsonObject, write: AdmissionAttributes) -> tuple[str, str] | None:
    """Reason and message of the first validation that fails; None: the policy has nothing against the write."""
    spec = policy.get("spec") or {}
    try:
        _check_understood(policy, binding)
        conditions = (one["expression"] for one in spec.get("matchConditions") or ())
        if not all(evaluate(expression, _VARIABLES, write.data) is True for expression in conditions):
            return None
        data = {**write.data, "variables": _values(spec.get("variables") or (), write)}
        return next(_failed_validations(spec.get("validations") or (), data), None)
    except RuleError as error:
        return None if spec.get("failurePolicy") == "Ignore" else ("Invalid", str(error))


def _check_understood(policy: JsonObject, binding: JsonObject) -> None:
    """Raises RuleError."""
    for document, paths in ((policy, _UNSUPPORTED_POLICY_FIELDS), (binding, _UNSUPPORTED_BINDING_FIELDS)):
        for path in paths:
            if lookup(document, *path):
                raise RuleError(f"{'.'.join(path)} is not supported by this cluster")


def _values(variables: Sequence[JsonObject], write: AdmissionAttributes) -> Mapping[str, Any]:
    """Those whose evaluation fails are missing, which is told by the expression that needs them."""
    values: dict[str, Any] = {}
    for variable in variables:
        try:
            values[variable["name"]] = evaluate(
                variable["expression"], _VARIABLES, {**write.data, "variables": dict(values)}
            )
        except RuleError:
            continue
    return values


def _failed_validations(validations: Sequence[JsonObject], data: JsonObject) -> Iterator[tuple[str, str]]:
    for validation in validations:
        if evaluate(validation["expression"], _VARIABLES, data) is True:
            continue
        message = validation.get("message") or f"failed expression: {validation['expression'].strip()}"
        if validation.get("messageExpression"):
            message = evaluate(validation["messageExpression"], _VARIABLES, data)
        yield validation.get("reason") or "Invalid", str(message)
