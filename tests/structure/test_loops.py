"""What goes on without end is driven on the virtual clock by some test: there a loop that does not wait is an error.

The clock (``tests/runtime/virtual_time.py``) goes on only when everything waits. A collector that did not wait once
read the API server 6,588 times a second, and no test noticed.
"""

import ast
from collections.abc import Iterator
from typing import Final

import pytest

from tools.sources import ROOT, modules, tree

IDLE: Final = "tests/flows/test_idle_hours.py"
NODES: Final = "tests/flows/test_idle_nodes.py"
DISCOVERY: Final = "tests/kubeletplugin/discovery_handlers/test_service.py"
HANDOVER: Final = "tests/kubeletplugin/test_handover.py"
MAINTENANCE: Final = "tests/kubeletplugin/maintenance/test_worker.py"
NODE_WATCH: Final = "tests/kubeletplugin/cluster/test_node_watch.py"
SAMPLER: Final = "tests/kubeletplugin/usage/test_sampler.py"
DRIVEN: Final = {
    "driver/controller/repeated_writes.py: write_repeatedly": "tests/controller/classic/test_unused_classes.py",
    "driver/controller/reclaim/executor.py: CardReclaimer.run": "tests/controller/reclaim/test_loop.py",
    "driver/controller/reclaim/repairer.py: CardRepairer.run": "tests/controller/reclaim/test_loop.py",
    "driver/controller/structured/app.py: StructuredController._follow_grading": IDLE,
    "driver/controller/structured/app.py: StructuredController._resync": IDLE,
    "driver/controller/structured/discovery/reconciler.py: DiscoveryReconciler.run": NODES,
    "driver/controller/structured/orphaned_slices.py: OrphanedSliceCollector.run": (
        "tests/controller/structured/test_orphaned_slices.py"
    ),
    "driver/kube/events.py: report_undone_writes": "tests/kube/http/test_write_history.py",
    "driver/kube/informer.py: Informer._check_now_and_then": "tests/kube/test_informer.py",
    "driver/kube/informer.py: Informer._follow_for_ever": "tests/kube/test_informer.py",
    "driver/kube/leader_election.py: run_as_leader": "tests/kube/test_leader_election.py",
    "driver/kube/leader_election.py: _Elector._renew": "tests/kube/test_leader_election.py",
    "driver/kubeletplugin/app.py: HostedFamily.run": IDLE,
    "driver/kubeletplugin/call_watchdog.py: CallWatchdog.run": "tests/kubeletplugin/test_call_watchdog.py",
    "driver/kubeletplugin/claims/garbage_collection.py: ClaimGarbageCollector.run": (
        "tests/kubeletplugin/claims/test_collection_loop.py"
    ),
    "driver/kubeletplugin/cluster/classic.py: ClassicCluster._follow_node": NODE_WATCH,
    "driver/kubeletplugin/claims/repair/device_repairer.py: DeviceRepairer.run": (
        "tests/kubeletplugin/claims/repair/test_device_repairer.py"
    ),
    "driver/kubeletplugin/claims/repair/file_repairer.py: FileRepairer.run": (
        "tests/kubeletplugin/claims/repair/test_file_repairer.py"
    ),
    "driver/kubeletplugin/cluster/classic.py: ClassicCluster._renew": "tests/kubeletplugin/cluster/test_classic.py",
    "driver/kubeletplugin/cluster/dropped_fields.py: watch_dropped_fields": (
        "tests/kubeletplugin/cluster/test_dropped_fields.py"
    ),
    "driver/kubeletplugin/cluster/structured.py: StructuredCluster._follow_node": NODE_WATCH,
    "driver/kubeletplugin/cluster/structured.py: StructuredCluster._follow_removals": NODE_WATCH,
    "driver/kubeletplugin/deviceplugin/discovered_device_offer.py: UserKeeper.run": NODES,
    "driver/kubeletplugin/deviceplugin/resource_collector.py: ResourceCollector.run": NODES,
    "driver/kubeletplugin/discovery_handlers/device_lists.py: _pass_on": (
        "tests/kubeletplugin/discovery_handlers/test_device_lists.py"
    ),
    "driver/kubeletplugin/discovery_handlers/service.py: DeviceDiscovery._follow_configurations": DISCOVERY,
    "driver/kubeletplugin/discovery_handlers/service.py: DeviceDiscovery._search_until_cancelled": DISCOVERY,
    "driver/kubeletplugin/deviceplugin/reservation_keeper.py: ReservationKeeper.run": NODES,
    "driver/kubeletplugin/grpc/device_plugin.py: DevicePluginServer.run": NODES,
    "driver/kubeletplugin/maintenance/worker.py: MaintenanceWorker.run": MAINTENANCE,
    "driver/kubeletplugin/maintenance/worker.py: MaintenanceWorker._wait_healthy": MAINTENANCE,
    "driver/kubeletplugin/grpc/registration.py: Registrar.run": IDLE,
    "driver/kubeletplugin/grpc/registration.py: Registrar._wait_until_stale": IDLE,
    "driver/kubeletplugin/handover.py: ActiveInstanceProxy._wait_for_plugin": HANDOVER,
    "driver/kubeletplugin/handover.py: ActiveInstanceProxy.prepare_when_active": HANDOVER,
    "driver/kubeletplugin/handover.py: ActiveInstanceProxy.unprepare_when_active": HANDOVER,
    "driver/kubeletplugin/handover.py: InstanceLock.acquire": HANDOVER,
    "driver/kubeletplugin/handover.py: InstanceLock.wait_for_request": HANDOVER,
    "driver/kubeletplugin/inventory/publisher.py: DevicePublisher.run": (
        "tests/kubeletplugin/inventory/test_publisher.py"
    ),
    "driver/kubeletplugin/inventory/publisher.py: DevicePublisher.watch_health": (
        "tests/kubeletplugin/inventory/test_publisher.py"
    ),
    "driver/kubeletplugin/cluster/base.py: follow_publication": "tests/kubeletplugin/inventory/test_publisher.py",
    "driver/kubeletplugin/inventory/surveyor.py: HardwareSurveyor.follow_stuck": (
        "tests/kubeletplugin/inventory/test_surveyor.py"
    ),
    "driver/kubeletplugin/inventory/surveyor.py: HardwareSurveyor.run": (
        "tests/kubeletplugin/inventory/test_surveyor.py"
    ),
    "driver/kubeletplugin/node_features.py: follow_cards": NODES,
    "driver/kubeletplugin/usage/sampler.py: UsageSampler._follow_records": SAMPLER,
    "driver/kubeletplugin/usage/sampler.py: UsageSampler.run": SAMPLER,
    "driver/runtime/notifier.py: forward": NODES,
    "driver/local/apiserver/registry/garbage_collector.py: GarbageCollector.run": IDLE,
    "driver/local/kubelet/node.py: Kubelet._heartbeat": IDLE,
    "driver/local/kubelet/plugins.py: PluginWatcher.run": IDLE,
    "driver/local/scheduler/classic.py: ClassicScheduler.run": IDLE,
    "driver/local/scheduler/structured.py: Scheduler.run": IDLE,
    "driver/view/snapshot_reader.py: SnapshotReader.follow": "tests/view/test_snapshot_reader.py",
    "driver/view/snapshot_reader.py: SnapshotReader.read_first": "tests/view/test_snapshot_reader.py",
    "driver/view/snapshot_reader.py: _show_arrivals": "tests/view/test_snapshot_reader.py",
    "driver/view/update_stream.py: UpdateStream.run": "tests/view/test_update_stream.py",
    "driver/runtime/work_queue.py: WorkQueue.run": "tests/runtime/test_work_queue.py",
}
"""The endless loops by module and function, and a test module on the virtual clock that drives each."""
NOT_DRIVEN: Final = {
    "driver/cli/cluster/top_app.py: TopApp._explain": "each round waits for a thread, which takes real time",
    "driver/cli/cluster/top_app.py: TopApp._follow": "each round waits for a key or a pause, in Textual's own loop",
    "driver/controller/structured/placement/extender_server.py: ExtenderServer._wait_for_change": (
        "each round waits for a thread, which takes real time"
    ),
    "driver/controller/structured/placement/extender_server.py: ExtenderServer.serve": (
        "each round waits for new certificates"
    ),
    "driver/demo/environment.py: DemoEnvironment.wait_for": "waits for other processes, as long as its caller says",
    "driver/demo/own_manifests.py: OwnManifests._wait": "waits for other processes, until a person stops it",
    "driver/kubeletplugin/discovery_handlers/remote_handlers.py: RegistrationServer.run": (
        "each round waits for a thread, which takes real time"
    ),
    "driver/kubeletplugin/grpc/device_plugin.py: ResourceServer._wait_until_stale": (
        "each round waits for a thread, which takes real time"
    ),
    "driver/kubeletplugin/grpc/device_plugin.py: ResourceServer.run": (
        "each round waits for a thread, which takes real time"
    ),
    "driver/kubeletplugin/instance.py: Instance._work": "waits in InstanceLock.acquire",
    "driver/mps/service.py: run": "each round waits for a thread, which takes real time",
}


