"""One schedule: what happens next is chosen by chance; at the end all faults are over, and the node comes to rest."""

import asyncio
import shutil
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any, Final

import anyio
from anyio.abc import TaskGroup
from msgspec.structs import replace

from kerf_dra.api.errors import KerfError
from kerf_dra.api.model.claims import ResourceClaim
from kerf_dra.api.model.names import ObjectRef
from kerf_dra.api.model.prepared import PreparedClaim
from kerf_dra.api.podresources.v1 import ClaimUse
from kerf_dra.driver.families.gpu import GPU
from kerf_dra.driver.kubeletplugin.backends.nvidia.backend import NvidiaBackend
from kerf_dra.driver.kubeletplugin.backends.ownership import BEFORE
from kerf_dra.driver.kubeletplugin.claims.checkpoint.checkpoint import Checkpoint, open_checkpoint
from kerf_dra.driver.kubeletplugin.cluster.claim_end import ANSWERS, ANSWERS_ALONE
from kerf_dra.driver.kubeletplugin.grpc.pod_resources import PodResourcesError
from kerf_dra.driver.partitions.geometry import Partition
from kerf_dra.driver.partitions.records import from_card_part
from tests.fakes.claims import NAMESPACE, claim, ref
from tests.ownership.history import (
    Actor,
    Allocated,
    Answered,
    Booted,
    Called,
    Died,
    End,
    Ended,
    Event,
    Given,
    Operation,
    Outcome,
    Rested,
    Started,
    Used,
)
from tests.ownership.judge import Judge, ViolationError
from tests.runtime.virtual_time import pass_time
from tests.schedules.nvidia_cards import NvidiaCards
from tests.schedules.pods import Phase, Pod
from tests.schedules.process import Outside, PluginProcess, answer_of
from tests.schedules.slow_cluster import SlowCluster

NAMES: Final = ("a", "b", "c", "d")
STEPS: Final = 30
GRACE_S: Final = 60.0
"""``gone_grace_s`` of the plugin's settings."""
_PAUSES_S: Final = (0.0, 0.0, 0.001, 0.02, 0.2, 1.0, 3.0, 12.0, 70.0)
_DEADLINES_S: Final = (0.05, 1.0, 45.0, 45.0, 45.0)
_REST_S: Final = 30.0
"""Time for the kubelet's calls, and for what the plugin does by itself."""
_ROUNDS: Final = 8
"""Calls of the kubelet at rest until each pod has what it can have, one a minute."""
_ROUNDS_OF_HELD: Final = 4
"""Those until a claim that had its devices has them again: too few to wait for the next discovery, and as many as the
release of a claim takes that the kubelet has forgotten."""
_MORE_ROUNDS_ALONE: Final = ANSWERS_ALONE - ANSWERS
"""How many more that release takes where the kubelet lists no claims: one for each answer more of the API server."""
_OTHER_USE: Final = ClaimUse(claim=ObjectRef(NAMESPACE, "of-another-driver"), pod=ObjectRef(NAMESPACE, "another"))
"""What a kubelet that lists claims lists besides: so the plugin knows that it does."""


