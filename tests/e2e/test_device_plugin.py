"""Extended resources that a class offers by the kubelet's device plugin interface, on a real kubelet (DP rows)."""

from tests.e2e import pods
from tests.e2e.namespace import Namespace, RunningPod
from tests.e2e.test_examples import read
from tests.e2e.wait import eventually
from tests.e2e.why_audit import ask_why
from tools.realcluster.cluster import Cluster
from tools.realcluster.kerf import Hardware, Kerf

HARDWARE = Hardware(cards=[{"kind": "gpu", "model": "h100-80gb-sxm"}], options={})
EARLY_LOADING = True
"""Which also lets plugins list claims: before a placement is listed to the kubelet, no claim may have it."""

SMALL = "kerf.dev/gpu-1g-10gb"


async def offer(namespace: Namespace, per_node: int, resource: str = "") -> tuple[str, str]:
    """Have a class offer a resource, and wait until the node has so many of it; returns class and resource.

    Each test has a name of its own: a node's status may show for seconds what it had of one before.
    """
    resource = resource or f"kerf.dev/{namespace.name}"
    made = await namespace.resource_class(
        "small", device="gpu", profile="1g.10gb", devicePlugin={"resource": resource, "perNode": per_node}
    )
    await wait_allocatable(namespace, resource, per_node)
    return made, resource


async def allocatable(namespace: Namespace, resource: str) -> int:
    node = await namespace.api.get("v1", "Node", namespace.node.name)
    return int(node["status"]["allocatable"].get(resource, 0))


async def wait_allocatable(namespace: Namespace, resource: str, count: int) -> None:
    async def has_count() -> bool:
        return await allocatable(namespace, resource) == count

    await eventually(f"{count} of {resource} are allocatable", has_count, but=lambda: allocatable(namespace, resource))


async def run_one(namespace: Namespace, resource: str, name: str) -> RunningPod:
    """Create pods until one runs, and return it: as long as a kubelet has no list yet it rejects pods, whatever
    the node's status says from before.
    """
    names = [name]
    await create(namespace, resource, name)

    async def runs() -> RunningPod | None:
        if (running := await namespace.find_running(names[-1])) is not None:
            return running
        if (await namespace.pod(names[-1]))["status"].get("phase") == "Failed":
            names.append(f"{name}-{len(names)}")
            await create(namespace, resource, names[-1])
        return None

    return await eventually(f"a pod with {resource} runs", runs, but=lambda: namespace.describe_pod(names[-1]))


async def create(namespace: Namespace, resource: str, *names: str, count: int = 1) -> None:
    for name in names:
        await namespace.apply(pods.pod(name, limits={resource: str(count)}))


async def test_a_pod_with_a_limit_gets_its_partition_cut_at_that_moment(namespace: Namespace) -> None:
    small, _ = await offer(namespace, 2, SMALL)
    assert namespace.node.gpu_partitions == []  # listed, not cut
    await create(namespace, SMALL, "p")
    told = (await namespace.wait_running("p")).main
    [(card, profile, start)] = namespace.node.gpu_partitions
    assert (card, profile) == ("gpu-0", "1g.10gb")
    assert [*told.kerf_devices] == [f"gpu-0-1g-10gb-at-{start}"]
    assert namespace.node.holds(told.kerf_devices[f"gpu-0-1g-10gb-at-{start}"])
    assert told.environment["KERF_RESOURCE_KERF_DEV_GPU_1G_10GB"] == f"gpu-0-1g-10gb-at-{start}"
    assert "/dev/nvidia0" in told.card_nodes
    # A claim of the same class gets one of the others.
    await namespace.template("claimed", pods.exactly("gpu", small))
    await namespace.create_pods("claimed", "q")
    other = (await namespace.wait_running("q")).main
    assert told.kerf_devices.keys().isdisjoint(other.kerf_devices)
    published = await namespace.published_devices()
    assert published
    assert not any(name in published for name in told.kerf_devices)
    assert "gpu-0" not in published


async def test_what_a_pod_had_is_released_and_the_next_one_gets_it(namespace: Namespace) -> None:
    _, resource = await offer(namespace, 1)
    for name in ("first", "second"):
        await create(namespace, resource, name)
        await namespace.wait_running(name)
        assert len(namespace.node.gpu_partitions) == 1
        await namespace.delete_pod(name)
    await namespace.wait_clean()


