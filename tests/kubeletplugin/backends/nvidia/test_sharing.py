"""NVIDIA devices are shared by time slices and by MPS, with limits that are kept or refused, and all is taken back."""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pynvml
import pytest

from kerf_dra.api.kerf.v1alpha1 import GpuConfig, GpuSharing, Mps, TimeSlicing
from kerf_dra.api.model.quantity import Quantity
from kerf_dra.driver.families.gpu import GPU
from kerf_dra.driver.kubeletplugin.backends.base import (
    Handle,
    HardwareBusyError,
    HardwareHeldError,
    HardwareRefusedError,
    HealthChange,
    HealthState,
    RestoringBackend,
)
from kerf_dra.driver.kubeletplugin.backends.nvidia.sharing import DeviceSharing
from kerf_dra.driver.mps.documents import DaemonFolder, UnreadableDocumentError
from kerf_dra.driver.testing.nvml import CardDescription
from kerf_dra.driver.testing.plugin import DeviceRecord, PluginStandIn
from tests.fakes.mps import ask, kept_in_a_thread
from tests.fakes.nvml import NEEDS_COMPILER, open_nvml
from tests.kubeletplugin.backends.nvidia.machine import H100, NvidiaMachineUnderTest

pytestmark = NEEDS_COMPILER

DEFAULT, PROHIBITED, EXCLUSIVE_PROCESS = 0, 2, 3
"""NVML_COMPUTEMODE_*."""
MIG = "1g.20gb"


def gpu_config(strategy: str, **values: object) -> GpuConfig:
    return GpuConfig(
        api_version="kerf.dev/v1alpha1",
        sharing=GpuSharing(
            strategy=strategy,  # type: ignore[arg-type]
            mps=Mps(**values) if strategy == "Mps" and values else None,  # type: ignore[arg-type]
            time_slicing=TimeSlicing(**values) if strategy == "TimeSlicing" and values else None,  # type: ignore[arg-type]
        ),
    )


class Node:
    """A node with a card whose devices claims share."""

    def __init__(self, folder: Path, *cards: CardDescription) -> None:
        self.sharing = folder / "sharing"
        described = cards or (CardDescription(model=H100),)
        self.machine = NvidiaMachineUnderTest(folder, *described, sharing_folder=str(self.sharing))
        self.plugin = PluginStandIn(self.machine, GPU)
        self.card = self.plugin.cards[0]

    def share(
        self, claim: str, config: GpuConfig | None, profile: str | None = None, *, shared: bool = True, **consumed: str
    ) -> DeviceRecord:
        """Allocate a device, or a share of it, to a claim."""
        spec = next(one for one in self.card.geometry.specs if one.profile == profile)
        partition = replace(spec.of(self.card.uuid), shared=shared)
        record = self.plugin.allocate(partition, claim, share=f"share-of-{claim}" if shared else None)
        amounts = {name: Quantity(amount) for name, amount in ({"memory": "1Gi"} | consumed).items()}
        record.device = replace(record.device, consumed_capacity=amounts if shared else {})
        record.config = config
        return record

    @property
    def mode(self) -> int:
        with open_nvml(self.machine.hardware):
            return int(pynvml.nvmlDeviceGetComputeMode(pynvml.nvmlDeviceGetHandleByIndex(0)))

    @mode.setter
    def mode(self, mode: int) -> None:
        with open_nvml(self.machine.hardware):
            pynvml.nvmlDeviceSetComputeMode(pynvml.nvmlDeviceGetHandleByIndex(0), mode)

    @property
    def time_slice(self) -> int | None:
        return self.machine.hardware.time_slices.get(self.card.uuid)

    def folder(self, handle: Handle) -> DaemonFolder:
        return DaemonFolder(self.sharing / handle["uuid"])

    def ask(self, handle: Handle, command: str) -> str:
        return ask(self.folder(handle), self.machine.hardware.driver_root, command)

    def environment(self, handle: Handle) -> dict[str, str]:
        return dict(variable.split("=", 1) for variable in self.plugin.backend.edits(handle).env)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    node = Node(tmp_path)
    yield node
    node.plugin.close()


@pytest.fixture
def mps_node(node: Node) -> Iterator[Node]:
    """A node on which daemons are kept."""
    with kept_in_a_thread(node.sharing, node.machine.hardware.driver_root):
        yield node


