"""The story where drivers allocate: an embedded Kubernetes 1.30, Kerf's programs, pods with classic claims.

Shorter than that of today's clusters: the controller starts and takes its place, pods get what they ask for, one too
many wants to share a claim, the controller is killed in the middle, everything is given back.
"""

import uuid
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import anyio
import yaml

from api.core.v1 import EVENTS, NAMESPACES, PODS
from api.kerf.classic_parameters import CLAIM_PARAMETERS, CLASS_PARAMETERS
from api.kerf.node_inventory import NODE_INVENTORIES
from api.kerf.v1alpha1 import API_VERSION, GROUP
from api.model.base import JsonObject
from api.model.classic import ClassicClaim
from api.model.metadata import Object
from api.model.names import KERF_DRIVER
from api.resource import v1alpha2
from api.wire import Kind, identity_kind
from driver.demo.environment import Places, StageError, programs, write_hardware
from driver.demo.processes import Program, program
from driver.demo.resources import packaged
from driver.demo.settings import DemoSettings
from driver.kube.http.client import Client
from driver.kube.http.config import load_access
from driver.kube.http.errors import NotFoundError
from driver.kubeletplugin.backends.simulated import open_backend
from driver.kubeletplugin.claims.checkpoint import open_checkpoint
from driver.local.cluster import ClusterSettings, LocalCluster

_POLICIES: Final = tuple(
    identity_kind(
        Object, group="admissionregistration.k8s.io", version="v1", plural=plural, namespaced=False, kind=kind
    )
    for kind, plural in (
        ("ValidatingAdmissionPolicy", "validatingadmissionpolicies"),
        ("ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings"),
    )
)
_APPLIED: Final[tuple[Kind[Any], ...]] = (
    *_POLICIES,
    NAMESPACES,
    PODS,
    v1alpha2.KINDS.claims,
    v1alpha2.KINDS.templates,
    v1alpha2.KINDS.classes,
    *CLASS_PARAMETERS,
    *CLAIM_PARAMETERS,
)
_RESOURCE: Final = v1alpha2.KINDS.claims.api_version
_KINDS: Final[dict[str, Kind[Any]]] = {kind.kind: kind for kind in _APPLIED}
_POLL_S: Final = 0.1
_FIELD_MANAGER: Final = "kerf-demo"


