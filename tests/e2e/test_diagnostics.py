"""``kerf why`` explains pods that the real scheduler leaves pending, and the end of its victims helps."""

import json
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import anyio
import pytest

from tests.e2e import pods
from tests.e2e.namespace import Namespace
from tests.e2e.wait import eventually
from tests.e2e.why_audit import ask_why
from tools.realcluster.api import Api, Document
from tools.realcluster.cluster import Cluster
from tools.realcluster.environment import chosen_version
from tools.realcluster.kerf import PLUGIN, Hardware, Kerf

HARDWARE = Hardware(cards=[{"kind": "gpu", "model": "h100-80gb-sxm"}], options={})
LEFT_OUT = ("16-parameters.yaml",)
"""So that a claim can have bad parameters."""
MODEL: Final = 'device.attributes["gpu.kerf.dev"].model'
KERF: Final = "kerf.dev/v1alpha1"
RULES: Final = f"resource.k8s.io/{chosen_version().taint_rule_version}"


@pytest.fixture
async def busy(namespace: Namespace) -> AsyncIterator[Mapping[str, str]]:
    """Create classes by profile, and use one partition of one slice."""
    classes = {
        profile: await namespace.resource_class(profile.replace(".", "-"), device="gpu", profile=profile)
        for profile in ("1g.10gb", "3g.40gb", "7g.80gb")
    }
    await namespace.template("small", pods.exactly("gpu", classes["1g.10gb"]))
    await namespace.create_pods("small", "holder")
    await namespace.wait_running("holder")
    yield classes
    for name in ("asking",):
        await namespace.api.delete("v1", "Pod", name, namespace.name)


async def why(cluster: Cluster, *arguments: str) -> Document:
    """Return the document of ``kerf why``, which ends with exit code 1."""
    code, document = await ask_why(cluster, *arguments)
    assert code == 1, document
    return document


async def explained(cluster: Cluster, namespace: Namespace, request: Document, more: Document, **spec: Any) -> Document:
    """Return why a pod with this request waits, once the scheduler has reported that it does."""
    await namespace.template("asking", request, **more)
    await namespace.apply(pods.pod("asking", {"gpu": pods.by_template("asking")}, **spec))
    await namespace.wait_event("asking", "FailedScheduling")
    await eventually("the scheduler's words are in the pod", lambda: scheduler_says(namespace, "asking"))
    return await why(cluster, "pod", "asking", "-n", namespace.name)


async def scheduler_says(namespace: Namespace, name: str) -> str:
    """Return why the pod is not scheduled by its condition, which is written after the event."""
    conditions = (await namespace.pod(name))["status"].get("conditions", ())
    return next((one["message"] for one in conditions if one["type"] == "PodScheduled"), "")


async def cause_of(cluster: Cluster, namespace: Namespace, pod: str, code: str, verdict: str = "") -> Document:
    """Return the cause ``code``, once ``kerf why`` has that, and ``verdict``: another one may come first."""
    seen: list[Document] = []

    async def probe() -> Document | None:
        _, answer = await ask_why(cluster, f"pod/{pod}", "-n", namespace.name)
        seen[:] = [answer]
        found = [each for each in answer["causes"] if each["code"] == code and verdict in ("", answer["verdict"])]
        return found[0] if found else None

    async def last() -> object:
        return seen

    return await eventually(f"pod {pod} {verdict}: {code}", probe, but=last)


def obstacles(answer: Document) -> list[tuple[str, str]]:
    return [(reason["obstacle"], reason["message"]) for group in answer["groups"] for reason in group["reasons"]]


