"""Kerf on a real cluster: ``deploy/`` is installed, and Kerf's two programs run with those permissions only.

No container image is needed: the programs run as processes of this machine, with the arguments that Deployment and
DaemonSet have, except for paths. Each has a token of its own service account, made with the TokenRequest API as the
kubelet makes them: the plugin's is bound to a pod on its node, or to the node itself where no kubelet can run pods.
"""

import secrets
import sys
import uuid
from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import aiohttp
import anyio
import yaml

from kerf_dra.api.resource.kinds import GROUP
from kerf_dra.api.resource.registry import VERSIONS
from kerf_dra.driver.families.gpu.catalog import gpu_model
from kerf_dra.driver.testing.nvml import NvidiaMachine
from tests.fakes.intel import GIB, MAX_1100, MAX_1550, IntelMachine
from tools.realcluster.api import Api, Document
from tools.realcluster.cluster import Cluster, NotReadyError, ready_s
from tools.realcluster.documents import IMAGE
from tools.realcluster.fpga_machines import MACHINES, FpgaMachine
from tools.realcluster.machine import with_boot_id
from tools.realcluster.paths import free_port

DEPLOY: Final = Path(__file__).parents[2] / "deploy"
NAMESPACE: Final = "kerf-system"
CONTROLLER: Final = "kerf-controller"
PLUGIN: Final = "kerf-kubelet-plugin"
"""The service account of plugins."""
MPS_DAEMONS: Final = "kerf-mps-daemons"
RECLAIMER: Final = "kerf-reclaimer"
"""The name and the service account of what evicts the pods of cards in maintenance."""
SIMULATED: Final = "simulated"
NVIDIA_FAKE: Final = "nvidia-fake"
"""The backend for NVIDIA cards on a stand-in for NVML (docs/testing-without-gpus.md)."""

INTEL: Final = "intel"

_WORKLOADS: Final = {"Deployment", "DaemonSet"}
_PROFILE: Final = f"{PLUGIN}-simulated"
"""The DaemonSet of ``deploy/manifests``."""
_TOKEN_S: Final = 24 * 3600
"""Longer than any test, also than hours of churn: it is not renewed, as a kubelet does for pods."""
_POLL_S: Final = 0.1
_MACHINE: Final = "machine"
_SHARING: Final = "sharing"
_HOOKS: Final = "hooks"


@dataclass(frozen=True, slots=True)
class Hardware:
    """The cards of one node."""

    cards: Sequence[Mapping[str, Any]]
    """The cards as the simulated backend's configuration has them."""
    options: Mapping[str, Any]
    """Further fields of that configuration (``pace``, ``delays``), or of that of the backend for GPUs."""
    gpu_backend: str = SIMULATED
    """The backend of the GPUs: ``SIMULATED`` or ``NVIDIA_FAKE``, with the same models."""
    fpga_backend: str = SIMULATED
    """The backend of the FPGAs; another one than ``SIMULATED`` has a card of its own beside those of ``cards``."""
    intel_tiles: Sequence[int] = ()
    """Intel's GPUs by their number of tiles, which are files of a stand-in machine. Nothing is made on them."""


