"""What a pod requests, and whether a node has room for it, as kube-scheduler counts."""

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from kerf_dra.api.core.v1 import PODS, Pod
from kerf_dra.api.model.quantity import Quantity
from kerf_dra.driver.scheduling.resource_fit import NodeRequests, RequestLedger, find_shortages, pod_requests


def pod(name: str = "p", *, node: str = "", phase: str = "Pending", **spec: Any) -> Pod:
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "ns"},
        "spec": {"nodeName": node, **spec},
        "status": {"phase": phase},
    }
    return PODS.decode(msgspec.json.encode(body))


def one(name: str, policy: str = "", *, limits: dict[str, str] | None = None, **requests: Any) -> dict[str, Any]:
    resources = {"requests": requests, "limits": limits or {}}
    return {"name": name, "resources": resources, **({"restartPolicy": policy} if policy else {})}


def count(*pods: Pod) -> RequestLedger:
    ledger = RequestLedger()
    for each in pods:
        ledger.set_pod(each)
    return ledger


def amounts(found: Mapping[str, Quantity]) -> dict[str, str]:
    return {name: str(amount) for name, amount in found.items()}


BIG: dict[str, Any] = {"hugepages-2Mi": "4Mi"}
STORAGE: dict[str, Any] = {"ephemeral-storage": "1Gi"}
Y: dict[str, Any] = {"x.example/y": "2"}


@pytest.mark.parametrize(
    ("spec", "requested"),
    [
        pytest.param({"containers": [{"name": "c"}]}, {}, id="nothing"),
        pytest.param(
            {"containers": [one("a", cpu="1", memory="1Gi"), one("b", cpu="500m", memory="512Mi")]},
            {"cpu": "1500m", "memory": "1536Mi"},
            id="containers run together",
        ),
        pytest.param(
            {"containers": [one("a", limits={"cpu": "2", "nvidia.com/gpu": "1"})]},
            {"cpu": "2", "nvidia.com/gpu": "1"},
            id="requests default to limits",
        ),
        pytest.param(
            {"containers": [one("a", limits={"cpu": "2"}, cpu="0")]}, {}, id="a request of nothing is not defaulted"
        ),
        pytest.param(
            {"containers": [one("a", cpu="1", memory="3Gi")], "initContainers": [one("i", cpu="4"), one("j", cpu="2")]},
            {"cpu": "4", "memory": "3Gi"},
            id="init containers run one after the other",
        ),
        pytest.param(
            {"containers": [one("a", cpu="1")], "initContainers": [one("s", "Always", cpu="2")]},
            {"cpu": "3"},
            id="a sidecar runs beside the containers",
        ),
        pytest.param(
            {"containers": [one("a", cpu="1")], "initContainers": [one("s", "Always", cpu="2"), one("i", cpu="5")]},
            {"cpu": "7"},
            id="an init container runs beside the sidecars before it",
        ),
        pytest.param(
            {"containers": [one("a", cpu="1")], "initContainers": [one("i", cpu="5"), one("s", "Always", cpu="2")]},
            {"cpu": "5"},
            id="a sidecar after an init container is not there yet",
        ),
        pytest.param(
            {"containers": [one("a", cpu="1")], "initContainers": [one("i", cpu="3")], "overhead": {"cpu": "250m"}},
            {"cpu": "3250m"},
            id="overhead comes on top of the larger",
        ),
        pytest.param(
            {
                "containers": [one("a", cpu="1", memory="1Gi", **Y)],
                "resources": {"requests": {"cpu": "8", "x.example/y": "9"}},
                "overhead": {"cpu": "1"},
            },
            {"cpu": "9", "memory": "1Gi", "x.example/y": "2"},
            id="requests of the pod replace CPU and memory of its containers",
        ),
        pytest.param(
            {"containers": [one("a", cpu="1")], "resources": {"limits": {"cpu": "8", "memory": "4Gi"}}},
            {"cpu": "1", "memory": "4Gi"},
            id="limits of the pod count where no container requests",
        ),
        pytest.param(
            {"containers": [one("a", **BIG), one("b", **STORAGE)]},
            {"ephemeral-storage": "1Gi", "hugepages-2Mi": "4Mi"},
            id="huge pages and storage",
        ),
    ],
)
def test_a_pod_requests_what_its_containers_need_at_a_time(spec: dict[str, Any], requested: dict[str, str]) -> None:
    assert amounts(pod_requests(pod(**spec))) == requested


