"""MutatingAdmissionPolicies: what an administrator changes of creations and updates, in CEL (KEP-3962).

Each policy is applied once for each of its bindings and each of the binding's parameters, to what those before it have
made of the object; policies are not invoked again after changes by later ones. Mutations are JSON patches; apply
configurations are not supported. What cannot be evaluated is an error, for which the failure policy is decisive: with
Ignore the object stays as it was. Source: ``k8s.io/apiserver`` ``pkg/admission/plugin/policy/mutating``.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import jsonpatch

from kerf_dra.api.model.base import JsonObject
from kerf_dra.api.model.metadata import LabelSelectorRequirement
from kerf_dra.driver.cel.lexer import CLOSING, OPENING, Token, tokenize
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
from kerf_dra.driver.local.apiserver.kinds.types import ResourceType
from kerf_dra.driver.local.apiserver.meta.documents import lookup
from kerf_dra.driver.local.apiserver.meta.patches import json_patched
from kerf_dra.driver.local.apiserver.meta.status_errors import ApiStatusError
from kerf_dra.driver.local.apiserver.storage import GroupResource, ObjectKey, Storage
from kerf_dra.driver.scheduling.label_selector import match_labels

MUTATING_POLICIES: Final = GroupResource(ADMISSION_GROUP, "mutatingadmissionpolicies")
MUTATING_BINDINGS: Final = GroupResource(ADMISSION_GROUP, "mutatingadmissionpolicybindings")
_EXEMPT: Final = (
    MUTATING_POLICIES,
    MUTATING_BINDINGS,
    GroupResource(ADMISSION_GROUP, "validatingadmissionpolicies"),
    GroupResource(ADMISSION_GROUP, "validatingadmissionpolicybindings"),
)
"""Policies of either kind are never changed by one."""
_VARIABLES: Final = ("object", "oldObject", "request", "params", "variables")


def apply_policies(storage: Storage, kinds: Iterable[ResourceType], write: AdmissionAttributes) -> JsonObject:
    """Return the object of ``write`` as the policies in ``storage`` make it; ``kinds`` are those that parameters have.

    Raises ApiStatusError (422) when a policy fails whose failure policy is Fail.
    """
    if write.resource in _EXEMPT:
        return write.new
    for binding in storage.items(MUTATING_BINDINGS):
        policy = storage.get(MUTATING_POLICIES, ObjectKey("", lookup(binding.body, "spec", "policyName") or ""))
        if policy is None or not matches(policy.body, write):
            continue
        try:
            for params in list(_collect_params(storage, kinds, policy.body, binding.body, write.key.namespace)):
                write = replace(write, new=_apply_policy(policy.body, binding.body, write, params))
        except RuleError as error:
            if lookup(policy.body, "spec", "failurePolicy") != "Ignore":
                raise policy_refusal(
                    write, "MutatingAdmissionPolicy", policy.key.name, binding.key.name, str(error)
                ) from error
    return write.new


def _collect_params(
    storage: Storage, kinds: Iterable[ResourceType], policy: JsonObject, binding: JsonObject, namespace: str
) -> Iterator[JsonObject | None]:
    """Yield the parameters of a binding, each for one application of the policy; None: the policy has none.

    Raises RuleError when their kind is not served, or there are none although the binding needs them.
    """
    kind, ref = lookup(policy, "spec", "paramKind"), lookup(binding, "spec", "paramRef")
    if not kind or not ref:
        yield None
        return
    group, _, version = kind["apiVersion"].rpartition("/")
    type_ = next((each for each in kinds if (each.group, each.kind) == (group, kind["kind"])), None)
    served = type_.version(version) if type_ else None
    if type_ is None or served is None:
        raise RuleError(f"paramKind kind {kind['kind']} of {kind['apiVersion']} is not served")
    place = (ref.get("namespace") or namespace) if type_.namespaced else ""
    found = [each.body for each in storage.items(type_.store, place) if _is_selected(each.body, ref)]
    if not found and ref.get("parameterNotFoundAction") == "Deny":
        raise RuleError("no params found for policy binding with `Deny` parameterNotFoundAction")
    for body in found:
        shown = served.to_wire(body) if served.to_wire else body
        yield {**shown, "apiVersion": kind["apiVersion"], "kind": type_.kind}


def _is_selected(body: JsonObject, ref: JsonObject) -> bool:
    if name := ref.get("name"):
        return bool(body["metadata"]["name"] == name)
    selector = ref.get("selector") or {}
    exact = [(key, "In", [value]) for key, value in (selector.get("matchLabels") or {}).items()]
    expressions = selector.get("matchExpressions") or ()
    given = [(each["key"], each["operator"], each.get("values") or ()) for each in expressions]
    requirements = [
        LabelSelectorRequirement(key=key, operator=operator, values=tuple(values))
        for key, operator, values in (*exact, *given)
    ]
    return match_labels(requirements, body["metadata"].get("labels") or {})


def _apply_policy(
    policy: JsonObject, binding: JsonObject, write: AdmissionAttributes, params: JsonObject | None
) -> JsonObject:
    """Return the object after all mutations of ``policy``. Raises RuleError."""
    check_supported(policy, UNSUPPORTED_POLICY_FIELDS)
    check_supported(binding, UNSUPPORTED_BINDING_FIELDS)
    if lookup(policy, "spec", "reinvocationPolicy") == "IfNeeded":
        raise RuleError("spec.reinvocationPolicy: IfNeeded is not supported by this cluster")
    if not meets_conditions(policy, _VARIABLES, {**write.data, "params": params}):
        return write.new
    for mutation in lookup(policy, "spec", "mutations") or ():
        write = replace(write, new=_mutate(policy, mutation, write, params))
    return write.new


def _mutate(
    policy: JsonObject, mutation: JsonObject, write: AdmissionAttributes, params: JsonObject | None
) -> JsonObject:
    expression = lookup(mutation, "jsonPatch", "expression")
    if not expression:
        raise RuleError(f"patchType {mutation.get('patchType')} is not supported by this cluster")
    data: Mapping[str, Any] = {**write.data, "params": params}
    data = {**data, "variables": evaluate_variables(policy, _VARIABLES, data)}
    operations = evaluate(replace_message_literals(expression), _VARIABLES, data)
    try:
        patched = json_patched(write.new, operations)
    except ApiStatusError as error:
        if isinstance(error.__cause__, jsonpatch.JsonPatchTestFailed):
            return write.new
        raise RuleError(f"JSON Patch: {error.message}") from error
    if not isinstance(patched, dict):
        raise RuleError("JSON Patch: the result is no object")
    return patched


def replace_message_literals(expression: str) -> str:
    """Write the literals of ``JSONPatch`` and ``Object`` types in ``expression`` as maps, which have the same JSON.

    >>> replace_message_literals('[JSONPatch{op: "add", path: "/spec", value: Object.spec{replicas: 1}}]')
    '[{"op": "add", "path": "/spec", "value": {"replicas": 1}}]'
    """
    tokens = tokenize(expression)
    written: list[Token] = []
    in_message: list[bool] = []
    """For each open bracket, whether it is the one of such a literal."""
    for at, token in enumerate(tokens):
        if token.text in OPENING:
            start = _find_type_name(written) if token.text == "{" else len(written)
            in_message.append(start < len(written))
            if start < len(written):
                token = token._replace(lead=written[start].lead)
                del written[start:]
        elif token.text in CLOSING and in_message:
            in_message.pop()
        elif token.kind == "name" and in_message and in_message[-1] and _is_field_name(tokens, at):
            token = token._replace(kind="string", text=f'"{token.text}"')
        written.append(token)
    return "".join(token.lead + token.text for token in written)


def _find_type_name(tokens: Sequence[Token]) -> int:
    """Return where the name of a message type begins that ends ``tokens``; their number: there is none."""
    start = len(tokens)
    while start and (tokens[start - 1].kind == "name" or tokens[start - 1].text == "."):
        start -= 1
    named = start < len(tokens) and tokens[start].text in ("JSONPatch", "Object")
    return start if named else len(tokens)


def _is_field_name(tokens: Sequence[Token], at: int) -> bool:
    return tokens[at - 1].text in ("{", ",") and at + 1 < len(tokens) and tokens[at + 1].text == ":"
