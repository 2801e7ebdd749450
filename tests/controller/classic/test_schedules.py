"""Several controllers, stale caches, lost connections, crashes: no device is given away twice, and nothing is lost.

Every call to the API server is two steps, before and after it takes effect, and between any two steps anything else may
happen: another pass, a change of leadership that the former leader does not notice, a cut connection, the scheduler,
the controller manager, a user who edits others' objects, a class that is deleted or becomes another driver's.
Controllers' caches move when the schedule says so. (R-5, R-26, NE-01)
"""

import re
from collections.abc import Callable, Collection, Coroutine, Sequence
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from kerf_dra.api.errors import KerfError
from kerf_dra.api.model.classic import ClassicClaim, PodSchedulingContext, PodSchedulingContextSpec
from kerf_dra.api.model.names import ObjectRef
from kerf_dra.api.resource.v1alpha2 import KINDS
from kerf_dra.driver.controller.classic.node_model import build_node_model
from kerf_dra.driver.controller.classic.reconciler import ClaimReconciler
from kerf_dra.driver.partitions.geometry import Partition
from tests.conftest import PROFILE, SEED
from tests.controller.classic.cluster_builder import FINALIZER, ClusterBuilder, claim, context, pod
from tests.controller.classic.hardware import DRIVER, gpu, inventory
from tests.controller.classic.server import Server, SteppedApi, Stop, run

NODES = ("n1", "n2")
CLAIMS = ("a", "b", "c", "d")
MODEL = "a30-24gb"
"""Four memory slices: a few claims fill a card."""
SLICES = 4
STARTS = {"1g.6gb": (0, 1, 2, 3), "2g.12gb": (0, 2), "4g.24gb": (0,)}
"""Where an A30's sizes may begin (NVIDIA, MIG user guide); a size begins with its number of slices."""
CONTROLLERS = ("x", "y")


class KnownStates:
    """The newest state of each claim that a controller was told of, by its watch or in an answer."""

    def __init__(self) -> None:
        self.newest: dict[str, ClassicClaim] = {}
        self.uids: dict[ObjectRef, str] = {}
        """What the watch showed last under a name."""
        self.gone: set[str] = set()

    def is_news(self, value: ClassicClaim) -> bool:
        uid, known = value.metadata.uid, self.newest.get(value.metadata.uid)
        return uid not in self.gone and (known is None or _version(known) < _version(value))

    def by_watch(self, value: ClassicClaim) -> None:
        if self.uids.get(value.ref, value.metadata.uid) != value.metadata.uid:
            self.of_end(value.ref)
        self.uids[value.ref] = value.metadata.uid
        self.by_answer(value)

    def by_answer(self, value: ClassicClaim) -> None:
        if self.is_news(value):
            self.newest[value.metadata.uid] = value

    def of_end(self, ref: ObjectRef) -> None:
        uid = self.uids.pop(ref)
        self.newest.pop(uid, None)
        self.gone.add(uid)


