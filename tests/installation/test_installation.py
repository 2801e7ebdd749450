"""Kerf as pods from its image, installed by its chart: the way of docs/install.md on a real Kubernetes."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.e2e import pods
from tests.e2e.wait import eventually
from tests.image import description
from tests.installation.conftest import NODE, Installer
from tests.oracle.helm.chart import NAMESPACE, profile
from tests.realcluster.api import Api, Document
from tests.realcluster.cluster import Cluster, ready_s

SIMULATED = profile("simulated")
KERF = "kerf.dev/v1alpha1"
CLASS: Document = {
    "apiVersion": KERF,
    "kind": "ResourceClass",
    "metadata": {"name": "small"},
    "spec": {"device": "gpu", "profile": "1g.10gb"},
}


def log(cluster: Cluster, pod: Document) -> str:
    """What the pod's containers have written, all of their starts."""
    metadata = pod["metadata"]
    folder = f"{metadata['namespace']}_{metadata['name']}_{metadata['uid']}"
    files = sorted((cluster.node_paths(NODE).pod_logs / folder).glob("*/*.log"))
    return "\n".join(map(Path.read_text, files))


async def wait_for_plugin(api: Api, name: str) -> Document:
    async def is_ready() -> Document | None:
        found = await api.get("apps/v1", "DaemonSet", f"kerf-kubelet-plugin-{name}", NAMESPACE)
        status = found.get("status", {})
        is_current = status.get("observedGeneration") == found["metadata"]["generation"]
        return found if is_current and status.get("numberReady", 0) == 1 == status["updatedNumberScheduled"] else None

    async def instead() -> object:
        found = await pods_of(api)
        return {name: pod["status"].get("containerStatuses") or pod["status"] for name, pod in found.items()}

    return await eventually(f"the plugin of {name} is ready", is_ready, within_s=ready_s(), but=instead)


async def pods_of(api: Api) -> Mapping[str, Document]:
    return {pod["metadata"]["name"]: pod for pod in await api.list("v1", "Pod", NAMESPACE)}


async def wait_for_phase(api: Api, name: str, phase: str) -> Document:
    async def has_phase() -> Document | None:
        pod = await api.get("v1", "Pod", name, "default")
        return pod if pod["status"].get("phase") == phase else None

    async def instead() -> object:
        return (await api.get("v1", "Pod", name, "default"))["status"]

    return await eventually(f"the pod {name} is {phase}", has_phase, within_s=ready_s(), but=instead)


async def test_the_image_starts_with_a_read_only_root_and_no_rights(cluster: Cluster, api: Api) -> None:
    container: dict[str, Any] = {
        "name": "kerf",
        "image": description.NAME,
        "imagePullPolicy": "Never",
        "args": ["version"],
        "securityContext": {
            "runAsNonRoot": True,
            "readOnlyRootFilesystem": True,
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
        },
    }
    spec = {"restartPolicy": "Never", "automountServiceAccountToken": False, "containers": [container]}
    metadata = {"name": "version", "namespace": "default"}
    await api.create({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    pod = await wait_for_phase(api, "version", "Succeeded")
    assert "kerf 0.1.0 (Python 3.11" in log(cluster, pod)


async def test_kerf_is_installed_serves_a_pod_refuses_a_second_profile_and_goes(
    cluster: Cluster, api: Api, installer: Installer
) -> None:
    async def has_no_pods() -> bool:
        return not await pods_of(api)

    # 1. Installed, without hardware on any node.
    await api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    said = await installer.run("install", SIMULATED)
    assert "ITS HARDWARE IS SIMULATED" in said

    async def has_replicas() -> Document | None:
        found = await api.get("apps/v1", "Deployment", "kerf-controller", NAMESPACE)
        return found if found.get("status", {}).get("readyReplicas") == 2 else None

    await eventually("two controllers are ready", has_replicas, within_s=ready_s(), but=lambda: pods_of(api))
    plugin = await api.get("apps/v1", "DaemonSet", "kerf-kubelet-plugin-simulated", NAMESPACE)
    assert plugin["status"]["desiredNumberScheduled"] == 0

    # 2. A node is labelled, and a pod gets a partition.
    await api.patch("v1", "Node", NODE, {"metadata": {"labels": {"kerf.dev/simulated": "true"}}})
    await wait_for_plugin(api, "simulated")
    await api.create(CLASS)
    template = pods.template("small", pods.devices(pods.exactly("gpu", "small")))
    template["metadata"]["namespace"] = "default"
    await api.create(template)
    pod = pods.pod("small", {"gpu": pods.by_template("small")})
    pod["metadata"]["namespace"] = "default"
    await api.create(pod)
    running = await wait_for_phase(api, "small", "Running")

    async def has_partition() -> bool:
        return "KERF_DEVICE_GPU_0_1G_10GB" in log(cluster, running)

    await eventually("the container has a partition", has_partition, but=lambda: pods_of(api))

    # 3. An update with the claim held: a new pod of the plugin takes over from the old one.
    before = {name for name in await pods_of(api) if "plugin" in name}
    await installer.run("upgrade", {**SIMULATED, "log": {"level": "debug"}})

    async def has_been_replaced() -> bool:
        now = {name for name in await pods_of(api) if "plugin" in name}
        return len(now) == 1 and now.isdisjoint(before)

    await eventually("the plugin's pod is another one", has_been_replaced, within_s=ready_s())
    await wait_for_plugin(api, "simulated")
    assert (await wait_for_phase(api, "small", "Running"))["metadata"]["uid"] == running["metadata"]["uid"]

    # 4. A second profile on the same node does not start, and names the first.
    (first,) = SIMULATED["plugins"]
    await installer.run("upgrade", {"plugins": [first, {**first, "name": "second"}], "log": {"level": "debug"}})

    async def has_refused() -> bool:
        found = [pod for name, pod in (await pods_of(api)).items() if "plugin-second" in name]
        return any("the plugin of the profile simulated" in log(cluster, pod) for pod in found)

    await eventually("the second profile is refused", has_refused, within_s=ready_s(), but=lambda: pods_of(api))
    await installer.run("upgrade", {**SIMULATED, "log": {"level": "debug"}})
    await wait_for_plugin(api, "simulated")

    # 5. Uninstalled too early: the pod does not end, until the same profile is installed again.
    await installer.run("uninstall")
    await eventually("Kerf has gone", has_no_pods, within_s=ready_s())
    await api.delete("v1", "Pod", "small", "default")

    async def has_stopped() -> bool:
        pod = await api.get("v1", "Pod", "small", "default")
        return all("terminated" in one["state"] for one in pod["status"]["containerStatuses"])

    await eventually("the container has ended, and the pod is still there", has_stopped, within_s=ready_s())
    await installer.run("install", SIMULATED)

    async def has_gone() -> bool:
        return await api.find("v1", "Pod", "small", "default") is None

    await eventually("the pod has ended", has_gone, within_s=ready_s())

    # 6. Uninstalled in the right order: the definitions stay, with the class.
    await installer.run("uninstall")
    await eventually("Kerf has gone", has_no_pods, within_s=ready_s())
    assert await api.find(KERF, "ResourceClass", "small") is not None
    assert await api.find("rbac.authorization.k8s.io/v1", "ClusterRole", "kerf-controller") is None
