"""Pods: defaults, required fields, and fields that an update may change."""

from typing import Any

import pytest

from tests.local.apiserver.api_client import Api

PODS = "/api/v1/namespaces/default/pods"


def pod(*containers: dict[str, Any], name: str = "p", **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"containers": list(containers) or [container()], **spec}}


def container(name: str = "c", image: str = "busybox:1", **more: Any) -> dict[str, Any]:
    return {"name": name, "image": image, **more}


async def test_a_plain_pod_gets_what_a_real_server_gives_it(api: Api) -> None:
    body = await api.made(PODS, pod())
    assert body["spec"] == {
        "containers": [
            {
                "name": "c",
                "image": "busybox:1",
                "imagePullPolicy": "IfNotPresent",
                "resources": {},
                "terminationMessagePath": "/dev/termination-log",
                "terminationMessagePolicy": "File",
            }
        ],
        "dnsPolicy": "ClusterFirst",
        "enableServiceLinks": True,
        "preemptionPolicy": "PreemptLowerPriority",
        "priority": 0,
        "restartPolicy": "Always",
        "schedulerName": "default-scheduler",
        "securityContext": {},
        "serviceAccount": "default",
        "serviceAccountName": "default",
        "terminationGracePeriodSeconds": 30,
        "tolerations": [
            {
                "effect": "NoExecute",
                "key": f"node.kubernetes.io/{trouble}",
                "operator": "Exists",
                "tolerationSeconds": 300,
            }
            for trouble in ("not-ready", "unreachable")
        ],
    }
    assert body["status"] == {"phase": "Pending", "qosClass": "BestEffort"}
    assert body["metadata"]["generation"] == 1


async def test_what_admission_sets_is_owned_by_nobody(api: Api) -> None:
    (entry,) = (await api.made(PODS, pod()))["metadata"]["managedFields"]
    owned = entry["fieldsV1"]["f:spec"]
    assert "f:restartPolicy" in owned, "a default counts as written"
    assert not {"f:tolerations", "f:priority", "f:serviceAccountName", "."} & owned.keys()
    assert "f:status" not in entry["fieldsV1"]


@pytest.mark.parametrize(
    ("image", "policy"),
    [("busybox", "Always"), ("busybox:latest", "Always"), ("busybox:1", "IfNotPresent"), ("r.io:5000/b", "Always")],
)
async def test_moving_tags_are_pulled_always(api: Api, image: str, policy: str) -> None:
    body = await api.made(PODS, pod(container(image=image)))
    assert body["spec"]["containers"][0]["imagePullPolicy"] == policy


