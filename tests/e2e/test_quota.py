"""Quota: Kueue counts partitions by the GPU memory that they take, a ResourceQuota counts devices by class.

Both as docs/quota.md says, with the configuration and the objects of ``deploy/examples/quota``. Kueue is unmodified; it
runs as a process beside the cluster (``tools/realcluster/kueue.py``).
"""

from collections.abc import AsyncIterator, Sequence
from typing import Final

import pytest
import yaml

from tests.e2e import pods
from tests.e2e.namespace import GONE_S, Namespace
from tests.e2e.wait import eventually
from tests.e2e.why_audit import ask_why
from tools.realcluster.api import Api, Document
from tools.realcluster.cluster import Cluster
from tools.realcluster.documents import IMAGE
from tools.realcluster.environment import chosen_version
from tools.realcluster.kerf import DEPLOY, Hardware
from tools.realcluster.kueue import Kueue

HARDWARE = Hardware(cards=[{"kind": "gpu", "model": "h100-80gb-sxm"}], options={})
EXAMPLES: Final = DEPLOY / "examples" / "quota"
QUEUE: Final = "kueue.x-k8s.io/v1beta2"
MEMORY: Final = "gpu.kerf.dev/memory"
AGAIN_S: Final = 180.0
"""The time limit for a claim that a quota has refused: Kubernetes tries again after 5 ms, and each time after twice as
long, so that it may be two minutes after a minute of refusals."""

pytestmark = pytest.mark.skipif(
    chosen_version().resource_version != "v1", reason="Kueue reads resource.k8s.io/v1 (Kubernetes 1.34)"
)


def read_example(name: str) -> Sequence[Document]:
    return list(yaml.safe_load_all((EXAMPLES / name).read_text()))


@pytest.fixture(scope="module")
async def kueue(cluster: Cluster, api: Api) -> None:
    """Kueue with the configuration that Kerf ships."""
    [configuration] = read_example("kueue-configuration.yaml")
    await Kueue(cluster, api).start(configuration)


@pytest.fixture
async def team(api: Api, namespace: Namespace, kueue: None) -> AsyncIterator[str]:
    """The name of the queue of the examples, which has 40Gi."""
    documents = read_example("kueue-queues.yaml")
    for document in documents:
        await (namespace.apply(document) if document["kind"] == "LocalQueue" else api.apply(document))
    for document in documents:
        if document["kind"] == "ResourceClass":
            await wait_compiled(api, document["metadata"]["name"])
    yield "team"
    for job in await api.list("batch/v1", "Job", namespace.name):
        await api.delete("batch/v1", "Job", job["metadata"]["name"], namespace.name)
    await eventually("no job holds quota", lambda: has_no_workloads(api, namespace), within_s=GONE_S)
    for document in reversed(documents):
        within = namespace.name if document["kind"] == "LocalQueue" else ""
        await api.delete(document["apiVersion"], document["kind"], document["metadata"]["name"], within)


async def wait_compiled(api: Api, name: str) -> None:
    async def has_device_class() -> Document | None:
        return await api.find(pods.RESOURCE, "DeviceClass", name)

    await eventually(f"DeviceClass {name}", has_device_class)


async def has_no_workloads(api: Api, namespace: Namespace) -> bool:
    return not await api.list(QUEUE, "Workload", namespace.name)


async def create_job(namespace: Namespace, name: str, device_class: str) -> None:
    """Create the job of the examples for another class, with an image that this cluster has."""
    template, job = read_example("kueue-job.yaml")
    template["metadata"]["name"] = device_class
    template["spec"]["spec"]["devices"]["requests"][0]["exactly"]["deviceClassName"] = device_class
    job["metadata"]["name"] = name
    pod = job["spec"]["template"]["spec"]
    pod["resourceClaims"][0]["resourceClaimTemplateName"] = device_class
    [container] = pod["containers"]
    container |= {"image": IMAGE, "imagePullPolicy": "Never", "command": ["/bin/sh", "-c", pods.REPORT_COMMAND]}
    await namespace.apply(template, job)


async def wait_active(namespace: Namespace, name: str) -> None:
    async def is_active() -> bool:
        job = await namespace.api.get("batch/v1", "Job", name, namespace.name)
        return bool(job.get("status", {}).get("ready"))

    await eventually(f"job {name} runs", is_active, but=lambda: find_workload(namespace, name))


