"""NVIDIA's DRA driver on a node of a real cluster: what its own chart installs, and its unmodified kubelet plugin.

The plugin is a process with the environment that the chart's DaemonSet gives its container, except for paths and ports,
and with the permissions of its service account. Its cards are those of a stand-in machine: it reads ``/proc/driver``
and ``/sys`` at fixed paths, which in its mount namespace are the machine's.
"""

import os
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import aiohttp
import anyio
import yaml

from kerf_dra.driver.testing.nvml import NvidiaMachine
from tools.realcluster.api import Api, Document
from tools.realcluster.builds import build_helm, build_nvidia_driver, nvidia_driver_chart
from tools.realcluster.cluster import Cluster, NotReadyError, ready_s
from tools.realcluster.machine import with_boot_id
from tools.realcluster.paths import free_port

DRIVER: Final = "gpu.nvidia.com"
NAMESPACE: Final = "dra-driver-nvidia-gpu"
_RELEASE: Final = "dra-driver-nvidia-gpu"
_CONTAINER: Final = "gpus"
"""The container of the DaemonSet that is the kubelet plugin for GPUs."""
_VALUES: Final = {"gpuResourcesEnabledOverride": "true", "resources.computeDomains.enabled": "false"}
"""Values of the chart: GPUs without ComputeDomains, which take a controller and another plugin. The first one says that
no device plugin is to serve the same cards."""
_LOG_VERBOSITY: Final = 6
"""That of NVIDIA's own suites."""
_TOKEN_S: Final = 3600
_POLL_S: Final = 0.1


