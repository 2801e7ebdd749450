"""What is inside a container is what ``inject`` makes of the same container without devices."""

import stat
import subprocess
from collections.abc import Mapping
from typing import Any

import pytest

from kerf_dra.cdi import (
    HOOK_STAGES,
    Cache,
    ContainerEdits,
    Device,
    DeviceNode,
    Hook,
    IntelRdt,
    Kind,
    Mount,
    NetDevice,
    Semantics,
    Spec,
    inject,
    minimum_version,
)
from tests.cdi.runtimes.conftest import Runtime
from tests.cdi.runtimes.container import ContainerSetup, observe_container

KIND = Kind.parse("acme.io/widget")
BOTH = ["acme.io/widget=first", "acme.io/widget=second"]

# No driver has this number, so opening what a cgroup allows fails all the same, in another way.
_NOBODYS = 195


def widgets(container_setup: ContainerSetup) -> Spec:
    """Every kind of edit that CDI 0.5.0 has: podman of Debian 12 reads no more."""
    shared = str(container_setup.shared)
    return Spec(
        kind=KIND,
        container_edits=ContainerEdits(
            env=("ACME=all",),
            mounts=(Mount(host_path=shared, container_path=shared, options=("bind", "rw", "nosuid")),),
            hooks=tuple(
                Hook(
                    hook_name=stage,
                    path=container_setup.hook,
                    args=("hook", stage, "x y"),
                    env=(f"STAGE={stage}",),
                    timeout=5,
                )
                for stage in HOOK_STAGES
            ),
        ),
        devices=(
            Device(
                name="first",
                container_edits=ContainerEdits(
                    env=("ACME_FIRST=1", "ACME=first=1"),
                    device_nodes=(
                        DeviceNode(path="/dev/acme/null", host_path="/dev/null"),
                        DeviceNode(
                            path="/dev/acme-all", type="c", major=_NOBODYS, minor=1, file_mode=0o640, uid=7, gid=8
                        ),
                        DeviceNode(path="/dev/acme-read", type="c", major=_NOBODYS, minor=2, permissions="r"),
                        DeviceNode(path="/dev/acme-write", type="c", major=_NOBODYS, minor=3, permissions="w"),
                        DeviceNode(path="/dev/acme-block", type="b", major=_NOBODYS, minor=4, permissions="m"),
                    ),
                    mounts=(
                        Mount(host_path="/etc", container_path="/mnt/deep", options=("ro", "bind"), type="bind"),
                        Mount(host_path=shared, container_path="/mnt", options=("ro", "rbind", "nodev")),
                    ),
                ),
            ),
            Device(name="second", container_edits=ContainerEdits(env=("ACME_SECOND=2",))),
        ),
    )


def everything(container_setup: ContainerSetup) -> Spec:
    """Build a spec with every kind of edit, also those since CDI 0.5.0."""
    edits = ContainerEdits(
        env=("ACME_NEW=1",),
        device_nodes=(DeviceNode(path="/dev/acme-pipe", type="p", file_mode=0o600),),
        mounts=(Mount(host_path="tmpfs", container_path="/scratch", options=("size=1m",), type="tmpfs"),),
        additional_gids=(44, 0, 1044, 44),
    )
    return Spec(kind=Kind.parse("acme.io/wid.get"), devices=(Device(name="0", container_edits=edits),))


def beyond(container_setup: ContainerSetup) -> Spec:
    """What needs a newer runc, or other hardware."""
    edits = ContainerEdits(
        net_devices=(NetDevice(host_interface_name="acme0", name="eth1"),),
        intel_rdt=IntelRdt(clos_id="gold", l3_cache_schema="L3:0=f", schemata=("MB:0=50",), enable_monitoring=True),
        additional_gids=(5,),
    )
    return Spec(kind=Kind.parse("acme.io/beyond"), devices=(Device(name="0", container_edits=edits),))


@pytest.fixture
def runtime(request: pytest.FixtureRequest) -> tuple[Runtime, Semantics]:
    """A runtime, and what its library does: podman's is of 2022, containerd's release 1.1.1."""
    runtime: Runtime = request.getfixturevalue(request.param)
    return runtime, "main" if request.param == "containerd" else "1.1"


BOTH_RUNTIMES = pytest.mark.parametrize("runtime", ["podman", "containerd"], indirect=True)


