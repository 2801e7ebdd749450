"""Every fault at every step: afterwards a retry works, or everything can be released, and nothing leaks."""

from collections.abc import Callable
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

import anyio
import msgspec
import pytest

from api.kerf.v1alpha1 import FpgaConfig
from driver.kubeletplugin.backends.base import AllocatedDevice, Handle, HardwareBusyError, HardwareRefusedError
from driver.kubeletplugin.backends.simulated import SimulatedBackend
from driver.kubeletplugin.backends.simulated.steps import HardwareFault, HardwareFaults, HardwareStep, Moment
from driver.partitions.geometry import Partition
from tests.kubeletplugin.backends.claims import (
    FPGA_MAKING,
    GPU_MAKING,
    GPU_TAKING_BACK,
    Crashed,
    HandledBackend,
    Machine,
)
from tests.partitions.cards import gpu_partition, slots, whole

KEEP = FpgaConfig(api_version="kerf.dev/v1alpha1", release="Keep")
Effect: TypeAlias = Literal["error", "hang", "crash"]
WHEN: tuple[Moment, ...] = ("before", "after")


class Way(NamedTuple):
    """A kind of device, and the steps of its preparation and release."""

    name: str
    partition: Callable[[Machine], Partition]
    making: tuple[HardwareStep, ...]
    taking_back: tuple[HardwareStep, ...]
    config: FpgaConfig | None = None


WAYS = [
    Way("partition", lambda machine: gpu_partition(machine.card(0), "2g.20gb", 2), GPU_MAKING, GPU_TAKING_BACK),
    Way("whole GPU", lambda machine: whole(machine.card(0)), (HardwareStep.SET_MIG_MODE,), ()),
    Way("function", lambda machine: slots(machine.card(2), 1, 2, "fft-large"), FPGA_MAKING, (HardwareStep.BLANK,)),
    Way("kept", lambda machine: slots(machine.card(2), 0, 1, "zstd"), FPGA_MAKING, (HardwareStep.KEEP,), KEEP),
]
MAKING = [pytest.param(way, step, id=f"{way.name}-{step}") for way in WAYS for step in way.making]
TAKING_BACK = [pytest.param(way, step, id=f"{way.name}-{step}") for way in WAYS for step in way.taking_back]


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path / "state")


def fault(machine: Machine, effect: Effect, step: HardwareStep, when: Moment) -> None:
    machine.open().inject(
        HardwareFaults(faults=(HardwareFault(step=step, effect=effect, when=when, reason="injected"),))
    )


async def prepared(machine: Machine, way: Way) -> tuple[AllocatedDevice, Handle]:
    device = machine.device(way.partition(machine))
    return device, await machine.open().prepare(device, way.config)


async def assert_usable(machine: Machine, way: Way) -> None:
    """Check that another claim can get the same device."""
    backend = machine.open()
    assert backend.held() == {}
    handle = await backend.prepare(machine.device(way.partition(machine), "another"), way.config)
    await backend.unprepare(handle)
    assert backend.held() == {}


@pytest.mark.parametrize("when", WHEN)
@pytest.mark.parametrize(("way", "step"), MAKING)
async def test_a_prepare_that_fails_leaves_nothing_and_works_when_it_is_tried_again(
    machine: Machine, way: Way, step: HardwareStep, when: Moment
) -> None:
    backend, device = machine.open(), machine.device(way.partition(machine))
    fault(machine, "error", step, when)
    with pytest.raises(HardwareBusyError, match=f"{step}: injected"):
        await backend.prepare(device, way.config)
    assert backend.held() == {}
    await backend.unprepare(await backend.prepare(device, way.config))
    await assert_usable(machine, way)


@pytest.mark.parametrize("recovery", ["retry", "abandon", "reboot"])
@pytest.mark.parametrize("when", WHEN)
@pytest.mark.parametrize(("way", "step"), MAKING)
async def test_a_process_that_dies_while_preparing_is_finished_or_undone_by_the_next(
    machine: Machine, way: Way, step: HardwareStep, when: Moment, recovery: str
) -> None:
    device = machine.device(way.partition(machine))
    fault(machine, "crash", step, when)
    with pytest.raises(Crashed):
        await machine.open().prepare(device, way.config)
    backend = machine.open()
    if recovery == "retry":
        handle = await backend.prepare(device, way.config)
        assert len(backend.held()) == 1
        await backend.unprepare(handle)
    elif recovery == "abandon":
        await backend.abandon(device)
        await backend.abandon(device)
    else:
        backend.reboot()
        await backend.abandon(device)
    await assert_usable(machine, way)


@pytest.mark.parametrize(("way", "step"), MAKING)
async def test_a_prepare_that_is_cancelled_takes_back_what_it_made(
    machine: Machine, way: Way, step: HardwareStep
) -> None:
    backend = machine.open()
    fault(machine, "hang", step, "after")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(backend.prepare, machine.device(way.partition(machine)), way.config)
        with anyio.fail_after(10):
            while backend._faults.read().faults:
                await anyio.lowlevel.checkpoint()
        tasks.cancel_scope.cancel()
    await assert_usable(machine, way)


