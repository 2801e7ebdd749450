"""This plugin beside that of another checkout, in turns: what a change saves or costs.

``KERF_BENCH_BASELINE`` is the root of the other checkout, such as a worktree of an earlier commit. Both plugins run
with this Python and its libraries, each with an API server of its own. Of two equal checkouts the ratios are the noise.
"""

import os
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

import anyio
import click

from kerf_dra.api.model.names import ClaimRef
from kerf_dra.api.resource.v1 import KINDS
from kerf_dra.driver.kube.http.client import Client
from kerf_dra.driver.local.kubelet.plugins import Driver
from tests.bench.kubelet_calls import cpu_ms, health_watched, in_flight, prepare, unprepare
from tests.bench.measurement import Row, say
from tests.bench.plugin import SLOTS, allocated_claim, cluster, environment_of, running

VARIABLE: Final = "KERF_BENCH_BASELINE"
IN_FLIGHT: Final = (1, 8, 32)
ROUNDS: Final = 10
"""Of 32 claims each, for every number in flight."""
SINGLE: Final = 8
"""Claims that come alone, with all that follows them."""
CARDS: Final = 8
FOLLOWS_S: Final = 5.6
"""How long a plugin works on after an answer: slices are published five seconds after the last time."""
_STARTED_S: Final = 8.0
"""How long a plugin that has registered is given to finish its start."""
_IDLE_S: Final = 12.0


@dataclass(slots=True, kw_only=True)
class Subject:
    """One of the two plugins, and what was measured of it, in ms."""

    pid: int
    driver: Driver
    client: Client
    processor: dict[int, list[float]] = field(default_factory=lambda: {calls: [] for calls in IN_FLIGHT})
    """The processor time of a prepare with its unprepare, by the number of calls in flight."""
    prepares: dict[int, list[float]] = field(default_factory=lambda: {calls: [] for calls in IN_FLIGHT})
    """The times of prepare calls."""
    single: list[float] = field(default_factory=list)
    """The processor time of a claim that comes alone, with all that follows, less that of idle seconds."""
    idle: list[float] = field(default_factory=list)
    """The processor time of an idle second."""

    async def burst(self, calls: int) -> None:
        claims = [await allocated_claim(self.client, slot=slot) for slot in range(SLOTS)]
        begin = cpu_ms(self.pid)
        self.prepares[calls] += await in_flight(calls, [partial(prepare, self.driver.channel, one) for one in claims])
        await in_flight(calls, [partial(unprepare, self.driver.channel, one) for one in claims])
        await anyio.sleep(0.3)  # the statuses that were delayed
        self.processor[calls].append((cpu_ms(self.pid) - begin) / SLOTS)
        for claim in claims:
            await self.delete(claim)

    async def delete(self, claim: ClaimRef) -> None:
        await self.client.delete(KINDS.resource_claims, claim.name, claim.namespace)


async def measure() -> list[Row]:
    """Raises ClickException when there is no other checkout."""
    baseline = Path(os.environ.get(VARIABLE, "")).resolve()
    if not os.environ.get(VARIABLE) or not (baseline / "kerf_dra").is_dir():
        raise click.ClickException(f"set {VARIABLE} to the root of another checkout, in which kerf_dra is")
    async with AsyncExitStack() as stack:
        own, other = [
            await stack.enter_async_context(_running(checkout)) for checkout in (Path.cwd().resolve(), baseline)
        ]
        for number in range(ROUNDS):
            for calls in IN_FLIGHT:
                say(f"bursts of {calls} calls, {number + 1} of {ROUNDS}")
                for subject in (own, other) if number % 2 else (other, own):
                    await subject.burst(calls)
        await _measure_alone((own, other))
    return _rows(own, other, baseline.name)


@asynccontextmanager
async def _running(checkout: Path) -> AsyncIterator[Subject]:
    _check_code(checkout)
    async with (
        cluster() as (root, client),
        running(root, root / "p", cards=CARDS, checkout=checkout) as (process, driver),
        health_watched(driver.channel),
    ):
        yield Subject(pid=process.pid, driver=driver, client=client)


def _check_code(checkout: Path) -> None:
    """Raise ClickException when a process in ``checkout`` would run other code: an installed package may come first."""
    command = [sys.executable, "-c", "import kerf_dra.driver.cli as cli; print(cli.__file__)"]
    environment = environment_of(checkout)
    found = subprocess.run(command, cwd=checkout, env=environment, capture_output=True, text=True, check=True).stdout
    if not Path(found.strip()).resolve().is_relative_to(checkout):
        raise click.ClickException(f"a process in {checkout} would run {found.strip()}")


async def _measure_alone(subjects: Sequence[Subject]) -> None:
    """Measure both at once, each with a claim of its own: most of the time they wait."""
    await anyio.sleep(_STARTED_S)
    begins = [cpu_ms(subject.pid) for subject in subjects]
    await anyio.sleep(_IDLE_S)
    for subject, begin in zip(subjects, begins, strict=True):
        subject.idle.append((cpu_ms(subject.pid) - begin) / _IDLE_S)
    for number in range(SINGLE):
        say(f"claims that come alone, {number + 1} of {SINGLE}")
        claims = [await allocated_claim(subject.client, slot=number * 5) for subject in subjects]
        begins = [cpu_ms(subject.pid) for subject in subjects]
        for call in (prepare, unprepare):
            for subject, claim in zip(subjects, claims, strict=True):
                await call(subject.driver.channel, claim)
            await anyio.sleep(FOLLOWS_S)
        for subject, claim, begin in zip(subjects, claims, begins, strict=True):
            subject.single.append(cpu_ms(subject.pid) - begin - 2 * FOLLOWS_S * subject.idle[0])
            await subject.delete(claim)


def _rows(own: Subject, other: Subject, name: str) -> list[Row]:
    measured = []
    for calls in IN_FLIGHT:
        measured += [
            (f"prepare, {calls} in flight", own.prepares[calls], other.prepares[calls]),
            (f"  processor time with unprepare, {calls} in flight", own.processor[calls], other.processor[calls]),
        ]
    measured += [
        ("a claim alone, with all that follows: processor time", own.single, other.single),
        ("an idle second: processor time", own.idle, other.idle),
    ]
    return [
        Row(name=what, unit="ms", samples=samples, baseline_name=name, baseline=baseline)
        for what, samples, baseline in measured
    ]
