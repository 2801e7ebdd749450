"""What a node writes of objects that others have made or described, and how many it makes itself."""

from collections.abc import Callable

import pytest

from kerf_dra.api.discovery.v1alpha1 import FoundDevice
from kerf_dra.api.kerf.discovery_objects import device_name
from kerf_dra.driver.families.shared.objects import MAX_FOUND
from kerf_dra.driver.kubeletplugin.discovery_handlers.service import SEEN_OTHERWISE
from tests.kube.memory_server import MemoryServer
from tests.kubeletplugin.discovery_handlers.test_service import (
    SHARED,
    SOON_S,
    Finder,
    Node,
    camera,
    configure,
    devices,
    local,
)
from tests.runtime.virtual_time import VIRTUAL_TIME, pass_time

SAME_DIGEST = "x24260654"
"""Another id with the digest of rtsp://10.0.0.7: one in 16 million has it."""
LOCAL = device_name("cams", "/dev/video0", node="n1")


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, object]]:
    return VIRTUAL_TIME


async def test_a_device_whose_name_another_one_has_is_told_and_never_written_over() -> None:
    server = MemoryServer()
    configure(server)
    async with Node("n1", server, Finder((camera(SAME_DIGEST),))).running():
        await pass_time(SOON_S)
    assert devices(server) == {SHARED: ["n1"]}
    async with Node("n2", server, Finder((camera(), local("a")))).running() as node:
        await pass_time(SOON_S)
    assert server.objects["discovereddevices", "", SHARED]["spec"]["deviceID"] == SAME_DIGEST
    assert devices(server)[device_name("cams", "a", node="n2")] == ["n2"]
    assert node.events[0][0] == "DeviceNotEntered"
    assert f"already that of device '{SAME_DIGEST}'" in node.events[0][1]


async def test_a_device_whose_name_another_node_has_taken_is_entered_once_the_controller_has_removed_that() -> None:
    """A node does not follow objects with the labels of others, so it must ask again."""
    server = MemoryServer()
    configure(server)
    spec = {"configurationName": "cams", "deviceID": "else", "shared": False, "nodes": ["n2"], "foundBy": "n2"}
    metadata = {"name": LOCAL, "labels": {"kerf.dev/node": "n2"}}
    server.put("discovereddevices", {"metadata": metadata, "spec": spec})
    async with Node("n1", server, Finder((local("/dev/video0"), local("/dev/video1")))).running() as node:
        await pass_time(1800)
        assert devices(server) == {LOCAL: ["n2"], device_name("cams", "/dev/video1", node="n1"): ["n1"]}
        [(reason, message)] = node.events
        assert (reason, "is another device's" in message) == ("DeviceNotEntered", True)
        server.remove("discovereddevices", LOCAL)
        await pass_time(61)
        assert devices(server)[LOCAL] == ["n1"]


async def test_a_node_makes_no_more_objects_than_it_may_and_goes_on_when_devices_are_gone() -> None:
    server = MemoryServer()
    for name in ("one", "two"):
        configure(server, name=name)
    half = MAX_FOUND // 2 + 1
    finder = Finder([local(f"d{number}") for number in range(half)])
    async with Node("n1", server, finder).running() as node, Node("n2", server, Finder((local("d"),))).running():
        await pass_time(SOON_S)
        own = {name for name, nodes in devices(server).items() if nodes == ["n1"]}
        assert (len(own), len(devices(server))) == (MAX_FOUND, MAX_FOUND + 2)
        assert {(reason, "may make no more" in message) for reason, message in node.events} == {
            ("DeviceNotEntered", True)
        }
        finder.find(*(local(f"d{number}") for number in range(half - 1)))
        await pass_time(SOON_S)
        finder.find(*(local(f"e{number}") for number in range(half - 1)))
        await pass_time(600)
        assert sum(nodes == ["n1"] for nodes in devices(server).values()) == MAX_FOUND


async def test_nodes_that_see_different_properties_do_not_write_over_one_another() -> None:
    server = MemoryServer()
    configure(server)
    one, two = Finder((camera(URL="from n1"),)), Finder((camera(URL="from n2"),))
    async with Node("n2", server, two).running():
        await pass_time(60)
        assert server.objects["discovereddevices", "", SHARED]["spec"]["properties"] == {"URL": "from n2"}
        async with Node("n1", server, one).running() as node:
            await pass_time(60)
            writes = len(server.sent("PATCH"))
            await pass_time(3600)
            assert len(server.sent("PATCH")) == writes
            assert server.objects["discovereddevices", "", SHARED]["spec"]["properties"] == {"URL": "from n2"}
            [(reason, message)] = node.events
            assert (reason, f"it sees URL of the shared device {SHARED} otherwise" in message) == (SEEN_OTHERWISE, True)


@pytest.mark.parametrize(
    ("made", "expected"),
    [(local, {"SAME": "2", "NEW": "3"}), (camera, {"OLD": "1", "SAME": "2"})],
    ids=["of its own", "shared, as it was said first"],
)
async def test_a_device_that_changes_is_written_again_if_it_is_the_nodes_own(
    made: Callable[..., FoundDevice], expected: dict[str, str]
) -> None:
    server = MemoryServer()
    configure(server)
    async with Node("n1", server, Finder((made("/dev/video0", OLD="1", SAME="2"),))).running() as node:
        await pass_time(SOON_S)
        node.finder.find(made("/dev/video0", SAME="2", NEW="3"))
        await pass_time(SOON_S)
    [held] = [value for (collection, _, _), value in server.objects.items() if collection == "discovereddevices"]
    assert (held["spec"]["properties"], held["spec"]["foundBy"]) == (expected, "n1")


async def test_a_device_whose_object_a_person_has_made_is_entered_there() -> None:
    server = MemoryServer()
    configure(server)
    what = {"configurationName": "cams", "deviceID": "rtsp://10.0.0.7", "shared": True, "capacity": 7}
    metadata = {"name": SHARED, "labels": {"kerf.dev/node": "Shared"}}  # as the controller has written it
    server.put("discovereddevices", {"metadata": metadata, "spec": what})
    async with Node("n1", server, Finder((camera(URL="u"),))).running() as node:
        await pass_time(SOON_S)
        assert server.objects["discovereddevices", "", SHARED]["spec"] == {**what, "nodes": ["n1"]}
        assert [reason for reason, _ in node.events] == [SEEN_OTHERWISE]
        node.finder.find()
        await pass_time(SOON_S)
    assert devices(server) == {SHARED: []}
