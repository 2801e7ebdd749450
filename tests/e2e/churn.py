"""Pods that come and go on one card, and the history of what their containers saw, for the judge of ownership.

A pod stands for a claim of its own: it *holds* what its container reports from the moment in which that is seen until
its deletion is requested. In between nobody else may have any of it, and it must be on the hardware.
"""

import re
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from itertools import count
from random import Random
from typing import Final

import anyio

from kerf_dra.driver.partitions.geometry import Partition, Placement
from tests.e2e.namespace import Namespace
from tests.e2e.wait import eventually
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
    Used,
)
from tests.ownership.judge import Judge

_DEVICE: Final = re.compile(r"(gpu-\d+)-(\d)g-(\d+)gb-at-(\d)")
_UNITS: Final = {"1g.10gb": 1, "2g.20gb": 2, "3g.40gb": 4}
"""The memory slices of the profiles of the tests' cards."""
_GRACE_S: Final = 3600.0
"""Longer than any run: nothing that a pod holds may be taken while the pod is there."""
_WAIT_S: Final = 150.0
"""The time limit for a pod that competes with others: all of them end within seconds, and kube-scheduler backs off."""


class PodJudge:
    """Judges what the containers of pods saw; every note raises ViolationError at the first double use."""

    def __init__(self, list_uuids: Callable[[], Awaitable[frozenset[str]]], clock: Callable[[], float]) -> None:
        """``list_uuids`` returns the UUIDs of the partitions that are on the hardware now."""
        self._judge = Judge(grace_s=_GRACE_S)
        self._list_uuids = list_uuids
        self._clock = clock
        self._calls = count()
        self._present: set[str] = set()
        self._lock = anyio.Lock()
        self.places: Counter[str] = Counter()
        """How often each device was given."""

    async def note_running(self, uid: str, devices: Mapping[str, str]) -> None:
        """Note that the container of pod ``uid`` runs with ``devices``, their UUIDs by name."""
        async with self._lock:
            await self._note_hardware()
            at, call = self._clock(), next(self._calls)
            given = tuple(Given(place=find_place(name), uuid=uuid) for name, uuid in devices.items())
            self._judge.note(Allocated(at=at, claim=uid, places=frozenset(one.place for one in given)))
            self._judge.note(Called(at=at, call=call, operation=Operation.PREPARE, claim=uid))
            for one in given:
                if one.uuid not in self._present and one.uuid in await self._list_uuids():
                    self._judge.note(Appeared(at=at, partition=one.uuid, place=one.place, by=Actor.PLUGIN))
                    self._judge.note(Named(at=at, partition=one.uuid, uuid=one.uuid))
                    self._present.add(one.uuid)
            self._judge.note(Answered(at=at, call=call, outcome=Outcome.DONE, given=given))
            self._judge.note(Used(at=at, claim=uid, is_used=True))
            self.places.update(devices.keys())

    async def note_ending(self, uid: str) -> None:
        """Note that the pod is about to be deleted."""
        async with self._lock:
            await self._note_hardware()
            at, call = self._clock(), next(self._calls)
            self._judge.note(Used(at=at, claim=uid, is_used=False))
            self._judge.note(Called(at=at, call=call, operation=Operation.UNPREPARE, claim=uid))
            self._judge.note(Answered(at=at, call=call, outcome=Outcome.DONE))
            self._judge.note(Ended(at=at, claim=uid, how=End.DELETED))

    async def _note_hardware(self) -> None:
        uuids = await self._list_uuids()
        for gone in sorted(self._present - uuids):
            self._present.discard(gone)
            self._judge.note(Disappeared(at=self._clock(), partition=gone, by=Actor.PLUGIN))


def find_place(device: str) -> Partition:
    """Return the partition of a device such as ``gpu-0-1g-10gb-at-3``."""
    match = _DEVICE.fullmatch(device)
    assert match, device
    card, slices, gigabytes, start = match.groups()
    profile = f"{slices}g.{gigabytes}gb"
    return Partition(kind="gpu", card_uuid=card, profile=profile, placement=Placement(int(start), _UNITS[profile]))


@dataclass
class Churn:
    """Pods that are created and deleted for ``duration_s`` seconds."""

    namespace: Namespace
    judge: PodJudge
    duration_s: float
    random: Random
    ran: Counter[str] = field(default_factory=Counter)
    """How many pods of each kind have run."""
    rejected: Counter[str] = field(default_factory=Counter)
    """How many the kubelet has rejected, by its words: what the scheduler had counted was no longer there."""
    _numbers: "count[int]" = field(default_factory=count)

    async def run(self, kind: str, create: Callable[[str], Awaitable[None]]) -> None:
        """Create pods of one kind with ``create``, one after the other, until the time is over."""
        end = anyio.current_time() + self.duration_s
        while anyio.current_time() < end:
            name = f"{kind}-{next(self._numbers)}"
            await create(name)
            uid = str((await self.namespace.pod(name))["metadata"]["uid"])
            devices = await self._wait(name)
            if isinstance(devices, str):
                self.rejected[devices] += 1
            else:
                await self.judge.note_running(uid, devices)
                self.ran[kind] += 1
                await anyio.sleep(self.random.uniform(0, 4))
                await self.judge.note_ending(uid)
            await self.namespace.delete_pod(name)

    async def _wait(self, name: str) -> Mapping[str, str] | str:
        """Return what the pod's container has, once it runs, or why the kubelet has rejected the pod."""
        found: list[Mapping[str, str] | str] = []

        async def has_run() -> bool:
            if (running := await self.namespace.find_running(name)) is not None:
                found.append(running.main.kerf_devices)
            elif (status := (await self.namespace.pod(name))["status"]).get("phase") == "Failed":
                found.append(f"{status.get('reason')}: {status.get('message')}".replace(name, "NAME"))
            return bool(found)

        await eventually(f"pod {name} runs", has_run, within_s=_WAIT_S, but=lambda: self.namespace.describe_pod(name))
        return found[0]
