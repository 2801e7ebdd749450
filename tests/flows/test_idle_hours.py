"""What goes on without end waits between two rounds: an hour on the virtual clock costs as many rounds as it should.

``tests/structure/test_loops.py`` has the list of all such loops, with the tests of the others.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.abc import TaskStatus

from kerf_dra.api.errors import PermanentError
from kerf_dra.api.kerf.v1alpha1 import ResourceClassObject
from kerf_dra.api.model.metadata import ObjectMeta
from kerf_dra.api.registration.v1 import PluginInfo
from kerf_dra.api.resource.v1 import KINDS
from kerf_dra.api.resource.v1alpha2 import KINDS as CLASSIC_KINDS
from kerf_dra.driver.controller.settings import Settings as ControllerSettings
from kerf_dra.driver.controller.structured.app import StructuredController
from kerf_dra.driver.families.gpu import GPU
from kerf_dra.driver.kube.discovery import ApiFeatures
from kerf_dra.driver.kube.events import EventReporter
from kerf_dra.driver.kubeletplugin.app import HostedFamily
from kerf_dra.driver.kubeletplugin.grpc.registration import Registrar
from kerf_dra.driver.kubeletplugin.settings import Settings
from kerf_dra.driver.local.apiserver.registry.garbage_collector import GarbageCollector
from kerf_dra.driver.local.kubelet.node import Kubelet, KubeletSettings
from kerf_dra.driver.local.kubelet.plugins import PluginWatcher
from kerf_dra.driver.local.scheduler.classic import ClassicScheduler
from kerf_dra.driver.local.scheduler.structured import Scheduler
from kerf_dra.driver.runtime.backoff import Backoff
from tests.kube.memory_server import MemoryServer
from tests.runtime.virtual_time import VIRTUAL_TIME

HOUR_S = 3600.0
BACKOFF = Backoff(first_s=1, factor=2, limit_s=60, jitter=0)
ROUNDS = 65
"""Of an hour with that back-off: 1, 2, 4, 8, 16, 32 seconds, then one a minute."""
FEATURES = ApiFeatures(kubernetes=(1, 37), patch=0, resource=KINDS, device_taint_rules=None)


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, object]]:
    return VIRTUAL_TIME


async def pass_hour(run: Callable[[], Any], hour_s: float = HOUR_S) -> None:
    """Let an hour pass while ``run`` runs; what it raises fails the test."""
    async with anyio.create_task_group() as group:
        group.start_soon(run)
        await anyio.sleep(hour_s)
        group.cancel_scope.cancel()


def reporter(server: MemoryServer) -> EventReporter:
    return EventReporter(server.client(), component="test", instance="one")


class RefusedRegistrar(Registrar):
    """One that the kubelet refuses at once."""

    rounds = 0

    async def _register_once(self, task_status: TaskStatus[None]) -> bool:
        self.rounds += 1
        return False


def registrar(socket: Path) -> RefusedRegistrar:
    info = PluginInfo(name="d", endpoint="", supported_versions=())
    return RefusedRegistrar(info, socket, silence_s=HOUR_S, poll_s=1, grace_s=0, backoff=BACKOFF)


async def test_a_plugin_that_the_kubelet_refuses_registers_with_a_back_off(tmp_path: Path) -> None:
    refused = registrar(tmp_path / "d-reg.sock")
    await pass_hour(refused.run)
    assert refused.rounds == ROUNDS


async def test_a_socket_that_the_kubelet_never_asks_is_made_again_when_its_time_is_over(tmp_path: Path) -> None:
    silent = registrar(tmp_path / "d-reg.sock")
    (tmp_path / "d-reg.sock").touch()
    began = anyio.current_time()
    assert "the kubelet has not asked" in await silent._wait_until_stale()
    assert anyio.current_time() - began == HOUR_S


class FailingFamily(HostedFamily):
    """One that cannot start."""

    rounds = 0

    async def _run_once(self) -> None:
        self.rounds += 1
        raise PermanentError("no cards")


async def test_a_family_that_cannot_start_is_tried_with_a_back_off(tmp_path: Path) -> None:
    settings = replace(Settings(node_name="n", family=GPU, backends=(), kubelet_root=tmp_path), retry=BACKOFF)

    async def connect(_: Settings) -> Any:
        raise AssertionError

    failing = FailingFamily(settings, connect, boot_id="boot")
    await pass_hour(lambda: failing.run(lambda: False))
    assert failing.rounds == ROUNDS


async def test_every_class_is_reconciled_again_every_ten_minutes() -> None:
    settings = ControllerSettings(identity="one")
    controller = StructuredController(MemoryServer().client(), FEATURES, settings, {GPU.name: GPU})
    controller._resource_classes.store.put(ResourceClassObject(metadata=ObjectMeta(name="small")))
    reconciled: list[str] = []

    async def reconcile(name: str) -> None:
        reconciled.append(name)

    async def run() -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(controller._resync)
            await controller._queue.run(reconcile, workers=1)

    await pass_hour(run)
    assert len(reconciled) == pytest.approx(HOUR_S / settings.resync_s, abs=1)


async def test_whether_graded_placement_is_enabled_is_read_every_half_minute_and_news_queue_every_class() -> None:
    settings, server = ControllerSettings(identity="one"), MemoryServer()
    controller = StructuredController(server.client(), FEATURES, settings, {GPU.name: GPU})
    for name in ("small", "large"):
        controller._resource_classes.store.put(ResourceClassObject(metadata=ObjectMeta(name=name)))
    reconciled: list[str] = []

    async def reconcile(name: str) -> None:
        reconciled.append(name)

    async def run() -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(controller._follow_grading)
            await controller._queue.run(reconcile, workers=1)

    await pass_hour(run)
    assert len(server.requests) == pytest.approx(HOUR_S / settings.grading_check_s, abs=1)
    assert reconciled == []
    server.put("mutatingadmissionpolicybindings", {"metadata": {"name": "graded-placement.gpu.kerf.dev"}})
    await pass_hour(run)
    assert sorted(reconciled) == ["large", "small"]


async def test_a_stand_in_of_the_kubelet_reports_that_its_node_is_ready_every_ten_seconds(tmp_path: Path) -> None:
    server = MemoryServer()
    server.put("nodes", {"metadata": {"name": "n"}})
    settings = KubeletSettings(node_name="n", root=tmp_path, cdi_dir=tmp_path, boot_id="boot", labels={})
    await pass_hour(Kubelet(server.client(), KINDS, reporter(server), settings)._heartbeat)
    assert len(server.sent("PATCH")) == pytest.approx(HOUR_S / 10, abs=1)


class CountedFolder(type(Path())):  # type: ignore[misc]  # PosixPath or WindowsPath
    """A folder that counts how often it is listed."""

    listed = 0

    def iterdir(self) -> Iterator[Path]:
        type(self).listed += 1
        return iter(())


async def test_the_registry_of_plugins_is_looked_at_twenty_times_a_second(tmp_path: Path) -> None:
    CountedFolder.listed = 0
    watcher = PluginWatcher(CountedFolder(tmp_path), ("v1.DRAPlugin",), lambda _name, _is_registered: None)
    await pass_hour(watcher.run, hour_s=60)
    assert CountedFolder.listed == pytest.approx(20 * 60, abs=2)


async def test_a_garbage_collector_without_work_waits() -> None:
    nothing: Any = None
    await pass_hour(GarbageCollector(storage=nothing, served_kinds=nothing, deleter=nothing, writer=nothing).run)


@pytest.mark.parametrize("generation", ["structured", "classic"])
async def test_a_scheduler_whose_pod_fits_nowhere_waits_for_a_change(generation: str) -> None:
    server = MemoryServer()
    pod = {"name": "p", "namespace": "default", "uid": "u"}
    server.put("pods", {"metadata": pod, "spec": {"containers": [{"name": "main", "image": "i"}]}}, "default")
    client = server.client()
    scheduler: Scheduler | ClassicScheduler = ClassicScheduler(client, CLASSIC_KINDS, reporter(server))
    if generation == "structured":
        scheduler = Scheduler(client, FEATURES, reporter(server), share_id=str)
    await pass_hour(scheduler.run)
    assert len(server.sent("PATCH")) <= 2
    assert len(server.sent("GET")) < 200, "lists, and watches that end after minutes"