DEFAULT_HARDWARE: Final = Hardware(
    cards=[{"kind": "gpu", "model": "h100-80gb-sxm", "count": 2}, {"kind": "fpga", "shell": "quad"}], options={}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plugin:
    """One pod of the DaemonSet: what stays when its container restarts."""

    process: str
    bound_object: Document
    """The object that the token is bound to: the pod, or the node where there is no kubelet."""
    probes: str
    """The address of its metrics and probes."""
    arguments: Sequence[str]
    """Arguments beyond those of the manifest."""


class Kerf:
    """Kerf's programs on one cluster."""

    def __init__(self, cluster: Cluster, api: Api) -> None:
        """``api`` has the permissions of an administrator."""
        self._cluster = cluster
        self._api = api
        self._processes = cluster.processes
        self._plugins: dict[str, _Plugin] = {}
        self._hardware: dict[str, Hardware] = {}
        self._fpga_machines: dict[tuple[str, str], FpgaMachine] = {}

    async def install(self, left_out: Collection[str] = (), *, early_loading: bool = False) -> None:
        """Apply ``deploy/`` without the files of ``left_out``.

        Workloads are applied as a dry run only, because processes of the tests replace them; DeviceClasses, which have
        one shape in every version, in that of the release, if it has them.
        """
        resource_version = self._cluster.version.resource_version
        for document in manifests(DEPLOY / "crds"):
            await self._api.apply(document)
        for document in manifests(DEPLOY / "manifests", left_out):
            if document["kind"] == "DeviceClass":
                if resource_version not in VERSIONS:
                    continue
                document["apiVersion"] = f"{GROUP}/{resource_version}"
            is_workload = document["kind"] in _WORKLOADS
            await self._api.apply(document, **({"dryRun": "All"} if is_workload else {}))
        for document in manifests(DEPLOY / "early-loading") if early_loading else ():
            await self._api.apply(document)
        await self._wait_for_kind()

    async def start_controller(self, name: str = CONTROLLER, *, server: str = "") -> None:
        """Start a controller and wait until it is ready; ``server`` replaces the API server's address."""
        user = await self._token_file(name, CONTROLLER, None, server=server)
        arguments = self._arguments(CONTROLLER, {"POD_NAME": name}, drop=("--probes-address",))
        port = self._cluster.ports.controller_probes if name == CONTROLLER else free_port()
        address = f"127.0.0.1:{port}"
        command = _kerf([*arguments, f"--kubeconfig={user}", f"--probes-address={address}", "--log-format=text"])
        self._processes.start(name, command)
        await self._wait_ready(name, address)

    async def start_reclaimer(self, mode: str = "Report") -> None:
        """Apply ``deploy/reclaim``, start the reclaimer with its account, and wait until it is ready.

        In mode Act the account may create CardMaintenances, as the chart lets it.
        """
        for document in manifests(DEPLOY / "reclaim"):
            if mode == "Act" and document["kind"] == "ClusterRole":
                document["rules"] += [
                    {"apiGroups": ["kerf.dev"], "resources": ["cardmaintenances"], "verbs": ["create"]}
                ]
            await self._api.apply(document, **({"dryRun": "All"} if document["kind"] in _WORKLOADS else {}))
        user = await self._token_file(RECLAIMER, RECLAIMER, None)
        environment = {"POD_NAME": RECLAIMER}
        drop = ("--probes-address", "--reclaim-mode")
        arguments = [*self._arguments(RECLAIMER, environment, drop=drop, folder="reclaim"), f"--reclaim-mode={mode}"]
        address = f"127.0.0.1:{free_port()}"
        command = _kerf([*arguments, f"--kubeconfig={user}", f"--probes-address={address}", "--log-format=text"])
        self._processes.start(RECLAIMER, command)
        await self._wait_ready(RECLAIMER, address)

    async def stop_reclaimer(self) -> None:
        """End the reclaimer with SIGTERM."""
        await self._processes.stop(RECLAIMER)

    async def crash_reclaimer(self) -> None:
        """End the reclaimer with SIGKILL."""
        await self._processes.kill(RECLAIMER)

    async def start_plugin(self, node: str, arguments: Sequence[str] = ()) -> None:
        """Start the plugin of ``node`` and wait until the kubelet has registered it.

        Started again it is the same pod's, unless that went with its node.
        """
        plugin = self._plugins.get(node)
        if plugin is None:
            port = free_port() if self._plugins else self._cluster.ports.plugin_probes
            probes, pod = f"127.0.0.1:{port}", await self.plugin_pod(node)
            plugin = _Plugin(process=f"{node}-{PLUGIN}", bound_object=pod, probes=probes, arguments=arguments)
        elif await self._api.find("v1", "Pod", plugin.bound_object["metadata"]["name"], NAMESPACE) is None:
            plugin = replace(plugin, bound_object=await self.plugin_pod(node))
        self._plugins[node] = plugin
        await self._launch(node, self._plugins[node])
        await self.wait_plugin_ready(node)

    async def start_bare_plugin(self, node: str, hardware: Hardware, arguments: Sequence[str] = ()) -> None:
        """Start the plugin of a node without a kubelet, which publishes devices and does not register."""
        paths = self._cluster.node_paths(node)
        for directory in (paths.root, paths.kubelet, paths.cdi, paths.device_plugins):
            directory.mkdir(exist_ok=True)
        paths.boot_id.write_text(f"{uuid.uuid4()}\n")
        self.describe_hardware(node, hardware)
        bound_object = await self._api.get("v1", "Node", node)
        plugin = _Plugin(
            process=f"{node}-{PLUGIN}", bound_object=bound_object, probes="127.0.0.1:0", arguments=arguments
        )
        self._plugins[node] = plugin
        await self._launch(node, plugin)

    def start_plugin_again(self, node: str) -> None:
        """Start the plugin of the same pod, with the token that it has: nothing of the cluster needs to run for it."""
        self._start_process(node, self._plugins[node])

    async def wait_plugin_ready(self, node: str) -> None:
        """Wait until the plugin is ready. Raises NotReadyError."""
        await self._wait_ready(self._plugins[node].process, self._plugins[node].probes)

    async def update_plugin(self, node: str) -> None:
        """Update the plugin as the DaemonSet does: a new pod is ready before the old one gets SIGTERM."""
        old, self._plugins[node] = self._plugins[node], await self._surge(node)
        await self._processes.stop(old.process)

    @asynccontextmanager
    async def surged_plugin(self, node: str) -> AsyncIterator[None]:
        """Start an update that fails: a new pod becomes ready, and is killed at the end of the context."""
        new = await self._surge(node)
        yield
        await self._processes.kill(new.process)

    async def stop_plugin(self, node: str) -> None:
        """End the plugin with SIGTERM."""
        await self._processes.stop(self._plugins[node].process)

    async def crash_plugin(self, node: str) -> None:
        """End the plugin with SIGKILL."""
        await self._processes.kill(self._plugins[node].process)

    def start_mps_daemons(self, node: str) -> None:
        """Start what keeps the MPS daemons of ``node``; the plugin has made the stand-in machine."""
        root = NvidiaMachine(self.stand_in_folder(node)).driver_root
        command = _kerf(["mps-daemons", f"--folder={self.sharing_folder(node)}", f"--driver-root={root}"])
        self._processes.start(f"{node}-{MPS_DAEMONS}", with_boot_id(self._cluster.node_paths(node), command))

    async def crash_mps_daemons(self, node: str) -> None:
        """End what keeps the MPS daemons with SIGKILL; the daemons go on."""
        await self._processes.kill(f"{node}-{MPS_DAEMONS}")

    async def restart_plugin(self, node: str) -> None:
        await self.stop_plugin(node)
        await self.start_plugin(node)

    def plugin_is_running(self, node: str) -> bool:
        return self._processes.is_running(self._plugins[node].process)

    def plugin_probes(self, node: str) -> str:
        """Return the address of the plugin's metrics and probes."""
        return self._plugins[node].probes

    def describe_hardware(self, node: str, hardware: Hardware) -> None:
        """Give ``node`` the cards of ``hardware``, with no partition on them."""
        self._hardware[node] = hardware
        if hardware.intel_tiles:
            _make_intel_machine(self._intel_folder(node), hardware.intel_tiles)
        if hardware.fpga_backend != SIMULATED:
            self._start_fpga_machine(node, hardware.fpga_backend)
        for file, document in self._backends(node).values():
            file.write_text(yaml.safe_dump(document))

    def hardware(self, node: str) -> Hardware:
        return self._hardware[node]

    def stand_in_folder(self, node: str) -> Path:
        """Return the folder of the stand-in machine, which the plugin makes."""
        return self._cluster.node_paths(node).root / _MACHINE

    def fpga_machine(self, node: str) -> FpgaMachine:
        """Return the stand-in of the node's FPGA card."""
        return self._fpga_machines[node, self._hardware[node].fpga_backend]

    def sharing_folder(self, node: str) -> Path:
        """Return the folder of the devices of a stand-in machine that claims share."""
        return self._cluster.node_paths(node).root / _SHARING

    def hooks_folder(self, node: str) -> Path:
        """Return what the plugin has as its folder of hooks, which is there once a test has made it."""
        return self._cluster.node_paths(node).root / _HOOKS

    def hardware_file(self, node: str) -> Path:
        return self._cluster.node_paths(node).root / "hardware.yaml"

    def hardware_state(self, node: str) -> Path:
        """Return the folder with the state of the simulated cards."""
        return self._cluster.node_paths(node).root / "hardware"

    async def token(self, account: str, bound_to: Document | None) -> str:
        """Request a token of one of Kerf's service accounts, bound to an object as the kubelet binds it to a pod."""
        path = await self._api.path("v1", "ServiceAccount", NAMESPACE, account, "token")
        spec: Document = {"expirationSeconds": _TOKEN_S, "boundObjectRef": bound_to and _reference(bound_to)}
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
        answer = await self._api.request("POST", path, request)
        return str(answer["status"]["token"])

    async def plugin_pod(self, node: str, suffix: str = "") -> Document:
        """Create a pod on ``node`` with the plugin's service account, in place of the DaemonSet's, which needs an
        image."""
        name = f"{PLUGIN}-{node}{suffix}"
        pod: Document = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": {
                "nodeName": node,
                "serviceAccountName": PLUGIN,
                "automountServiceAccountToken": False,
                "terminationGracePeriodSeconds": 0,
                "tolerations": [{"operator": "Exists"}],
                "containers": [{"name": "stand-in", "image": IMAGE, "imagePullPolicy": "Never"}],
            },
        }
        return await self._api.find("v1", "Pod", name, NAMESPACE) or await self._api.create(pod)

    async def _surge(self, node: str) -> "_Plugin":
        """Start a plugin in a new pod, beside the present one."""
        pod = await self.plugin_pod(node, suffix=f"-{secrets.token_hex(2)}")
        process, probes = f"{node}-{pod['metadata']['name']}", f"127.0.0.1:{free_port()}"
        plugin = replace(self._plugins[node], process=process, bound_object=pod, probes=probes)
        await self._launch(node, plugin)
        await self._wait_ready(plugin.process, plugin.probes)
        return plugin

    async def _launch(self, node: str, plugin: "_Plugin") -> None:
        await self._token_file(plugin.process, PLUGIN, plugin.bound_object)
        self._start_process(node, plugin)

    def _start_process(self, node: str, plugin: "_Plugin") -> None:
        paths = self._cluster.node_paths(node)
        uid: str = plugin.bound_object["metadata"]["uid"]
        # The folders of these tests are longer than /var/lib/kubelet, and a socket's path has 107 bytes.
        instance = uid[:8] if self._hardware[node].intel_tiles else uid
        environment = {"NODE_NAME": node, "POD_UID": instance}
        usual = self._arguments(_PROFILE, environment, drop=("--probes-address", "--backend"))
        own = [
            f"--kubeconfig={self._cluster.paths.kubeconfig(plugin.process)}",
            *(f"--backend={name}={file}" for name, (file, _) in self._backends(node).items()),
            f"--kubelet-root={paths.kubelet}",
            f"--cdi-dir={paths.cdi}",
            f"--maintenance-hooks={self.hooks_folder(node)}",
            f"--probes-address={plugin.probes}",
            "--log-format=text",
        ]
        launcher = () if self._hardware[node].fpga_backend == SIMULATED else self.fpga_machine(node).launcher
        command = with_boot_id(paths, [*launcher, *_kerf([*usual, *own, *plugin.arguments])])
        self._processes.start(plugin.process, command)

    def _backends(self, node: str) -> Mapping[str, tuple[Path, Document]]:
        """Return the backends of a node by name, each with its configuration and the file of it."""
        hardware = self._hardware[node]
        if hardware.intel_tiles:
            file = self.hardware_file(node).with_name("intel.yaml")
            return {INTEL: (file, {"systemRoot": str(self._intel_folder(node))})}
        common = {"state": "hardware", "seed": node}
        if hardware.gpu_backend == SIMULATED:
            document = {**common, "cards": list(hardware.cards), **hardware.options}
            backends = {SIMULATED: (self.hardware_file(node), document)}
            if (fpga := hardware.fpga_backend) != SIMULATED:
                file = self.hardware_file(node).with_name(f"{fpga}.yaml")
                backends[fpga] = (file, dict(self.fpga_machine(node).configuration))
            return backends
        gpus = [_stand_in_row(row) for row in hardware.cards if row["kind"] == "gpu"]
        others = [row for row in hardware.cards if row["kind"] != "gpu"]
        mig_mode = hardware.options.get("migMode", "OnDemand")
        document = {"machine": _MACHINE, "cards": gpus, "migMode": mig_mode, "sharingFolder": _SHARING}
        backends = {NVIDIA_FAKE: (self.hardware_file(node).with_name("nvidia.yaml"), document)}
        if others:
            backends[SIMULATED] = (self.hardware_file(node), {**common, "cards": others})
        return backends

    def _start_fpga_machine(self, node: str, backend: str) -> None:
        """Make the stand-in of the node's FPGA card, unless it is there, and start its daemon."""
        if (node, backend) in self._fpga_machines:
            return
        machine = MACHINES[backend](self._cluster.node_paths(node).root / backend)
        self._fpga_machines[node, backend] = machine
        if machine.daemon:
            self._processes.start(f"{node}-{backend}-daemon", machine.daemon)

    def _intel_folder(self, node: str) -> Path:
        return self._cluster.node_paths(node).root / INTEL

    async def _token_file(self, user: str, account: str, bound_to: Document | None, *, server: str = "") -> Path:
        file = self._cluster.paths.root / f"{user}.token"
        file.write_text(await self.token(account, bound_to))
        return self._cluster.write_kubeconfig(user, {"tokenFile": str(file)}, server=server)

    def _arguments(
        self, workload: str, environment: Mapping[str, str], *, drop: Sequence[str], folder: str = "manifests"
    ) -> Sequence[str]:
        """Return the arguments of the manifest, without options for paths and ports inside a pod."""
        (found,) = (
            document
            for document in manifests(DEPLOY / folder)
            if document["kind"] in _WORKLOADS and document["metadata"]["name"] == workload
        )
        arguments: list[str] = found["spec"]["template"]["spec"]["containers"][0]["args"]
        for name, value in environment.items():
            arguments = [argument.replace(f"$({name})", value) for argument in arguments]
        return [argument for argument in arguments if argument.partition("=")[0] not in drop]

    async def _wait_for_kind(self) -> None:
        with anyio.fail_after(ready_s()):
            while True:
                crd = await self._api.get(
                    "apiextensions.k8s.io/v1", "CustomResourceDefinition", "resourceclasses.kerf.dev"
                )
                conditions = crd.get("status", {}).get("conditions", ())
                if any(one["type"] == "Established" and one["status"] == "True" for one in conditions):
                    return
                await anyio.sleep(_POLL_S)

    async def _wait_ready(self, process: str, address: str) -> None:
        said = "nothing"
        with anyio.move_on_after(ready_s()):
            async with aiohttp.ClientSession() as session:
                while True:
                    self._processes.pid(process)
                    try:
                        async with session.get(f"http://{address}/readyz") as response:
                            said = await response.text()
                            if response.status == 200:
                                return
                    except aiohttp.ClientError as error:
                        said = str(error)
                    await anyio.sleep(_POLL_S)
        raise NotReadyError(f"{process} is not ready, it says:\n{said}\n{self._processes.tail(process)}")


