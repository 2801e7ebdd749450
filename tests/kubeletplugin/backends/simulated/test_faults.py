"""Every fault at every step: afterwards a retry works, or everything can be released, and nothing leaks."""

import threading
from collections.abc import Callable
from typing import Literal, NamedTuple, TypeAlias

import msgspec
import pytest

from kerf_dra.api.kerf.v1alpha1 import FpgaConfig
from kerf_dra.driver.kubeletplugin.backends.base import (
    AllocatedDevice,
    Handle,
    HardwareBusyError,
    HardwareConflictError,
    HardwareRefusedError,
)
from kerf_dra.driver.kubeletplugin.backends.simulated import SimulatedBackend
from kerf_dra.driver.kubeletplugin.backends.simulated.steps import HardwareFault, HardwareFaults, HardwareStep, Moment
from kerf_dra.driver.partitions.geometry import Partition
from tests.kubeletplugin.backends.simulated.machine import (
    FPGA_MAKING,
    GPU_MAKING,
    GPU_TAKING_BACK,
    Crashed,
    Machine,
    Notes,
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


def fault(machine: Machine, effect: Effect, step: HardwareStep, when: Moment) -> None:
    machine.open().inject(
        HardwareFaults(faults=(HardwareFault(step=step, effect=effect, when=when, reason="injected"),))
    )


def prepared(machine: Machine, way: Way) -> tuple[AllocatedDevice, Handle]:
    device = machine.device(way.partition(machine))
    return device, machine.prepare(device, way.config)


def assert_usable(machine: Machine, way: Way) -> None:
    """Check that nothing is left but a kept function, and that another claim can get the same device."""
    backend = machine.open()
    assert [left for left in backend.partitions() if way.config is None or left.function is None] == []
    another = machine.device(way.partition(machine), "another")
    machine.release(another, machine.prepare(another, way.config))
    assert [left for left in backend.partitions() if way.config is None or left.function is None] == []


@pytest.mark.parametrize("when", WHEN)
@pytest.mark.parametrize(("way", "step"), MAKING)
def test_a_prepare_that_fails_is_undone_and_works_when_it_is_tried_again(
    machine: Machine, way: Way, step: HardwareStep, when: Moment
) -> None:
    device = machine.device(way.partition(machine))
    fault(machine, "error", step, when)
    with pytest.raises(HardwareBusyError, match=f"{step}: injected"):
        machine.prepare(device, way.config)
    machine.release(device)
    assert machine.open().partitions() == []
    machine.release(device, machine.prepare(device, way.config))
    assert_usable(machine, way)


@pytest.mark.parametrize("recovery", ["retry", "abandon", "reboot"])
@pytest.mark.parametrize("when", WHEN)
@pytest.mark.parametrize(("way", "step"), MAKING)
def test_a_process_that_dies_while_preparing_is_finished_or_undone_by_the_next(
    machine: Machine, way: Way, step: HardwareStep, when: Moment, recovery: str
) -> None:
    device = machine.device(way.partition(machine))
    fault(machine, "crash", step, when)
    with pytest.raises(Crashed):
        machine.prepare(device, way.config)
    if recovery == "retry":
        handle = machine.prepare(device, way.config)
        assert len(machine.open().partitions()) == (0 if way.partition(machine).is_whole else 1)
        machine.release(device, handle)
    elif recovery == "abandon":
        machine.release(device)
        machine.release(device)
    else:
        machine.open().reboot()
        machine.release(device)
    assert_usable(machine, way)


@pytest.mark.parametrize("when", WHEN)
@pytest.mark.parametrize(("way", "step"), TAKING_BACK)
def test_an_unprepare_that_fails_ends_when_it_is_tried_again(
    machine: Machine, way: Way, step: HardwareStep, when: Moment
) -> None:
    device, handle = prepared(machine, way)
    fault(machine, "error", step, when)
    with pytest.raises(HardwareBusyError, match=f"{step}: injected"):
        machine.release(device, handle)
    machine.release(device, handle)
    assert_usable(machine, way)


@pytest.mark.parametrize("recovery", ["retry", "abandon", "reboot"])
@pytest.mark.parametrize("when", WHEN)
@pytest.mark.parametrize(("way", "step"), TAKING_BACK)
def test_a_process_that_dies_while_unpreparing_is_finished_by_the_next(
    machine: Machine, way: Way, step: HardwareStep, when: Moment, recovery: str
) -> None:
    device, handle = prepared(machine, way)
    fault(machine, "crash", step, when)
    with pytest.raises(Crashed):
        machine.release(device, handle)
    if recovery == "reboot":
        machine.open().reboot()
    machine.release(device, None if recovery == "abandon" else handle)
    assert_usable(machine, way)


@pytest.mark.parametrize("when", WHEN)
@pytest.mark.parametrize("step", [*GPU_TAKING_BACK, HardwareStep.BLANK])
def test_an_abandon_that_fails_ends_when_it_is_tried_again(machine: Machine, step: HardwareStep, when: Moment) -> None:
    way = WAYS[2] if step is HardwareStep.BLANK else WAYS[0]
    device, _ = prepared(machine, way)
    fault(machine, "error", step, when)
    with pytest.raises(HardwareBusyError):
        machine.release(device)
    machine.release(device)
    assert_usable(machine, way)


def test_a_gpu_instance_without_a_compute_instance_is_found_in_its_place(machine: Machine) -> None:
    """Such an instance has no MIG device: a clean-up that walks MIG devices misses it until the machine boots."""
    device = machine.device(WAYS[0].partition(machine))
    fault(machine, "crash", HardwareStep.CREATE_GPU_INSTANCE, "after")
    with pytest.raises(Crashed):
        machine.prepare(device)
    assert machine.open().partitions() == [device.partition]
    [found] = machine.open().survey(device.partition.card_uuid).partitions
    assert found.uuid == ""
    machine.release(machine.device(device.partition, "another"))
    assert len(machine.open().partitions()) == 1, "another claim's release leaves it"
    machine.release(device)
    assert machine.open().partitions() == []


@pytest.mark.parametrize("when", WHEN)
@pytest.mark.parametrize("step", FPGA_MAKING[:3])
def test_a_load_that_a_death_cut_off_is_not_taken_for_done(machine: Machine, step: HardwareStep, when: Moment) -> None:
    """Also when the function is in the slots already: its bridges are still closed."""
    device = machine.device(slots(machine.card(2), 1, 2, "fft-large"))
    fault(machine, "crash", step, when)
    with pytest.raises(Crashed):
        machine.prepare(device)
    machine.clock.slept_s.clear()
    machine.prepare(device)
    assert sum(machine.clock.slept_s) == pytest.approx(0.9)


def test_a_load_that_exceeds_its_time_fails_and_leaves_blank_slots(machine: Machine) -> None:
    device = machine.device(slots(machine.card(2), 0, 1, "zstd"))
    fault(machine, "hang", HardwareStep.PROGRAM, "before")
    config = FpgaConfig(api_version="kerf.dev/v1alpha1", timeout_seconds=7)
    with pytest.raises(HardwareRefusedError, match="fpga-program: not done after 7 s, which is the limit"):
        machine.prepare(device, config)
    assert sum(machine.clock.slept_s) == pytest.approx(7)
    machine.release(device)
    assert machine.open().partitions() == []


def test_a_loads_time_is_at_least_half_a_minute(machine: Machine) -> None:
    fault(machine, "hang", HardwareStep.ENABLE_BRIDGES, "before")
    with pytest.raises(HardwareRefusedError, match="not done after 30 s"):
        machine.prepare(machine.device(slots(machine.card(2), 0, 1, "zstd")), None)


def test_the_limit_of_a_load_holds_for_all_its_phases_together(machine: Machine) -> None:
    slow = msgspec.structs.replace(
        machine.config, delays={HardwareStep.DISABLE_BRIDGES: 20.0, HardwareStep.PROGRAM: 20.0}
    )
    backend = SimulatedBackend(slow, sleep=machine.clock.sleep)
    with pytest.raises(HardwareRefusedError, match="fpga-program: not done after 30 s"):
        machine.prepare(machine.device(slots(machine.card(2), 0, 1, "zstd")), None, backend)


def test_pace_multiplies_every_delay(machine: Machine) -> None:
    backend = SimulatedBackend(msgspec.structs.replace(machine.config, pace=0.5), sleep=machine.clock.sleep)
    machine.prepare(machine.device(slots(machine.card(2), 0, 1, "zstd")), None, backend)
    assert sum(machine.clock.slept_s) == pytest.approx(0.15)


def test_a_fault_strikes_as_often_as_it_says_on_the_card_it_names(machine: Machine) -> None:
    backend = machine.open()
    backend.inject(
        HardwareFaults(faults=(HardwareFault(step=HardwareStep.CREATE_GPU_INSTANCE, card="gpu-1", times=2),))
    )
    machine.prepare(machine.device(gpu_partition(machine.card(0), "1g.10gb", 0), "elsewhere"), None)
    device = machine.device(gpu_partition(machine.card(1), "1g.10gb", 0))
    for _ in range(2):
        with pytest.raises(HardwareBusyError, match="In use by another client"):
            machine.prepare(device, None)
    machine.prepare(device, None)


def test_a_permanent_fault_strikes_for_ever_and_says_that_a_retry_is_in_vain(machine: Machine) -> None:
    backend = machine.open()
    backend.inject(
        HardwareFaults(faults=(HardwareFault(step=HardwareStep.CREATE_GPU_INSTANCE, times=None, permanent=True),))
    )
    for _ in range(3):
        with pytest.raises(HardwareRefusedError):
            machine.prepare(machine.device(gpu_partition(machine.card(0), "1g.10gb", 0)), None)


@pytest.mark.parametrize(
    "text",
    ["{", '{"faults": [{"step": "nvmlDeviceReset"}]}', '{"faults": [{"step": "fpga-program", "time": 1}]}', "[]"],
)
def test_a_faults_file_that_cannot_be_understood_is_named(machine: Machine, text: str) -> None:
    machine.open()
    (machine.state / "faults.json").write_text(text)
    with pytest.raises(HardwareRefusedError, match=r"faults\.json: .*correct or remove the file"):
        machine.prepare(machine.device(gpu_partition(machine.card(0), "1g.10gb", 0)), None)


def test_a_faults_file_that_cannot_be_understood_is_logged_and_reports_nothing(
    machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    backend = machine.open()
    (machine.state / "faults.json").write_text("{")
    assert backend.wait_for_events(0) == []
    assert "faults.json" in caplog.text


def test_two_processes_see_one_hardware(machine: Machine) -> None:
    one, other = machine.open(), machine.open()
    device = machine.device(gpu_partition(machine.card(0), "1g.10gb", 0))
    handle = machine.prepare(device, None, one)
    assert one.survey(device.partition.card_uuid) == other.survey(device.partition.card_uuid)
    machine.release(device, handle, other)
    assert one.partitions() == other.partitions() == []


def test_threads_that_race_for_overlapping_placements_never_get_both(machine: Machine) -> None:
    """As processes of others do: the hardware itself decides."""
    backend = machine.open()
    partitions = [gpu_partition(machine.card(0), "1g.10gb", start) for start in range(7)] + [
        gpu_partition(machine.card(0), "3g.40gb", 0)
    ]
    won: list[Partition] = []

    def race(number: int, partition: Partition) -> None:
        try:
            backend.prepare(machine.device(partition, f"claim-{number}"), None, Notes(), None)
        except HardwareConflictError:
            return
        won.append(partition)

    threads = [threading.Thread(target=race, args=race_of) for race_of in enumerate(partitions)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert won, "nothing was there before them"
    assert set(won) == set(backend.partitions())
    assert not any(a is not b and a.overlaps(b) for a in won for b in won)
