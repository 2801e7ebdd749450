"""What another program does to files and partitions of prepared claims while their pods run, and what Kerf does."""

import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import anyio
import pytest

from kerf_dra.driver.partitions.geometry import Partition, Placement
from tests.fakes.claims import config
from tests.kubeletplugin.claims.repair.node import FIRST, SECOND, SURVEYS_S, Node
from tests.runtime.virtual_time import VIRTUAL_TIME

DESCRIBE = config({"apiVersion": "kerf.dev/v1alpha1", "kind": "GpuConfig", "deviceMetadata": True})
BESIDE = "gpu-0-1g-1gb-at-1"
"""A device of another claim on the first one's card."""


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, object]]:
    return VIRTUAL_TIME


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path, configs=[DESCRIBE])


def link_to_another_file(path: Path) -> None:
    other = path.with_name("theirs")
    path.rename(other)
    path.symlink_to(other)


def link_to_nowhere(path: Path) -> None:
    path.unlink()
    path.symlink_to(path.with_name("nowhere"))


def put_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def put_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def keep_size_and_time(path: Path) -> None:
    """Change the content as a program does that hides it."""
    before = path.stat()
    path.write_bytes(path.read_bytes().replace(b"gpu", b"GPU"))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


DAMAGE: Mapping[str, Callable[[Path], object]] = {
    "a claim's file that is removed": Path.unlink,
    "a claim's file that is truncated": lambda path: os.truncate(path, path.stat().st_size // 2),
    "a claim's file that is emptied": lambda path: os.truncate(path, 0),
    "a claim's file that is changed": lambda path: path.write_bytes(b"{}"),
    "a claim's file that is changed in secret": keep_size_and_time,
    "a claim's file that is unreadable": lambda path: path.chmod(0o600),
    "a link to another file": link_to_another_file,
    "a link that leads nowhere": link_to_nowhere,
    "an empty folder for a file": put_folder,
    "a pipe for a file": put_pipe,
    "a folder of claims' files that is removed": lambda path: shutil.rmtree(path.parent),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE.keys())
async def test_a_claims_file_comes_back_at_the_next_survey_and_no_other_is_touched(
    damage: Callable[[Path], object], node: Node
) -> None:
    async with node.running():
        for name, device in (("first", FIRST), ("second", SECOND)):
            await node.prepare(name, device)
        for find in (node.cdi_file, node.metadata_file):
            path, other = find("first"), find("second")
            content, inode = path.read_bytes(), other.lstat().st_ino
            await anyio.sleep(2 * SURVEYS_S)
            damage(path)
            is_other_there = other.exists()
            await anyio.sleep(SURVEYS_S + 1)
            assert (path.is_symlink(), path.is_file(), path.stat().st_mode & 0o777) == (False, True, 0o644)
            assert path.read_bytes() == content
            if is_other_there:
                assert other.lstat().st_ino == inode


async def reset_card(node: Node) -> None:
    for made in [made for made in node.backend.made.values() if made.card_uuid == "GPU-0"]:
        node.backend.remove_by_hand(made.serial)


async def reset_while_the_api_server_is_down(node: Node) -> None:
    node.cluster.is_down = True
    await reset_card(node)


async def reset_again_and_again(node: Node) -> None:
    for _ in range(9):
        await reset_card(node)
        await anyio.sleep(3 * SURVEYS_S)


async def reset_and_cut_otherwise(node: Node) -> None:
    await reset_card(node)
    node.backend.cut_by_hand(Partition(kind="gpu", card_uuid="GPU-0", profile="2g.2gb", placement=Placement(0, 2)))


async def reset_and_cut_the_same(node: Node) -> None:
    await reset_card(node)
    node.backend.cut_by_hand(Partition(kind="gpu", card_uuid="GPU-0", profile="1g.1gb", placement=Placement(0, 1)))


RESETS = {
    "a reset under two claims": (reset_card, True),
    "a reset while the API server is down": (reset_while_the_api_server_is_down, True),
    "resets without end": (reset_again_and_again, False),
    "a reset, and a cut across": (reset_and_cut_otherwise, False),
    "a reset, and the same cut": (reset_and_cut_the_same, True),
}


@pytest.mark.parametrize(("reset", "comes_back"), RESETS.values(), ids=RESETS.keys())
async def test_claims_have_their_partitions_again_or_their_pods_start_elsewhere(
    reset: Callable[[Node], object], comes_back: bool, node: Node
) -> None:
    async with node.running():
        for name, device in (("first", FIRST), ("beside", BESIDE), ("second", SECOND)):
            await node.prepare(name, device)
        await anyio.sleep(2 * SURVEYS_S)
        second = node.record("second"), node.made(SECOND), node.cdi_file("second").lstat()
        await reset(node)  # type: ignore[misc]
        await anyio.sleep(30 * SURVEYS_S)
        for name, device in (("first", FIRST), ("beside", BESIDE)):
            evicts = [taint for taint in node.taints(device) if taint[2] == "NoExecute"]
            assert bool(evicts) is not comes_back
            if comes_back:
                made = node.made(device)
                assert made is not None
                assert f'={made.serial}"' in node.cdi_file(name).read_text()
        assert (node.record("second"), node.made(SECOND), node.cdi_file("second").lstat()) == second
        assert node.taints(SECOND) == []