def endless_loops() -> Iterator[str]:
    """Yield each coroutine of the product with ``while True``; generators go on only when they are asked."""
    for path in modules("driver"):
        yield from (f"{path}: {name}" for name in _find_in(tree(path), ()))


def _find_in(node: ast.AST, outer: tuple[str, ...]) -> Iterator[str]:
    for child in ast.iter_child_nodes(node):
        is_named = isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        name = (*outer, child.name) if is_named else outer  # type: ignore[attr-defined]
        if isinstance(child, ast.AsyncFunctionDef) and _is_endless(child):
            yield ".".join(name)
        yield from _find_in(child, name)


def _is_endless(function: ast.AsyncFunctionDef) -> bool:
    inside = list(ast.walk(function))
    loops = any(isinstance(one, ast.While) and isinstance(one.test, ast.Constant) for one in inside)
    return loops and not any(isinstance(one, ast.Yield | ast.YieldFrom) for one in inside)


def test_every_endless_loop_is_driven_on_the_virtual_clock_or_says_why_not() -> None:
    assert sorted(endless_loops()) == sorted([*DRIVEN, *NOT_DRIVEN])


@pytest.mark.parametrize("module", sorted({*DRIVEN.values()}))
def test_what_drives_it_is_on_the_virtual_clock(module: str) -> None:
    assert "VIRTUAL_TIME" in (ROOT / module).read_text()
