"""Prepares on hardware that takes its time: 8 cards whose partitions take 250 ms to make, one at a time for each card.

The ideal is what such cards allow: claims on different cards are prepared at the same time, those of one card one after
the other. What a prepare takes beyond that is the plugin's own, with the claim's read and the write of its status at
the embedded API server, which is a process of its own.
"""

import time
from functools import partial
from math import ceil
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import grpc.aio

from api.core.v1 import CUSTOM_RESOURCE_DEFINITIONS, NODES, Node
from api.model.metadata import ObjectMeta
from driver.kube.http.client import Client
from driver.kube.http.config import load_access
from tests.bench import plugin
from tests.bench.kubelet_calls import health_watched, in_flight, prepare, unprepare
from tests.bench.measurement import Row, say

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


async def measure() -> list[Row]:
    with TemporaryDirectory(prefix="kb", dir="/tmp") as folder:
        root = Path(folder)
        with plugin.api_server(root / "kubeconfig"):
            await plugin.appears(root / "kubeconfig")
            async with Client(await load_access(root / "kubeconfig"), user_agent="bench/1") as client:
                await client.apply(CUSTOM_RESOURCE_DEFINITIONS, plugin.CLASSES, field_manager="bench")
                await client.create(NODES, Node(metadata=ObjectMeta(name="node-1")))
                options = {"pace": 1, "delays": DELAYS}
                async with (
                    plugin.running(root, root / "p", cards=CARDS, options=options) as (_, driver),
                    health_watched(driver.channel),
                ):
                    return [row for calls in ROUNDS for row in await _rows(client, driver.channel, calls)]


async def _rows(client: Client, channel: grpc.aio.Channel, calls: int) -> list[Row]:
    prepares: list[float] = []
    together: list[float] = []
    slots = [7 * card + start for start in range(CLAIMS // CARDS) for card in range(CARDS)]  # card after card
    for number in range(ROUNDS[calls]):
        say(f"prepares on slow hardware, {calls} in flight, {number + 1} of {ROUNDS[calls]}")
        claims = [await plugin.allocated_claim(client, slot=slot) for slot in slots]
        begin = time.perf_counter()
        prepares += await in_flight(calls, [partial(prepare, channel, claim) for claim in claims])
        together.append(1000 * (time.perf_counter() - begin))
        await in_flight(CLAIMS, [partial(unprepare, channel, claim) for claim in claims])
    ideal_ms = 1000 * CREATE_S * ceil(CLAIMS / min(calls, CARDS))
    rows = [
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
    if calls <= CARDS:  # else claims wait for their cards
        own = [took - 1000 * CREATE_S for took in prepares]
        rows.append(Row(name="  a prepare's own part", unit="ms", samples=own, goal=f"<= {GOAL_MS} ms"))
    return rows
