"""What the backend ``nvidia`` reports of its cards, on stand-ins and with unmodified bindings."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pynvml
import pytest

from kerf_dra.api.kerf.card_repairs import CardRepair, RepairAct
from kerf_dra.driver.families.gpu import GPU
from kerf_dra.driver.kubeletplugin.backends.base import (
    CardAbsentError,
    CardChange,
    DiscoveryChange,
    HardwareHeldError,
    HealthChange,
    HealthState,
)
from kerf_dra.driver.kubeletplugin.backends.nvidia.health.card_health import VERDICT_S
from kerf_dra.driver.partitions.geometry import Partition, Placement
from kerf_dra.driver.testing.nvml import CardDescription
from kerf_dra.driver.testing.plugin import DeviceRecord, PluginStandIn
from tests.fakes.nvml import NEEDS_COMPILER
from tests.kubeletplugin.backends.nvidia.machine import H100, PID, NvidiaMachineUnderTest

pytestmark = NEEDS_COMPILER

HEALTHY, UNHEALTHY, LOST = HealthState.HEALTHY, HealthState.UNHEALTHY, HealthState.LOST
PATIENCE_S = 60.0
"""A wait ends with the first change; a test that comes near to this fails."""


class Node:
    """A node with two cards whose first wait has been made: nothing was unhealthy."""

    def __init__(self, folder: Path) -> None:
        self.machine = NvidiaMachineUnderTest(folder, CardDescription(model=H100), CardDescription(model=H100))
        self.hardware = self.machine.hardware
        self.plugin = PluginStandIn(self.machine, GPU)
        self.first, self.second = (card.uuid for card in self.plugin.cards)
        assert self.plugin.backend.wait_for_events(PATIENCE_S) == []

    def wait(self, timeout_s: float = PATIENCE_S) -> set[HealthChange | CardChange | DiscoveryChange]:
        return {*self.plugin.backend.wait_for_events(timeout_s)}

    def health(self, timeout_s: float = PATIENCE_S) -> list[tuple[str, Partition | None, HealthState]]:
        """Wait for changes of health."""
        found = [one for one in self.wait(timeout_s) if isinstance(one, HealthChange)]
        return [(one.card_uuid, one.partition, one.state) for one in found]

    def prepare(self) -> DeviceRecord:
        """Prepare 3g.40gb at 4 of the first card, which is GPU instance 2."""
        specs = self.plugin.cards[0].geometry.specs
        (spec,) = [one for one in specs if (one.profile, one.placement) == ("3g.40gb", Placement(4, 4))]
        record = self.plugin.allocate(spec.of(self.first), "user")
        self.plugin.prepare(record)
        self.wait(0)  # what was changed by this
        return record


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    made = Node(tmp_path)
    yield made
    made.plugin.close()


def test_a_wait_without_a_change_ends_with_its_time(node: Node) -> None:
    assert node.wait(0.01) == set()


def test_a_card_that_did_not_answer_when_cards_were_discovered_is_reported_once_it_does(tmp_path: Path) -> None:
    """Until then nobody knows its UUID; the next discovery may be five minutes away."""
    machine = NvidiaMachineUnderTest(tmp_path, CardDescription(model=H100), CardDescription(model=H100))
    machine.hardware.drop_card(1)
    plugin = PluginStandIn(machine, GPU)
    (first,) = (card.uuid for card in plugin.cards)
    for _ in range(2):
        assert plugin.backend.wait_for_events(0) == []
    machine.hardware.restore_card(1)
    (change,) = plugin.backend.wait_for_events(0)
    assert isinstance(change, CardChange)
    assert [first, change.card_uuid] == [card.uuid for card in plugin.backend.discover()]
    assert plugin.backend.wait_for_events(0) == []
    plugin.close()


def test_an_xid_of_a_card_is_reported_once(node: Node) -> None:
    node.hardware.report_xid(1, 119)
    (change,) = node.wait()
    assert change == HealthChange(
        card_uuid=node.second,
        partition=None,
        state=UNHEALTHY,
        reason="Xid 119, the GPU's system processor does not answer (NVIDIA: RESET_GPU)",
        repair=CardRepair(RepairAct.RESET_WHEN_FREE, "xid-119"),
    )
    assert node.wait(0) == set()


def test_an_xid_of_an_instance_concerns_the_partition_that_it_is(node: Node) -> None:
    record = node.prepare()
    node.hardware.report_xid(0, 95, gpu_instance=2, compute_instance=0)
    assert node.health() == [(node.first, record.partition, LOST)]


def test_an_xid_of_an_instance_that_is_gone_concerns_the_card(node: Node) -> None:
    node.hardware.report_xid(0, 95, gpu_instance=2)
    assert node.health() == [(node.first, None, LOST)]


def test_the_error_of_an_application_is_no_change(node: Node) -> None:
    for xid in (13, 31, 43, 45, 68):
        node.hardware.report_xid(0, xid)
    assert node.wait(0.01) == set()


def test_many_xids_at_once_are_one_report(node: Node) -> None:
    for xid in (48, 95, 64):
        node.hardware.report_xid(0, xid)
    (change,) = node.wait()
    assert isinstance(change, HealthChange)
    assert change.state is LOST
    assert [f"Xid {xid}," in change.reason for xid in (48, 95, 64)] == [True] * 3


def test_an_xid_ends_with_the_reset_that_the_driver_wanted(node: Node) -> None:
    """kubernetes-sigs/dra-driver-nvidia-gpu#1455: when the driver wants no recovery any more, the card is well."""
    node.hardware.report_xid(0, 119)
    node.hardware.set_recovery_action(0, pynvml.NVML_GPU_RECOVERY_ACTION_GPU_RESET)
    assert node.health() == [(node.first, None, LOST)]
    node.hardware.reset_card(0)
    assert node.health() == [(node.first, None, HEALTHY)]