def test_cards_say_what_they_can_do(node: Node) -> None:
    assert node.card.attributes["mps"].value is True
    assert node.card.whole_attributes["timeSlicing"].value is True
    (node.machine.hardware.driver_root / "usr/bin/nvidia-cuda-mps-control").unlink()
    (node.machine.hardware.driver_root / "usr/bin/nvidia-smi").unlink()
    (card,) = node.plugin.backend.discover()
    assert (card.attributes["mps"].value, card.whole_attributes["timeSlicing"].value) == (False, False)


# MPS


@pytest.mark.parametrize("removed", [("request.json",), ("request.json", "sharing.json"), ("sharing.json",)], ids=str)
def test_what_another_program_removes_of_a_device_with_mps_is_set_up_again_for_all_its_claims(
    removed: tuple[str, ...], mps_node: Node
) -> None:
    """The daemon ended with its request, and the clients of both claims failed until the last claim had ended."""
    node = mps_node
    first, second = node.share("first", gpu_config("Mps"), computePercent="20"), node.share("second", gpu_config("Mps"))
    handles = [node.plugin.prepare(one) for one in (first, second)]
    backend = node.plugin.backend
    assert isinstance(backend, RestoringBackend)
    assert [backend.restore(handle) for handle in handles] == [False, False], "nothing is gone"
    for name in removed:
        (node.folder(handles[0]).path / name).unlink()
    assert True in [backend.restore(handle) for handle in handles]
    assert [backend.restore(handle) for handle in handles] == [False, False]
    assert node.ask(handles[0], "get_default_active_thread_percentage").strip() == "100.0"
    for one in (first, second):
        node.plugin.release(one)
    assert node.folder(handles[0]).read_state() is None


def test_a_folder_of_sharing_that_is_not_mounted_proves_nothing(mps_node: Node) -> None:
    node = mps_node
    handle = node.plugin.prepare(node.share("first", gpu_config("Mps")))
    backend = node.plugin.backend
    assert isinstance(backend, RestoringBackend)
    node.sharing.rename(node.sharing.with_name("away"))
    with pytest.raises(UnreadableDocumentError, match="mount its file system"):
        backend.restore(handle)
    node.sharing.with_name("away").rename(node.sharing)


