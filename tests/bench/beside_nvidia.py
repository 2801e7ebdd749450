"""Kerf's plugin beside NVIDIA's DRA driver, each on a stand-in machine of its own with eight equal cards, in turns.

NVIDIA's driver is built from its module and runs unmodified with its feature gate DynamicMIG, as in the oracle
``nvidia-driver``. It starts with all cards in MIG mode, and its limit of 5 requests a second to the API server is
lifted: its best case. Each claim has one partition. Partitions take their time: making a GPU instance takes that of a
cut, destroying it less.

The time of a call counts whether it succeeds or fails. A failed call is not repeated, as the kubelet would repeat it;
a driver gets a new node when a round leaves instances on its cards. The API server and the calls are in one
process, which is the same for both.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

import grpc.aio

from kerf_dra.api.model.names import ClaimRef
from kerf_dra.driver.local.kubelet.plugins import DriverCallError
from tests.bench.kubelet_calls import cpu_ms, health_watched, in_flight, milliseconds, prepare, unprepare
from tests.bench.measurement import Row, percentile, say
from tests.kubeletplugin.harness import short_directory
from tests.oracle.nvidia_driver.drivers import KERF, Driver, Pair, two_drivers
from tests.oracle.nvidia_driver.published_devices import PublishedDevice, PublishedDevices
from tools.realcluster.builds import build_nvidia_driver

MODEL: Final = "h100-80gb-sxm"
PROFILE: Final = "1g.10gb"
CARDS: Final = 8
"""The most cards in MIG mode of which NVIDIA's driver v0.5.0 can publish partitions."""
CLAIMS: Final[Mapping[int, int]] = {1: 8, 8: 32, 32: 32}
"""Claims of a round by the number of calls in flight: one or four of each card."""
ROUNDS: Final = 3
"""A round of 32 claims takes NVIDIA's driver almost a minute where a cut takes a second."""


class Pace(NamedTuple):
    """How long a card takes to make and to destroy a GPU instance."""

    create_s: float
    destroy_s: float


PACES: Final = (Pace(0.25, 0.1), Pace(1.0, 0.3))
"""Guesses: no times of a real card are known. A comment in NVIDIA's driver says that a call may take about a second."""
Call: TypeAlias = Callable[[grpc.aio.Channel, ClaimRef], Awaitable[None]]


@dataclass(frozen=True, kw_only=True)
class Calls:
    """The calls of one kind in a round."""

    took_ms: Sequence[float]
    """Of each call."""
    all_ms: float
    """From the first call to the last answer."""
    n_failed: int


@dataclass(frozen=True, kw_only=True)
class Round:
    """What was measured of one driver in one round."""

    prepares: Calls
    unprepares: Calls
    processor_ms: float
    """Processor time of a prepare with its unprepare."""
    memory_mb: float
    """Resident memory while all claims are prepared."""


@dataclass
class Subject:
    """One of the drivers, with a partition for each claim, card after card."""

    pair: Pair
    driver: Driver
    devices: Sequence[PublishedDevice]
    n_claims: int = 0
    rounds: list[Round] = field(default_factory=list)

    @property
    def pid(self) -> int:
        assert self.driver.process is not None
        return self.driver.process.pid

    def set_pace(self, pace: Pace) -> None:
        """Let the machine's cards take their time."""
        machine = self.driver.machine
        machine.clear_faults()
        machine.add_fault("nvmlDeviceCreateGpuInstanceWithPlacement", delay_s=pace.create_s, times=None)
        machine.add_fault("nvmlGpuInstanceDestroy", delay_s=pace.destroy_s, times=None)

    async def run_round(self, pace: Pace, calls: int) -> None:
        """Prepare a round of new claims, then unprepare them, with so many calls in flight."""
        self.set_pace(pace)
        claims = [await self._create_claim(device) for device in self.devices[: CLAIMS[calls]]]
        before_ms = cpu_ms(self.pid)
        async with self._registered() as channel:
            prepares = await _call_all(prepare, channel, claims, calls)
            memory_mb = _resident_mb(self.pid)
            unprepares = await _call_all(unprepare, channel, claims, calls)
        processor_ms = (cpu_ms(self.pid) - before_ms) / len(claims)
        self.rounds.append(
            Round(prepares=prepares, unprepares=unprepares, processor_ms=processor_ms, memory_mb=memory_mb)
        )
        for claim in claims:
            await self.pair.delete_claim(claim)
        if self.driver.machine.list_instances():
            await self.driver.renew()

    async def _create_claim(self, device: PublishedDevice) -> ClaimRef:
        self.n_claims += 1
        return await self.pair.create_claim(self.driver, f"{self.driver.node}-{self.n_claims}", [device])

    @asynccontextmanager
    async def _registered(self) -> AsyncIterator[grpc.aio.Channel]:
        """The plugin's socket, as a kubelet has it: with a watch of the devices' health, which NVIDIA's driver does not
        implement."""
        info = self.driver.kubelet.info
        assert info is not None
        async with AsyncExitStack() as stack:
            channel = await stack.enter_async_context(grpc.aio.insecure_channel(f"unix:{info.endpoint}"))
            if self.driver.name == KERF:
                await stack.enter_async_context(health_watched(channel))
            yield channel


