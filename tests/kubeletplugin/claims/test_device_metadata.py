"""Device metadata files: what they say, where containers find them, how long they live (KEP-5304)."""

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from kerf_dra.api.model.base import JsonObject
from kerf_dra.api.model.claims import ResourceClaim
from kerf_dra.driver.kubeletplugin.claims.device_metadata import MetadataFileError, MetadataFiles
from tests.fakes.claims import claim, config, result
from tests.kubeletplugin.harness import Machine, machine

DESCRIBE: JsonObject = {"apiVersion": "kerf.dev/v1alpha1", "kind": "GpuConfig", "deviceMetadata": True}
SILENT: JsonObject = {"apiVersion": "kerf.dev/v1alpha1", "kind": "GpuConfig"}
INSIDE = "/var/run/kubernetes.io/dra-device-attributes"


def files(node: Machine) -> list[Path]:
    folder = node.settings.plugin_dir / "dra-device-metadata"
    return sorted(path for path in folder.rglob("*") if path.is_file())


def mounts(node: Machine, uid: str) -> dict[str, tuple[str, str]]:
    """By CDI device: host path and container path."""
    devices = json.loads(node.cdi_spec(uid))["devices"]
    found = {device["name"]: device["containerEdits"].get("mounts", ()) for device in devices}
    return {name: (one["hostPath"], one["containerPath"]) for name, held in found.items() for one in held}


def documents(path: str | Path) -> list[Any]:
    decoder, text, found = json.JSONDecoder(), Path(path).read_text(), []
    while text:
        document, end = decoder.raw_decode(text)
        found.append(document)
        text = text[end:].lstrip()
    return found


def of_template(name: str, entry: str, made: ResourceClaim) -> ResourceClaim:
    annotations = {"resource.kubernetes.io/pod-claim-name": entry}
    return replace(made, metadata=replace(made.metadata, name=name, annotations=annotations))


async def test_a_container_is_told_what_it_got_where_the_class_asks_for_it() -> None:
    with machine() as node:
        configs = [config(DESCRIBE, requests=["accelerator"], source="FromClass")]
        held = node.cluster.add(claim("training", "gpu-0-1g-1gb-at-0", configs=configs))
        async with node.plugin():
            (device,) = await node.kubelet.prepare(held)
        asked = f"request-{held.uid}-accelerator"
        assert list(device.cdi_device_ids) == [
            f"k8s.gpu.kerf.dev/claim=claim-{held.uid}-gpu-0-1g-1gb-at-0",
            f"k8s.gpu.kerf.dev/claim={asked}",
        ]
        host, inside = mounts(node, held.uid)[asked]
        assert inside == f"{INSIDE}/resourceclaims/training/accelerator/gpu.kerf.dev-metadata.json"
        newest, oldest = documents(host)
        assert newest["apiVersion"] == "metadata.resource.k8s.io/v1beta1"
        assert oldest == newest | {"apiVersion": "metadata.resource.k8s.io/v1alpha1"}
        assert newest["kind"] == "DeviceMetadata"
        assert newest["metadata"] == {"name": "training", "namespace": "default", "uid": held.uid, "generation": 1}
        (request,) = newest["requests"]
        (described,) = request["devices"]
        assert (request["name"], described["pool"], described["name"]) == (
            "accelerator",
            "node-1/gpu",
            "gpu-0-1g-1gb-at-0",
        )
        assert described["attributes"]["profile"] == {"string": "1g.1gb"}
        assert described["attributes"]["resource.kubernetes.io/pciBusID"] == {"string": "0000:00:00.0"}
        (made,) = node.backend.made.values()
        assert described["attributes"]["deviceUUID"] == {"string": made.uuid}
        assert Path(host).stat().st_mode & 0o777 == 0o644, "whatever user the container is"