CASES: Final[Mapping[str, tuple[str, Document, Document, Document, str]]] = {
    # profile, fields of the request, more of the claim, more of the pod, obstacle
    "selector": ("1g.10gb", {"selectors": [{"cel": {"expression": f'{MODEL} == "none"'}}]}, {}, {}, "selector"),
    "counters": ("7g.80gb", {}, {}, {}, "counters"),
    "too few": ("1g.10gb", {"count": 8}, {}, {}, "too-few"),
    "too few that are free": ("1g.10gb", {"count": 7}, {}, {}, "too-few"),
    "constraint": (
        "1g.10gb",
        {"count": 2},
        {"constraints": [{"distinctAttribute": "gpu.kerf.dev/uuid"}]},
        {},
        "constraint",
    ),
    "capacity": ("1g.10gb", {"capacity": {"requests": {"memory": "80Gi"}}}, {}, {}, "capacity"),
    "node selector": ("1g.10gb", {}, {}, {"nodeSelector": {"disk": "ssd"}}, "node-filter"),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
async def test_each_obstacle_of_a_waiting_pod_is_explained(
    cluster: Cluster, namespace: Namespace, busy: Mapping[str, str], case: tuple[str, Document, Document, Document, str]
) -> None:
    profile, fields, more, spec, obstacle = case
    answer = await explained(cluster, namespace, pods.exactly("gpu", busy[profile], **fields), more, **spec)
    assert answer["verdict"] == "does-not-fit"
    assert [found for found, _ in obstacles(answer)] == [obstacle]
    assert answer["scheduler_says"].startswith("0/1 nodes are available")


async def test_the_nearest_miss_says_what_differs(
    cluster: Cluster, namespace: Namespace, busy: Mapping[str, str]
) -> None:
    selector = {"cel": {"expression": f'{MODEL} == "h100-80gb"'}}
    answer = await explained(cluster, namespace, pods.exactly("gpu", busy["1g.10gb"], selectors=[selector]), {})
    nearest = answer["groups"][0]["reasons"][0]["near_misses"][0]
    assert [unmet["has"] for unmet in nearest["unmet"]] == [{"model": '"h100-80gb-sxm"'}]


async def test_a_taint_on_devices_is_explained(
    cluster: Cluster, api: Api, namespace: Namespace, busy: Mapping[str, str]
) -> None:
    name = f"{namespace.name}-ill"
    selector = {"driver": "gpu.kerf.dev"}
    taint = {"key": "example.com/ill", "value": "fan", "effect": "NoSchedule"}
    spec: Document = {"deviceSelector": selector, "taint": taint}
    await api.apply({"apiVersion": RULES, "kind": "DeviceTaintRule", "metadata": {"name": name}, "spec": spec})
    try:
        answer = await explained(cluster, namespace, pods.exactly("gpu", busy["3g.40gb"]), {})
        [reason] = answer["groups"][0]["reasons"]
        assert (reason["obstacle"], reason["taints"]) == ("tainted", ["example.com/ill=fan:NoSchedule"])
    finally:
        await api.delete(RULES, "DeviceTaintRule", name)


async def test_a_pool_that_is_being_updated_is_explained(
    cluster: Cluster, api: Api, namespace: Namespace, busy: Mapping[str, str]
) -> None:
    """Another driver's pool, of which one slice of two is there."""
    name, driver = f"{namespace.name}-half", "half.example.com"
    await api.apply(
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            "metadata": {"name": name},
            "spec": {
                "driver": driver,
                "nodeName": namespace.node.name,
                "pool": {"name": "half", "generation": 1, "resourceSliceCount": 2},
                "devices": [{"name": "a"}],
            },
        }
    )
    await api.apply(
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "DeviceClass",
            "metadata": {"name": name},
            "spec": {"selectors": [{"cel": {"expression": f'device.driver == "{driver}"'}}]},
        }
    )
    try:
        answer = await explained(cluster, namespace, pods.exactly("device", name), {})
        message = f"pool {driver}/half is being updated: 1 of 2 slices are published"
        assert obstacles(answer) == [("pool-incomplete", message)]
    finally:
        await api.delete("resource.k8s.io/v1", "ResourceSlice", name)
        await api.delete("resource.k8s.io/v1", "DeviceClass", name)


@pytest.mark.parametrize(
    ("memory", "code"), [("1Ti", "class-not-compiled"), ("100Gi", "class-matches-nothing")], ids=["no card", "no node"]
)
async def test_a_size_that_nothing_has_is_told_with_the_largest_that_there_is(
    cluster: Cluster, namespace: Namespace, busy: Mapping[str, str], memory: str, code: str
) -> None:
    name = f"{namespace.name}-large"
    spec = {"device": "gpu", "minimum": {"memory": memory}}
    metadata = {"name": name}
    document = {"apiVersion": KERF, "kind": "ResourceClass", "metadata": metadata, "spec": spec}
    await namespace.api.apply(document)
    await namespace.template("large", pods.exactly("gpu", name))
    await namespace.create_pods("large", "asking")

    try:
        found = await cause_of(cluster, namespace, "asking", code)
        assert "the largest is" in found["message"]
    finally:
        await namespace.api.delete(KERF, "ResourceClass", name)


async def test_a_missing_template_is_explained(cluster: Cluster, namespace: Namespace, busy: Mapping[str, str]) -> None:
    await namespace.apply(pods.pod("asking", {"gpu": pods.by_template("none-such")}))
    answer = await why(cluster, "pod", "asking", "-n", namespace.name)
    assert answer["verdict"] == "blocked"
    assert f"ResourceClaimTemplate {namespace.name}/none-such does not exist" in answer["message"]


