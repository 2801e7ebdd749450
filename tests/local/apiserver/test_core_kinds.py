"""Namespaces, nodes, leases, events and kinds without effect.

Expected texts are those of kube-apiserver 1.37.
"""

from typing import Any

import pytest

from tests.local.apiserver.api_client import TABLE, Api

NAMESPACES = "/api/v1/namespaces"
NODES = "/api/v1/nodes"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
EVENTS = "/api/v1/namespaces/default/events"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
ADMISSION = "/apis/admissionregistration.k8s.io/v1"


def named(name: str, **more: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, **more}


async def test_the_usual_namespaces_are_there(api: Api) -> None:
    names = [item["metadata"]["name"] for item in (await api.get(NAMESPACES)).body["items"]]
    assert names == ["default", "kube-node-lease", "kube-public", "kube-system"]


async def test_a_namespace_carries_its_name_and_its_finalizer(api: Api) -> None:
    body = await api.made(NAMESPACES, named("t", spec={"finalizers": ["a.b/c"]}))
    assert body["metadata"]["labels"] == {"kubernetes.io/metadata.name": "t"}
    assert body["spec"]["finalizers"] == ["a.b/c", "kubernetes"]
    assert body["status"] == {"phase": "Active"}


async def test_a_namespaces_finalizers_and_name_label_stay(api: Api) -> None:
    await api.made(NAMESPACES, named("t"))
    change = {"spec": {"finalizers": []}, "metadata": {"labels": {"kubernetes.io/metadata.name": None, "a": "b"}}}
    body = (await api.merge(f"{NAMESPACES}/t", change)).body
    assert body["spec"]["finalizers"] == ["kubernetes"]
    assert body["metadata"]["labels"] == {"kubernetes.io/metadata.name": "t", "a": "b"}


async def test_nothing_is_created_where_there_is_no_namespace(api: Api) -> None:
    answer = await api.post(f"{NAMESPACES}/none/configmaps", named("c"))
    assert (answer.status, answer.body["message"]) == (404, 'namespaces "none" not found')


async def test_nothing_is_created_in_a_namespace_that_goes(api: Api) -> None:
    await api.made(NAMESPACES, named("t"))
    await api.made(f"{NAMESPACES}/t/configmaps", {"metadata": {"name": "held", "finalizers": ["a.b/c"]}})
    await api.delete(f"{NAMESPACES}/t")
    answer = await api.post(f"{NAMESPACES}/t/configmaps", named("c"))
    assert (answer.status, answer.body["reason"]) == (403, "Forbidden")
    assert answer.body["message"] == (
        'configmaps "c" is forbidden: unable to create new content in namespace t because it is being terminated'
    )
    (cause,) = answer.body["details"]["causes"]
    assert cause == {
        "reason": "NamespaceTerminating",
        "message": "namespace t is being terminated",
        "field": "metadata.namespace",
    }


async def test_a_node_registers_itself_with_its_status(api: Api) -> None:
    status = {"conditions": [{"type": "Ready", "status": "True"}], "capacity": {"cpu": "4"}}
    assert (await api.made(NODES, named("n", status=status)))["status"]["capacity"] == {"cpu": "4"}


async def test_a_nodes_conditions_are_patched_by_type(api: Api) -> None:
    await api.made(NODES, named("n", status={"conditions": [{"type": "Ready", "status": "True"}]}))
    change = {"status": {"conditions": [{"type": "Ready", "status": "False"}, {"type": "Full", "status": "False"}]}}
    body = (await api.strategic(f"{NODES}/n/status", change)).body
    assert {each["type"]: each["status"] for each in body["status"]["conditions"]} == {
        "Ready": "False",
        "Full": "False",
    }


async def test_nodes_are_selected_by_schedulability(api: Api) -> None:
    await api.made(NODES, named("on"))
    await api.made(NODES, named("off", spec={"unschedulable": True}))
    items = (await api.get(f"{NODES}?fieldSelector=spec.unschedulable%3Dtrue")).body["items"]
    assert [item["metadata"]["name"] for item in items] == ["off"]


EFFECTS = '"NoExecute", "NoSchedule", "PreferNoSchedule"'
TAINT = {"key": "a", "effect": "NoSchedule"}


@pytest.mark.parametrize(
    ("taints", "cause"),
    [
        ([{"effect": "NoSchedule"}], "spec.taints[0].key: Required value"),
        ([{"key": "a"}], "spec.taints[0].effect: Required value"),
        (
            [{"key": "a", "effect": "X"}],
            f'spec.taints[0].effect: Unsupported value: "X": supported values: {EFFECTS}',
        ),
        (
            [TAINT, TAINT],
            "spec.taints[1]: Duplicate value: taints must be unique by key and effect pair",
        ),
    ],
)
async def test_a_wrong_taint_is_refused(api: Api, taints: Any, cause: str) -> None:
    assert cause in (await api.post(NODES, named("n", spec={"taints": taints}))).causes
    await api.made(NODES, named("n"))
    assert cause in (await api.merge(f"{NODES}/n", {"spec": {"taints": taints}})).causes


