"""Files of prepared claims that another program removes or changes come back by themselves; no others are touched."""

import os
import shutil
from pathlib import Path
from typing import Any

import anyio
import pytest

from kerf_dra.api.model.prepared import ClaimState
from kerf_dra.driver.kubeletplugin.backends.base import HardwareRefusedError
from kerf_dra.driver.kubeletplugin.claims.hardware import DevicesFailedError
from tests.fakes.claims import config
from tests.kubeletplugin.claims.repair.node import FIRST, SECOND, SURVEYS_S, Node
from tests.runtime.virtual_time import VIRTUAL_TIME

DESCRIBE = config({"apiVersion": "kerf.dev/v1alpha1", "kind": "GpuConfig", "deviceMetadata": True})


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, object]]:
    return VIRTUAL_TIME


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path, configs=[DESCRIBE])


def put_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


async def test_a_file_that_is_removed_is_written_again_and_the_other_claims_is_not(node: Node) -> None:
    """Until the next restart of the plugin a container that restarted failed: "unresolvable CDI devices".

    What else befalls files is in ``tests/attack/test_claims_under_pods.py``.
    """
    async with node.running():
        for name, device in (("first", FIRST), ("second", SECOND)):
            await node.prepare(name, device)
        content, other = node.cdi_file("first").read_bytes(), node.cdi_file("second").lstat()
        await anyio.sleep(2 * SURVEYS_S)
        node.cdi_file("first").unlink()
        await anyio.sleep(SURVEYS_S + 1)
        assert node.cdi_file("first").read_bytes() == content
        assert node.cdi_file("second").lstat() == other


async def test_files_that_nobody_changes_are_read_once_and_never_written(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with node.running():
        await node.prepare("first", FIRST)
        await anyio.sleep(2 * SURVEYS_S)
        read: list[Path] = []
        read_bytes = Path.read_bytes

        def count_reads(path: Path) -> bytes:
            read.append(path)
            return read_bytes(path)

        monkeypatch.setattr(Path, "read_bytes", count_reads)
        status = node.cdi_file("first").lstat()
        await anyio.sleep(3600)
        assert read == []
        assert node.cdi_file("first").lstat() == status
        os.utime(node.cdi_file("first"))
        await anyio.sleep(SURVEYS_S + 1)
        assert node.cdi_file("first") in read, "what may have changed is read"


async def test_files_that_cannot_be_written_are_reported_once_and_tried_less_and_less_often(
    node: Node, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with node.running() as plugin:
        for name, device in (("first", FIRST), ("second", SECOND)):
            await node.prepare(name, device)
        shutil.rmtree(node.settings.cdi_dir)
        node.settings.cdi_dir.write_text("in the way")
        tries: list[float] = []
        execute = plugin._executor.execute

        async def count(*arguments: Any) -> None:
            tries.append(anyio.current_time())
            await execute(*arguments)

        monkeypatch.setattr(plugin._executor, "execute", count)
        await anyio.sleep(3600)
        assert len(tries) < 2 * 25, "an hour of tries that grow to five minutes apart, for two claims"
        [message] = node.events("ClaimFilesNotWritten")
        assert "a file stands where a directory is needed; remove it" in message
        assert len([one for one in caplog.messages if "its files cannot be written" in one]) == 2, "one for each claim"
        node.settings.cdi_dir.unlink()
        await anyio.sleep(400)
        assert all(node.cdi_file(name).is_file() for name in ("first", "second"))


async def test_a_full_folder_in_the_place_of_a_file_is_kept_and_reported(node: Node) -> None:
    async with node.running():
        await node.prepare("first", FIRST)
        put_folder(node.cdi_file("first"))
        (node.cdi_file("first") / "theirs").touch()
        await anyio.sleep(SURVEYS_S + 1)
        assert "a directory has the file's name; remove it" in node.events("ClaimFilesNotWritten")[0]
        assert (node.cdi_file("first") / "theirs").is_file()


async def test_a_plugin_that_stops_writes_nothing_and_reports_nothing(node: Node) -> None:
    async with node.running() as plugin:
        await node.prepare("first", FIRST)
        await plugin.drain(0)
        node.cdi_file("first").unlink()
        await anyio.sleep(5 * SURVEYS_S)
        assert (node.cdi_file("first").exists(), node.events("ClaimFilesNotWritten")) == (False, [])


async def test_what_is_released_while_its_file_is_away_gets_none_back(node: Node) -> None:
    async with node.running() as plugin:
        first = await node.prepare("first", FIRST)
        await node.prepare("second", SECOND)
        node.cdi_file("first").unlink()
        node.backend.fail("unprepare", FIRST, HardwareRefusedError("the card is broken"))
        with pytest.raises(DevicesFailedError):
            await plugin.preparer.unprepare_claim(first)
        record = node.record("first")
        assert record is not None
        assert record.state is ClaimState.RELEASING
        await anyio.sleep(5 * SURVEYS_S)
        assert (node.cdi_file("first").exists(), node.cdi_file("second").exists()) == (False, True)
