"""The policy of graded placement (``deploy/graded-placement``), as kube-apiserver and kube-scheduler heed it."""

from collections.abc import AsyncIterator, Sequence

import pytest
import yaml

from tests.e2e import pods
from tests.e2e.namespace import Namespace
from tests.e2e.wait import eventually
from tools.realcluster.api import Api, Document, StatusError
from tools.realcluster.environment import chosen_version
from tools.realcluster.kerf import DEPLOY, Hardware

FIRST, SECOND = "node1", "node2"
NODES = (FIRST, SECOND)
HARDWARE = Hardware(cards=[{"kind": "gpu", "model": "h100-80gb-sxm"}], options={})
LEVELS = ["rank-0", "rank-2", "any"]

pytestmark = pytest.mark.skipif(
    int(chosen_version().minor.partition(".")[2]) < 36, reason="MutatingAdmissionPolicy is stable from 1.36 on"
)


@pytest.fixture(scope="module")
async def policy(api: Api) -> AsyncIterator[None]:
    documents = list(yaml.safe_load_all((DEPLOY / "graded-placement" / "policy.yaml").read_text()))
    for document in documents:
        await api.apply(document)
    labels = {"kerf.dev/placement": "Packed"}
    probe = {"apiVersion": pods.RESOURCE, "kind": "DeviceClass", "metadata": {"name": "probe", "labels": labels}}
    await api.create({**probe, "spec": {}})
    asked = pods.claim("probe", pods.devices(pods.exactly("r", "probe")))
    asked["metadata"]["namespace"] = "default"

    async def is_in_force() -> bool:
        made = await api.create(asked, dryRun="All")
        return "firstAvailable" in made["spec"]["devices"]["requests"][0]

    await eventually("the policy is in force", is_in_force)
    yield
    for document in (*documents, probe):
        await api.delete(document["apiVersion"], document["kind"], document["metadata"]["name"])


async def packed_class(namespace: Namespace, profile: str, placement: str = "Packed") -> str:
    name = f"{placement.lower()}-{profile.replace('.', '-')}"
    return await namespace.resource_class(name, device="gpu", profile=profile, placement=placement)


async def run(namespace: Namespace, template: str, name: str, *, node: str = "") -> str:
    """Run a pod, and return its node."""
    selector: Document = {"nodeSelector": {"kubernetes.io/hostname": node}} if node else {}
    limits = {"cpu": "50m", "memory": "50Mi"}
    await namespace.apply(pods.pod(name, {"gpu": pods.by_template(template)}, limits=limits, **selector))
    await namespace.wait_running(name)
    return str((await namespace.pod(name))["spec"]["nodeName"])


async def wait_rank(api: Api, node: str, device: str, rank: int) -> None:
    """Wait until ``device`` is published with ``rank``."""

    async def is_published() -> bool:
        slices = await api.list(pods.RESOURCE, "ResourceSlice")
        found = [
            one["attributes"]["lossRank"]["int"]
            for each in slices
            if each["spec"].get("nodeName") == node
            for one in each["spec"].get("devices", ())
            if one["name"] == device
        ]
        return found == [rank]

    await eventually(f"rank {rank} of {device} on {node}", is_published)


async def names_of_alternatives(namespace: Namespace) -> Sequence[Sequence[str]]:
    return [
        [level["name"] for level in request.get("firstAvailable", ())]
        for claim in await namespace.claims()
        for request in claim["spec"]["devices"]["requests"]
    ]