class NvidiaDriver:
    """NVIDIA's driver on one node, which may end and start again with other values of its chart."""

    def __init__(self, cluster: Cluster, api: Api, node: str, machine: NvidiaMachine) -> None:
        """``api`` has the permissions of an administrator, ``machine`` has the node's cards."""
        self._cluster = cluster
        self._api = api
        self._node = node
        self._machine = machine
        self._paths = cluster.node_paths(node)
        self._process = f"{node}-nvidia-kubelet-plugin"
        self.metrics = f"127.0.0.1:{free_port()}"
        """The address of the plugin's metrics."""

    @property
    def is_running(self) -> bool:
        return self._cluster.processes.is_running(self._process)

    @property
    def kubeconfig(self) -> Path:
        """The plugin's kubeconfig, once it has started."""
        return self._cluster.paths.kubeconfig(self._process)

    @property
    def plugin_folder(self) -> Path:
        """The folder with the plugin's socket and checkpoint."""
        return self._paths.kubelet / "plugins" / DRIVER

    async def start(self, values: Mapping[str, str]) -> None:
        """Install the chart with ``values``, start the plugin, and wait until it serves its metrics.

        Raises BuildError when a program cannot be built, CalledProcessError when Helm refuses the values, and
        NotReadyError when the plugin is not ready in time.
        """
        documents = self._render({**_VALUES, **values})
        await self._api.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
        for document in documents:
            is_workload = document["kind"] == "DaemonSet"
            await self._api.apply(document, **({"dryRun": "All"} if is_workload else {}))
        (daemon_set,) = (one for one in documents if one["kind"] == "DaemonSet")
        pod_spec = daemon_set["spec"]["template"]["spec"]
        token = await self._token(pod_spec["serviceAccountName"])
        kubeconfig = self._cluster.write_kubeconfig(self._process, {"token": token})
        (container,) = (one for one in pod_spec["containers"] if one["name"] == _CONTAINER)
        environment = self._environment(container, pod_spec["serviceAccountName"])
        command = [str(build_nvidia_driver()), f"--kubeconfig={kubeconfig}", f"--v={_LOG_VERBOSITY}"]
        self._cluster.processes.start(self._process, self._on_machine(command), environment=environment)
        await self._wait_serving()

    async def stop(self) -> None:
        """End the plugin with SIGTERM; claims keep what they have."""
        await self._cluster.processes.stop(self._process)

    async def uninstall(self) -> None:
        """End the plugin, and delete what the chart has installed for users: its DeviceClasses. Slices go, too."""
        await self.stop()
        for kind in ("DeviceClass", "ResourceSlice"):
            for one in await self._api.list("resource.k8s.io/v1", kind):
                if DRIVER in str(one["spec"]):
                    await self._api.delete("resource.k8s.io/v1", kind, one["metadata"]["name"])

    def _render(self, values: Mapping[str, str]) -> Sequence[Document]:
        """Return the chart's documents."""
        command = [
            *(str(build_helm()), "template", _RELEASE, str(nvidia_driver_chart()), f"--namespace={NAMESPACE}"),
            *(f"--kube-version={self._cluster.version.release}", "--api-versions=resource.k8s.io/v1"),
            *(f"--set={name}={value}" for name, value in values.items()),
        ]
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        return [document for document in yaml.safe_load_all(text) if document]

    def _environment(self, container: Mapping[str, Any], account: str) -> Mapping[str, str]:
        """Return the environment of the chart's container, with the paths and ports of this node."""
        hook = self._paths.root / "nvidia-cdi-hook"
        hook.write_text("#!/bin/true\n")  # no program needs what the hooks do to a container
        hook.chmod(0o755)
        root = str(self._machine.driver_root)
        return {
            **os.environ,
            **{one["name"]: one["value"] for one in container["env"] if "value" in one},
            **self._machine.environment(),
            "ALT_PROC_DEVICES_PATH": str(self._machine.folder / "proc/devices"),
            "CDI_ROOT": str(self._paths.cdi),
            "DRIVER_ROOT_CTR_PATH": root,
            "HEALTHCHECK_PORT": "-1",  # the kubelet asks nothing of a process
            "HTTP_ENDPOINT": self.metrics,
            "KUBELET_PLUGINS_DIRECTORY_PATH": str(self.plugin_folder.parent),
            "KUBELET_REGISTRAR_DIRECTORY_PATH": str(self._paths.kubelet / "plugins_registry"),
            "NAMESPACE": NAMESPACE,
            "NODE_NAME": self._node,
            "NVIDIA_CDI_HOOK_PATH": str(hook),
            "NVIDIA_DRIVER_ROOT": root,
            "SERVICE_ACCOUNT_NAME": account,
        }

    def _on_machine(self, command: Sequence[str]) -> Sequence[str]:
        """Return ``command`` in a mount namespace in which it sees the stand-in machine."""
        folder = self._machine.folder
        binds = " && ".join(
            f"mount --bind {shlex.quote(f'{folder}{path}')} {path}" for path in ("/proc/driver", "/sys")
        )
        return with_boot_id(self._paths, ["sh", "-c", f'{binds} && exec "$@"', "sh", *command])

    async def _token(self, account: str) -> str:
        """Request a token of the plugin's service account, bound to the node."""
        node = await self._api.get("v1", "Node", self._node)
        bound = {"apiVersion": "v1", "kind": "Node", "name": self._node, "uid": node["metadata"]["uid"]}
        spec = {"expirationSeconds": _TOKEN_S, "boundObjectRef": bound}
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
        path = await self._api.path("v1", "ServiceAccount", NAMESPACE, account, "token")
        return str((await self._api.request("POST", path, request))["status"]["token"])

    async def _wait_serving(self) -> None:
        with anyio.move_on_after(ready_s()):
            async with aiohttp.ClientSession() as session:
                while True:
                    self._cluster.processes.pid(self._process)
                    try:
                        async with session.get(f"http://{self.metrics}/metrics"):
                            return
                    except aiohttp.ClientError:
                        await anyio.sleep(_POLL_S)
        raise NotReadyError(f"{self._process} is not ready:\n{self._cluster.processes.tail(self._process)}")