async def test_a_pod_that_has_its_devices_and_cannot_start_is_explained(
    cluster: Cluster, namespace: Namespace, busy: Mapping[str, str]
) -> None:
    """The codes follow from the words of the real kubelet."""
    parameters = {"apiVersion": "kerf.dev/v1alpha1", "kind": "GpuConfig", "sharin": {}}
    await namespace.template("bad", pods.exactly("gpu", busy["1g.10gb"]), config=[pods.opaque(parameters, "gpu")])
    await namespace.create_pods("bad", "asking")
    await namespace.wait_event("asking", "FailedPrepareDynamicResources", "sharin")
    cause = await cause_of(cluster, namespace, "asking", "parameters-refused", "cannot-start")
    assert "opaque.parameters.sharin: unknown field" in cause["message"]
    assert "kubectl delete pod asking" in cause["next_step"]


async def test_pods_that_a_missing_plugin_keeps_from_starting_and_ending_are_explained(
    cluster: Cluster, kerf: Kerf, namespace: Namespace, busy: Mapping[str, str]
) -> None:
    node = namespace.node.name
    await kerf.crash_plugin(node)
    try:
        await namespace.create_pods("small", "asking")
        await namespace.wait_event("asking", "FailedPrepareDynamicResources")
        await cause_of(cluster, namespace, "asking", "driver-absent", "cannot-start")
        await namespace.api.delete("v1", "Pod", "holder", namespace.name)
        cause = await cause_of(cluster, namespace, "holder", "driver-absent", "cannot-end")
        assert "start the plugin of" in cause["next_step"]
    finally:
        await kerf.start_plugin(node)
    await namespace.wait_running("asking")


async def test_what_is_named_to_end_makes_room(cluster: Cluster, namespace: Namespace, busy: Mapping[str, str]) -> None:
    answer = await explained(cluster, namespace, pods.exactly("gpu", busy["7g.80gb"]), {})
    [remedy] = answer["remedies"]
    [ending] = remedy["claims"]
    assert ending["pods"] == [f"{namespace.name}/holder"]
    [in_the_way] = answer["groups"][0]["in_the_way"]
    assert (in_the_way["card"], in_the_way["claims"]) == ("gpu-0", [ending["claim"]])
    await namespace.delete_pod("holder")
    await namespace.wait_running("asking")


async def test_a_plan_comes_true_pod_by_pod(
    cluster: Cluster, namespace: Namespace, busy: Mapping[str, str], tmp_path: Path
) -> None:
    """The plugin publishes again after each pod, and not between a plan and the allocation: it stands still then."""
    await namespace.template("large", pods.exactly("gpu", busy["3g.40gb"]))
    for number, template in enumerate(["small", "large", "small"]):
        document = pods.pod(f"p{number}", {"gpu": pods.by_template(template)})
        manifest = tmp_path / "pod.json"
        manifest.write_text(json.dumps(document))
        where = ["-n", namespace.name, "--kubeconfig", str(cluster.kubeconfig)]
        command = [sys.executable, "-m", "kerf_dra.driver.cli", "plan", "-f", str(manifest), *where, "-o", "json"]
        async with plugin_standing_still(cluster, namespace):
            answer = json.loads((await anyio.run_process(command)).stdout)
            await namespace.apply(document)
            await wait_bound(namespace, f"p{number}")
        [planned] = answer["placed"]
        await namespace.wait_running(f"p{number}")
        results = await namespace.allocation_results(f"p{number}")
        assert [f"{one['driver']}/{one['pool']}/{one['device']}" for one in results] == [
            device["device"] for device in planned["devices"]
        ]


@asynccontextmanager
async def plugin_standing_still(cluster: Cluster, namespace: Namespace) -> AsyncIterator[None]:
    """Keep the plugin from publishing within the context, where it has not stopped halfway."""
    plugin = f"{namespace.node.name}-{PLUGIN}"

    async def stands_still() -> bool:
        cluster.processes.signal(plugin, signal.SIGSTOP)
        if await namespace.complete_devices():
            return True
        cluster.processes.signal(plugin, signal.SIGCONT)
        return False

    try:
        await eventually("the plugin stands still with all slices written", stands_still)
        yield
    finally:
        cluster.processes.signal(plugin, signal.SIGCONT)


async def wait_bound(namespace: Namespace, name: str) -> None:
    async def is_bound() -> bool:
        return "nodeName" in (await namespace.pod(name))["spec"]

    await eventually(f"pod {name} is bound", is_bound, but=lambda: namespace.describe_pod(name))


async def test_the_answer_follows_when_the_obstacle_goes(
    cluster: Cluster, namespace: Namespace, busy: Mapping[str, str]
) -> None:
    await explained(cluster, namespace, pods.exactly("gpu", busy["1g.10gb"]), {}, nodeSelector={"disk": "ssd"})
    await namespace.api.patch("v1", "Node", namespace.node.name, {"metadata": {"labels": {"disk": "ssd"}}})
    try:
        await namespace.wait_running("asking")
    finally:
        await namespace.api.patch("v1", "Node", namespace.node.name, {"metadata": {"labels": {"disk": None}}})
