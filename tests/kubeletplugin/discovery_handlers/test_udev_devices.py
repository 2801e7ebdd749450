"""The devices of a node, read from ``/sys`` and udev's notes below any root."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kerf_dra.driver.kubeletplugin.discovery_handlers.udev_devices import ATTRIBUTE_BYTES, UdevTree
from tests.kubeletplugin.discovery_handlers.udev_node import UdevNode

HUB = "devices/pci0000:00/0000:00:14.0/usb1/1-1"
VIDEO = f"{HUB}/1-1:1.0/video4linux/video0"


@pytest.fixture
def node(tmp_path: Path) -> UdevNode:
    node = UdevNode(tmp_path)
    node.add("devices/pci0000:00/0000:00:14.0", link="bus/pci/devices/0000:00:14.0", vendor="0x8086\n")
    hub = node.add(HUB, link="bus/usb/devices/1-1", idVendor="046d\n", idProduct="0825\n")
    interface = node.add(f"{HUB}/1-1:1.0", link="bus/usb/devices/1-1:1.0")
    for device, driver in ((hub, "usb"), (interface, "uvcvideo")):
        folder = node.sys / "bus/usb/drivers" / driver
        folder.mkdir(parents=True)
        (device / "driver").symlink_to(os.path.relpath(folder, device))
    node.add(
        VIDEO,
        link="class/video4linux/video0",
        uevent="MAJOR=81\nMINOR=0\nDEVNAME=video0\n",
        notes={"c81:0": "S:v4l/by-id/cam\nI:1\nE:ID_V4L_CAPABILITIES=:capture:\nG:uaccess\nG:seat\nQ:seat\nV:1\n"},
        name="Camera\n",
    )
    node.add(
        "devices/virtual/block/cciss!c0d0",
        link="class/block/cciss!c0d0",
        uevent="MAJOR=104\nMINOR=0\nDEVNAME=cciss/c0d0\n",
        notes={"b104:0": "E:ID_TYPE=disk\n", "c104:0": "E:ID_TYPE=wrong\n"},
    )
    node.add(
        "devices/virtual/net/lo", link="class/net/lo", uevent="INTERFACE=lo\nIFINDEX=1\n", notes={"n1": "G:systemd\n"}
    )
    node.add("devices/virtual/sound/card0", link="class/sound/card0", notes={"+sound:card0": "E:SOUND=yes\n"})
    return node


@pytest.mark.parametrize(
    ("rule", "found"),
    [
        ('KERNEL=="video*"', {f"/{VIDEO}": "/dev/video0"}),
        ('SUBSYSTEM=="video4linux"', {f"/{VIDEO}": "/dev/video0"}),
        ('SUBSYSTEM=="video4linux|sound", KERNEL=="card?"', {"/devices/virtual/sound/card0": ""}),
        ('ATTR{name}=="Camera"', {f"/{VIDEO}": "/dev/video0"}),
        ('ATTR{name}!="Camera", SUBSYSTEM=="video4linux"', {}),
        ('ATTRS{idVendor}=="046d", KERNEL=="video*"', {f"/{VIDEO}": "/dev/video0"}),
        ('ATTRS{idVendor}=="046d", DRIVERS=="usb", SUBSYSTEM=="video4linux"', {f"/{VIDEO}": "/dev/video0"}),
        ('ATTRS{vendor}=="0x8086", SUBSYSTEM=="video4linux"', {f"/{VIDEO}": "/dev/video0"}),
        ('SUBSYSTEMS=="pci", SUBSYSTEM=="video4linux"', {f"/{VIDEO}": "/dev/video0"}),
        ('DRIVER=="uvcvideo"', {f"/{HUB}/1-1:1.0": ""}),
        ('ATTR{driver}=="uvcvideo"', {f"/{HUB}/1-1:1.0": ""}),
        ('ATTR{device/vendor}=="0x8086"', {}),
        ('ENV{ID_V4L_CAPABILITIES}=="*:capture:*"', {f"/{VIDEO}": "/dev/video0"}),
        ('ENV{DEVNAME}=="/dev/video0"', {f"/{VIDEO}": "/dev/video0"}),
        ('ENV{DEVLINKS}=="/dev/v4l/by-id/cam"', {f"/{VIDEO}": "/dev/video0"}),
        ('ENV{TAGS}==":seat:uaccess:"', {f"/{VIDEO}": "/dev/video0"}),
        ('TAG=="uaccess"', {f"/{VIDEO}": "/dev/video0"}),
        ('TAG=="systemd"', {"/devices/virtual/net/lo": ""}),
        ('ENV{SOUND}=="yes"', {"/devices/virtual/sound/card0": ""}),
        ('ENV{ID_TYPE}=="disk"', {"/devices/virtual/block/cciss!c0d0": "/dev/cciss/c0d0"}),
        ('KERNEL=="cciss/c0d0"', {"/devices/virtual/block/cciss!c0d0": "/dev/cciss/c0d0"}),
        ('DEVPATH=="/devices/virtual/net/lo"', {"/devices/virtual/net/lo": ""}),
        ('SUBSYSTEM=="nothing"', {}),
        ('SUBSYSTEM=="../../.."', {}),
    ],
)
def test_devices_are_found_by_what_kernel_and_udev_say_of_them(
    node: UdevNode, rule: str, found: dict[str, str]
) -> None:
    assert node.find(rule) == found


def test_a_device_is_found_once_although_a_bus_and_a_class_have_it(node: UdevNode) -> None:
    entry = node.sys / "class/also/video0"
    entry.parent.mkdir()
    entry.symlink_to(os.path.relpath(node.sys / VIDEO, entry.parent))
    paths = [device.devpath for device in UdevTree(node.root).list_devices()]
    assert sorted(paths) == sorted({*paths})
    assert f"/{VIDEO}" in paths


def test_what_is_no_device_or_leads_out_of_sys_is_passed_over(node: UdevNode) -> None:
    (node.sys / "class/gpio").mkdir()
    (node.sys / "class/gpio/export").touch()
    (node.sys / "class/gpio/out").symlink_to("/etc")
    (node.sys / "class/gpio/far").symlink_to("../../../../etc")
    (node.sys / "class/gpio/gone").symlink_to("../../devices/gone")
    (node.sys / "class/gpio/back").symlink_to("../net/lo")
    assert [device.devpath for device in UdevTree(node.root).list_devices(["gpio"])] == ["/devices/gone"]
    assert node.find('SUBSYSTEM=="gpio"') == {}, "what is gone has no subsystem"


def test_a_node_without_udev_has_devices_without_notes(node: UdevNode) -> None:
    shutil.rmtree(node.root / "run")
    assert node.find('TAG=="uaccess"') == {}
    assert node.find('KERNEL=="video0"') == {f"/{VIDEO}": "/dev/video0"}


def test_a_root_without_anything_has_no_devices(tmp_path: Path) -> None:
    assert list(UdevTree(tmp_path).list_devices()) == []


def test_of_an_attribute_without_end_a_page_is_read_and_a_pipe_is_none(node: UdevNode) -> None:
    (node.sys / VIDEO / "long").write_text("a" * 100_000)
    os.mkfifo(node.sys / VIDEO / "pipe")
    [device] = UdevTree(node.root).list_devices(["video4linux"])
    assert device.read_attribute("long") == "a" * ATTRIBUTE_BYTES
    assert device.read_attribute("pipe") is None
    assert device.read_attribute("nothing") is None


def test_bytes_that_are_no_text_keep_no_device_from_being_found(node: UdevNode) -> None:
    (node.sys / VIDEO / "name").write_bytes(b"Cam\xe9ra\n")
    assert node.find('KERNEL=="video0", ATTR{name}=="Cam?ra"') == {f"/{VIDEO}": "/dev/video0"}


@pytest.mark.skipif(shutil.which("umockdev-run") is None, reason="umockdev is not installed")
def test_the_devices_of_umockdev_are_found_where_libudev_finds_them(tmp_path: Path) -> None:
    """Debian's umockdev puts devices of its own into ``/sys`` of the programs that it runs."""
    (tmp_path / "camera.umockdev").write_text(
        "P: /devices/pci0000:00/0000:00:14.0/usb1/1-1\n"
        "E: SUBSYSTEM=usb\n"
        "A: idVendor=046d\n\n"
        "P: /devices/pci0000:00/0000:00:14.0/usb1/1-1/video4linux/video7\n"
        "N: video7\n"
        "E: DEVNAME=/dev/video7\n"
        "E: SUBSYSTEM=video4linux\n"
        "E: MAJOR=81\n"
        "E: MINOR=7\n"
        "A: name=Camera\n"
    )
    program = (
        "import json, pathlib, sys\n"
        "from kerf_dra.driver.kubeletplugin.discovery_handlers.built_in_handlers import find_nodes\n"
        "from kerf_dra.driver.kubeletplugin.discovery_handlers.udev_devices import UdevTree\n"
        "from kerf_dra.driver.kubeletplugin.discovery_handlers.udev_rules import parse_udev_rule\n"
        "print(json.dumps(dict(find_nodes(UdevTree(pathlib.Path('/')), [parse_udev_rule(sys.argv[1])]))))\n"
    )
    rule = 'SUBSYSTEM=="video4linux", ATTR{name}=="Camera", ATTRS{idVendor}=="046d"'
    command = ["umockdev-run", "--device", str(tmp_path / "camera.umockdev"), "--", sys.executable, "-c", program, rule]
    answer = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    path = "/devices/pci0000:00/0000:00:14.0/usb1/1-1/video4linux/video7"
    assert json.loads(answer.stdout) == {path: "/dev/video7"}
