"""What befalls NVIDIA cards, by a stand-in for their library: errors, cards off the bus, processes that do not end.

And how claims share them by MPS, whose daemons are stand-ins, too.
"""

import json
import os
import signal
from collections.abc import AsyncIterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

import anyio
import pynvml
import pytest

from kerf_dra.driver.mps.control_daemon import ControlDaemon
from kerf_dra.driver.mps.documents import LOCK, SHARED_MEMORY, DaemonFolder, list_folders
from kerf_dra.driver.runtime.file_lock import is_held
from kerf_dra.driver.testing.nvml import NvidiaMachine
from tests.e2e import pods
from tests.e2e.device_health import health, tainted_devices, taints
from tests.e2e.hardware import ON_NVIDIA
from tests.e2e.namespace import Namespace, RunningPod
from tests.e2e.wait import eventually
from tests.fakes.mps import ask, end_daemons
from tests.fakes.nvml import open_nvml
from tools.realcluster.api import Document
from tools.realcluster.kerf import DEPLOY, Hardware, Kerf, manifests

pytestmark = ON_NVIDIA

HARDWARE = Hardware(cards=[{"kind": "gpu", "model": "h100-80gb-sxm"}], options={})
EARLY_LOADING = True
"""The permission to list claims: without it devices are tainted, not withdrawn."""

TAINT: Final = "gpu.kerf.dev/unhealthy"
DRAIN: Final = 4
"""NVML_GPU_RECOVERY_ACTION_DRAIN_AND_RESET, which does not evict."""
METADATA: Final = "/var/run/kubernetes.io/dra-device-attributes/resourceclaimtemplates/devices/gpu"
PID: Final = 4711
PIPES: Final = "/tmp/nvidia-mps"
EXCLUSIVE_PROCESS: Final = 3
"""NVML_COMPUTEMODE_EXCLUSIVE_PROCESS."""


class MpsDaemons:
    """The MPS daemons of the first node."""

    def __init__(self, folder: Path, driver_root: Path) -> None:
        self._folder = folder
        self._driver_root = driver_root

    @property
    def running(self) -> Mapping[str, int]:
        """The number of each daemon that runs, by the UUID of its device, as the machine's processes show."""
        found = {one.device: ControlDaemon(one, self._driver_root).pid for one in list_folders(self._folder)}
        return {device: pid for device, pid in found.items() if pid}

    def ask(self, device: str, command: str) -> str:
        """Return what the device's daemon answers."""
        return ask(DaemonFolder(self._folder / device), self._driver_root, command)

    def share_memory(self, name: str) -> None:
        """Make a file with its name in what daemons and clients have as ``/dev/shm``."""
        (self._folder / SHARED_MEMORY / name).write_text(f"{name}\n")


@pytest.fixture
async def daemons(namespace: Namespace, kerf: Kerf, machine: NvidiaMachine) -> AsyncIterator[MpsDaemons]:
    """The daemons of MPS, which a process keeps until the end of the test."""
    node = namespace.node.name
    folder = kerf.sharing_folder(node)
    kerf.start_mps_daemons(node)

    async def keeps() -> bool:
        return (folder / LOCK).exists() and is_held(folder / LOCK)

    await eventually("daemons are kept", keeps)
    yield MpsDaemons(folder, machine.driver_root)
    await namespace.delete_pods()
    await kerf.crash_mps_daemons(node)
    end_daemons(folder, machine.driver_root)


def compute_mode(machine: NvidiaMachine) -> int:
    with open_nvml(machine):
        return int(pynvml.nvmlDeviceGetComputeMode(pynvml.nvmlDeviceGetHandleByIndex(0)))


async def test_an_api_server_takes_the_manifest_for_such_nodes(namespace: Namespace) -> None:
    for document in manifests(DEPLOY / "nvidia"):
        await namespace.api.apply(document, dryRun="All")


async def small_pods(namespace: Namespace, *names: str) -> None:
    small = await namespace.resource_class("small", device="gpu", profile="1g.10gb")
    await namespace.template("small", pods.exactly("gpu", small))
    await namespace.create_pods("small", *names)


async def instance_of(namespace: Namespace, machine: NvidiaMachine, pod: str) -> int:
    """Return the id of the GPU instance that the pod has."""
    (uuid,) = (await namespace.wait_running(pod)).main.kerf_devices.values()
    (instance,) = (one.id for one in machine.list_instances() if one.uuid == uuid)
    return instance


async def wait_no_taints(namespace: Namespace) -> None:
    async def has_none() -> bool:
        return not await taints(namespace)

    await eventually("no device is tainted", has_none, but=lambda: taints(namespace))


