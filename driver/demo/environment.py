"""Where the story is played: the embedded cluster, Kerf's programs beside it, and a view of what goes on."""

import json
import uuid
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import anyio
import yaml

from api.core.v1 import NAMESPACES, NODES, PODS, Pod
from api.errors import KerfError
from api.kerf.v1alpha1 import RESOURCE_CLASSES, ResourceClassObject
from api.model.base import JsonObject
from api.model.names import KERF_DRIVER
from api.wire import Kind
from driver.demo.observation import claim_report, container_report, nodes, pod_report, published, why_pending
from driver.demo.processes import Program, program
from driver.demo.report import ContainerReport, NodeReport, PodReport
from driver.demo.resources import packaged
from driver.demo.settings import DemoSettings
from driver.kube.discovery import ApiFeatures, discover
from driver.kube.http.client import Client
from driver.kube.http.config import load_access
from driver.kube.http.errors import NotFoundError
from driver.kube.informer import Informer
from driver.local.cluster import ClusterSettings, LocalCluster

_FIELD_MANAGER: Final = "kerf-demo"


class StageError(KerfError):
    """Something that the story needs did not come about."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """Where a demo keeps things, all below one folder. Socket paths end here: the folder's path must be short."""

    root: Path

    def node(self, name: str) -> Path:
        return self.root / name

    def hardware_config(self, node: str) -> Path:
        return self.node(node) / "cards.yaml"

    def state(self, node: str) -> Path:
        return self.node(node) / "state"

    def log(self, name: str) -> Path:
        return self.root / f"{name}.log"


class Stage:
    """A running cluster. Made by ``open_stage``."""

    def __init__(
        self, settings: DemoSettings, places: Places, cluster: LocalCluster, client: Client, api: ApiFeatures
    ) -> None:
        self.settings = settings
        self.places = places
        self.cluster = cluster
        self.programs: list[Program] = []
        self._running = AsyncExitStack()
        self._client = client
        self._api = api
        self._changed = anyio.Event()
        self.pods = Informer(client, PODS, on_change=self._on_change)
        self.nodes = Informer(client, NODES, on_change=self._on_change)
        self.claims = Informer(client, api.resource.resource_claims, on_change=self._on_change)
        self.slices = Informer(client, api.resource.resource_slices, on_change=self._on_change)
        self.classes = Informer(client, RESOURCE_CLASSES, on_change=self._on_change)
        self.device_classes = Informer(client, api.resource.device_classes, on_change=self._on_change)
        self.informers: Sequence[Informer[Any]] = (
            self.pods,
            self.nodes,
            self.claims,
            self.slices,
            self.classes,
            self.device_classes,
        )
        self._kinds: dict[str, Kind[Any]] = {
            "Namespace": NAMESPACES,
            "ResourceClass": RESOURCE_CLASSES,
            "DeviceClass": api.resource.device_classes,
            "ResourceClaimTemplate": api.resource.resource_claim_templates,
            "ResourceClaim": api.resource.resource_claims,
            "Pod": PODS,
        }

    async def start_program(self, name: str, arguments: Sequence[str]) -> None:
        """Start ``kerf ARGUMENTS``; it is watched until ``stop_programs``."""
        running = await self._running.enter_async_context(program(name, arguments, self.places.log(name)))
        self.programs.append(running)

    async def stop_programs(self) -> None:
        """End Kerf's programs in an orderly way, before what they left is looked at."""
        await self._running.aclose()

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
        """Wait until ``is_true``, which is asked after every change; None: as long as the settings allow.

        Raises StageError when the time is up, and ProgramDiedError.
        """
        seconds = self.settings.step_timeout_s if timeout_s is None else timeout_s
        with anyio.move_on_after(seconds) as scope:
            while True:
                changed = self._changed
                on_change()
                if is_true():
                    return
                for running in self.programs:
                    running.check()
                with anyio.move_on_after(1.0):  # a program's end changes nothing that is watched
                    await changed.wait()
        if scope.cancelled_caught:
            waiting = [f"  pod {ref}: {why}" for ref, why in self.waiting().items()]
            raise StageError("\n".join([f"after {seconds:.0f} s there is still no sign of {what}", *waiting]))

    def waiting(self, names: Collection[str] | None = None) -> dict[str, str]:
        """The pods, or those of ``names`` ("namespace/name"), without a node, with what the scheduler says of them."""
        said = {str(pod.ref): why_pending(pod) for pod in self.pods.store.values()}
        return {ref: why for ref, why in said.items() if why and (names is None or ref in names)}

    async def apply(self, objects: Iterable[JsonObject]) -> None:
        """Create or change objects, in order. Raises ApiError."""
        for body in objects:
            kind = self._kinds[body["kind"]]
            metadata = dict(body["metadata"])
            if kind.namespaced:
                metadata.setdefault("namespace", "default")
            await self._client.apply(kind, {**body, "metadata": metadata}, field_manager=_FIELD_MANAGER)

    async def delete(self, objects: Iterable[JsonObject]) -> None:
        """Delete objects, the last first; those that are gone are fine."""
        for body in reversed(list(objects)):
            kind, metadata = self._kinds[body["kind"]], body["metadata"]
            namespace = metadata.get("namespace", "default") if kind.namespaced else ""
            try:
                await self._client.delete(kind, metadata["name"], namespace)
            except NotFoundError:
                continue

    def resource_classes(self, names: Collection[str]) -> Callable[[], list[ResourceClassObject]]:
        """The ResourceClasses of these names, as they are at each call."""
        return lambda: [class_ for class_ in self.classes.store.values() if class_.metadata.name in names]

    def node_reports(self) -> tuple[NodeReport, ...]:
        return nodes(slice_ for slice_ in self.slices.store.values() if slice_.spec.driver == KERF_DRIVER)

    def pod_reports(self) -> list[PodReport]:
        """Every pod as it is now, by age and name."""
        devices = published(self.slices.store.values())
        pods = sorted(self.pods.store.values(), key=lambda pod: (pod.metadata.creation_timestamp or "", pod.ref))
        return [self._pod_report(pod, devices) for pod in pods]

    def _pod_report(self, pod: Pod, devices: Any) -> PodReport:  # noqa: ANN401
        kubelet = self.cluster.kubelets.get(pod.spec.node_name)
        prepared = {ref.uid: parts for ref, parts in kubelet.prepared(pod).items()} if kubelet else {}
        claims = [
            claim_report(
                claim,
                dict.fromkeys(id_ for device in prepared.get(claim.metadata.uid, ()) for id_ in device.cdi_ids),
                devices,
            )
            for name in pod.claim_names().values()
            for claim in self.claims.store.values()
            if claim.ref == (pod.metadata.namespace, name)
        ]
        return pod_report(pod, claims, self._containers(pod))

    def _containers(self, pod: Pod) -> list[ContainerReport]:
        if not pod.spec.node_name:
            return []
        root = self.cluster.kubelet_root(pod.spec.node_name) / "containers" / pod.metadata.uid
        bundles = [(container.name, root / container.name / "config.json") for container in pod.spec.containers]
        return [container_report(name, json.loads(file.read_text())) for name, file in bundles if file.exists()]


