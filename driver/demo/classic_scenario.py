"""The scenario of ``kerf demo --classic``: an embedded Kubernetes 1.30, where Kerf's controller allocates.

Pods get their devices; a pod more than may share a claim waits; the controller is killed while a claim is pending, and
its successor allocates it; everything is deleted, and nothing is left.
"""

from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import anyio

from kerf_dra.api.core.v1 import EVENTS, NAMESPACES, PODS, Pod
from kerf_dra.api.kerf.classic_parameters import CLAIM_PARAMETERS, CLASS_PARAMETERS
from kerf_dra.api.kerf.node_inventory import NODE_INVENTORIES
from kerf_dra.api.kerf.v1alpha1 import API_VERSION, GROUP
from kerf_dra.api.model.allocations import DeviceRequestAllocationResult
from kerf_dra.api.model.base import JsonObject
from kerf_dra.api.model.classic import ClassicClaim
from kerf_dra.api.model.device_attributes import CAPACITY_MEMORY
from kerf_dra.api.model.metadata import Object
from kerf_dra.api.model.names import ObjectRef
from kerf_dra.api.resource import v1alpha2
from kerf_dra.api.wire import Kind, identity_kind
from kerf_dra.driver.controller.classic.node_model import NodeCard, NodeInventoryModel, build_node_model
from kerf_dra.driver.demo.cluster_picture import (
    count,
    describe_left,
    draw_card,
    draw_cluster,
    introduce,
    label_users,
    show_containers,
    show_explanation,
    show_pods,
)
from kerf_dra.driver.demo.display import Display
from kerf_dra.driver.demo.environment import (
    DemoCluster,
    DemoSettings,
    WaitTimeoutError,
    find_packaged_folder,
    open_demo_cluster,
)
from kerf_dra.driver.demo.manifest_warnings import report_warnings
from kerf_dra.driver.demo.manifests import Manifest
from kerf_dra.driver.demo.observation import CardState, build_pod_report, device_key
from kerf_dra.driver.demo.pod_runner import Explain, ScenarioError
from kerf_dra.driver.demo.report import (
    CardReport,
    ClaimReport,
    DeviceReport,
    LeftoverReport,
    NodeReport,
    PodReport,
    Report,
    WaitingReport,
)
from kerf_dra.driver.families.gpu import GPU
from kerf_dra.driver.kube.http.client import Client
from kerf_dra.driver.local.cluster import LocalCluster
from kerf_dra.driver.partitions.device_names import parse_device_name
from kerf_dra.driver.runtime.documents.yaml_file import parse_manifests
from kerf_dra.driver.scheduling.ineffective_fields import find_ineffective_fields

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
    identity_kind(Object, group="", version="v1", plural="configmaps", namespaced=True, kind="ConfigMap"),
    v1alpha2.KINDS.claims,
    v1alpha2.KINDS.templates,
    v1alpha2.KINDS.classes,
    *CLASS_PARAMETERS,
    *CLAIM_PARAMETERS,
)
_RESOURCE: Final = v1alpha2.KINDS.claims.api_version
_KINDS: Final[dict[str, Kind[Any]]] = {kind.kind: kind for kind in _APPLIED}
_ASK_AFTER_S: Final = 1.0
"""Seconds that a pod may wait before `kerf why` is asked, and between two questions."""
_POLL_S: Final = 0.1
"""Seconds between two queries of the cluster: too short to be noticed."""