def test_an_xid_ends_a_minute_later_when_the_driver_wants_nothing(tmp_path: Path) -> None:
    now = [1000.0]
    machine = NvidiaMachineUnderTest(tmp_path, now=lambda: now[0])
    backend = machine.open_backend()
    backend.open()
    backend.wait_for_events(0)
    machine.hardware.report_xid(0, 95)
    assert len(backend.wait_for_events(PATIENCE_S)) == 1
    assert backend.wait_for_events(0) == []
    now[0] += VERDICT_S
    (change,) = backend.wait_for_events(0)
    assert isinstance(change, HealthChange)
    assert change.state is HEALTHY
    backend.close()


def test_an_xid_ends_when_the_driver_is_loaded_anew(node: Node) -> None:
    node.hardware.report_xid(0, 119)
    assert node.health() == [(node.first, None, UNHEALTHY)]
    node.hardware.reload_driver()
    changes = node.wait()
    assert {(one.card_uuid, one.state) for one in changes if isinstance(one, HealthChange)} == {(node.first, HEALTHY)}
    assert {one.card_uuid for one in changes if isinstance(one, CardChange)} == {node.first, node.second}
    node.hardware.report_xid(1, 119)
    assert node.health() == [(node.second, None, UNHEALTHY)]


def test_remapped_rows_and_heat_are_found_without_an_event_and_end_with_their_cause(node: Node) -> None:
    node.hardware.remap_rows(0, uncorrectable=1, is_pending=True)
    node.hardware.set_clocks_event_reasons(1, pynvml.nvmlClocksEventReasonHwThermalSlowdown)
    assert {*node.health(0)} == {(node.first, None, UNHEALTHY), (node.second, None, UNHEALTHY)}
    node.hardware.reset_card(0)
    node.hardware.set_clocks_event_reasons(1, pynvml.nvmlClocksEventReasonGpuIdle)
    assert {*node.health(0)} == {(node.first, None, HEALTHY), (node.second, None, HEALTHY)}


def test_a_partition_that_somebody_makes_is_a_change_of_its_card(node: Node) -> None:
    specs = node.plugin.cards[1].geometry.specs
    node.machine.cut_by_hand(next(one.of(node.second) for one in specs if one.profile == "1g.10gb"))
    assert node.wait() == {CardChange(card_uuid=node.second)}


def test_a_card_that_falls_off_the_bus_is_lost_until_it_is_back(node: Node) -> None:
    node.hardware.drop_card(0)
    (change,) = node.wait()
    assert isinstance(change, HealthChange)
    assert (change.card_uuid, change.partition, change.state) == (node.first, None, LOST)
    assert "the card does not answer: " in change.reason
    assert "GPU is lost" in change.reason
    assert node.wait(0) == set()
    node.hardware.report_xid(1, 119)
    assert node.health() == [(node.second, None, UNHEALTHY)]
    node.hardware.restore_card(0)
    assert node.wait(0) == {
        HealthChange(card_uuid=node.first, partition=None, state=HEALTHY, reason=""),
        CardChange(card_uuid=node.first),
    }
    node.hardware.report_xid(0, 119)
    assert node.health() == [(node.first, None, UNHEALTHY)]


