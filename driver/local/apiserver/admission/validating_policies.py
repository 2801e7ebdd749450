"""ValidatingAdmissionPolicies: what an administrator forbids of creations and updates, in CEL (KEP-3488).

Parameters, selectors and authorization checks are not supported: a policy that has one denies every request that it
matches, so that nothing passes unchecked.
Source: ``k8s.io/apiserver`` ``pkg/admission/plugin/policy/validating``.
"""

from collections.abc import Iterator, Sequence
from http import HTTPStatus
from typing import Final

from kerf_dra.api.model.base import JsonObject
from kerf_dra.driver.local.apiserver.admission.cel import RuleError, evaluate
from kerf_dra.driver.local.apiserver.admission.policies import (
    ADMISSION_GROUP,
    UNSUPPORTED_BINDING_FIELDS,
    UNSUPPORTED_POLICY_FIELDS,
    AdmissionAttributes,
    check_supported,
    evaluate_variables,
    matches,
    meets_conditions,
    policy_refusal,
)
from kerf_dra.driver.local.apiserver.storage import GroupResource, ObjectKey, Storage

_POLICIES: Final = GroupResource(ADMISSION_GROUP, "validatingadmissionpolicies")
_BINDINGS: Final = GroupResource(ADMISSION_GROUP, "validatingadmissionpolicybindings")
_VARIABLES: Final = ("object", "oldObject", "request", "variables")
_CODES: Final = {
    "Unauthorized": HTTPStatus.UNAUTHORIZED,
    "Forbidden": HTTPStatus.FORBIDDEN,
    "Invalid": HTTPStatus.UNPROCESSABLE_ENTITY,
    "RequestEntityTooLarge": HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
}
"""The response code by the ``reason`` of a validation."""
_UNSUPPORTED_POLICY_FIELDS: Final = (("spec", "paramKind"), *UNSUPPORTED_POLICY_FIELDS)
"""Fields that are not evaluated: a policy that has one denies whatever it matches."""
_UNSUPPORTED_BINDING_FIELDS: Final = (("spec", "paramRef"), *UNSUPPORTED_BINDING_FIELDS)


def check_policies(storage: Storage, write: AdmissionAttributes) -> None:
    """Raise ApiStatusError (by default 422) when a policy denies ``write``. Policies themselves are exempt."""
    if write.resource in {_POLICIES, _BINDINGS}:
        return
    for binding in storage.items(_BINDINGS):
        spec = binding.body.get("spec") or {}
        policy = storage.get(_POLICIES, ObjectKey("", spec.get("policyName", "")))
        if policy is None or "Deny" not in (spec.get("validationActions") or ()) or not matches(policy.body, write):
            continue
        found = _evaluate_policy(policy.body, binding.body, write)
        if found is not None:
            reason, message = found
            code = _CODES.get(reason, HTTPStatus.FORBIDDEN)
            kind, name = "ValidatingAdmissionPolicy", policy.key.name
            raise policy_refusal(write, kind, name, binding.key.name, message, reason=reason, code=code)


def _evaluate_policy(policy: JsonObject, binding: JsonObject, write: AdmissionAttributes) -> tuple[str, str] | None:
    """Return reason and message of the first validation that fails; None when the policy admits the write."""
    spec = policy.get("spec") or {}
    try:
        check_supported(policy, _UNSUPPORTED_POLICY_FIELDS)
        check_supported(binding, _UNSUPPORTED_BINDING_FIELDS)
        if not meets_conditions(policy, _VARIABLES, write.data):
            return None
        data = {**write.data, "variables": evaluate_variables(policy, _VARIABLES, write.data)}
        return next(_failed_validations(spec.get("validations") or (), data), None)
    except RuleError as error:
        return None if spec.get("failurePolicy") == "Ignore" else ("Invalid", str(error))


def _failed_validations(validations: Sequence[JsonObject], data: JsonObject) -> Iterator[tuple[str, str]]:
    for validation in validations:
        if evaluate(validation["expression"], _VARIABLES, data) is True:
            continue
        message = validation.get("message") or f"failed expression: {validation['expression'].strip()}"
        if validation.get("messageExpression"):
            message = evaluate(validation["messageExpression"], _VARIABLES, data)
        yield validation.get("reason") or "Invalid", str(message)