class ClassicScenario(DemoCluster):
    """One run of the scenario, or of a user's manifests."""

    kinds = _KINDS

    def __init__(
        self,
        display: Display,
        explain: Explain,
        manifests: Sequence[Manifest],
        settings: DemoSettings,
        root: Path,
        cluster: LocalCluster,
        client: Client,
    ) -> None:
        super().__init__(settings, root, cluster, client)
        self.display = display
        self.explain = explain
        self.manifests = manifests
        """The user's manifests; without any the scenario runs."""
        self.report = Report()
        self._applied: list[JsonObject] = []

    async def run(self) -> None:
        """Run all steps but the last.

        Raises WaitTimeoutError when something does not happen in time, ProgramDiedError when a program ends.
        """
        async with self._step("", "start"):
            self.display.wait("the cluster starts")
            await self._until("every node has a ready NodeInventory", self._are_inventories_ready)
        cards = await self._cards([])
        self.report.nodes = self._node_reports(await self._models())
        self.display.say(
            "Kerf's own programs run with a small Kubernetes 1.30 and simulated cards; no container runs. Here Kerf's "
            "controller allocates, not the scheduler."
        )
        logs = {program.name: program.log for program in self.programs} if self.settings.verbose else {}
        introduce(self.display, cards, self.cluster.kubeconfig, logs)
        await self.display.hold()
        if self.manifests:
            async with self._step("Your manifests", "run"):
                await self._run_own()
            return
        async with self._step("Pods get their devices", "run"):
            await self._run_examples()
        async with self._step("One pod more than may share a claim", "share"):
            await self._overload_claim()
        async with self._step("The controller is killed while a claim waits", "restart"):
            await self._kill_controller()

    async def finish(self) -> None:
        """Delete everything, stop Kerf's programs, and look what is left. Raises ScenarioError when anything is."""
        async with self._step("Everything is deleted", "end"):
            await self.delete(self._applied)
            await self._until("every claim is gone", self._no_claims)
            await self._until("every pod has ended", self._no_pods)
            self.display.say("Pods and claims are gone; every claim was deallocated first.")
            await self.stop_programs()
            found = [self.count_node_leftovers(node) for node in self.settings.node_names]
            left = self.report.left = LeftoverReport(
                partitions=sum(node.partitions for node in found),
                cdi_files=sum(node.cdi_files for node in found),
                checkpoint_records=sum(node.checkpoint_records for node in found),
                claims=0,
            )
            self.display.say(describe_left(left))
            if not left.is_clean:
                raise ScenarioError("not everything was cleaned up; see above")

    async def _run_examples(self) -> None:
        examples = find_packaged_folder("examples") / "classic"
        policy = find_packaged_folder("classic") / "sharing-policy.yaml"
        await self.apply(_documents(policy))
        documents = [one for file in sorted(examples.glob("*.yaml")) for one in _documents(file)]
        await self._apply(documents)
        names = [one["metadata"]["name"] for one in documents if one["kind"] == "Pod"]
        await self._until(f"all of {', '.join(names)} run", lambda: self._are_running(names))
        pods = await self._pod_reports()
        self.report.pods += pods
        self.display.say(
            f"{len(names)} pods claim a partition by size, one by profile and a function with it, and one that two "
            "pods share. The controller has chosen devices on a node that the scheduler proposed:"
        )
        self.display.items([(pod.name, f"{pod.node}: {_list_devices(pod)}") for pod in pods])
        self.display.say("")
        draw_cluster(self.display, await self._cards(pods), pods)
        await self.display.hold()

    async def _run_own(self) -> None:
        await self._apply([manifest.body for manifest in self.manifests])
        names = {f"{manifest.namespace}/{manifest.name}" for manifest in self.manifests if manifest.kind == "Pod"}
        begin = anyio.current_time()
        unknown, ask_at = set(names), begin + _ASK_AFTER_S
        while unknown:
            self.check_programs()
            unknown -= {pod.ref for pod in await self._pod_reports() if pod.phase == "Running"}
            self.display.wait(f"{count(len(unknown), 'pod')} to start")
            now = anyio.current_time()
            if unknown and now >= ask_at:
                unknown -= await self._ask(sorted(unknown), is_last=now > begin + self.settings.step_timeout_s)
                ask_at = anyio.current_time() + _ASK_AFTER_S
            await anyio.sleep(_POLL_S)
        pods = [pod for pod in await self._pod_reports() if pod.phase == "Running"]
        self.report.pods += pods
        show_pods(self.display, pods, anyio.current_time() - begin)
        self.display.say("")
        draw_cluster(self.display, await self._cards(pods), pods)
        show_containers(self.display, pods)
        running = {pod.ref for pod in pods}
        found = (await self.client.list(PODS)).items
        of_pods = {str(pod.ref): find_ineffective_fields(pod, {}) for pod in found if str(pod.ref) in running}
        report_warnings(self.display, self.report, self.manifests, of_pods)
        await self.display.hold()

    async def _ask(self, names: Sequence[str], *, is_last: bool) -> set[str]:
        """Ask `kerf why` about pods, show the answers that will not change (``is_last``: all), return their pods."""
        refs = [ObjectRef(*name.split("/")) for name in names]
        explanations = await self.explain(self.client, refs, self.display.width - 2)
        shown = [explanation for explanation in explanations if explanation.is_final or is_last]
        for explanation in shown:
            self.report.waiting.append(WaitingReport(pod=str(explanation.pod), why=explanation.lines))
            show_explanation(self.display, explanation)
        return {str(explanation.pod) for explanation in shown}

    async def _apply(self, objects: Sequence[JsonObject]) -> None:
        self._applied += objects
        await self.apply(objects)

    async def _are_inventories_ready(self) -> bool:
        found = (await self.client.list(NODE_INVENTORIES)).items
        return len([one for one in found if one.spec.ready]) == self.settings.nodes * len(self.families)

    async def _are_running(self, pods: Iterable[str]) -> bool:
        phases = {pod.metadata.name: pod.status.phase for pod in (await self.client.list(PODS)).items}
        return all(phases.get(name) == "Running" for name in pods)

    async def _no_claims(self) -> bool:
        return not (await self.client.list(v1alpha2.KINDS.claims)).items

    async def _no_pods(self) -> bool:
        return not (await self.client.list(PODS)).items

    async def _models(self) -> list[tuple[str, NodeInventoryModel]]:
        """Return the cards of each node, of each driver by itself."""
        found = (await self.client.list(NODE_INVENTORIES)).items
        ordered = sorted(found, key=lambda one: (one.spec.node, one.spec.driver != GPU.driver, one.spec.driver))
        return [(one.spec.node, build_node_model(one.spec)) for one in ordered]

    def _node_reports(self, models: Sequence[tuple[str, NodeInventoryModel]]) -> tuple[NodeReport, ...]:
        cards: dict[str, list[NodeCard]] = {}
        for node, model in models:
            cards.setdefault(node, []).extend(model.cards)
        return tuple(
            NodeReport(
                name=node,
                cards=tuple(
                    CardReport(index=each.card.index, kind=each.card.kind, model=each.model, uuid=each.card.uuid)
                    for each in of_node
                ),
                devices=sum(len(each.card.geometry.specs) for each in of_node),
            )
            for node, of_node in cards.items()
        )

    async def _cards(self, pods: Sequence[PodReport]) -> tuple[CardState, ...]:
        return tuple(_card_state(node, card, pods) for node, model in await self._models() for card in model.cards)

    async def _pod_reports(self) -> list[PodReport]:
        """Return every pod as it is now, by name."""
        claims = {claim.ref: claim for claim in (await self.client.list(v1alpha2.KINDS.claims)).items}
        models = await self._models()
        pods = sorted((await self.client.list(PODS)).items, key=lambda pod: pod.ref)
        return [self._pod_report(pod, claims, models) for pod in pods]

    def _pod_report(
        self,
        pod: Pod,
        claims: Mapping[ObjectRef, ClassicClaim],
        models: Sequence[tuple[str, NodeInventoryModel]],
    ) -> PodReport:
        cards = [card for node, model in models if node == pod.spec.node_name for card in model.cards]
        names = [ObjectRef(pod.metadata.namespace, name) for name in pod.claim_names().values()]
        prepared = self.prepared_cdi_ids(pod)
        reports = [
            ClaimReport(
                name=claim.metadata.name,
                uid=claim.metadata.uid,
                devices=tuple(_device_report(result, cards) for result in _results(claim)),
                cdi_ids=tuple(prepared.get(claim.metadata.uid, ())),
            )
            for name in names
            if (claim := claims.get(name)) is not None
        ]
        return build_pod_report(pod, reports, self.container_reports(pod))

    async def _overload_claim(self) -> None:
        """Start one pod more than may use a claim: the API server refuses it until another one is deleted."""
        pods = [_pod(f"pair-{number}") for number in (1, 2, 3)]
        await self._apply(_pair())
        for pod in pods[:2]:
            await self._apply([pod])
            await self._until(f"{pod['metadata']['name']} runs", partial(self._are_running, [pod["metadata"]["name"]]))
        await self._apply(pods[2:])
        await self._until("pair-3 has the event that the claim is full", self._is_refused)
        self.display.say(
            "Two pods use a claim whose class allows two (maxPods). A third one waits: an event says that the claim is "
            "full."
        )
        await self._draw_pair("two pods")
        await self.delete(pods[:1])
        await self._until("pair-3 runs", partial(self._are_running, ["pair-3"]))
        self.display.say("One of them is deleted, and the third runs, on the same partition.")
        await self._draw_pair("then")
        await self.display.hold()
        await self.delete([*_pair(), *pods[1:]])

    async def _draw_pair(self, when: str) -> None:
        pods = [pod for pod in await self._pod_reports() if pod.name.startswith("pair-") and pod.phase == "Running"]
        [card] = [card for card in await self._cards(pods) if not card.is_free]
        draw_card(self.display, {when: card}, label_users(pods))

    async def _is_refused(self) -> bool:
        events = (await self.client.list(EVENTS)).items
        return any(one.involved_object.name == "pair-3" and "the claim is full" in one.message for one in events)

    async def _kill_controller(self) -> None:
        """Kill the controller while a claim is pending: the successor allocates it, because no state is lost."""
        [controller] = [running for running in self.programs if running.name == "controller"]
        await controller.kill()
        await self._apply([_waiting_claim()])
        self.programs.remove(controller)
        await self.start_program("controller-2", controller.arguments)

        async def allocated() -> bool:
            claim = await self.client.get(v1alpha2.KINDS.claims, "waiting", "default")
            return claim.status.allocation is not None

        await self._until("the waiting claim is allocated by the successor", allocated)
        self.display.say(
            "The controller is killed (kill -9), and a claim comes while there is none. The successor has allocated "
            "it: a controller keeps no state of its own, it reads what is allocated from the claims."
        )
        await self.display.hold()
        await self.delete([_waiting_claim()])

    @asynccontextmanager
    async def _step(self, title: str, timing: str) -> AsyncIterator[None]:
        if title:
            self.display.begin_step(title)
        begin = anyio.current_time()
        yield
        self.report.timings_s[timing] = anyio.current_time() - begin

    async def _until(self, what: str, holds: Callable[[], Any]) -> None:
        with anyio.move_on_after(self.settings.step_timeout_s):
            while not await holds():
                self.check_programs()
                await anyio.sleep(_POLL_S)
            return
        raise WaitTimeoutError(f"timed out after {self.settings.step_timeout_s:.0f} s: not observed that {what}")