class Controller:
    """One process: its caches, its passes under way, and whether it believes to lead."""

    def __init__(self, name: str, server: Server) -> None:
        self.name = name
        self.server = server
        self.start()

    def start(self) -> None:
        """Begin with lists of everything, as informers do, and with nothing remembered."""
        self.builder = ClusterBuilder()
        for node in NODES:
            self.builder.node(node, gpu(node, 0, MODEL))
        self.see_class("ours")
        for size in ("1g.6gb", "2g.12gb", "4g.24gb"):
            self.builder.claim_parameters(size, {"profile": size})
        self.seen = len(self.server.log)
        self.known_states = KnownStates()
        for value in self.server.claims():
            self.builder.put_claim(value)
            self.known_states.by_watch(value)
        self.builder.claims_version = self.server.version
        self.api = SteppedApi(self.server, self.name)
        self.reconciler = ClaimReconciler(self.api, KINDS, self.builder.view)
        self.passes: dict[object, Coroutine[Any, Any, object]] = {}
        self.leads = False

    def see_class(self, state: str) -> None:
        """Show the cache the class: present, deleted, or another driver's."""
        class_ = self.builder.resource_class("gpu", {"allowWhole": True, "claimsMayOverride": ["size"]})
        if state == "theirs":
            self.builder.resource_class("gpu", driver_name="other.example")
        elif state == "gone":
            self.builder.stores.classes.remove(class_.ref)

    def see(self, count: int, *, is_merged: bool = False) -> None:
        """Deliver the next ``count`` changes of claims to the cache; ``is_merged``: only the last one of each name.

        So they come after a watch has broken and the claims were listed: a claim that was deleted and made anew is
        simply another one then.
        """
        changes = self.server.log[self.seen : self.seen + count]
        self.seen += len(changes)
        for ref, value in dict(changes).items() if is_merged else changes:
            if value is None and ref not in self.known_states.uids:
                continue  # made and deleted in between
            if value is not None:
                self.builder.put_claim(value)
                self.known_states.by_watch(value)
            else:
                self.builder.remove_claim(ref)
                self.known_states.of_end(ref)
        if changes:
            self.builder.claims_version = self.server.versions[self.seen - 1]

    def may_know(self, uid: str) -> list[ClassicClaim | None]:
        """The states of a claim that may be the newest to this controller; None: it is gone, or unknown.

        It is one state, but for claims of a list that is worked through, or that was given up half way: the list's may
        have been taken in, or not. And a claim that came and went between two lists is forgotten by the next pass.
        """
        newest = self.known_states.newest.get(uid)
        listed = [one for one in self.api.listed if one.metadata.uid == uid and self.known_states.is_news(one)]
        is_missed = (
            newest is not None
            and uid not in self.known_states.uids.values()
            and _version(newest) <= self.builder.claims_version
        )
        return [newest, *listed, *([None] if is_missed else [])]

    def stop_passes(self) -> None:
        for work in self.passes.values():
            work.close()
        self.passes.clear()

    def begin(self, key: object, work: Callable[[], Coroutine[Any, Any, object]]) -> None:
        """Begin a pass, up to its first call; one pass over a key at a time."""
        if key not in self.passes:
            self.passes[key] = work()
            self.step(key, None)

    def step(self, key: object, answer: str | None) -> None:
        work = self.passes[key]
        try:
            stop = work.send(answer)
            assert isinstance(stop, Stop)
        except StopIteration:
            self.ended(key)
        except KerfError:
            self.ended(key, failed=True)

    def ended(self, key: object, *, failed: bool = False) -> None:
        del self.passes[key]
        if key == "take over":
            self.leads = not failed
            if self.leads:
                self.api.answered += self.api.latest_list

    def hear_answers(self) -> None:
        """Have what calls were answered with count as told; lists only once the pass over them has ended."""
        for value in self.api.answered:
            self.known_states.by_answer(value)
        self.api.answered.clear()


