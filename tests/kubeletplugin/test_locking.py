"""Only one plugin works with a state directory."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from driver.kubeletplugin.locking import AlreadyRunningError, LockError, sole_instance


def test_a_second_instance_is_told_the_path_and_the_process(tmp_path: Path) -> None:
    with sole_instance(tmp_path):
        refused = pytest.raises(AlreadyRunningError, match=f"process {os.getpid()}\\) holds {tmp_path}/lock")
        with refused, sole_instance(tmp_path):
            pass


def test_the_lock_is_free_again_after_its_holder_has_ended(tmp_path: Path) -> None:
    for _ in range(2):
        with sole_instance(tmp_path):
            assert (tmp_path / "lock").read_text() == f"{os.getpid()}\n"


def test_the_kernel_frees_the_lock_of_a_killed_process(tmp_path: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from driver.kubeletplugin.locking import sole_instance\n"
        "with sole_instance(Path(sys.argv[1])):\n"
        "    print('locked', flush=True); sys.stdin.read()"
    )
    holder = subprocess.Popen([sys.executable, "-c", script, tmp_path], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"locked\n"
        with pytest.raises(AlreadyRunningError, match=f"process {holder.pid}\\)"), sole_instance(tmp_path):
            pass
        holder.kill()
    with sole_instance(tmp_path):
        pass


def test_a_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file")
    with pytest.raises(LockError, match=f"{tmp_path}/state/lock: cannot be made: "), sole_instance(tmp_path / "state"):
        pass
