"""After a boot, or while no driver is loaded: claims on NVIDIA cards end, and others begin anew."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path

import anyio
import pytest

from kerf_dra.driver.families.gpu import GPU
from kerf_dra.driver.kubeletplugin.backends.base import OutdatedProcessError
from kerf_dra.driver.kubeletplugin.backends.nvidia.nvml.library import NvmlLibrary
from kerf_dra.driver.kubeletplugin.backends.registry import BackendChoice
from kerf_dra.driver.kubeletplugin.handover import InstanceLock
from kerf_dra.driver.kubeletplugin.instance import Instance, acquire_free_lock
from kerf_dra.driver.kubeletplugin.settings import Settings
from kerf_dra.driver.testing.nvml import CardDescription
from tests.fakes.claims import NODE, claim
from tests.fakes.kubelet import ClaimError, FakeKubelet
from tests.fakes.nvml import NEEDS_COMPILER
from tests.kubeletplugin.backends.nvidia.node import A100_IN_PARTITIONS, H100, NvidiaNode, QuickBackend
from tests.kubeletplugin.harness import LONGEST_S, short_directory
from tests.kubeletplugin.wait import until

pytestmark = NEEDS_COMPILER

CLAIM = claim("training", "gpu-0-1g-20gb-at-0")


@asynccontextmanager
async def serving(
    node: NvidiaNode, root: Path, library: NvmlLibrary | None = None
) -> AsyncIterator[tuple[FakeKubelet, QuickBackend]]:
    """A whole plugin with its sockets, whose backend is opened by itself, as it can be; with another library."""
    backend = QuickBackend(node.machine, library=library)
    settings = Settings(
        node_name=NODE,
        family=GPU,
        backends=(BackendChoice(name=backend.name),),
        kubelet_root=root / "kubelet",
        cdi_dir=root / "cdi",
        publish_min_interval_s=0.01,
        survey_interval_s=0.05,
        socket_poll_s=0.02,
        rpc_grace_s=0.1,
    )
    kubelet = FakeKubelet(settings.kubelet_root)

    async def run() -> None:
        lock = InstanceLock(settings.state)
        with acquire_free_lock(settings, lock, boot_id=node.boot_id) or nullcontext() as held:
            await Instance(settings, node.cluster, [backend], lock, boot_id=node.boot_id).run(held)

    with anyio.fail_after(LONGEST_S):
        async with anyio.create_task_group() as group:
            group.start_soon(run)
            await kubelet.register()
            yield kubelet, backend
            group.cancel_scope.cancel()


def published(node: NvidiaNode) -> set[str]:
    return {device.name for device in node.published_devices()}


async def test_pods_of_before_a_boot_end_while_no_driver_is_loaded() -> None:
    """NVIDIA/k8s-driver-manager#217: after a boot the plugin serves, and unprepares, before the driver is there.

    Theirs starts with the driver only. The driver's installer waits for the pods to end, which wait for the plugin.
    """
    with short_directory() as root:
        node = NvidiaNode(root)
        held = node.cluster.add(CLAIM)
        async with serving(node, root) as (kubelet, _):
            await kubelet.prepare(held)
        node.reboot()
        node.machine.unload_driver()
        async with serving(node, root) as (kubelet, backend):
            with pytest.raises(ClaimError, match="this node does not have it"):
                await kubelet.prepare(held)
            await kubelet.unprepare(held)
            assert [*(root / "cdi").glob("*")] == []
            assert backend.waits == 0, "there is nothing to wait for"


async def test_a_driver_that_is_loaded_after_the_plugin_has_started_is_found_soon() -> None:
    """NVIDIA/k8s-driver-manager#217: the node has its devices seconds after its driver, and no plugin restarts."""
    with short_directory() as root:
        node = NvidiaNode(root)
        node.machine.unload_driver()
        held = node.cluster.add(CLAIM)
        async with serving(node, root) as (kubelet, backend):
            await until(lambda: backend.opens >= 2)
            assert published(node) == set()
            node.machine.reload_driver()
            await until(lambda: "gpu-0" in published(node))
            await kubelet.prepare(held)
            assert node.instances() == ["1g.20gb at 0"]

            def is_tainted() -> bool:
                node.machine.report_xid(0, 119)  # again: what is reported before the plugin listens is never told
                return any(device.taints for device in node.published_devices())

            await until(is_tainted)


async def test_a_driver_of_another_version_ends_the_plugin_whose_library_is_the_old_one_and_the_next_goes_on() -> None:
    """NVIDIA/k8s-device-plugin#221: a process never unloads NVML, so without its end it would see no card for good."""
    with short_directory() as root:
        node = NvidiaNode(root)
        held = node.cluster.add(CLAIM)

        async def replace_driver() -> None:
            async with serving(node, root) as (kubelet, _):
                await kubelet.prepare(held)
                node.machine.reload_driver("999.1")
                node.machine.replace_library()
                await anyio.sleep_forever()

        with pytest.raises(ExceptionGroup) as raised:
            await replace_driver()
        assert raised.group_contains(OutdatedProcessError, match="the process has to start again", depth=None)
        node.machine.reload_driver()  # the library of the next process is of the driver's version
        async with serving(node, root) as (kubelet, _):
            await kubelet.prepare(held)
            assert node.instances() == ["1g.20gb at 0"]


async def test_while_driver_and_library_are_of_two_versions_the_node_says_so_and_its_cards_get_no_claims() -> None:
    """NVIDIA/k8s-device-plugin#221: theirs stayed ready without a word, and had no GPUs until somebody restarted it."""
    with short_directory() as root:
        node = NvidiaNode(root)

        def reasons() -> set[str]:
            return {reason for _, _, reason, _ in node.cluster.reported}

        def is_quarantined() -> bool:
            return any(device.taints for device in node.published_devices())

        async with serving(node, root):
            await until(lambda: "gpu-0" in published(node))
            node.machine.reload_driver("999.1")
            await until(lambda: {"CardsNotDiscovered", "CardInQuarantine"} <= reasons() and is_quarantined())
            assert not {"CardsDiscovered", "CardFree"} & reasons()
            node.machine.reload_driver()
            await until(lambda: {"CardsDiscovered", "CardFree"} <= reasons() and not is_quarantined())


@pytest.mark.parametrize(
    ("card", "device", "made"),
    [(H100, "gpu-0-1g-20gb-at-0", "1g.20gb at 0"), (A100_IN_PARTITIONS, "gpu-0-1g-5gb-at-0", "1g.5gb at 0")],
    ids=["MIG mode forgotten", "MIG mode kept"],
)
async def test_a_partition_that_a_boot_has_removed_is_made_anew(
    card: CardDescription, device: str, made: str, tmp_path: Path
) -> None:
    """NVIDIA/k8s-device-plugin#225: a boot ends partitions, so that none is taken for prepared because it once was.

    kubernetes-sigs/dra-driver-nvidia-gpu#951: theirs did, and the pod started without a device.
    """
    node = NvidiaNode(tmp_path, card)
    held = node.cluster.add(claim("training", device))
    async with node.plugin() as core:
        await core.preparer.prepare_claim(held)
    node.reboot()
    assert (node.instances(), node.is_mig_on()) == ([], card.is_mig_on)
    async with node.plugin() as core:
        await core.preparer.prepare_claim(held)
        assert node.instances() == [made]
        assert core.store.names() == [f"k8s.gpu.kerf.dev-claim_{held.uid}"]
        await core.preparer.unprepare_claim(held)
        assert node.instances() == []
