"""The scenario of ``kerf demo``: its steps, and what must be observed after each.

A pod asks for a size; the other examples run; one GPU is cut into many small and then few large partitions; functions
are loaded into an FPGA; a plugin is killed and starts again; a card falls ill and comes back; everything is deleted.
Each step says what happens and why, and draws the cards before and after. A step that observes something wrong raises
ScenarioError.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Final

from kerf_dra.api.model.base import JsonObject
from kerf_dra.api.model.names import ObjectRef
from kerf_dra.driver.demo import generated_objects
from kerf_dra.driver.demo.cluster_picture import (
    describe_container,
    describe_left,
    draw_card,
    introduce,
    label_functions,
    label_profiles,
    label_users,
)
from kerf_dra.driver.demo.display import Display
from kerf_dra.driver.demo.environment import WaitTimeoutError
from kerf_dra.driver.demo.manifests import Manifest, named_classes
from kerf_dra.driver.demo.observation import describe_holdings, device_key
from kerf_dra.driver.demo.pod_runner import (
    KEPT,
    PodRunner,
    ScenarioError,
    list_pod_refs,
)
from kerf_dra.driver.demo.report import DeviceReport, LoadReport, PodReport, ResizeReport
from kerf_dra.driver.families.fpga.shell import Function
from kerf_dra.driver.families.gpu import GPU
from kerf_dra.driver.families.gpu.model import Profile
from kerf_dra.driver.partitions.device_names import parse_device_name

_CARD: Final = 0
"""Index of the card on which the generated pods are placed: every node with cards has one."""
_DEPLOYMENT: Final = "web"
"""The name of the Deployment whose pods are on a card that falls ill."""
_SCHEDULING_S: Final = 5.0
"""Seconds that an example may wait before earlier ones are deleted for it: several times what starting takes."""
_ALONE: Final[Mapping[str, tuple[str, str]]] = {
    "gpu-by-size": (
        "A pod asks for a size",
        "the smallest part of any GPU that has 18Gi of memory",
    ),
    "fpga-function": ("A pod asks for a function", "a part of an FPGA that does AES-GCM"),
}
"""Title and class of the example that is shown alone, the first of these that this hardware can run."""
_ASKS: Final[Mapping[str, str]] = {
    "gpu-small": "the smallest part",
    "gpu-resize": "one and three compute slices",
    "gpu-whole": "a whole card",
    "gpu-in-shares": "4Gi each of a shared card",
    "shared-claim": "one part for two containers",
    "extended-resource": "a limit instead of a claim",
    "fpga-function": "an FPGA that does AES-GCM",
    "fpga-two-slots": "two slots of an FPGA",
}
"""What pods of each example ask for."""
EXAMPLES: Final = tuple(dict.fromkeys((*_ALONE, *_ASKS, "resource-classes")))
"""The folders of the examples that run. The last has classes that no pod of them uses, to be tried with ``--keep``."""


@dataclass(slots=True, kw_only=True)
class Scenario(PodRunner):
    """One run of the scenario in one environment."""

    manifests: Sequence[Manifest] = ()
    """The examples."""

    async def run(self) -> None:
        """Run all steps but the last; then only the classes are left.

        Raises ScenarioError when an observation is wrong, WaitTimeoutError when something does not happen in time.
        """
        await open_cluster(self)
        await self._run_examples()
        await self.delete_everything(self.manifests)
        if self.settings.gpus:
            await self._resize()
        if self.settings.fpgas:
            await self._load()
        if self.settings.gpus:
            await self._restart()
        if self.settings.gpus and not self.settings.backends:
            await self._repair()

    async def rerun_examples(self) -> None:
        """Run the examples once more, for a user who wants to inspect them."""
        await self._examples(self._runnable({}))

    async def _run_examples(self) -> None:
        classes = [manifest for manifest in self.manifests if manifest.kind in KEPT]
        async with self.step("", "run"):
            await self.environment.apply(manifest.body for manifest in classes)
            asked = {name for manifest in self.manifests for _, name in named_classes(manifest.body)}
            unmatched = await self.find_refused_classes(asked & {m.name for m in classes if m.kind == "ResourceClass"})
        skipped: dict[str, str] = {}
        examples = self._runnable(unmatched, skipped)
        by_name = {example[0].file.stem: example for example in examples}
        alone = next((by_name[name] for name in _ALONE if name in by_name), None)
        if alone is not None:
            title, class_ = _ALONE[alone[0].file.stem]
            async with self.step(title, "run"):
                await self._run_alone(alone, class_)
        others = [example for example in examples if example is not alone]
        others.sort(key=lambda example: [*_ASKS, example[0].file.stem].index(example[0].file.stem))
        async with self.step("Other ways to ask, one example each", "run"):
            skipped |= await self._examples(others, kept=alone or ())
            names = [example[0].file.stem for example in others]
            said = [_ASKS.get(name, name) for name in names if name not in skipped]
            if said:
                self.display.say(f"Pods ask for {'; '.join(said)}.")
            for why in dict.fromkeys(skipped.values()):
                names = [name for name in skipped if skipped[name] == why]
                self.display.say(f"Not with this hardware: {', '.join(names)} ({why})")
            self.draw_cluster()
            await self._show_idle()
            await self.display.hold()

    async def _show_idle(self) -> None:
        """Show a pod that has a whole card of the simulated ones and does nothing with it, if there is one."""
        idle = [pod for pod in self.environment.pod_reports() if any(map(_is_whole_gpu, pod.devices))]
        if self.settings.backends or not idle:
            return
        pod = idle[0]
        await self.environment.wait_for(
            f"the node to say that pod {pod.ref} is idle", lambda: bool(self.environment.find_idle_since(pod))
        )
        since = self.environment.find_idle_since(pod)
        self.display.say(
            f"No process uses {pod.name}'s card: since {since[11:19]} its claim says so, and `kerf why -A --idle` "
            "lists it. The other devices compute."
        )

    async def _run_alone(self, example: Sequence[Manifest], class_: str) -> None:
        """Run an example with one pod, whose class selects ``class_``, and show its card before and after."""
        [ref] = list_pod_refs(example)
        before = {(card.node, card.name): card for card in self.environment.card_states()}
        begin = self.clock()
        await self.environment.apply(manifest.body for manifest in example)
        await self.wait_running([ref])
        took_s = self.clock() - begin
        [pod] = self.record([ref])
        [device] = pod.devices
        key = device_key(device.pool, device.device)
        after = next(card for card in self.environment.card_states() if key in card.units)
        name = next(name for manifest in example for _, name in named_classes(manifest.body))
        got = f"made {device.profile} there" if device.profile else "gave it a whole card there"
        self.display.say(
            f"The administrator's class {name} is {class_}. Pod {pod.name} claims one. The scheduler chose "
            f"{pod.node}, Kerf {got}, and the pod ran after {took_s:.1f} s."
        )
        draw_card(self.display, {"before": before[after.node, after.name], "after": after}, label_users([pod]))
        self.display.items([("its container sees", describe_container(pod.containers[0]))])
        await self.display.hold()

    async def _examples(self, examples: Sequence[Sequence[Manifest]], kept: Sequence[Manifest] = ()) -> dict[str, str]:
        """Run one file after the other; earlier ones make room where the cluster is full. Returns what cannot run."""
        running: list[Manifest] = [*kept]
        skipped: dict[str, str] = {}
        is_explained = False
        for example in examples:
            obstacle = await self._try_example(example)
            if obstacle and running:
                if not is_explained:
                    self.display.say("Where the cluster is full, the examples that ran until then are deleted.")
                is_explained = True
                await self.delete(running)
                running.clear()
                obstacle = await self._try_example(example)
            if obstacle:
                skipped[example[0].file.stem] = obstacle
                self._leave_out(example)
                await self.delete(example)
            else:
                running += example
        return skipped

    async def _try_example(self, example: Sequence[Manifest]) -> str:
        """Run one example. Returns why the scheduler cannot place it; empty: it runs."""
        refs = list_pod_refs(example)
        await self.environment.apply(manifest.body for manifest in example)
        try:
            await self.wait_running(refs, _SCHEDULING_S)
        except WaitTimeoutError:
            if waiting := self.environment.waiting(refs):
                return "; ".join(waiting.values())
            await self.wait_running(refs, self.settings.step_timeout_s)  # the machine is slow, the cluster not full
        self.record(refs)
        return ""

    def _leave_out(self, example: Sequence[Manifest]) -> None:
        self.manifests = [manifest for manifest in self.manifests if manifest not in example]

    def _runnable(self, unmatched: Mapping[str, str], skipped: dict[str, str] | None = None) -> list[list[Manifest]]:
        """Return the manifests by file, without classes. An example whose class matches no device is skipped."""
        examples: dict[Path, list[Manifest]] = {}
        for manifest in self.manifests:
            if manifest.kind not in KEPT:
                examples.setdefault(manifest.file, []).append(manifest)
        for file, example in list(examples.items()):
            asked = {name for manifest in example for _, name in named_classes(manifest.body)}
            if why := "; ".join(dict.fromkeys(unmatched[name] for name in sorted(asked & unmatched.keys()))):
                if skipped is not None:
                    skipped[file.stem] = why
                self._leave_out(examples.pop(file))
        return list(examples.values())

    async def _resize(self) -> None:
        node, model = self.settings.node_names[0], self.settings.gpu_model
        plan = generated_objects.plan_resize(model)
        large = " and ".join(profile.name for profile in plan.large)
        async with self.step(f"One card, {plan.count} x {plan.small.name}, then {large}", "resize"):
            empty = self.card(node, f"gpu-{_CARD}")
            begin = self.clock()
            before = await self._partition_card([plan.small] * plan.count, node)
            self.display.say(
                f"{_pods(plan.count)} ask for {plan.small.name} of one card, with nothing configured: Kerf cuts each "
                f"part when its pod comes. All ran after {self.clock() - begin:.1f} s."
            )
            states = {"before": empty, "cut": self.card(node, empty.name)}
            draw_card(self.display, states, label_profiles(before))
            await self.display.hold()
            await self._show_full(plan.small, node)
            begin = self.clock()
            await self.delete_everything(self.manifests)
            after = await self._partition_card(plan.large, node)
            took_s = self.clock() - begin
            self.display.say("")
            self.display.say(f"The pods end, and others ask for {large}: the card is cut again, {took_s:.1f} s later.")
            draw_card(self.display, {"after": self.card(node, empty.name)}, label_profiles(after))
            await self.display.hold()
            await self.delete_everything(self.manifests)
        card = _one_card([*before, *after])
        self.report.resized = ResizeReport(node=node, card=card, before=_profiles(before), after=_profiles(after))

    async def _show_full(self, small: Profile, node: str) -> None:
        """Let one pod more ask for the full card, and show what ``kerf why`` says of it."""
        [*objects, pod] = generated_objects.gpu_objects([small], node, self._card_uuid(node, "gpu"), name="one-more")
        name = pod["metadata"]["name"]
        ref = f"{generated_objects.NAMESPACE}/{name}"
        await self.environment.apply([*objects, pod])
        await self.environment.wait_for(f"a reason why {ref} waits", lambda: bool(self.environment.waiting([ref])))
        about = ObjectRef(generated_objects.NAMESPACE, name)
        [explanation] = await self.explain(self.environment.client, [about], self.display.width - 2)
        headline, *others = split_blocks(explanation.lines)
        steps = first_step(others[-1]) if others else []
        self.display.say("")
        self.display.say(f"One more pod waits. `kerf why pod/{name} -n {about.namespace}` says:")
        self.display.quote(f"  {line}" for line in _shorten([*headline, *steps], self.display.width - 2))

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
        async with self.step(f"One FPGA: {names}", "load"):
            self.display.say("A pod asks for a function; Kerf loads it into free slots when the pod comes.")
            states = {"before": self.card(node, f"fpga-{_CARD}")}
            pods: list[PodReport] = []
            for function in functions:
                pod, loaded = await self._load_one(function, node)
                self.report.loaded.append(loaded)
                pods.append(pod)
                states[function.name] = self.card(node, f"fpga-{_CARD}")
                await self.delete_everything(self.manifests)
            draw_card(self.display, states, label_functions(pods))
            await self.display.hold()

    async def _load_one(self, function: Function, node: str) -> tuple[PodReport, LoadReport]:
        [pod] = await self._run_generated(generated_objects.fpga_objects(function, node, self._card_uuid(node, "fpga")))
        [device] = pod.devices
        if device.profile != function.name:
            raise ScenarioError(f"wanted {function.name}, but {device.device} has {device.profile}")
        return pod, LoadReport(node=node, card=device.card, function=function.name, device=device.device)

    async def _restart(self) -> None:
        """Kill a node's plugin while a pod runs and another one comes; the next one goes on where it was."""
        node, small = self.settings.node_names[0], generated_objects.plan_resize(self.settings.gpu_model).small
        async with self.step("A plugin is killed while pods run", "restart"):
            card = self._card_uuid(node, "gpu")
            running = await self._run_generated(generated_objects.gpu_objects([small], node, card, name="early"))
            states = {"killed": self.card(node, f"gpu-{_CARD}")}
            [plugin] = [program for program in self.environment.programs if program.name.endswith(f"-{node}")]
            await plugin.kill()
            self.environment.programs.remove(plugin)
            count = generated_objects.plan_resize(self.settings.gpu_model).count
            objects = generated_objects.gpu_objects([small], node, card, name="late") if count > 1 else []
            await self.environment.apply(objects)
            await self.environment.start_program(plugin.name, plugin.arguments)
            came = await self._run_generated(objects) if objects else []
            [kept] = self.pods_now([pod.ref for pod in running])
            if kept.holdings != running[0].holdings:
                had, has = describe_holdings(running[0]), describe_holdings(kept)
                raise ScenarioError(f"pod {kept.ref} had {had}, and has {has} after the restart")
            states["after"] = self.card(node, f"gpu-{_CARD}")
            self.display.say(
                f"Kerf's plugin on {node} is killed (kill -9); pod {kept.name} keeps its part."
                + "".join(
                    f" Pod {pod.name} comes meanwhile. The next plugin reads what was cut, and cuts for {pod.name}."
                    for pod in came
                )
            )
            draw_card(self.display, states, label_users([kept, *came]))
            await self.display.hold()

    async def _repair(self) -> None:
        """Let a card fall ill: its pods move, it is reset and comes back, and the other pods do not notice."""
        environment = self.environment
        plan = generated_objects.plan_repair(self.settings.gpu_model, self.settings.nodes * self.settings.gpus)
        if plan is None:
            return
        await self.delete_everything(())  # pods of earlier steps, which nothing creates again, would keep their card
        async with self.step("A card falls ill and comes back", "repair"):
            await environment.start_reclaimer()
            objects = generated_objects.deployment_objects(plan, _DEPLOYMENT)
            await environment.apply([generated_objects.namespace_object(), *objects])
            before = await self._wait_members(plan.count)
            users = Counter((pod.node, _name_card(device)) for pod in before for device in pod.devices)
            (node, card), moving = min(users.items(), key=lambda item: (item[1], item[0]))
            states = {"before": self.card(node, card)}
            self.settings.hardware.make_card_ill(environment.paths.hardware(node), card)
            drained = await self._wait_members(plan.count, away_from=(node, card))
            staying = [pod for pod in before if (node, card) not in _list_cards([pod])]
            self._check_staying(staying, drained)
            await environment.wait_for(f"{card} of {node} to be back", lambda: not environment.is_tainted(node, card))
            states["back"] = self.card(node, card)
            kept = {pod.ref for pod in staying}
            moved = [pod for pod in drained if pod.ref not in kept]
            where = ", ".join(f"{name} of {on}" for on, name in _list_cards(moved))
            self.display.say(
                f"{card} of {node} has an error after which nothing can run on it. The reclaimer evicts its pods "
                f"({moving}), which start again on {where}; pods of the other cards ({len(staying)}) do not notice. "
                "The plugin resets the card and verifies it, and the card gets claims again."
            )
            draw_card(self.display, states, label_users(before))
            self.draw_cluster()
            await self.display.hold()
            await environment.delete(objects[1:])
            await self.delete_everything(())

    async def _wait_members(self, count: int, away_from: tuple[str, str] = ("", "")) -> list[PodReport]:
        """Wait until so many pods of the Deployment run, none of them on a card of a node, and return them."""

        def list_running() -> list[PodReport]:
            pods = [pod for pod in self.environment.pod_reports() if pod.name.startswith(f"{_DEPLOYMENT}-")]
            running = [pod for pod in pods if pod.phase == "Running" and not self.environment.is_ending(pod)]
            self.display.wait(f"{len(running)} of {_pods(count)} running")
            return running if away_from not in _list_cards(pods) else []

        await self.environment.wait_for("every pod of the Deployment", lambda: len(list_running()) == count)
        return self.pods_now([pod.ref for pod in list_running()])

    def _check_staying(self, staying: Sequence[PodReport], now: Sequence[PodReport]) -> None:
        """Raise ScenarioError when a pod of another card has ended, or has other devices."""
        by_ref = {pod.ref: pod for pod in now}
        for pod in staying:
            kept = by_ref.get(pod.ref)
            if kept is None:
                raise ScenarioError(f"pod {pod.ref} of another card has ended")
            if kept.holdings != pod.holdings:
                had, has = describe_holdings(pod), describe_holdings(kept)
                raise ScenarioError(f"pod {pod.ref} of another card had {had}, and has {has}")

    def _card_uuid(self, node: str, kind: str) -> str:
        cards = (card for report in self.report.nodes if report.name == node for card in report.cards)
        return next(card.uuid for card in cards if card.kind == kind and card.index == _CARD)

    async def _run_generated(self, objects: Sequence[JsonObject]) -> list[PodReport]:
        await self.environment.apply([generated_objects.namespace_object(), *objects])
        names = frozenset(
            f"{generated_objects.NAMESPACE}/{o['metadata']['name']}" for o in objects if o["kind"] == "Pod"
        )
        await self.wait_running(names)
        return self.record(names)


