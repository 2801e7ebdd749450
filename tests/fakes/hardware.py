"""A backend whose hardware is a table: it can be stopped at each step or made to fail, and may keep state in a file.

As on real hardware, nothing in the table says who made an entry. An entry's id is that of its place: made anew by
whomever, it is the same; only the UUID differs.
"""

import asyncio
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import anyio
import msgspec

from kerf_dra.api.kerf.v1alpha1 import DeviceConfigBase
from kerf_dra.cdi import ContainerEdits
from kerf_dra.driver.kubeletplugin.backends.base import (
    AllocatedDevice,
    CardAbsentError,
    CardChange,
    CardSurvey,
    DiscoveryChange,
    FoundPartition,
    Handle,
    HardwareConflictError,
    HealthChange,
    HealthState,
    Journal,
)
from kerf_dra.driver.partitions.device_names import device_name
from kerf_dra.driver.partitions.geometry import Card, Partition, Placement

GATE_S = 240.0
"""A gate that a test forgot to open lets its thread go after so long."""


class Made(msgspec.Struct, frozen=True):
    """What exists on the hardware. ``serial`` is its identity: made anew, it is another."""

    card_uuid: str
    profile: str | None
    start: int | None
    size: int | None
    serial: int

    @property
    def uuid(self) -> str:
        return f"uuid-{self.serial}"

    @property
    def placement(self) -> Placement | None:
        return None if self.start is None or self.size is None else Placement(self.start, self.size)

    def overlaps(self, partition: Partition) -> bool:
        if self.card_uuid != partition.card_uuid:
            return False
        mine, other = self.placement, partition.placement
        return mine is None or other is None or mine.overlaps(other)


class State(msgspec.Struct):
    """All of the hardware's state."""

    made: dict[str, Made] = {}
    """By id: the name of the place."""
    serial: int = 0

    def make(self, id_: str, partition: Partition) -> Made:
        """Make ``partition``. Raises HardwareConflictError when something is in its place."""
        for there, other in self.made.items():
            if other.overlaps(partition):
                raise HardwareConflictError(f"insufficient resources: {there} is there")
        self.serial += 1
        placement = partition.placement
        made = self.made[id_] = Made(
            card_uuid=partition.card_uuid,
            profile=partition.profile,
            start=None if placement is None else placement.start,
            size=None if placement is None else placement.size,
            serial=self.serial,
        )
        return made


class Gate:
    """A gate that blocks calls until it is opened."""

    def __init__(self) -> None:
        self.reached = anyio.Event()
        self.opened = threading.Event()
        self._loop = asyncio.get_running_loop()

    def pass_through(self) -> None:
        self._loop.call_soon_threadsafe(self.reached.set)
        self.opened.wait(GATE_S)


