"""The process that keeps the daemons of one folder: one at a time, for every device that asks."""

from pathlib import Path

import anyio
import pytest

from kerf_dra.driver.mps import service
from kerf_dra.driver.mps.documents import LOCK, DaemonFolder, list_folders
from kerf_dra.driver.mps.service import FolderInUseError
from kerf_dra.driver.runtime.file_lock import is_held
from tests.fakes.mps import make_driver_root, want
from tests.kubeletplugin.wait import until

DEVICES = ("GPU-1", "MIG-2")


async def test_every_request_has_a_daemon_until_it_goes(tmp_path: Path) -> None:
    root, driver_root = tmp_path / "sharing", make_driver_root(tmp_path / "driver")
    folders = [DaemonFolder(root / device) for device in DEVICES]
    with anyio.fail_after(240):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(service.run, root, driver_root)
            requests = [want(folder) for folder in folders]
            await until(lambda: [one.request for folder in folders if (one := folder.read_state())] == requests)
            for folder in folders:
                folder.request.unlink()
            await until(lambda: not any(folder.state.exists() for folder in folders))
            tasks.cancel_scope.cancel()
    assert (root / "shm").stat().st_mode & 0o7777 == 0o1777
    assert not is_held(root / LOCK)


async def test_a_folder_is_kept_by_one_process(tmp_path: Path) -> None:
    with anyio.fail_after(240):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(service.run, tmp_path, tmp_path)
            await until(lambda: (tmp_path / LOCK).exists() and is_held(tmp_path / LOCK))
            with pytest.raises(FolderInUseError, match="another process keeps the MPS control daemons of"):
                await service.run(tmp_path, tmp_path)
            tasks.cancel_scope.cancel()


def test_what_is_no_device_is_no_folder_of_one(tmp_path: Path) -> None:
    assert list_folders(tmp_path / "missing") == []
    for name in ("shm", "lock", "GPU-1", "MIG-2"):
        (tmp_path / name).mkdir()
    assert [folder.device for folder in list_folders(tmp_path)] == list(DEVICES)
