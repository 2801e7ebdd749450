"""``kerf plan`` foretells what kube-scheduler does, device by device, in generated scenarios.

The nodes have no kubelet and nobody publishes again: what is there is what the scenario says, and a pod is judged by
where the scheduler binds it and by its claims' allocations.
"""

import json
from collections.abc import AsyncIterator, Iterator, Sequence
from random import Random
from typing import Final

import pytest

from api.model.names import KERF_DRIVER
from api.resource.v1 import KINDS
from driver.diagnostics.cluster_index import Cluster as Asked
from driver.diagnostics.collector import gather
from driver.diagnostics.plan import PlanAnswer, plan
from driver.diagnostics.workload import read_demands
from driver.kube.http.client import Client
from driver.kube.http.config import load_access
from tests.diagnostics.clusters import slices
from tests.e2e import pods
from tests.e2e.wait import eventually
from tests.realcluster.api import Api, Document
from tests.realcluster.cluster import Cluster

BARE_NODES = ("bare1", "bare2")
SCENARIOS: Final = 50
MODELS: Final = ("h100-80gb-sxm", "a30-24gb")
"""Of the cards of each node: two on the first, one on the second."""

PARENT: Final = f"{KERF_DRIVER}/parent"
ATTRIBUTES: Final = f'device.attributes["{KERF_DRIVER}"]'
CAPACITY: Final = f'device.capacity["{KERF_DRIVER}"]'
CLASSES: Final = {
    "partition": f'{ATTRIBUTES}.cut == "partition"',
    "whole": f'{ATTRIBUTES}.cut == "whole"',
    "hopper": f'{ATTRIBUTES}.architecture == "hopper" && {ATTRIBUTES}.cut == "partition"',
}
SELECTORS: Final = (
    f'{CAPACITY}.memory.compareTo(quantity("18Gi")) >= 0',
    f'{CAPACITY}.memory.compareTo(quantity("39Gi")) >= 0',
    f'{ATTRIBUTES}.profile.startsWith("1g")',
    f"{ATTRIBUTES}.start == 4",
    f"{ATTRIBUTES}.index == 1",
    f"{ATTRIBUTES}.size >= 2",
)


@pytest.fixture(scope="module")
async def client(cluster: Cluster, api: Api) -> AsyncIterator[Client]:
    """A cluster with devices and classes, and a client for who gathers."""
    for name, cards, model in zip(BARE_NODES, (2, 1), MODELS, strict=True):
        for one in slices(name, cards, model):
            await api.apply(KINDS.resource_slices.encode(one))
    for name, expression in CLASSES.items():
        await api.apply(
            {
                "apiVersion": "resource.k8s.io/v1",
                "kind": "DeviceClass",
                "metadata": {"name": name},
                "spec": {"selectors": [{"cel": {"expression": f'device.driver == "{KERF_DRIVER}" && {expression}'}}]},
            }
        )
    async with Client(await load_access(cluster.kubeconfig), user_agent="kerf-e2e") as client:
        yield client


@pytest.fixture
async def namespace(api: Api, request: pytest.FixtureRequest) -> AsyncIterator[str]:
    """Of one scenario; nothing is held before and after."""
    name = f"plan-{request.node.callspec.params['seed']}"
    await api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})

    async def has_account() -> Document | None:
        return await api.find("v1", "ServiceAccount", "default", name)

    await eventually("a service account", has_account)
    yield name
    for pod in await api.list("v1", "Pod", name):
        await api.delete("v1", "Pod", pod["metadata"]["name"], name, grace_s=0)
    for claim in await api.list("resource.k8s.io/v1", "ResourceClaim", name):
        await api.delete("resource.k8s.io/v1", "ResourceClaim", claim["metadata"]["name"], name)

    async def nothing_held() -> bool:
        return not await api.list("resource.k8s.io/v1", "ResourceClaim", name)

    await eventually("all claims are gone", nothing_held)
    await api.delete("v1", "Namespace", name)


def scenario(random: Random) -> Iterator[list[Document]]:
    """Pods with their claims, to be made one after the other."""
    for number in range(random.randint(2, 5)):
        claims = [claim(random, f"c{number}-{index}") for index in range(random.choice([1, 1, 1, 2]))]
        entries = {each["metadata"]["name"]: pods.by_name(each["metadata"]["name"]) for each in claims}
        spec: Document = (
            {"nodeSelector": {"kubernetes.io/hostname": random.choice(BARE_NODES)}} if random.random() < 0.2 else {}
        )
        yield [*claims, pods.pod(f"p{number}", entries, **spec)]


def claim(random: Random, name: str) -> Document:
    requests = [asked(random, f"r{index}") for index in range(random.choice([1, 1, 2]))]
    rule = random.choice(["matchAttribute", "distinctAttribute"])
    constraints = [{rule: PARENT}] if random.random() < 0.3 else []
    return pods.claim(name, pods.devices(*requests, constraints=constraints))


