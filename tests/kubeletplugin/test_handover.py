"""Only one plugin works with a state directory at a time, and hands over when it is asked."""

import os
import subprocess
import sys
from pathlib import Path

import anyio
import pytest

from driver.kubeletplugin.handover import POLL_S, AlreadyRunningError, LockError, Turn, Turns
from tests.kubeletplugin.harness import LONGEST_S
from tests.runtime.virtual_time import VIRTUAL_TIME


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, object]]:
    return VIRTUAL_TIME


def test_a_second_instance_is_told_the_path_and_the_process(tmp_path: Path) -> None:
    refused = pytest.raises(AlreadyRunningError, match=f"process {os.getpid()}\\) holds {tmp_path}/lock")
    with Turns(tmp_path).take(), refused:
        Turns(tmp_path).take()


def test_the_lock_is_free_again_after_its_holder_has_ended(tmp_path: Path) -> None:
    for _ in range(2):
        with Turns(tmp_path).take():
            assert (tmp_path / "lock").read_text() == f"{os.getpid()}\n"


def test_the_kernel_frees_the_lock_of_a_killed_process(tmp_path: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from driver.kubeletplugin.handover import Turns\n"
        "with Turns(Path(sys.argv[1])).take():\n"
        "    print('locked', flush=True); sys.stdin.read()"
    )
    holder = subprocess.Popen([sys.executable, "-c", script, tmp_path], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"locked\n"
        with pytest.raises(AlreadyRunningError, match=f"process {holder.pid}\\)"):
            Turns(tmp_path).take()
        holder.kill()
    with Turns(tmp_path).take():
        pass


def test_a_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file")
    with pytest.raises(LockError, match=f"{tmp_path}/state/lock: cannot be made: "):
        Turns(tmp_path / "state")


async def taken_over(directory: Path, turn: Turn) -> Turn:
    """The turn of another instance, which the holder of ``turn`` hands over when it is asked."""
    turns: list[Turn] = []

    async def take() -> None:
        turns.append(await Turns(directory).wait(may_ask=lambda: True))

    with anyio.fail_after(LONGEST_S):
        async with anyio.create_task_group() as group:
            group.start_soon(take)
            await turn.asked()
            assert not turns
            turn.end()
    return turns[0]


async def test_who_has_the_turn_learns_that_another_instance_asks_for_it(tmp_path: Path) -> None:
    second = await taken_over(tmp_path, Turns(tmp_path).take())
    with await taken_over(tmp_path, second), pytest.raises(AlreadyRunningError):
        Turns(tmp_path).take()


async def test_who_does_not_ask_stands_back_and_takes_over_when_the_other_is_gone(tmp_path: Path) -> None:
    first = Turns(tmp_path).take()
    back: list[Turn] = []

    async def stand_back() -> None:
        back.append(await Turns(tmp_path).wait(may_ask=lambda: False))

    with anyio.fail_after(LONGEST_S):
        async with anyio.create_task_group() as group:
            group.start_soon(stand_back)
            second = await taken_over(tmp_path, first)
            await anyio.sleep(2 * POLL_S)
            assert not back
            second.end()
    back[0].end()


def test_a_turn_ends_once(tmp_path: Path) -> None:
    """By the second time its descriptor may be another file's."""
    with Turns(tmp_path).take() as turn:
        turn.end()
        again = Turns(tmp_path).take()
    with again, pytest.raises(AlreadyRunningError):
        Turns(tmp_path).take()
