"""The story of ``kerf demo``: what is done on the stage, and what must be seen of it.

Every chapter ends with a check; the story fails with StoryError when something was not observed.
"""

import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from api.errors import KerfError
from api.model.base import JsonObject
from api.model.names import KERF_DRIVER
from driver.demo import scenario_steps
from driver.demo.cleanup_check import leftovers
from driver.demo.display import Display
from driver.demo.environment import Stage, StageError
from driver.demo.manifests import Manifest, named_classes
from driver.demo.observation import is_judged, why_not_usable
from driver.demo.report import LoadReport, PodReport, Report, ResizeReport
from driver.partitions.geometry import Function, Profile

_CARD: Final = 0
"""Index of the card on which the generated pods are placed: every node with cards has one."""
_ROOM_S: Final = 5.0
"""How long an example may wait before others make room for it: several times what starting takes."""
_SECOND_THOUGHT_S: Final = 3.0
"""How long a class that matches no device may still find one: the controller may hear of hardware after the demo, and
looks again a second later."""
_KEPT: Final = ("Namespace", "ResourceClass", "DeviceClass")
"""Kinds that stay when the objects of a chapter go: offers cost nothing."""


class StoryError(KerfError):
    """Something was observed that must not be, or the reverse."""


@dataclass(slots=True, kw_only=True)
class Story:
    """One telling, on one stage."""

    stage: Stage
    display: Display
    manifests: Sequence[Manifest]
    is_own: bool
    """The manifests are the user's: they are the whole story."""
    clock: Callable[[], float] = time.monotonic
    report: Report = field(default_factory=Report)

    async def tell(self) -> None:
        """Everything up to the end, where nothing but the classes is left. Raises StoryError and StageError."""
        await self._open()
        await self._run_manifests()
        if self.is_own:
            return
        await self._take_back()
        if self.stage.settings.gpus:
            await self._resize()
        if self.stage.settings.fpgas:
            await self._load()

    async def bring_back(self) -> None:
        """Run the manifests once more, for somebody who wants to look around."""
        if not self.is_own:
            await self._examples(self._runnable({}))

    async def end(self) -> None:
        """Take every pod back, end Kerf's programs, and prove that nothing of the claims is left."""
        async with self._chapter("Everything goes", "end"):
            await self._take_back()
            await self.stage.stop_programs()
            left = self.report.left = leftovers(self.stage)
            self.display.say(
                f"left: {left.partitions} partitions, {left.cdi_files} CDI files, "
                f"{left.checkpoint_records} checkpoint records, {left.claims} claims"
            )
            if not left.is_clean:
                raise StoryError("something is left; see above")

    @property
    def kubeconfig(self) -> Path:
        return self.stage.cluster.kubeconfig

    async def _open(self) -> None:
        settings = self.stage.settings
        async with self._chapter("The cluster comes up", "start"):
            await self.stage.wait_for("all nodes with their devices", self._all_published)
            self.report.nodes = self.stage.node_reports()
            self.display.nodes(self.report.nodes)
            self.display.say(f"kubeconfig: {self.stage.cluster.kubeconfig}")
        if settings.verbose:
            for running in self.stage.programs:
                self.display.say(f"log of the {running.name}: {running.log}")

    def _all_published(self) -> bool:
        expected = self.stage.settings.gpus + self.stage.settings.fpgas
        reports = self.stage.node_reports()
        complete = [node for node in reports if len(node.cards) == expected]
        return len(complete) == self.stage.settings.nodes

    async def _run_manifests(self) -> None:
        title = "Your manifests run" if self.is_own else "Claims by size, by function, shared and whole"
        async with self._chapter(title, "run"):
            classes = [manifest for manifest in self.manifests if manifest.kind in _KEPT]
            await self.stage.apply(manifest.body for manifest in classes)
            asked = {name for manifest in self.manifests for _, name in named_classes(manifest.body)}
            unmatched = await self._unmatched(asked & {m.name for m in classes if m.kind == "ResourceClass"})
            acts = self._runnable(unmatched)
            if self.is_own:
                await self._act([manifest for act in acts for manifest in act], self.stage.settings.step_timeout_s)
            else:
                await self._examples(acts)

    async def _examples(self, acts: Sequence[Sequence[Manifest]]) -> None:
        """One file after the other. Where the cluster is full, earlier ones make room."""
        running: list[Manifest] = []
        for act in acts:
            obstacle = await self._try(act)
            if obstacle and running:
                self.display.say("the cluster is full: what ran before makes room")
                await self._take_back(running)
                running.clear()
                obstacle = await self._try(act)
            if obstacle:
                self._leave_out(act, obstacle)
                await self._take_back(act)
            else:
                running += act

    async def _try(self, act: Sequence[Manifest]) -> str:
        """Run one example; answers why the scheduler finds no room for it, or nothing."""
        try:
            await self._act(act, _ROOM_S)
        except StageError as error:
            if self.stage.waiting(pods_of(act)):
                return str(error)
            await self._act(act, self.stage.settings.step_timeout_s)  # the machine is slow, the cluster not full
        return ""

    async def _act(self, manifests: Sequence[Manifest], timeout_s: float) -> None:
        names = pods_of(manifests)
        await self.stage.apply(manifest.body for manifest in manifests)
        await self._wait_running(names, timeout_s)
        for pod in self._pods_now(names):
            self.report.pods.append(pod)
            for container in pod.containers:
                self.display.container(pod, container)

    def _leave_out(self, act: Sequence[Manifest], why: str) -> None:
        self.display.say(f"not with this hardware: {act[0].file.name} ({why})")
        self.manifests = [manifest for manifest in self.manifests if manifest not in act]

    async def _unmatched(self, names: set[str]) -> dict[str, str]:
        """Those of the ResourceClasses that select no published device, and what the controller says of them."""
        classes = self.stage.resource_classes(names)

        def all_judged() -> bool:
            return len(classes()) == len(names) and all(map(is_judged, classes()))

        await self.stage.wait_for("the controller's word on every class", all_judged)

        def all_usable() -> bool:
            return not any(map(why_not_usable, classes()))

        with suppress(StageError):
            await self.stage.wait_for("a device for every class", all_usable, timeout_s=_SECOND_THOUGHT_S)
        said = {class_.metadata.name: why_not_usable(class_) for class_ in classes()}
        return {name: message for name, message in said.items() if message}

    def _runnable(self, unmatched: Mapping[str, str]) -> list[list[Manifest]]:
        """The manifests by file, without classes. An example whose class finds no device is left out."""
        acts: dict[Path, list[Manifest]] = {}
        for manifest in self.manifests:
            if manifest.kind not in _KEPT:
                acts.setdefault(manifest.file, []).append(manifest)
        for file, act in list(acts.items()):
            asked = {name for manifest in act for _, name in named_classes(manifest.body)}
            why = "; ".join(f"ResourceClass {name}: {unmatched[name]}" for name in sorted(asked & unmatched.keys()))
            if why and self.is_own:
                raise StoryError(f"{file}: {why}")
            if why:
                self._leave_out(acts.pop(file), why)
        return list(acts.values())

    async def _resize(self) -> None:
        node, model = self.stage.settings.node_names[0], self.stage.settings.gpu_model
        plan = scenario_steps.resize(model)
        large = " and ".join(profile.name for profile in plan.large)
        async with self._chapter(f"One card: {plan.count} x {plan.small.name}, then {large}", "resize"):
            before = await self._cut([plan.small] * plan.count, node)
            await self._take_back()
            self.display.say(f"released; the same card is cut into {large}")
            after = await self._cut(plan.large, node)
            await self._take_back()
        card = _one_card([*before, *after])
        self.report.resized = ResizeReport(node=node, card=card, before=_profiles(before), after=_profiles(after))

    async def _cut(self, profiles: Sequence[Profile], node: str) -> list[PodReport]:
        objects = scenario_steps.gpu_objects(profiles, node, _CARD)
        pods = await self._run_generated(objects)
        wanted, cut = Counter(profile.name for profile in profiles), Counter(_profiles(pods))
        if wanted != cut:
            raise StoryError(f"wanted {dict(wanted)}, but got {dict(cut)}")
        return pods

    async def _load(self) -> None:
        node = self.stage.settings.node_names[0]
        functions = scenario_steps.loads(self.stage.settings.shell)
        names = ", then ".join(function.name for function in functions)
        async with self._chapter(f"One FPGA: {names}", "load"):
            for function in functions:
                self.report.loaded.append(await self._load_one(function, node))
                await self._take_back()

    async def _load_one(self, function: Function, node: str) -> LoadReport:
        [pod] = await self._run_generated(scenario_steps.fpga_objects(function, node, _CARD))
        [device] = pod.devices
        for container in pod.containers:
            self.display.container(pod, container)
        if device.profile != function.name:
            raise StoryError(f"wanted {function.name}, but {device.device} has {device.profile}")
        return LoadReport(node=node, card=device.card, function=function.name, device=device.device)

    async def _run_generated(self, objects: Sequence[JsonObject]) -> list[PodReport]:
        await self.stage.apply([scenario_steps.namespace_object(), *objects])
        names = frozenset(f"{scenario_steps.NAMESPACE}/{o['metadata']['name']}" for o in objects if o["kind"] == "Pod")
        await self._wait_running(names)
        pods = self._pods_now(names)
        self.report.pods += pods
        return pods

    async def _wait_running(self, names: frozenset[str], timeout_s: float | None = None) -> None:
        def all_running() -> bool:
            phases = {pod.ref: pod.phase for pod in self.stage.pod_reports()}
            return all(phases.get(name) == "Running" for name in names)

        await self.stage.wait_for("every pod running", all_running, self._show, timeout_s)

    async def _take_back(self, manifests: Iterable[Manifest] | None = None) -> None:
        """Delete ``manifests`` but classes, or everything, and wait until their pods and claims have gone."""
        chosen = list(self.manifests if manifests is None else manifests)
        objects = [manifest.body for manifest in chosen if manifest.kind not in _KEPT]
        if manifests is None:
            objects += [pod_object(pod) for pod in self.stage.pod_reports()]
        going = pods_of(chosen) if manifests is not None else frozenset(pod.ref for pod in self.stage.pod_reports())
        await self.stage.delete(objects)

        def all_gone() -> bool:
            left = {str(pod.ref) for pod in self.stage.pods.store.values()} & going
            return not left and (manifests is not None or not self.stage.claims.store.values())

        await self.stage.wait_for("the end of every pod and claim", all_gone, self._show)

    def _pods_now(self, names: frozenset[str]) -> list[PodReport]:
        pods = [pod for pod in self.stage.pod_reports() if pod.ref in names]
        for pod in pods:
            for claim in pod.claims:
                if any(device.driver == KERF_DRIVER for device in claim.devices) and not claim.cdi_ids:
                    raise StoryError(f"pod {pod.ref} runs, but claim {claim.name} has no CDI device")
        return pods

    def _show(self) -> None:
        self.display.pods(self.stage.pod_reports())

    @asynccontextmanager
    async def _chapter(self, title: str, timing: str) -> AsyncIterator[None]:
        self.display.chapter(title)
        begin = self.clock()
        yield
        self.report.timings_s[timing] = self.clock() - begin


def pods_of(manifests: Iterable[Manifest]) -> frozenset[str]:
    return frozenset(f"{manifest.namespace}/{manifest.name}" for manifest in manifests if manifest.kind == "Pod")


def pod_object(pod: PodReport) -> JsonObject:
    return {"kind": "Pod", "metadata": {"name": pod.name, "namespace": pod.namespace}}


def _profiles(pods: Sequence[PodReport]) -> tuple[str, ...]:
    return tuple(device.profile or "whole" for pod in pods for device in pod.devices)


def _one_card(pods: Sequence[PodReport]) -> str:
    cards = {device.card for pod in pods for device in pod.devices}
    if len(cards) != 1:
        raise StoryError(f"the partitions lie on {len(cards)} cards instead of one: {', '.join(sorted(cards))}")
    return cards.pop()