@pytest.mark.parametrize(
    ("resources", "quality"),
    [
        ({}, "BestEffort"),
        ({"limits": {"example.com/gpu": "1"}}, "BestEffort"),
        ({"requests": {"cpu": "1"}}, "Burstable"),
        ({"limits": {"cpu": "1"}}, "Burstable"),
        ({"limits": {"cpu": "1", "memory": "1Gi"}}, "Guaranteed"),
        ({"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "500m", "memory": "1Gi"}}, "Burstable"),
    ],
)
async def test_quality_of_service_follows_from_resources(api: Api, resources: dict[str, Any], quality: str) -> None:
    body = await api.made(PODS, pod(container(resources=resources)))
    assert body["status"]["qosClass"] == quality


async def test_limits_are_the_default_of_requests(api: Api) -> None:
    body = await api.made(PODS, pod(container(resources={"limits": {"cpu": "1"}})))
    assert body["spec"]["containers"][0]["resources"]["requests"] == {"cpu": "1"}


async def test_amounts_are_kept_in_their_canonical_form(api: Api) -> None:
    body = await api.made(PODS, pod(container(resources={"limits": {"cpu": "1000m", "memory": "1024Mi"}})))
    assert body["spec"]["containers"][0]["resources"]["limits"] == {"cpu": "1", "memory": "1Gi"}
    answer = await api.post(PODS, pod(container(resources={"limits": {"cpu": "many"}}), name="q"))
    assert (answer.status, answer.body["reason"]) == (400, "BadRequest")


async def test_a_gated_pod_says_so(api: Api) -> None:
    body = await api.made(PODS, pod(schedulingGates=[{"name": "example.com/wait"}]))
    (condition,) = body["status"]["conditions"]
    assert (condition["type"], condition["status"], condition["reason"]) == ("PodScheduled", "False", "SchedulingGated")


CLAIMED = {"name": "gpu", "resourceClaimName": "x"}


@pytest.mark.parametrize(
    ("body", "cause"),
    [
        ({"metadata": {"name": "p"}, "spec": {}}, "spec.containers: Required value"),
        (pod({"image": "x"}), "spec.containers[0].name: Required value"),
        (
            pod(container("A")),
            'spec.containers[0].name: Invalid value: "A": a lowercase RFC 1123 label must consist of',
        ),
        (pod(container(), container()), 'spec.containers[1].name: Duplicate value: "c"'),
        (pod({"name": "c"}), "spec.containers[0].image: Required value"),
        (pod(container(image="x ")), "must not have leading or trailing whitespace"),
        (pod(restartPolicy="Foo"), 'Unsupported value: "Foo": supported values: "Always", "OnFailure", "Never"'),
        (pod(terminationGracePeriodSeconds=-1), "spec.terminationGracePeriodSeconds: Invalid value: -1"),
        (pod(nodeName="A b"), 'spec.nodeName: Invalid value: "A b"'),
        (pod(tolerations=[{"operator": "Foo", "key": "k"}]), 'spec.tolerations[0].operator: Unsupported value: "Foo"'),
        (pod(tolerations=[{"operator": "Equal"}]), "operator must be Exists when `key` is empty"),
        (pod(tolerations=[{"operator": "Exists", "value": "x"}]), "value must be empty when `operator` is 'Exists'"),
        (pod(resourceClaims=[{"name": "a"}]), "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`"),
        (
            pod(resourceClaims=[{**CLAIMED, "resourceClaimTemplateName": "y"}]),
            "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified",
        ),
        (pod(resourceClaims=[CLAIMED, CLAIMED]), 'spec.resourceClaims[1].name: Duplicate value: "gpu"'),
        (
            pod(container(resources={"claims": [{"name": "z"}]}), resourceClaims=[CLAIMED]),
            'claims[0]: Not found: "z": must be one of the names in pod.spec.resourceClaims: gpu',
        ),
        (
            pod(container(resources={"claims": [{"name": "gpu"}, {"name": "gpu"}]}), resourceClaims=[CLAIMED]),
            'spec.containers[0].resources.claims[1]: Duplicate value: "gpu"',
        ),
        (
            pod(container(resources={"requests": {"cpu": "2"}, "limits": {"cpu": "1"}})),
            'spec.containers[0].resources.requests: Invalid value: "2": must be less than or equal to cpu limit of 1',
        ),
        (
            pod(container(resources={"limits": {"cpu": "-1"}})),
            'spec.containers[0].resources.limits[cpu]: Invalid value: "-1": must be greater than or equal to 0',
        ),
        (pod(container(resources={"limits": {"cpu": "-1"}})), "must be greater than or equal to 0"),
    ],
)
async def test_a_bad_pod_is_refused_with_the_field(api: Api, body: dict[str, Any], cause: str) -> None:
    answer = await api.post(PODS, body)
    assert (answer.status, answer.body["reason"]) == (422, "Invalid")
    assert any(cause in each for each in answer.causes), answer.causes


async def test_images_tolerations_and_gates_can_change_and_nothing_else(api: Api) -> None:
    await api.made(PODS, pod(schedulingGates=[{"name": "example.com/wait"}], nodeSelector={"a": "b"}))
    allowed: list[dict[str, Any]] = [
        {"spec": {"containers": [{"name": "c", "image": "busybox:2"}]}},
        {"spec": {"nodeSelector": {"d": "e"}}},
        {"spec": {"schedulingGates": [{"name": "example.com/wait", "$patch": "delete"}]}},
    ]
    for patch in allowed:
        assert (await api.strategic(f"{PODS}/p", patch)).status == 200, patch
    for patch in ({"spec": {"nodeSelector": {"a": "d"}}}, {"spec": {"restartPolicy": "Never"}}):
        (cause,) = (await api.strategic(f"{PODS}/p", patch)).causes
        assert cause.startswith(
            "spec: Forbidden: pod updates may not change fields other than `spec.containers[*].image`"
        )
    answer = await api.strategic(f"{PODS}/p", {"spec": {"schedulingGates": [{"name": "example.com/new"}]}})
    assert any("only deletion is allowed, but found new scheduling gate" in cause for cause in answer.causes)
    answer = await api.merge(f"{PODS}/p", {"spec": {"tolerations": []}})
    assert any("existing toleration can not be modified" in cause for cause in answer.causes)


async def test_a_binding_puts_a_pod_on_its_node(api: Api) -> None:
    await api.made(PODS, pod())
    binding = {"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n1"}}
    answer = await api.post(f"{PODS}/p/binding", binding)
    assert (answer.status, answer.body["status"]) == (201, "Success")
    body = (await api.get(f"{PODS}/p")).body
    assert body["spec"]["nodeName"] == "n1"
    assert [(each["type"], each["status"]) for each in body["status"]["conditions"]] == [("PodScheduled", "True")]
    again = await api.post(f"{PODS}/p/binding", binding)
    assert (again.status, again.body["reason"]) == (409, "Conflict")
    assert again.body["message"] == (
        'Operation cannot be fulfilled on pods/binding "p": pod p is already assigned to node "n1"'
    )


@pytest.mark.parametrize(
    ("spec", "target", "code"),
    [
        ({"schedulingGates": [{"name": "a.b/c"}]}, {"kind": "Node", "name": "n"}, 409),
        ({}, {"kind": "Node"}, 422),
        ({}, {"kind": "Rack", "name": "r"}, 400),
    ],
)
async def test_a_binding_that_cannot_be_is_refused(api: Api, spec: Any, target: Any, code: int) -> None:
    await api.made(PODS, pod(**spec))
    assert (await api.post(f"{PODS}/p/binding", {"metadata": {"name": "p"}, "target": target})).status == code


async def test_a_binding_of_no_pod_finds_none(api: Api) -> None:
    binding = {"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n1"}}
    assert (await api.post(f"{PODS}/p/binding", binding)).status == 404


