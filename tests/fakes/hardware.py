"""A backend whose hardware is a table: it can be stopped at each step or made to fail, and may keep state in a file."""

import threading
from collections.abc import Sequence
from pathlib import Path

import anyio
import msgspec

from api.kerf.v1alpha1 import DeviceConfig
from cdi import ContainerEdits
from driver.kubeletplugin.backends.base import (
    AllocatedDevice,
    CardChange,
    CardSurvey,
    FoundPartition,
    Handle,
    HardwareBusyError,
    HealthChange,
    HealthState,
)
from driver.partitions.geometry import Card, DeviceKind, Partition, Placement


class Made(msgspec.Struct, frozen=True):
    """What exists on the hardware. ``serial`` is its identity: made anew, it is another.

    What is offered in shares belongs to no claim: ``claim_uid`` is ``shared`` then.
    """

    claim_uid: str
    device: str
    card_uuid: str
    start: int | None
    size: int | None
    serial: int
    admin: bool = False

    @property
    def partition(self) -> Partition:
        placement = None if self.start is None or self.size is None else Placement(self.start, self.size)
        return Partition(kind=DeviceKind.GPU, card_uuid=self.card_uuid, placement=placement)


class State(msgspec.Struct):
    """All of the hardware's state."""

    made: dict[str, Made] = {}
    serial: int = 0


class Gate:
    """A gate that blocks tasks until it is opened."""

    def __init__(self) -> None:
        self.reached = anyio.Event()
        self.opened = anyio.Event()

    async def pass_through(self) -> None:
        self.reached.set()
        await self.opened.wait()


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
        self.configs: dict[str, DeviceConfig | None] = {}
        self.busy: set[str] = set()
        self.most_busy = 0
        self.without_edits: set[str] = set()
        self.is_open = True
        self._events = threading.Condition()
        self._told: list[HealthChange | CardChange] = []
        self._event_error: Exception | None = None
        self.discovery_error: Exception | None = None
        self._state = State()
        if file is not None and file.exists():
            self._state = msgspec.json.decode(file.read_bytes(), type=State)

    @property
    def made(self) -> dict[str, Made]:
        """Return what was made, by ``claim UID/device``."""
        return self._state.made

    def gate(self, operation: str, device: str) -> Gate:
        return self.gates.setdefault((operation, device), Gate())

    def fail(self, operation: str, device: str, *errors: Exception) -> None:
        self.failures.setdefault((operation, device), []).extend(errors)

    def reboot(self) -> None:
        self._state.made.clear()
        self._save()

    def open(self) -> None:
        self.is_open = True

    def close(self) -> None:
        self.is_open = False
        with self._events:
            self._events.notify_all()

    def survey(self, card_uuid: str) -> CardSurvey:
        found = (
            FoundPartition(id=key, profile=None, placement=made.partition.placement)
            for key, made in self.made.items()
            if made.card_uuid == card_uuid
        )
        return CardSurvey(card_uuid=card_uuid, partitions=tuple(found))

    def discover(self) -> Sequence[Card]:
        if self.discovery_error is not None:
            raise self.discovery_error
        return tuple(self.cards)

    async def prepare(self, device: AllocatedDevice, config: DeviceConfig | None) -> Handle:
        name = device.share.id.device
        await self._step("prepare", name, device.partition.card_uuid)
        self.configs[name] = config
        holder = "shared" if device.partition.shared else device.claim.uid
        key = f"{holder}/{name}"
        if key not in self.made:
            for other in self.made.values():
                if not device.admin_access and not other.admin and other.partition.overlaps(device.partition):
                    raise HardwareBusyError(
                        f"insufficient resources: {other.device} of claim {other.claim_uid} is there"
                    )
            self._state.serial += 1
            placement = device.partition.placement
            self.made[key] = Made(
                claim_uid=holder,
                device=name,
                card_uuid=device.partition.card_uuid,
                start=None if placement is None else placement.start,
                size=None if placement is None else placement.size,
                serial=self._state.serial,
                admin=device.admin_access,
            )
            self._save()
        return {"key": key, "serial": self.made[key].serial}

    async def unprepare(self, handle: Handle) -> None:
        name = handle["key"].partition("/")[2]
        await self._step("unprepare", name, "")
        there = self.made.get(handle["key"])
        if there is not None and there.serial == handle["serial"]:
            del self.made[handle["key"]]
            self._save()

    async def abandon(self, device: AllocatedDevice) -> None:
        name = device.share.id.device
        await self._step("abandon", name, device.partition.card_uuid)
        holder = "shared" if device.partition.shared else device.claim.uid
        self.made.pop(f"{holder}/{name}", None)
        self._save()

    def edits(self, handle: Handle) -> ContainerEdits:
        name = handle["key"].partition("/")[2]
        if name in self.without_edits:
            return ContainerEdits()
        return ContainerEdits(env=(f"FAKE_{name.upper().replace('-', '_')}={handle['serial']}",))

    def report(self, card: str, reason: str = "", *, state: HealthState = HealthState.UNHEALTHY) -> None:
        """Report that the card is in ``state`` for ``reason``, or healthy again without one."""
        state = state if reason else HealthState.HEALTHY
        self.tell(HealthChange(card_uuid=card, partition=None, state=state, reason=reason))

    def tell(self, event: HealthChange | CardChange) -> None:
        """Report an event."""
        with self._events:
            self._told.append(event)
            self._events.notify_all()

    def break_events(self, error: Exception) -> None:
        """Make the wait for events fail once."""
        with self._events:
            self._event_error = error
            self._events.notify_all()

    def wait_for_events(self, timeout_s: float) -> Sequence[HealthChange | CardChange]:
        with self._events:
            self._events.wait_for(lambda: self._told or self._event_error or not self.is_open, timeout_s)
            error, self._event_error = self._event_error, None
            if error is not None:
                raise error
            told, self._told = self._told, []
        return told

    async def _step(self, operation: str, device: str, card_uuid: str) -> None:
        self.calls.append((operation, device))
        assert not card_uuid or card_uuid not in self.busy, f"two calls at once for card {card_uuid}"
        self.busy.add(card_uuid)
        self.most_busy = max(self.most_busy, len(self.busy))
        try:
            await anyio.lowlevel.checkpoint()
            if gate := self.gates.get((operation, device)):
                await gate.pass_through()
        finally:
            self.busy.discard(card_uuid)
        if errors := self.failures.get((operation, device)):
            raise errors.pop(0)

    def _save(self) -> None:
        if self.file is not None:
            unborn = self.file.with_suffix(".new")
            unborn.write_bytes(msgspec.json.encode(self._state))
            unborn.rename(self.file)
