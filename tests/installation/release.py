"""Kerf's release on a cluster: Helm and kubectl as an administrator has them, and what is waited for."""

import subprocess
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import anyio.to_thread
import pytest
import yaml

from tests.e2e import pods
from tests.e2e.log_capture import keep_logs_on_failure
from tests.e2e.wait import eventually
from tools.helm.chart import CHART, NAMESPACE, Helm, profile
from tools.image import description
from tools.image.archive import write_archive
from tools.image.layers import OWN, ImageInputs, build_layers
from tools.realcluster import requirements
from tools.realcluster.api import Api, Document
from tools.realcluster.cluster import Cluster, ready_s, running
from tools.realcluster.pod_access import pod_access
from tools.realcluster.versions import KubernetesVersion

NODE: Final = "node1"
PROFILE: Final = "simulated"
SIMULATED: Final[Mapping[str, Any]] = profile(PROFILE)
_NAME: Final = "app.kubernetes.io/name"
_CHECK: Final = "kerf-uninstall-check"
WITH_SIMULATED: Final = replace(OWN, with_simulated=True)
"""What this checkout's image is made of for the profile ``simulated``."""
LABEL: Final = {"kerf.dev/simulated": "true"}
"""What an administrator gives to a node that is to have simulated hardware."""
SMALL: Final[Document] = {
    "apiVersion": "kerf.dev/v1alpha1",
    "kind": "ResourceClass",
    "metadata": {"name": "small"},
    "spec": {"device": "gpu", "profile": "1g.10gb"},
}
"""A class; the partition is on the card gpu-0 while that has room."""


@asynccontextmanager
async def bare_cluster(version: KubernetesVersion, request: pytest.FixtureRequest, name: str) -> AsyncIterator[Cluster]:
    """Run a cluster whose pods reach the API server; the logs of a failure are kept as ``name``."""
    requirements.ensure()
    async with running(version, nodes=(NODE,)) as cluster, pod_access(cluster):
        with keep_logs_on_failure(cluster, request.session, name):
            yield cluster


def write_kerf_image(archive: Path, name: str = description.NAME, inputs: ImageInputs = WITH_SIMULATED) -> None:
    """Write Kerf's image to ``archive``. Raises ImageBuildError."""
    is_own = inputs is WITH_SIMULATED  # nothing needs the hook here; one cached image is enough
    write_archive(name, archive, build_layers(inputs, with_cdi_hook=is_own), description.configuration())


async def import_kerf_image(
    cluster: Cluster, folder: Path, name: str = description.NAME, inputs: ImageInputs = WITH_SIMULATED
) -> None:
    """Give the node Kerf's image as ``name``; ``folder`` is for its archive meanwhile."""
    archive = folder / "kerf-image.tar"
    await anyio.to_thread.run_sync(write_kerf_image, archive, name, inputs)
    await anyio.to_thread.run_sync(cluster.import_image, NODE, archive)
    archive.unlink()


