"""What nodes and the controller do for hardware and resources that nobody has waits between two rounds, too."""

from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
import pytest

from kerf_dra.api.core.v1 import Node
from kerf_dra.api.errors import TransientError
from kerf_dra.api.kerf.discovery_objects import DISCOVERED_DEVICES, device_name
from kerf_dra.api.model.metadata import ObjectMeta
from kerf_dra.api.resource.v1 import KINDS
from kerf_dra.driver.controller.structured.discovery.reconciler import DiscoveryReconciler
from kerf_dra.driver.controller.structured.fpga_objects import FpgaStatusWriter
from kerf_dra.driver.families.gpu import GPU
from kerf_dra.driver.families.shared.objects import Discovery
from kerf_dra.driver.kube.assume_cache import AssumeCache
from kerf_dra.driver.kube.events import EventReporter
from kerf_dra.driver.kube.informer import Informer
from kerf_dra.driver.kube.store import Store
from kerf_dra.driver.kubeletplugin.deviceplugin.discovered_device_offer import UserKeeper
from kerf_dra.driver.kubeletplugin.deviceplugin.reservation_keeper import ReservationKeeper
from kerf_dra.driver.kubeletplugin.deviceplugin.resource_collector import ResourceCollector
from kerf_dra.driver.kubeletplugin.grpc.device_plugin import DevicePluginServer
from kerf_dra.driver.kubeletplugin.node_features import FeatureFile, follow_cards
from kerf_dra.driver.kubeletplugin.settings import Settings
from kerf_dra.driver.runtime.notifier import Notifier, forward
from tests.flows.test_idle_hours import HOUR_S, pass_hour
from tests.kube.memory_server import MemoryServer
from tests.kubeletplugin.observed_state import ObservedState
from tests.runtime.counted_notifier import CountedNotifier
from tests.runtime.virtual_time import VIRTUAL_TIME

SETTINGS = Settings(node_name="n", family=GPU, backends=())
NOTHING: Any = None


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, object]]:
    return VIRTUAL_TIME


@dataclass
class FailingClient:
    """An API server that does not answer."""

    asked: list[float] = field(default_factory=list)

    async def list(self, _kind: object) -> Any:
        self.asked.append(anyio.current_time())
        raise TransientError("no answer")

    async def patch(self, *_: object, **__: object) -> Any:
        raise AssertionError


async def test_the_status_of_fpga_objects_is_tried_at_an_interval_while_nobody_answers(
    caplog: pytest.LogCaptureFixture,
) -> None:
    client = FailingClient()
    await pass_hour(FpgaStatusWriter(client, tuple, interval_s=5, now=lambda: datetime.now(UTC)).run)
    assert len(client.asked) == pytest.approx(HOUR_S / 5, abs=1)
    assert len([one for one in caplog.records if "cannot be written: no answer" in one.message]) == 1


class CountedReconciler(DiscoveryReconciler):
    """One that counts its passes, some of which the API server lets fail."""

    rounds = 0
    failing = 0

    async def reconcile(self) -> datetime | None:
        self.rounds += 1
        if self.rounds <= self.failing:
            raise TransientError("no answer")
        return await super().reconcile()


@pytest.mark.parametrize(("failing", "rounds"), [(0, 1), (100, 101)])
async def test_discovered_devices_are_looked_at_once_and_again_at_an_interval_while_that_fails(
    failing: int, rounds: int
) -> None:
    client = MemoryServer().client()
    reconciler = CountedReconciler(
        client,
        KINDS,
        device_classes=AssumeCache(Store()),
        slices=Store(),
        nodes=Store(),
        events=EventReporter(client, component="kerf-controller", instance="one"),
        settle_s=0.2,
        retry_s=5,
        now=lambda: datetime.now(UTC),
    )
    reconciler.failing = failing
    await pass_hour(reconciler.run)
    assert reconciler.rounds == rounds


def drop_fields(value: dict[str, Any]) -> dict[str, Any]:
    """Keep of a slice what a server without consumable capacity keeps, and without one attribute."""
    for device in value.get("spec", {}).get("devices", ()):
        device.pop("allowMultipleAllocations", None)
        device["capacity"]["users"].pop("requestPolicy", None)
        device["attributes"].pop("multiNode", None)
    return value


