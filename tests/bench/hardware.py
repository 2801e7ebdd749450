"""Prepares on hardware that takes its time: 8 cards whose partitions take 250 ms to make, one at a time for each card.

The ideal is what such cards allow: claims on different cards are prepared at the same time, those of one card one after
the other. It is measured before each round: the backend makes the same partitions on cards of its own, and nothing
calls it but a thread for each card. Each call in flight has claims of its own, one after the other: with 8 of them
those of one card, with 32 one claim. A prepare's own part is what it takes beside the time of its hardware and of the
API server's answers, both as the plugin's metrics have it: the API server here is the embedded one, a process of its
own.
"""

import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import anyio
import anyio.to_thread
import grpc.aio
import msgspec
from aiohttp import ClientSession
from prometheus_client.parser import text_string_to_metric_families

from kerf_dra.api.core.v1 import CUSTOM_RESOURCE_DEFINITIONS, NODES, Node
from kerf_dra.api.model.metadata import ObjectMeta
from kerf_dra.api.model.names import ClaimRef, DeviceId, ShareId
from kerf_dra.api.resource.v1 import KINDS
from kerf_dra.driver.kube.http.client import Client
from kerf_dra.driver.kube.http.config import load_access
from kerf_dra.driver.kubeletplugin.backends.base import AllocatedDevice
from kerf_dra.driver.kubeletplugin.backends.simulated.backend import SimulatedBackend
from kerf_dra.driver.kubeletplugin.backends.simulated.config import read_config
from kerf_dra.driver.partitions.geometry import Partition
from kerf_dra.driver.testing.journal import KillableJournal
from tests.bench import plugin
from tests.bench.kubelet_calls import MEMORY, health_watched, in_flight, milliseconds, prepare, unprepare
from tests.bench.measurement import Row, say
from tests.runtime.ports import reserved_port

CARDS: Final = 8
CLAIMS: Final = 32
"""Four for each card."""
PROFILE: Final = "1g.10gb"
CREATE_S: Final = 0.25
DELAYS: Final = {
    "nvmlDeviceCreateGpuInstanceWithPlacement": 0.2,
    "nvmlGpuInstanceCreateComputeInstance": CREATE_S - 0.2,
    "nvmlComputeInstanceDestroy": 0,
    "nvmlGpuInstanceDestroy": 0,
}
ROUNDS: Final = {1: 2, 8: 6, 32: 6}
"""Rounds by calls in flight."""
GOAL_MS: Final = 5
WAITED: Final = {
    "kerf_hardware_seconds_sum": {"operation": "prepare"},
    "kerf_api_request_seconds_sum": {"method": "GET", "resource": "resourceclaims"},
}
"""What a prepare waits for, by metric and those of its labels that say so."""


async def measure() -> list[Row]:
    with (
        TemporaryDirectory(prefix="kb", dir="/tmp") as folder,
        TemporaryDirectory(prefix="kerf-bench-", dir=MEMORY) as state,
        reserved_port() as port,
    ):
        root = Path(folder)
        with plugin.api_server(root / "kubeconfig"):
            await plugin.appears(root / "kubeconfig")
            async with Client(await load_access(root / "kubeconfig"), user_agent="bench/1") as client:
                await client.apply(CUSTOM_RESOURCE_DEFINITIONS, plugin.CLASSES, field_manager="bench")
                await client.create(NODES, Node(metadata=ObjectMeta(name="node-1")))
                options = {"pace": 1, "delays": DELAYS}
                async with (
                    plugin.running(root, root / "p", CARDS, options, port) as (_, driver),
                    health_watched(driver.channel),
                ):
                    rows = [await _measure_own_part(client, driver.channel, port)]
                    alone = SimulatedBackend(
                        msgspec.structs.replace(read_config(root / "p" / "cards.yaml"), state=state)
                    )
                    return rows + [row for calls in ROUNDS for row in await _rows(client, driver.channel, alone, calls)]