class Schedule:
    """A schedule over one machine; ``play`` raises what is wrong."""

    def __init__(self, seed: int, cards: NvidiaCards, root: Path) -> None:
        self.chance = Random(seed)
        self.cards = cards
        self.root = root
        self.judge = Judge(grace_s=GRACE_S)
        self.cluster = SlowCluster(self.chance)
        self.pods: dict[str, Pod] = {}
        self.process: PluginProcess | None = None
        self.backend: NvidiaBackend | None = None
        self.tasks: TaskGroup
        self.boot = 1
        self.calls = self.claims = 0
        self.wall_offset_s = 1e9
        self.kubelet_is_silent = False
        self.kubelet_lists_claims = self.chance.random() < 0.8
        self.starts = 0
        self.is_resting = False
        self.errors: list[Exception] = []
        self.violation: ViolationError | None = None

    async def play(self) -> None:
        asyncio.get_running_loop().set_exception_handler(self._note_error)
        async with anyio.create_task_group() as self.tasks:
            await self.start()
            actions = [action for action, weight in self._actions() for _ in range(weight)]
            for _ in range(STEPS):
                await self.chance.choice(actions)()
                await pass_time(self.chance.choice(_PAUSES_S))
                self.check()
            await self.come_to_rest()
            self.kill()
            self.tasks.cancel_scope.cancel()
        self.check()

    def check(self) -> None:
        """Raise what was violated, and what was raised where nobody could catch it."""
        if self.violation is not None:
            raise self.violation
        if self.errors:
            raise ExceptionGroup("raised in callbacks of the event loop", self.errors)

    def _note_error(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        self.errors.append(error if isinstance(error, Exception) else RuntimeError(str(context)))

    def _actions(self) -> Sequence[tuple[Callable[[], Awaitable[None]], int]]:
        return (
            (self.add_pod, 28),
            (self.try_again, 20),
            (self.end_pod, 12),
            (self.forget_pod, 2),
            (self.delete_claim, 2),
            (self.allocate_otherwise, 2),
            (self.strike_at_effect, 8),
            (self.kill_process, 2),
            (self.stop_process, 2),
            (self.start, 6),
            (self.reboot, 1),
            (self.reset_card, 1),
            (self.reload_driver, 2),
            (self.change_presence, 3),
            (self.fail_calls, 8),
            (self.cut_by_hand, 6),
            (self.remove_by_hand, 4),
            (self.switch_mode_by_hand, 1),
            (self.use_by_process, 3),
            (self.end_processes, 2),
            (self.fall_ill, 3),
            (self.recover, 3),
            (self.set_wall_clock, 1),
            (self.change_outages, 2),
        )

    @property
    def now(self) -> float:
        return anyio.current_time()

    def note(self, event: Event) -> None:
        """Have an event judged; what it violates is raised by ``play``, whoever notes it."""
        if self.violation is None:
            try:
                self.judge.note(event)
            except ViolationError as error:
                self.violation = error

    def observe(self, by: Actor = Actor.PLUGIN) -> None:
        for event in self.cards.observe(self.now, by):
            self.note(event)

    @contextmanager
    def by(self, actor: Actor) -> Iterator[None]:
        """Somebody else than the plugin changes the hardware inside."""
        self.observe()
        yield
        self.observe(actor)
        if self.process is not None:
            self.process.hurry_events()

    # The plugin's processes

    async def start(self) -> None:
        """Start a process of the plugin, if none runs."""
        if self.process is not None:
            return
        self.starts += 1
        process: PluginProcess | None = None

        def pass_effect() -> None:
            assert process is not None
            process.pass_effect()

        self.backend = self.cards.open_backend(pass_effect, lambda: self.now)
        outside = Outside(
            root=self.root,
            cluster=self.cluster,
            backend=self.backend,
            family=GPU,
            boot_id=f"boot-{self.boot}",
            chance=self.chance,
            list_uses=self.list_uses,
            wall_clock=lambda: self.wall_offset_s + self.now,
            observe=self.observe,
        )
        process = self.process = PluginProcess(outside, on_death=self.after_death)
        self.note(Started(at=self.now))
        self.tasks.start_soon(process.run)

    def after_death(self) -> None:
        """What goes with a process: its session of NVML, and its calls."""
        assert self.backend is not None
        self.observe()
        self.backend._library._shut_down()
        self.note(Died(at=self.now))

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()

    async def until_ended(self) -> None:
        process = self.process
        if process is not None:
            await process.ended.wait()
            self.process = None

    async def kill_process(self) -> None:
        self.kill()
        await self.until_ended()

    async def stop_process(self) -> None:
        if self.process is not None:
            self.process.stop()
            with anyio.move_on_after(60):
                await self.process.ended.wait()
            await self.kill_process()

    async def strike_at_effect(self) -> None:
        """Kill the process, or cut or remove something by hand, right before one of its next effects."""
        if self.process is not None:
            strikes = (self.kill, self.kill, self.kill, self.cut_now, self.remove_now, self.reset_now)
            strike = self.chance.choice(strikes)
            self.process.strike_before(self.chance.randrange(1, 16), strike)

    # Pods, claims and the kubelet

    async def list_uses(self) -> tuple[ClaimUse, ...]:
        await anyio.lowlevel.checkpoint()
        if self.kubelet_is_silent:
            raise PodResourcesError("the kubelet does not say which claims are in use")
        running = [name for name, pod in self.pods.items() if pod.phase is Phase.RUNNING]
        refs = [ObjectRef(NAMESPACE, name) for name in running if self.kubelet_lists_claims]
        others = (_OTHER_USE,) if self.kubelet_lists_claims else ()
        return (*others, *(ClaimUse(claim=one, pod=one) for one in refs))

    async def add_pod(self) -> None:
        """A pod with a claim of its own comes to the node; its devices may be those of another."""
        name = self.chance.choice(NAMES)
        if name in self.pods:
            return
        self.claims += 1
        devices = self._choose_devices()
        made = claim(name, *devices, uid=f"{name}-{self.claims}")
        self._deleted(name)
        self.cluster.add(made)
        self.pods[name] = Pod(claim=made)
        self._allocated(made)
        self.call(name)

    def _choose_devices(self) -> list[str]:
        """Choose devices of a claim; mostly some that no other claim has."""
        names = list(self.cards.places)
        devices: list[str] = []
        for _ in range(self.chance.choice((1, 1, 2))):
            found = self.chance.choice(names)
            held = [place for one in self.cluster.claims.values() for place in self._places(one)]
            for _ in range(6):
                mine = [self.cards.places[device] for device in devices]
                place = self.cards.places[found]
                is_own = any(place.overlaps(other) for other in mine)
                if not is_own and (self.chance.random() < 0.1 or not any(place.overlaps(other) for other in held)):
                    devices.append(found)
                    break
                found = self.chance.choice(names)
        return devices or [self.chance.choice(names)]

    async def try_again(self) -> None:
        """The kubelet repeats a call, also one that it need not."""
        if self.pods:
            self.call(self.chance.choice(sorted(self.pods)))

    async def end_pod(self) -> None:
        if self.pods:
            name = self.chance.choice(sorted(self.pods))
            self._end(name)
            self.call(name)

    def _end(self, name: str) -> None:
        self.pods[name].phase = Phase.ENDING
        self.note(Used(at=self.now, claim=self.pods[name].uid, is_used=False))

    async def forget_pod(self) -> None:
        """The kubelet loses a pod, as with its checkpoint; its claim may be there still."""
        if self.pods:
            name = self.chance.choice(sorted(self.pods))
            pod = self.pods.pop(name)
            self.note(Used(at=self.now, claim=pod.uid, is_used=False))
            if self.chance.random() < 0.5:
                self._deleted(name)
            else:
                self._unreserved(name)

    async def delete_claim(self) -> None:
        """Somebody deletes a claim by force; its pod may still run."""
        self._deleted(self.chance.choice(NAMES))

    async def allocate_otherwise(self) -> None:
        """A claim whose pod has not started is deallocated and allocated anew."""
        starting = [name for name, pod in self.pods.items() if pod.phase is Phase.STARTING]
        if starting:
            name = self.chance.choice(starting)
            made = claim(name, *self._choose_devices(), uid=self.pods[name].uid)
            self.note(Ended(at=self.now, claim=self.pods[name].uid, how=End.DEALLOCATED))
            self.cluster.add(made)
            self.pods[name].claim = made
            self._allocated(made)

    def call(self, name: str) -> None:
        """Have the kubelet call the plugin for a pod."""
        self.tasks.start_soon(self._call, name, self.pods[name])

    async def _call(self, name: str, pod: Pod) -> None:
        process, self.calls = self.process, self.calls + 1
        if process is None or not process.is_serving or process.plugin is None:
            return
        number, preparer = self.calls, process.plugin.preparer
        is_end = pod.phase is Phase.ENDING
        operation = Operation.UNPREPARE if is_end else Operation.PREPARE
        self.note(Called(at=self.now, call=number, operation=operation, claim=pod.uid))
        made = ref(pod.claim)
        call: Awaitable[PreparedClaim | None] = (
            preparer.unprepare_claim(made) if is_end else preparer.prepare_claim(made)
        )
        deadline_s = 45.0 if self.is_resting else self.chance.choice(_DEADLINES_S)
        with anyio.move_on_after(deadline_s) as scope:
            answer = await answer_of(call)
        if process.is_dead:
            return
        if scope.cancelled_caught:
            self.note(Answered(at=self.now, call=number, outcome=Outcome.UNKNOWN))
        elif isinstance(answer, KerfError):
            self.note(Answered(at=self.now, call=number, outcome=Outcome.FAILED, error=str(answer)))
            pod.is_prepared &= is_end
        else:
            given = self._read_gift(answer)
            self.note(Answered(at=self.now, call=number, outcome=Outcome.DONE, given=given))
            pod.is_prepared = not is_end
            self._succeeded(name, pod, is_end=is_end)

    @staticmethod
    def _read_gift(record: PreparedClaim | None) -> tuple[Given, ...]:
        devices = record.devices if record is not None else ()
        return tuple(
            Given(place=from_card_part(device.part), uuid=(device.handle or {}).get("uuid", "")) for device in devices
        )

    def _succeeded(self, name: str, pod: Pod, *, is_end: bool) -> None:
        if self.pods.get(name) is not pod:
            return
        if not is_end and pod.phase is Phase.STARTING:
            pod.phase = Phase.RUNNING
            if self.kubelet_lists_claims:
                self.note(Used(at=self.now, claim=pod.uid, is_used=True))
        elif is_end and pod.phase is Phase.ENDING:
            del self.pods[name]
            if not self.is_resting and self.chance.random() < 0.2 and self._is_there(pod):
                # The next pod has the same claim.
                self.pods[name] = Pod(claim=pod.claim)
                self._allocated(pod.claim)
            else:
                self._deleted(name, pod.uid)

    # The API server

    def _places(self, made: ResourceClaim) -> frozenset[Partition]:
        allocation = made.status.allocation
        results = allocation.devices.results if allocation is not None else ()
        return frozenset(self.cards.places[result.device] for result in results)

    def _is_there(self, pod: Pod) -> bool:
        found = self.cluster.claims.get((NAMESPACE, pod.claim.metadata.name))
        return found is not None and found.metadata.uid == pod.uid

    def _allocated(self, made: ResourceClaim) -> None:
        self.note(Allocated(at=self.now, claim=made.metadata.uid, places=self._places(made)))

    def _deleted(self, name: str, uid: str = "") -> None:
        found = self.cluster.claims.get((NAMESPACE, name))
        if found is not None and uid in ("", found.metadata.uid):
            del self.cluster.claims[NAMESPACE, name]
            self.note(Ended(at=self.now, claim=found.metadata.uid, how=End.DELETED))

    def _unreserved(self, name: str) -> None:
        found = self.cluster.claims.get((NAMESPACE, name))
        if found is not None:
            self.cluster.claims[NAMESPACE, name] = replace(found, status=replace(found.status, reserved_for=()))
            self.note(Ended(at=self.now, claim=found.metadata.uid, how=End.UNRESERVED))

    # The node and its hardware

    async def reboot(self) -> None:
        await self.kill_process()
        self.boot += 1
        with self.by(Actor.MACHINE):
            self.cards.machine.reboot()
        self.note(Booted(at=self.now))
        shutil.rmtree(self.root / "cdi", ignore_errors=True)
        for pod in self.pods.values():  # the kubelet starts them again
            pod.phase = Phase.ENDING if pod.phase is Phase.ENDING else Phase.STARTING

    async def reset_card(self) -> None:
        self.reset_now()

    def reset_now(self) -> None:
        with self.by(Actor.MACHINE):
            self.cards.machine.reset_card(self.chance.randrange(len(self.cards.descriptions)))

    async def reload_driver(self) -> None:
        with self.by(Actor.MACHINE):
            match self.chance.randrange(3):
                case 0:
                    self.cards.machine.unload_driver()
                case 1:
                    self.cards.machine.reload_driver("999.1")
                case _:
                    self.cards.machine.reload_driver()

    async def change_presence(self) -> None:
        number = self.chance.randrange(len(self.cards.descriptions))
        machine = self.cards.machine
        with self.by(Actor.MACHINE):
            self.chance.choice((machine.drop_card, machine.remove_card, machine.restore_card))(number)

    async def fail_calls(self) -> None:
        self.cards.fail(self.chance)

    async def cut_by_hand(self) -> None:
        self.cut_now()

    def cut_now(self) -> None:
        """Somebody cuts a partition, but not in the window that ``backends.ownership`` names."""
        place = self.chance.choice(list(self.cards.places.values()))
        if place.placement is not None and place not in self._list_noted():
            with self.by(Actor.HAND):
                self.cards.cut_by_hand(place, is_complete=self.chance.random() < 0.8)

    async def remove_by_hand(self) -> None:
        """Somebody removes what he has made, or rarely what the plugin has."""
        self.remove_now()

    def remove_now(self) -> None:
        foreign = self.cards.list_foreign()
        all_ = list(self.cards.list_instances().values())
        found = foreign if foreign and self.chance.random() < 0.9 else all_
        if found:
            with self.by(Actor.HAND):
                self.cards.remove_by_hand(self.chance.choice(found))

    def _list_noted(self) -> set[Partition]:
        """List the places of which a note says that a prepare was begun there."""
        process = self.process
        if process is not None and process.checkpoint is not None:
            return self._find_noted(process.checkpoint)
        state = self.root / "kubelet" / "plugins" / GPU.driver
        if not state.exists():
            return set()
        with open_checkpoint(state, boot_id=f"boot-{self.boot}", fdatasync=lambda _: None) as checkpoint:
            return self._find_noted(checkpoint)

    def _find_noted(self, checkpoint: Checkpoint) -> set[Partition]:
        return {
            from_card_part(device.part)
            for uid, record in checkpoint.records.items()
            for device in record.devices
            if BEFORE in checkpoint.journal(uid, device.share, f"boot-{self.boot}").notes
        }

    async def switch_mode_by_hand(self) -> None:
        with self.by(Actor.HAND):
            self.cards.switch_mode_by_hand(
                self.chance.randrange(len(self.cards.descriptions)), self.chance.randrange(2)
            )

    async def use_by_process(self) -> None:
        self.cards.use(self.chance)

    async def end_processes(self) -> None:
        self.cards.end_processes()

    async def fall_ill(self) -> None:
        self.cards.fall_ill(self.chance)
        if self.process is not None:
            self.process.hurry_events()

    async def recover(self) -> None:
        with self.by(Actor.MACHINE):
            self.cards.recover()
            if not self.cards.is_driver_there:
                self.cards.machine.reload_driver()

    async def set_wall_clock(self) -> None:
        """The node's clock is set: by hours, forward or back."""
        self.wall_offset_s += self.chance.choice((-1, 1)) * self.chance.choice((5.0, 3600.0, 86400.0))

    async def change_outages(self) -> None:
        self.cluster.is_down = self.chance.random() < 0.5
        self.kubelet_is_silent = self.chance.random() < 0.5

    # Rest

    async def come_to_rest(self) -> None:
        """End all faults: then pods have what they can have, and after their end nothing is left."""
        self.is_resting = True
        self.cluster.is_down = self.kubelet_is_silent = False
        if self.process is not None:
            self.process.strike = None
        await self.recover()
        more = 0 if self.kubelet_lists_claims else _MORE_ROUNDS_ALONE
        await self.until_rest(self.is_served, rounds=_ROUNDS_OF_HELD + more)
        assert not (waiting := self._list_refused()), f"claims {waiting} have lost devices and are refused all the same"
        await self.until_rest(self.is_served, rounds=_ROUNDS - _ROUNDS_OF_HELD)
        self.note(Rested(at=self.now, wanted=self._list_wanted()))
        self.check()
        for name in [*self.pods]:
            self._end(name)
        await self.until_rest(self.is_empty, rounds=30)
        self.note(Rested(at=self.now))
        self.check()
        assert self.is_empty(), f"left are records {self._list_records()} and pods {[*self.pods]}"
        assert not list((self.root / "cdi").glob("*")), "CDI files are left"

    async def until_rest(self, is_over: Callable[[], bool], *, rounds: int) -> None:
        """Have the kubelet try again and again until it is over, but not for ever; claims of nobody are deleted."""
        for _ in range(rounds):
            if self.process is not None and self.process.is_dead:
                await self.until_ended()
            await self.start()
            await pass_time(_REST_S)
            for (_, name), found in [*self.cluster.claims.items()]:
                if name not in self.pods or self.pods[name].uid != found.metadata.uid:
                    self._deleted(name)
            for name in [*self.pods]:
                self.call(name)
            await pass_time(_REST_S)
            if is_over():
                return

    def is_served(self) -> bool:
        """Whether every pod has what it can have, and nothing else is left on the node."""
        # Where the kubelet does not list them, claims that are gone are released although their pods run.
        kept = {
            pod.uid
            for pod in self.pods.values()
            if self._is_there(pod) or (pod.phase is Phase.RUNNING and self.kubelet_lists_claims)
        }
        return not any(self._waits(name, pod) for name, pod in self.pods.items()) and kept >= {*self._list_records()}

    def _waits(self, name: str, pod: Pod) -> bool:
        """Whether more calls for the pod may change something: where others have its devices, they only fail."""
        if pod.phase is Phase.ENDING:
            return True
        is_ready = pod.phase is Phase.RUNNING and pod.is_prepared
        return not is_ready and self._is_there(pod) and self._can_be_had(name, pod)

    def is_empty(self) -> bool:
        return not self.pods and not self._list_records()

    def _list_records(self) -> list[str]:
        process = self.process
        return sorted(process.checkpoint.records) if process is not None and process.checkpoint is not None else ["?"]

    def _list_wanted(self) -> frozenset[str]:
        """List the claims that were prepared when the kubelet has asked last, and those that nothing keeps from it."""
        there = [(name, pod) for name, pod in self.pods.items() if self._is_there(pod)]
        return frozenset(pod.uid for name, pod in there if pod.is_prepared or self._can_be_had(name, pod))

    def _list_refused(self) -> list[str]:
        """List the claims that have had their devices, can have them, and were refused them at the last call."""
        return [pod.uid for name, pod in self.pods.items() if pod.phase is Phase.RUNNING and self._waits(name, pod)]

    def _can_be_had(self, name: str, pod: Pod) -> bool:
        """Whether a claim has its cards to itself, which are in modes for it and have enough engines."""
        places = self._places(pod.claim)
        others = [place for key, one in self.pods.items() if key != name for place in self._places(one.claim)]
        others += [one.place for one in self.cards.list_foreign()]
        is_alone = not any(place.card_uuid == other.card_uuid for place in places for other in others)
        is_mixed = len({place.is_whole for place in places}) > 1
        is_greedy = sum("+" in (place.profile or "") for place in places) > 1
        return is_alone and not is_mixed and not is_greedy and not any(map(self.cards.needs_reset, places))
