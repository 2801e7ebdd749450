"""Prepares on hardware that takes its time: 8 cards whose partitions take 250 ms to make, one at a time for each card.

The ideal is what such cards allow: claims on different cards are prepared at the same time, those of one card one after
the other. Each call in flight has claims of its own, one after the other: with 8 of them those of one card, with 32 one
claim. A prepare's own part is what it takes beside the time of its hardware and of the API server's answers, both as
the plugin's metrics have it: the API server here is the embedded one, a process of its own.
"""

import time
from collections.abc import Sequence
from functools import partial
from math import ceil
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import anyio
import grpc.aio
from aiohttp import ClientSession
from prometheus_client.parser import text_string_to_metric_families

from api.core.v1 import CUSTOM_RESOURCE_DEFINITIONS, NODES, Node
from api.model.metadata import ObjectMeta
from api.model.names import ClaimRef
from driver.kube.http.client import Client
from driver.kube.http.config import load_access
from tests.bench import plugin
from tests.bench.kubelet_calls import health_watched, in_flight, milliseconds, prepare, unprepare
from tests.bench.measurement import Row, say
from tests.runtime.ports import reserved_port

CARDS: Final = 8
CLAIMS: Final = 32
"""Four for each card."""
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
    ("kerf_hardware_seconds_sum", "prepare"),
    ("kerf_api_request_seconds_sum", "resourceclaims"),
}
"""What a prepare waits for, by metric and its operation or resource."""


async def measure() -> list[Row]:
    with TemporaryDirectory(prefix="kb", dir="/tmp") as folder, reserved_port() as port:
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
                    return rows + [row for calls in ROUNDS for row in await _rows(client, driver.channel, calls)]


async def _rows(client: Client, channel: grpc.aio.Channel, calls: int) -> list[Row]:
    prepares: list[float] = []
    together: list[float] = []
    for number in range(ROUNDS[calls]):
        say(f"prepares on slow hardware, {calls} in flight, {number + 1} of {ROUNDS[calls]}")
        claims = await _allocate(client)
        begin = time.perf_counter()
        async with anyio.create_task_group() as group:
            for call in range(calls):
                group.start_soon(_prepare, channel, claims[call::calls], prepares)
        together.append(1000 * (time.perf_counter() - begin))
        await _unprepare(channel, claims)
    ideal_ms = 1000 * CREATE_S * ceil(CLAIMS / min(calls, CARDS))
    return [
        Row(name=f"prepare, {calls} in flight", unit="ms", samples=prepares),
        Row(
            name=f"  {CLAIMS} claims on {CARDS} cards",
            unit="ms",
            samples=together,
            baseline_name="ideal",
            baseline=[ideal_ms],
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
    await _unprepare(channel, claims)
    return Row(name="a prepare's own part", unit="ms", samples=own, goal=f"<= {GOAL_MS} ms")


async def _prepare(channel: grpc.aio.Channel, claims: Sequence[ClaimRef], took: list[float]) -> None:
    for claim in claims:
        took.append(await milliseconds(prepare(channel, claim)))


async def _allocate(client: Client) -> list[ClaimRef]:
    """Return new claims, card after card: that at ``n`` has a partition of card ``n % CARDS``."""
    slots = [7 * card + start for start in range(CLAIMS // CARDS) for card in range(CARDS)]
    return [await plugin.allocated_claim(client, slot=slot) for slot in slots]


async def _unprepare(channel: grpc.aio.Channel, claims: Sequence[ClaimRef]) -> None:
    await in_flight(CLAIMS, [partial(unprepare, channel, claim) for claim in claims])


async def _read_waited_ms(session: ClientSession, port: int) -> float:
    """Return how long the plugin has waited so far, in all calls, for hardware and for answers on claims."""
    async with session.get(f"http://127.0.0.1:{port}/metrics") as answer:
        families = text_string_to_metric_families(await answer.text())
    samples = (sample for family in families for sample in family.samples)
    return 1000 * sum(
        sample.value for sample in samples if {(sample.name, label) for label in sample.labels.values()} & WAITED
    )
