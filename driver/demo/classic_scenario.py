"""The scenario of ``kerf demo --classic``: an embedded Kubernetes 1.30, where Kerf's controller allocates.

Pods get their devices; a pod more than may share a claim waits; the controller is killed while a claim is pending, and
its successor allocates it; everything is deleted, and nothing is left.
"""

from collections.abc import Callable, Iterable
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path
from typing import Any, Final

import anyio

from api.core.v1 import EVENTS, NAMESPACES, PODS
from api.kerf.classic_parameters import CLAIM_PARAMETERS, CLASS_PARAMETERS
from api.kerf.node_inventory import NODE_INVENTORIES
from api.kerf.v1alpha1 import API_VERSION, GROUP
from api.model.base import JsonObject
from api.model.classic import ClassicClaim
from api.model.metadata import Object
from api.resource import v1alpha2
from api.wire import Kind, identity_kind
from driver.demo.environment import (
    DemoCluster,
    DemoSettings,
    WaitTimeoutError,
    find_packaged_folder,
    open_demo_cluster,
)
from driver.families.gpu import GPU
from driver.families.registry import BUILT_IN
from driver.kube.http.client import Client
from driver.local.cluster import LocalCluster
from driver.runtime.yaml_file import parse_manifests

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
"""Seconds between two queries of the cluster: too short to be noticed."""


class ClassicScenario(DemoCluster):
    """One run of the scenario. ``say`` prints a line for the user."""

    kinds = _KINDS

    def __init__(
        self, say: Callable[[str], None], settings: DemoSettings, root: Path, cluster: LocalCluster, client: Client
    ) -> None:
        super().__init__(settings, root, cluster, client)
        self.say = say

    async def run(self) -> None:
        """Run all steps.

        Raises WaitTimeoutError when something does not happen in time, ProgramDiedError when a program ends.
        """
        self.say(f"an embedded Kubernetes 1.30 in which drivers allocate; kubeconfig {self.cluster.kubeconfig}")
        await self._until("every node has a ready NodeInventory", self._are_inventories_ready)
        self.say(f"{self.settings.nodes} nodes have published their cards (kubectl get nodeinventories)")
        examples = find_packaged_folder("examples") / "classic"
        policy = find_packaged_folder("classic") / "sharing-policy.yaml"
        await self.apply(_documents(policy))
        self.say(f"applied {policy}")
        documents = [one for file in sorted(examples.glob("*.yaml")) for one in _documents(file)]
        await self.apply(documents)
        pods = [one["metadata"]["name"] for one in documents if one["kind"] == "Pod"]
        self.say(f"applied {examples}: {len(pods)} pods")
        await self._until(f"all of {', '.join(pods)} run", lambda: self._are_running(pods))
        await self._show()
        await self._overload_claim()
        await self._kill_controller()
        await self.delete(documents)
        await self._until("every claim is gone", self._no_claims)
        await self._until("every pod has ended", self._no_pods)
        self.say("pods and claims are deleted; every claim was deallocated first")

    async def _are_inventories_ready(self) -> bool:
        found = (await self.client.list(NODE_INVENTORIES)).items
        return len([one for one in found if one.spec.ready]) == self.settings.nodes * len(BUILT_IN)

    async def _are_running(self, pods: Iterable[str]) -> bool:
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

    async def _overload_claim(self) -> None:
        """Start one pod more than may use a claim: the API server refuses it until another one is deleted."""
        pods = [_pod(f"pair-{number}") for number in (1, 2, 3)]
        await self.apply(_pair())
        for pod in pods[:2]:
            await self.apply([pod])
            await self._until(f"{pod['metadata']['name']} runs", partial(self._are_running, [pod["metadata"]["name"]]))
        await self.apply(pods[2:])
        await self._until("pair-3 has the event that the claim is full", self._is_refused)
        self.say("two pods use a claim whose class allows two (maxPods); a third waits")
        await self.delete(pods[:1])
        await self._until("pair-3 runs", partial(self._are_running, ["pair-3"]))
        self.say("one of them is deleted, and the third runs")
        await self.delete([*_pair(), *pods[1:]])

    async def _is_refused(self) -> bool:
        events = (await self.client.list(EVENTS)).items
        return any(one.involved_object.name == "pair-3" and "the claim is full" in one.message for one in events)

    async def _kill_controller(self) -> None:
        """Kill the controller while a claim is pending: the successor allocates it, because no state is lost."""
        [controller] = [running for running in self.programs if running.name == "controller"]
        await self.apply([_waiting_claim()])
        await controller.kill()
        self.say("the controller is killed while a claim waits; another one is started")
        self.programs.remove(controller)
        await self.start_program("controller-2", controller.arguments)

        async def allocated() -> bool:
            claim = await self.client.get(v1alpha2.KINDS.claims, "waiting", "default")
            return claim.status.allocation is not None

        await self._until("the waiting claim is allocated by the successor", allocated)
        self.say("the successor has allocated it")
        await self.delete([_waiting_claim()])

    def find_leftovers(self) -> list[str]:
        """Return a line for each node with something left on its disk. The programs must have ended."""
        found = {node: self.count_node_leftovers(node) for node in self.settings.node_names}
        return [
            f"{node}: {left.partitions} partitions, {left.cdi_files} CDI files, {left.checkpoint_records} records"
            for node, left in found.items()
            if not left.is_clean
        ]

    async def _until(self, what: str, holds: Callable[[], Any]) -> None:
        with anyio.move_on_after(self.settings.step_timeout_s):
            while not await holds():
                self.check_programs()
                await anyio.sleep(_POLL_S)
            return
        raise WaitTimeoutError(f"timed out after {self.settings.step_timeout_s:.0f} s: not observed that {what}")


def open_classic_scenario(
    settings: DemoSettings, root: Path, say: Callable[[str], None]
) -> AbstractAsyncContextManager[ClassicScenario]:
    """Return the scenario on a running cluster of Kubernetes 1.30."""
    return open_demo_cluster(partial(ClassicScenario, say), settings, root, classic=True)


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


def _devices(claim: ClassicClaim) -> str:
    allocation = claim.status.allocation
    return "nothing" if allocation is None else ", ".join(result.device for result in allocation.devices.results)
