"""What somebody has left where Kerf keeps its files: links, folders, pipes, long names; rows of ``kinds.toml``."""

import os
import socket
from pathlib import Path
from typing import Final, Literal

import msgspec
import pytest

from kerf_dra import cdi
from kerf_dra.driver.kubeletplugin.claims.checkpoint.checkpoint import open_checkpoint
from kerf_dra.driver.kubeletplugin.claims.device_metadata import MetadataFiles
from kerf_dra.driver.kubeletplugin.grpc.registration import remove_abandoned_sockets
from kerf_dra.driver.kubeletplugin.grpc.server import check_path
from tests.attack.kinds import cases

THEIRS: Final = "theirs"
SPEC: Final = cdi.Spec(
    kind=cdi.Kind.parse("k8s.gpu.kerf.dev/claim"),
    devices=(cdi.Device(name="d", container_edits=cdi.ContainerEdits(env=("A=1",))),),
)


There = Literal["", "file", "empty", "folder", "full folder", "link to nowhere", "link", "link to itself", "pipe"]


class Files(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is there, and what Kerf does with it."""

    door: Literal["checkpoint", "write CDI", "remove CDI", "write metadata", "remove metadata", "clear sockets", "bind"]
    at: str = ""
    """The path that ``there`` is at; empty: nothing is there."""
    there: Literal[
        "", "file", "empty", "folder", "full folder", "link to nowhere", "link", "link to itself", "pipe"
    ] = ""
    name: str = "c1"
    """Of the CDI file or the claim's UID."""
    request: str = "r"
    raises: str = ""
    """The class of the error; empty: it succeeds."""


def lay(root: Path, files: Files) -> None:
    (root / THEIRS).write_text(THEIRS)
    if not files.at:
        return
    path = root / files.at
    path.parent.mkdir(parents=True, exist_ok=True)
    match files.there:
        case "file":
            path.write_text(THEIRS)
        case "empty":
            path.touch()
        case "folder":
            path.mkdir()
        case "full folder":
            path.mkdir()
            (path / "x").write_text(THEIRS)
        case "link to nowhere":
            path.symlink_to(root / "nowhere/at all")
        case "link":
            path.symlink_to(root / THEIRS)
        case "link to itself":
            path.symlink_to(path)
        case "pipe":
            os.mkfifo(path)


def use(root: Path, files: Files) -> None:
    store, metadata = cdi.Store(root / "cdi"), MetadataFiles(root / "metadata")
    match files.door:
        case "checkpoint":
            (root / "state").mkdir(exist_ok=True)
            with open_checkpoint(root / "state", boot_id="boot-1"):
                pass
        case "write CDI":
            store.write(files.name, SPEC)
        case "remove CDI":
            store.remove(files.name)
        case "write metadata":
            metadata.write(files.name, {files.request: b"{}"})
        case "remove metadata":
            metadata.remove(files.name)
        case "clear sockets":
            remove_abandoned_sockets(root / "registry/d-own-reg.sock", "d")
        case "bind":
            check_path(root / files.name)


@pytest.mark.parametrize(
    "files", cases("test_files.py::test_it_is_replaced_or_left_alone_or_refused_with_its_path", Files)
)
def test_it_is_replaced_or_left_alone_or_refused_with_its_path(files: Files, tmp_path: Path) -> None:
    lay(tmp_path, files)
    raised: Exception | None = None
    try:
        use(tmp_path, files)
    except Exception as error:
        raised = error
    assert (type(raised).__name__ if raised else "") == files.raises, str(raised)
    assert len(str(raised)) < 1500
    if raised and files.at:
        assert str((tmp_path / files.at).parent) in str(raised), "people must know which file"
    assert (tmp_path / THEIRS).read_text() == THEIRS
    assert not [path for path in tmp_path.rglob("*") if path.suffix in {".tmp", ".new"} and path != tmp_path / files.at]


def test_a_socket_that_somebody_listens_at_is_not_taken_away(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "d-other-reg.sock"))
        listener.listen()
        remove_abandoned_sockets(tmp_path / "d-own-reg.sock", "d")
        assert (tmp_path / "d-other-reg.sock").is_socket()