def asked(random: Random, name: str) -> Document:
    if random.random() < 0.2:
        subs = [{"name": f"s{index}", **wanted(random)} for index in range(2)]
        return {"name": name, "firstAvailable": subs}
    if random.random() < 0.1:
        first = [{"cel": {"expression": f"{ATTRIBUTES}.index == 0"}}]
        return {
            "name": name,
            "exactly": {"deviceClassName": "whole", "allocationMode": "All", "selectors": first},
        }
    return {"name": name, "exactly": wanted(random)}


def wanted(random: Random) -> Document:
    chosen = random.sample(SELECTORS, random.choice([0, 1, 1, 2]))
    return {
        "deviceClassName": random.choice([*CLASSES, "partition"]),
        "count": random.choice([1, 1, 1, 1, 2]),
        "selectors": [{"cel": {"expression": each}} for each in chosen],
    }


async def foretold(client: Client, documents: Sequence[Document], namespace: str) -> tuple[Asked, PlanAnswer]:
    """What the cluster was like, and what its plan is for documents that are not there yet."""
    now = Asked(await gather(client, lambda: "now"))
    return now, planned(now, documents, namespace)


def planned(now: Asked, documents: Sequence[Document], namespace: str) -> PlanAnswer:
    return plan(now, read_demands(now, documents, namespace=namespace).demands)


async def verdict(api: Api, name: str, namespace: str) -> str:
    """The node that the pod was bound to; empty: the scheduler said that there is none, or gave up looking for one.

    It gives up after ten seconds (DRASchedulerFilterTimeout), on searches that grow with the number of devices; it has
    then tried nothing that works.
    """

    async def probe() -> tuple[str] | None:
        pod = await api.get("v1", "Pod", name, namespace)
        if pod["spec"].get("nodeName"):
            return (pod["spec"]["nodeName"],)
        refused = [one["reason"] for one in pod["status"].get("conditions", ()) if one["type"] == "PodScheduled"]
        return ("",) if refused and refused[0] in {"Unschedulable", "SchedulerError"} else None

    [node] = await eventually(f"a decision about pod {name}", probe)
    return node


async def allocated(api: Api, documents: Sequence[Document], namespace: str) -> list[tuple[str, str, str]]:
    """Claim, request and device of every allocation result, in order."""
    found = []
    for document in documents[:-1]:
        name = document["metadata"]["name"]
        held = await api.get("resource.k8s.io/v1", "ResourceClaim", name, namespace)
        for one in held["status"]["allocation"]["devices"]["results"]:
            found.append((name, one["request"], f"{one['driver']}/{one['pool']}/{one['device']}"))
    return found


@pytest.mark.parametrize("seed", range(SCENARIOS))
async def test_the_scheduler_does_what_the_plan_says(seed: int, api: Api, client: Client, namespace: str) -> None:
    for documents in scenario(Random(seed)):
        before, answer = await foretold(client, documents, namespace)
        for document in documents:
            await api.apply({**document, "metadata": {**document["metadata"], "namespace": namespace}})
        name = documents[-1]["metadata"]["name"]
        chosen = await verdict(api, name, namespace)
        assert bool(chosen) == answer.fits, json.dumps(documents)
        if not chosen:  # or it would be tried again and again
            await api.delete("v1", "Pod", name, namespace, grace_s=0)
        else:
            [there] = planned(before.narrowed({chosen}), documents, namespace).placed
            told = [(each.claim, each.request, each.device) for each in there.devices]
            assert await allocated(api, documents, namespace) == told, json.dumps(documents)


async def test_devices_for_extended_resources_are_foretold_too(api: Api, client: Client) -> None:
    """KEP-5004: the scheduler makes the claim itself."""
    namespace = "plan-extended"
    await api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    limits = {
        "deviceclass.resource.kubernetes.io/whole": "1",
        "deviceclass.resource.kubernetes.io/hopper": "2",
    }
    document = pods.pod("p", limits=limits, nodeSelector={"kubernetes.io/hostname": "bare1"})

    async def has_account() -> Document | None:
        return await api.find("v1", "ServiceAccount", "default", namespace)

    await eventually("a service account", has_account)
    _, answer = await foretold(client, [document], namespace)
    await api.apply({**document, "metadata": {"name": "p", "namespace": namespace}})
    assert await verdict(api, "p", namespace) == "bare1"
    pod = await api.get("v1", "Pod", "p", namespace)
    name = pod["status"]["extendedResourceClaimStatus"]["resourceClaimName"]
    held = await api.get("resource.k8s.io/v1", "ResourceClaim", name, namespace)
    results = held["status"]["allocation"]["devices"]["results"]
    [placed] = answer.placed
    assert [f"{one['driver']}/{one['pool']}/{one['device']}" for one in results] == [
        device.device for device in placed.devices
    ]
    await api.delete("v1", "Pod", "p", namespace, grace_s=0)
    await api.delete("v1", "Namespace", namespace)