async def test_a_device_of_which_the_api_server_drops_fields_has_one_user_and_is_written_no_more() -> None:
    server = MemoryServer(on_write=drop_fields)
    handler = {"discoveryHandler": {"name": "debugEcho"}, "capacity": 2}
    found = {"configurationName": "cameras", "deviceID": "a", "shared": True, "nodes": ["n1"]}
    server.put("discoveryconfigurations", {"metadata": {"name": "cameras"}, "spec": handler})
    server.put("discovereddevices", {"metadata": {"name": device_name("cameras", "a", node=None)}, "spec": found})
    nodes: Store[Node] = Store()
    nodes.put(Node(metadata=ObjectMeta(name="n1")))
    client = server.client()
    classes, slices = Informer(client, KINDS.device_classes), Informer(client, KINDS.resource_slices)
    reconciler = DiscoveryReconciler(
        client,
        KINDS,
        device_classes=AssumeCache(classes.store),
        slices=slices.store,
        nodes=nodes,
        events=EventReporter(client, component="kerf-controller", instance="one"),
        settle_s=0.2,
        retry_s=5,
        now=lambda: datetime.now(UTC),
    )

    async def run() -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(classes.run)
            group.start_soon(slices.run)
            await reconciler.run()

    await pass_hour(run)
    [kept] = (await client.list(KINDS.resource_slices)).items
    assert str(kept.spec.devices[0].capacity["users"].value) == "1"
    writes = [request.method for _, request in server.requests if "resourceslices" in request.path]
    assert [method for method in writes if method != "GET"] == ["POST", "PATCH"]
    [held] = (await client.list(DISCOVERED_DEVICES)).items
    assert [condition.reason for condition in held.status.conditions] == ["NotShareable"]


async def test_the_keeper_of_reservations_looks_twice_a_minute_where_nothing_is_offered() -> None:
    state = ObservedState()
    reservations = state.restrictions.reservations
    reservations.changed = CountedNotifier()
    keeper = ReservationKeeper(
        settings=SETTINGS,
        cluster=NOTHING,
        state=state,
    )
    await pass_hour(keeper.run)
    assert isinstance(reservations.changed, CountedNotifier)
    assert reservations.changed.rounds == pytest.approx(HOUR_S / SETTINGS.reservation_retry_s, abs=1)


async def test_the_collector_of_resources_asks_no_kubelet_where_no_container_has_any() -> None:
    starting = CountedNotifier()
    allocator: Any = SimpleNamespace(starting=starting)
    checkpoint: Any = SimpleNamespace(records={})
    collector = ResourceCollector(
        settings=SETTINGS,
        cluster=NOTHING,
        checkpoint=checkpoint,
        allocator=allocator,
        list_uses=NOTHING,
        surveys=NOTHING,
        clock=anyio.current_time,
    )
    await pass_hour(collector.run)
    assert starting.rounds == pytest.approx(HOUR_S / SETTINGS.usage_interval_s, abs=1)


async def test_the_keeper_of_users_looks_at_its_interval_where_nothing_changes() -> None:
    changed = CountedNotifier()
    source: Any = SimpleNamespace(changed=changed, is_synced=True, discovery=Discovery())
    checkpoint: Any = SimpleNamespace(records={})
    keeper = UserKeeper(source, node="n1", offer=NOTHING, allocator=NOTHING, checkpoint=checkpoint, interval_s=60)
    await pass_hour(keeper.run)
    assert changed.rounds == pytest.approx(HOUR_S / 60, abs=1)


async def test_the_server_of_resources_waits_while_there_are_none() -> None:
    changed = CountedNotifier()
    handler: Any = SimpleNamespace(changed=changed, resources=())
    await pass_hour(DevicePluginServer(SETTINGS, handler).run)
    assert changed.rounds == 1


async def test_a_change_is_passed_on_once() -> None:
    change, to = Notifier(), CountedNotifier()
    told: list[float] = []

    async def listen() -> None:
        while len(told) < 2:
            await to.next_event.wait()
            told.append(anyio.current_time())

    async def run() -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(listen)
            await anyio.lowlevel.checkpoint()
            group.start_soon(forward, change, to)
            await anyio.sleep(60)
            change.notify()

    began = anyio.current_time()
    await pass_hour(run)
    assert told == [began, began + 60]


async def test_a_nodes_features_are_written_when_its_cards_were_refreshed_and_stay_while_they_are_not_known(
    tmp_path: Path,
) -> None:
    refreshed, built = CountedNotifier(), iter(({"cards": "1"}, None, {"cards": "2"}))
    written: list[str] = []

    async def run() -> None:
        file = FeatureFile(tmp_path, "d")
        async with anyio.create_task_group() as group:
            group.start_soon(follow_cards, refreshed, file, lambda: next(built))
            for _ in range(3):
                await anyio.sleep(60)
                written.append((tmp_path / "kerf-d").read_text().splitlines()[-1])
                if len(written) < 3:
                    refreshed.notify()

    await pass_hour(run)
    assert written == ["cards=1", "cards=1", "cards=2"]
    assert refreshed.rounds == 3