def open_classic_scenario(
    settings: DemoSettings, root: Path, display: Display, explain: Explain, manifests: Sequence[Manifest]
) -> AbstractAsyncContextManager[ClassicScenario]:
    """Return the scenario on a running cluster of Kubernetes 1.30."""
    build = partial(ClassicScenario, display, explain, manifests)
    return open_demo_cluster(build, settings, root, classic=True)


def _documents(file: Path) -> Iterable[JsonObject]:
    return (document for document in parse_manifests(file.read_text()) if document)


def _waiting_claim() -> JsonObject:
    return _claim("waiting", "gpu-h100-whole")


def _pair() -> list[JsonObject]:
    """Return a class with maxPods 2, and a claim of it."""
    named = {"metadata": {"name": "pair"}}
    parameters = {"apiVersion": API_VERSION, "kind": "GpuClassParameters", **named}
    reference = {"apiGroup": GROUP, "kind": "GpuClassParameters", "name": "pair"}
    class_ = {"apiVersion": _RESOURCE, "kind": "ResourceClass", **named, "driverName": GPU.driver}
    return [
        parameters | {"spec": {"profile": "1g.10gb", "maxPods": 2}},
        class_ | {"parametersRef": reference},
        _claim("pair", "pair"),
    ]


def _claim(name: str, class_name: str) -> JsonObject:
    spec = {"resourceClassName": class_name, "allocationMode": "Immediate"}
    return {"apiVersion": _RESOURCE, "kind": "ResourceClaim", "metadata": {"name": name}, "spec": spec}