@dataclass(slots=True)
class ClassicStory:
    """One telling. ``say`` is given the lines for people."""

    settings: DemoSettings
    places: Places
    cluster: LocalCluster
    client: Client
    say: Callable[[str], None]
    running: dict[str, Program]
    stack: AsyncExitStack

    async def tell(self) -> None:
        """Raises StageError where something does not come about, and ProgramDiedError."""
        self.say(f"an embedded Kubernetes 1.30 in which drivers allocate; kubeconfig {self.cluster.kubeconfig}")
        await self._until("every node has told of its cards", self._inventories)
        self.say(f"{self.settings.nodes} nodes have told of their cards (kubectl get nodeinventories)")
        examples, policy = packaged("examples") / "classic", packaged("classic") / "sharing-policy.yaml"
        await self.apply(_documents(policy))
        self.say(f"applied {policy}")
        documents = [one for file in sorted(examples.glob("*.yaml")) for one in _documents(file)]
        await self.apply(documents)
        pods = [one["metadata"]["name"] for one in documents if one["kind"] == "Pod"]
        self.say(f"applied {examples}: {len(pods)} pods")
        await self._until(f"all of {', '.join(pods)} run", lambda: self._run(pods))
        await self._show()
        await self._crowd_a_claim()
        await self._kill_the_controller()
        await self._delete(documents)
        await self._until("every claim is gone", self._no_claims)
        await self._until("every pod has ended", self._no_pods)
        self.say("pods and claims are deleted; every claim was deallocated before it went")

    async def _inventories(self) -> bool:
        found = (await self.client.list(NODE_INVENTORIES)).items
        return len([one for one in found if one.spec.ready]) == self.settings.nodes

    async def _run(self, pods: Iterable[str]) -> bool:
        phases = {pod.metadata.name: pod.status.phase for pod in (await self.client.list(PODS)).items}
        return all(phases.get(name) == "Running" for name in pods)

    async def _no_claims(self) -> bool:
        return not (await self.client.list(v1alpha2.KINDS.claims)).items

    async def _no_pods(self) -> bool:
        return not (await self.client.list(PODS)).items

    async def _show(self) -> None:
        claims = {claim.metadata.name: claim for claim in (await self.client.list(v1alpha2.KINDS.claims)).items}
        self.say("")
        for pod in sorted((await self.client.list(PODS)).items, key=lambda pod: pod.metadata.name):
            for entry, name in pod.claim_names().items():
                self.say(f"  {pod.metadata.name:14} {pod.spec.node_name:8} {entry:6} {_devices(claims[name])}")
        self.say("")

    async def _crowd_a_claim(self) -> None:
        """One pod more than may use a claim: the API server refuses it until another one is gone."""
        pods = [_pod(f"pair-{number}") for number in (1, 2, 3)]
        await self.apply(_pair())
        for pod in pods[:2]:
            await self.apply([pod])
            await self._until(f"{pod['metadata']['name']} runs", partial(self._run, [pod["metadata"]["name"]]))
        await self.apply(pods[2:])
        await self._until("pair-3 is told that the claim is full", self._is_refused)
        self.say("two pods use a claim whose class lets two (maxPods); a third waits")
        await self._delete(pods[:1])
        await self._until("pair-3 runs", partial(self._run, ["pair-3"]))
        self.say("one of them is deleted, and the third runs")
        await self._delete([*_pair(), *pods[1:]])

    async def _is_refused(self) -> bool:
        events = (await self.client.list(EVENTS)).items
        return any(one.involved_object.name == "pair-3" and "the claim is full" in one.message for one in events)

    async def _kill_the_controller(self) -> None:
        """In the middle of its work: a successor decides the same, for it remembers nothing."""
        controller = self.running["controller"]
        await self.apply([_waiting_claim()])
        await controller.kill()
        self.say("the controller is killed while a claim waits; another one is started")
        await self._start("controller-2", controller.arguments)
        del self.running["controller"]

        async def allocated() -> bool:
            claim = await self.client.get(v1alpha2.KINDS.claims, "waiting", "default")
            return claim.status.allocation is not None

        await self._until("the waiting claim is allocated by the successor", allocated)
        self.say("the successor has allocated it")
        await self._delete([_waiting_claim()])

    async def start(self) -> None:
        for name, arguments in programs(self.settings, self.places, self.cluster):
            await self._start(name, arguments)

    async def _start(self, name: str, arguments: Iterable[str]) -> None:
        running = program(name, list(arguments), self.places.log(name))
        self.running[name] = await self.stack.enter_async_context(running)

    async def apply(self, documents: Iterable[JsonObject]) -> None:
        """Create or change objects, in order. Raises ApiError."""
        for document in documents:
            kind = _KINDS[document["kind"]]
            await self.client.apply(kind, _placed(kind, document), field_manager=_FIELD_MANAGER)

    async def _delete(self, documents: Iterable[JsonObject]) -> None:
        for document in reversed(list(documents)):
            kind = _KINDS[document["kind"]]
            try:
                await self.client.delete(kind, document["metadata"]["name"], "default" if kind.namespaced else "")
            except NotFoundError:
                continue

    async def _until(self, what: str, holds: Callable[[], Any]) -> None:
        with anyio.move_on_after(self.settings.step_timeout_s):
            while not await holds():
                for running in self.running.values():
                    running.check()
                await anyio.sleep(_POLL_S)
            return
        raise StageError(f"after {self.settings.step_timeout_s:.0f} s there is still no sign that {what}")