@pytest.mark.parametrize(
    ("spec", "cause"),
    [
        ({"leaseDurationSeconds": 0}, "spec.leaseDurationSeconds: Invalid value: 0: must be greater than 0"),
        (
            {"leaseTransitions": -1},
            "spec.leaseTransitions: Invalid value: -1: must be greater than or equal to 0",
        ),
    ],
)
async def test_a_wrong_lease_is_refused(api: Api, spec: Any, cause: str) -> None:
    assert (await api.post(LEASES, named("l", spec=spec))).causes == [cause]


async def test_a_lease_is_renewed_by_one_holder_at_a_time(api: Api) -> None:
    lease = await api.made(LEASES, named("l", spec={"holderIdentity": "a", "leaseDurationSeconds": 15}))
    revision = lease["metadata"]["resourceVersion"]
    renewal = {"metadata": {"name": "l", "resourceVersion": revision}, "spec": {"holderIdentity": "a"}}
    assert (await api.put(f"{LEASES}/l", renewal)).status == 200
    assert (await api.put(f"{LEASES}/l", {**renewal, "spec": {"holderIdentity": "b"}})).status == 409


def event(**more: Any) -> dict[str, Any]:
    about = {"kind": "Pod", "namespace": "default", "name": "p", "uid": "u"}
    return named("e", involvedObject=about, reason="Started", message="it runs", type="Normal", count=1, **more)


async def test_an_event_is_the_same_in_both_groups(api: Api) -> None:
    await api.made(EVENTS, event(source={"component": "kubelet", "host": "n1"}))
    body = (await api.get("/apis/events.k8s.io/v1/namespaces/default/events/e")).body
    assert (body["apiVersion"], body["note"], body["regarding"]["name"]) == ("events.k8s.io/v1", "it runs", "p")
    assert (body["deprecatedSource"], body["deprecatedCount"]) == ({"component": "kubelet", "host": "n1"}, 1)


async def test_an_event_of_the_newer_group_is_read_in_the_older(api: Api) -> None:
    newer = {
        "metadata": {"name": "e"},
        "regarding": {"kind": "Pod", "namespace": "default", "name": "p"},
        "note": "it runs",
        "reason": "Started",
        "type": "Normal",
        "reportingController": "d.example.com",
        "reportingInstance": "n1",
        "action": "Start",
        "eventTime": "2026-01-01T12:00:00.000000Z",
    }
    await api.made("/apis/events.k8s.io/v1/namespaces/default/events", newer)
    body = (await api.get(f"{EVENTS}/e")).body
    assert (body["message"], body["involvedObject"]["name"]) == ("it runs", "p")
    assert (body["reportingComponent"], body["reportingInstance"]) == ("d.example.com", "n1")


async def test_an_event_is_where_its_object_is(api: Api) -> None:
    about = {"kind": "Pod", "namespace": "other", "name": "p"}
    answer = await api.post(EVENTS, {**event(), "involvedObject": about})
    assert answer.causes == ['involvedObject.namespace: Invalid value: "other": does not match event.namespace']


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (f"{RBAC}/namespaces/default/roles", {"rules": [{"verbs": ["get"]}]}),
        (f"{RBAC}/clusterroles", {"rules": []}),
        (f"{RBAC}/clusterrolebindings", {"roleRef": {"kind": "ClusterRole", "name": "x"}}),
        (f"{RBAC}/namespaces/default/rolebindings", {"roleRef": {"kind": "Role", "name": "x"}}),
        (f"{ADMISSION}/validatingadmissionpolicies", {"spec": {"validations": []}}),
        (f"{ADMISSION}/validatingadmissionpolicybindings", {"spec": {"policyName": "x"}}),
        (f"{NAMESPACES}/default/serviceaccounts", {}),
        (f"{NAMESPACES}/default/configmaps", {"data": {"a": "b"}}),
    ],
)
async def test_kinds_without_effect_are_kept_and_printed(api: Api, path: str, body: dict[str, Any]) -> None:
    made = await api.made(path, named("x", **body))
    assert {key: made[key] for key in body} == body
    table = (await api.get(path, accept=TABLE)).body
    assert [row["cells"][0] for row in table["rows"]] == ["x"]
    assert (await api.delete(f"{path}/x")).status == 200


async def test_roles_may_have_names_with_colons(api: Api) -> None:
    await api.made(f"{RBAC}/clusterroles", named("system:kerf:node"))
    assert (await api.get(f"{RBAC}/clusterroles/system:kerf:node")).status == 200
    refused = await api.post(f"{RBAC}/clusterroles", named("a%b"))
    assert refused.causes == ["metadata.name: Invalid value: \"a%b\": may not contain '%'"]


async def test_a_binding_keeps_its_role(api: Api) -> None:
    path = f"{RBAC}/clusterrolebindings"
    await api.made(
        path, named("b", roleRef={"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "x"})
    )
    answer = await api.merge(f"{path}/b", {"roleRef": {"name": "y"}})
    (cause,) = answer.causes
    assert cause.startswith("roleRef: Invalid value: ")
    assert cause.endswith(": field is immutable")
