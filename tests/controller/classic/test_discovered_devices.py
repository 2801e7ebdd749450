"""What the controller writes of discovered devices where nodes count their users."""

from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import anyio
import pytest
import yaml

from kerf_dra.api.core.v1 import CUSTOM_RESOURCE_DEFINITIONS, NODES, Node
from kerf_dra.api.kerf.discovery_objects import (
    DISCOVERED_DEVICES,
    DISCOVERY_CONFIGURATIONS,
    DiscoveredDeviceObject,
    DiscoveredDevices,
)
from kerf_dra.api.model.base import JsonObject
from kerf_dra.api.model.metadata import ObjectMeta
from kerf_dra.driver.controller.classic.discovered_devices import DiscoveredDeviceKeeper
from kerf_dra.driver.kube.events import EventReporter
from kerf_dra.driver.kube.http.client import Client, PatchType
from kerf_dra.driver.kube.http.credentials import Access
from kerf_dra.driver.kube.http.errors import NotFoundError
from kerf_dra.driver.kube.http.transport import HttpRequest
from kerf_dra.driver.kube.http.write_history import UndoneWriteError
from kerf_dra.driver.kube.store import Store
from kerf_dra.driver.local.apiserver import ApiServer
from tests.kube.memory_server import MemoryServer, answering, failing

CRDS = Path(__file__).parents[3] / "deploy/crds"
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
CAMERA = "cameras-3f850a"
ANY = "akri.sh/cameras"


def make_events(client: Client) -> EventReporter:
    return EventReporter(client, component="kerf-controller", instance="one")


def make_keeper(client: Client) -> DiscoveredDeviceKeeper:
    return DiscoveredDeviceKeeper(client, nodes=Store(), events=make_events(client), interval_s=30, now=lambda: NOON)


