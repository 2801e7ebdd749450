"""A pod that asks for more CPU, memory, pods or extended resources than nodes have left waits, and hears for what."""

import json
from collections.abc import Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest

from kerf_dra.api.core.v1 import NODES, PODS, Container, Node, NodeStatus, Pod, PodSpec, ResourceRequirements
from kerf_dra.api.model.metadata import ObjectMeta
from kerf_dra.api.model.names import ObjectRef
from kerf_dra.api.model.quantity import Quantity
from kerf_dra.driver.cli import main
from kerf_dra.driver.diagnostics.anonymization import anonymize
from kerf_dra.driver.diagnostics.cluster_index import ClusterIndex
from kerf_dra.driver.diagnostics.cluster_state import ClusterState
from kerf_dra.driver.diagnostics.dump import decode_dump, encode_dump, redact
from kerf_dra.driver.diagnostics.explain.report import Verdict, WhyReport
from kerf_dra.driver.diagnostics.explain.why import explain_pod
from kerf_dra.driver.diagnostics.node_fit import sum_requests
from kerf_dra.driver.diagnostics.plan import PlanReport, plan_workloads
from kerf_dra.driver.local.apiserver.faults import InjectedFault
from kerf_dra.driver.scheduling.resource_fit import pod_requests
from tests.diagnostics.test_collector import cluster as served_cluster
from tests.diagnostics.test_collector import collect
from tests.fakes.cluster_states import claim, gpu_cluster, parse, pod, replace, with_amounts

Amounts = Mapping[str, str]
LISTED: Amounts = {"cpu": "64", "memory": "512Gi", "pods": "110"}


def quantities(amounts: Amounts) -> dict[str, Quantity]:
    return {name: Quantity(amount) for name, amount in amounts.items()}


def requesting(name: str, *claims: str, on: str = "", **amounts: str) -> Pod:
    made = pod(name, *claims, node_name=on)
    resources = ResourceRequirements(
        requests=quantities({key.replace("__", "/"): each for key, each in amounts.items()})
    )
    return replace(made, spec=replace(made.spec, containers=(Container(name="main", resources=resources),)))


def judged(*listed: Amounts, pods: tuple[Pod, ...] = (), **more: Any) -> ClusterState:
    """A cluster of H100 nodes that list these amounts; each of ``pods`` waits, or runs on its node."""
    state = gpu_cluster(nodes=len(listed))
    nodes = [
        replace(node, status=replace(node.status, allocatable=quantities(amounts)))
        for node, amounts in zip(state.nodes, listed, strict=True)
    ]
    return replace(state, nodes=tuple(nodes), pods=pods, requested=sum_requests(pods), **more)


def why(state: ClusterState, name: str = "p") -> WhyReport:
    return explain_pod(ClusterIndex(state), ObjectRef("default", name))


def said(report: WhyReport) -> list[tuple[str, str]]:
    return [(reason.obstacle, reason.message) for group in report.groups for reason in group.reasons]


MORE_THAN_LEFT = "more than the node's pods leave (the most that is left on a node is"
GPU_LISTED = {**LISTED, "nvidia.com/gpu": "8"}


