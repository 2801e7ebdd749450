"""What validating and mutating admission policies share: the requests that they match, and their variables.

Selectors and authorization checks are not supported. Requests are not authenticated; each is from
``system:anonymous``, and a policy matches only requests in a version that it names (``matchPolicy: Exact``).
Source: ``k8s.io/apiserver`` ``pkg/admission/plugin/policy/generic`` and ``matching``.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final, Literal, TypeAlias

from kerf_dra.api.model.base import JsonObject
from kerf_dra.driver.local.apiserver.admission.cel import RuleError, evaluate
from kerf_dra.driver.local.apiserver.meta.documents import lookup
from kerf_dra.driver.local.apiserver.meta.status_errors import ApiStatusError, object_forbidden
from kerf_dra.driver.local.apiserver.storage import GroupResource, ObjectKey

ADMISSION_GROUP: Final = "admissionregistration.k8s.io"
ANONYMOUS: Final[JsonObject] = {"username": "system:anonymous", "groups": ["system:unauthenticated"], "extra": {}}
FieldPath: TypeAlias = Sequence[str]

UNSUPPORTED_POLICY_FIELDS: Final[Sequence[FieldPath]] = (
    ("spec", "matchConstraints", "namespaceSelector"),
    ("spec", "matchConstraints", "objectSelector"),
    ("spec", "matchConstraints", "excludeResourceRules"),
)
"""Fields of both kinds of policies that are not evaluated."""
UNSUPPORTED_BINDING_FIELDS: Final[Sequence[FieldPath]] = (("spec", "matchResources"),)


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


def policy_refusal(
    write: AdmissionAttributes,
    kind: str,
    policy: str,
    binding: str,
    message: str,
    *,
    reason: str = "Invalid",
    code: HTTPStatus = HTTPStatus.UNPROCESSABLE_ENTITY,
) -> ApiStatusError:
    """Return the error of a policy of this ``kind`` that denies ``write``."""
    why = f"{kind} '{policy}' with binding '{binding}' denied request: {message}"
    error = object_forbidden(write.resource.group, write.resource.plural, write.key.name, why, [{"message": message}])
    return ApiStatusError(code, reason, error.message, details=error.details)


def matches(policy: JsonObject, write: AdmissionAttributes) -> bool:
    """Whether the rules of ``policy`` match ``write``."""
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


def check_supported(document: JsonObject, paths: Iterable[FieldPath]) -> None:
    """Raise RuleError when ``document``, a policy or a binding, has a value at one of ``paths``."""
    for path in paths:
        if lookup(document, *path):
            raise RuleError(f"{'.'.join(path)} is not supported by this cluster")


def meets_conditions(policy: JsonObject, names: tuple[str, ...], data: Mapping[str, Any]) -> bool:
    """Whether the match conditions of ``policy`` hold for ``data``, the variables ``names``. Raises RuleError."""
    conditions = lookup(policy, "spec", "matchConditions") or ()
    return all(evaluate(one["expression"], names, data) is True for one in conditions)


def evaluate_variables(policy: JsonObject, names: tuple[str, ...], data: Mapping[str, Any]) -> Mapping[str, Any]:
    """Evaluate the policy's variables. One that fails is missing, which fails the expressions that name it."""
    values: dict[str, Any] = {}
    for variable in lookup(policy, "spec", "variables") or ():
        try:
            values[variable["name"]] = evaluate(variable["expression"], names, {**data, "variables": dict(values)})
        except RuleError:
            continue
    return values
