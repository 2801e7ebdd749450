"""A node of eight cards with 56 tenants on simulated time: cards fall ill, pods move, the node resets, people repair.

Each tenant has one pod with a seventh of a card; when it ends another one is created, which gets the first free place
of a card that has no taint. The node, ``tests/ownership`` judges what it does: it makes a partition when a pod starts,
removes it when the pod has ended, and a reset removes all partitions of a card at once. So a reset of a card that a
claim holds is a violation, whoever is to blame for it.
"""

from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

import anyio

from kerf_dra.api.core.v1 import Pod
from kerf_dra.api.kerf.card_maintenance import CardMaintenanceStatus
from kerf_dra.api.model.base import JsonObject
from kerf_dra.api.model.metadata import ObjectT
from kerf_dra.api.model.names import ObjectRef
from kerf_dra.api.wire import Kind, ObjectList
from kerf_dra.driver.controller.reclaim.settings import ReclaimSettings
from kerf_dra.driver.kube.http.errors import ForbiddenError, ServerError, UnreachableError
from kerf_dra.driver.partitions.geometry import Partition, Placement
from kerf_dra.driver.reclaim.automatic_repairs import ReclaimMode, RepairLimits
from tests.ownership.history import (
    Actor,
    Allocated,
    Answered,
    Appeared,
    Called,
    Disappeared,
    End,
    Ended,
    Given,
    Named,
    Operation,
    Outcome,
    Rested,
    Started,
)
from tests.ownership.judge import Judge

from .cluster import Cluster, KilledError, Process, uuid

CARDS: Final = tuple(f"gpu-{number}" for number in range(8))
PLACES: Final = 7
TENANTS: Final = tuple(f"tenant-{number:02}" for number in range(len(CARDS) * PLACES))
REPAIRS: Final = ("reset.xid-95", "reset.recovery-action-1", "reset-when-free.pending-rows", "boot.xid-79")
SETTINGS: Final = ReclaimSettings(
    mode=ReclaimMode.ACT, limits=RepairLimits(cards=4, node_cards=3), evictions=60, namespace_evictions=40
)
ERRORS: Final = (
    KilledError(),
    UnreachableError("POST", "reset"),
    ServerError("POST", 500, "InternalError", "down"),
    ForbiddenError("POST", 403, "Forbidden", "no"),
)


