"""What the steps of a demo do with pods: apply, wait, look, delete; and draw the cards between."""

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from kerf_dra.api.errors import KerfError
from kerf_dra.api.model.base import JsonObject
from kerf_dra.api.model.names import ObjectRef
from kerf_dra.driver.demo.cluster_picture import Explanation, count, draw_cluster
from kerf_dra.driver.demo.display import Display
from kerf_dra.driver.demo.environment import DemoEnvironment, DemoSettings, WaitTimeoutError
from kerf_dra.driver.demo.hardware import HARDWARE_KINDS
from kerf_dra.driver.demo.manifests import Manifest
from kerf_dra.driver.demo.observation import CardState, find_refusal, is_processed
from kerf_dra.driver.demo.report import PodReport, Report
from kerf_dra.driver.kube.http.client import Client

KEPT: Final = ("Namespace", *HARDWARE_KINDS, "ResourceClass", "DeviceClass")
"""Kinds that stay when the objects of a step are deleted."""


_RECHECK_S: Final = 3.0
"""Seconds that a class without a matching device may still find one: the controller may see the slices later than the
demo, and counts again a second after that."""


_RELEASE_S: Final = 400.0
"""Seconds for the release of what pods had by the device plugin interface: it takes 45 to 60, some of which plugins
wait, and on a loaded machine several times that."""


class ScenarioError(KerfError):
    """Something was observed that must not be, or was not observed."""


Explain: TypeAlias = Callable[[Client, Sequence[ObjectRef], int], Awaitable[list[Explanation]]]
"""Asks ``kerf why`` about pods; the number is the width of its lines."""


@dataclass(slots=True, kw_only=True)
class PodRunner:
    """Runs pods in one environment, and shows and reports what becomes of them."""

    environment: DemoEnvironment
    display: Display
    explain: Explain
    clock: Callable[[], float] = time.monotonic
    report: Report = field(default_factory=Report)

    @property
    def settings(self) -> DemoSettings:
        return self.environment.settings

    async def wait_running(self, refs: Collection[str], timeout_s: float | None = None) -> None:
        """Wait until these pods run. Raises WaitTimeoutError and ProgramDiedError."""

        def all_running() -> bool:
            phases = {pod.ref: pod.phase for pod in self.environment.pod_reports()}
            running = [ref for ref in refs if phases.get(ref) == "Running"]
            self.display.wait(f"{len(running)} of {count(len(refs), 'pod')} running")
            return len(running) == len(refs)

        await self.environment.wait_for("every pod running", all_running, timeout_s=timeout_s)

    async def find_refused_classes(self, names: Collection[str]) -> dict[str, str]:
        """Return those of the ResourceClasses that the controller refuses, with its message."""
        classes = self.environment.resource_classes(names)

        def all_processed() -> bool:
            return len(classes()) == len(names) and all(map(is_processed, classes()))

        await self.environment.wait_for("the controller's status on every class", all_processed)

        def all_accepted() -> bool:
            return not any(map(find_refusal, classes()))

        with suppress(WaitTimeoutError):
            await self.environment.wait_for("a device for every class", all_accepted, timeout_s=_RECHECK_S)
        said = {class_.metadata.name: find_refusal(class_) for class_ in classes()}
        return {name: message for name, message in said.items() if message}

    async def delete(self, manifests: Iterable[Manifest] = (), refs: Collection[str] = ()) -> None:
        """Delete the objects of manifests except classes, and pods; wait until these pods and their claims are gone."""
        chosen = [manifest for manifest in manifests if manifest.kind not in KEPT]
        names = {f"{manifest.namespace}/{manifest.name}" for manifest in chosen if manifest.kind == "Pod"} | {*refs}
        going = [pod for pod in self.environment.pod_reports() if pod.ref in names]
        claims = {(pod.namespace, claim.name) for pod in going for claim in pod.claims}
        await self.environment.delete([*(manifest.body for manifest in chosen), *map(pod_object, going)])

        def all_deleted() -> bool:
            pods = {str(pod.ref) for pod in self.environment.pods.store.values()} & names
            held = {tuple(claim.ref) for claim in self.environment.claims.store.values()} & claims
            self.display.wait(f"{count(len(pods), 'pod')} to end")
            return not pods and not held

        await self.environment.wait_for("the deletion of every pod and claim", all_deleted)

    async def delete_everything(self, manifests: Iterable[Manifest]) -> None:
        """Delete the objects of manifests except classes, and every pod; wait until pods and claims are gone."""
        objects = [manifest.body for manifest in manifests if manifest.kind not in KEPT]
        await self.environment.delete([*objects, *map(pod_object, self.environment.pod_reports())])

        def all_deleted() -> bool:
            pods, claims = self.environment.pods.store.values(), self.environment.claims.store.values()
            self.display.wait(f"{count(len([*pods]), 'pod')} to end")
            return not pods and not claims

        await self.environment.wait_for("the deletion of every pod and claim", all_deleted)

    async def wait_released(self) -> None:
        """Wait until nodes have released what pods had by the device plugin interface, which has no call for it."""
        if not (self.environment.has_offers() and self.environment.list_cdi_files()):
            return
        self.display.say(
            "No call of the device plugin interface says that a container has ended: Kerf releases a device that the "
            "kubelet has listed for no pod for 30 s."
        )
        self.display.wait("devices to be released")
        await self.environment.wait_for(
            "the release of devices", lambda: not self.environment.list_cdi_files(), timeout_s=_RELEASE_S
        )

    def pods_now(self, refs: Collection[str]) -> list[PodReport]:
        """Return these pods as they are now. Raises ScenarioError for one that runs without its CDI devices."""
        pods = [pod for pod in self.environment.pod_reports() if pod.ref in refs]
        for pod in pods:
            for claim in pod.claims:
                if any(device.driver in self.environment.drivers for device in claim.devices) and not claim.cdi_ids:
                    raise ScenarioError(f"pod {pod.ref} runs, but claim {claim.name} has no CDI device")
        return pods

    def record(self, refs: Collection[str]) -> list[PodReport]:
        """Return these pods as they are now, and add them to the report. Raises ScenarioError, as ``pods_now`` does."""
        pods = self.pods_now(refs)
        self.report.pods += pods
        return pods

    def card(self, node: str, name: str) -> CardState:
        """Return one card as it is now."""
        return next(card for card in self.environment.card_states() if (card.node, card.name) == (node, name))

    def draw_cluster(self) -> None:
        """Draw every card in use, with the names of pods."""
        draw_cluster(self.display, self.environment.card_states(), self.environment.pod_reports())

    @asynccontextmanager
    async def step(self, title: str, timing: str) -> AsyncIterator[None]:
        """Show a step, and add the time that it takes to the report, under the name ``timing``."""
        if title:
            self.display.begin_step(title)
        begin = self.clock()
        yield
        self.report.timings_s[timing] = self.report.timings_s.get(timing, 0.0) + self.clock() - begin


def pod_object(pod: PodReport) -> JsonObject:
    return {"kind": "Pod", "metadata": {"name": pod.name, "namespace": pod.namespace}}


def list_pod_refs(manifests: Iterable[Manifest]) -> frozenset[str]:
    """Return ``namespace/name`` of the pods among ``manifests``."""
    return frozenset(f"{manifest.namespace}/{manifest.name}" for manifest in manifests if manifest.kind == "Pod")