def manifests(folder: Path, left_out: Collection[str] = ()) -> Iterator[dict[str, Any]]:
    """Yield the documents of a folder's files, in the order in which kubectl applies them, without some files."""
    for file in sorted(file for file in folder.glob("*.yaml") if file.name not in left_out):
        yield from (document for document in yaml.load_all(file.read_text(), Loader=yaml.CSafeLoader) if document)


def _make_intel_machine(root: Path, tiles: Sequence[int]) -> None:
    """Make the files of a machine with a card for each number of tiles, in the order of their PCI addresses.

    The kernel's numbers of cards are in the opposite order, as they may be.
    """
    machine = IntelMachine(root)
    for number, count in enumerate(tiles):
        card = len(tiles) - 1 - number
        machine.add_card(
            card,
            f"0000:{3 + number:02x}:00.0",
            MAX_1550 if count > 1 else MAX_1100,
            tiles=count,
            render=128 + card,
            files={f"drm/card{card}/lmem_total_bytes": f"{48 * GIB}\n"},
        )


def _stand_in_row(row: Mapping[str, Any]) -> Document:
    """Return a row of simulated cards as the stand-in has it. Simulated cards of Ampere switch MIG mode at once, real
    ones and the stand-in's do not: there it is on.
    """
    is_on = gpu_model(row["model"]).architecture == "ampere"
    return {"model": row["model"], "count": row.get("count", 1), "mig": row.get("mig", is_on)}


def _kerf(arguments: Sequence[str]) -> list[str]:
    return [sys.executable, "-m", "kerf_dra.driver.cli", *arguments]


def _reference(value: Document) -> Document:
    metadata = value["metadata"]
    return {
        "apiVersion": value["apiVersion"],
        "kind": value["kind"],
        "name": metadata["name"],
        "uid": metadata["uid"],
    }


__all__ = [
    "CONTROLLER",
    "DEFAULT_HARDWARE",
    "DEPLOY",
    "NAMESPACE",
    "NVIDIA_FAKE",
    "PLUGIN",
    "SIMULATED",
    "Hardware",
    "Kerf",
    "manifests",
]