class FakeBackend:
    """Implements ``Backend``. With ``file`` the state outlives the process."""

    name = "fake"

    def __init__(self, cards: Sequence[Card], file: Path | None = None) -> None:
        self.cards = list(cards)
        self.file = file
        self.gates: dict[tuple[str, str], Gate] = {}
        """By operation and device."""
        self.failures: dict[tuple[str, str], list[Exception]] = {}
        """By operation and device: what its next calls raise."""
        self.calls: list[tuple[str, str]] = []
        self.configs: dict[str, DeviceConfigBase | None] = {}
        self.busy: set[str] = set()
        self.most_busy = 0
        self.without_edits: set[str] = set()
        self.is_open = True
        self._events = threading.Condition()
        self._told: list[HealthChange | CardChange | DiscoveryChange] = []
        self._event_error: Exception | None = None
        self.discovery_error: Exception | None = None
        self._changes = threading.Lock()
        self._state = State()
        if file is not None and file.exists():
            self._state = msgspec.json.decode(file.read_bytes(), type=State)

    @property
    def made(self) -> dict[str, Made]:
        """Return what is on the hardware, by the name of its place."""
        return self._state.made

    def gate(self, operation: str, device: str) -> Gate:
        return self.gates.setdefault((operation, device), Gate())

    def fail(self, operation: str, device: str, *errors: Exception) -> None:
        self.failures.setdefault((operation, device), []).extend(errors)

    def reboot(self) -> None:
        self._state.made.clear()
        self._save()

    def cut_by_hand(self, partition: Partition) -> Made:
        """Make a partition as an administrator does; Kerf must never touch it."""
        with self._changes:
            made = self._state.make(self._place(partition), partition)
            self._save()
        return made

    def remove_by_hand(self, serial: int) -> None:
        with self._changes:
            for id_ in [id_ for id_, made in self.made.items() if made.serial == serial]:
                del self.made[id_]
            self._save()

    def open(self) -> None:
        self.is_open = True

    def close(self) -> None:
        self.is_open = False
        with self._events:
            self._events.notify_all()

    def survey(self, card_uuid: str) -> CardSurvey:
        if card_uuid not in {card.uuid for card in self.cards}:
            raise CardAbsentError(f"there is no card {card_uuid}")
        with self._changes:
            found = tuple(
                FoundPartition(id=id_, profile=made.profile, placement=made.placement, uuid=made.uuid)
                for id_, made in self.made.items()
                if made.card_uuid == card_uuid
            )
        return CardSurvey(card_uuid=card_uuid, partitions=found)

    def discover(self) -> Sequence[Card]:
        if self.discovery_error is not None:
            raise self.discovery_error
        return tuple(self.cards)

    def prepare(
        self, device: AllocatedDevice, config: DeviceConfigBase | None, journal: Journal, found: FoundPartition | None
    ) -> Handle:
        name = device.share.id.device
        self._step("prepare", name, device.partition.card_uuid)
        self.configs[name] = config
        if device.admin_access:
            return {"device": name, "id": "", "serial": 0, "uuid": device.partition.card_uuid}
        id_ = self._place(device.partition)
        with self._changes:
            made = self._state.make(id_, device.partition) if found is None else self.made[found.id]
            self._save()
        return {"device": name, "id": id_, "serial": made.serial, "uuid": made.uuid}

    def unprepare(self, handle: Handle) -> None:
        self._step("unprepare", handle["device"], "")
        with self._changes:
            there = self.made.get(handle["id"])
            if there is not None and there.serial == handle["serial"]:
                del self.made[handle["id"]]
                self._save()

    def abandon(self, device: AllocatedDevice, journal: Journal, found: FoundPartition | None) -> None:
        self._step("abandon", device.share.id.device, device.partition.card_uuid)
        if found is not None:
            with self._changes:
                del self.made[found.id]
                self._save()

    def edits(self, handle: Handle) -> ContainerEdits:
        name = handle["device"]
        if name in self.without_edits:
            return ContainerEdits()
        return ContainerEdits(env=(f"FAKE_{name.upper().replace('-', '_')}={handle['serial']}",))

    def report(self, card: str, reason: str = "", *, state: HealthState = HealthState.UNHEALTHY) -> None:
        """Report that the card is in ``state`` for ``reason``, or healthy again without one."""
        state = state if reason else HealthState.HEALTHY
        self.tell(HealthChange(card_uuid=card, partition=None, state=state, reason=reason))

    def tell(self, event: HealthChange | CardChange | DiscoveryChange) -> None:
        """Report an event."""
        with self._events:
            self._told.append(event)
            self._events.notify_all()

    def break_events(self, error: Exception) -> None:
        """Make the wait for events fail once."""
        with self._events:
            self._event_error = error
            self._events.notify_all()

    def wait_for_events(self, timeout_s: float) -> Sequence[HealthChange | CardChange | DiscoveryChange]:
        with self._events:
            self._events.wait_for(lambda: self._told or self._event_error or not self.is_open, timeout_s)
            error, self._event_error = self._event_error, None
            if error is not None:
                raise error
            told, self._told = self._told, []
        return told

    def _place(self, partition: Partition) -> str:
        [card] = [card for card in self.cards if card.uuid == partition.card_uuid]
        return device_name(card, replace(partition, shared=False))

    def _step(self, operation: str, device: str, card_uuid: str) -> None:
        self.calls.append((operation, device))
        assert not card_uuid or card_uuid not in self.busy, f"two calls at once for card {card_uuid}"
        self.busy.add(card_uuid)
        self.most_busy = max(self.most_busy, len(self.busy))
        try:
            if gate := self.gates.get((operation, device)):
                gate.pass_through()
        finally:
            self.busy.discard(card_uuid)
        if errors := self.failures.get((operation, device)):
            raise errors.pop(0)

    def _save(self) -> None:
        if self.file is not None:
            unborn = self.file.with_suffix(".new")
            unborn.write_bytes(msgspec.json.encode(self._state))
            unborn.rename(self.file)