def _is_whole_gpu(device: DeviceReport) -> bool:
    return device.driver == GPU.driver and device.profile is None and not device.is_share


async def open_cluster(runner: PodRunner) -> None:
    """Wait for the cluster, and introduce it."""
    environment, display = runner.environment, runner.display
    async with runner.step("", "start"):
        display.wait("the cluster starts")
        await environment.wait_for("all nodes with their devices", environment.have_all_published)
        runner.report.nodes = environment.node_reports()
    for driver, reason in environment.found_hardware.lacking.items():
        display.say(f"{driver} has no card: {reason}")
    hardware = "your backends' hardware" if runner.settings.backends else "simulated cards"
    display.say(
        "Kerf cuts GPUs and FPGAs to size when a pod asks for a part of one. Here its own programs run with a small "
        f"Kubernetes and {hardware}, no containers."
    )
    logs = {program.name: program.log for program in environment.programs} if runner.settings.verbose else {}
    introduce(display, environment.card_states(), environment.cluster.kubeconfig, logs)
    await display.hold()


def show_kept_cluster(display: Display, kubeconfig: Path, command: str) -> None:
    """Say how to use the cluster while it stays up. ``command`` runs ``kerf`` in a shell."""
    display.begin_step("The cluster stays up until Ctrl-C")
    display.say("In another terminal:")
    commands = ("why pods", "top --once", "view")
    lines = f"export KUBECONFIG={kubeconfig}", "kubectl get pods -A", *(f"{command} {each}" for each in commands)
    display.quote(["", *(f"  {line}" for line in lines), ""])
    display.say(
        "get, describe, apply, delete, label, drain and watch work. No container runs: `kubectl logs` shows what each "
        "would have got, `kubectl exec` cannot work."
    )