async def test_an_error_of_one_partition_evicts_its_pod_and_no_other_until_the_driver_has_recovered(
    namespace: Namespace, machine: NvidiaMachine
) -> None:
    await small_pods(namespace, "hit", "beside")
    instance = await instance_of(namespace, machine, "hit")
    beside = await namespace.wait_running("beside")
    machine.report_xid(0, 95, gpu_instance=instance, compute_instance=0)  # memory error that was not contained
    await namespace.wait_gone("v1", "Pod", "hit")
    assert await taints(namespace) == {(TAINT, "lost", "NoExecute")}
    (kept,) = (await namespace.wait_running("beside")).main.kerf_devices
    assert kept not in {device for _, device in await tainted_devices(namespace)}
    assert (await namespace.wait_running("beside")).starts == beside.starts

    machine.set_recovery_action(0, DRAIN)
    await eventually("the card gets no new claims", lambda: _has_taint(namespace, "degraded"))
    machine.set_recovery_action(0, 0)
    await wait_no_taints(namespace)
    assert (await namespace.wait_running("beside")).starts == beside.starts


async def test_pods_leave_a_card_that_falls_off_the_bus_and_come_back_to_it_when_it_is_back(
    namespace: Namespace, machine: NvidiaMachine
) -> None:
    await small_pods(namespace, "before")
    await namespace.wait_running("before")
    (left,) = machine.list_instances()
    machine.drop_card(0)
    await namespace.wait_gone("v1", "Pod", "before")
    assert machine.list_instances() == [left], "nothing can be taken back from a card that does not answer"
    await namespace.create_pods("small", "after")
    await namespace.wait_event("after", "FailedScheduling")
    machine.restore_card(0)
    await namespace.wait_running("after")

    async def is_one() -> bool:
        return len(namespace.node.gpu_partitions) == 1

    await eventually("what the lost card kept is taken back", is_one)
    await wait_no_taints(namespace)


async def test_pods_leave_cards_whose_driver_was_unloaded_while_no_plugin_ran(
    namespace: Namespace, machine: NvidiaMachine, kerf: Kerf
) -> None:
    """Their devices were withdrawn without a taint: they stayed, on cards that they could not use."""
    await small_pods(namespace, "before")
    await namespace.wait_running("before")
    await kerf.stop_plugin(namespace.node.name)
    machine.unload_driver()
    async with anyio.create_task_group() as group:
        group.start_soon(kerf.start_plugin, namespace.node.name)  # it is ready once there is a driver
        await namespace.wait_gone("v1", "Pod", "before")
        machine.reload_driver()
    await namespace.create_pods("small", "after")
    await namespace.wait_running("after")
    await wait_no_taints(namespace)


async def test_a_process_that_outlives_its_pod_keeps_the_partition_and_not_the_pod(
    namespace: Namespace, machine: NvidiaMachine
) -> None:
    await small_pods(namespace, "p")
    machine.start_process(0, PID, gpu_instance=await instance_of(namespace, machine, "p"), compute_instance=0)
    await namespace.delete_pod("p")
    assert len(namespace.node.gpu_partitions) == 1
    await eventually("what overlaps it gets no claims", lambda: _has_taint(namespace, "degraded"))
    await namespace.create_pods("small", "q")
    await namespace.wait_running("q")
    assert len(namespace.node.gpu_partitions) == 2
    machine.end_process(PID)

    async def is_one() -> bool:
        return len(namespace.node.gpu_partitions) == 1

    await eventually("the partition is taken back", is_one)
    await wait_no_taints(namespace)


@pytest.mark.parametrize("sharing", [{}, {"sharing": {"strategy": "Mps"}}], ids=["memory", "mps"])
async def test_shares_health_metadata_status_and_a_partition_cut_by_hand_on_one_card(
    namespace: Namespace, machine: NvidiaMachine, daemons: MpsDaemons, sharing: Document
) -> None:
    described = {"profile": "3g.40gb", "allocation": "Shared", "deviceMetadata": True, **sharing}
    shares = await namespace.resource_class("shares", device="gpu", **described)
    await namespace.template("share", pods.exactly("gpu", shares, capacity={"requests": {"memory": "4Gi"}}))
    with namespace.node.cut_by_hand("gpu-0", "1g.10gb", start=0, size=1) as by_hand:
        await eventually("what overlaps it is withdrawn", lambda: _is_withdrawn(namespace, "gpu-0-3g-40gb-at-0"))
        await namespace.create_pods("share", "one", "two")
        running = {name: await namespace.wait_running(name) for name in ("one", "two")}
        ((device, uuid),) = running["one"].main.kerf_devices.items()
        assert running["two"].main.kerf_devices == {device: uuid}
        assert namespace.node.gpu_partitions == [("gpu-0", "1g.10gb", 0), ("gpu-0", "3g.40gb", 4)]

        for pod in running.values():
            (told,) = (text for path, text in pod.main.files.items() if path.startswith(METADATA))
            document: dict[str, Any]
            document, _ = json.JSONDecoder().raw_decode(told)
            (described_device,) = document["requests"][0]["devices"]
            assert described_device["attributes"]["profile"] == {"string": "3g.40gb"}
        shown = [entry["data"] for claim in await namespace.claims() for entry in claim["status"]["devices"]]
        assert [(one["uuid"], one["profile"]) for one in shown] == [(uuid, "3g.40gb")] * 2

        machine.remap_rows(0, uncorrectable=1, is_pending=True)
        reason = "rows of its memory are remapped at the next reset of the card"
        for name in running:
            await eventually("its pod is told", partial(_is_told, namespace, name, reason))
        await eventually("the card gets no new claims", lambda: _has_taint(namespace, "degraded"))
        await namespace.create_pods("share", "three")
        await namespace.wait_event("three", "FailedScheduling")
        machine.remap_rows(0)
        assert (await namespace.wait_running("three")).main.kerf_devices == {device: uuid}
        for name, pod in running.items():
            assert (await namespace.wait_running(name)).starts == pod.starts
        assert len(daemons.running) == (1 if sharing else 0)
        for name in (*running, "three"):
            await namespace.delete_pod(name)
        assert namespace.node.gpu_partitions == [("gpu-0", "1g.10gb", 0)]
        assert namespace.node.holds(by_hand)
        assert daemons.running == {}