class Cluster:
    """Everything that takes part, and what may happen next."""

    def __init__(self, chance: Random) -> None:
        self.chance = chance
        self.server = Server()
        self.watches_break = chance.random() < 0.25
        """Whether watches break often: then changes come late, many at once, and merged."""
        self.terms = 0
        self.sizes: dict[str, str] = {}
        """What each claim asks for, by its UID."""
        self.stripped: set[str] = set()
        """UIDs of claims whose finalizer somebody has taken off."""
        self.checked = 0
        """The server's version for which the claims were checked last."""
        self.controllers = {name: Controller(name, self.server) for name in CONTROLLERS}
        self.elect("x")
        for name in CLAIMS:
            self.create_claim(name)

    def play(self, steps: int) -> None:
        """Execute so many steps, and check all invariants after each."""
        actions = [action for action, weight in self.actions() for _ in range(weight)]
        for _ in range(steps):
            self.chance.choice(actions)()
            self.check()

    def actions(self) -> Sequence[tuple[Callable[[], None], int]]:
        """Return the weights of the actions: mostly steps of passes under way, rarely a change of leadership."""

        def on_controller(
            method: Callable[[Controller], None], which: Callable[[Controller], object] = lambda _: True
        ) -> Callable[[], None]:
            def act() -> None:
                if able := [controller for controller in self.controllers.values() if which(controller)]:
                    method(self.chance.choice(able))

            return act

        def on_claim(method: Callable[[str], None]) -> Callable[[], None]:
            return lambda: method(self.chance.choice(CLAIMS))

        return (
            (on_controller(self.step, lambda controller: controller.passes), 32),
            (on_controller(self.work_on_context, lambda controller: controller.leads), 16),
            (on_controller(self.work_on_claim, lambda controller: controller.leads), 8),
            (on_controller(self.see), 8),
            (on_claim(self.select_node), 12),
            (on_claim(self.create_claim), 6),
            (on_claim(self.pod_ends), 6),
            (on_claim(self.request_deallocation), 4),
            (on_claim(self.delete_claim), 2),
            (on_claim(self.touch_claim), 1),
            (on_claim(self.strip_claim), 1),
            (on_controller(self.change_class), 1),
            (lambda: self.elect(self.chance.choice(CONTROLLERS)), 3),
            (on_controller(self.crash), 1),
        )

    # --- users, the scheduler, kube-controller-manager

    def create_claim(self, name: str) -> None:
        if self.server.claim(name) is None:
            self.terms += 1
            size = self.chance.choice(["1g.6gb", "2g.12gb", "2g.12gb", "4g.24gb"])
            value = claim(name, parameters=size, immediate=self.chance.random() < 0.25)
            self.server.put(_with_uid(value, f"{name}-{self.terms}"))
            self.sizes[f"{name}-{self.terms}"] = size

    def select_node(self, name: str) -> None:
        """A pod of two claims, or of one twice, has been given a node."""
        other, node = self.chance.choice(CLAIMS), self.chance.choice(("n1", "n1", "n2"))
        self.server.pods[ObjectRef("ns", name)] = pod(name, claims={"first": name, "second": other})
        value = context(name, selected=node, potential=NODES)
        old = self.server.contexts.get(value.ref)
        spec = PodSchedulingContextSpec(selected_node=node, potential_nodes=NODES)
        self.server.put_context(value if old is None else _with_spec(old, spec))

    def pod_ends(self, name: str) -> None:
        """Its reservations go; the last one of a claim asks for deallocation."""
        self.server.pods.pop(ObjectRef("ns", name), None)
        self.server.contexts.pop(ObjectRef("ns", name), None)
        for value in self.server.claims():
            if any(one.uid == f"pod-{name}" for one in value.status.reserved_for):
                self.server.change(value.metadata.name, status={"reservedFor": None})
                if not value.spec.immediate:
                    self.server.change(value.metadata.name, status={"deallocationRequested": True})

    def request_deallocation(self, name: str) -> None:
        self.server.change(name, status={"deallocationRequested": True})

    def delete_claim(self, name: str) -> None:
        self.server.delete(name)

    def touch_claim(self, name: str) -> None:
        self.server.change(name, metadata={"labels": {"touched": str(self.chance.randrange(4))}})

    def strip_claim(self, name: str) -> None:
        value = self.server.claim(name)
        if value is not None and FINALIZER in value.metadata.finalizers:
            self.stripped.add(value.metadata.uid)
            self.server.change(name, metadata={"finalizers": None})

    def change_class(self, controller: Controller) -> None:
        controller.see_class(self.chance.choice(["ours", "ours", "ours", "theirs", "gone"]))

    # --- controllers

    def elect(self, name: str) -> None:
        """Make another controller the leader; the former one is not notified."""
        controller = self.controllers[name]
        if self.server.leader == name and (controller.leads or controller.passes):
            return
        self.terms += 1
        self.server.leader = name
        controller.stop_passes()
        controller.leads = False
        controller.begin("take over", lambda: controller.reconciler.take_over(str(self.terms)))

    def crash(self, controller: Controller) -> None:
        """The process dies and is started again; it does not lead before it is elected again."""
        controller.stop_passes()
        controller.start()
        if self.server.leader == controller.name:
            self.server.leader = ""

    def work_on_claim(self, controller: Controller) -> None:
        ref = ObjectRef("ns", self.chance.choice(CLAIMS))
        controller.begin(("claim", ref), lambda: controller.reconciler.reconcile_claim(ref))

    def work_on_context(self, controller: Controller) -> None:
        if self.server.contexts:
            value = self.chance.choice(list(self.server.contexts.values()))
            controller.builder.stores.contexts.put(value)
            controller.begin(("context", value.ref), lambda: controller.reconciler.reconcile_context(value.ref))

    def step(self, controller: Controller) -> None:
        """Some steps of one pass; one of them may lose its connection, or hear that the server failed."""
        key = self.chance.choice(list(controller.passes))
        fails_at, failure = self.chance.randrange(24), self.chance.choice(["cut", "fail"])
        for number in range(self.chance.choice((1, 2, 3, 5, 8, 13))):
            if key in controller.passes:
                controller.step(key, failure if number == fails_at else None)

    def see(self, controller: Controller) -> None:
        count = self.chance.randrange(8, 24) if self.watches_break else self.chance.randrange(1, 8)
        controller.see(count, is_merged=self.chance.random() < (0.75 if self.watches_break else 0.25))

    # --- what must hold

    def check(self) -> None:
        if self.server.version != self.checked:
            self.no_device_is_given_away_twice()
            self.what_is_allocated_is_marked()
            self.checked = self.server.version
        self.the_index_is_what_the_claims_say()

    def no_device_is_given_away_twice(self) -> None:
        for node in NODES:
            held = [(value.metadata.name, part) for value in self.server.claims() for part in _parts(value, node)]
            for number, (name, part) in enumerate(held):
                for other, others in held[:number]:
                    assert not part.overlaps(others), f"{name} and {other} have {part} and {others} of {node}"

    def what_is_allocated_is_marked(self) -> None:
        for value in self.server.claims():
            is_marked = FINALIZER in value.metadata.finalizers or value.metadata.uid in self.stripped
            assert value.status.allocation is None or is_marked

    def the_index_is_what_the_claims_say(self) -> None:
        """What each controller counts as taken is what the newest claims that it was told of have, and no more."""
        for controller in self.controllers.values():
            controller.hear_answers()
            usage = controller.builder.view.usage
            for node in NODES:
                counted = {
                    uid: {device for one in held for device in one.devices or ()}
                    for uid, held in usage.on(node).items()
                }
                for uid in sorted(controller.known_states.newest.keys() | counted):
                    possible = [_devices(one, node) for one in controller.may_know(uid)]
                    have = counted.get(uid, set())
                    if usage.is_reserved(uid):
                        assert any(have >= devices for devices in possible), f"{uid} of {node}: {have}, not {possible}"
                    else:
                        assert have in possible, f"{uid} of {node}: {have}, not {possible}"

    def come_to_rest(self) -> None:
        """Stop all faults: then each claim that fits is allocated, and finished pods release theirs."""
        self.controllers["y"].stop_passes()
        self.elect("x")
        controller = self.controllers["x"]
        controller.see_class("ours")
        for key in list(controller.passes):
            while key in controller.passes:
                controller.step(key, None)
        if not controller.leads:  # its take-over had been cut before
            self.server.leader = ""
            self.elect("x")
            while controller.passes:
                controller.step("take over", None)
        assert controller.leads
        self.settle(controller)
        self.no_device_is_given_away_twice()
        self.everybody_has_what_fits()
        for value in self.server.claims():
            if (value.is_terminating or value.status.deallocation_requested) and not value.status.reserved_for:
                assert FINALIZER not in value.metadata.finalizers
                assert value.status.allocation is None
        for name in CLAIMS:
            self.pod_ends(name)
        for name in CLAIMS:
            self.server.delete(name)
        self.settle(controller)
        assert self.server.claims() == []
        assert all(not controller.builder.view.usage.on(node) for node in NODES)

    def everybody_has_what_fits(self) -> None:
        """Check by brute force that no claim that waits could be allocated, without a question to Kerf."""
        claims = {value.metadata.name: value for value in self.server.claims()}
        free = {
            node: set(range(SLICES)).difference(*(_slices(value, node) for value in claims.values())) for node in NODES
        }
        waiting = {
            name: self.sizes[value.metadata.uid]
            for name, value in claims.items()
            if not (value.status.allocation or value.is_terminating or value.status.deallocation_requested)
        }
        for name, size in waiting.items():
            if claims[name].spec.immediate:
                assert not any(_fits([size], free[node]) for node in NODES), f"{name} waits for {size} of {free}"
        for ref, asking in self.server.contexts.items():
            its_pod = self.server.pods.get(ref)
            if its_pod is None:
                continue
            named = [claims[name] for name in dict.fromkeys(its_pod.claim_names().values()) if name in claims]
            users = {consumer.uid for value in named for consumer in value.status.reserved_for}
            if users - {its_pod.metadata.uid}:
                continue  # a pod that has to wait for one claim holds no devices for the others (one pod a claim here)
            sizes = [
                waiting[value.metadata.name]
                for value in named
                if value.metadata.name in waiting and not value.spec.immediate
            ]
            node = asking.spec.selected_node
            assert not sizes or not _fits(sizes, free[node]), f"{ref} waits for {sizes} of {node}: {free[node]}"

    def settle(self, controller: Controller) -> None:
        """Reconcile everything until nothing changes any more."""
        for _ in range(6):
            controller.see(len(self.server.log))
            for asking in list(self.server.contexts.values()):
                controller.builder.stores.contexts.put(asking)
                run(controller.reconciler.reconcile_context(asking.ref))
                controller.see(len(self.server.log))
            for value in self.server.claims():
                run(controller.reconciler.reconcile_claim(value.ref))
                controller.see(len(self.server.log))