async def find_workload(namespace: Namespace, job: str) -> Document:
    """Return the Workload that Kueue has made of a job; empty before it has."""
    found = await namespace.api.list(QUEUE, "Workload", namespace.name)
    return next((one for one in found if one["metadata"]["ownerReferences"][0]["name"] == job), {})


async def wait_queued(namespace: Namespace, job: str, saying: str) -> None:
    """Wait until Kueue says that it does not admit a job, with a word of the reason."""

    async def is_said() -> bool:
        conditions = (await find_workload(namespace, job)).get("status", {}).get("conditions", ())
        said = [one for one in conditions if one["type"] == "QuotaReserved" and one["status"] == "False"]
        return any(saying in one["message"] for one in said)

    await eventually(f"job {job} waits for {saying}", is_said, but=lambda: find_workload(namespace, job))


async def published_memory(namespace: Namespace, profile: str) -> set[str]:
    """Return how much of the counter ``memory`` the devices of ``profile`` consume."""
    slices = await namespace.api.list(pods.RESOURCE, "ResourceSlice")
    return {
        consumption["counters"]["memory"]["value"]
        for one in slices
        for device in one["spec"].get("devices", ())
        if device["attributes"].get("profile", {}).get("string") == profile
        for consumption in device["consumesCounters"]
        if "memory" in consumption["counters"]
    }


async def test_kueue_admits_jobs_by_gpu_memory_and_stops_at_the_quota(
    api: Api, namespace: Namespace, team: str
) -> None:
    """40Gi are two partitions of 20 GB, though the card has space for a third one and for smaller ones."""
    for name in ("first", "second"):
        await create_job(namespace, name, "team-gpu-20gb")
        await wait_active(namespace, name)
    [memory] = await published_memory(namespace, "2g.20gb")
    [assignment] = (await find_workload(namespace, "first"))["status"]["admission"]["podSetAssignments"]
    assert assignment["resourceUsage"] == {MEMORY: memory}

    await create_job(namespace, "third", "team-gpu-20gb")
    await wait_queued(namespace, "third", MEMORY)
    assert (await api.get("batch/v1", "Job", "third", namespace.name))["spec"]["suspend"]
    assert len(namespace.node.gpu_partitions) == 2

    await api.delete("batch/v1", "Job", "first", namespace.name)
    await wait_active(namespace, "third")

    async def are_two() -> bool:
        return len(namespace.node.gpu_partitions) == 2

    await eventually("two partitions of three jobs", are_two)


async def test_kueue_sums_partitions_of_different_sizes(namespace: Namespace, team: str) -> None:
    """One of 20 GB and two of 10 GB leave less than 10 GB of 40Gi."""
    await create_job(namespace, "large", "team-gpu-20gb")
    for name in ("small-1", "small-2"):
        await create_job(namespace, name, "team-gpu-10gb")
    for name in ("large", "small-1", "small-2"):
        await wait_active(namespace, name)
    await create_job(namespace, "small-3", "team-gpu-10gb")
    await wait_queued(namespace, "small-3", MEMORY)


async def test_a_resource_quota_limits_the_devices_of_a_class(cluster: Cluster, namespace: Namespace) -> None:
    """The pod beyond the quota gets no claim; ``kerf why`` names the quota."""
    small = await namespace.resource_class("small", device="gpu", profile="1g.10gb")
    [quota] = read_example("resource-quota.yaml")
    quota["spec"]["hard"] = {f"{small}.deviceclass.resource.k8s.io/devices": "2"}
    await namespace.apply(quota)
    await namespace.template("small", pods.exactly("gpu", small))
    for name in ("first", "second"):
        await namespace.create_pods("small", name)
        await namespace.wait_running(name)
    await namespace.create_pods("small", "third")
    await namespace.wait_event("third", "FailedResourceClaimCreation")

    async def is_quota() -> Document | None:
        _, answer = await ask_why(cluster, "pod/third", "-n", namespace.name)
        codes = [cause["code"] for cause in answer["causes"]]
        return answer if (answer["verdict"], codes) == ("blocked", ["quota-exceeded"]) else None

    [cause] = (await eventually("kerf why names the quota", is_quota))["causes"]
    assert f"kubectl describe resourcequota {quota['metadata']['name']}" in cause["next_step"]
    await namespace.delete_pod("first")
    await namespace.wait_running("third", within_s=AGAIN_S)
