"""The node of a soak: pods come and go, each with a claim that the allocator gives devices, and everything fails."""

import asyncio
import dataclasses
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any, Final

import anyio
from anyio.abc import TaskGroup
from msgspec.structs import replace

from kerf_dra.api.errors import KerfError
from kerf_dra.api.kerf.v1alpha1 import ResourceClassObject
from kerf_dra.api.model.claims import (
    AllocatedClaim,
    DeviceClaim,
    DeviceClass,
    DeviceRequest,
    ExactDeviceRequest,
    ResourceClaim,
    ResourceClaimSpec,
)
from kerf_dra.api.model.devices import ResourcePool, ResourceSlice, ResourceSliceSpec
from kerf_dra.api.model.metadata import ObjectMeta
from kerf_dra.api.model.names import ObjectRef
from kerf_dra.api.podresources.v1 import ClaimUse
from kerf_dra.driver.allocation import Budget, ClusterAllocator, Features, NodeAllocation, NodeView, PoolIndex
from kerf_dra.driver.controller.device_types import known_device_types
from kerf_dra.driver.controller.structured.plan import ClassSnapshot, UpToDate, WriteDeviceClass, plan_class
from kerf_dra.driver.families.gpu import GPU
from kerf_dra.driver.kubeletplugin.grpc.pod_resources import PodResourcesError
from kerf_dra.driver.kubeletplugin.inventory.devices import DeviceSet
from kerf_dra.driver.partitions.device_names import device_name
from kerf_dra.driver.partitions.geometry import Partition
from kerf_dra.driver.partitions.records import from_card_part
from tests.fakes.cards import gpu
from tests.fakes.claims import CONSUMER, NAMESPACE, NODE, ref
from tests.fakes.cluster import FakeCluster
from tests.fakes.hardware import FakeBackend, Made
from tests.ownership.history import (
    Actor,
    Allocated,
    Answered,
    Appeared,
    Booted,
    Called,
    Died,
    Disappeared,
    End,
    Ended,
    Event,
    Given,
    Named,
    Operation,
    Outcome,
    Rested,
    Started,
    Used,
)
from tests.ownership.judge import Judge, ViolationError
from tests.runtime.virtual_time import pass_time
from tests.schedules.process import Outside, PluginProcess, answer_of

PODS: Final = 6
"""Pods at a time: as many as fit mostly, on two cards of four slices."""
CLASSES: Final = {"small": "1Gi", "middle": "2Gi", "large": "4Gi"}
"""ResourceClasses, by the memory that they ask for at least."""
MIX: Final = ("small", "small", "small", "middle", "middle", "large")
CARDS: Final = (gpu(0), gpu(1))
PLACES: Final = {
    device_name(card, spec.of(card.uuid)): spec.of(card.uuid) for card in CARDS for spec in card.geometry.specs
}
"""Every partition and each whole card, by the name of its device."""
GRACE_S: Final = 60.0
_HOLDS_S: Final = (0.5, 5.0, 20.0, 60.0)
_RETRY_S: Final = 5.0
LONGEST_S: Final = 7200.0
"""Longest time until a claim fits, or a call succeeds: all faults are over within minutes."""
_FAULTS_S: Final = (5.0, 150.0)
"""Shortest and longest time between two faults."""
_REST_S: Final = 400.0
"""After this time with neither pods nor faults the garbage collector has released what the kubelet forgot."""


class SoakBackend(FakeBackend):
    """Cards in a table, which forget the calls to them and do not block where events are waited for."""

    def _step(self, operation: str, device: str, card_uuid: str) -> None:
        self.calls.clear()
        super()._step(operation, device, card_uuid)

    def wait_for_events(self, timeout_s: float) -> Any:
        return super().wait_for_events(0.0)


class SoakCluster(FakeCluster):
    """A cluster that keeps nothing of the past, and whose allocator has the slices as they were published last."""

    def __init__(self) -> None:
        super().__init__()
        self._slices: dict[str, ResourceSlice] = {}
        self._generation = 0
        self.restart_scheduler()

    def restart_scheduler(self) -> None:
        """Have an allocator that has only the slices: what it keeps of earlier pods is the scheduler's memory."""
        index = PoolIndex.build(self._slices.values())
        self.allocator = ClusterAllocator(Features(), index, nodes=[NodeView(NODE, {})])

    def publish(self, devices: DeviceSet) -> None:
        self._generation += 1
        for pool in devices.pools:
            counted = ResourcePool(name=pool.name, generation=self._generation, resource_slice_count=len(pool.slices))
            for number, content in enumerate(pool.slices):
                spec = ResourceSliceSpec(
                    driver=self.target.driver,
                    pool=counted,
                    node_name=NODE,
                    devices=content.devices,
                    shared_counters=content.shared_counters,
                )
                name = f"{pool.name.replace('/', '-')}-{number}"
                self._slices[name] = slice_ = ResourceSlice(metadata=ObjectMeta(name=name), spec=spec)
                self.allocator.set_slice(slice_)

    def report(self, about: object, **_: object) -> None:
        """Drop the event."""

    async def write_device_status(
        self, claim: AllocatedClaim | ResourceClaim, devices: Sequence[Any]
    ) -> AllocatedClaim:
        kept = await super().write_device_status(claim, devices)
        self.written.clear()
        return kept


