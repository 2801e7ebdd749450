"""Devices by name into an OCI spec."""

from pathlib import Path

import pytest

from kerf_dra.cdi import (
    Cache,
    ContainerEdits,
    Device,
    Hook,
    HostDeviceError,
    Kind,
    Spec,
    Store,
    UnresolvedError,
    inject,
    requested_edits,
)
from kerf_dra.cdi.spec import DeviceNode

KIND = Kind(vendor="acme.io", class_name="widget")


def hook(name: str) -> ContainerEdits:
    return ContainerEdits(hooks=(Hook(hook_name="poststop", path=f"/{name}"),))


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    devices = tuple(Device(name=name, container_edits=hook(name)) for name in ("w1", "w2"))
    Store(tmp_path).write("a", Spec(kind=KIND, devices=devices, container_edits=hook("all-of-a")))
    other = (Device(name="w3", container_edits=hook("w3")),)
    Store(tmp_path).write("b", Spec(kind=KIND, devices=other, container_edits=hook("all-of-b")))
    node = ContainerEdits(device_nodes=(DeviceNode(path="/dev/not-there"),))
    Store(tmp_path).write("c", Spec(kind=KIND, devices=(Device(name="w4", container_edits=node),)))
    return Cache([tmp_path])


@pytest.mark.parametrize(
    ("names", "hooks"),
    [
        ([], []),
        (["w1"], ["/all-of-a", "/w1"]),
        (["w2", "w1"], ["/all-of-a", "/w2", "/w1"]),
        (["w1", "w3", "w2"], ["/all-of-a", "/w1", "/all-of-b", "/w3", "/w2"]),
        (["w1", "w1"], ["/all-of-a", "/w1", "/w1"]),
    ],
)
def test_a_files_own_edits_come_once_before_the_first_of_its_devices(
    cache: Cache, names: list[str], hooks: list[str]
) -> None:
    edits = requested_edits(cache.catalog, [f"{KIND}={name}" for name in names])
    assert [hook.path for hook in edits.hooks] == hooks
    oci = inject(cache, {"ociVersion": "1.2.0"}, (f"{KIND}={name}" for name in names))
    assert [hook["path"] for hook in oci.get("hooks", {}).get("poststop", [])] == hooks


def test_everything_that_is_missing_is_named_and_nothing_is_done(cache: Cache) -> None:
    oci = {"ociVersion": "1.2.0"}
    with pytest.raises(UnresolvedError) as caught:
        inject(cache, oci, [f"{KIND}=w1", f"{KIND}=w9", "other.io/thing=x", "w1"])
    assert list(caught.value.reasons) == [f"{KIND}=w9", "other.io/thing=x", "w1"]
    for name, reason in caught.value.reasons.items():
        assert f"{name}: {reason}" in str(caught.value)
    assert oci == {"ociVersion": "1.2.0"}


def test_a_device_that_the_host_lacks_spoils_all(cache: Cache) -> None:
    oci = {"ociVersion": "1.2.0"}
    with pytest.raises(HostDeviceError, match="'/dev/not-there'"):
        inject(cache, oci, [f"{KIND}=w1", f"{KIND}=w4"])
    assert oci == {"ociVersion": "1.2.0"}


def test_the_caches_semantics_count_unless_others_are_asked_for(tmp_path: Path) -> None:
    env = ContainerEdits(env=("A=new",))
    Store(tmp_path).write("a", Spec(kind=KIND, devices=(Device(name="w", container_edits=env),)))
    oci = {"process": {"env": ["A=old"]}}
    main = Cache([tmp_path], semantics="main")
    assert inject(main, oci, [f"{KIND}=w"])["process"]["env"] == ["A=new"]
    assert inject(main, oci, [f"{KIND}=w"], semantics="1.1")["process"]["env"] == ["A=old", "A=new"]
