"""ValidatingAdmissionPolicies: what an administrator forbids of creations and updates, in CEL (KEP-3488).

Parameters, selectors and authorization checks are not supported: a policy that has one denies every request that it
matches, so that nothing passes unchecked. Requests are not authenticated; each is from ``system:anonymous``.
Source: ``k8s.io/apiserver`` ``pkg/admission/plugin/policy/validating``.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final, Literal

from kerf_dra.api.model.base import JsonObject
from kerf_dra.driver.local.apiserver.admission.cel import RuleError, evaluate
from kerf_dra.driver.local.apiserver.meta.documents import lookup
from kerf_dra.driver.local.apiserver.meta.status_errors import ApiStatusError, object_forbidden
from kerf_dra.driver.local.apiserver.storage import GroupResource, ObjectKey, Storage

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
"""The response code by the ``reason`` of a validation."""
_UNSUPPORTED_POLICY_FIELDS: Final = (
    ("spec", "paramKind"),
    ("spec", "matchConstraints", "namespaceSelector"),
    ("spec", "matchConstraints", "objectSelector"),
    ("spec", "matchConstraints", "excludeResourceRules"),
)
"""Fields that are not evaluated: a policy that has one denies whatever it matches."""
_UNSUPPORTED_BINDING_FIELDS: Final = (("spec", "paramRef"), ("spec", "matchResources"))


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionAttributes:
    """A creation or update as policies see it, in the version of the request (``admission.Attributes``)."""

    operation: Literal["CREATE", "UPDATE"]
    resource: GroupResource
    version: str
    subresource: str
    key: ObjectKey
    new: JsonObject
    old: JsonObject | None
    user: JsonObject = field(default_factory=lambda: ANONYMOUS)
    """The value of ``request.userInfo``."""

    @property
    def data(self) -> JsonObject:
        """The values of the variables of an expression, without ``variables``."""
        request = {
            "operation": self.operation,
            "resource": {"group": self.resource.group, "version": self.version, "resource": self.resource.plural},
            "subResource": self.subresource,
            "namespace": self.key.namespace,
            "name": self.key.name,
            "userInfo": self.user,
        }
        return {"object": self.new, "oldObject": self.old, "request": request}


def check_policies(storage: Storage, write: AdmissionAttributes) -> None:
    """Raise ApiStatusError (by default 422) when a policy denies ``write``. Policies themselves are exempt."""
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
    """Whether a pattern matches: ``*`` stands for all without subresources, ``*/*`` for everything."""
    wanted, _, wanted_sub = pattern.partition("/")
    found, _, found_sub = resource.partition("/")
    return wanted in {"*", found} and wanted_sub in {"*", found_sub}


def _evaluate_policy(policy: JsonObject, binding: JsonObject, write: AdmissionAttributes) -> tuple[str, str] | None:
    """Return reason and message of the first validation that fails; None when the policy admits the write."""
    spec = policy.get("spec") or {}
    try:
        _check_supported(policy, binding)
        conditions = (one["expression"] for one in spec.get("matchConditions") or ())
        if not all(evaluate(expression, _VARIABLES, write.data) is True for expression in conditions):
            return None
        data = {**write.data, "variables": _evaluate_variables(spec.get("variables") or (), write)}
        return next(_failed_validations(spec.get("validations") or (), data), None)
    except RuleError as error:
        return None if spec.get("failurePolicy") == "Ignore" else ("Invalid", str(error))


def _check_supported(policy: JsonObject, binding: JsonObject) -> None:
    """Raise RuleError when the policy or its binding uses what is not supported."""
    for document, paths in ((policy, _UNSUPPORTED_POLICY_FIELDS), (binding, _UNSUPPORTED_BINDING_FIELDS)):
        for path in paths:
            if lookup(document, *path):
                raise RuleError(f"{'.'.join(path)} is not supported by this cluster")


def _evaluate_variables(variables: Sequence[JsonObject], write: AdmissionAttributes) -> Mapping[str, Any]:
    """Evaluate the policy's variables. One that fails is missing, which fails the expressions that name it."""
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