NODE_MODELS = {node: build_node_model(inventory(node, gpu(node, 0, MODEL)).spec) for node in NODES}


def _parts(value: ClassicClaim, node: str) -> list[Partition]:
    found = []
    for result in value.status.allocation.devices.results if value.status.allocation else ():
        card = NODE_MODELS[node].card_of(result.device)
        if result.pool == f"{node}/gpu":
            assert card is not None
            cut = card.find(result.device)
            assert cut is not None
            found.append(cut.of(card.card.uuid))
    return found


def _devices(value: ClassicClaim | None, node: str) -> set[str]:
    """The names of the devices of ``node`` that ``value`` has been given."""
    results = value.status.allocation.devices.results if value is not None and value.status.allocation else ()
    return {result.device for result in results if (result.driver, result.pool) == (DRIVER, f"{node}/gpu")}


def _slices(value: ClassicClaim, node: str) -> set[int]:
    """The memory slices of ``node`` that a claim has, by the names of its devices."""
    found: set[int] = set()
    for device in _devices(value, node):
        match = re.fullmatch(r"gpu-0-(\d)g-\d+gb-at-(\d)", device)
        start, size = (int(match[2]), int(match[1])) if match else (0, SLICES)
        found.update(range(start, start + size))
    return found


def _fits(sizes: Sequence[str], free: Collection[int]) -> bool:
    """Whether all of ``sizes`` fit at once: every choice of placements is tried."""
    if not sizes:
        return True
    first, *others = sizes
    size = int(first[0])
    places = (set(range(start, start + size)) for start in STARTS[first])
    return any(_fits(others, set(free) - place) for place in places if place <= set(free))


def _version(value: ClassicClaim) -> int:
    return int(value.metadata.resource_version)


def _with_uid(value: ClassicClaim, uid: str) -> ClassicClaim:
    return replace(value, metadata=replace(value.metadata, uid=uid))


def _with_spec(value: PodSchedulingContext, spec: PodSchedulingContextSpec) -> PodSchedulingContext:
    return replace(value, spec=spec)


_FIRST, _COUNT, _SHARE = (0, 250, 125) if PROFILE == "default" else (SEED, 10_000, 2_500)
"""Seeds in order: what hypothesis would draw depends also on the constants of all modules that are loaded."""


@pytest.mark.parametrize("part", range(0, _COUNT, _SHARE))
def test_any_schedule_keeps_every_device_to_one_claim_and_comes_to_rest(part: int) -> None:
    for seed in range(_FIRST + part, _FIRST + part + _SHARE):
        try:
            cluster = Cluster(Random(seed))
            cluster.play(120)
            cluster.come_to_rest()
        except Exception as error:
            error.add_note(f"in the schedule of seed {seed}")
            raise
