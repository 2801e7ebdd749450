"""What samples of use cost a plugin in processor time: on stand-ins of eight H100 with 32 MIG devices in use.

The plugin runs twice, with samples each second and without any; the difference is that of one sample of all cards. The
stand-in's own work is in it: its library locks a file at every call, where NVIDIA's asks the driver.
"""

import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Final

import anyio
import yaml

from kerf_dra.driver.kube.http.client import Client
from tests.bench.kubelet_calls import cpu_ms, in_flight, prepare
from tests.bench.measurement import Row, say
from tests.bench.plugin import NVIDIA_CARDS, SLOTS, allocated_claim, cluster, started

SECONDS: Final = 20
"""Of each run, each of which is one measurement."""
INTERVAL_S: Final = 15.0
"""The default interval of samples, for which the ratio is computed."""
_VARIABLE: Final = "KERF_KUBELET_PLUGIN_SAMPLE_INTERVAL"


async def measure() -> list[Row]:
    async with cluster() as (root, client):
        without = await _run(root / "without", client, 0.0)
        each_second = await _run(root / "with", client, 1.0)
    sample = max(0.0, median(each_second) - median(without))
    return [
        Row(
            name=f"plugin, {NVIDIA_CARDS} NVIDIA cards, {SLOTS} devices in use: processor time of a second",
            unit="ms",
            samples=[one + sample / INTERVAL_S for one in without],
            baseline_name="without samples",
            baseline=without,
        ),
        Row(name="  processor time of a sample of all of them", unit="ms", samples=[sample]),
    ]


async def _run(place: Path, client: Client, interval_s: float) -> Sequence[float]:
    """Return the processor time in ms of each second of a plugin whose claims are prepared."""
    say(f"samples, each {interval_s:g} s")
    place.mkdir()
    cards = [{"model": "h100-80gb-sxm", "count": NVIDIA_CARDS}]
    (place / "cards.yaml").write_text(yaml.safe_dump({"cards": cards}))
    os.environ[_VARIABLE] = str(interval_s)
    try:
        async with started(place.parent, place, f"nvidia-fake={place / 'cards.yaml'}") as (process, driver):
            claims = [await allocated_claim(client, slot=slot) for slot in range(SLOTS)]
            await in_flight(SLOTS, [partial(prepare, driver.channel, claim) for claim in claims])
            await anyio.sleep(3)  # statuses are written
            seconds = []
            for _ in range(SECONDS):
                before = cpu_ms(process.pid)
                await anyio.sleep(1)
                seconds.append(cpu_ms(process.pid) - before)
            return seconds
    finally:
        del os.environ[_VARIABLE]