async def _rows(client: Client, channel: grpc.aio.Channel, alone: SimulatedBackend, calls: int) -> list[Row]:
    prepares: list[float] = []
    together: list[float] = []
    ideal: list[float] = []
    for number in range(ROUNDS[calls]):
        say(f"prepares on slow hardware, {calls} in flight, {number + 1} of {ROUNDS[calls]}")
        ideal.append(await _make_alone(alone, min(calls, CARDS)))
        claims = await _allocate(client)
        begin = time.perf_counter()
        async with anyio.create_task_group() as group:
            for call in range(calls):
                group.start_soon(_prepare, channel, claims[call::calls], prepares)
        together.append(1000 * (time.perf_counter() - begin))
        await _unprepare(client, channel, claims)
    return [
        Row(name=f"prepare, {calls} in flight", unit="ms", samples=prepares),
        Row(
            name=f"  {CLAIMS} claims on {CARDS} cards",
            unit="ms",
            samples=together,
            baseline_name="hardware alone",
            baseline=ideal,
            goal="<= 1.10",
        ),
    ]


async def _measure_own_part(client: Client, channel: grpc.aio.Channel, port: int) -> Row:
    """Measure one prepare at a time; what it waited for is read between them."""
    own: list[float] = []
    say("prepares on slow hardware, one by one")
    claims = await _allocate(client)
    async with ClientSession() as session:
        for claim in claims:
            before_ms = await _read_waited_ms(session, port)
            took = await milliseconds(prepare(channel, claim))
            own.append(took - (await _read_waited_ms(session, port) - before_ms))
    await _unprepare(client, channel, claims)
    return Row(name="a prepare's own part", unit="ms", samples=own, goal=f"<= {GOAL_MS} ms")


async def _prepare(channel: grpc.aio.Channel, claims: Sequence[ClaimRef], took: list[float]) -> None:
    for claim in claims:
        took.append(await milliseconds(prepare(channel, claim)))


async def _allocate(client: Client) -> list[ClaimRef]:
    """Return new claims, card after card: that at ``n`` has a partition of card ``n % CARDS``."""
    slots = [7 * card + start for start in range(CLAIMS // CARDS) for card in range(CARDS)]
    return [await plugin.allocated_claim(client, slot=slot) for slot in slots]


async def _unprepare(client: Client, channel: grpc.aio.Channel, claims: Sequence[ClaimRef]) -> None:
    """Unprepare and delete the claims, as those of pods that have ended."""
    await in_flight(CLAIMS, [partial(unprepare, channel, claim) for claim in claims])
    for claim in claims:
        await client.delete(KINDS.resource_claims, claim.name, namespace=claim.namespace)


async def _make_alone(backend: SimulatedBackend, at_once: int) -> float:
    """Have ``backend`` make ``CLAIMS`` partitions, on so many cards at a time; return how long it takes, in ms."""
    cards = [
        [spec.of(card.uuid) for spec in card.geometry.specs if spec.profile == PROFILE][: CLAIMS // CARDS]
        for card in backend.discover()
    ]
    took = 0.0
    for start in range(0, CARDS, at_once):
        begin = time.perf_counter()
        async with anyio.create_task_group() as group:
            for partitions in cards[start : start + at_once]:
                group.start_soon(anyio.to_thread.run_sync, _make_in_turn, backend, partitions)
        took += 1000 * (time.perf_counter() - begin)
    for device in (_device(partition) for partitions in cards for partition in partitions):
        found = backend.survey(device.partition.card_uuid).find(device.partition)
        backend.abandon(device, KillableJournal(), found)
    return took


def _make_in_turn(backend: SimulatedBackend, partitions: Sequence[Partition]) -> None:
    for partition in partitions:
        backend.prepare(_device(partition), None, KillableJournal(), None)


def _device(partition: Partition) -> AllocatedDevice:
    return AllocatedDevice(
        claim=ClaimRef("default", "alone", "alone"),
        share=ShareId(DeviceId("gpu.kerf.dev", "node-1/gpu", "alone"), None),
        partition=partition,
        admin_access=False,
        consumed_capacity={},
    )


async def _read_waited_ms(session: ClientSession, port: int) -> float:
    """Return how long the plugin has waited so far, in all calls, for hardware and for answers on claims."""
    async with session.get(f"http://127.0.0.1:{port}/metrics") as answer:
        families = text_string_to_metric_families(await answer.text())
    samples = (sample for family in families for sample in family.samples)
    return 1000 * sum(
        sample.value
        for sample in samples
        if sample.name in WAITED and WAITED[sample.name].items() <= sample.labels.items()
    )
