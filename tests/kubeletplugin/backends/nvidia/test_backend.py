"""The backend ``nvidia`` on stand-ins of cards: what the contract of backends does not ask."""

from contextlib import suppress
from pathlib import Path
from typing import Any

import pynvml
import pytest

from kerf_dra.api.errors import KerfError
from kerf_dra.api.kerf.v1alpha1 import GpuConfig, GpuSharing
from kerf_dra.driver.families.gpu import GPU
from kerf_dra.driver.families.gpu.catalog import gpu_model
from kerf_dra.driver.kubeletplugin.backends.base import (
    CardAbsentError,
    FoundPartition,
    HardwareBusyError,
    HardwareConflictError,
    HardwareRefusedError,
    OutdatedProcessError,
)
from kerf_dra.driver.kubeletplugin.backends.nvidia import NvidiaBackend
from kerf_dra.driver.kubeletplugin.backends.nvidia.config import NvidiaConfig
from kerf_dra.driver.kubeletplugin.backends.nvidia.mig_mode import MigPolicy
from kerf_dra.driver.kubeletplugin.backends.nvidia.nvml.library import NvmlLibrary
from kerf_dra.driver.kubeletplugin.backends.nvidia.nvml.session import NvmlUnavailableError
from kerf_dra.driver.partitions.geometry import Placement
from kerf_dra.driver.testing.nvml import CardDescription, NvidiaMachine
from kerf_dra.driver.testing.plugin import PluginStandIn
from tests.fakes.nvml import NEEDS_COMPILER, open_nvml
from tests.fakes.nvml_calls import create_gpu_instance, destroy_gpu_instance, fill_gpu_instance, list_gpu_instances
from tests.kubeletplugin.backends.nvidia.machine import (
    H100,
    PID,
    TWICE_1G,
    NvidiaMachineUnderTest,
    allocate,
    machine_of,
    plugin_on,
    survey,
)

pytestmark = NEEDS_COMPILER

A100 = "a100-40gb"


# Discovery


def test_a_card_is_described_by_nvml_and_by_what_the_kernel_says(tmp_path: Path) -> None:
    plugin = plugin_on(tmp_path, CardDescription(model=A100), CardDescription(model=H100, minor=7))
    first, second = plugin.cards
    assert (first.geometry.model, first.index, first.pci_bus_id, first.numa_node) == (A100, 0, "0000:01:00.0", 0)
    assert (second.geometry.model, second.index, second.pcie_root, second.numa_node) == (H100, 7, "pci0000:80", 1)
    assert second.driver_version == "580.95.05"
    assert second.attributes["cudaDriverVersion"].value == "13.0.0"
    assert second.attributes["cudaComputeCapability"].value == "9.0.0"


