"""The scenario of ``kerf demo``: its steps, and what must be observed after each.

Classes and examples run; one GPU is partitioned into many small and then few large partitions; functions are loaded
into an FPGA; everything is deleted. A step that observes something wrong raises ScenarioError.
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
from driver.demo import generated_objects
from driver.demo.display import Display
from driver.demo.environment import DemoEnvironment, DemoSettings, WaitTimeoutError
from driver.demo.manifests import Manifest, named_classes
from driver.demo.observation import find_refusal, is_processed
from driver.demo.report import LoadReport, PodReport, Report, ResizeReport
from driver.families.fpga.shell import Function
from driver.families.gpu.model import Profile

_CARD: Final = 0
"""Index of the card on which the generated pods are placed: every node with cards has one."""
_SCHEDULING_S: Final = 5.0
"""Seconds that an example may wait before earlier ones are deleted for it: several times what starting takes."""
_RECHECK_S: Final = 3.0
"""Seconds that a class without a matching device may still find one: the controller may see the slices later than the
demo, and counts again a second after that."""
_KEPT: Final = ("Namespace", "ResourceClass", "DeviceClass")
"""Kinds that stay when the objects of a step are deleted."""


class ScenarioError(KerfError):
    """Something was observed that must not be, or was not observed."""


@dataclass(slots=True, kw_only=True)
class Scenario:
    """One run of the scenario in one environment."""

    environment: DemoEnvironment
    display: Display
    manifests: Sequence[Manifest]
    is_user_supplied: bool
    """Whether the manifests are the user's: then only they run."""
    clock: Callable[[], float] = time.monotonic
    report: Report = field(default_factory=Report)

    @property
    def settings(self) -> DemoSettings:
        return self.environment.settings

    async def run(self) -> None:
        """Run all steps but the last; then only the classes are left.

        Raises ScenarioError when an observation is wrong, WaitTimeoutError when something does not happen in time.
        """
        await self._open()
        await self._run_manifests()
        if self.is_user_supplied:
            return
        await self._delete_and_wait()
        if self.settings.gpus:
            await self._resize()
        if self.settings.fpgas:
            await self._load()

    async def rerun_examples(self) -> None:
        """Run the examples once more, for a user who wants to inspect them."""
        if not self.is_user_supplied:
            await self._examples(self._runnable({}))

    async def finish(self) -> None:
        """Delete every pod and stop Kerf's programs. Raises ScenarioError when anything of the claims is left."""
        async with self._step("Everything is deleted", "end"):
            await self._delete_and_wait()
            await self.environment.stop_programs()
            left = self.report.left = self.environment.count_leftovers()
            self.display.say(
                f"left: {left.partitions} partitions, {left.cdi_files} CDI files, "
                f"{left.checkpoint_records} checkpoint records, {left.claims} claims"
            )
            if not left.is_clean:
                raise ScenarioError("not everything was cleaned up; see above")

    async def _open(self) -> None:
        async with self._step("The cluster starts", "start"):
            await self.environment.wait_for("all nodes with their devices", self.environment.have_all_published)
            self.report.nodes = self.environment.node_reports()
            self.display.nodes(self.report.nodes)
            self.display.say(f"kubeconfig: {self.environment.cluster.kubeconfig}")
        if self.settings.verbose:
            for running in self.environment.programs:
                self.display.say(f"log of the {running.name}: {running.log}")

    async def _run_manifests(self) -> None:
        title = "Your manifests run" if self.is_user_supplied else "Claims by size, by function, shared and whole"
        async with self._step(title, "run"):
            classes = [manifest for manifest in self.manifests if manifest.kind in _KEPT]
            await self.environment.apply(manifest.body for manifest in classes)
            asked = {name for manifest in self.manifests for _, name in named_classes(manifest.body)}
            unmatched = await self._unmatched(asked & {m.name for m in classes if m.kind == "ResourceClass"})
            examples = self._runnable(unmatched)
            if self.is_user_supplied:
                manifests = [manifest for example in examples for manifest in example]
                await self._run_example(manifests, self.settings.step_timeout_s)
            else:
                await self._examples(examples)

    async def _examples(self, examples: Sequence[Sequence[Manifest]]) -> None:
        """Run one file after the other. Where the cluster is full, earlier ones are deleted."""
        running: list[Manifest] = []
        for example in examples:
            obstacle = await self._try_example(example)
            if obstacle and running:
                self.display.say("the cluster is full: earlier examples are deleted")
                await self._delete_and_wait(running)
                running.clear()
                obstacle = await self._try_example(example)
            if obstacle:
                self._skip(example, obstacle)
                await self._delete_and_wait(example)
            else:
                running += example

    async def _try_example(self, example: Sequence[Manifest]) -> str:
        """Run one example. Returns why the scheduler cannot place it; empty: it runs."""
        try:
            await self._run_example(example, _SCHEDULING_S)
        except WaitTimeoutError as error:
            if self.environment.waiting(list_pod_refs(example)):
                return str(error)
            await self._run_example(example, self.settings.step_timeout_s)  # the machine is slow, the cluster not full
        return ""

    async def _run_example(self, manifests: Sequence[Manifest], timeout_s: float) -> None:
        names = list_pod_refs(manifests)
        await self.environment.apply(manifest.body for manifest in manifests)
        await self._wait_running(names, timeout_s)
        for pod in self._pods_now(names):
            self.report.pods.append(pod)
            for container in pod.containers:
                self.display.container(pod, container)

    def _skip(self, example: Sequence[Manifest], why: str) -> None:
        self.display.say(f"skipped on this hardware: {example[0].file.name} ({why})")
        self.manifests = [manifest for manifest in self.manifests if manifest not in example]

    async def _unmatched(self, names: set[str]) -> dict[str, str]:
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

    def _runnable(self, unmatched: Mapping[str, str]) -> list[list[Manifest]]:
        """Return the manifests by file, without classes. An example whose class matches no device is skipped."""
        examples: dict[Path, list[Manifest]] = {}
        for manifest in self.manifests:
            if manifest.kind not in _KEPT:
                examples.setdefault(manifest.file, []).append(manifest)
        for file, example in list(examples.items()):
            asked = {name for manifest in example for _, name in named_classes(manifest.body)}
            why = "; ".join(f"ResourceClass {name}: {unmatched[name]}" for name in sorted(asked & unmatched.keys()))
            if why and self.is_user_supplied:
                raise ScenarioError(f"{file}: {why}")
            if why:
                self._skip(examples.pop(file), why)
        return list(examples.values())

    async def _resize(self) -> None:
        node, model = self.settings.node_names[0], self.settings.gpu_model
        plan = generated_objects.plan_resize(model)
        large = " and ".join(profile.name for profile in plan.large)
        async with self._step(f"One card: {plan.count} x {plan.small.name}, then {large}", "resize"):
            before = await self._partition_card([plan.small] * plan.count, node)
            await self._delete_and_wait()
            self.display.say(f"released; the same card is partitioned into {large}")
            after = await self._partition_card(plan.large, node)
            await self._delete_and_wait()
        card = _one_card([*before, *after])
        self.report.resized = ResizeReport(node=node, card=card, before=_profiles(before), after=_profiles(after))

    async def _partition_card(self, profiles: Sequence[Profile], node: str) -> list[PodReport]:
        objects = generated_objects.gpu_objects(profiles, node, self._card_uuid(node, "gpu"))
        pods = await self._run_generated(objects)
        wanted, found = Counter(profile.name for profile in profiles), Counter(_profiles(pods))
        if wanted != found:
            raise ScenarioError(f"wanted {dict(wanted)}, but got {dict(found)}")
        return pods

    async def _load(self) -> None:
        node = self.settings.node_names[0]
        functions = generated_objects.choose_functions(self.settings.shell)
        names = ", then ".join(function.name for function in functions)
        async with self._step(f"One FPGA: {names}", "load"):
            for function in functions:
                self.report.loaded.append(await self._load_one(function, node))
                await self._delete_and_wait()

    async def _load_one(self, function: Function, node: str) -> LoadReport:
        [pod] = await self._run_generated(generated_objects.fpga_objects(function, node, self._card_uuid(node, "fpga")))
        [device] = pod.devices
        for container in pod.containers:
            self.display.container(pod, container)
        if device.profile != function.name:
            raise ScenarioError(f"wanted {function.name}, but {device.device} has {device.profile}")
        return LoadReport(node=node, card=device.card, function=function.name, device=device.device)

    def _card_uuid(self, node: str, kind: str) -> str:
        cards = (card for report in self.report.nodes if report.name == node for card in report.cards)
        return next(card.uuid for card in cards if card.kind == kind and card.index == _CARD)

    async def _run_generated(self, objects: Sequence[JsonObject]) -> list[PodReport]:
        await self.environment.apply([generated_objects.namespace_object(), *objects])
        names = frozenset(
            f"{generated_objects.NAMESPACE}/{o['metadata']['name']}" for o in objects if o["kind"] == "Pod"
        )
        await self._wait_running(names)
        pods = self._pods_now(names)
        self.report.pods += pods
        return pods

    async def _wait_running(self, names: frozenset[str], timeout_s: float | None = None) -> None:
        def all_running() -> bool:
            phases = {pod.ref: pod.phase for pod in self.environment.pod_reports()}
            return all(phases.get(name) == "Running" for name in names)

        await self.environment.wait_for("every pod running", all_running, self._show, timeout_s)

    async def _delete_and_wait(self, manifests: Iterable[Manifest] | None = None) -> None:
        """Delete ``manifests`` except classes, None: everything, and wait until their pods and claims are gone."""
        chosen = list(self.manifests if manifests is None else manifests)
        objects = [manifest.body for manifest in chosen if manifest.kind not in _KEPT]
        if manifests is None:
            objects += [_pod_object(pod) for pod in self.environment.pod_reports()]
        every = frozenset(pod.ref for pod in self.environment.pod_reports())
        going = every if manifests is None else list_pod_refs(chosen)
        await self.environment.delete(objects)

        def all_deleted() -> bool:
            left = {str(pod.ref) for pod in self.environment.pods.store.values()} & going
            return not left and (manifests is not None or not self.environment.claims.store.values())

        await self.environment.wait_for("the deletion of every pod and claim", all_deleted, self._show)

    def _pods_now(self, names: frozenset[str]) -> list[PodReport]:
        pods = [pod for pod in self.environment.pod_reports() if pod.ref in names]
        for pod in pods:
            for claim in pod.claims:
                if any(device.driver in self.environment.drivers for device in claim.devices) and not claim.cdi_ids:
                    raise ScenarioError(f"pod {pod.ref} runs, but claim {claim.name} has no CDI device")
        return pods

    def _show(self) -> None:
        self.display.pods(self.environment.pod_reports())

    @asynccontextmanager
    async def _step(self, title: str, timing: str) -> AsyncIterator[None]:
        self.display.begin_step(title)
        begin = self.clock()
        yield
        self.report.timings_s[timing] = self.clock() - begin


def list_pod_refs(manifests: Iterable[Manifest]) -> frozenset[str]:
    """Return ``namespace/name`` of the pods among ``manifests``."""
    return frozenset(f"{manifest.namespace}/{manifest.name}" for manifest in manifests if manifest.kind == "Pod")


def _pod_object(pod: PodReport) -> JsonObject:
    return {"kind": "Pod", "metadata": {"name": pod.name, "namespace": pod.namespace}}


def _profiles(pods: Sequence[PodReport]) -> tuple[str, ...]:
    return tuple(device.profile or "whole" for pod in pods for device in pod.devices)


def _one_card(pods: Sequence[PodReport]) -> str:
    cards = {device.card for pod in pods for device in pod.devices}
    if len(cards) != 1:
        raise ScenarioError(f"the partitions are on {len(cards)} cards instead of one: {', '.join(sorted(cards))}")
    return cards.pop()
