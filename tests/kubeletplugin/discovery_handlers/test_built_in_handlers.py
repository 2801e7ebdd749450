"""The handlers inside the plugin, on the virtual clock: what details they take, and which devices they find when."""

from collections.abc import Callable, Sequence
from contextlib import aclosing
from pathlib import Path

import anyio
import pytest

from kerf_dra.api.discovery.v1alpha1 import DiscoveryRequest, FoundDevice, FoundDeviceNode, FoundMount
from kerf_dra.driver.kubeletplugin.discovery_handlers.base import DetailsError, HandlerError, NodeDiscoveryHandler
from kerf_dra.driver.kubeletplugin.discovery_handlers.built_in_handlers import POLL_S, SCAN_TIMEOUT_S, make_handlers
from kerf_dra.driver.kubeletplugin.discovery_handlers.udev_devices import UdevTree
from kerf_dra.driver.runtime.worker_threads import Work
from tests.kubeletplugin.discovery_handlers.udev_node import UdevNode
from tests.runtime.virtual_time import VIRTUAL_TIME


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, object]]:
    return VIRTUAL_TIME


def run_at_once(work: Work) -> None:
    work()()


def handler(name: str, folder: Path, start: Callable[[Work], None] = run_at_once) -> NodeDiscoveryHandler:
    return make_handlers(folder, UdevTree(folder), start=start)[name]


async def first(of: NodeDiscoveryHandler, details: str) -> Sequence[FoundDevice]:
    async with aclosing(of.discover(DiscoveryRequest(details=details))) as lists:
        return await anext(lists)


@pytest.mark.parametrize(
    ("name", "details", "reason"),
    [
        ("udev", "", "details.udevRules is required"),
        ("udev", "udevRules: []", "details.udevRules"),
        ("udev", "udevRule: []", 'details.udevRule unknown field; did you mean "udevRules"'),
        ("udev", "udevRules: ['KERNEL==\"a']", "details.udevRules: udev rule .* no closing quote"),
        ("udev", "udevRules: ['KERNEL==\"a\"']\npermissions: rwx", "details.permissions"),
        ("udev", "udevRules: ['KERNEL==\"a\"']\npermissions: mr", "details.permissions"),
        ("udev", "{", "details is not YAML"),
        ("udev", "- a", "details must be an object|details"),
        ("udev", "!!python/object/apply:os.system ['true']", "details is not YAML"),
        ("static", "devices: [{}]", r"details.devices\[0\].id is required"),
        ("static", "devices: [{id: a, mount: []}]", r'details.devices\[0\].mount unknown field; did you mean "mounts"'),
        ("debugEcho", "descriptions: foo", "details.descriptions"),
    ],
)
async def test_ak_28_details_that_are_wrong_are_refused_with_the_field(
    tmp_path: Path, name: str, details: str, reason: str
) -> None:
    with pytest.raises(DetailsError, match=reason):
        await first(handler(name, tmp_path), details)


async def test_a_static_list_is_found_as_it_is_written(tmp_path: Path) -> None:
    details = """
    devices:
    - id: rtsp://10.0.0.7
      shared: true
      properties: {CAMERA_URL: rtsp://10.0.0.7}
    - id: modem
      deviceNodes: [{hostPath: /dev/ttyUSB0, permissions: rw}]
      mounts: [{hostPath: /etc/modem, readOnly: true}]
    """
    assert await first(handler("static", tmp_path), details) == (
        FoundDevice(id="rtsp://10.0.0.7", shared=True, properties={"CAMERA_URL": "rtsp://10.0.0.7"}),
        FoundDevice(
            id="modem",
            device_nodes=(FoundDeviceNode(host_path="/dev/ttyUSB0", permissions="rw"),),
            mounts=(FoundMount(host_path="/etc/modem", read_only=True),),
        ),
    )


async def test_ak_31_devices_of_debug_echo_are_there_unless_a_file_says_that_they_are_offline(tmp_path: Path) -> None:
    file = tmp_path / "debug-echo-availability.txt"
    lists: list[tuple[float, list[str]]] = []

    async def follow() -> None:
        details = "descriptions: [foo0, foo1]\nshared: true"
        async for devices in handler("debugEcho", tmp_path).discover(DiscoveryRequest(details=details)):
            assert all(device.shared for device in devices)
            assert all(device.properties == {"DEBUG_ECHO_DESCRIPTION": device.id} for device in devices)
            lists.append((anyio.current_time() - began, [device.id for device in devices]))

    began = anyio.current_time()
    async with anyio.create_task_group() as group:
        group.start_soon(follow)
        await anyio.sleep(100.5)
        file.write_text("OFFLINE\n")
        await anyio.sleep(100)
        file.write_text("")
        await anyio.sleep(100)
        group.cancel_scope.cancel()
    assert lists == [(0, ["foo0", "foo1"]), (110, []), (210, ["foo0", "foo1"])]


