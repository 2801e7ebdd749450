"""The environment of a demo: the embedded cluster, Kerf's programs as processes, and caches of its objects."""

import json
import uuid
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, Final, TypeVar

import anyio

from kerf_dra.api.core.v1 import NAMESPACES, NODES, PODS, Pod
from kerf_dra.api.core.workloads import WORKLOADS
from kerf_dra.api.errors import KerfError
from kerf_dra.api.kerf.device_status import IDLE_SINCE
from kerf_dra.api.kerf.discovery_objects import DISCOVERED_DEVICES, DISCOVERY_CONFIGURATIONS
from kerf_dra.api.kerf.fpga_objects import FPGA_IMAGES, FPGA_SHELLS
from kerf_dra.api.kerf.v1alpha1 import RESOURCE_CLASSES, ResourceClassObject
from kerf_dra.api.model.base import JsonObject
from kerf_dra.api.model.claims import ResourceClaim
from kerf_dra.api.model.metadata import Object
from kerf_dra.api.model.names import ObjectRef
from kerf_dra.api.model.quantity import Quantity
from kerf_dra.api.resource.v1 import KINDS
from kerf_dra.api.wire import Kind, identity_kind
from kerf_dra.driver.allocation.pools.interned_slices import InternedSlices
from kerf_dra.driver.demo.hardware import DemoHardware, FoundHardware, ManifestHardware
from kerf_dra.driver.demo.observation import (
    CardState,
    build_card_states,
    build_claim_report,
    build_container_report,
    build_discovered_devices,
    build_node_reports,
    build_pod_report,
    find_owners,
    find_pending_reason,
    list_published_devices,
)
from kerf_dra.driver.demo.processes import Program, run_program
from kerf_dra.driver.demo.report import (
    ContainerReport,
    DiscoveredDeviceReport,
    LeftoverReport,
    NodeReport,
    PodReport,
)
from kerf_dra.driver.families.fpga.shell import Shell
from kerf_dra.driver.families.gpu.model import GpuModel
from kerf_dra.driver.families.registry import installed_families
from kerf_dra.driver.families.selectors import build_device_class
from kerf_dra.driver.families.shared.objects import name_class
from kerf_dra.driver.kube.http.client import Client
from kerf_dra.driver.kube.http.config import load_access
from kerf_dra.driver.kube.http.errors import NotFoundError
from kerf_dra.driver.kube.informer import Informer
from kerf_dra.driver.kubeletplugin.backends.registry import BackendChoice
from kerf_dra.driver.kubeletplugin.claims.checkpoint.checkpoint import open_checkpoint
from kerf_dra.driver.local.cluster import ClusterSettings, LocalCluster
from kerf_dra.driver.partitions.device_names import parse_device_name
from kerf_dra.driver.runtime.boot import read_boot_id
from kerf_dra.driver.runtime.documents.yaml_file import parse_manifests
from kerf_dra.driver.scheduling.ineffective_fields import find_ineffective_fields
from kerf_dra.driver.scheduling.size_notes import PublishedSizes

_FIELD_MANAGER: Final = "kerf-demo"
_KINDS: Final[Mapping[str, Kind[Any]]] = {
    "Namespace": NAMESPACES,
    **{kind.kind: kind for kind in (FPGA_SHELLS, FPGA_IMAGES, DISCOVERY_CONFIGURATIONS)},
    "ResourceClass": RESOURCE_CLASSES,
    "DeviceClass": KINDS.device_classes,
    "ResourceClaimTemplate": KINDS.resource_claim_templates,
    "ResourceClaim": KINDS.resource_claims,
    "Pod": PODS,
    **{kind.kind: kind for kind in WORKLOADS},
    **{
        kind: identity_kind(Object, group="", version="v1", plural=f"{kind.lower()}s", namespaced=True, kind=kind)
        for kind in ("ConfigMap", "Secret", "Service", "ServiceAccount")
    },
}
_DEPLOY: Final = "deploy"
_NO_AMOUNT: Final = Quantity(0)
"""What a node has of a resource that it does not list."""

DemoT = TypeVar("DemoT", bound="DemoCluster")