async def sharing_pods(namespace: Namespace, *names: str) -> Mapping[str, RunningPod]:
    """Run pods with a quarter of a whole card each, by MPS."""
    quarter = await namespace.resource_class(
        "quarter", device="gpu", cut="Whole", allocation="Shared", sharing={"strategy": "Mps"}
    )
    requests = {"memory": "8Gi", "computePercent": "25"}
    await namespace.template("quarter", pods.exactly("gpu", quarter, capacity={"requests": requests}))
    await namespace.create_pods("quarter", *names)
    return {name: await namespace.wait_running(name) for name in names}


async def test_two_pods_share_a_card_by_one_mps_daemon_which_outlives_the_plugin_and_ends_with_the_last(
    namespace: Namespace, kerf: Kerf, machine: NvidiaMachine, daemons: MpsDaemons
) -> None:
    before = compute_mode(machine)
    daemons.share_memory("marker")
    running = await sharing_pods(namespace, "one", "two")
    ((card, pid),) = daemons.running.items()
    assert compute_mode(machine) == EXCLUSIVE_PROCESS
    for pod in running.values():
        variables = pod.main.environment
        assert variables["CUDA_MPS_PIPE_DIRECTORY"] == PIPES
        assert variables["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "25"
        assert variables["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] == "0=8192M"
        assert set(pod.main.kerf_devices.values()) == {card}
        assert pod.main.files[f"{PIPES}/nvidia-cuda-mps-control.pid"].split() == [f"{pid}"]
        assert pod.main.files["/dev/shm/marker"] == "marker\n"
    assert daemons.ask(card, "get_default_active_thread_percentage") == "25.0\n"

    await kerf.restart_plugin(namespace.node.name)
    await namespace.delete_pod("one")
    assert daemons.running == {card: pid}
    assert (await namespace.wait_running("two")).starts == running["two"].starts
    await namespace.delete_pod("two")
    assert daemons.running == {}
    assert compute_mode(machine) == before


async def test_the_end_of_an_mps_daemon_is_told_to_its_pods_and_the_next_one_has_its_limits(
    namespace: Namespace, kerf: Kerf, daemons: MpsDaemons
) -> None:
    running = await sharing_pods(namespace, "one")
    ((card, pid),) = daemons.running.items()
    await kerf.crash_mps_daemons(namespace.node.name)
    os.kill(pid, signal.SIGKILL)

    async def is_told() -> bool:
        return "`kerf mps-daemons` does not run" in str(await health(namespace, "one"))

    await eventually("its pod is told", is_told, but=lambda: health(namespace, "one"))
    await eventually("the card gets no new claims", lambda: _has_taint(namespace, "degraded"))

    kerf.start_mps_daemons(namespace.node.name)

    async def is_back() -> bool:
        return card in daemons.running and daemons.ask(card, "get_default_active_thread_percentage") == "25.0\n"

    await eventually("another daemon serves", is_back)
    assert daemons.running[card] != pid
    assert (await namespace.wait_running("one")).starts == running["one"].starts, "no pod is evicted"
    await namespace.delete_pod("one")
    await wait_no_taints(namespace)
    assert daemons.running == {}


async def _has_taint(namespace: Namespace, value: str) -> bool:
    return (TAINT, value, "NoSchedule") in await taints(namespace)


async def _is_withdrawn(namespace: Namespace, device: str) -> bool:
    return device not in await namespace.published_devices()


async def _is_told(namespace: Namespace, pod: str, reason: str) -> bool:
    return await health(namespace, pod) == [("Unhealthy", reason)]