def test_a_partition_that_a_process_holds_is_unhealthy_until_it_is_released(node: Node) -> None:
    record = node.prepare()
    node.machine.use(record.partition)
    for _ in range(2):
        with pytest.raises(HardwareHeldError):
            node.plugin.release(record)
    (change,) = node.wait()
    assert isinstance(change, HealthChange)
    assert (change.partition, change.state) == (record.partition, UNHEALTHY)
    assert f"is in use by process {PID}: it is released when" in change.reason
    assert node.wait(0) == set()
    node.machine.stop_using(record.partition)
    node.plugin.release(record)
    assert (node.first, record.partition, HEALTHY) in node.health()
    assert node.plugin.is_empty


def test_while_no_driver_is_loaded_every_card_is_lost(node: Node) -> None:
    node.hardware.unload_driver()
    assert {*node.health(0)} == {(node.first, None, LOST), (node.second, None, LOST)}
    node.hardware.reload_driver()
    assert {*node.health(0)} == {(node.first, None, HEALTHY), (node.second, None, HEALTHY)}
    with pytest.raises(CardAbsentError):
        node.plugin.backend.survey("GPU-of-another-node")


@pytest.mark.parametrize(
    "function",
    [
        "nvmlDeviceGetRemappedRows",
        "nvmlDeviceGetCurrentClocksEventReasons",
        "nvmlDeviceGetFieldValues",
        "nvmlDeviceGetSupportedEventTypes",
    ],
)
@pytest.mark.parametrize("error", [pynvml.NVML_ERROR_FUNCTION_NOT_FOUND, pynvml.NVML_ERROR_NOT_SUPPORTED])
def test_what_a_driver_does_not_report_is_no_fault_of_the_card(tmp_path: Path, function: str, error: int) -> None:
    node = Node(tmp_path)
    node.hardware.add_fault(function, error=error, times=None)
    assert node.wait(0.01) == set()
    node.hardware.remap_rows(1, has_failed=True)
    assert (function == "nvmlDeviceGetRemappedRows") == (node.health(0) == [])
    node.plugin.close()


def test_events_that_cannot_be_waited_for_are_waited_for_anew(node: Node) -> None:
    node.hardware.add_fault("nvmlEventSetWait_v2", error=pynvml.NVML_ERROR_UNKNOWN)
    node.hardware.add_fault("nvmlEventSetCreate", error=pynvml.NVML_ERROR_UNKNOWN)
    assert node.wait(0.01) == set()
    assert node.wait(0) == set()
    node.hardware.report_xid(1, 119)
    assert node.health() == [(node.second, None, UNHEALTHY)]


def test_a_reading_that_fails_leaves_the_card_as_it_was(node: Node, caplog: pytest.LogCaptureFixture) -> None:
    """kubernetes-sigs/dra-driver-nvidia-gpu#1455: a query that fails proves no recovery."""
    node.hardware.remap_rows(0, has_failed=True)
    assert node.health(0) == [(node.first, None, UNHEALTHY)]
    node.hardware.add_fault("nvmlDeviceGetRemappedRows", error=pynvml.NVML_ERROR_UNKNOWN, times=4)
    for _ in range(2):
        assert node.wait(0) == set()
    told = f"the health of card {node.first} cannot be read: nvmlDeviceGetRemappedRows: Unknown"
    assert caplog.text.count(told) == 1


def test_closing_ends_a_wait_inside_nvml(node: Node) -> None:
    waiter = threading.Thread(target=node.plugin.backend.wait_for_events, args=(3600.0,), daemon=True)
    waiter.start()
    node.plugin.backend.close()
    waiter.join(PATIENCE_S)
    assert not waiter.is_alive()


def test_a_late_error_of_the_driver_before_takes_no_events_of_the_one_now(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two threads that met a driver that was loaded anew, the slower one closed what the other had opened, and the
    Xids until the next look at the cards were lost."""
    count = pynvml.nvmlDeviceGetCount

    def fail_late() -> int:
        monkeypatch.setattr(pynvml, "nvmlDeviceGetCount", count)
        node.hardware.reload_driver()
        node.wait()
        node.wait(0)  # watches again
        raise pynvml.NVMLError(pynvml.NVML_ERROR_DRIVER_NOT_LOADED)

    monkeypatch.setattr(pynvml, "nvmlDeviceGetCount", fail_late)
    with pytest.raises(CardAbsentError):
        node.plugin.backend.discover()
    node.hardware.report_xid(1, 119)
    assert node.health() == [(node.second, None, UNHEALTHY)]