@BOTH_RUNTIMES
def test_inside_is_what_inject_says(container_setup: ContainerSetup, runtime: tuple[Runtime, Semantics]) -> None:
    run, semantics = runtime
    spec = widgets(container_setup)
    assert str(minimum_version(spec)) == "0.5.0"
    container_setup.write("widgets", spec)
    compare_inside(container_setup, run, BOTH, semantics)
    assert sorted(container_setup.calls) == sorted(f"{stage} {stage} x y" for stage in HOOK_STAGES)


def test_newer_edits_are_inside_as_well(container_setup: ContainerSetup, containerd: Runtime) -> None:
    container_setup.write("widgets", widgets(container_setup))
    container_setup.write("everything", everything(container_setup))
    compare_inside(container_setup, containerd, [*BOTH, "acme.io/wid.get=0"], "main")


@pytest.mark.parametrize(
    "devices",
    [
        BOTH,
        ["acme.io/widget=second"],
        ["acme.io/wid.get=0", "acme.io/beyond=0", "acme.io/widget=second"],
    ],
)
def test_runc_is_given_what_inject_says(
    container_setup: ContainerSetup, containerd: Runtime, devices: list[str]
) -> None:
    for spec in (widgets(container_setup), everything(container_setup), beyond(container_setup)):
        container_setup.write(spec.kind.class_name, spec)
    container_setup.make_runc_fail()
    given = {}
    for requested in ([], devices):
        subprocess.run(
            [*containerd(container_setup, requested), "/bin/sh"], capture_output=True, check=False, timeout=60
        )
        given[bool(requested)] = container_setup.oci
    assert given[True] == inject(Cache([container_setup.specs]), given[False], devices, semantics="main")


@BOTH_RUNTIMES
def test_a_device_we_miss_the_runtime_misses(
    container_setup: ContainerSetup, runtime: tuple[Runtime, Semantics]
) -> None:
    container_setup.write("widgets", widgets(container_setup))
    done = subprocess.run(
        [*runtime[0](container_setup, ["acme.io/widget=third"]), "/bin/sh"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode != 0
    assert "unresolvable CDI devices acme.io/widget=third" in done.stderr


def compare_inside(container_setup: ContainerSetup, run: Runtime, devices: list[str], semantics: Semantics) -> None:
    observe_container(run(container_setup, []), [])
    without = container_setup.oci
    container_setup.reset()
    expected = inject(Cache([container_setup.specs]), without, devices, semantics=semantics)
    paths = [device["path"] for device in expected["linux"]["devices"] if "acme" in device["path"]]
    inside = observe_container(run(container_setup, devices), paths)

    env = dict(entry.partition("=")[::2] for entry in expected["process"]["env"])
    assert {name: inside.env.get(name) for name in env if name.startswith("ACME")} == {
        name: value for name, value in env.items() if name.startswith("ACME")
    }
    assert inside.groups == {*expected["process"]["user"].get("additionalGids", ())}
    for mount in (mount for mount in expected["mounts"] if mount not in without["mounts"]):
        assert mount["destination"] in inside.mounts
        kept = {"ro", "nosuid", "nodev", "noexec"}
        assert {*mount.get("options", ())} & kept <= inside.mounts[mount["destination"]], mount
    assert inside.nodes == {
        device["path"]: facts(device) for device in expected["linux"]["devices"] if device["path"] in paths
    }
    assert inside.refused == refusals(expected, paths)


def facts(device: Mapping[str, Any]) -> str:
    """A node as ``stat -c '%F %t %T %a %u %g'`` tells it. runc's default mode is 0666."""
    names = {"b": "block special file", "c": "character special file", "p": "fifo"}
    mode = stat.S_IMODE(device.get("fileMode", 0o666))
    numbers = f"{device['major']:x} {device['minor']:x}"
    return f"{names[device['type']]} {numbers} {mode:o} {device.get('uid', 0)} {device.get('gid', 0)}"


def refusals(oci: Mapping[str, Any], paths: list[str]) -> set[tuple[str, str]]:
    """What the container may not do with nobody's devices, for which there is no other rule than ours."""
    nodes = {
        (device["type"], device["minor"]): device["path"]
        for device in oci["linux"]["devices"]
        if device["path"] in paths and device["major"] == _NOBODYS
    }
    access = {
        nodes[rule["type"], rule["minor"]]: rule["access"]
        for rule in oci["linux"]["resources"]["devices"]
        if rule.get("major") == _NOBODYS
    }
    return {(path, word) for path, letters in access.items() for word in ("read", "write") if word[0] not in letters}
