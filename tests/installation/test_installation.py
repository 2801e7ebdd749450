"""Kerf as pods from its image, installed by its chart: the way of docs/install.md on a real Kubernetes."""

from pathlib import Path
from typing import Any

from tests.e2e.wait import eventually
from tests.installation.release import SIMULATED, Release, import_kerf_image
from tools.helm.chart import NAMESPACE
from tools.image import description
from tools.image.layers import OWN
from tools.realcluster.api import Api
from tools.realcluster.cluster import Cluster, ready_s


async def test_the_image_starts_with_a_read_only_root_and_no_rights(api: Api, release: Release) -> None:
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
    pod = await release.wait_phase("version", "Succeeded")
    assert "kerf 0.1.0 (Python 3.11" in release.log(pod)


async def test_kerf_is_installed_serves_a_pod_and_refuses_a_second_profile(api: Api, release: Release) -> None:
    # 1. Installed, without hardware on any node; a plugin is to start once `kerf check node` has found no problem.
    await release.open_namespace()
    said = await release.run("install", {**SIMULATED, "plugin": {"check": True}})
    assert "ITS HARDWARE IS SIMULATED" in said
    await release.wait_controllers()
    plugin = await api.get("apps/v1", "DaemonSet", "kerf-kubelet-plugin-simulated", NAMESPACE)
    assert plugin["status"]["desiredNumberScheduled"] == 0

    # 2. A node is labelled, and a pod gets a partition.
    await release.label_node()
    checked = await release.wait_plugin()
    (check,) = checked["status"]["initContainerStatuses"]
    assert (check["name"], check["state"]["terminated"]["exitCode"]) == ("check", 0)
    running = await release.run_pod("small")

    # 3. A second profile on the same node does not start, and names the first.
    (first,) = SIMULATED["plugins"]
    await release.run("upgrade", {"plugins": [first, {**first, "name": "second"}]})

    async def has_refused() -> bool:
        found = await release.plugin_pods("second")
        return any("the plugin of the profile simulated" in release.log(pod) for pod in found)

    await eventually("the second profile is refused", has_refused, within_s=ready_s(), but=release.describe_pods)
    await release.run("upgrade", SIMULATED)
    await release.wait_plugin()
    assert (await release.wait_phase("small", "Running"))["metadata"]["uid"] == running["metadata"]["uid"]


async def test_an_image_without_simulated_hardware_says_how_to_build_one_that_has_it(
    cluster: Cluster, release: Release, tmp_path: Path
) -> None:
    """The controller runs; the plugin of the profile simulated ends, and its log says what to do."""
    await import_kerf_image(cluster, tmp_path, "localhost/kerf:lean", OWN)
    await release.open_namespace()
    await release.label_node()
    await release.run("upgrade", {**SIMULATED, "image": {"tag": "lean"}}, "--install")
    await release.wait_controllers()

    async def has_said_so() -> bool:
        logs = [release.log(pod) for pod in await release.plugin_pods()]
        return any("build the image with `make image ARGS=--with-simulated`" in log for log in logs)

    await eventually("the plugin says what to do", has_said_so, within_s=ready_s(), but=release.describe_pods)