class WaitTimeoutError(KerfError):
    """Something that the scenario needs did not happen in time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoSettings:
    """The settings of a demo."""

    files: tuple[Path, ...]
    """The user's own manifests; empty: the examples and the whole scenario."""
    nodes: int
    gpu_model: GpuModel
    gpus: int
    """GPUs of each node."""
    shell: Shell
    fpgas: int
    """FPGAs of each node."""
    keep: bool
    """Whether the cluster stays up after the scenario until interrupted."""
    verbose: bool
    """Whether the paths of the programs' log files are shown."""
    backends: tuple[BackendChoice, ...] = ()
    """The user's backends, in place of simulated cards."""
    families: tuple[str, ...] = ()
    """The families that the user has chosen; empty: all that have one of the backends."""
    of_manifests: ManifestHardware = ManifestHardware()  # noqa: RUF009  (frozen)
    """The hardware that the user's manifests describe or need."""
    step_timeout_s: float = 120.0
    """Longest wait for any one event: on a loaded machine forty times what it takes."""

    @property
    def hardware(self) -> DemoHardware:
        """What is on every node."""
        cards: list[JsonObject] = []
        if self.gpus:
            cards.append({"kind": "gpu", "model": self.gpu_model.id, "count": self.gpus})
        for shell in (self.of_manifests.shells or (self.shell.name,)) if self.fpgas else ():
            cards.append({"kind": "fpga", "shell": shell, "count": self.fpgas})
        return DemoHardware(
            cards=tuple(cards), backends=self.backends, families=self.families, of_manifests=self.of_manifests
        )

    @property
    def node_names(self) -> tuple[str, ...]:
        return tuple(f"node-{number}" for number in range(1, self.nodes + 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoPaths:
    """The files of a demo, all below one folder, whose path must be short: unix sockets lie in it."""

    root: Path

    def node(self, name: str) -> Path:
        return self.root / name

    def hardware(self, node: str) -> Path:
        return self.node(node) / "hardware"

    def state(self, node: str) -> Path:
        return self.node(node) / "state"

    def log(self, name: str) -> Path:
        return self.root / f"{name}.log"


class DemoCluster:
    """A running embedded cluster with Kerf's programs. ``open_demo_cluster`` makes it."""

    kinds: Mapping[str, Kind[Any]]
    """The kinds that ``apply`` and ``delete`` know, by name."""

    def __init__(self, settings: DemoSettings, root: Path, cluster: LocalCluster, client: Client) -> None:
        self.settings = settings
        self.paths = DemoPaths(root=root)
        self.cluster = cluster
        self.client = client
        self.families = settings.hardware.find_families()
        """The families whose drivers run on the nodes."""
        self.programs: list[Program] = []
        self.backends: Mapping[str, tuple[BackendChoice, ...]] = {}
        """The backends of each node."""
        self.found_hardware = FoundHardware(drivers=frozenset())
        """What these have."""
        self._running = AsyncExitStack()

    async def start_programs(self) -> None:
        """Start the controller and a kubelet plugin for each node."""
        for name, arguments in self._command_lines():
            await self.start_program(name, arguments)

    async def start_reclaimer(self) -> None:
        """Start the reclaimer, which drains ill cards and has them reset."""
        arguments = ["controller", *self._common_arguments, "--reclaim", "--reclaim-mode", "Act"]
        await self.start_program("reclaimer", arguments)

    @property
    def drivers(self) -> frozenset[str]:
        """The names of the drivers that run on the nodes."""
        return frozenset(family.driver for family in self.families)

    async def start_program(self, name: str, arguments: Sequence[str]) -> None:
        """Start ``kerf ARGUMENTS``; it is checked until ``stop_programs``."""
        running = run_program(name, arguments, self.paths.log(name))
        self.programs.append(await self._running.enter_async_context(running))

    def check_programs(self) -> None:
        """Raise ProgramDiedError when one of the programs has ended."""
        for running in self.programs:
            running.check()

    async def stop_programs(self) -> None:
        """Stop Kerf's programs in reverse order."""
        await self._running.aclose()

    async def apply(self, objects: Iterable[JsonObject]) -> None:
        """Create or change objects, in order. Raises ApiError when a call fails."""
        for body in objects:
            kind, metadata = self.kinds[body["kind"]], dict(body["metadata"])
            if kind.namespaced:
                metadata.setdefault("namespace", "default")
            await self.client.apply(kind, {**body, "metadata": metadata}, field_manager=_FIELD_MANAGER)

    async def delete(self, objects: Iterable[JsonObject]) -> None:
        """Delete objects, the last first; those that do not exist are ignored."""
        for body in reversed(list(objects)):
            kind, metadata = self.kinds[body["kind"]], body["metadata"]
            namespace = metadata.get("namespace", "default") if kind.namespaced else ""
            try:
                await self.client.delete(kind, metadata["name"], namespace)
            except NotFoundError:
                continue

    def count_node_leftovers(self, node: str) -> LeftoverReport:
        """Count what is left of claims on a node's disk. The programs must have ended: a checkpoint has one owner."""
        cdi_dir = self.cluster.cdi_dir(node)
        records, boot_id = 0, read_boot_id()
        for family in self.families:
            with open_checkpoint(self.paths.state(node) / family.driver, boot_id=boot_id) as checkpoint:
                records += len(checkpoint.records)
        return LeftoverReport(
            partitions=self.settings.hardware.count_partitions(self.backends[node]),
            cdi_files=len(list(cdi_dir.iterdir())) if cdi_dir.is_dir() else 0,
            checkpoint_records=records,
            claims=0,
        )

    def container_reports(self, pod: Pod) -> list[ContainerReport]:
        """Return what each container of a pod sees that has started; init containers are the last."""
        if not pod.spec.node_name:
            return []
        root = self.cluster.kubelet_root(pod.spec.node_name) / "containers" / pod.metadata.uid
        containers = (*pod.spec.containers, *pod.spec.init_containers)
        bundles = [(container.name, root / container.name / "config.json") for container in containers]
        return [build_container_report(name, json.loads(file.read_text())) for name, file in bundles if file.exists()]

    def prepared_cdi_ids(self, pod: Pod) -> dict[str, list[str]]:
        """Return the CDI devices that drivers have prepared for a pod, by the UID of the claim."""
        kubelet = self.cluster.kubelets.get(pod.spec.node_name)
        prepared = kubelet.prepared(pod) if kubelet else {}
        return {
            ref.uid: [*dict.fromkeys(id_ for device in parts for id_ in device.cdi_ids)]
            for ref, parts in prepared.items()
        }

    @property
    def _common_arguments(self) -> Sequence[str]:
        return ("--kubeconfig", str(self.cluster.kubeconfig), "--probes-address", "127.0.0.1:0", "--log-format", "text")

    def _command_lines(self) -> Iterable[tuple[str, list[str]]]:
        """Yield name and arguments of each program, with the flags that a Deployment and a DaemonSet would have."""
        cluster, paths, common = self.cluster, self.paths, self._common_arguments
        yield "controller", ["controller", *common]
        for node in self.settings.node_names:
            yield (
                f"kubelet-plugin-{node}",
                [
                    "kubelet-plugin",
                    *common,
                    *("--node-name", node),
                    *(text for choice in self.backends[node] for text in ("--backend", str(choice))),
                    *(text for family in self.settings.hardware.chosen_families for text in ("--family", family)),
                    *("--kubelet-root", str(cluster.kubelet_root(node))),
                    *("--state-dir", str(paths.state(node))),
                    *("--device-plugins-dir", str(cluster.device_plugins_dir(node))),
                    *("--cdi-dir", str(cluster.cdi_dir(node))),
                    *("--publish-min-interval", "0.3"),
                    *("--sample-interval", "1", "--idle-after", "1"),  # a demo takes seconds, where clusters take days
                ],
            )


@asynccontextmanager
async def open_demo_cluster(
    build: Callable[[DemoSettings, Path, LocalCluster, Client], DemoT],
    settings: DemoSettings,
    root: Path,
    *,
    classic: bool = False,
) -> AsyncIterator[DemoT]:
    """Run the cluster that ``build`` makes, with Kerf's programs; all are stopped in reverse order on exit.

    Raises HardwareUnusableError for backends that cannot be used, before anything has started.
    """
    paths = DemoPaths(root=root)
    backends = {node: settings.hardware.write(paths.hardware(node), node) for node in settings.node_names}
    found = settings.hardware.check(backends[settings.node_names[0]])
    crds = [
        document
        for file in sorted(find_packaged_folder("crds").glob("*.yaml"))
        for document in parse_manifests(file.read_text())
    ]
    cluster = LocalCluster(
        ClusterSettings(root=root, nodes=settings.node_names, crds=crds, classic=classic),
        share_id=lambda: str(uuid.uuid4()),
        boot_id=lambda: str(uuid.uuid4()),
    )
    async with anyio.create_task_group() as tasks:
        await tasks.start(cluster.run)
        async with AsyncExitStack() as stack:
            access = await load_access(cluster.kubeconfig)
            client = await stack.enter_async_context(Client(access, user_agent=_FIELD_MANAGER))
            demo = build(settings, root, cluster, client)
            demo.backends = backends
            demo.found_hardware = found
            namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kerf-system"}}
            families = () if classic else installed_families().values()
            classes = [KINDS.device_classes.encode(build_device_class(family)) for family in families]
            await demo.apply([namespace, *classes, *settings.of_manifests.descriptions])
            stack.push_async_callback(demo.stop_programs)
            await demo.start_programs()
            yield demo
        tasks.cancel_scope.cancel()


def find_packaged_folder(folder: str) -> Path:
    """Find ``deploy/<folder>``: beside the code in an installed wheel, at the root of a checkout."""
    code = Path(str(resources.files("kerf_dra.driver"))).resolve()
    inside = code / _DEPLOY / folder
    return inside if inside.is_dir() else code.parent / _DEPLOY / folder


class DemoEnvironment(DemoCluster):
    """A demo cluster with caches of its objects. ``open_environment`` makes it."""

    kinds = _KINDS

    def __init__(self, settings: DemoSettings, root: Path, cluster: LocalCluster, client: Client) -> None:
        super().__init__(settings, root, cluster, client)
        self._changed = anyio.Event()
        self.pods = Informer(client, PODS, on_change=self._on_change)
        self.nodes = Informer(client, NODES, on_change=self._on_change)
        self.claims = Informer(client, KINDS.resource_claims, on_change=self._on_change)
        self.slices = Informer(client, KINDS.resource_slices, on_change=self._on_change)
        self.classes = Informer(client, RESOURCE_CLASSES, on_change=self._on_change)
        self.device_classes = Informer(client, KINDS.device_classes, on_change=self._on_change)
        self.discovered = Informer(client, DISCOVERED_DEVICES, on_change=self._on_change)
        self.informers: Sequence[Informer[Any]] = (
            self.pods,
            self.nodes,
            self.claims,
            self.slices,
            self.classes,
            self.device_classes,
            self.discovered,
        )

    def _on_change(self, _: object) -> None:
        self._changed.set()
        self._changed = anyio.Event()

    async def wait_for(
        self,
        what: str,
        is_true: Callable[[], bool],
        on_change: Callable[[], None] = lambda: None,
        timeout_s: float | None = None,
    ) -> None:
        """Wait until ``is_true``, which is called after every change of a cache; ``what`` names it in the error.

        Raises WaitTimeoutError after ``timeout_s`` (None: ``settings.step_timeout_s``), ProgramDiedError when one of
        Kerf's programs ends.
        """
        seconds = self.settings.step_timeout_s if timeout_s is None else timeout_s
        with anyio.move_on_after(seconds) as scope:
            while True:
                changed = self._changed
                on_change()
                if is_true():
                    return
                self.check_programs()
                with anyio.move_on_after(1.0):  # no cache shows the end of a program
                    await changed.wait()
        if scope.cancelled_caught:
            waiting = [f"  pod {ref}: {why}" for ref, why in self.waiting().items()]
            raise WaitTimeoutError("\n".join([f"timed out after {seconds:.0f} s waiting for {what}", *waiting]))

    async def wait_changed(self, at_most_s: float) -> None:
        """Wait until a cache changes, or so many seconds. Raises ProgramDiedError when one of Kerf's programs ends."""
        changed = self._changed
        self.check_programs()
        with anyio.move_on_after(at_most_s):
            await changed.wait()

    def waiting(self, names: Collection[str] | None = None) -> dict[str, str]:
        """Return the scheduler's reason for each pending pod of ``names`` ("namespace/name"), None: of all pods."""
        said = {str(pod.ref): find_pending_reason(pod) for pod in self.pods.store.values()}
        return {ref: why for ref, why in said.items() if why and (names is None or ref in names)}

    def count_leftovers(self) -> LeftoverReport:
        """Count what is left of claims in the cluster and on the nodes' disks, once the programs have ended."""
        nodes = [self.count_node_leftovers(node) for node in self.settings.node_names]
        return LeftoverReport(
            partitions=sum(node.partitions for node in nodes),
            cdi_files=sum(node.cdi_files for node in nodes),
            checkpoint_records=sum(node.checkpoint_records for node in nodes),
            claims=len(self.claims.store.values()),
        )

    def resource_classes(self, names: Collection[str]) -> Callable[[], list[ResourceClassObject]]:
        """Return a function that returns the ResourceClasses of these names as they are at each call."""
        return lambda: [class_ for class_ in self.classes.store.values() if class_.metadata.name in names]

    def node_reports(self) -> tuple[NodeReport, ...]:
        """Report the nodes with their cards. Devices that nodes have found by discovery are of no node."""
        slices = (slice_ for slice_ in self.slices.store.values() if slice_.spec.node_name)
        return build_node_reports(slice_ for slice_ in slices if slice_.spec.driver in self.drivers)

    def discovered_devices(self) -> tuple[DiscoveredDeviceReport, ...]:
        """Return the devices that nodes have found by discovery, and that claims can get, with their users."""
        return build_discovered_devices(self.discovered.store.values(), self.slices.store.values(), self.pod_reports())

    def can_claim(self, expected: Mapping[str, Collection[str]]) -> bool:
        """Whether these nodes see the discovered devices, each by its name, and claims can get all of the devices."""
        seen = {one.metadata.name: one.spec.get("nodes") or () for one in self.discovered.store.values()}
        published = {slice_.spec.pool.name for slice_ in self.slices.store.values()}
        classes = {class_.metadata.name for class_ in self.device_classes.store.values()}
        return all(
            name in published and name_class(name) in classes and {*nodes} <= {*seen.get(name, ())}
            for name, nodes in expected.items()
        )

    def owners(self, pod: PodReport) -> set[tuple[str, str]]:
        """Return kind and name of each object that has made the pod, its ReplicaSet's Deployment among them."""
        found = self.pods.store.get(ObjectRef(pod.namespace, pod.name))
        return set(find_owners(found)) if found else set()

    def describe_failure(self, pod: PodReport) -> str:
        """Return why a pod has failed, as its kubelet says."""
        found = self.pods.store.get(ObjectRef(pod.namespace, pod.name))
        said = [found.status.reason, found.status.message] if found else []
        return ": ".join(filter(None, said)) or "its status does not say why"

    def find_warnings(self, pod: PodReport) -> list[str]:
        """Return what the pod and its claims have that is legal and has no effect."""
        found = self.pods.store.get(ObjectRef(pod.namespace, pod.name))
        if found is None:
            return []
        drivers = {slice_.spec.driver for slice_ in self.slices.store.values()}
        return [*find_ineffective_fields(found, self._find_claims(found), drivers)]

    def find_notes(self, pod: PodReport) -> list[str]:
        """Return which sizes the pod's claims have got that are hardly meant."""
        found = self.pods.store.get(ObjectRef(pod.namespace, pod.name))
        if found is None:
            return []
        claims = self._find_claims(found)
        sizes = PublishedSizes(InternedSlices.of(tuple(self.slices.store.values())))
        classes = {class_.metadata.name: class_ for class_ in self.device_classes.store.values()}
        notes = (f"claim {entry}, {text}" for entry, each in claims.items() for text in sizes.find_notes(each, classes))
        return [*notes, *sizes.find_container_notes(found, claims)]

    def _find_claims(self, pod: Pod) -> dict[str, ResourceClaim]:
        """Return the claims that the pod has, by the name of their entry."""
        refs = {entry: ObjectRef(pod.metadata.namespace, name) for entry, name in pod.claim_names().items()}
        return {entry: claim for entry, ref in refs.items() if (claim := self.claims.store.get(ref))}

    def find_idle_since(self, pod: PodReport) -> str:
        """Return since when a device of the pod's claims is idle, as their status says; empty: it does not."""
        names = {ObjectRef(pod.namespace, claim.name) for claim in pod.claims}
        reports = [each for claim in self.claims.store.values() if claim.ref in names for each in claim.status.devices]
        return next((str(each.data[IDLE_SINCE]) for each in reports if each.data and IDLE_SINCE in each.data), "")

    def is_ending(self, pod: PodReport) -> bool:
        """Whether a pod is being deleted, or has gone."""
        found = self.pods.store.get(ObjectRef(pod.namespace, pod.name))
        return found is None or found.is_terminating

    def is_tainted(self, node: str, card: str) -> bool:
        """Whether a device of a card is published with a taint."""
        return any(
            device.taints and (parts := parse_device_name(device.name)) is not None and parts.card == card
            for slice_ in self.slices.store.values()
            if slice_.spec.node_name == node
            for device in slice_.spec.devices
        )

    def card_states(self) -> tuple[CardState, ...]:
        """Return the cards of the nodes' drivers as their pods use them now."""
        slices = (slice_ for slice_ in self.slices.store.values() if slice_.spec.driver in self.drivers)
        return build_card_states(slices, self.pod_reports())

    def list_shortages(self, offers: Mapping[str, int]) -> list[str]:
        """Return a sentence for each node that has less of an extended resource than ``offers`` says."""
        found = [
            (node.metadata.name, int(node.status.allocatable.get(resource, _NO_AMOUNT)), wanted, resource)
            for node in sorted(self.nodes.store.values(), key=lambda node: node.metadata.name)
            for resource, wanted in offers.items()
        ]
        return [
            f"{node} offers {has} of {wanted} {resource}: its event ResourceNotOffered says why (kubectl describe node "
            f"{node})"
            for node, has, wanted, resource in found
            if has < wanted
        ]

    def were_listed(self, refs: Collection[str]) -> bool:
        """Whether plugins know what each of these pods has by the device plugin interface, those that have anything."""
        pods = [pod for pod in self.pods.store.values() if str(pod.ref) in refs]
        kubelets = [(self.cluster.kubelets.get(pod.spec.node_name), pod) for pod in pods]
        return all(
            kubelet.was_listed(pod)
            for kubelet, pod in kubelets
            if kubelet is not None and kubelet.extended_devices(pod)
        )

    def has_offers(self) -> bool:
        """Whether a ResourceClass offers an extended resource by the device plugin interface."""
        return any(class_.spec.get("devicePlugin") for class_ in self.classes.store.values())

    def list_cdi_files(self) -> list[Path]:
        """Return the CDI files of all nodes: what is prepared has one."""
        folders = [self.cluster.cdi_dir(node) for node in self.settings.node_names]
        return [file for folder in folders if folder.is_dir() for file in folder.iterdir()]

    def have_all_published(self) -> bool:
        """Whether every node publishes its cards; of the user's backends, some of each family that has any."""
        if self.settings.backends:
            slices = self.slices.store.values()
            published = {(slice_.spec.node_name, slice_.spec.driver) for slice_ in slices if slice_.spec.devices}
            drivers = self.found_hardware.drivers
            is_published = published >= {(node, driver) for node in self.settings.node_names for driver in drivers}
            return is_published and self._have_all_registered()
        expected = self.settings.hardware.count_cards()
        complete = [node for node in self.node_reports() if len(node.cards) == expected]
        return len(complete) == self.settings.nodes and self._have_all_registered()

    def _have_all_registered(self) -> bool:
        """Whether every node has the drivers of all families, of which some publish nothing."""
        kubelets = [self.cluster.kubelets[node] for node in self.settings.node_names]
        return all(kubelet.plugins.get(driver) is not None for kubelet in kubelets for driver in self.drivers)

    def pod_reports(self) -> list[PodReport]:
        """Return every pod as it is now, in order of age and name."""
        devices = list_published_devices(self.slices.store.values())
        pods = sorted(self.pods.store.values(), key=lambda pod: (pod.metadata.creation_timestamp or "", pod.ref))
        return [self._pod_report(pod, devices) for pod in pods]

    def _pod_report(self, pod: Pod, devices: Any) -> PodReport:  # noqa: ANN401
        prepared = self.prepared_cdi_ids(pod)
        claims = [
            build_claim_report(claim, prepared.get(claim.metadata.uid, ()), devices)
            for name in pod.all_claim_names
            for claim in self.claims.store.values()
            if claim.ref == (pod.metadata.namespace, name)
        ]
        kubelet = self.cluster.kubelets.get(pod.spec.node_name)
        extended = kubelet.extended_devices(pod) if kubelet else {}
        return build_pod_report(pod, claims, self.container_reports(pod), extended)


@asynccontextmanager
async def open_environment(settings: DemoSettings, root: Path) -> AsyncIterator[DemoEnvironment]:
    """Run a demo cluster whose caches are synced."""
    async with (
        open_demo_cluster(DemoEnvironment, settings, root) as environment,
        anyio.create_task_group() as tasks,
    ):
        for informer in environment.informers:
            tasks.start_soon(informer.run)
        for informer in environment.informers:
            await informer.wait_synced()
        yield environment
        tasks.cancel_scope.cancel()