class SoakNode:
    """One node. ``run`` has so many claims come and go; it raises what is wrong."""

    def __init__(self, seed: int, root: Path) -> None:
        self.chance = Random(seed)
        self.root = root
        self.cluster = SoakCluster()
        self.backend = SoakBackend(CARDS)
        self.judge = Judge(grace_s=GRACE_S)
        self.classes = plan_classes()
        self.claims = self.restarts = self.reboots = self.losses = self.reloads = self.clock_changes = 0
        self.begun = 0
        self._calls = 0
        self._boot = 1
        self._life = 1
        """With each the containers of before are gone."""
        self._wall_offset_s = 1e9
        self._is_silent = False
        self._process: PluginProcess | None = None
        self._running: dict[str, str] = {}
        """The UIDs of claims with which pods run, by the claim's name."""
        self._kubelet = 0
        """The number of the kubelet's life: with each it has forgotten its pods."""
        self._pods_change: anyio.Event
        """Set when one of these numbers changes; there is a new one then."""
        self._seen: dict[str, Made] = {}
        self._violation: ViolationError | None = None
        self._errors: list[object] = []
        self._tasks: TaskGroup

    async def run(self, claims: int) -> None:
        """Have so many claims come and go, under faults; at the end nothing may be left."""
        asyncio.get_running_loop().set_exception_handler(lambda _, context: self._errors.append(context))
        target = self.claims + claims
        self.begun = self.claims
        self.cluster.restart_scheduler()
        self._pods_change = anyio.Event()
        async with anyio.create_task_group() as self._tasks:
            self._start()
            async with anyio.create_task_group() as pods:
                for number in range(PODS):
                    pods.start_soon(self._run_pods, f"pod-{number}", target)
                faults = anyio.CancelScope()
                self._tasks.start_soon(self._do_faults, faults)
            faults.cancel()
            await self._rest()
            self._kill()
            await self._until_ended()
            self._tasks.cancel_scope.cancel()
        self._check()

    # Pods

    async def _run_pods(self, name: str, target: int) -> None:
        """One pod after the other, each with a claim of its own."""
        waits_since = self._now
        while self.begun < target:
            self._check()
            made = self._allocate(name)
            if made is None:
                assert self._now - waits_since < LONGEST_S, "no claim fits on the node any more"
                await pass_time(_RETRY_S)
                continue
            self.begun += 1
            await self._run_pod(name, made)
            self.claims += 1
            waits_since = self._now

    def _allocate(self, name: str) -> ResourceClaim | None:
        """Create a claim and allocate it, as controllers and scheduler do; None: it does not fit now."""
        requested = ExactDeviceRequest(device_class_name=self.chance.choice(MIX))
        requests = (DeviceRequest(name="gpu", exactly=requested),)
        made = ResourceClaim(
            metadata=ObjectMeta(namespace=NAMESPACE, name=name, uid=f"{name}-{self.begun}"),
            spec=ResourceClaimSpec(devices=DeviceClaim(requests=requests)),
        )
        outcome = self.cluster.allocator.place([made], self.classes, share_id=lambda: "", budget=Budget())
        if not isinstance(outcome, NodeAllocation):
            return None
        (allocation,) = outcome.results
        made = replace(made, status=replace(made.status, allocation=allocation, reserved_for=(CONSUMER,)))
        self.cluster.add(made)
        self.cluster.allocator.set_claim(made)
        self._note(Allocated(at=self._now, claim=made.metadata.uid, places=self._places(made)))
        return made

    async def _run_pod(self, name: str, made: ResourceClaim) -> None:
        kubelet, life = self._kubelet, 0
        until = self._now + 1e9
        while self._now < until and kubelet == self._kubelet:
            if life != self._life:  # the kubelet starts it, again after a boot
                life = self._life
                if not await self._call_until_done(Operation.PREPARE, made, kubelet):
                    continue
                self._running[name] = made.metadata.uid
                self._note(Used(at=self._now, claim=made.metadata.uid, is_used=True))
                until = self._now + self.chance.choice(_HOLDS_S)
            change = self._pods_change
            if life == self._life and kubelet == self._kubelet:
                with anyio.move_on_after(until - self._now):
                    await change.wait()
        self._running.pop(name, None)
        self._note(Used(at=self._now, claim=made.metadata.uid, is_used=False))
        await self._call_until_done(Operation.UNPREPARE, made, kubelet)
        del self.cluster.claims[NAMESPACE, name]
        self.cluster.allocator.remove_claim(made.ref)
        self._note(Ended(at=self._now, claim=made.metadata.uid, how=End.DELETED))

    async def _call_until_done(self, operation: Operation, made: ResourceClaim, kubelet: int) -> bool:
        """Call again and again; returns whether it was done, which a kubelet that loses its pods does not wait for."""
        life, begun_at = self._life, self._now
        while kubelet == self._kubelet and (life == self._life or operation is Operation.UNPREPARE):
            if await self._call(operation, made):
                return True
            self._check()
            assert self._now - begun_at < LONGEST_S, f"the {operation} of {made.metadata.uid} never succeeds"
            await pass_time(_RETRY_S)
        return False

    async def _call(self, operation: Operation, made: ResourceClaim) -> bool:
        process = self._process
        if process is None or not process.is_serving or process.plugin is None:
            return False
        self._calls += 1
        number, preparer, uid = self._calls, process.plugin.preparer, made.metadata.uid
        self._note(Called(at=self._now, call=number, operation=operation, claim=uid))
        is_end = operation is Operation.UNPREPARE
        call: Any = preparer.unprepare_claim(ref(made)) if is_end else preparer.prepare_claim(ref(made))
        answer = await answer_of(call)
        if process.is_dead:
            return False
        if isinstance(answer, KerfError):
            self._note(Answered(at=self._now, call=number, outcome=Outcome.FAILED, error=str(answer)))
            return False
        devices = answer.devices if answer is not None else ()
        given = tuple(Given(place=from_card_part(one.part), uuid=(one.handle or {})["uuid"]) for one in devices)
        self._note(Answered(at=self._now, call=number, outcome=Outcome.DONE, given=given))
        return True

    # The plugin

    def _start(self) -> None:
        outside = Outside(
            root=self.root,
            cluster=self.cluster,
            backend=self.backend,
            family=GPU,
            boot_id=f"boot-{self._boot}",
            chance=self.chance,
            list_uses=self._list_uses,
            wall_clock=lambda: self._wall_offset_s + self._now,
            observe=self._observe,
        )
        self._process = PluginProcess(outside, on_death=self._after_death)
        self._note(Started(at=self._now))
        self._tasks.start_soon(self._process.run)

    def _kill(self) -> None:
        if self._process is not None:
            self._process.kill()

    def _after_death(self) -> None:
        self._observe()
        self._note(Died(at=self._now))

    async def _until_ended(self) -> None:
        if self._process is not None:
            await self._process.ended.wait()

    async def _list_uses(self) -> tuple[ClaimUse, ...]:
        await anyio.lowlevel.checkpoint()
        if self._is_silent:
            raise PodResourcesError("the kubelet does not answer")
        refs = [ObjectRef(NAMESPACE, name) for name in self._running]
        return tuple(ClaimUse(claim=one, pod=one) for one in refs)

    # Faults

    async def _do_faults(self, scope: anyio.CancelScope) -> None:
        faults: tuple[tuple[Callable[[], Any], int], ...] = (
            (self._restart, 8),
            (self._kill_at_effect, 8),
            (self._update, 3),
            (self._reboot, 2),
            (self._reload_driver, 2),
            (self._lose_kubelet, 1),
            (self._set_clock, 2),
            (self._cut_off, 3),
        )
        every = [fault for fault, weight in faults for _ in range(weight)]
        with scope:
            while True:
                await pass_time(self.chance.uniform(*_FAULTS_S))
                with anyio.CancelScope(shield=True):
                    await self.chance.choice(every)()

    async def _restart(self) -> None:
        """The process is killed, and started anew after a moment."""
        self._kill()
        await self._until_ended()
        await pass_time(self.chance.choice((0.0, 1.0, 30.0)))
        self.restarts += 1
        self._start()

    async def _kill_at_effect(self) -> None:
        """The process is killed right before one of its next effects."""
        assert self._process is not None
        self._process.strike_before(self.chance.randrange(1, 12), self._kill)
        with anyio.move_on_after(120):
            await self._until_ended()
        await self._restart()

    async def _update(self) -> None:
        """The process ends as for an update, and its successor starts."""
        assert self._process is not None
        self._process.stop()
        await self._until_ended()
        self.restarts += 1
        self._start()

    async def _reboot(self) -> None:
        self._kill()
        await self._until_ended()
        self._boot += 1
        self._life += 1
        self.reboots += 1
        self._observe()
        self.backend.reboot()
        self._observe(Actor.MACHINE)
        self._running.clear()
        self._note(Booted(at=self._now))
        shutil.rmtree(self.root / "cdi", ignore_errors=True)
        self._start()
        self._tell_pods()

    async def _reload_driver(self) -> None:
        """The driver is loaded anew: partitions are gone, and pods fail and start again, as after a boot."""
        self._observe()
        self.reloads += 1
        self._life += 1
        self.backend.reboot()
        self._observe(Actor.MACHINE)
        self._tell_pods()

    async def _lose_kubelet(self) -> None:
        """The kubelet starts without its memory, and the API server has no longer the claims of its pods."""
        self._kubelet += 1
        self.losses += 1
        self._tell_pods()

    def _tell_pods(self) -> None:
        """Have pods end, or begin anew."""
        self._pods_change.set()
        self._pods_change = anyio.Event()

    async def _set_clock(self) -> None:
        self.clock_changes += 1
        self._wall_offset_s += self.chance.choice((-1, 1)) * self.chance.choice((30.0, 3600.0, 86400.0))

    async def _cut_off(self) -> None:
        """For a while the API server is away, or the kubelet does not say what its pods use."""
        self.cluster.is_down = self.chance.random() < 0.7
        self._is_silent = self.chance.random() < 0.5
        await pass_time(self.chance.choice((5.0, 60.0, 200.0)))
        self.cluster.is_down = self._is_silent = False

    # The judge

    @property
    def _now(self) -> float:
        return anyio.current_time()

    def _note(self, event: Event) -> None:
        if self._violation is None:
            try:
                self.judge.note(event)
            except ViolationError as error:
                self._violation = error

    def _check(self) -> None:
        if self._violation is not None:
            raise self._violation
        assert self._errors == [], self._errors[0]

    def _observe(self, by: Actor = Actor.PLUGIN) -> None:
        """Note what has changed on the cards since the last look."""
        now = {made.uuid: made for made in self.backend.made.values()}
        for uuid in sorted(self._seen.keys() - now.keys()):
            self._note(Disappeared(at=self._now, partition=uuid, by=by))
        for uuid, made in now.items():
            if uuid not in self._seen:
                place = Partition(kind="gpu", card_uuid=made.card_uuid, profile=made.profile, placement=made.placement)
                self._note(Appeared(at=self._now, partition=uuid, place=place, by=by))
                self._note(Named(at=self._now, partition=uuid, uuid=uuid))
        self._seen = now

    def _places(self, made: ResourceClaim) -> frozenset[Partition]:
        assert made.status.allocation is not None
        return frozenset(PLACES[result.device] for result in made.status.allocation.devices.results)

    async def _rest(self) -> None:
        """All pods have ended, and there are no more faults: then nothing is left, in files, records, or on cards."""
        self.cluster.is_down = self._is_silent = False
        process = self._process
        assert process is not None
        process.strike = None
        if process.is_dead:
            await self._restart()
        await pass_time(_REST_S)
        self._note(Rested(at=self._now))
        self._check()
        process = self._process
        assert process is not None
        assert process.checkpoint is not None
        assert process.plugin is not None
        state = process.plugin.state
        assert (dict(process.checkpoint.records), state.deferred, self.backend.made) == ({}, set(), {})
        assert not list((self.root / "cdi").glob("*")), "CDI files are left"


def plan_classes() -> dict[str, DeviceClass]:
    """Have the controller plan the DeviceClass of each ResourceClass; what it has planned needs no second write."""
    found: dict[str, DeviceClass] = {}
    for name, memory in CLASSES.items():
        metadata = ObjectMeta(name=name, uid=f"uid-of-{name}")
        snapshot = ClassSnapshot(
            resource_class=ResourceClassObject(
                metadata=metadata, spec={"device": "gpu", "minimum": {"memory": memory}}
            ),
            device_class=None,
            written=None,
            nodes=(),
            device_types=known_device_types(),
        )
        action = plan_class(snapshot, {GPU.name: GPU}).action
        assert isinstance(action, WriteDeviceClass), action
        found[name] = action.desired
        snapshot = dataclasses.replace(snapshot, device_class=action.desired)
        assert plan_class(snapshot, {GPU.name: GPU}).action == UpToDate()
    return found
