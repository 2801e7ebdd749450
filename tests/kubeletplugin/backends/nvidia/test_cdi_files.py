"""What the container runtime finds in the CDI files of claims on NVIDIA cards, read as a runtime reads them."""

from pathlib import Path

import pytest

from kerf_dra import cdi
from kerf_dra.api.model.prepared import PreparedClaim
from kerf_dra.driver.kubeletplugin.claims.hardware import DevicesFailedError
from tests.fakes.claims import claim, ref, result
from tests.fakes.nvml import NEEDS_COMPILER
from tests.kubeletplugin.backends.nvidia.node import NvidiaNode

pytestmark = NEEDS_COMPILER

SMALL, LARGE = "gpu-0-1g-20gb-at-0", "gpu-0-3g-40gb-at-4"
CLAIM = claim("pair", result(SMALL, request="a"), result(LARGE, request="b"))


@pytest.fixture
def node(tmp_path: Path) -> NvidiaNode:
    made = NvidiaNode(tmp_path)
    made.cluster.add(CLAIM)
    return made


def containers(node: NvidiaNode, record: PreparedClaim) -> list[cdi.ContainerEdits]:
    """Return what a container gets of each device, by the names that the kubelet is told."""
    cache = cdi.Cache([node.root / "cdi"])
    assert cache.catalog.errors == {}
    return [cdi.requested_edits(cache.catalog, device.cdi_ids) for device in record.devices]


async def test_every_name_that_the_kubelet_is_told_is_in_a_file_that_the_runtime_can_read(node: NvidiaNode) -> None:
    """kubernetes-sigs/dra-driver-nvidia-gpu#736: "unresolvable CDI devices", for ever.

    The names were those of a file with all GPUs of the node, which somebody else's version had not written. A claim's
    names are those of its own file, and a start of the plugin writes it anew.
    """
    async with node.plugin() as core:
        record = await core.preparer.prepare_claim(ref(CLAIM))
        before = containers(node, record)
        assert all(edits.device_nodes for edits in before)
    (file,) = (node.root / "cdi").iterdir()
    file.unlink()
    async with node.plugin() as core:
        await core.preparer.restore_files()
        assert containers(node, core.checkpoint.records[record.claim.uid]) == before


async def test_two_partitions_of_one_card_in_one_claim_have_device_nodes_of_their_own(node: NvidiaNode) -> None:
    """kubernetes-sigs/dra-driver-nvidia-gpu, read in its code: copies of the cached spec of a card share their lists.

    Also test_gpu_dynmig.bats: two containers of a pod have one MIG device each.
    """
    async with node.plugin() as core:
        edits = containers(node, await core.preparer.prepare_claim(ref(CLAIM)))
        nodes = [{one.path for one in each.device_nodes} for each in edits]
        own = [{path for path in paths if "nvidia-cap" in path} for paths in nodes]
        assert [len(paths) for paths in own] == [2, 2]
        assert own[0].isdisjoint(own[1])
        assert nodes[0] & nodes[1] == {"/dev/nvidia0", "/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools"}
        assert [each.env[-1].partition("=")[2] for each in edits] == [node.uuid(3), node.uuid(2)]


async def test_a_driver_that_is_installed_anew_under_a_running_plugin_is_read_anew(node: NvidiaNode) -> None:
    """kubernetes-sigs/dra-driver-nvidia-gpu#1144: "empty device edits" for every claim, until the plugin was restarted.

    Theirs keeps what it has read of the driver. Here each prepare reads it: while files are missing it says so before
    the card is changed, and a file never has a device without edits.
    """
    node.cdi_hook = str(node.root / "nvidia-cdi-hook")
    Path(node.cdi_hook).write_bytes(b"\x7fELF")
    installed, away = node.machine.driver_root, node.root / "replaced"
    async with node.plugin() as core:
        before = containers(node, await core.preparer.prepare_claim(ref(CLAIM)))
        await core.preparer.unprepare_claim(ref(CLAIM))
        installed.rename(away)
        with pytest.raises(DevicesFailedError, match="below the driver root"):
            await core.preparer.prepare_claim(ref(CLAIM))
        assert (node.instances(), core.store.names()) == ([], [])
        away.rename(installed)
        after = containers(node, await core.preparer.prepare_claim(ref(CLAIM)))
        assert after == before
        assert all(edits.mounts and edits.hooks and edits.device_nodes for edits in after)