class Release:
    """The release ``kerf`` in its namespace."""

    def __init__(self, helm: Helm, cluster: Cluster, api: Api, folder: Path) -> None:
        """``api`` has the permissions of an administrator; ``folder`` is for files with values."""
        self._helm = helm
        self._api = api
        self._folder = folder
        self.cluster = cluster

    async def run(
        self, command: str, values: Mapping[str, Any] | None = None, *options: str, chart: Path = CHART
    ) -> str:
        """Run ``helm COMMAND kerf``, with ``chart`` where there are values. Raises RefusedError."""
        given: Sequence[str] = ()
        if values is not None:
            paths = self.cluster.node_paths(NODE)
            own = {"kubeletRoot": str(paths.kubelet), "cdiFolder": str(paths.cdi), "stateFolder": str(paths.root)}
            file = self._folder / "values.yaml"
            file.write_text(yaml.safe_dump({**own, **values}))
            given = [str(chart), f"--values={file}"]
        access = [f"--kubeconfig={self.cluster.kubeconfig}", f"--namespace={NAMESPACE}"]
        return await anyio.to_thread.run_sync(partial(self._helm.run, command, "kerf", *options, *given, *access))

    def kubectl(self, *arguments: str) -> str:
        """Run kubectl. Raises CalledProcessError."""
        command = self.cluster.kubectl(*arguments)
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    async def open_namespace(self) -> None:
        await self._api.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})

    async def label_node(self) -> None:
        await self._api.patch("v1", "Node", NODE, {"metadata": {"labels": LABEL}})

    async def pods(self) -> Mapping[str, Document]:
        """Return the pods of Kerf's programs by name."""
        found = await self._api.list("v1", "Pod", NAMESPACE, labelSelector=f"{_NAME}!={_CHECK}")
        return {pod["metadata"]["name"]: pod for pod in found}

    async def uninstall_checks(self) -> Sequence[Document]:
        """Return the pods of the check before an uninstall; that of one that succeeded is deleted."""
        return await self._api.list("v1", "Pod", NAMESPACE, labelSelector=f"{_NAME}={_CHECK}")

    async def plugin_pods(self, name: str = PROFILE) -> Sequence[Document]:
        """Return the pods of a profile's plugin."""
        return [pod for each, pod in (await self.pods()).items() if each.startswith(f"kerf-kubelet-plugin-{name}-")]

    async def wait_controllers(self) -> None:
        async def are_ready() -> bool:
            found = await self._api.get("apps/v1", "Deployment", "kerf-controller", NAMESPACE)
            return bool(found.get("status", {}).get("readyReplicas") == found["spec"]["replicas"])

        await eventually("all controllers are ready", are_ready, within_s=ready_s(), but=self.describe_pods)

    async def wait_plugin(self, name: str = PROFILE) -> Document:
        """Return the one pod of a profile's plugin, once the DaemonSet is up to date."""

        async def is_ready() -> Document | None:
            found = await self._api.get("apps/v1", "DaemonSet", f"kerf-kubelet-plugin-{name}", NAMESPACE)
            status, running = found.get("status", {}), await self.plugin_pods(name)
            is_current = status.get("observedGeneration") == found["metadata"]["generation"]
            is_updated = status.get("numberReady", 0) == 1 == status.get("updatedNumberScheduled")
            is_there = is_current and is_updated and len(running) == 1 and is_pod_ready(running[0])
            return running[0] if is_there else None

        return await eventually(f"the plugin of {name} is ready", is_ready, within_s=ready_s(), but=self.describe_pods)

    async def wait_gone(self) -> None:
        async def has_no_pods() -> bool:
            return not await self.pods()

        await eventually("Kerf has gone", has_no_pods, within_s=ready_s(), but=self.describe_pods)

    async def describe_pods(self) -> Mapping[str, object]:
        """Return what the statuses of Kerf's pods say, for messages."""
        found = await self.pods()
        return {name: pod["status"].get("containerStatuses") or pod["status"] for name, pod in found.items()}

    async def run_pod(self, name: str) -> Document:
        """Create the class ``small``, and a pod with such a partition in the namespace default; return it running."""
        await self._api.apply(SMALL)
        template = pods.template("small", pods.devices(pods.exactly("gpu", "small")))
        for document in (template, pods.pod(name, {"gpu": pods.by_template("small")})):
            document["metadata"]["namespace"] = "default"
            await self._api.apply(document)
        pod = await self.wait_phase(name, "Running")

        async def has_partition() -> bool:
            return "KERF_DEVICE_GPU_0_1G_10GB" in self.log(pod)

        await eventually(f"the container of {name} has a partition", has_partition, but=self.describe_pods)
        return pod

    async def wait_phase(self, name: str, phase: str) -> Document:
        """Return a pod of the namespace default once it is in ``phase``."""

        async def has_phase() -> Document | None:
            pod = await self._api.get("v1", "Pod", name, "default")
            return pod if pod["status"].get("phase") == phase else None

        async def instead() -> object:
            return (await self._api.get("v1", "Pod", name, "default"))["status"]

        return await eventually(f"the pod {name} is {phase}", has_phase, within_s=ready_s(), but=instead)

    async def wait_pod_gone(self, name: str) -> None:
        async def has_gone() -> bool:
            return await self._api.find("v1", "Pod", name, "default") is None

        await eventually(f"the pod {name} has ended", has_gone, within_s=ready_s())

    def log(self, pod: Document) -> str:
        """Return what the pod's containers have written, all of their starts.

        In the kubelet's files time, stream and a flag stand before each line.
        """
        metadata = pod["metadata"]
        folder = f"{metadata['namespace']}_{metadata['name']}_{metadata['uid']}"
        files = sorted((self.cluster.node_paths(NODE).pod_logs / folder).glob("*/*.log"))
        lines = (line for file in files for line in file.read_text().splitlines())
        return "\n".join(line.split(" ", 3)[-1] for line in lines)


def is_pod_ready(pod: Document) -> bool:
    conditions = pod["status"].get("conditions", ())
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)
