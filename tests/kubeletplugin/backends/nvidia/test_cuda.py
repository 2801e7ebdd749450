"""The backend ``nvidia`` gives containers what CUDA needs, or offers nothing and says why."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from kerf_dra.api.model.names import ShareId
from kerf_dra.cdi import ContainerEdits
from kerf_dra.driver.families.gpu import GPU
from kerf_dra.driver.kubeletplugin.backends.base import AllocatedDevice, HardwareBusyError
from kerf_dra.driver.kubeletplugin.backends.nvidia import NvidiaBackend
from kerf_dra.driver.kubeletplugin.backends.nvidia.config import NvidiaConfig
from kerf_dra.driver.partitions.geometry import Placement
from kerf_dra.driver.testing.plugin import DeviceRecord, PluginStandIn
from tests.fakes.nvml import NEEDS_COMPILER
from tests.kubeletplugin.backends.nvidia.machine import NvidiaMachineUnderTest

pytestmark = NEEDS_COMPILER

VERSION = "580.95.05"
LIBRARY = f"/usr/lib64/libcuda.so.{VERSION}"


@pytest.fixture
def machine(tmp_path: Path) -> NvidiaMachineUnderTest:
    hook = tmp_path / "nvidia-cdi-hook"
    hook.write_bytes(b"\x7fELF")
    machine = NvidiaMachineUnderTest(tmp_path)
    machine.cdi_hook = str(hook)
    return machine


@pytest.fixture
def plugin(machine: NvidiaMachineUnderTest) -> PluginStandIn:
    return PluginStandIn(machine, GPU)


def allocate(plugin: PluginStandIn, profile: str | None, placement: Placement | None) -> DeviceRecord:
    card = plugin.cards[0]
    (found,) = [one for one in card.geometry.specs if (one.profile, one.placement) == (profile, placement)]
    return plugin.allocate(found.of(card.uuid), "user")


def mounts(edits: ContainerEdits) -> Mapping[str, str]:
    return {mount.container_path: mount.host_path for mount in edits.mounts}


def test_a_partition_comes_with_the_driver_as_the_host_sees_it(
    machine: NvidiaMachineUnderTest, plugin: PluginStandIn
) -> None:
    """kubernetes-sigs/dra-driver-nvidia-gpu#787: driver, hooks, the card's node and both capabilities are there."""
    edits = plugin.backend.edits(plugin.prepare(allocate(plugin, "3g.40gb", Placement(4, 4))))

    assert mounts(edits)[LIBRARY] == f"/run/nvidia/driver{LIBRARY}"
    assert {hook.path for hook in edits.hooks} == {machine.cdi_hook}
    assert "NVIDIA_VISIBLE_DEVICES=void" in edits.env
    assert [node.path for node in edits.device_nodes][-3:] == [
        "/dev/nvidia0",
        "/dev/nvidia-caps/nvidia-cap21",
        "/dev/nvidia-caps/nvidia-cap22",
    ]
    assert {node.host_path for node in edits.device_nodes} == {"/dev/null"}, "a stand-in's nodes open nothing"


def test_the_edits_of_a_prepared_device_stay_when_the_driver_cannot_be_read(
    machine: NvidiaMachineUnderTest, plugin: PluginStandIn
) -> None:
    handle = plugin.prepare(allocate(plugin, None, None))
    before = plugin.backend.edits(handle)
    machine.hardware.driver_root.rename(machine.hardware.driver_root.with_name("unmounted"))

    assert plugin.backend.edits(handle) == before
    assert machine.open_backend().edits(handle) == before


def test_a_driver_without_cuda_is_found_out_before_the_card_is_changed(
    machine: NvidiaMachineUnderTest, plugin: PluginStandIn
) -> None:
    (machine.hardware.driver_root / LIBRARY.lstrip("/")).unlink()
    record = allocate(plugin, "1g.10gb", Placement(0, 1))

    with pytest.raises(HardwareBusyError, match=rf"there is no libcuda\.so\.{VERSION} below the driver root"):
        plugin.prepare(record)
    assert plugin.survey(plugin.cards[0].uuid).partitions == ()


def test_without_the_hook_nothing_is_offered_and_the_survey_says_why(machine: NvidiaMachineUnderTest) -> None:
    machine.cdi_hook = "/nowhere/nvidia-cdi-hook"
    plugin = PluginStandIn(machine, GPU)
    survey = plugin.survey(plugin.cards[0].uuid)

    assert survey.no_whole == survey.no_partitions == survey.no_static
    assert survey.no_whole.startswith("there is no nvidia-cdi-hook at /nowhere/nvidia-cdi-hook (No such file")
    with pytest.raises(HardwareBusyError, match="there is no nvidia-cdi-hook"):
        plugin.prepare(allocate(plugin, None, None))


def test_a_hook_that_comes_and_goes_while_the_plugin_runs_is_noticed_by_the_next_survey(
    machine: NvidiaMachineUnderTest, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    hook = tmp_path / "later"
    machine.cdi_hook = str(hook)
    plugin = PluginStandIn(machine, GPU)
    restrictions = []
    for is_there in (False, False, True, False):
        hook.write_bytes(b"\x7fELF") if is_there else hook.unlink(missing_ok=True)
        restrictions.append([plugin.survey(card.uuid).no_whole for card in plugin.cards])
    missing = f"there is no nvidia-cdi-hook at {hook} "
    assert [[why.startswith(missing) for why in each] for each in restrictions] == [
        *([True, True], [True, True], [False, False], [True, True])
    ]
    assert caplog.text.count("no GPU of this node can be used in containers") == 2, "each time it is told once"


def test_admin_access_sees_all_partitions_and_makes_none(plugin: PluginStandIn) -> None:
    record = allocate(plugin, None, None)
    device = AllocatedDevice(
        claim=record.device.claim,
        share=ShareId(id=record.device.share.id, share=None),
        partition=record.device.partition,
        admin_access=True,
        consumed_capacity={},
    )

    edits = plugin.backend.edits(plugin.backend.prepare(device, None, record.journal, None))

    paths = [node.path for node in edits.device_nodes]
    assert "/dev/nvidia-caps/nvidia-cap2" in paths
    assert "/dev/nvidia-caps/nvidia-cap1" not in paths
    assert LIBRARY in mounts(edits)


def test_a_stand_in_does_without_the_hook_and_without_the_driver(machine: NvidiaMachineUnderTest) -> None:
    machine.cdi_hook = ""
    plugin = PluginStandIn(machine, GPU)

    edits = plugin.backend.edits(plugin.prepare(allocate(plugin, None, None)))

    assert (edits.mounts, edits.hooks) == ((), ())
    assert [node.path for node in edits.device_nodes][-1] == "/dev/nvidia0"


def test_the_hook_of_the_image_is_copied_to_the_host(machine: NvidiaMachineUnderTest, tmp_path: Path) -> None:
    folder = tmp_path / "plugins"
    folder.mkdir()
    machine.choose()
    root = str(machine.hardware.driver_root)
    backend = NvidiaBackend(NvidiaConfig(driver_root=root, cdi_hook=machine.cdi_hook, cdi_hook_folder=str(folder)))
    backend.open()
    backend.close()

    assert (folder / "nvidia-cdi-hook").read_bytes() == b"\x7fELF"
