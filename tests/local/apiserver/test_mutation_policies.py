"""MutatingAdmissionPolicies: what they change of an object before it is completed, validated and stored."""

from typing import Any

import pytest

from kerf_dra.driver.local.apiserver.admission.mutation_policies import replace_message_literals
from tests.local.apiserver.api_client import Api
from tests.local.apiserver.resources import CLASSES

MAPS = "/api/v1/namespaces/default/configmaps"
ADMISSION = "/apis/admissionregistration.k8s.io/v1"
RULE: dict[str, Any] = {
    "apiGroups": [""],
    "apiVersions": ["v1"],
    "operations": ["CREATE"],
    "resources": ["configmaps"],
}


def config_map(name: str = "c", **data: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def json_patch(expression: str) -> dict[str, Any]:
    return {"patchType": "JSONPatch", "jsonPatch": {"expression": expression}}


async def change(
    api: Api, *expressions: str, name: str = "p", binding: dict[str, Any] | None = None, **spec: Any
) -> None:
    """Put a policy into force."""
    constraints = {"resourceRules": [RULE]}
    policy = {
        "metadata": {"name": name},
        "spec": {
            "matchConstraints": constraints,
            "reinvocationPolicy": "Never",
            "mutations": [json_patch(expression) for expression in expressions],
            **spec,
        },
    }
    await api.made(f"{ADMISSION}/mutatingadmissionpolicies", policy)
    bound = {"metadata": {"name": name}, "spec": {"policyName": name, **(binding or {})}}
    await api.made(f"{ADMISSION}/mutatingadmissionpolicybindings", bound)


async def test_mutations_follow_one_another_and_see_what_those_before_them_have_made(api: Api) -> None:
    await change(
        api,
        '[JSONPatch{op: "add", path: "/data/b", value: "1"}]',
        '[JSONPatch{op: "add", path: "/data/c", value: string(variables.keys)}]',
        variables=[{"name": "keys", "expression": "size(object.data)"}],
    )
    assert (await api.made(MAPS, config_map(a="0")))["data"] == {"a": "0", "b": "1", "c": "2"}
    assert (await api.get(f"{MAPS}/c")).body["data"] == {"a": "0", "b": "1", "c": "2"}


async def test_only_what_the_rules_and_the_conditions_match_is_changed(api: Api) -> None:
    await change(
        api,
        '[JSONPatch{op: "add", path: "/data/b", value: "1"}]',
        matchConditions=[{"name": "has-a", "expression": '"a" in object.data'}],
    )
    assert (await api.made(MAPS, config_map("other", x="0")))["data"] == {"x": "0"}
    assert (await api.made(MAPS, config_map(a="0")))["data"] == {"a": "0", "b": "1"}
    updated = await api.merge(f"{MAPS}/c", {"data": {"b": None}})
    assert updated.body["data"] == {"a": "0"}, "the rule is for creations"


async def test_a_policy_is_applied_once_for_each_parameter_that_its_binding_selects(api: Api) -> None:
    for name, label in (("first", "yes"), ("second", "yes"), ("third", "no")):
        await api.made(CLASSES, {"metadata": {"name": name, "labels": {"graded": label}}, "spec": {}})
    await change(
        api,
        '[JSONPatch{op: "add", path: "/data/" + params.metadata.name, value: "1"}]',
        paramKind={"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass"},
        binding={"paramRef": {"selector": {"matchLabels": {"graded": "yes"}}, "parameterNotFoundAction": "Allow"}},
    )
    assert (await api.made(MAPS, config_map(a="0")))["data"] == {"a": "0", "first": "1", "second": "1"}


@pytest.mark.parametrize(("action", "status"), [("Allow", 201), ("Deny", 422)])
async def test_without_a_parameter_the_binding_decides(api: Api, action: str, status: int) -> None:
    await change(
        api,
        '[JSONPatch{op: "remove", path: "/data"}]',
        paramKind={"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass"},
        binding={"paramRef": {"name": "missing", "parameterNotFoundAction": action}},
    )
    answer = await api.post(MAPS, config_map(a="0"))
    assert answer.status == status
    assert answer.body.get("data") == ({"a": "0"} if status == 201 else None)


FAULTS: dict[str, dict[str, Any]] = {
    "an expression that does not compile": {"mutations": [json_patch("nonsense(")]},
    "a field that the object lacks": {"mutations": [json_patch('[JSONPatch{op: "add", path: object.data.b}]')]},
    "a path that does not exist": {"mutations": [json_patch('[JSONPatch{op: "remove", path: "/data/b"}]')]},
    "an apply configuration": {"mutations": [{"patchType": "ApplyConfiguration"}]},
    "a condition that fails": {"matchConditions": [{"name": "x", "expression": "object.data.b == '1'"}]},
    "a second invocation": {"reinvocationPolicy": "IfNeeded"},
    "a kind of parameters that is not served": {"paramKind": {"apiVersion": "v1", "kind": "Nothing"}},
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("failure_policy", ["Fail", "Ignore", None])
async def test_a_policy_that_cannot_be_applied_refuses_the_object_or_leaves_it_as_it_was(
    api: Api, fault: str, failure_policy: str | None
) -> None:
    ignoring = {"failurePolicy": failure_policy} if failure_policy else {}
    binding = {"paramRef": {"name": "x"}}
    await change(api, '[JSONPatch{op: "remove", path: "/data"}]', binding=binding, **ignoring, **FAULTS[fault])
    answer = await api.post(MAPS, config_map(a="0"))
    if failure_policy == "Ignore":
        assert (answer.status, answer.body["data"]) == (201, {"a": "0"})
    else:
        assert (answer.status, answer.body["reason"]) == (422, "Invalid")
        assert "MutatingAdmissionPolicy 'p' with binding 'p' denied request: " in answer.body["message"]


async def test_a_test_operation_that_fails_leaves_the_object_as_it_was(api: Api) -> None:
    await change(
        api,
        '[JSONPatch{op: "add", path: "/data/b", value: "1"}, JSONPatch{op: "test", path: "/data/a", value: "9"}]',
        '[JSONPatch{op: "add", path: "/data/c", value: "1"}]',
    )
    assert (await api.made(MAPS, config_map(a="0")))["data"] == {"a": "0", "c": "1"}


async def test_what_a_policy_adds_is_validated_and_no_policy_changes_a_policy(api: Api) -> None:
    rule = {"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*"]}
    await change(
        api,
        '[JSONPatch{op: "add", path: "/metadata/labels", value: {"a": "not a label!"}}]',
        matchConstraints={"resourceRules": [rule]},
    )
    answer = await api.post(MAPS, config_map(a="0"))
    assert (answer.status, answer.body["details"]["causes"][0]["field"]) == (422, "metadata.labels")
    await change(api, "[]", name="q")


@pytest.mark.parametrize(
    ("expression", "written"),
    [
        ("[JSONPatch{op: 'a', from: x.y}]", '[{"op": \'a\', "from": x.y}]'),
        ("Object.spec{a: b ? c : d, e: [f]}", '{"a": b ? c : d, "e": [f]}'),
        ("Object{spec: Object.spec{a: 1}}", '{"spec": {"a": 1}}'),
        ("{'op': op}", "{'op': op}"),
        ("x.map(i, JSONPatch{ op : i })", 'x.map(i, { "op" : i })'),
        ("Other{a: 1}", "Other{a: 1}"),
    ],
)
def test_literals_of_patches_and_objects_are_maps(expression: str, written: str) -> None:
    assert replace_message_literals(expression) == written