@pytest.mark.parametrize(
    ("listed", "wanted", "running", "reasons"),
    [
        pytest.param(
            [LISTED, LISTED],
            {"cpu": "5000", "memory": "100Ti", "nvidia.com/gpu": "8"},
            [],
            [
                "Insufficient cpu: the pod requests 5000, and no node has more than 64",
                "Insufficient memory: the pod requests 100Ti, and no node has more than 512Gi",
                "Insufficient nvidia.com/gpu: no node offers nvidia.com/gpu; `kerf migrate -f` converts it to a claim",
            ],
            id="more than there is of three",
        ),
        pytest.param(
            [LISTED],
            {"cpu": "8"},
            [("node-1", {"cpu": "60500m"})],
            [f"Insufficient cpu: the pod requests 8, {MORE_THAN_LEFT} 3500m)"],
            id="more than is left",
        ),
        pytest.param(
            [LISTED],
            {"hwchiu/test-dev": "1"},
            [],
            ["Insufficient hwchiu/test-dev: no node offers hwchiu/test-dev"],
            id="unknown",
        ),
        pytest.param(
            [{**LISTED, "cpu": "4"}, LISTED],
            {"cpu": "5"},
            [("node-2", {"cpu": "64"})],
            [
                "Insufficient cpu: the pod requests 5, more than the node has (the largest has 64)",
                f"Insufficient cpu: the pod requests 5, {MORE_THAN_LEFT} 4)",
            ],
            id="a small node and a full one",
        ),
        pytest.param(
            [GPU_LISTED, LISTED],
            {"nvidia.com/gpus": "1"},
            [],
            ["Insufficient nvidia.com/gpus: no node offers nvidia.com/gpus; there is nvidia.com/gpu"],
            id="misspelt",
        ),
        pytest.param(
            [GPU_LISTED],
            {"nvidia.com/gpu": "1"},
            [("node-1", {"nvidia.com/gpu": "8"})],
            [f"Insufficient nvidia.com/gpu: the pod requests 1, {MORE_THAN_LEFT} 0)"],
            id="all in use",
        ),
        pytest.param(
            [LISTED],
            {"cpu": "1e300", "memory": "1e390"},
            [],
            [
                f"Insufficient cpu: the pod requests 1{'0' * 300}, and no node has more than 64",
                f"Insufficient memory: the pod requests {10**390 // 2**60}Ei, and no node has more than 512Gi",
            ],
            id="more than a float holds",
        ),
        pytest.param(
            [{**LISTED, "memory": "123456789Ki"}],
            {"memory": "200Gi"},
            [],
            ["Insufficient memory: the pod requests 200Gi, and no node has more than 117Gi"],
            id="an odd amount",
        ),
        pytest.param(
            [{**LISTED, "pods": "1"}],
            {},
            [("node-1", {})],
            ["Too many pods: the node has as many pods as it may have (no node may have more than 1)"],
            id="pods",
        ),
    ],
)
def test_a_pod_without_room_hears_of_what_too_little_is_left(
    listed: list[Amounts], wanted: dict[str, str], running: list[tuple[str, dict[str, str]]], reasons: list[str]
) -> None:
    others = [requesting(f"r{number}", on=node, **each) for number, (node, each) in enumerate(running)]
    state = judged(*listed, pods=(requesting("p", "gpu", **wanted), *others), claims=(claim("gpu", "1g-10gb"),))
    report = why(state)
    assert report.verdict is Verdict.DOES_NOT_FIT
    assert [message for _, message in said(report)] == reasons
    assert all(cause.next_step for cause in report.causes)


def test_nodes_with_the_same_shortage_are_one_group_whatever_else_runs_there() -> None:
    running = [requesting(f"r{number}", on=f"node-{number}", cpu=f"{60 + number}") for number in (1, 2, 3)]
    report = why(
        judged(
            LISTED, LISTED, LISTED, pods=(requesting("p", "gpu", cpu="9"), *running), claims=(claim("gpu", "1g-10gb"),)
        )
    )
    [group] = report.groups
    assert group.nodes == ("node-1", "node-2", "node-3")
    assert "left on a node is 3)" in group.reasons[0].message


@pytest.mark.parametrize(
    ("cpu", "waits"), [("9", True), ("65", False)], ids=["more than is left", "more than there is"]
)
def test_only_a_pod_that_others_keep_from_its_node_is_told_to_wait(cpu: str, waits: bool) -> None:
    """It was told so, too, where no node has as much as it requests."""
    running = requesting("r", on="node-1", cpu="60")
    report = why(judged(LISTED, pods=(requesting("p", "gpu", cpu=cpu), running), claims=(claim("gpu", "1g-10gb"),)))
    assert any("wait" in cause.next_step for cause in report.causes) is waits