NODE = {"cpu": Quantity("4"), "memory": Quantity("8Gi"), "pods": Quantity("2"), "nvidia.com/gpu": Quantity("1")}


@pytest.mark.parametrize(
    ("wanted", "running", "said"),
    [
        ({"cpu": "4", "memory": "8Gi", "nvidia.com/gpu": "1"}, [], []),
        ({"cpu": "4001m"}, [], ["Insufficient cpu"]),
        ({"cpu": "2"}, [{"cpu": "2001m"}], ["Insufficient cpu"]),
        ({"cpu": "2", "memory": "6Gi"}, [{"cpu": "2", "memory": "2Gi"}], []),
        ({"cpu": "5", "memory": "9Gi"}, [], ["Insufficient cpu", "Insufficient memory"]),
        ({}, [{}, {}], ["Too many pods"]),
        ({"nvidia.com/gpu": "1"}, [{"nvidia.com/gpu": "1"}], ["Insufficient nvidia.com/gpu"]),
        ({"nvidia.com/gpus": "1"}, [], ["Insufficient nvidia.com/gpus"]),
        ({"ephemeral-storage": "1"}, [], ["Insufficient ephemeral-storage"]),
        ({"backed.example/x": "7"}, [], []),
        ({"backed.example/x": "0"}, [], []),
    ],
)
def test_a_node_that_lacks_something_says_what(
    wanted: dict[str, Any], running: list[dict[str, Any]], said: list[str]
) -> None:
    ledger = count(
        *(pod(f"r{number}", node="n", containers=[one("c", **requests)]) for number, requests in enumerate(running))
    )
    requests = pod_requests(pod(containers=[one("c", **wanted)]))
    found = find_shortages(requests, NODE, ledger.of_node("n"), {"backed.example/x"})
    assert list(map(str, found)) == said


def test_a_resource_that_the_node_lists_is_judged_although_a_class_backs_it() -> None:
    found = find_shortages({"nvidia.com/gpu": Quantity(2)}, NODE, NodeRequests(), {"nvidia.com/gpu"})
    assert [(each.resource, str(each.requested), str(each.allocatable)) for each in found] == [
        ("nvidia.com/gpu", "2", "1")
    ]


def test_pods_count_on_their_node_until_they_finish_or_go() -> None:
    first, second = (pod(name, node="n", containers=[one("c", cpu="1")]) for name in ("first", "second"))
    ledger = count(first, second, pod("elsewhere", node="m", containers=[one("c", cpu="7")]))
    ledger.set_pod(second)  # seen again
    ledger.set_pod(pod("waiting", containers=[one("c", cpu="9")]))
    assert (ledger.of_node("n").pods, ledger.of_node("n").nano["cpu"]) == (2, 2 * 10**9)
    ledger.set_pod(pod("second", node="n", phase="Succeeded", containers=[one("c", cpu="1")]))
    ledger.remove_pod(first.ref)
    ledger.remove_pod(first.ref)
    assert (ledger.of_node("n").pods, ledger.of_node("n").nano["cpu"]) == (0, 0)
    assert ledger.of_node("m").pods == 1


def test_a_pod_that_is_about_to_be_bound_counts_on_its_node() -> None:
    ledger = RequestLedger()
    ledger.set_pod(pod("new", containers=[one("c", cpu="1")]), "n")
    assert ledger.of_node("n").pods == 1
    ledger.set_pod(pod("new", node="n", containers=[one("c", cpu="1")]))
    assert ledger.of_node("n").pods == 1, "the watch shows what was counted already"
