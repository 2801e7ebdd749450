"""ValidatingAdmissionPolicies: what they deny is not written, and unsupported parts of a policy deny, too.

The refusals' form is that of kube-apiserver 1.30 (``k8s.io/apiserver`` ``admission/plugin/policy/validating``).
"""

from typing import Any

import pytest

from tests.local.apiserver.api_client import Api

MAPS = "/api/v1/namespaces/default/configmaps"
ADMISSION = "/apis/admissionregistration.k8s.io/v1"
RULE: dict[str, Any] = {
    "apiGroups": [""],
    "apiVersions": ["v1"],
    "operations": ["CREATE", "UPDATE"],
    "resources": ["configmaps"],
}


def config_map(name: str = "c", **data: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


async def forbid(
    api: Api, *, rule: dict[str, Any] | None = None, actions: tuple[str, ...] = ("Deny",), **spec: Any
) -> None:
    """A policy ``small`` that is in force."""
    constraints = {"resourceRules": [RULE | (rule or {})]}
    policy = {"metadata": {"name": "small"}, "spec": {"matchConstraints": constraints, **spec}}
    await api.made(f"{ADMISSION}/validatingadmissionpolicies", policy)
    binding = {"metadata": {"name": "all"}, "spec": {"policyName": "small", "validationActions": list(actions)}}
    await api.made(f"{ADMISSION}/validatingadmissionpolicybindings", binding)


FEW: dict[str, Any] = {
    "variables": [
        {"name": "keys", "expression": "size(object.data)"},
        {"name": "more", "expression": "variables.keys - 1"},
    ],
    "validations": [
        {
            "expression": "variables.keys <= 1",
            "messageExpression": '"there are " + string(variables.more) + " too many"',
            "reason": "Forbidden",
        }
    ],
}


async def test_what_a_policy_denies_is_not_written(api: Api) -> None:
    await forbid(api, **FEW)
    await api.made(MAPS, config_map(a="1"))
    answer = await api.merge(f"{MAPS}/c", {"data": {"b": "2", "d": "3"}})
    assert (answer.status, answer.body["reason"]) == (403, "Forbidden")
    assert answer.body["message"] == (
        "configmaps \"c\" is forbidden: ValidatingAdmissionPolicy 'small' with binding 'all' denied request: "
        "there are 2 too many"
    )
    assert (await api.get(f"{MAPS}/c")).body["data"] == {"a": "1"}
    assert (await api.post(MAPS, config_map("d", a="1", b="2"))).status == 403
    assert (await api.get(f"{MAPS}/d")).status == 404


@pytest.mark.parametrize(
    ("validation", "status", "message"),
    [
        ({"expression": "false"}, 422, "failed expression: false"),
        ({"expression": "false", "message": "no"}, 422, "no"),
        ({"expression": "false", "message": "no", "reason": "Unauthorized"}, 401, "no"),
    ],
)
async def test_a_refusal_has_the_reason_and_the_words_of_its_validation(
    api: Api, validation: dict[str, str], status: int, message: str
) -> None:
    await forbid(api, validations=[validation])
    answer = await api.post(MAPS, config_map())
    assert answer.status == status
    assert answer.body["message"].endswith(f"denied request: {message}")


NEVER: dict[str, Any] = {"validations": [{"expression": "false"}]}
SILENT: dict[str, dict[str, Any]] = {
    "it is only audited": {"actions": ("Audit",)},
    "it is about another kind": {"rule": {"resources": ["secrets"]}},
    "it is about a subresource": {"rule": {"resources": ["configmaps/status"]}},
    "it is about another operation": {"rule": {"operations": ["DELETE"]}},
    "it is about another version": {"rule": {"apiVersions": ["v2"]}},
    "it is about another group": {"rule": {"apiGroups": ["apps"]}},
    "it is about other names": {"rule": {"resourceNames": ["other"]}},
    "a condition does not hold": {
        "matchConditions": [{"name": "somebody", "expression": 'request.userInfo.username == "somebody"'}]
    },
}


@pytest.mark.parametrize("case", SILENT)
async def test_a_policy_says_nothing_where(api: Api, case: str) -> None:
    await forbid(api, **NEVER, **SILENT[case])
    await api.made(MAPS, config_map())


@pytest.mark.parametrize(
    "rule",
    [
        {"resources": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"]},
        {"resources": ["*/*"]},
        {"resourceNames": ["c"]},
    ],
)
async def test_a_policy_may_be_about_all_of_something(api: Api, rule: dict[str, Any]) -> None:
    await forbid(api, **NEVER, rule=rule)
    assert (await api.post(MAPS, config_map())).status == 422


BROKEN: dict[str, tuple[dict[str, Any], str]] = {
    "an expression does not compile": ({"validations": [{"expression": "object."}]}, "compilation failed"),
    "an expression fails": ({"validations": [{"expression": "object.nope == 1"}]}, "Key not found"),
    "a condition fails": ({"matchConditions": [{"name": "a", "expression": "object.nope"}]}, "Key not found"),
    "a variable fails that is needed": (
        {
            "variables": [{"name": "a", "expression": "object.nope"}],
            "validations": [{"expression": "variables.a"}],
        },
        "Key not found",
    ),
    "it has parameters": ({"paramKind": {"apiVersion": "v1", "kind": "ConfigMap"}}, "spec.paramKind is not supported"),
    "it chooses namespaces": (
        {"matchConstraints": {"resourceRules": [RULE], "namespaceSelector": {"matchLabels": {"a": "b"}}}},
        "spec.matchConstraints.namespaceSelector is not supported",
    ),
}


@pytest.mark.parametrize("case", BROKEN)
async def test_a_policy_that_cannot_be_judged_denies_where(api: Api, case: str) -> None:
    spec, message = BROKEN[case]
    await forbid(api, **spec)
    assert message in (await api.post(MAPS, config_map())).body["message"]


async def test_a_policy_about_everything_can_still_be_corrected(api: Api) -> None:
    everything = {"resources": ["*/*"], "apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"]}
    await forbid(api, **NEVER, rule=everything)
    assert (await api.post(MAPS, config_map())).status == 422
    corrected = {"spec": {"validations": [{"expression": "true"}]}}
    assert (await api.merge(f"{ADMISSION}/validatingadmissionpolicies/small", corrected)).status == 200
    await api.made(MAPS, config_map())


async def test_a_policy_that_may_fail_denies_nothing_then(api: Api) -> None:
    await forbid(api, validations=[{"expression": "object.nope == 1"}], failurePolicy="Ignore")
    await api.made(MAPS, config_map())


async def test_a_variable_that_fails_does_no_harm_where_nobody_needs_it(api: Api) -> None:
    await forbid(api, variables=[{"name": "a", "expression": "object.nope"}], validations=[{"expression": "true"}])
    await api.made(MAPS, config_map())