async def test_one_file_for_each_request_comes_with_its_first_device_and_names_the_alternative_that_was_chosen() -> (
    None
):
    with machine() as node:
        made = claim(
            "x",
            result("gpu-0-1g-1gb-at-0", request="gpus/small"),
            result("gpu-0-1g-1gb-at-1", request="gpus/small"),
            result("gpu-1", request="whole"),
            result("fpga-0-aes-at-0", request="fpga"),
            configs=[config(DESCRIBE, requests=["gpus", "whole"])],
        )
        held = node.cluster.add(of_template("pod-gpu-7f", "gpu", made))
        async with node.plugin():
            devices = await node.kubelet.prepare(held)
        uid = held.uid
        assert [[name.partition("=")[2].split(f"-{uid}-")[0] for name in one.cdi_device_ids] for one in devices] == [
            ["claim", "request"],
            ["claim"],
            ["claim", "request"],
            ["claim"],
        ]
        assert {inside for _, inside in mounts(node, uid).values()} == {
            f"{INSIDE}/resourceclaimtemplates/gpu/{request}/gpu.kerf.dev-metadata.json" for request in ("gpus", "whole")
        }
        document = documents(mounts(node, uid)[f"request-{uid}-gpus"][0])[0]
        assert document["podClaimName"] == "gpu"
        assert [(one["name"], len(one["devices"])) for one in document["requests"]] == [("gpus/small", 2)]


async def test_any_user_of_a_container_may_read_its_files_whatever_the_plugins_umask_is() -> None:
    umask = os.umask(0o077)
    try:
        with machine() as node:
            held = node.cluster.add(claim("training", "gpu-0-1g-1gb-at-0", configs=[config(DESCRIBE)]))
            async with node.plugin():
                await node.kubelet.prepare(held)
            assert {file.stat().st_mode & 0o777 for file in files(node)} == {0o644}
    finally:
        os.umask(umask)


@pytest.mark.parametrize(
    "entry",
    ["..", "../../../../../etc", "a/b", "/etc", "x" * 64, "x" * 1024, "a.b", "GPU", "-a", "a\n", "a:b", "\0", "{}"],
)
async def test_an_annotation_that_is_no_name_in_a_pod_puts_no_file_elsewhere(entry: str) -> None:
    """Whoever may make a claim may annotate it; an entry of a pod's ``resourceClaims`` is a DNS label (pod API)."""
    with machine() as node:
        made = claim("training", "gpu-0-1g-1gb-at-0", configs=[config(DESCRIBE)])
        held = node.cluster.add(of_template("training", entry, made))
        async with node.plugin():
            await node.kubelet.prepare(held)
        [(host, inside)] = mounts(node, held.uid).values()
        assert inside == f"{INSIDE}/resourceclaims/training/accelerator/gpu.kerf.dev-metadata.json"
        assert all("podClaimName" not in document for document in documents(host))


@pytest.mark.parametrize("configs", [[], [config(DESCRIBE, source="FromClass"), config(SILENT)]])
async def test_nothing_is_written_where_nobody_asks_or_the_claim_overrides_its_class(configs: list[Any]) -> None:
    with machine() as node:
        held = node.cluster.add(claim("training", "gpu-0", configs=configs))
        async with node.plugin():
            (device,) = await node.kubelet.prepare(held)
        assert (files(node), len(device.cdi_device_ids)) == ([], 1)


async def test_the_files_survive_a_restart_come_back_when_lost_and_go_with_the_claim() -> None:
    with machine() as node:
        held = node.cluster.add(claim("training", "gpu-0", configs=[config(DESCRIBE)]))
        async with node.plugin():
            before = await node.kubelet.prepare(held)
        (path,) = files(node)
        content, identity = path.read_bytes(), path.stat().st_ino
        async with node.plugin():
            assert await node.kubelet.prepare(held) == before
            assert path.stat().st_ino == identity, "a running container has it mounted"
            path.unlink()
            await node.kubelet.prepare(held)
            assert path.read_bytes() == content
            await node.kubelet.unprepare(held)
            assert files(node) == []


async def test_files_of_claims_that_are_not_prepared_are_swept_at_the_start() -> None:
    with machine() as node:
        stray = MetadataFiles(node.settings.plugin_dir / "dra-device-metadata")
        stray.write("uid-of-nobody", {"accelerator": b"{}"})
        async with node.plugin():
            assert files(node) == []


FEW = st.text(max_size=4)


