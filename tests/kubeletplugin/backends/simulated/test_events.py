"""What the simulated backend reports of its cards, and how its waits end."""

import threading

from kerf_dra.driver.kubeletplugin.backends.base import CardChange, HardwareBusyError, HealthChange, HealthState
from kerf_dra.driver.kubeletplugin.backends.simulated import SimulatedBackend
from kerf_dra.driver.kubeletplugin.backends.simulated.steps import HardwareFault, HardwareFaults, HardwareStep
from kerf_dra.driver.partitions.geometry import Card, Placement
from tests.kubeletplugin.backends.simulated.machine import Machine, Notes
from tests.partitions.cards import gpu_partition, slots


def health_changes(backend: SimulatedBackend) -> list[HealthChange]:
    return [event for event in backend.wait_for_events(0) if isinstance(event, HealthChange)]


def test_an_ill_card_is_told_of_once_and_once_more_when_it_is_well(machine: Machine, gpu: Card) -> None:
    backend = machine.open()
    backend.inject(HardwareFaults(degraded={"gpu-0": "Xid 79", "fpga-0-slot-3": "hot", "gpu-9": "no such card"}))
    first, second = health_changes(backend)
    assert [(first.reason, first.partition, first.state), (second.reason, second.card_uuid)] == [
        ("hot", slots(machine.card(2), 3, 1), HealthState.UNHEALTHY),
        ("Xid 79", gpu.uuid),
    ]
    backend.inject(HardwareFaults(degraded={"fpga-0-slot-3": "hot"}))
    well = HealthChange(card_uuid=gpu.uuid, partition=None, state=HealthState.HEALTHY, reason="recovered")
    assert health_changes(backend) == [well]


def test_a_device_can_fall_ill_be_lost_and_heal_while_the_plugin_runs(machine: Machine, gpu: Card) -> None:
    backend = machine.open()
    for faults, condition in (
        (HardwareFaults(degraded={"gpu-0": "Xid 63"}), HealthState.UNHEALTHY),
        (HardwareFaults(degraded={"gpu-0": "Xid 63"}, lost={"gpu-0": "Xid 79"}), HealthState.LOST),
        (HardwareFaults(lost={"gpu-0": "Xid 79"}, repairs={"gpu-0": "boot.xid-79"}), HealthState.LOST),
        (HardwareFaults(), HealthState.HEALTHY),
    ):
        machine.open().inject(faults)
        [change] = health_changes(backend)
        assert (change.card_uuid, change.state) == (gpu.uuid, condition)
        assert str(change.repair) == faults.repairs.get("gpu-0", "None")


def test_changes_by_others_are_reported_once_and_own_ones_not(machine: Machine, gpu: Card, fpga: Card) -> None:
    backend = machine.open()
    backend.open()
    assert backend.wait_for_events(0) == []
    machine.prepare(machine.device(gpu_partition(gpu, "1g.10gb", 0)), None, backend)
    assert backend.wait_for_events(0) == []
    machine.open().cut_by_hand(machine.device(gpu_partition(gpu, "1g.10gb", 1)))
    machine.open().use_slots(Placement(0, 1))
    assert backend.wait_for_events(0) == [CardChange(card_uuid=gpu.uuid), CardChange(card_uuid=fpga.uuid)]
    assert backend.wait_for_events(0) == []


def test_what_is_ill_is_reported_again_after_the_backend_was_opened_again(machine: Machine) -> None:
    backend = machine.open()
    backend.inject(HardwareFaults(degraded={"gpu-0": "Xid 63"}))
    for _ in range(2):
        backend.open()
        assert len(health_changes(backend)) == 1
        assert health_changes(backend) == []
        backend.close()
        backend.close()


def test_closing_ends_a_wait_for_events_and_a_step_that_hangs(machine: Machine, gpu: Card) -> None:
    backend, ends = SimulatedBackend(machine.config), list[str]()
    machine.open().inject(HardwareFaults(faults=(HardwareFault(step=HardwareStep.CREATE_GPU_INSTANCE, effect="hang"),)))

    def prepare() -> None:
        try:
            backend.prepare(machine.device(gpu_partition(gpu, "1g.10gb", 0)), None, Notes(), None)
        except HardwareBusyError as error:
            ends.append(str(error))

    def wait() -> None:
        ends.append(f"{backend.wait_for_events(3600)}")

    threads = [threading.Thread(target=work) for work in (prepare, wait)]
    for thread in threads:
        thread.start()
    while machine.open()._faults.read().faults:
        pass
    backend.close()
    for thread in threads:
        thread.join()
    assert max(ends) == "the backend was closed in the middle of a call"
    assert len(ends) == 2
    assert backend.wait_for_events(3600) == []
