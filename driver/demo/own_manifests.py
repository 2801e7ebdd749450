"""A user's own manifests in a demo: they run, and what cannot run is explained as soon as that is known."""

from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

import anyio

from kerf_dra.api.kerf.discovery_objects import DISCOVERY_CONFIGURATIONS
from kerf_dra.api.model.base import JsonObject
from kerf_dra.api.model.names import ObjectRef, list_names
from kerf_dra.driver.demo.cluster_picture import (
    Explanation,
    count,
    show_containers,
    show_discovered_devices,
    show_explanation,
    show_pods,
)
from kerf_dra.driver.demo.environment import WaitTimeoutError
from kerf_dra.driver.demo.hardware import list_expected_devices
from kerf_dra.driver.demo.manifest_warnings import report_warnings
from kerf_dra.driver.demo.manifests import Manifest, find_offers
from kerf_dra.driver.demo.pod_runner import KEPT, PodRunner
from kerf_dra.driver.demo.report import PodReport, WaitingReport
from kerf_dra.driver.demo.scenario import open_cluster

_ASK_AFTER_S: Final = 1.0
"""Seconds that a pod may wait before `kerf why` is asked: more than the cluster needs to place one that fits."""
_DISCOVERY_S: Final = 30.0
"""Seconds to wait for devices that nodes find by discovery, which are published a second or two after their
configuration: on a loaded machine ten times that."""
_OFFER_S: Final = 15.0
"""Seconds to wait for extended resources, which nodes list a second or two after their class was accepted."""
_ASK_AGAIN_S: Final = 0.5
"""Seconds between two questions about a pod for which nothing is certain yet."""