@pytest.mark.usefixtures("policy")
async def test_a_claim_is_rewritten_and_its_pod_runs_where_its_partition_takes_least(
    api: Api, namespace: Namespace
) -> None:
    """By CPU and memory alone each small pod would go to the node on which nothing runs."""
    half, quarter = await packed_class(namespace, "4g.40gb"), await packed_class(namespace, "2g.20gb")
    packed = await packed_class(namespace, "1g.10gb")
    spread = await packed_class(namespace, "1g.10gb", "None")
    for name, class_ in (("half", half), ("quarter", quarter), ("packed", packed), ("spread", spread)):
        await namespace.template(name, pods.exactly("gpu", class_))
    assert await run(namespace, "half", "half", node=FIRST) == FIRST
    assert await run(namespace, "quarter", "quarter", node=FIRST) == FIRST
    await wait_rank(api, FIRST, "gpu-0-1g-10gb-at-6", 1)
    assert await run(namespace, "spread", "spread") == SECOND, "the scheduler's own choice"
    await namespace.delete_pod("spread")
    await wait_rank(api, SECOND, "gpu-0-1g-10gb-at-6", 6)
    assert await run(namespace, "packed", "packed") == FIRST
    (result,) = await namespace.allocation_results("packed")
    assert (result["request"], result["device"]) == ("gpu/rank-2", "gpu-0-1g-10gb-at-6")
    assert await names_of_alternatives(namespace) == [LEVELS] * 3
    template = await api.get(pods.RESOURCE, "ResourceClaimTemplate", "packed", namespace.name)
    assert template["spec"]["spec"]["devices"]["requests"] == [
        pods.exactly("gpu", packed, allocationMode="ExactCount", count=1)
    ]


@pytest.mark.usefixtures("policy")
async def test_classes_that_the_policy_finds_say_so_with_the_role_of_deploy(api: Api, namespace: Namespace) -> None:
    """The controller may read the binding of this name only."""
    small, spread = await packed_class(namespace, "1g.10gb"), await packed_class(namespace, "1g.10gb", "Spread")

    async def reasons() -> Sequence[str]:
        held = [await api.get("kerf.dev/v1alpha1", "ResourceClass", name) for name in (small, spread)]
        conditions = [one for each in held for one in each.get("status", {}).get("conditions", ())]
        return [one["reason"] for one in conditions if one["type"] == "Placement"]

    async def is_said() -> bool:
        return await reasons() == ["Graded", "ExtenderDisabled"]

    await eventually("the classes say what is in effect", is_said, but=reasons)


@pytest.mark.usefixtures("policy")
async def test_each_device_of_a_count_satisfies_the_rank_and_a_constraint_holds_over_all_alternatives(
    api: Api, namespace: Namespace
) -> None:
    small, quarter = await packed_class(namespace, "1g.10gb"), await packed_class(namespace, "2g.20gb")
    await wait_rank(api, SECOND, "gpu-0-1g-10gb-at-6", 6)  # ranks are published from the first packed class on
    same = {"requests": ["a", "b"], "matchAttribute": "gpu.kerf.dev/uuid"}
    await namespace.template("pair", pods.exactly("a", small, count=2), pods.exactly("b", quarter), constraints=[same])
    await run(namespace, "pair", "pair", node=SECOND)
    results = await namespace.allocation_results("pair")
    assert [result["request"] for result in results] == ["a/any", "a/any", "b/any"]
    assert await names_of_alternatives(namespace) == [LEVELS, LEVELS]


@pytest.mark.usefixtures("policy")
async def test_a_quota_of_devices_counts_a_graded_request_once(namespace: Namespace) -> None:
    small = await packed_class(namespace, "1g.10gb")
    hard = {f"{small}.deviceclass.resource.k8s.io/devices": "2"}
    quota: Document = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"}, "spec": {"hard": hard}}
    await namespace.apply(quota)

    async def is_counted() -> bool:
        found = await namespace.api.get("v1", "ResourceQuota", "q", namespace.name)
        return "hard" in found.get("status", {})

    await eventually("the quota is in force", is_counted)
    await namespace.claim("one", pods.exactly("r", small))
    await namespace.claim("two", pods.exactly("r", small))
    with pytest.raises(StatusError, match="exceeded quota"):
        await namespace.claim("three", pods.exactly("r", small))