def test_a_pod_goes_where_there_is_room_and_finished_pods_leave_theirs() -> None:
    done = replace(requesting("done", on="node-2", cpu="64"), status=replace(pod("x").status, phase="Succeeded"))
    running = requesting("r", on="node-1", cpu="64")
    report = why(
        judged(LISTED, LISTED, pods=(requesting("p", "gpu", cpu="1"), running, done), claims=(claim("gpu", "1g-10gb"),))
    )
    assert (report.verdict, report.fitting_nodes) == (Verdict.FITS, ("node-2",))


def document(name: str, replicas: int = 1, **limits: str) -> dict[str, Any]:
    container = {"name": "main", "image": "i", "resources": {"limits": limits}}
    spec = {"replicas": replicas, "template": {"spec": {"containers": [container]}}}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": spec}


TEMPLATE = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceClaimTemplate",
    "metadata": {"name": "t"},
    "spec": {"spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "1g-10gb"}}]}}},
}


def with_claim(body: dict[str, Any]) -> dict[str, Any]:
    body["spec"]["template"]["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "t"}]
    body["spec"]["template"]["spec"]["containers"][0]["resources"]["claims"] = [{"name": "gpu"}]
    return body


def plan_documents(now: ClusterState, *documents: dict[str, Any], copies: int = 1) -> PlanReport:
    cluster = ClusterIndex(now)
    wanted = parse(cluster, *documents)
    return plan_workloads(cluster, wanted.workloads, copies=copies)


def test_three_copies_of_what_no_node_has_wait() -> None:
    """The plan once said that all three would be placed."""
    asked = document("big", replicas=3, cpu="5000", memory="100Ti", **{"nvidia.com/gpu": "8"})
    answer = plan_documents(judged(LISTED, LISTED), asked)
    assert (answer.fits, answer.placed, answer.unjudged) == (False, (), "")
    [unplaced] = answer.unplaced
    assert unplaced.copies == 3
    assert {reason.obstacle for reason in unplaced.why.groups[0].reasons} == {
        "node-too-small",
        "resource-not-offered",
    }


def test_a_plan_fills_nodes_and_counts_how_many_more_fit_by_cpu_and_by_devices() -> None:
    answer = plan_documents(judged(LISTED, LISTED), TEMPLATE, with_claim(document("d", replicas=3, cpu="25")))
    assert [copy.node for copy in answer.placed] == ["node-1", "node-1", "node-2"]
    assert [each.copies for each in answer.more] == [1], "14 and 39 CPUs are left beside ten partitions"
    small = plan_documents(judged(LISTED, LISTED), TEMPLATE, with_claim(document("d", replicas=3, cpu="1")))
    assert [each.copies for each in small.more] == [11], "the cards have 14"


def test_what_counting_has_placed_does_not_count_for_the_next_workload() -> None:
    first, second = (with_claim(document(name, cpu="20")) for name in ("first", "second"))
    answer = plan_documents(judged(LISTED), TEMPLATE, first, second)
    assert [each.copies for each in answer.more] == [1, 1]


def test_the_last_copy_hears_of_what_the_others_of_the_plan_have_taken() -> None:
    [unplaced] = plan_documents(judged(LISTED), document("d", replicas=3, cpu="30")).unplaced
    assert unplaced.copies == 1
    assert "the most that is left on a node is 4)" in unplaced.why.groups[0].reasons[0].message


def test_without_amounts_of_nodes_or_requests_of_pods_nothing_but_devices_is_judged() -> None:
    asked = document("big", cpu="5000")
    known = with_amounts(gpu_cluster(), **LISTED)
    assert not plan_documents(known, asked).fits
    for state in (gpu_cluster(), replace(known, requested=None), replace(gpu_cluster(), requested=())):
        answer = plan_documents(state, asked)
        assert answer.fits
        assert answer.unjudged.startswith("CPU and memory are not judged: ")
        assert len(answer.unjudged) <= 80


def test_a_dump_has_what_nodes_have_and_pods_request_and_nothing_of_other_pods() -> None:
    waiting = requesting("p", "gpu", memory="1Gi")
    sidecar = Container(
        name="s", restart_policy="Always", resources=ResourceRequirements(requests=quantities({"memory": "1Gi"}))
    )
    whole = ResourceRequirements(requests=quantities({"cpu": "8"}))
    spec = replace(waiting.spec, init_containers=(sidecar,), resources=whole, overhead=quantities({"cpu": "1"}))
    running = requesting("secret", on="node-1", cpu="60")
    state = judged(LISTED, pods=(replace(waiting, spec=spec), running), claims=(claim("gpu", "1g-10gb"),))
    kept = replace(state, pods=state.pods[:1])
    data = encode_dump(redact(kept))
    assert "secret" not in data.decode()
    restored = decode_dump(data, "dump")
    assert pod_requests(restored.pods[0]) == quantities({"cpu": "9", "memory": "2Gi"})
    assert said(why(restored)) == said(why(state)) != []
    hidden, _ = anonymize(redact(kept))
    assert [code for code, _ in said(explain_pod(ClusterIndex(hidden), hidden.pods[0].ref))] == [
        "insufficient-resource"
    ]


@pytest.mark.parametrize("command", ["why", "plan"])
def test_the_commands_say_in_one_line_that_cpu_is_not_judged(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    state = replace(gpu_cluster(), pods=(requesting("p", "gpu", cpu="5000"),), claims=(claim("gpu", "1g-10gb"),))
    dump, manifest = tmp_path / "dump.json", tmp_path / "d.json"
    dump.write_bytes(encode_dump(redact(state)))
    manifest.write_text(json.dumps(document("d", cpu="1")))
    asked = {"why": ["pod/p"], "plan": ["-f", str(manifest)]}
    code = main([command, *asked[command], "--from", str(dump)])
    out = capsys.readouterr().out.splitlines()
    assert (code, len([line for line in out if "CPU and memory are not judged" in line])) == (0, 1)
    assert max(map(len, out)) <= 80


@pytest.mark.parametrize("arguments", [["why", "pod/p"], ["why", "pods"], ["frag"]], ids=" ".join)
def test_what_is_about_pods_is_not_answered_where_pods_may_not_be_listed(
    arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dump = tmp_path / "dump.json"
    dump.write_bytes(encode_dump(replace(gpu_cluster(), forbidden_lists={"pods": "403 pods is forbidden"})))
    assert main([*arguments, "--from", str(dump)]) == 3
    said = capsys.readouterr()
    assert said.out == ""
    assert f"`kerf {arguments[0]}` needs the pods of the cluster, which could not be read: 403" in said.err


async def test_the_collector_sums_what_all_pods_request(tmp_path: Path) -> None:
    async with served_cluster(tmp_path) as (server, client):
        node = Node(metadata=ObjectMeta(name="n"), status=NodeStatus(allocatable=quantities(LISTED)))
        await client.create(NODES, node)
        await client.apply(NODES, NODES.encode(node), field_manager="kubelet", subresource="status")
        for name, cpu in (("a", "1"), ("b", "500m")):
            resources = ResourceRequirements(requests=quantities({"cpu": cpu}))
            spec = PodSpec(node_name="n", containers=(Container(name="c", image="i", resources=resources),))
            await client.create(PODS, Pod(metadata=ObjectMeta(name=name, namespace="default"), spec=spec))
        state = await collect(client)
        server.faults.add(InjectedFault(code=HTTPStatus.FORBIDDEN), verb="list", resource="pods", times=3)
        blind = await collect(client)
    assert state.pods == ()
    [requested] = state.requested or ()
    assert (requested.node, requested.pods, requested.requests) == ("n", 2, quantities({"cpu": "1500m"}))
    assert state.nodes[0].status.allocatable == quantities(LISTED)
    assert (blind.requested, [*blind.forbidden_lists]) == (None, ["pods"])
    assert plan_documents(blind, document("d", cpu="9000")).unjudged.endswith("the pods may not be listed")
