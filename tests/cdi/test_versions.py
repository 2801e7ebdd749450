"""The lowest version a spec needs, and why."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given

from kerf_dra.cdi import (
    VERSIONS,
    ContainerEdits,
    Device,
    DeviceNode,
    IntelRdt,
    Kind,
    Mount,
    NetDevice,
    Spec,
    minimum_version,
)
from kerf_dra.cdi.runtime_versions import FIRST_RELEASES, find_first_readers
from kerf_dra.cdi.versions import version_that_readers_enforce
from tests.cdi.strategies import SPECS
from tests.conftest import COSTLY

PLAIN = ContainerEdits(env=("A=b",))
KIND = Kind(vendor="acme.io", class_name="widget")


def spec(edits: ContainerEdits = PLAIN, **fields: Any) -> Spec:
    return Spec(**{"kind": KIND, "devices": (Device(name="w", container_edits=edits),), **fields})


MOUNT = Mount(host_path="/h", container_path="/c", options=("bind",))

NEEDS = [
    ("0.3.0", spec(), ()),
    ("0.3.0", spec(ContainerEdits(mounts=(MOUNT,))), ()),
    (
        "0.4.0",
        spec(ContainerEdits(mounts=(replace(MOUNT, type="none"),))),
        ("devices[0].containerEdits.mounts[0].type",),
    ),
    (
        "0.5.0",
        spec(ContainerEdits(device_nodes=(DeviceNode(path="/d"), DeviceNode(path="/e", host_path="/f")))),
        ("devices[0].containerEdits.deviceNodes[1].hostPath",),
    ),
    ("0.5.0", spec(devices=(Device(name="7up", container_edits=PLAIN),)), ("devices[0].name",)),
    ("0.6.0", spec(annotations={"a": "b"}), ("annotations",)),
    (
        "0.6.0",
        spec(devices=(Device(name="7up", container_edits=PLAIN, annotations={"a": "b"}),)),
        ("devices[0].annotations",),
    ),
    ("0.6.0", spec(kind=Kind(vendor="acme.io", class_name="wid.get")), ("kind",)),
    ("0.7.0", spec(container_edits=ContainerEdits(additional_gids=(0,))), ("containerEdits.additionalGids",)),
    ("0.7.0", spec(ContainerEdits(intel_rdt=IntelRdt())), ("devices[0].containerEdits.intelRdt",)),
    (
        "1.1.0",
        spec(ContainerEdits(intel_rdt=IntelRdt(schemata=(), enable_monitoring=True))),
        ("devices[0].containerEdits.intelRdt.schemata", "devices[0].containerEdits.intelRdt.enableMonitoring"),
    ),
    (
        "1.1.0",
        spec(container_edits=ContainerEdits(net_devices=(NetDevice(host_interface_name="a", name="b"),))),
        ("containerEdits.netDevices",),
    ),
]


@pytest.mark.parametrize(("version", "content", "paths"), NEEDS)
def test_the_content_decides_the_version(version: str, content: Spec, paths: tuple[str, ...]) -> None:
    needed = minimum_version(content)
    assert str(needed) == version
    assert tuple(reason.path for reason in needed.reasons) == paths
    for reason in needed.reasons:
        assert str(reason).startswith(f"{version} because of {reason.path} (")


@COSTLY
@given(spec=SPECS, other=SPECS)
def test_adding_content_never_lowers_the_version(spec: Spec, other: Spec) -> None:
    more = replace(
        spec,
        devices=(*spec.devices, *other.devices),
        container_edits=spec.container_edits + replace(other.container_edits, intel_rdt=None),
    )
    assert VERSIONS.index(str(minimum_version(more))) >= VERSIONS.index(str(minimum_version(spec)))


@COSTLY
@given(spec=SPECS)
def test_readers_never_ask_for_more_than_we_declare(spec: Spec) -> None:
    assert VERSIONS.index(version_that_readers_enforce(spec)) <= VERSIONS.index(str(minimum_version(spec)))


def test_readers_overlook_a_host_path_in_a_device_that_is_not_the_last() -> None:
    """Found by asking release 1.1.0 and 1.1.1: two of their checks keep pointers to a loop variable."""
    host_path = Device(name="a", container_edits=ContainerEdits(device_nodes=(DeviceNode(path="/d", host_path="/e"),)))
    plain = Device(name="b", container_edits=PLAIN)
    assert version_that_readers_enforce(spec(devices=(host_path, plain))) == "0.3.0"
    assert version_that_readers_enforce(spec(devices=(plain, host_path))) == "0.5.0"
    assert str(minimum_version(spec(devices=(host_path, plain)))) == "0.5.0"


def test_a_version_is_read_by_releases_that_know_it_or_a_later_one() -> None:
    assert dict(find_first_readers("0.3.0"))["podman"] == "4.1"
    assert dict(find_first_readers("0.5.0"))["Docker Engine"] == "25.0"
    assert dict(find_first_readers("1.1.0")) == {"containerd": "2.2.1", "CRI-O": "1.35", "Docker Engine": "29.2"}


def test_the_runtimes_are_listed_by_versions_there_are() -> None:
    for releases in FIRST_RELEASES.values():
        assert list(releases) == [version for version in VERSIONS if version in releases]