@asynccontextmanager
async def open_classic(settings: DemoSettings, root: Path, say: Callable[[str], None]) -> AsyncIterator[ClassicStory]:
    """The cluster and Kerf's programs, running; ended in reverse order on exit."""
    crds = [yaml.safe_load(file.read_text()) for file in sorted(packaged("crds").glob("*.yaml"))]
    cluster = LocalCluster(
        ClusterSettings(root=root, nodes=settings.node_names, crds=crds, classic=True),
        share_id=lambda: str(uuid.uuid4()),
        boot_id=lambda: str(uuid.uuid4()),
    )
    places = Places(root=root)
    for node in settings.node_names:
        write_hardware(settings, places, node)
    async with anyio.create_task_group() as tasks:
        await tasks.start(cluster.run)
        async with AsyncExitStack() as stack:
            access = await load_access(cluster.kubeconfig)
            client = await stack.enter_async_context(Client(access, user_agent=_FIELD_MANAGER))
            story = ClassicStory(
                settings=settings, places=places, cluster=cluster, client=client, say=say, running={}, stack=stack
            )
            await story.apply([{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kerf-system"}}])
            await story.start()
            yield story
        tasks.cancel_scope.cancel()


def left_behind(settings: DemoSettings, places: Places, cluster: LocalCluster) -> list[str]:
    """What is left on the nodes' disks once the programs have ended; nothing is to be."""
    found = []
    for node in settings.node_names:
        partitions = open_backend(places.hardware_config(node)).held()
        files = list(cluster.cdi_dir(node).iterdir()) if cluster.cdi_dir(node).is_dir() else []
        with open_checkpoint(places.state(node)) as checkpoint:
            records = len(checkpoint.records)
        if partitions or files or records:
            found.append(f"{node}: {len(partitions)} partitions, {len(files)} CDI files, {records} records")
    return found


def _documents(file: Path) -> Iterable[JsonObject]:
    return (document for document in yaml.safe_load_all(file.read_text()) if document)


def _placed(kind: Kind[Any], document: JsonObject) -> JsonObject:
    metadata = {**document["metadata"], **({"namespace": "default"} if kind.namespaced else {})}
    return {**document, "metadata": metadata}


def _waiting_claim() -> JsonObject:
    return _claim("waiting", "gpu-h100-whole")


def _pair() -> list[JsonObject]:
    """A class whose claims two pods may use, and such a claim."""
    named = {"metadata": {"name": "pair"}}
    offer = {"apiVersion": API_VERSION, "kind": "GpuClassParameters", **named}
    reference = {"apiGroup": GROUP, "kind": "GpuClassParameters", "name": "pair"}
    class_ = {"apiVersion": _RESOURCE, "kind": "ResourceClass", **named, "driverName": KERF_DRIVER}
    return [
        offer | {"spec": {"profile": "1g.10gb", "maxPods": 2}},
        class_ | {"parametersRef": reference},
        _claim("pair", "pair"),
    ]


def _claim(name: str, class_name: str) -> JsonObject:
    spec = {"resourceClassName": class_name, "allocationMode": "Immediate"}
    return {"apiVersion": _RESOURCE, "kind": "ResourceClaim", "metadata": {"name": name}, "spec": spec}


def _pod(name: str) -> JsonObject:
    """Uses the claim of ``_pair``."""
    container = {"name": "main", "image": "busybox:1.37", "resources": {"claims": [{"name": "gpu"}]}}
    claims = [{"name": "gpu", "source": {"resourceClaimName": "pair"}}]
    spec = {"containers": [container], "resourceClaims": claims}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def _devices(claim: ClassicClaim) -> str:
    allocation = claim.status.allocation
    return "nothing" if allocation is None else ", ".join(result.device for result in allocation.devices.results)


__all__ = ["ClassicStory", "left_behind", "open_classic"]