async def measure() -> list[Row]:
    program = build_nvidia_driver()
    with short_directory() as root:
        async with two_drivers(program, MODEL, root, mig_modes=[True] * CARDS) as pair:
            kerf, nvidia = [
                Subject(pair, driver, _choose_devices(PublishedDevices.of(await pair.read_pools(driver))))
                for driver in (pair.kerf, pair.nvidia)
            ]
            rows = [_compare("memory at the start", "MB", *([_resident_mb(each.pid)] for each in (kerf, nvidia)))]
            for pace in PACES:
                for calls in CLAIMS:
                    await _run_rounds((kerf, nvidia), pace, calls)
                    name = f"{1000 * pace.create_s:.0f} ms a cut, {calls} in flight"
                    rows += _list_rows(name, kerf.rounds, nvidia.rounds)
            return rows


def _choose_devices(published: PublishedDevices) -> Sequence[PublishedDevice]:
    """Return the partitions of one profile by their start, and for each start card after card."""
    places = [place for place in published.devices if place.profile == PROFILE]
    return [published.devices[place] for place in sorted(places, key=lambda place: (place.start, place.card))]


async def _run_rounds(subjects: Sequence[Subject], pace: Pace, calls: int) -> None:
    for subject in subjects:
        subject.rounds.clear()
    for number in range(ROUNDS):
        for subject in subjects:
            say(f"{subject.driver.name}, {pace.create_s} s a cut, {calls} in flight, {number + 1} of {ROUNDS}")
            await subject.run_round(pace, calls)


async def _call_all(call: Call, channel: grpc.aio.Channel, claims: Sequence[ClaimRef], calls: int) -> Calls:
    failed: list[ClaimRef] = []
    took_ms: list[float] = []

    async def make_call(claim: ClaimRef) -> None:
        try:
            await call(channel, claim)
        except (RuntimeError, DriverCallError) as error:
            failed.append(claim)
            say(f"failed: {error}")

    async def make_all() -> None:
        took_ms.extend(await in_flight(calls, [partial(make_call, claim) for claim in claims]))

    all_ms = await milliseconds(make_all())
    return Calls(took_ms=took_ms, all_ms=all_ms, n_failed=len(failed))


def _list_rows(name: str, kerf: Sequence[Round], nvidia: Sequence[Round]) -> Iterator[Row]:
    yield from _list_rows_of_calls(f"prepare, {name}", [one.prepares for one in kerf], [one.prepares for one in nvidia])
    yield from _list_rows_of_calls(
        f"unprepare, {name}", [one.unprepares for one in kerf], [one.unprepares for one in nvidia]
    )
    yield _compare("  processor time of both", "ms", *([one.processor_ms for one in each] for each in (kerf, nvidia)))
    yield _compare("  memory", "MB", *([one.memory_mb for one in each] for each in (kerf, nvidia)))


def _list_rows_of_calls(name: str, kerf: Sequence[Calls], nvidia: Sequence[Calls]) -> Iterator[Row]:
    drivers = (kerf, nvidia)
    took_ms = [[ms for calls in each for ms in calls.took_ms] for each in drivers]
    yield _compare(name, "ms", *took_ms)
    yield _compare("  99 of 100", "ms", *([percentile(each, 99)] for each in took_ms))
    yield _compare("  all claims", "ms", *([calls.all_ms for calls in each] for each in drivers))
    yield _compare("  failed", "calls", *([calls.n_failed for calls in each] for each in drivers))


def _compare(name: str, unit: str, kerf: Sequence[float], nvidia: Sequence[float]) -> Row:
    return Row(name=name, unit=unit, samples=kerf, baseline_name="NVIDIA", baseline=nvidia)


def _resident_mb(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:")) / 1024