def test_claims_share_a_card_by_mps_each_with_its_limits_and_the_last_restores_the_mode(mps_node: Node) -> None:
    node = mps_node
    node.mode = PROHIBITED
    config = gpu_config("Mps", active_thread_percentage=20, pinned_device_memory_limit=Quantity("512Mi"))
    first, second = node.share("first", config), node.share("second", gpu_config("Mps"), computePercent="50")
    handle, other = node.plugin.prepare(first), node.plugin.prepare(second)
    assert node.mode == EXCLUSIVE_PROCESS
    variables = node.environment(handle)
    assert variables["CUDA_MPS_PIPE_DIRECTORY"] == "/tmp/nvidia-mps"
    assert variables["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "20"
    assert variables["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] == "0=512M"
    assert variables["KERF_SHARING_GPU_0_SHARED"] == "Mps"
    assert variables["KERF_MEMORY_LIMIT_GPU_0_SHARED"] == str(2**30)
    assert node.environment(other)["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "50"
    assert node.environment(other)["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] == "0=1024M"
    mounts = {mount.container_path: mount.host_path for mount in node.plugin.backend.edits(handle).mounts}
    assert mounts == {"/tmp/nvidia-mps": f"{node.folder(handle).pipe}", "/dev/shm": f"{node.sharing}/shm"}
    # What no client may exceed, whatever it sets itself: the largest limits of all claims.
    assert node.ask(handle, "get_default_active_thread_percentage") == "50.0\n"
    assert node.ask(handle, "get_default_device_pinned_mem_limit 0") == "1024M\n"
    node.plugin.release(first)
    assert node.mode == EXCLUSIVE_PROCESS
    node.plugin.release(second)
    assert node.mode == PROHIBITED
    assert node.ask(handle, "get_server_list") == ""
    assert sorted(path.name for path in node.folder(handle).path.iterdir()) == ["log"]


def test_a_partition_is_shared_by_mps_in_a_daemon_of_its_own_and_the_cards_mode_stays(mps_node: Node) -> None:
    record = mps_node.share("user", gpu_config("Mps"), MIG, shared=False)
    handle = mps_node.plugin.prepare(record)
    assert handle["uuid"].startswith("MIG-")
    assert mps_node.ask(handle, "get_default_active_thread_percentage") == "100.0\n"
    assert "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE" not in mps_node.environment(handle)
    assert mps_node.mode == DEFAULT
    mps_node.plugin.release(record)
    assert mps_node.plugin.is_empty
    assert mps_node.ask(handle, "get_server_list") == ""


@pytest.mark.long
def test_a_prepare_after_the_death_of_a_daemon_waits_for_the_next_one(mps_node: Node) -> None:
    handle = mps_node.plugin.prepare(mps_node.share("first", gpu_config("Mps")))
    state = mps_node.folder(handle).read_state()
    assert state is not None
    os.kill(state.pid, signal.SIGKILL)
    mps_node.plugin.prepare(mps_node.share("second", gpu_config("Mps")))
    later = mps_node.folder(handle).read_state()
    assert later is not None
    assert (later.is_ready, later.pid != state.pid) == (True, True)


@pytest.mark.parametrize("profile", [None, MIG])
def test_the_failure_of_a_daemon_makes_its_device_unhealthy_until_its_claims_end(
    profile: str | None, node: Node
) -> None:
    def changes() -> list[tuple[str | None, HealthState, str]]:
        found = [one for one in node.plugin.backend.wait_for_events(0) if isinstance(one, HealthChange)]
        return [(one.partition.profile if one.partition else None, one.state, one.reason) for one in found]

    record = node.share("user", gpu_config("Mps"), profile)
    with kept_in_a_thread(node.sharing, node.machine.hardware.driver_root):
        handle = node.plugin.prepare(record)
        assert changes() == []
        documents = {path: path.read_bytes() for path in node.folder(handle).path.glob("*.json")}
    for path, content in documents.items():  # as a keeper leaves them that was killed
        path.write_bytes(content)
    ((part, health, reason),) = changes()
    assert (part, health) == (profile, HealthState.UNHEALTHY)
    assert reason.startswith("`kerf mps-daemons` does not run")
    with kept_in_a_thread(node.sharing, node.machine.hardware.driver_root):
        node.plugin.release(record)
    assert changes() == [(profile, HealthState.HEALTHY, "")]


def test_without_the_daemons_process_a_claim_waits_and_its_end_undoes_what_was_set_up(node: Node) -> None:
    node.mode = PROHIBITED
    record = node.share("user", gpu_config("Mps"))
    with pytest.raises(HardwareBusyError, match=r"no MPS control daemon .* `kerf mps-daemons` does not run"):
        prepare_impatiently(node, record)
    assert node.mode == EXCLUSIVE_PROCESS
    node.plugin.release(record)
    assert node.mode == PROHIBITED
    assert not list((node.sharing / node.card.uuid).iterdir())


@pytest.mark.long
def test_a_daemon_that_does_not_end_holds_the_device_and_is_named(node: Node) -> None:
    record = node.share("user", gpu_config("Mps"), MIG)
    with ExitStack() as service:
        service.enter_context(kept_in_a_thread(node.sharing, node.machine.hardware.driver_root))
        handle = node.plugin.prepare(record)
        state = node.folder(handle).state.read_bytes()
    node.folder(handle).state.write_bytes(state)  # as the daemon's keeper left it that was killed
    with pytest.raises(HardwareHeldError, match=r"MIG-.* is held by its MPS control daemon: `kerf mps-daemons` does"):
        release_impatiently(node, record)
    with kept_in_a_thread(node.sharing, node.machine.hardware.driver_root):
        node.plugin.release(record)
    assert node.plugin.is_empty


def impatient(node: Node) -> DeviceSharing:
    """Sharing whose clock goes a minute with each look."""
    sharing: DeviceSharing = node.plugin.backend._sharing  # type: ignore[attr-defined]
    times = iter(range(0, 10**6, 60))
    sharing._now = lambda: float(next(times))
    return sharing


def prepare_impatiently(node: Node, record: DeviceRecord) -> None:
    impatient(node)
    node.plugin.prepare(record)


def release_impatiently(node: Node, record: DeviceRecord) -> None:
    impatient(node)
    try:
        node.plugin.release(record)
    finally:
        node.plugin.restart()


# Time slices


def test_a_card_has_time_slices_of_the_claims_length_until_its_last_claim_ends(node: Node) -> None:
    node.mode = EXCLUSIVE_PROCESS
    config = gpu_config("TimeSlicing", interval="Long")
    first, second = node.share("first", config), node.share("second", config)
    handle = node.plugin.prepare(first)
    assert (node.mode, node.time_slice) == (DEFAULT, 3)
    node.plugin.prepare(second)
    assert node.environment(handle)["KERF_SHARING_GPU_0_SHARED"] == "TimeSlicing"
    assert "CUDA_MPS_PIPE_DIRECTORY" not in node.environment(handle)
    node.plugin.release(first)
    assert node.time_slice == 3
    node.plugin.release(second)
    assert (node.mode, node.time_slice) == (EXCLUSIVE_PROCESS, 0)


def test_a_mode_that_an_administrator_has_set_meanwhile_stays(node: Node) -> None:
    node.mode = EXCLUSIVE_PROCESS
    record = node.share("user", gpu_config("TimeSlicing"), shared=False)
    node.plugin.prepare(record)
    node.mode = PROHIBITED
    node.plugin.release(record)
    assert node.mode == PROHIBITED


def test_partitions_have_no_time_slices_and_are_not_made_for_them(node: Node) -> None:
    with pytest.raises(HardwareRefusedError, match="TimeSlicing is for whole cards, not for MIG partitions"):
        node.plugin.prepare(node.share("user", gpu_config("TimeSlicing"), MIG))
    assert node.plugin.is_empty


def test_a_driver_that_refuses_time_slices_is_quoted(node: Node) -> None:
    program = node.machine.hardware.driver_root / "usr/bin/nvidia-smi"
    program.write_text("#!/bin/sh\necho Not Supported\nexit 3\n")
    with pytest.raises(HardwareBusyError, match=r"cannot be set to Default: nvidia-smi .*: exit code 3: Not Supported"):
        node.plugin.prepare(node.share("user", gpu_config("TimeSlicing")))


# Several claims


@pytest.mark.parametrize(
    ("config", "wanted"),
    [
        (gpu_config("TimeSlicing", interval="Long"), "TimeSlicing Long"),
        (gpu_config("Mps"), "Mps"),
        (None, "Exclusive"),
    ],
)
def test_claims_share_a_device_by_one_strategy_at_a_time(config: GpuConfig | None, wanted: str, node: Node) -> None:
    first = node.share("first", gpu_config("TimeSlicing", interval="Short"))
    second = node.share("second", config)
    node.plugin.prepare(first)
    message = f"by the strategy TimeSlicing Short until they end, this one asks for {wanted}$"
    with pytest.raises(HardwareBusyError, match=message):
        node.plugin.prepare(second)
    node.plugin.release(second)
    assert node.time_slice == 1


def test_a_claim_with_admin_access_sets_up_nothing(node: Node) -> None:
    record = node.share("admin", gpu_config("TimeSlicing"), shared=False)
    record.device = replace(record.device, admin_access=True)
    node.plugin.prepare(record)
    assert node.time_slice is None
    assert not node.sharing.exists()


@pytest.mark.parametrize("config", [None, gpu_config("TimeSlicing", interval="Short")])
def test_who_has_a_card_for_itself_takes_back_what_a_lost_claim_has_left(config: GpuConfig | None, node: Node) -> None:
    node.mode = PROHIBITED
    node.plugin.prepare(node.share("lost", gpu_config("TimeSlicing", interval="Long")))
    node.plugin.records.clear()
    record = node.share("next", config, shared=False)
    node.plugin.prepare(record)
    assert node.time_slice == (0 if config is None else 1)
    node.plugin.release(record)
    assert (node.mode, node.time_slice) == (PROHIBITED, 0)


def test_what_was_set_up_before_a_boot_is_as_good_as_none(node: Node) -> None:
    node.plugin.prepare(node.share("before", gpu_config("TimeSlicing", interval="Long")))
    file = node.sharing / node.card.uuid / "sharing.json"
    boot_id = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    file.write_text(file.read_text().replace(boot_id, "an-earlier-boot"))
    node.plugin.records.clear()
    node.plugin.prepare(node.share("after", gpu_config("TimeSlicing", interval="Short")))
    assert node.time_slice == 1


@pytest.mark.parametrize("profile", [None, MIG])
def test_a_device_that_its_daemon_keeps_is_unhealthy_until_it_is_released(node: Node, profile: str | None) -> None:
    """A whole card had no taint: the scheduler gave it to the next claim, whose prepare failed."""
    record = node.share("user", gpu_config("Mps"), profile, shared=False)
    with kept_in_a_thread(node.sharing, node.machine.hardware.driver_root):
        handle = node.plugin.prepare(record)
        node.plugin.backend.wait_for_events(0)
        state = node.folder(handle).state.read_bytes()
    node.folder(handle).state.write_bytes(state)  # as of a keeper that was killed
    sharing = impatient(node)
    with pytest.raises(HardwareHeldError):
        node.plugin.release(record)
    sharing._now = time.monotonic
    changes = node.plugin.backend.wait_for_events(0)
    held = {one.partition.profile for one in changes if isinstance(one, HealthChange) and one.partition is not None}
    assert profile in held
    with kept_in_a_thread(node.sharing, node.machine.hardware.driver_root):
        node.plugin.release(record)


@pytest.mark.parametrize("is_killed", [False, True])
def test_sharing_is_taken_back_where_it_was_set_up_whatever_the_configuration_says_by_then(
    node: Node, is_killed: bool
) -> None:
    """With another sharingFolder, or none, the card kept the claim's compute mode and time slice for good."""
    record = node.share("user", gpu_config("TimeSlicing", interval="Long"))
    node.mode = PROHIBITED
    node.plugin.prepare(record)
    assert (node.mode, node.time_slice) == (DEFAULT, 3)
    if is_killed:
        record.handle = None
    node.machine.sharing_folder = ""
    node.plugin.restart()
    node.plugin.release(record)
    assert (node.mode, node.time_slice) == (PROHIBITED, 0)


def test_limits_that_a_lost_claim_has_left_are_not_those_of_the_next_one(mps_node: Node) -> None:
    """The next claim asked for none, and its clients had the lost one's 512 MiB of pinned memory."""
    node = mps_node
    limits = {"active_thread_percentage": 20, "pinned_device_memory_limit": Quantity("512Mi")}
    node.plugin.prepare(node.share("lost", gpu_config("Mps", **limits), shared=False))
    node.plugin.records.clear()
    record = node.share("next", gpu_config("Mps"), shared=False)
    handle = node.plugin.prepare(record)
    assert "512M" not in node.ask(handle, "get_default_device_pinned_mem_limit 0")
    assert node.ask(handle, "get_default_active_thread_percentage").strip() == "100.0"
    node.plugin.release(record)


def test_a_card_that_is_lost_hides_no_failing_daemon_of_another(tmp_path: Path) -> None:
    node = Node(tmp_path, CardDescription(model=H100), CardDescription(model=H100))
    node.card = node.plugin.cards[1]
    with kept_in_a_thread(node.sharing, node.machine.hardware.driver_root):
        handle = node.plugin.prepare(node.share("user", gpu_config("Mps"), MIG))
        node.plugin.backend.wait_for_events(0)
        documents = {path: path.read_bytes() for path in node.folder(handle).path.glob("*.json")}
    for path, content in documents.items():  # as of a keeper that was killed
        path.write_bytes(content)
    node.machine.hardware.drop_card(0)
    changes = [*node.plugin.backend.wait_for_events(3), *node.plugin.backend.wait_for_events(3)]
    failed = {one.partition.profile for one in changes if isinstance(one, HealthChange) and one.partition is not None}
    assert failed == {MIG}
    node.plugin.close()


def test_a_card_whose_sharing_folder_is_away_keeps_its_claim_until_it_is_back(node: Node) -> None:
    """Nothing seemed to be set up: the release succeeded, and the card stayed in the mode of the claim."""
    node.mode = PROHIBITED
    record = node.share("user", gpu_config("TimeSlicing", interval="Long"), shared=False)
    node.plugin.prepare(record)
    assert (node.mode, node.time_slice) == (DEFAULT, 3)
    away = node.sharing.rename(node.sharing.with_name("away"))
    for damage in (None, Path.mkdir):
        if damage is not None:
            damage(node.sharing)  # where it is mounted
        with pytest.raises(UnreadableDocumentError, match="mount its file system"):
            node.plugin.release(record)
    away.rename(node.sharing)
    assert (node.mode, node.time_slice) == (DEFAULT, 3)
    node.plugin.release(record)
    assert (node.mode, node.time_slice) == (PROHIBITED, 0)