async def test_a_pods_claims_are_reported_under_declared_names_only(api: Api) -> None:
    claim = {"name": "gpu", "resourceClaimTemplateName": "t"}
    await api.made(PODS, pod(resourceClaims=[claim]))
    good = {"status": {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "p-gpu-x"}]}}
    assert (await api.merge(f"{PODS}/p/status", good)).status == 200
    answer = await api.merge(f"{PODS}/p/status", {"status": {"resourceClaimStatuses": [{"name": "other"}]}})
    assert "must match the name of an entry in `spec.resourceClaims`" in answer.causes[0]


async def test_a_status_of_an_older_kubelet_keeps_what_it_does_not_know(api: Api) -> None:
    await api.made(PODS, pod(resourceClaims=[{"name": "gpu", "resourceClaimTemplateName": "t"}]))
    known = [{"name": "gpu", "resourceClaimName": "p-gpu-x"}]
    await api.merge(f"{PODS}/p/status", {"status": {"resourceClaimStatuses": known}})
    current = (await api.get(f"{PODS}/p")).body
    body = (await api.put(f"{PODS}/p/status", {**current, "status": {"phase": "Running"}})).body
    assert body["status"] == {"phase": "Running", "qosClass": "BestEffort", "resourceClaimStatuses": known}


async def test_conditions_of_a_pod_are_patched_by_type(api: Api) -> None:
    await api.made(PODS, pod())
    for type_ in ("Ready", "Other"):
        patch = {"status": {"conditions": [{"type": type_, "status": "True"}]}}
        assert (await api.strategic(f"{PODS}/p/status", patch)).status == 200
    conditions = (await api.get(f"{PODS}/p")).body["status"]["conditions"]
    assert [each["type"] for each in conditions] == ["Other", "Ready"]
