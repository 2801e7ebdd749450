"""Kerf as pods, with what the tests of ``tests/e2e`` do to Kerf as processes."""

import os
import signal
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from tests.e2e.wait import eventually
from tests.installation.release import PROFILE, SIMULATED, Release
from tools.helm.chart import NAMESPACE
from tools.realcluster.api import Document
from tools.realcluster.cluster import ready_s
from tools.realcluster.kerf import Hardware

_CGROUPS: Final = Path("/sys/fs/cgroup")
_PORT: Final = 8080
"""Of the probes, in the chart."""


class KerfPods:
    """Kerf's release on a cluster with one node, which has simulated cards."""

    def __init__(self, release: Release, hardware: Hardware, values: Mapping[str, Any] | None = None) -> None:
        """``values`` are those of the chart beside the profile of the node."""
        self._release = release
        self._hardware = hardware
        (profile,) = SIMULATED["plugins"]
        cards = {"cards": list(hardware.cards), **hardware.options}
        self._values = {"plugins": [{**profile, "backends": {"simulated": cards}}], **(values or {})}
        self._pod: Document = {}
        """The plugin's pod, as it was when it was seen ready."""

    async def install(self) -> None:
        """Install the release and wait until it is ready."""
        await self._release.open_namespace()
        await self._release.label_node()
        await self._release.run("install", self._values)
        await self._release.wait_controllers()
        self._pod = await self._release.wait_plugin()

    async def start_plugin(self, node: str) -> None:
        """Wait until the kubelet has started the plugin's container again."""
        before = self._container

        async def is_another() -> Document | None:
            pod = await self._release.wait_plugin()
            return pod if _container_of(pod) != before else None

        self._pod = await eventually(f"the plugin on {node} runs again", is_another, within_s=ready_s())

    async def crash_plugin(self, node: str) -> None:
        """End the plugin's container with SIGKILL, unless it has ended."""
        del node
        for pid in self._pids():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    async def restart_plugin(self, node: str) -> None:
        """Delete the plugin's pod, in whose place there is soon another one."""
        self._release.kubectl(
            "delete", "pod", f"--namespace={NAMESPACE}", self._pod["metadata"]["name"], "--wait=false"
        )
        await self._wait_other_pod(node)

    async def update_plugin(self, node: str) -> None:
        """Let the DaemonSet make a new pod, which takes over from the old one."""
        workload = f"daemonset/kerf-kubelet-plugin-{PROFILE}"
        self._release.kubectl("rollout", "restart", f"--namespace={NAMESPACE}", workload)
        await self._wait_other_pod(node)

    def hardware(self, node: str) -> Hardware:
        del node
        return self._hardware

    def hardware_state(self, node: str) -> Path:
        """Return the folder that the chart gives to the profile's simulated cards."""
        return self._release.cluster.node_paths(node).root / PROFILE

    def stand_in_folder(self, node: str) -> Path:
        """There is no stand-in machine: the image has no such backend. Raises NotImplementedError."""
        raise NotImplementedError(node)

    def plugin_probes(self, node: str) -> str:
        del node
        return f"{self._pod['status']['podIP']}:{_PORT}"

    def plugin_is_running(self, node: str) -> bool:
        """Whether the container runs that was seen ready last."""
        del node
        return bool(self._pids())

    @property
    def _container(self) -> str:
        return _container_of(self._pod)

    async def _wait_other_pod(self, node: str) -> None:
        before = self._pod["metadata"]["uid"]

        async def is_another() -> Document | None:
            pod = await self._release.wait_plugin()
            return pod if pod["metadata"]["uid"] != before else None

        self._pod = await eventually(f"another pod has the plugin on {node}", is_another, within_s=ready_s())

    def _pids(self) -> list[int]:
        """Return the processes of the container that was seen ready last, by its control group."""
        name = self._container.rpartition("/")[2]
        files = [*_CGROUPS.glob(f"k8s.io/{name}/cgroup.procs"), *_CGROUPS.glob(f"memory/k8s.io/{name}/cgroup.procs")]
        return [int(line) for file in files[:1] for line in file.read_text().split()]


def _container_of(pod: Document) -> str:
    """Return the ID of the container: a container that was started again has another one."""
    (status,) = pod["status"]["containerStatuses"]
    return str(status["containerID"])