def _pod(name: str) -> JsonObject:
    """Return a pod with the claim of ``_pair``."""
    container = {"name": "main", "image": "busybox:1.37", "resources": {"claims": [{"name": "gpu"}]}}
    claims = [{"name": "gpu", "source": {"resourceClaimName": "pair"}}]
    spec = {"containers": [container], "resourceClaims": claims}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def _results(claim: ClassicClaim) -> Sequence[DeviceRequestAllocationResult]:
    return claim.status.allocation.devices.results if claim.status.allocation else ()


def _device_report(result: DeviceRequestAllocationResult, cards: Sequence[NodeCard]) -> DeviceReport:
    spec, card = next(
        ((spec, card) for card in cards if _is_of(result.device, card) and (spec := card.find(result.device))),
        (None, None),
    )
    memory = dict(spec.capacity).get(CAPACITY_MEMORY) if spec else None
    return DeviceReport(
        request=result.request,
        driver=result.driver,
        pool=result.pool,
        device=result.device,
        profile=(spec.profile or spec.function) if spec else None,
        memory_bytes=int(memory) if memory else None,
        card=card.card.uuid if card else "",
    )


def _card_state(node: str, card: NodeCard, pods: Iterable[PodReport]) -> CardState:
    geometry = card.card.geometry
    units = [""] * geometry.units
    devices = [device for pod in pods if pod.node == node for device in pod.devices if _is_of(device.device, card)]
    for device in devices:
        spec = card.find(device.device)
        if spec is None:
            continue  # a device to look at the card with, which takes nothing of it
        for unit in range(geometry.units):
            if spec.mask >> unit & 1:
                units[unit] = device_key(device.pool, device.device)
    name = geometry.unit.replace("-", " ")
    return CardState(node=node, name=card.name, model=card.model, unit=name, units=tuple(units))


def _is_of(device: str, card: NodeCard) -> bool:
    parsed = parse_device_name(device)
    return parsed is not None and parsed.card == card.name


def _list_devices(pod: PodReport) -> str:
    return ", ".join(device.device for device in pod.devices) or "nothing"