async def test_a_kubelet_that_restarts_has_the_resource_and_its_pods_again(
    namespace: Namespace, cluster: Cluster
) -> None:
    _, resource = await offer(namespace, 2)
    await create(namespace, resource, "p")
    before = (await namespace.wait_running("p")).starts
    partitions = namespace.node.gpu_partitions
    await cluster.processes.stop(f"{namespace.node.name}-kubelet")
    cluster.start_kubelet(namespace.node.name)
    told = (await run_one(namespace, resource, "q")).main
    assert (await namespace.wait_running("p")).starts == before
    assert {*partitions} < {*namespace.node.gpu_partitions}
    assert len(namespace.node.gpu_partitions) == 2
    assert len(told.kerf_devices) == 1


async def test_a_plugin_that_restarts_keeps_what_pods_have(namespace: Namespace, kerf: Kerf) -> None:
    _, resource = await offer(namespace, 2)
    await create(namespace, resource, "p")
    before = await namespace.wait_running("p")
    partitions = namespace.node.gpu_partitions
    await kerf.stop_plugin(namespace.node.name)
    await wait_allocatable(namespace, resource, 0)
    await kerf.start_plugin(namespace.node.name)
    await wait_allocatable(namespace, resource, 2)
    await create(namespace, resource, "q")
    await namespace.wait_running("q")
    assert (await namespace.wait_running("p")).starts == before.starts
    assert {*partitions} < {*namespace.node.gpu_partitions}


async def test_a_name_that_a_device_class_has_is_not_offered(namespace: Namespace) -> None:
    resource = "kerf.dev/gpu-taken"
    await namespace.resource_class("theirs", device="gpu", profile="1g.10gb", extendedResourceName=resource)
    made = await namespace.resource_class(
        "ours", device="gpu", profile="1g.10gb", devicePlugin={"resource": resource, "perNode": 1}
    )

    async def is_refused() -> bool:
        held = await namespace.api.get("kerf.dev/v1alpha1", "ResourceClass", made)
        conditions = {each["type"]: each for each in held.get("status", {}).get("conditions", ())}
        return bool(conditions.get("DevicePlugin", {}).get("reason") == "NameTaken")

    await eventually("the class is told that its name is taken", is_refused)
    assert await allocatable(namespace, resource) == 0


async def test_why_says_how_many_of_a_resource_there_are_and_who_has_them(
    namespace: Namespace, cluster: Cluster
) -> None:
    made, resource = await offer(namespace, 1)
    await create(namespace, resource, "first")
    await namespace.wait_running("first")
    await create(namespace, resource, "second")
    await namespace.wait_event("second", "FailedScheduling")
    code, report = await ask_why(cluster, "pod/second", "-n", namespace.name)
    assert (code, report["verdict"]) == (1, "does-not-fit")
    [cause] = report["causes"]
    assert cause["code"] == "extended-resource"
    assert f"of the node's 1 pods have 1 ({namespace.name}/first)" in cause["message"]
    # A claim that does not fit is told what is kept: the whole card overlaps it.
    whole = await namespace.resource_class("whole", device="gpu", cut="Whole")
    await namespace.delete_pod("first")
    await namespace.wait_running("second")
    await namespace.delete_pod("second")
    await namespace.template("whole", pods.exactly("gpu", whole))
    await namespace.create_pods("whole", "third")
    await namespace.wait_event("third", "FailedScheduling")
    _, report = await ask_why(cluster, "pod/third", "-n", namespace.name)
    assert "reserved" in [cause["code"] for cause in report["causes"]]
    assert made in next(cause["message"] for cause in report["causes"] if cause["code"] == "reserved")


async def test_the_example_runs_a_pod_that_counts_gpus(namespace: Namespace) -> None:
    [class_, pod] = read("device-plugin", reports=True)
    await namespace.api.apply(class_)
    resource = class_["spec"]["devicePlugin"]["resource"]
    await wait_allocatable(namespace, resource, class_["spec"]["devicePlugin"]["perNode"])
    await namespace.apply(pod)
    [device] = (await namespace.wait_running(pod["metadata"]["name"])).main.kerf_devices
    assert [profile for _, profile, _ in namespace.node.gpu_partitions] == ["1g.10gb"]
    assert device.startswith("gpu-0-1g-10gb-at-")
    await namespace.delete_pod(pod["metadata"]["name"])
    await namespace.api.delete(class_["apiVersion"], class_["kind"], class_["metadata"]["name"])