@pytest.mark.parametrize("when", WHEN)
@pytest.mark.parametrize(("way", "step"), TAKING_BACK)
async def test_an_unprepare_that_fails_ends_when_it_is_tried_again(
    machine: Machine, way: Way, step: HardwareStep, when: Moment
) -> None:
    _, handle = await prepared(machine, way)
    fault(machine, "error", step, when)
    with pytest.raises(HardwareBusyError, match=f"{step}: injected"):
        await machine.open().unprepare(handle)
    await machine.open().unprepare(handle)
    await assert_usable(machine, way)


@pytest.mark.parametrize("recovery", ["retry", "abandon", "reboot"])
@pytest.mark.parametrize("when", WHEN)
@pytest.mark.parametrize(("way", "step"), TAKING_BACK)
async def test_a_process_that_dies_while_unpreparing_is_finished_by_the_next(
    machine: Machine, way: Way, step: HardwareStep, when: Moment, recovery: str
) -> None:
    device, handle = await prepared(machine, way)
    fault(machine, "crash", step, when)
    with pytest.raises(Crashed):
        await machine.open().unprepare(handle)
    backend = machine.open()
    if recovery == "reboot":
        backend.reboot()
    if recovery == "abandon":
        await backend.abandon(device)
    else:
        await backend.unprepare(handle)
    await assert_usable(machine, way)


@pytest.mark.parametrize("when", WHEN)
@pytest.mark.parametrize("step", [*GPU_TAKING_BACK, HardwareStep.BLANK])
async def test_an_abandon_that_fails_ends_when_it_is_tried_again(
    machine: Machine, step: HardwareStep, when: Moment
) -> None:
    way = WAYS[2] if step is HardwareStep.BLANK else WAYS[0]
    device, _ = await prepared(machine, way)
    fault(machine, "error", step, when)
    with pytest.raises(HardwareBusyError):
        await machine.open().abandon(device)
    await machine.open().abandon(device)
    await assert_usable(machine, way)


async def test_a_gpu_instance_without_a_compute_instance_is_found_by_its_mark(machine: Machine) -> None:
    """Such an instance has no MIG device: a clean-up that walks MIG devices misses it until the machine boots."""
    device = machine.device(WAYS[0].partition(machine))
    fault(machine, "crash", HardwareStep.CREATE_GPU_INSTANCE, "after")
    with pytest.raises(Crashed):
        await machine.open().prepare(device, None)
    backend = machine.open()
    assert list(backend.held().values()) == [device.partition]
    await backend.abandon(machine.device(device.partition, "another"))
    assert len(backend.held()) == 1, "another claim's abandon leaves it"
    await backend.abandon(device)
    assert backend.held() == {}


@pytest.mark.parametrize("when", WHEN)
@pytest.mark.parametrize("step", FPGA_MAKING[:3])
async def test_a_load_that_a_death_cut_off_is_not_taken_for_done(
    machine: Machine, step: HardwareStep, when: Moment
) -> None:
    """Also when the function is in the slots already: its bridges are still closed."""
    device = machine.device(slots(machine.card(2), 1, 2, "fft-large"))
    fault(machine, "crash", step, when)
    with pytest.raises(Crashed):
        await machine.open().prepare(device, None)
    machine.clock.slept_s.clear()
    await machine.open().prepare(device, None)
    assert sum(machine.clock.slept_s) == pytest.approx(0.9)