class Devices:
    """An API server with node ``n1`` and a device that ``n1`` sees, and the controller's part."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.now = NOON
        self.store: Store[Node] = Store()
        self.keeper = DiscoveredDeviceKeeper(
            client, nodes=self.store, events=make_events(client), interval_s=30, now=lambda: self.now
        )

    async def apply(self, kind: Any, name: str, spec: JsonObject) -> None:
        await self.client.apply(kind, {"metadata": {"name": name}, "spec": spec}, field_manager="test")

    async def see(self, *nodes: str) -> None:
        spec = {"configurationName": "cameras", "deviceID": "rtsp://10.0.0.7", "shared": True, "nodes": [*nodes]}
        await self.apply(DISCOVERED_DEVICES, CAMERA, spec)

    async def use(self, *users: str) -> None:
        """Enter users, by node and id (``n1/3f850a-0``)."""
        parts = [user.split("/") for user in users]
        entries = [{"node": node, "resource": ANY, "id": id_} for node, id_ in parts]
        await self.client.patch(
            DISCOVERED_DEVICES,
            CAMERA,
            {"status": {"users": entries}},
            type=PatchType.MERGE,
            subresource="status",
            field_manager="test",
        )

    async def write(self, times: int = 2) -> DiscoveredDeviceObject:
        """Let the controller look so often, and return the device."""
        for _ in range(times):
            await self.keeper.write()
        return await self.client.get(DISCOVERED_DEVICES, CAMERA)


@pytest.fixture
async def devices() -> AsyncIterator[Devices]:
    server = ApiServer()
    async with anyio.create_task_group() as tasks:
        await tasks.start(server.serve)
        async with Client(Access(server=server.url), user_agent="test") as client:
            for path in CRDS.glob("kerf.dev_discover*.yaml"):
                await client.apply(CUSTOM_RESOURCE_DEFINITIONS, yaml.safe_load(path.read_text()), field_manager="test")
            await client.create(NODES, Node(metadata=ObjectMeta(name="n1")))
            found = Devices(client)
            spec = {"discoveryHandler": {"name": "static"}, "capacity": 3, "extendedResourceDomain": "akri.sh"}
            await found.apply(DISCOVERY_CONFIGURATIONS, "cameras", spec)
            await found.see("n1")
            yield found
        tasks.cancel_scope.cancel()


def reasons(held: Any) -> dict[str, tuple[str, str]]:
    return {one.type: (one.status, one.reason) for one in held.status.conditions}


async def test_a_device_says_by_which_limits_pods_get_it(devices: Devices) -> None:
    held = await devices.write()
    assert reasons(held) == {"Published": ("False", "ClassicDRA")}
    assert f"{ANY} or akri.sh/{CAMERA}" in held.status.conditions[0].message
    configuration = await devices.client.get(DISCOVERY_CONFIGURATIONS, "cameras")
    assert reasons(configuration) == {"Accepted": ("True", "Valid"), "Ready": ("False", "ClassicDRA")}
    assert configuration.status.devices is not None
    assert (configuration.status.devices.total, configuration.status.devices.online) == (1, 1)


async def test_what_is_right_is_not_written_again(devices: Devices) -> None:
    before = await devices.write()
    devices.now += timedelta(hours=1)
    assert (await devices.write()).metadata.resource_version == before.metadata.resource_version


async def test_users_stay_as_their_nodes_have_entered_them(devices: Devices) -> None:
    await devices.use("n1/3f850a-1", "n1/3f850a-0")
    held = await devices.write()
    assert [user.id for user in held.status.users] == ["3f850a-1", "3f850a-0"]
    assert held.status.conditions


async def test_a_device_gets_the_label_by_which_its_nodes_follow_it(devices: Devices) -> None:
    for lost in (None, "n2"):
        patch = {"metadata": {"labels": {"kerf.dev/node": lost, "example.com/place": "hall"}}}
        await devices.client.patch(DISCOVERED_DEVICES, CAMERA, patch, type=PatchType.MERGE, field_manager="test")
        held = await devices.write()
        assert held.metadata.labels == {"kerf.dev/node": "Shared", "example.com/place": "hall"}
        assert held.spec["nodes"] == ["n1"]


async def test_ak_20_a_node_that_is_gone_leaves_the_device_and_its_users(devices: Devices) -> None:
    await devices.see("n1", "n2")
    await devices.use("n2/3f850a-0", "n1/3f850a-0")
    held = await devices.write(times=3)
    assert held.spec["nodes"] == ["n1"]
    assert [user.node for user in held.status.users] == ["n1"]
    assert held.status.offline_since is None


async def test_ak_19_a_device_that_no_node_sees_is_kept_for_its_grace_and_as_long_as_it_is_used(
    devices: Devices,
) -> None:
    await devices.write()
    await devices.see()
    await devices.use("n1/3f850a-0")
    held = await devices.write()
    assert reasons(held) == {"Published": ("False", "Offline")}
    assert held.status.offline_since == "2026-01-01T12:00:00Z"
    configuration = await devices.client.get(DISCOVERY_CONFIGURATIONS, "cameras")
    assert configuration.status.devices == DiscoveredDevices(total=1, online=0)
    devices.now += timedelta(seconds=299)
    await devices.use()
    await devices.write()
    await devices.use("n1/3f850a-0")
    devices.now += timedelta(seconds=1)
    await devices.write()  # the grace is over, but it has a user
    await devices.use()
    with pytest.raises(NotFoundError):
        await devices.write()


async def test_ak_19_a_device_that_comes_back_is_the_same(devices: Devices) -> None:
    await devices.see()
    before = await devices.write()
    devices.now += timedelta(seconds=299)
    await devices.see("n1")
    held = await devices.write()
    assert held.status.offline_since is None
    assert held.metadata.uid == before.metadata.uid


async def test_without_a_domain_the_objects_say_what_is_missing(devices: Devices) -> None:
    await devices.client.patch(
        DISCOVERY_CONFIGURATIONS,
        "cameras",
        {"spec": {"extendedResourceDomain": None}},
        type=PatchType.MERGE,
        field_manager="test",
    )
    held = await devices.write()
    assert "set extendedResourceDomain" in held.status.conditions[0].message


async def test_what_is_invalid_is_told_and_stays(devices: Devices) -> None:
    await devices.client.delete(DISCOVERY_CONFIGURATIONS, "cameras")
    held = await devices.write()
    assert reasons(held) == {"Published": ("False", "Invalid")}
    assert 'DiscoveryConfiguration "cameras" does not exist' in held.status.conditions[0].message


async def test_an_object_with_another_name_than_its_own_is_removed_and_no_other(devices: Devices) -> None:
    spec = {"configurationName": "cameras", "deviceID": "else", "shared": True, "nodes": ["n1"], "foundBy": "n1"}
    await devices.apply(DISCOVERED_DEVICES, "cameras-000000", spec)
    await devices.write()
    assert [one.metadata.name for one in (await devices.client.list(DISCOVERED_DEVICES)).items] == [CAMERA]


@pytest.mark.parametrize(
    "refuse",
    [answering(422, "Invalid"), lambda request: UndoneWriteError(str(request), 3, 30)],
    ids=["refused", "undone by another program"],
)
async def test_what_the_server_refuses_for_good_is_told_once_and_again_when_the_device_was_gone(
    caplog: pytest.LogCaptureFixture, refuse: Callable[[HttpRequest], Exception]
) -> None:
    caplog.set_level("WARNING")  # whatever a test before has set
    server = MemoryServer()
    server.put("nodes", {"metadata": {"name": "n1"}})
    server.put(
        "discoveryconfigurations", {"metadata": {"name": "cameras"}, "spec": {"discoveryHandler": {"name": "x"}}}
    )
    device = {"configurationName": "cameras", "deviceID": "rtsp://10.0.0.7", "shared": True, "nodes": ["n1"]}
    server.faults.append(failing(refuse, method="PATCH", name="discovereddevices"))
    keeper = make_keeper(server.client())
    for times in (1, 2):
        server.put("discovereddevices", {"metadata": {"name": CAMERA}, "spec": device})
        for _ in range(3):
            await keeper.write()
        assert [CAMERA in message for message in caplog.messages] == [True] * times
        server.remove("discovereddevices", CAMERA)
        await keeper.write()


@pytest.mark.parametrize(("code", "reason"), [(404, "NotFound"), (409, "Conflict")])
async def test_a_write_that_comes_too_late_follows_the_next_time(
    code: int, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    server = MemoryServer()
    server.put("nodes", {"metadata": {"name": "n1"}})
    server.put(
        "discoveryconfigurations", {"metadata": {"name": "cameras"}, "spec": {"discoveryHandler": {"name": "x"}}}
    )
    device = {"configurationName": "cameras", "deviceID": "rtsp://10.0.0.7", "shared": True, "nodes": ["n1"]}
    server.put("discovereddevices", {"metadata": {"name": CAMERA}, "spec": device})
    server.faults.append(failing(answering(code, reason), method="PATCH", name="discovereddevices"))
    keeper = make_keeper(server.client())
    await keeper.write()
    assert "status" not in server.objects["discovereddevices", "", CAMERA]
    server.faults.clear()
    for _ in range(2):
        await keeper.write()
    assert server.objects["discovereddevices", "", CAMERA]["status"]["conditions"]
    assert caplog.messages == []