def test_an_old_driver_reports_no_names_and_no_placements_and_the_table_says_them(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    machine = NvidiaMachineUnderTest(tmp_path)
    for function in (
        "nvmlDeviceGetGpuInstanceProfileInfoV",
        "nvmlDeviceGetGpuInstancePossiblePlacements_v2",
        "nvmlGpuInstanceGetComputeInstanceProfileInfoV",
    ):
        machine.hardware.add_fault(function, error=pynvml.NVML_ERROR_FUNCTION_NOT_FOUND, times=None)
    plugin = PluginStandIn(machine, GPU)
    record = allocate(plugin, *TWICE_1G)
    plugin.prepare(record)
    assert [one.uuid != "" for one in survey(plugin).partitions] == [True]
    plugin.release(record)
    assert plugin.is_empty
    assert "1g.10gb" in {spec.profile for spec in plugin.cards[0].geometry.specs}
    assert "the driver does not report placements now, those of the table are used" in caplog.text


def test_a_card_that_does_not_answer_hides_no_other(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    machine = NvidiaMachineUnderTest(tmp_path)
    machine.hardware.add_fault("nvmlDeviceGetName", error=pynvml.NVML_ERROR_UNKNOWN)
    plugin = PluginStandIn(machine, GPU)
    assert [card.index for card in plugin.cards] == [1]
    assert "GPU 0 does not answer: nvmlDeviceGetName: Unknown Error" in caplog.text
    skip = 2 * pynvml.NVML_GPU_INSTANCE_PROFILE_COUNT - len(gpu_model(H100).profiles)  # all calls for the first card
    machine.hardware.add_fault(
        "nvmlDeviceGetGpuInstanceProfileInfoV", error=pynvml.NVML_ERROR_RESET_REQUIRED, skip=skip
    )
    assert [card.index for card in plugin.backend.discover()] == [0]
    assert "the card has to be reset, or the machine booted" in caplog.text


# MIG mode


def test_kerf_does_not_reset_an_ampere_card_and_says_what_is_impossible(tmp_path: Path) -> None:
    """kubernetes-sigs/dra-driver-nvidia-gpu#883: on machines that cannot reset a card no mode is left pending."""
    plugin = plugin_on(tmp_path, CardDescription(model=A100), CardDescription(model=A100, is_mig_on=True))
    off, on = (plugin.survey(card.uuid) for card in plugin.cards)
    assert off.no_partitions == "MIG mode is off, and to switch it on takes a reset: nvidia-smi -mig 1"
    assert on.no_whole == "MIG mode is on, and to switch it off takes a reset: nvidia-smi -mig 0"
    assert (off.no_whole, on.no_partitions) == ("", "")
    record = allocate(plugin, "1g.5gb", Placement(0, 1))
    with pytest.raises(HardwareBusyError, match="is not available in partitions now: MIG mode is off"):
        plugin.prepare(record)
    with open_nvml(machine_of(plugin).hardware):
        assert pynvml.nvmlDeviceGetMigMode(pynvml.nvmlDeviceGetHandleByIndex(0)) == [0, 0]


def test_a_pending_mode_is_named(tmp_path: Path) -> None:
    plugin = plugin_on(tmp_path, CardDescription(model=A100, is_passthrough=True))
    with open_nvml(machine_of(plugin).hardware):
        pynvml.nvmlDeviceSetMigMode(pynvml.nvmlDeviceGetHandleByIndex(0), 1)
    assert survey(plugin).no_partitions == "MIG mode on is pending a reset of the card"


def test_hopper_is_switched_on_for_a_partition_and_off_for_the_whole_card(tmp_path: Path) -> None:
    plugin = plugin_on(tmp_path)
    record = allocate(plugin, *TWICE_1G)
    plugin.prepare(record)
    with open_nvml(machine_of(plugin).hardware):
        card = pynvml.nvmlDeviceGetHandleByIndex(0)
        assert pynvml.nvmlDeviceGetMigMode(card) == [1, 1]
        whole = allocate(plugin, None, None)
        with pytest.raises(HardwareConflictError, match=r"in use outside of Kerf: 1g\.20gb at 0"):
            plugin.backend.prepare(whole.device, None, whole.journal, None)
        assert pynvml.nvmlDeviceGetMigMode(card) == [1, 1]
        plugin.release(record)
        plugin.prepare(whole)
        assert pynvml.nvmlDeviceGetMigMode(card) == [0, 0]


def test_a_switch_that_a_process_prevents_leaves_nothing_pending(tmp_path: Path) -> None:
    plugin = plugin_on(tmp_path)
    machine_of(plugin).hardware.start_process(0, PID)
    assert [str(found) for found in survey(plugin).partitions] == ["processes (whole card)"]
    record = allocate(plugin, *TWICE_1G)
    with pytest.raises(HardwareBusyError, match="nvmlDeviceSetMigMode: In use by another client"):
        plugin.backend.prepare(record.device, None, record.journal, None)
    with open_nvml(machine_of(plugin).hardware):
        assert pynvml.nvmlDeviceGetMigMode(pynvml.nvmlDeviceGetHandleByIndex(0)) == [0, 0]


def test_a_policy_may_leave_the_mode_as_it_is(tmp_path: Path) -> None:
    plugin = plugin_on(tmp_path, policy=MigPolicy.LEAVE)
    assert survey(plugin).no_partitions == "MIG mode is off, and migMode of the backend is Leave"


# Partitions


def test_a_partition_is_made_at_its_place_with_its_capabilities(tmp_path: Path) -> None:
    plugin = plugin_on(tmp_path)
    record = allocate(plugin, "3g.40gb", Placement(4, 4))
    handle = plugin.prepare(record)
    with open_nvml(machine_of(plugin).hardware):
        card = pynvml.nvmlDeviceGetHandleByIndex(0)
        assert list_gpu_instances(card) == {2: (9, 4, 4)}
        device = pynvml.nvmlDeviceGetHandleByUUID(handle["uuid"])
        assert pynvml.nvmlDeviceGetAttributes(device).computeInstanceSliceCount == 3
    # 3 + 9 for each of two instances before it: its own, then its compute instance's.
    assert handle["capabilities"] == [21, 22]
    paths = [node.path for node in plugin.backend.edits(handle).device_nodes]
    assert paths[-3:] == ["/dev/nvidia0", "/dev/nvidia-caps/nvidia-cap21", "/dev/nvidia-caps/nvidia-cap22"]


def test_a_card_that_was_reset_since_its_discovery_has_its_new_device_node(tmp_path: Path) -> None:
    plugin = plugin_on(tmp_path, CardDescription(model=A100, is_mig_on=True, minor_after_reset=5))
    machine_of(plugin).hardware.reset_card(0)
    handle = plugin.prepare(allocate(plugin, "1g.5gb", Placement(0, 1)))
    assert handle["minor"] == 5
    assert [card.index for card in plugin.backend.discover()] == [0]


def test_a_gpu_instance_whose_compute_instance_fails_is_taken_back(tmp_path: Path) -> None:
    plugin = plugin_on(tmp_path)
    function = "nvmlGpuInstanceCreateComputeInstance"
    machine_of(plugin).hardware.add_fault(function, error=pynvml.NVML_ERROR_UNKNOWN)
    record = allocate(plugin, *TWICE_1G)
    with pytest.raises(HardwareBusyError, match=function):
        plugin.prepare(record)
    (left,) = survey(plugin).partitions
    assert left == FoundPartition(id="gi-3", profile="1g.20gb", placement=Placement(0, 2), uuid="", in_use=False)
    plugin.release(record)
    assert plugin.is_empty


def test_a_locked_instance_is_destroyed_in_a_later_try_with_growing_delays(tmp_path: Path) -> None:
    plugin = plugin_on(tmp_path)
    record = allocate(plugin, *TWICE_1G)
    plugin.prepare(record)
    machine_of(plugin).hardware.add_fault("nvmlGpuInstanceDestroy", error=pynvml.NVML_ERROR_IN_USE, times=2)
    plugin.release(record)
    assert plugin.is_empty
    assert machine_of(plugin).waits == [0.05, 0.1]
    plugin.prepare(record)
    machine_of(plugin).hardware.add_fault("nvmlGpuInstanceDestroy", error=pynvml.NVML_ERROR_IN_USE, times=None)
    with pytest.raises(HardwareBusyError, match="In use by another client"):
        plugin.release(record)


def test_an_instance_that_is_still_there_after_it_was_destroyed_is_destroyed_again(tmp_path: Path) -> None:
    """NVIDIA/go-nvml#146: the call succeeds, and the instance is listed further on, as nobody's."""
    plugin = plugin_on(tmp_path)
    record = allocate(plugin, *TWICE_1G)
    plugin.prepare(record)
    tries = 6
    machine_of(plugin).ignore("nvmlGpuInstanceDestroy", tries + 1)
    with pytest.raises(HardwareBusyError, match="has succeeded, but the instance is still there"):
        plugin.release(record)
    plugin.release(record)
    assert plugin.is_empty


@pytest.mark.parametrize("function", ["nvmlComputeInstanceDestroy", "nvmlGpuInstanceDestroy"])
def test_an_instance_that_gets_the_id_of_ours_while_it_is_destroyed_is_left_alone(
    tmp_path: Path, function: str
) -> None:
    """Somebody took the free place at once: as an instance with that id was there, the destroy was tried again."""
    plugin = plugin_on(tmp_path)
    machine = machine_of(plugin)
    record = allocate(plugin, *TWICE_1G)
    plugin.prepare(record)
    there: list[dict[int, tuple[int, int, int]]] = []

    def take_the_place() -> None:
        with open_nvml(machine.hardware):
            card = pynvml.nvmlDeviceGetHandleByIndex(0)
            if list_gpu_instances(card):
                pynvml.nvmlGpuInstanceDestroy(pynvml.nvmlDeviceGetGpuInstanceById(card, 3))
            fill_gpu_instance(create_gpu_instance(card, 14, 0, 2))
            there.append(list_gpu_instances(card))

    machine.do_after(function, take_the_place)
    plugin.release(record)
    with open_nvml(machine.hardware):
        assert [list_gpu_instances(pynvml.nvmlDeviceGetHandleByIndex(0))] == there


def test_another_profile_that_has_got_the_id_of_ours_is_left_alone(tmp_path: Path) -> None:
    plugin = plugin_on(tmp_path)
    record = allocate(plugin, *TWICE_1G)
    handle = plugin.prepare(record)
    with open_nvml(machine_of(plugin).hardware):
        card = pynvml.nvmlDeviceGetHandleByIndex(0)
        destroy_gpu_instance(card, 3)
        fill_gpu_instance(create_gpu_instance(card, 14, 0, 2))
        plugin.backend.unprepare(handle)
        assert list_gpu_instances(card) == {3: (14, 0, 2)}


def test_another_instance_that_has_got_the_id_of_a_half_made_one_is_left_alone(tmp_path: Path) -> None:
    """Somebody replaced what a prepare had left, between the survey and its end: his instance was destroyed."""
    plugin = plugin_on(tmp_path)
    record = allocate(plugin, *TWICE_1G)
    hardware = machine_of(plugin).hardware
    hardware.add_fault("nvmlGpuInstanceCreateComputeInstance", error=pynvml.NVML_ERROR_UNKNOWN)
    with pytest.raises(HardwareBusyError):
        plugin.prepare(record)
    (found,) = survey(plugin).partitions
    with open_nvml(hardware):
        card = pynvml.nvmlDeviceGetHandleByIndex(0)
        pynvml.nvmlGpuInstanceDestroy(pynvml.nvmlDeviceGetGpuInstanceById(card, 3))
        fill_gpu_instance(create_gpu_instance(card, 14, 0, 2))
        plugin.backend.abandon(record.device, record.journal, found)
        with pytest.raises(HardwareBusyError, match="was destroyed meanwhile"):
            plugin.backend.prepare(record.device, None, record.journal, found)
        assert list_gpu_instances(card) == {3: (14, 0, 2)}


class _LibraryReopenedMeanwhile(NvmlLibrary):
    """NVML that another thread closes, and opens anew, at the end of one call of ``reopened_at``."""

    def __init__(self, machine: NvidiaMachine) -> None:
        super().__init__(machine.driver_root)
        self.calls: list[str] = []
        self.reopened_at = ""
        self._machine = machine

    def _call(self, name: str, *arguments: Any) -> Any:
        result = super()._call(name, *arguments)
        self.calls.append(name)
        if name == self.reopened_at:
            self.reopened_at = ""
            self._machine.reload_driver()
            with pytest.raises(CardAbsentError):
                self.read_driver_version()
            self.read_driver_version()
        return result


@pytest.mark.parametrize("function", ["nvmlDeviceGetHandleByIndex", "nvmlDeviceGetHandleByUUID"])
def test_a_handle_of_before_the_driver_was_loaded_anew_is_not_kept(tmp_path: Path, function: str) -> None:
    """Another thread opened NVML anew between the look-up of a handle and its return: NVML's older handles are void."""
    machine = NvidiaMachineUnderTest(tmp_path)
    machine.choose()
    library = _LibraryReopenedMeanwhile(machine.hardware)
    library.open()
    uuid = library.list_cards()[0].uuid
    library.close()
    library.open()
    library.reopened_at = function
    if "Index" in function:
        library.list_cards()
    else:
        library.read_minor(uuid)
    library.calls.clear()
    library.read_minor(uuid)
    library.read_minor(uuid)
    library.close()
    assert library.calls.count("nvmlDeviceGetHandleByUUID") == 1, "then the handle is looked up, and kept"


def test_sharing_for_which_no_folder_is_configured_is_refused(tmp_path: Path) -> None:
    plugin = plugin_on(tmp_path)
    record = allocate(plugin, *TWICE_1G)
    config = GpuConfig(api_version="kerf.dev/v1alpha1", sharing=GpuSharing(strategy="TimeSlicing"))
    with pytest.raises(HardwareRefusedError, match=r"sharing\.strategy: TimeSlicing needs the field sharingFolder"):
        plugin.backend.prepare(record.device, config, record.journal, None)
    assert plugin.is_empty


# The driver


def test_a_driver_that_was_loaded_anew_is_opened_anew(tmp_path: Path) -> None:
    plugin = plugin_on(tmp_path)
    cards = list(plugin.cards)
    machine_of(plugin).hardware.reload_driver()
    with pytest.raises(CardAbsentError, match="Driver Not Loaded"):
        survey(plugin)
    assert survey(plugin).partitions == ()
    assert list(plugin.backend.discover()) == cards
    plugin.close()
    with pytest.raises(CardAbsentError, match="NVML is not open"):
        survey(plugin)


def test_while_no_driver_is_loaded_the_error_says_so(tmp_path: Path) -> None:
    plugin = plugin_on(tmp_path)
    machine_of(plugin).hardware.unload_driver()
    for _ in range(2):
        with pytest.raises(KerfError, match="Driver Not Loaded"):
            plugin.backend.discover()
    machine_of(plugin).hardware.reload_driver()
    assert len(plugin.backend.discover()) == 2


def test_a_driver_that_goes_while_nvml_is_opened_is_found_when_it_is_back(tmp_path: Path) -> None:
    """NVML counts its openings: one that was not closed kept every later one at the driver that was gone, for good."""
    plugin = plugin_on(tmp_path)
    hardware = machine_of(plugin).hardware
    hardware.reload_driver()
    hardware.add_fault("nvmlSystemGetDriverVersion", error=pynvml.NVML_ERROR_DRIVER_NOT_LOADED)
    for _ in range(2):  # the old driver is gone; the new one goes while it is opened
        with pytest.raises(CardAbsentError):
            survey(plugin)
    hardware.reload_driver()
    with suppress(CardAbsentError):  # once, where it was opened before
        survey(plugin)
    assert survey(plugin).partitions == ()


def test_a_driver_of_another_version_than_the_library_is_waited_for(tmp_path: Path) -> None:
    """Another process would load the same library: to start again would not help."""
    plugin = plugin_on(tmp_path)
    machine_of(plugin).hardware.reload_driver("999.1")
    for _ in range(2):
        with pytest.raises(CardAbsentError, match=r"Driver Not Loaded|version mismatch"):
            plugin.backend.discover()
    machine_of(plugin).hardware.reload_driver()
    assert len(plugin.backend.discover()) == 2


def test_a_library_that_was_replaced_with_the_driver_takes_another_process(tmp_path: Path) -> None:
    plugin = plugin_on(tmp_path)
    hardware = machine_of(plugin).hardware
    hardware.reload_driver("999.1")
    hardware.replace_library()
    with pytest.raises(CardAbsentError, match="Driver Not Loaded"):
        plugin.backend.discover()
    for ask in (plugin.backend.discover, lambda: plugin.backend.wait_for_events(0)):
        with pytest.raises(OutdatedProcessError, match=r"libnvidia-ml.so.1 is of another version"):
            ask()
    hardware.reload_driver()
    assert len(plugin.backend.discover()) == 2


def test_a_driver_root_without_the_library_is_named(tmp_path: Path) -> None:
    backend = NvidiaBackend(NvidiaConfig(driver_root=str(tmp_path)))
    with pytest.raises(NvmlUnavailableError, match=f"no libnvidia-ml.so.1 below the driver's root {tmp_path}"):
        backend.open()


# Processes that do not go


def write_process(plugin: PluginStandIn, pid: int, name: str, opened: str = "") -> None:
    """Let ``/proc`` of the machine have a process, which has a file open."""
    folder = machine_of(plugin).hardware.folder / "proc" / f"{pid}"
    (folder / "fd").mkdir(parents=True)
    (folder / "comm").write_text(f"{name}\n")
    if opened:
        (folder / "fd/7").symlink_to(opened)


def test_a_release_names_the_processes_that_hold_the_instance_and_succeeds_when_they_are_gone(tmp_path: Path) -> None:
    plugin = plugin_on(tmp_path)
    record = allocate(plugin, *TWICE_1G)
    plugin.prepare(record)
    hardware = machine_of(plugin).hardware
    for pid in (4711, 4712):
        hardware.start_process(0, pid, gpu_instance=3, compute_instance=0)
    write_process(plugin, 4711, "python3")
    with pytest.raises(
        HardwareBusyError, match=r"^GPU instance 3 of card GPU-.* is in use by (.*): it is released"
    ) as e:
        plugin.release(record)
    assert "by processes 4711 (python3), 4712:" in str(e.value)
    for pid in (4711, 4712):
        hardware.end_process(pid)
    plugin.release(record)
    assert plugin.is_empty


@pytest.mark.parametrize(
    ("function", "opened", "holder"),
    [
        ("nvmlComputeInstanceDestroy", 31, "held open by process 812 (nv-hostengine)"),
        ("nvmlComputeInstanceDestroy", 131, "though no process is listed; a monitor such as DCGM may hold it"),
        ("nvmlGpuInstanceDestroy", 30, "held open by process 812 (nv-hostengine)"),
    ],
)
def test_an_instance_that_a_monitor_holds_open_is_said_to_be_held_by_it(
    tmp_path: Path, function: str, opened: int, holder: str
) -> None:
    """NVIDIA/DCGM#276: a monitor keeps handles of MIG devices, which no list of processes shows."""
    plugin = plugin_on(tmp_path)
    record = allocate(plugin, *TWICE_1G)
    assert plugin.prepare(record)["capabilities"] == [30, 31]
    write_process(plugin, 812, "nv-hostengine", f"/dev/nvidia-caps/nvidia-cap{opened}")
    machine_of(plugin).hardware.add_fault(function, error=pynvml.NVML_ERROR_IN_USE, times=6)
    with pytest.raises(HardwareBusyError, match=r"GPU instance 3 of card GPU-.* is in use, ") as error:
        plugin.release(record)
    assert holder in str(error.value)
    plugin.release(record)
    assert plugin.is_empty


def test_another_pid_namespace_names_no_process(tmp_path: Path) -> None:
    plugin = plugin_on(tmp_path)
    record = allocate(plugin, *TWICE_1G)
    plugin.prepare(record)
    hardware = machine_of(plugin).hardware
    hardware.start_process(0, 4711, gpu_instance=3, compute_instance=0)
    write_process(plugin, 4711, "another process")
    namespace = hardware.folder / "proc/self/ns/pid"
    namespace.parent.mkdir(parents=True)
    namespace.symlink_to("pid:[4026532200]")
    with pytest.raises(HardwareBusyError, match="is in use by process 4711: it is released"):
        plugin.release(record)
