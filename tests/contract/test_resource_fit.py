"""Which pods fit on a node by what they request: both schedulers say the same of nodes with 64 CPUs and 256Gi."""

from typing import Any

import pytest

from tests.e2e.wait import eventually
from tools.realcluster.api import Api, Document

EXTENDED: dict[str, Any] = {"nvidia.com/gpu": "1"}


def container(name: str, policy: str = "", **requests: str) -> Document:
    """A container; what it requests of an extended resource is its limit, too."""
    limits = {resource: amount for resource, amount in requests.items() if "/" in resource}
    made = {"name": name, "image": "i", "resources": {"requests": requests, "limits": limits}}
    return {**made, "restartPolicy": policy} if policy else made


def pod(name: str, space: str, **spec: Any) -> Document:
    metadata = {"name": name, "namespace": space}
    whole = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 0}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {**whole, **spec}}


async def has_condition(api: Api, name: str, space: str, *reasons: str) -> None:
    async def is_reported() -> bool:
        found = await api.get("v1", "Pod", name, space)
        said = [each.get("message", "") for each in found["status"].get("conditions", ()) if each["status"] == "False"]
        return any(all(reason in message for reason in reasons) for message in said)

    await eventually(f"pod {name} waits for {', '.join(reasons)}", is_reported)


@pytest.mark.parametrize(
    ("spec", "reasons"),
    [
        pytest.param({"containers": [container("a", cpu="65")]}, ["2 Insufficient cpu"], id="cpu"),
        pytest.param(
            {"containers": [container("a", cpu="40", memory="200Gi"), container("b", cpu="40", memory="100Gi")]},
            ["2 Insufficient cpu", "2 Insufficient memory"],
            id="together",
        ),
        pytest.param(
            {"containers": [container("a", cpu="33")], "initContainers": [container("s", "Always", cpu="32")]},
            ["2 Insufficient cpu"],
            id="sidecar",
        ),
        pytest.param(
            {
                "containers": [container("a", cpu="1")],
                "initContainers": [container("s", "Always", cpu="33"), container("i", cpu="32")],
            },
            ["2 Insufficient cpu"],
            id="init beside a sidecar",
        ),
        pytest.param({"containers": [container("a", **EXTENDED)]}, ["2 Insufficient nvidia.com/gpu"], id="unknown"),
        pytest.param(
            {
                "containers": [container("a", cpu="1")],
                "resources": {"requests": {"cpu": "65"}, "limits": {"cpu": "65"}},
            },
            ["2 Insufficient cpu"],
            id="of the pod",
        ),
    ],
)
async def test_a_pod_without_room_waits_and_says_for_what(
    cluster: Api, busy_space: str, spec: Document, reasons: list[str]
) -> None:
    await cluster.create(pod("p", busy_space, **spec))
    await has_condition(cluster, "p", busy_space, *reasons)


async def test_init_containers_run_before_the_others_and_not_beside_them(cluster: Api, busy_space: str) -> None:
    await cluster.create(
        pod("p", busy_space, containers=[container("a", cpu="64")], initContainers=[container("i", cpu="64")])
    )

    async def is_bound() -> bool:
        return bool((await cluster.get("v1", "Pod", "p", busy_space))["spec"].get("nodeName"))

    await eventually("the pod is bound", is_bound)