@dataclass(slots=True, kw_only=True)
class OwnManifests(PodRunner):
    """One run of a user's manifests in one environment."""

    manifests: Sequence[Manifest]
    ask_at: dict[str, float] = field(default_factory=dict)
    """When to ask `kerf why` about a pod, by its reference."""
    answered: set[str] = field(default_factory=set)
    """The pods for which `kerf why` knows that they wait until a person acts."""

    async def run(self) -> None:
        """Run all manifests until every pod runs, is known to wait for good, or has waited for long enough.

        Raises ScenarioError when an observation is wrong, and ProgramDiedError when one of Kerf's programs ends.
        """
        await open_cluster(self)
        async with self.step("Your manifests", "run"):
            await self._apply()
            begin = self.clock()
            with anyio.move_on_after(self.settings.step_timeout_s) as scope:
                await self._wait()
            if scope.cancelled_caught:
                await self._ask(self._unknown(), is_last=True)
            took_s = self.clock() - begin
            await self._wait_listed()
            self._show(took_s)
            await self.display.hold()

    async def _apply(self) -> None:
        classes = [manifest for manifest in self.manifests if manifest.kind in KEPT]
        await self.environment.apply(manifest.body for manifest in classes)
        await self._wait_discovered([one.body for one in classes if one.kind == DISCOVERY_CONFIGURATIONS.kind])
        names = {manifest.name for manifest in classes if manifest.kind == "ResourceClass"}
        self.report.refused_classes |= await self.find_refused_classes(names)
        for name, refusal in sorted(self.report.refused_classes.items()):
            self.display.say(f"ResourceClass {name} is not ready: {refusal}")
        await self._wait_offered()
        await self.environment.apply(manifest.body for manifest in self.manifests if manifest.kind not in KEPT)

    async def _wait_discovered(self, configurations: Sequence[JsonObject]) -> None:
        """Wait until claims can get the devices that nodes find; of those that never come `kerf why` knows more."""
        if not configurations:
            return
        expected = await list_expected_devices(configurations, self.settings.node_names)
        self.display.wait(f"{count(len(expected), 'device')} to be found")
        with suppress(WaitTimeoutError):
            await self.environment.wait_for(
                "the discovery of devices", lambda: self.environment.can_claim(expected), timeout_s=_DISCOVERY_S
            )

    async def _wait_offered(self) -> None:
        """Wait until every node lists the extended resources of classes; not every node need have that many."""
        if offers := find_offers(self.manifests):
            self.display.wait(f"nodes to offer {list_names(sorted(offers))}")
            with suppress(WaitTimeoutError):
                await self.environment.wait_for(
                    "extended resources", lambda: not self.environment.list_shortages(offers), timeout_s=_OFFER_S
                )

    async def _wait_listed(self) -> None:
        """Wait until plugins have asked which pods have devices by the device plugin interface, as they do when a
        container starts: what a pod had that they never saw is kept for an hour.
        """
        refs = {pod.ref for pod in self._own_pods() if pod.phase == "Running"}
        await self.environment.wait_for("an account of devices", lambda: self.environment.were_listed(refs))

    async def _wait(self) -> None:
        wanted = sum(manifest.pods for manifest in self.manifests)
        while True:
            self._note_failed()
            pods, others = self._own_pods(), self._unknown()
            if len(pods) >= wanted and not others:
                return
            running = sum(pod.phase == "Running" for pod in pods)
            self.display.wait(f"{running} of {count(wanted, 'pod')} running")
            await self._ask(others)
            await self.environment.wait_changed(_ASK_AGAIN_S)

    def _note_failed(self) -> None:
        """Show the pods that have failed, such as those that a kubelet has rejected: nothing starts them again."""
        for pod in self._unknown():
            if pod.phase == "Failed":
                why = self.environment.describe_failure(pod)
                self.answered.add(pod.ref)
                self.report.waiting.append(WaitingReport(pod=pod.ref, why=(why,)))
                self.display.say(f"Pod {pod.ref} has failed: {why}")

    def _unknown(self) -> list[PodReport]:
        """Return the pods that do not run, and of which it is not known that they will not."""
        return [pod for pod in self._own_pods() if pod.phase != "Running" and pod.ref not in self.answered]

    async def _ask(self, pods: Sequence[PodReport], *, is_last: bool = False) -> None:
        """Ask `kerf why` about pods that have waited for long enough, and show the answers that will not change.

        ``is_last``: show every answer, because the wait is over.
        """
        now = self.clock()
        due = [pod for pod in pods if is_last or self.ask_at.setdefault(pod.ref, now + _ASK_AFTER_S) <= now]
        if not due:
            return
        self.ask_at |= dict.fromkeys((pod.ref for pod in due), now + _ASK_AGAIN_S)
        refs = [ObjectRef(pod.namespace, pod.name) for pod in due]
        for explanation in await self.explain(self.environment.client, refs, self.display.width - 2):
            if explanation.is_final or is_last:
                self.answered.add(str(explanation.pod))
                self._show_answer(explanation)

    def _show_answer(self, explanation: Explanation) -> None:
        """Show an answer, unless it is that about an earlier pod but for its name."""
        pod, why = explanation.pod, explanation.lines
        alike = next((earlier for earlier in self.report.waiting if _is_alike(earlier, explanation)), None)
        self.report.waiting.append(WaitingReport(pod=str(pod), why=why))
        if alike:
            self.display.say(f"Pod {pod} waits for the same as pod {alike.pod}.")
            return
        show_explanation(self.display, explanation)

    def _own_pods(self) -> list[PodReport]:
        return [*self._find(self.environment.pod_reports())]

    def _find(self, pods: Collection[PodReport]) -> Iterator[PodReport]:
        """Yield the pods of the manifests: those that they name, and those that their workloads make."""
        named = {f"{manifest.namespace}/{manifest.name}" for manifest in self.manifests if manifest.kind == "Pod"}
        makers = {(m.namespace, m.kind, m.name) for m in self.manifests if m.kind not in {"Pod", *KEPT}}
        for pod in pods:
            if pod.ref in named or any((pod.namespace, *owner) in makers for owner in self.environment.owners(pod)):
                yield pod

    def _show(self, took_s: float) -> None:
        pods = [pod for pod in self._own_pods() if pod.phase == "Running"]
        self.report.waiting = [waiting for waiting in self.report.waiting if waiting.pod not in {p.ref for p in pods}]
        pods = self.record({pod.ref for pod in pods})
        if pods:
            show_pods(self.display, pods, took_s)
            self.display.say("")
            self.draw_cluster()
            show_containers(self.display, pods)
        self.report.discovered_devices = self.environment.discovered_devices()
        show_discovered_devices(self.display, self.report.discovered_devices)
        of_pods = {pod.ref: self.environment.find_warnings(pod) for pod in pods}
        notes = {pod.ref: self.environment.find_notes(pod) for pod in pods}
        self.report.warnings += self.environment.list_shortages(find_offers(self.manifests))
        report_warnings(self.display, self.report, self.manifests, of_pods, notes)


def _is_alike(earlier: WaitingReport, explanation: Explanation) -> bool:
    names = earlier.pod.rpartition("/")[2], explanation.pod.name
    before, now = (
        " ".join(why).replace(name, "") for why, name in zip((earlier.why, explanation.lines), names, strict=True)
    )
    return before == now