@asynccontextmanager
async def open_stage(settings: DemoSettings, root: Path) -> AsyncIterator[Stage]:
    """The cluster and Kerf's programs, running; ended in reverse order on exit."""
    places = Places(root=root)
    crds = [yaml.safe_load(file.read_text()) for file in sorted(packaged("crds").glob("*.yaml"))]
    cluster = LocalCluster(
        ClusterSettings(root=root, nodes=settings.node_names, crds=crds),
        share_id=lambda: str(uuid.uuid4()),
        boot_id=lambda: str(uuid.uuid4()),
    )
    for node in settings.node_names:
        write_hardware(settings, places, node)
    async with anyio.create_task_group() as tasks:
        await tasks.start(cluster.run)
        async with AsyncExitStack() as stack:
            access = await load_access(cluster.kubeconfig)
            client = await stack.enter_async_context(Client(access, user_agent="kerf-demo"))
            stage = Stage(settings, places, cluster, client, await discover(client))
            await stage.apply([{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kerf-system"}}])
            stack.push_async_callback(stage.stop_programs)
            for name, arguments in programs(settings, places, cluster):
                await stage.start_program(name, arguments)
            for informer in stage.informers:
                tasks.start_soon(informer.run)
            for informer in stage.informers:
                await informer.wait_synced()
            yield stage
        tasks.cancel_scope.cancel()


def programs(settings: DemoSettings, places: Places, cluster: LocalCluster) -> Iterable[tuple[str, list[str]]]:
    """The command lines, with the flags that a Deployment and a DaemonSet would have."""
    common = ["--kubeconfig", str(cluster.kubeconfig), "--probes-address", "127.0.0.1:0", "--log-format", "text"]
    yield "controller", ["controller", *common]
    for node in settings.node_names:
        yield (
            f"kubelet-plugin-{node}",
            [
                "kubelet-plugin",
                *common,
                *("--node-name", node),
                *("--backend", f"simulated={places.hardware_config(node)}"),
                *("--kubelet-root", str(cluster.kubelet_root(node))),
                *("--state-dir", str(places.state(node))),
                *("--cdi-dir", str(cluster.cdi_dir(node))),
                *("--publish-min-interval", "0.3"),
            ],
        )


def write_hardware(settings: DemoSettings, places: Places, node: str) -> None:
    places.node(node).mkdir(parents=True)
    cards: list[JsonObject] = []
    if settings.gpus:
        cards.append({"kind": "gpu", "model": settings.gpu_model.id, "count": settings.gpus})
    if settings.fpgas:
        cards.append({"kind": "fpga", "shell": settings.shell.name, "count": settings.fpgas})
    document = {"state": "hardware", "seed": node, "cards": cards}
    places.hardware_config(node).write_text(yaml.safe_dump(document, sort_keys=False))