async def test_a_prepare_whose_undoing_fails_too_is_left_to_abandon(
    machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    backend, device = machine.open(), machine.device(WAYS[0].partition(machine))
    backend.inject(
        HardwareFaults(
            faults=(
                HardwareFault(step=HardwareStep.CREATE_COMPUTE_INSTANCE, reason="first"),
                HardwareFault(step=HardwareStep.DESTROY_GPU_INSTANCE, reason="second"),
            )
        )
    )
    with pytest.raises(HardwareBusyError, match="first"):
        await backend.prepare(device, None)
    assert "second" in caplog.text
    assert len(backend.held()) == 1
    await backend.abandon(device)
    assert backend.held() == {}


async def test_undoing_that_hangs_is_given_up_and_left_to_abandon(
    machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    backend = HandledBackend(machine.config, sleep=machine.clock.sleep, undo_s=0.01)
    device = machine.device(WAYS[0].partition(machine))
    backend.inject(
        HardwareFaults(
            faults=(
                HardwareFault(step=HardwareStep.CREATE_COMPUTE_INSTANCE),
                HardwareFault(step=HardwareStep.DESTROY_GPU_INSTANCE, effect="hang"),
            ),
        )
    )
    with pytest.raises(HardwareBusyError, match=HardwareStep.CREATE_COMPUTE_INSTANCE):
        await backend.prepare(device, None)
    assert "could not be undone within 0.01 s" in caplog.text
    await backend.abandon(device)
    assert backend.held() == {}


async def test_a_load_that_exceeds_its_time_fails_and_leaves_blank_slots(machine: Machine) -> None:
    backend, device = machine.open(), machine.device(slots(machine.card(2), 0, 1, "zstd"))
    fault(machine, "hang", HardwareStep.PROGRAM, "before")
    config = FpgaConfig(api_version="kerf.dev/v1alpha1", timeout_seconds=7)
    with pytest.raises(HardwareRefusedError, match="fpga-program: not done after 7 s, which is the limit"):
        await backend.prepare(device, config)
    assert sum(machine.clock.slept_s) == pytest.approx(7 + 0.2), "the limit, then blanking"
    assert backend.held() == {}


async def test_a_loads_time_is_at_least_half_a_minute(machine: Machine) -> None:
    fault(machine, "hang", HardwareStep.ENABLE_BRIDGES, "before")
    with pytest.raises(HardwareRefusedError, match="not done after 30 s"):
        await machine.open().prepare(machine.device(slots(machine.card(2), 0, 1, "zstd")), None)


async def test_the_limit_of_a_load_holds_for_all_its_phases_together(machine: Machine) -> None:
    slow = msgspec.structs.replace(
        machine.config, delays={HardwareStep.DISABLE_BRIDGES: 20.0, HardwareStep.PROGRAM: 20.0}
    )
    backend = SimulatedBackend(slow, sleep=machine.clock.sleep)
    with pytest.raises(HardwareRefusedError, match="fpga-program: not done after 30 s"):
        await backend.prepare(machine.device(slots(machine.card(2), 0, 1, "zstd")), None)


async def test_pace_multiplies_every_delay(machine: Machine) -> None:
    backend = SimulatedBackend(msgspec.structs.replace(machine.config, pace=0.5), sleep=machine.clock.sleep)
    await backend.prepare(machine.device(slots(machine.card(2), 0, 1, "zstd")), None)
    assert sum(machine.clock.slept_s) == pytest.approx(0.15)


async def test_a_fault_strikes_as_often_as_it_says_on_the_card_it_names(machine: Machine) -> None:
    backend = machine.open()
    backend.inject(
        HardwareFaults(faults=(HardwareFault(step=HardwareStep.CREATE_GPU_INSTANCE, card="gpu-1", times=2),))
    )
    await backend.prepare(machine.device(gpu_partition(machine.card(0), "1g.10gb", 0), "elsewhere"), None)
    device = machine.device(gpu_partition(machine.card(1), "1g.10gb", 0))
    for _ in range(2):
        with pytest.raises(HardwareBusyError, match="In use by another client"):
            await backend.prepare(device, None)
    await backend.prepare(device, None)


async def test_a_permanent_fault_strikes_for_ever_and_says_that_a_retry_is_in_vain(machine: Machine) -> None:
    backend = machine.open()
    backend.inject(
        HardwareFaults(faults=(HardwareFault(step=HardwareStep.CREATE_GPU_INSTANCE, times=None, permanent=True),))
    )
    for _ in range(3):
        with pytest.raises(HardwareRefusedError):
            await backend.prepare(machine.device(gpu_partition(machine.card(0), "1g.10gb", 0)), None)


@pytest.mark.parametrize(
    "text",
    ["{", '{"faults": [{"step": "nvmlDeviceReset"}]}', '{"faults": [{"step": "fpga-program", "time": 1}]}', "[]"],
)
async def test_a_faults_file_that_cannot_be_understood_is_named(machine: Machine, text: str) -> None:
    backend = machine.open()
    (machine.state / "faults.json").write_text(text)
    with pytest.raises(HardwareRefusedError, match=r"faults\.json: .*correct or remove the file"):
        await backend.prepare(machine.device(gpu_partition(machine.card(0), "1g.10gb", 0)), None)


async def test_a_faults_file_that_cannot_be_understood_is_logged_and_reports_nothing(
    machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    backend = machine.open()
    (machine.state / "faults.json").write_text("{")
    assert backend.wait_for_events(0) == []
    assert "faults.json" in caplog.text


async def test_two_processes_see_one_hardware(machine: Machine) -> None:
    one, other = machine.open(), machine.open()
    partition: Partition = gpu_partition(machine.card(0), "1g.10gb", 0)
    handle = await one.prepare(machine.device(partition, "one"), None)
    with pytest.raises(HardwareBusyError):
        await other.prepare(machine.device(partition, "other"), None)
    await other.unprepare(handle)
    await other.prepare(machine.device(partition, "other"), None)
    assert one.held() == other.held()


async def test_claims_that_race_for_overlapping_placements_never_get_both(machine: Machine) -> None:
    backend = machine.open()
    partitions = [gpu_partition(machine.card(0), "1g.10gb", start) for start in range(7)] + [
        gpu_partition(machine.card(0), "3g.40gb", 0)
    ]
    won: list[Partition] = []

    async def race(number: int, backend: SimulatedBackend, partition: Partition) -> None:
        try:
            await backend.prepare(machine.device(partition, f"claim-{number}"), None)
        except HardwareBusyError:
            return
        won.append(partition)

    async with anyio.create_task_group() as tasks:
        for number, partition in enumerate(partitions):
            tasks.start_soon(race, number, backend, partition)
    assert won, "nothing was there before them"
    assert set(won) == set(backend.held().values())
    assert not any(a is not b and a.overlaps(b) for a in won for b in won)