async def close_cluster(runner: PodRunner, manifests: Sequence[Manifest]) -> None:
    """Delete every pod and stop Kerf's programs. Raises ScenarioError when anything of the claims is left."""
    async with runner.step("Everything is deleted", "end"):
        await runner.delete_everything(manifests)
        await runner.wait_released()
        await runner.environment.stop_programs()
        left = runner.report.left = runner.environment.count_leftovers()
        runner.display.say(describe_left(left))
        if not left.is_clean:
            raise ScenarioError("not everything was cleaned up; see above")


def split_blocks(lines: Sequence[str]) -> list[list[str]]:
    """Return the blocks of lines between empty lines."""
    return [[*block] for is_text, block in groupby(lines, key=bool) if is_text]


def first_step(lines: Sequence[str]) -> list[str]:
    """Return lines to the end of the first step of what to do: there is a step for each node, and one helps."""
    steps = [number for number, line in enumerate(lines) if line.lstrip().startswith("->")]
    return [*lines[: steps[1]]] if len(steps) > 1 else [*lines]


def _shorten(lines: Sequence[str], width: int) -> list[str]:
    return [line if len(line) <= width else f"{line[: width - 1]}…" for line in lines]


def _pods(count: int) -> str:
    words = ("no pod", "One pod", "Two pods", "Three pods", "Four pods", "Five pods", "Six pods", "Seven pods")
    return words[count] if 0 < count < len(words) else f"{count} pods"


def _name_card(device: DeviceReport) -> str:
    """Return the name of the card of a device, such as ``gpu-0``."""
    parts = parse_device_name(device.device)
    return device.device if parts is None else parts.card


def _list_cards(pods: Sequence[PodReport]) -> Sequence[tuple[str, str]]:
    """Return node and name of each card that pods have something of."""
    return list(dict.fromkeys((pod.node, _name_card(device)) for pod in pods for device in pod.devices))


def _profiles(pods: Sequence[PodReport]) -> tuple[str, ...]:
    return tuple(device.profile or "whole" for pod in pods for device in pod.devices)


def _one_card(pods: Sequence[PodReport]) -> str:
    cards = {device.card for pod in pods for device in pod.devices}
    if len(cards) != 1:
        raise ScenarioError(f"the partitions are on {len(cards)} cards instead of one: {', '.join(sorted(cards))}")
    return cards.pop()
