"""A node whose cards go and come back, while its plugin runs or between two, and what others see of its devices."""

import dataclasses
import shutil
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from kerf_dra.api.model.devices import CounterSet, Device, SliceContent
from kerf_dra.driver.kubeletplugin.backends.base import CardAbsentError, Handle, HealthState
from kerf_dra.driver.kubeletplugin.claims.checkpoint.checkpoint import open_checkpoint
from kerf_dra.driver.partitions.geometry import Card
from kerf_dra.driver.runtime import metrics
from tests.fakes.cards import fpga, gpu
from tests.fakes.claims import DRIVER, claim
from tests.fakes.hardware import FakeBackend
from tests.kubeletplugin.harness import Machine, machine
from tests.kubeletplugin.wait import until

LOST, UNAFFECTED = "gpu-0-1g-1gb-at-0", "gpu-1-1g-1gb-at-0"
"""A device on the card that is lost, and one on another card; a claim has each."""
EVICTING = (f"{DRIVER}/unhealthy", "lost", "NoExecute")
UNKNOWN = (f"{DRIVER}/quarantined", "", "NoSchedule")
HEALTHY, UNHEALTHY = 1, 2
REASON = "Xid 79: the GPU has fallen off the bus"


class Hardware(FakeBackend):
    """Cards that go and come back; as the contract demands, what is not healthy is reported after each opening."""

    def __init__(self, file: Path) -> None:
        self.there: list[Card] = [gpu(0), gpu(1), fpga(0)]
        super().__init__(self.there, file)
        self.ill: dict[str, HealthState] = {}
        self.open_error: Exception | None = None
        self.hidden: set[str] = set()

    def open(self) -> None:
        if self.open_error is not None:
            raise self.open_error
        super().open()
        for card, state in self.ill.items():
            self.report(card, REASON, state=state)

    def fall_ill(self, card: str, state: HealthState) -> None:
        self.ill[card] = state
        self.report(card, REASON, state=state)

    def remove(self, *cards: str) -> None:
        """Take cards away: no backend finds them any more."""
        self.cards = [card for card in self.cards if card.uuid not in cards]

    def refuse(self) -> None:
        """Have opening fail for a reason that says nothing of the cards."""
        self.open_error = RuntimeError("Too many open files")

    def lose_list(self) -> None:
        """Have the cards listed no more, by an error."""
        self.discovery_error = RuntimeError("the list is damaged")

    def replace_first(self) -> None:
        """Put another card in the place of the first one."""
        self.cards = [dataclasses.replace(gpu(0), uuid="GPU-new"), *self.cards[1:]]

    def hide(self, card: str) -> None:
        """Have a card listed no more that is there."""
        self.hidden.add(card)

    def unload(self) -> None:
        """Unload the driver."""
        self.open_error = CardAbsentError("the driver is not loaded")

    def discover(self) -> Sequence[Card]:
        return [card for card in super().discover() if card.uuid not in self.hidden]

    def unprepare(self, handle: Handle) -> None:
        if self.made[handle["id"]].card_uuid not in {card.uuid for card in self.cards}:
            raise CardAbsentError("there is no such card")
        super().unprepare(handle)

    def repair(self) -> None:
        """Bring everything back."""
        for card in self.ill:
            self.report(card)
        self.ill.clear()
        self.cards, self.open_error = list(self.there), None


class Facts(NamedTuple):
    """Everything that others see of the node's devices."""

    devices: Mapping[str, Device]
    """The published devices, by name: their order is that of the scheduler's preference, which changes with claims."""
    counters: Mapping[str, CounterSet]
    health: frozenset[tuple[str, int]]
    """The health of each device that a claim has, by its name."""
    events: frozenset[str]
    """The reasons of the warnings about the Node."""
    is_ready: bool
    unhealthy: float | None
    """What the metric counts."""


@contextmanager
def node() -> Iterator[tuple[Machine, Hardware]]:
    """A node whose cards are surveyed all the time."""
    with machine(survey_interval_s=0.05, health_interval_s=0.02) as made:
        hardware = Hardware(made.root / "hardware.json")
        made.backend = hardware
        yield made, hardware


def contents(made: Machine) -> list[SliceContent]:
    pools = made.cluster.published[-1] if made.cluster.published else ()
    return [content for pool in pools for content in pool.slices]


def published(made: Machine) -> dict[str, Device]:
    return {device.name: device for content in contents(made) for device in content.devices}


def taints(made: Machine, device: str) -> set[tuple[str, str, str]]:
    found = published(made).get(device)
    return {(taint.key, taint.value, taint.effect) for taint in found.taints} if found is not None else set()


async def read_facts(made: Machine) -> Facts:
    async with made.kubelet.watching_health() as report:
        health = frozenset((one.device.device_name, one.health) for one in (await report()).devices)
    reasons = frozenset(reason for about, _, reason, _ in made.cluster.reported if about == "Node")
    devices = {  # but for the rank, which changes with claims as the order does
        name: replace(device, attributes={key: each for key, each in device.attributes.items() if key != "lossRank"})
        for name, device in published(made).items()
    }
    return Facts(
        devices=devices,
        counters={counters.name: counters for one in contents(made) for counters in one.shared_counters},
        health=health,
        events=reasons - {"CardFree", "CardsDiscovered"},
        is_ready=made.checks["cards"]() is None,
        unhealthy=metrics.REGISTRY.get_sample_value("kerf_unhealthy_devices", {"driver": DRIVER}),
    )


async def prepare(made: Machine) -> None:
    for name, device in (("lost", LOST), ("unaffected", UNAFFECTED)):
        await made.kubelet.prepare(made.cluster.add(claim(name, device)))


@asynccontextmanager
async def starting(made: Machine) -> AsyncIterator[None]:
    """A new plugin, of which nothing was published or reported yet."""
    made.cluster.published.clear()
    made.cluster.reported.clear()
    async with made.plugin():
        await until(lambda: bool(made.cluster.published))
        yield


# The ways in which a plugin ends, with two claims


async def stop(made: Machine) -> None:
    async with starting(made):
        await prepare(made)


async def kill(made: Machine) -> None:
    """Leave the files as they are in the midst of the plugin's life: nothing that it does at its end counts."""
    copy = made.root / "killed"
    async with starting(made):
        await prepare(made)
        shutil.copytree(made.settings.state, copy, ignore=shutil.ignore_patterns("*.sock"))
    shutil.rmtree(made.settings.state)
    shutil.move(copy, made.settings.state)


async def update(made: Machine) -> None:
    """Prepare by a version whose records do not describe cards; the next one has seen the cards before they go."""
    await stop(made)
    forget_cards(made)
    async with starting(made):
        pass


ENDS = {"stopped": stop, "killed": kill, "updated": update}


def forget_cards(made: Machine) -> None:
    """Write the records as a version does that does not describe cards in them."""
    with open_checkpoint(made.settings.state, boot_id=made.boot_id) as checkpoint:
        records = list(checkpoint.records.values())
        notes = [(uid, one) for uid, of_claim in checkpoint.notes.items() for one in of_claim.values()]
    shutil.rmtree(made.settings.state)
    made.settings.state.mkdir(mode=0o700)
    with open_checkpoint(made.settings.state, boot_id=made.boot_id) as checkpoint:
        for record in records:
            checkpoint.put(record)
        for uid, one in notes:
            checkpoint.write_notes(uid, one)