@given(name=st.just("") | st.builds(".{}".format, FEW) | st.builds("{}/{}".format, FEW, FEW))
def test_no_name_from_outside_leads_out_of_the_folder(name: str) -> None:
    written = MetadataFiles(Path("/nonexistent"))
    with pytest.raises(MetadataFileError, match="neither a UID nor a request's name"):
        written.remove(name)
    with pytest.raises(MetadataFileError, match="neither a UID nor a request's name"):
        written.write("uid", {name: b""})
    with pytest.raises(MetadataFileError, match="neither a UID nor a request's name"):
        written.paths("uid", [name])


def test_files_that_a_claim_no_longer_has_are_removed(tmp_path: Path) -> None:
    written = MetadataFiles(tmp_path / "metadata")
    written.write("uid", {"one": b"1", "two": b"2"})
    written.write("uid", {"two": b"3"})
    assert written.paths("uid", {"two"}) == {"two": tmp_path / "metadata/uid/two.json"}
    assert [path.name for path in (tmp_path / "metadata/uid").iterdir()] == ["two.json"]
    written.write("uid", {})
    assert list((tmp_path / "metadata").iterdir()) == []


def test_a_disk_that_does_not_take_the_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "metadata").write_text("in the way")
    with pytest.raises(MetadataFileError, match=rf"{tmp_path}/metadata/uid: cannot be written: Not a directory"):
        MetadataFiles(tmp_path / "metadata").write("uid", {"one": b"1"})


def test_files_that_cannot_be_removed_are_named(tmp_path: Path) -> None:
    (tmp_path / "metadata").touch()
    with pytest.raises(MetadataFileError, match=rf"{tmp_path}/metadata/uid: cannot be removed: Not a directory"):
        MetadataFiles(tmp_path / "metadata").remove("uid")


def put_file(place: Path, content: bytes, mode: int) -> None:
    place.write_bytes(content)
    place.chmod(mode)


PUT_IN_PLACE: Mapping[str, Callable[[Path, Path], object]] = {
    "a link to a file with the same content": lambda place, other: place.symlink_to(other),
    "a link that leads nowhere": lambda place, other: place.symlink_to(other / "nowhere"),
    "a folder": lambda place, other: (place / "full").mkdir(parents=True),
    "other content": lambda place, other: place.write_bytes(b"2"),
    "the content, readable by its owner alone": lambda place, other: put_file(place, b"1", 0o600),
}


@pytest.mark.parametrize("put", PUT_IN_PLACE.values(), ids=PUT_IN_PLACE.keys())
def test_what_is_in_the_place_of_a_file_is_replaced_and_never_followed(
    put: Callable[[Path, Path], object], tmp_path: Path
) -> None:
    """A link to a file with the right content was taken for the file; a folder stayed for ever."""
    written, other = MetadataFiles(tmp_path / "metadata"), tmp_path / "other"
    written.write("uid", {"one": b"1"})
    other.write_bytes(b"1")
    place = written.paths("uid", {"one"})["one"]
    place.unlink()
    put(place, other)
    written.write("uid", {"one": b"1"})
    assert (place.is_symlink(), place.read_bytes(), place.stat().st_mode & 0o777) == (False, b"1", 0o644)
    assert other.read_bytes() == b"1"


def test_a_link_in_the_place_of_a_claims_folder_is_replaced_and_never_followed(tmp_path: Path) -> None:
    written, other = MetadataFiles(tmp_path / "metadata"), tmp_path / "other"
    other.mkdir()
    (other / "theirs").touch()
    (tmp_path / "metadata").mkdir()
    for documents in ({"one": b"1"}, dict[str, bytes]()):
        (tmp_path / "metadata/uid").symlink_to(other)
        written.write("uid", documents)
        assert [path.name for path in other.iterdir()] == ["theirs"]
        assert not (tmp_path / "metadata/uid").is_symlink()
        written.remove("uid")


def test_a_folder_that_cannot_be_listed_is_named(tmp_path: Path) -> None:
    """EIO in this one listing ended the whole plugin at its start, as an error of the program."""
    (tmp_path / "metadata").touch()
    with pytest.raises(MetadataFileError, match=r"metadata: cannot be listed: Not a directory"):
        MetadataFiles(tmp_path / "metadata").remove_others(())