async def test_ak_27_udev_finds_device_nodes_for_containers_and_tells_changes_only(tmp_path: Path) -> None:
    node = UdevNode(tmp_path)
    node.add("devices/a/video0", link="class/video4linux/video0", uevent="MAJOR=81\nMINOR=0\nDEVNAME=video0\n")
    lists: list[tuple[float, Sequence[FoundDevice]]] = []

    async def follow() -> None:
        details = "udevRules: ['KERNEL==\"video*\"', 'SUBSYSTEM==\"video4linux\"']\npermissions: rw"
        async for devices in handler("udev", tmp_path).discover(DiscoveryRequest(details=details)):
            lists.append((anyio.current_time() - began, devices))

    def video(number: int) -> FoundDevice:
        path = f"/dev/video{number}"
        return FoundDevice(
            id=f"/devices/a/video{number}",
            properties={"UDEV_DEVPATH": f"/devices/a/video{number}", "UDEV_DEVNODE": path},
            device_nodes=(FoundDeviceNode(host_path=path, permissions="rw"),),
        )

    began = anyio.current_time()
    async with anyio.create_task_group() as group:
        group.start_soon(follow)
        await anyio.sleep(95)
        node.add("devices/a/video1", link="class/video4linux/video1", uevent="MAJOR=81\nMINOR=1\nDEVNAME=video1\n")
        await anyio.sleep(100)
        group.cancel_scope.cancel()
    assert lists == [(0, (video(0),)), (100, (video(0), video(1)))]


async def test_a_device_and_those_behind_it_are_one_if_a_configuration_says_so(tmp_path: Path) -> None:
    node = UdevNode(tmp_path)
    for path in ("devices/usb1", "devices/usb1/video0", "devices/usb10", "devices/usb10/deep/video1"):
        name = path.rpartition("/")[2]
        node.add(path, link=f"class/x/{name}", uevent=f"MAJOR=1\nMINOR=2\nDEVNAME={name}\n")
    details = "udevRules: ['SUBSYSTEM==\"x\"']\ngroupRecursive: true"
    found = await first(handler("udev", tmp_path), details)
    assert [(device.id, device.properties) for device in found] == [
        (
            "/devices/usb1",
            {"UDEV_DEVPATH": "/devices/usb1", "UDEV_DEVNODE_0": "/dev/usb1", "UDEV_DEVNODE_1": "/dev/video0"},
        ),
        (
            "/devices/usb10",
            {"UDEV_DEVPATH": "/devices/usb10", "UDEV_DEVNODE_0": "/dev/usb10", "UDEV_DEVNODE_1": "/dev/video1"},
        ),
    ]
    assert [node.host_path for node in found[0].device_nodes] == ["/dev/usb1", "/dev/video0"]


async def test_a_look_at_the_devices_that_hangs_is_an_error_and_is_not_begun_again_before_it_returns(
    tmp_path: Path,
) -> None:
    hanging: list[Work] = []
    udev = handler("udev", tmp_path, start=hanging.append)
    details = "udevRules: ['KERNEL==\"a\"']"
    began = anyio.current_time()
    with pytest.raises(HandlerError, match="has taken more than"):
        await first(udev, details)
    assert anyio.current_time() - began == SCAN_TIMEOUT_S > POLL_S
    with pytest.raises(HandlerError, match="has taken more than"):
        await first(udev, details)
    assert len(hanging) == 1
    hanging.pop()()()
    await anyio.sleep(1)
    with pytest.raises(HandlerError, match="has taken more than"):
        await first(udev, details)
    assert len(hanging) == 1


async def test_a_look_is_for_all_who_look_for_the_same(tmp_path: Path) -> None:
    begun: list[Work] = []
    udev = handler("udev", tmp_path, start=begun.append)
    lists: list[Sequence[FoundDevice]] = []

    async def look() -> None:
        lists.append(await first(udev, "udevRules: ['KERNEL==\"a\"']"))

    async with anyio.create_task_group() as group:
        group.start_soon(look)
        group.start_soon(look)
        await anyio.sleep(1)
        [work] = begun
        work()()
    assert lists == [(), ()]