@dataclass
class Simulation(Cluster):
    """The node and its API server, with one process of the reclaimer or two."""

    chance: Random = field(default_factory=lambda: Random(0))
    names: tuple[str, ...] = CARDS
    settings: ReclaimSettings = SETTINGS
    refuses_second_eviction: bool = False
    failures: int = 0
    """How many times a card has fallen ill."""
    resets: list[str] = field(default_factory=list)
    """The UIDs of the CardMaintenances whose cards the node has reset."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.other = self.start_process()
        """A second process that believes to lead."""
        self._judge = Judge(grace_s=60.0)
        self._judge.note(Started(at=0.0))
        self._made: dict[str, tuple[str, Partition]] = {}
        """The partition of each claim, by the pod's UID: its identity and place."""
        self._call = 0
        self._lately_drained: set[str] = set()
        for number, tenant in enumerate(TENANTS):
            self.start_pod(tenant, CARDS[number // PLACES], number % PLACES)

    # --- pods --------------------------------------------------------------------------------------------------------

    def start_pod(self, tenant: str, card: str, start: int) -> None:
        """Have a pod of a tenant allocated and prepared."""
        assert card not in self.tainted, "no claim is allocated on a withheld card"
        namespace = f"ns-{int(tenant[-2:]) % 4}"
        uid = self.run_pod(tenant, card, start, namespace=namespace)
        place = Partition(kind="gpu", card_uuid=uuid(card), profile="1g.10gb", placement=Placement(start, 1))
        identity = f"partition-of-{uid}"
        self._judge.note(Allocated(at=self.seconds, claim=uid, places=frozenset({place})))
        call = self._begin_call(Operation.PREPARE, uid)
        self._judge.note(Appeared(at=self.seconds, partition=identity, place=place, by=Actor.PLUGIN))
        self._judge.note(Named(at=self.seconds, partition=identity, uuid=identity))
        given = (Given(place=place, uuid=identity),)
        self._judge.note(Answered(at=self.seconds, call=call, outcome=Outcome.DONE, given=given))
        self._made[uid] = (identity, place)

    def stop_pod(self, ref: ObjectRef) -> None:
        """Have a pod's containers end, its devices released and the pod deleted."""
        uid = self.pods[ref].metadata.uid
        call = self._begin_call(Operation.UNPREPARE, uid)
        identity, _ = self._made.pop(uid)
        self._judge.note(Disappeared(at=self.seconds, partition=identity, by=Actor.PLUGIN))
        self._judge.note(Answered(at=self.seconds, call=call, outcome=Outcome.DONE))
        self._judge.note(Ended(at=self.seconds, claim=uid, how=End.DELETED))
        self.end_pod(ref)

    def _begin_call(self, operation: Operation, claim: str) -> int:
        self._call += 1
        self._judge.note(Called(at=self.seconds, call=self._call, operation=operation, claim=claim))
        return self._call

    def schedule(self) -> None:
        """Start the pods of tenants that have none, as far as there are places."""
        waiting = [tenant for tenant in TENANTS if tenant not in {ref.name for ref in self.pods}]
        taken = {(place.card_uuid, place.placement) for _, place in self._made.values()}
        free = (
            (card, start)
            for card in self.names
            if card not in self.tainted and card not in self.repairs
            for start in range(PLACES)
            if (uuid(card), Placement(start, 1)) not in taken
        )
        for tenant, (card, start) in zip(waiting, free, strict=False):
            self.start_pod(tenant, card, start)

    def list_ending(self) -> list[Pod]:
        return [pod for pod in self.pods.values() if pod.is_terminating]

    # --- the node ----------------------------------------------------------------------------------------------------

    def follow_maintenances(self) -> None:
        """Have the plugin taint the cards of maintenances that it has not returned."""
        wanted = {one["spec"]["card"] for one in self.list_open()}
        self.tainted = {card for card in self.names if uuid(card) in wanted}

    def work(self) -> None:
        """Have the node go on with the cards that it may work on."""
        for name, held in [*self.maintenances.items()]:
            status, card = self.status(name), f"gpu-{held['spec']['card'].rpartition('-')[2]}"
            state = None if status.work is None else status.work.state
            if held["spec"].get("then", "None") == "None" or card not in self.tainted:
                continue
            if state is None and _is_free(status):
                self._write_work(name, "Acting")
            elif state == "Acting":
                self._reset(held["metadata"]["uid"], card)
                self._write_work(name, "Verifying")
            elif state == "Verifying":
                self._write_work(name, "Failed" if self.chance.random() < 0.05 else "Done")

    def _reset(self, maintenance: str, card: str) -> None:
        assert maintenance not in self.resets, "no plan acts twice"
        self.resets.append(maintenance)
        for identity, place in self._made.values():
            if place.card_uuid == uuid(card):
                self._judge.note(Disappeared(at=self.seconds, partition=identity, by=Actor.PLUGIN))
        if self.chance.random() < 0.9:
            self.repairs.pop(card, None)

    def _write_work(self, name: str, state: str) -> None:
        held = self.maintenances[name]
        self._version += 1
        held["metadata"]["resourceVersion"] = str(self._version)
        held.setdefault("status", {})["work"] = {"state": state, "observedGeneration": 1}

    def is_in_use(self, card: str) -> bool:
        return any(place.card_uuid == uuid(card) for _, place in self._made.values())

    # --- people ------------------------------------------------------------------------------------------------------

    def repair_by_hand(self) -> None:
        """Have a person do what Kerf leaves to people: boots, cards that resets do not help, and failed repairs."""
        for card, repair in [*self.repairs.items()]:
            if repair.startswith("boot") and not self.is_in_use(card):
                del self.repairs[card]
        for name, held in [*self.maintenances.items()]:
            status = self.status(name)
            is_left = held["spec"].get("then", "None") == "None" and _is_free(status) and "auto" not in name
            if is_left or (status.work is not None and status.work.state == "Failed"):
                self.repairs.pop(f"gpu-{held['spec']['card'].rpartition('-')[2]}", None)
                del self.maintenances[name]

    # --- the reclaimer -----------------------------------------------------------------------------------------------

    def list_drained(self) -> Collection[str]:
        return {*super().list_drained(), *self._lately_drained}

    async def run_passes(self, *passes: Callable[[], Awaitable[Any]]) -> bool:
        """Do passes at the same time; returns whether all of them have ended by themselves."""
        self._lately_drained = {*super().list_drained()}
        ended = []

        async def run(one: Callable[[], Awaitable[Any]]) -> None:
            try:
                await one()
                ended.append(one)
            except KilledError:
                pass

        async with anyio.create_task_group() as group:
            for each in passes:
                group.start_soon(run, each)
        self._lately_drained = set()
        return len(ended) == len(passes)

    async def run_pass(self, process: Process) -> None:
        """Do one pass of both parts of a process."""
        await process.repairer.reconcile()
        await process.reclaimer.reconcile()

    async def list(self, kind: Kind[ObjectT], *, field_selector: str = "") -> ObjectList[ObjectT]:
        await self._let_others_run()
        return await super().list(kind, field_selector=field_selector)

    async def create_subresource(self, kind: Kind[ObjectT], value: ObjectT, subresource: str) -> None:
        await self._let_others_run()
        await super().create_subresource(kind, value, subresource)

    async def patch(self, kind: Kind[ObjectT], name: str, patch: JsonObject, **options: Any) -> ObjectT:
        await self._let_others_run()
        return await super().patch(kind, name, patch, **options)

    async def _let_others_run(self) -> None:
        if self.chance.random() < 0.3:
            await anyio.lowlevel.checkpoint()

    # --- all together ------------------------------------------------------------------------------------------------

    async def step(self, *, fails: float, kills: float) -> None:
        """Let something happen everywhere; a card falls ill with the chance ``fails``, and calls of the reclaimer are
        answered otherwise, or its process is killed, with the chance ``kills``.
        """
        chance = self.chance
        self.seconds += chance.choice((2, 2, 30, 600, 5400))
        if chance.random() < fails and len(self.repairs) < len(self.names) - 2:
            card = chance.choice([card for card in self.names if card not in self.repairs])
            self.repairs[card] = chance.choice(REPAIRS)
            self.failures += 1
        for pod in [*self.pods.values()]:
            if chance.random() < (0.5 if pod.is_terminating else 0.02):
                self.stop_pod(pod.ref)
        if chance.random() < 0.1 and self.pods:
            self.protected ^= {chance.choice([*self.pods.values()]).metadata.uid}
        if chance.random() < 0.02:
            self.drain(chance.choice(self.names), then=chance.choice(("None", "Reset")))
        self._let_parts_go_on(chance)
        await self._run_reclaimer(kills)

    def _let_parts_go_on(self, chance: Random) -> None:
        for part in chance.sample((self.follow_maintenances, self.schedule, self.work, self.repair_by_hand), 4):
            if chance.random() < 0.8:
                part()
        self.follow_maintenances()  # whatever is withheld is withheld before the next claims are allocated

    async def _run_reclaimer(self, kills: float) -> None:
        chance = self.chance
        for process in (self.process, self.other):
            if chance.random() < 0.8:
                self.deliver(process)
        error = chance.choice(ERRORS) if chance.random() < kills else None
        left = [chance.randrange(12)]

        def answer(verb: str, _name: str) -> Exception | None:
            left[0] -= verb not in ("list", "find") or chance.random() < 0.2
            return error if left[0] == -1 else None

        if chance.random() < 0.5:
            self.fail = answer
        else:
            self.lose_answer = answer
        processes = [self.process] if chance.random() < 0.8 else [self.process, self.other]
        if not await self.run_passes(*(lambda one=each: self.run_pass(one) for each in processes)):
            self.process, self.other = self.start_process(), self.process
        self.fail = self.lose_answer = lambda _verb, _name: None
        self.calls.clear()
        self.events.clear()

    async def settle(self) -> None:
        """Let everything end: nothing falls ill any more, and people do what is theirs."""
        self.protected = set()
        for name in [name for name in self.maintenances if "auto" not in name]:
            del self.maintenances[name]
        for _ in range(60):
            self.seconds += 3600
            for pod in self.list_ending():
                self.stop_pod(pod.ref)
            for card in [*self.repairs]:
                for pod in [pod for pod in self.pods.values() if self.cards[pod.metadata.uid] == card]:
                    self.stop_pod(pod.ref)  # pods of an ill card end, too
            self.repair_by_hand()
            self.follow_maintenances()
            self.work()
            self.schedule()
            await self.reconcile()
            await self.repair()
            if not (self.repairs or self.tainted or self.list_open()) and len(self.pods) == len(TENANTS):
                break

    def judge_rest(self) -> None:
        """Judge what there is when nothing happens any more."""
        left = (self.repairs, self.tainted, self.list_ending())
        assert left == ({}, set(), []), (left, self.list_open())
        assert {ref.name for ref in self.pods} == {*TENANTS}
        self._judge.note(Rested(at=self.seconds, wanted=frozenset(self._made)))


def _is_free(status: CardMaintenanceStatus) -> bool:
    return any(each.type == "Free" and each.status == "True" for each in status.conditions)
