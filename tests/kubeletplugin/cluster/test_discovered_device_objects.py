"""On Kubernetes 1.29 to 1.31 a node follows the discovered devices that it may see, and the configurations."""

from itertools import product
from typing import Any

import anyio
import pytest

from kerf_dra.api.kerf.discovery_objects import DeviceUser, device_name
from kerf_dra.driver.families.shared.node_labels import make_labels
from kerf_dra.driver.kube.http.client import PatchType
from kerf_dra.driver.kube.http.errors import ConflictError
from kerf_dra.driver.kubeletplugin.cluster.discovered_device_objects import DiscoveredDeviceWatch
from tests.kube.memory_server import MemoryServer
from tests.runtime.virtual_time import VIRTUAL_TIME


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, object]]:
    return VIRTUAL_TIME


async def test_a_node_follows_its_own_devices_and_shared_ones_and_no_others() -> None:
    """In a cluster of a thousand nodes each followed the devices of all."""
    server = MemoryServer()
    spec: dict[str, Any]
    for configuration in ("cams", "mics"):
        spec = {"discoveryHandler": {"name": "x"}}
        server.put("discoveryconfigurations", {"metadata": {"name": configuration}, "spec": spec})
    expected = set()
    places = (("n1", False), ("n2", False), ("n2", True))
    for configuration, (node, shared) in product(("cams", "mics"), places):
        name = device_name(configuration, "a", node=None if shared else node)
        metadata = {"name": name, "labels": make_labels(node, shared=shared)}
        spec = {"configurationName": configuration, "deviceID": "a", "shared": shared, "nodes": [node]}
        server.put("discovereddevices", {"metadata": metadata, "spec": spec})
        if shared or node == "n1":
            expected.add(name)
    watch = DiscoveredDeviceWatch(server.client(), "n1", poll_s=1, field_manager="test")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watch.run)
        while not watch.is_synced:
            await watch.changed.wait()
        assert {*watch.discovery.devices} == expected
        read = [await watch.read(name) for name in expected]
        assert [watch.join(one) for one in read if one] == [watch.discovery.devices[name] for name in expected]
        tasks.cancel_scope.cancel()


async def test_a_node_enters_the_users_of_a_device_in_its_status_unless_it_has_changed() -> None:
    server = MemoryServer()
    name = device_name("cams", "a", node="n1")
    spec = {"configurationName": "cams", "deviceID": "a", "shared": False, "nodes": ["n1"]}
    server.put("discovereddevices", {"metadata": {"name": name}, "spec": spec})
    watch = DiscoveredDeviceWatch(server.client(), "n1", poll_s=1, field_manager="test")
    read = await watch.read(name)
    assert read is not None
    assert watch.join(read) is None, "its configuration is not known yet"
    user = DeviceUser(node="n1", resource="kerf.dev/cams", id="0")
    await watch.write_users(read, [user])
    (request,) = server.sent("PATCH")
    assert (request.path.rpartition("/")[2], request.content_type) == ("status", PatchType.MERGE.value)
    written = await watch.read(name)
    assert written is not None
    assert written.status.users == (user,)
    with pytest.raises(ConflictError):
        await watch.write_users(read, [])


async def test_who_waits_for_a_change_learns_that_nothing_is_there_once_that_is_known() -> None:
    watch = DiscoveredDeviceWatch(MemoryServer().client(), "n1", poll_s=1, field_manager="test")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watch.run)
        with anyio.fail_after(60):
            await watch.changed.wait()
        assert watch.is_synced
        tasks.cancel_scope.cancel()
