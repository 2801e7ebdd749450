"""Only one plugin works with a state directory at a time, and hands over when it is asked."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import anyio
import pytest

from kerf_dra.api.model.names import ClaimRef
from kerf_dra.api.model.prepared import PreparedClaim
from kerf_dra.driver.kubeletplugin.claims.record_lifecycle import StoppingError
from kerf_dra.driver.kubeletplugin.handover import (
    POLL_S,
    ActiveInstanceProxy,
    AlreadyRunningError,
    ForeignProfileError,
    InstanceLock,
    LockError,
)
from kerf_dra.driver.kubeletplugin.plugin import NodePlugin
from kerf_dra.driver.runtime.file_lock import FileLock, try_acquire
from tests.kubeletplugin.harness import LONGEST_S
from tests.kubeletplugin.records import record
from tests.runtime.virtual_time import VIRTUAL_TIME


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, object]]:
    return VIRTUAL_TIME


def test_a_second_instance_is_told_the_path_and_the_process(tmp_path: Path) -> None:
    refused = pytest.raises(AlreadyRunningError, match=f"process {os.getpid()}\\) holds {tmp_path}/lock")
    with InstanceLock(tmp_path).acquire_nowait(), refused:
        InstanceLock(tmp_path).acquire_nowait()


FOREIGN = "the plugin of the profile nvidia .* works in .* already, so the profile simulated cannot"


def test_a_plugin_of_another_profile_is_refused_and_told_which_one_works(tmp_path: Path) -> None:
    with InstanceLock(tmp_path, "nvidia").acquire_nowait(), pytest.raises(ForeignProfileError, match=FOREIGN):
        InstanceLock(tmp_path, "simulated").acquire_nowait()
    with InstanceLock(tmp_path, "simulated").acquire_nowait():
        pass


def test_a_holder_that_cannot_be_read_counts_as_unknown(tmp_path: Path) -> None:
    """The file is the earlier version's, or somebody's who writes where the plugin works."""
    with InstanceLock(tmp_path, "nvidia").acquire_nowait():
        (tmp_path / "lock").write_bytes(b"\xff\xfe\n\xff\n")
        with pytest.raises(ForeignProfileError):
            InstanceLock(tmp_path, "simulated").acquire_nowait()


async def test_a_plugin_of_another_profile_is_not_asked_to_hand_over(tmp_path: Path) -> None:
    with InstanceLock(tmp_path, "nvidia").acquire_nowait(), pytest.raises(ForeignProfileError, match=FOREIGN):
        await InstanceLock(tmp_path, "simulated").acquire(may_request=lambda: True)


@pytest.mark.parametrize(("holder", "next_one"), [("nvidia", "nvidia"), ("", "nvidia"), ("nvidia", "")])
def test_a_plugin_of_the_same_profile_or_without_one_may_take_over(tmp_path: Path, holder: str, next_one: str) -> None:
    with InstanceLock(tmp_path, holder).acquire_nowait(), pytest.raises(AlreadyRunningError):
        InstanceLock(tmp_path, next_one).acquire_nowait()


def test_the_lock_is_free_again_after_its_holder_has_ended(tmp_path: Path) -> None:
    for _ in range(2):
        with InstanceLock(tmp_path).acquire_nowait():
            assert (tmp_path / "lock").read_text() == f"{os.getpid()}\n"


def test_the_kernel_frees_the_lock_of_a_killed_process(tmp_path: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from kerf_dra.driver.kubeletplugin.handover import InstanceLock\n"
        "with InstanceLock(Path(sys.argv[1])).acquire_nowait():\n"
        "    print('locked', flush=True); sys.stdin.read()"
    )
    holder = subprocess.Popen([sys.executable, "-c", script, tmp_path], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"locked\n"
        with pytest.raises(AlreadyRunningError, match=f"process {holder.pid}\\)"):
            InstanceLock(tmp_path).acquire_nowait()
        holder.kill()
    with InstanceLock(tmp_path).acquire_nowait():
        pass


def test_a_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file")
    with pytest.raises(LockError, match=f"{tmp_path}/state/lock: cannot be made: "):
        InstanceLock(tmp_path / "state")


async def take_over(directory: Path, held: FileLock) -> FileLock:
    """Acquire the lock for another instance, to which the holder of ``held`` hands over when that is requested."""
    acquired: list[FileLock] = []

    async def acquire() -> None:
        acquired.append(await InstanceLock(directory).acquire(may_request=lambda: True))

    with anyio.fail_after(LONGEST_S):
        async with anyio.create_task_group() as group:
            group.start_soon(acquire)
            await InstanceLock(directory).wait_for_request()
            assert not acquired
            held.release()
    return acquired[0]


async def test_the_holder_stays_active_while_it_cannot_look_for_requests(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A disk that failed at one of the looks ended the plugin, and with it the prepare that was under way."""
    queue = tmp_path / "queue"
    queue.symlink_to(queue)
    with anyio.fail_after(LONGEST_S), InstanceLock(tmp_path).acquire_nowait() as held:
        async with anyio.create_task_group() as group:
            group.start_soon(InstanceLock(tmp_path).wait_for_request)
            await anyio.sleep(5 * POLL_S)
            group.cancel_scope.cancel()
        [told] = (record.message for record in caplog.records)
        assert told == f"{queue}: no other instance can take over now: Too many levels of symbolic links"
        queue.unlink()
        with await take_over(tmp_path, held):
            pass


async def test_a_disk_that_fails_again_is_told_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    queue = tmp_path / "queue"
    with anyio.fail_after(LONGEST_S), InstanceLock(tmp_path).acquire_nowait():
        async with anyio.create_task_group() as group:
            group.start_soon(InstanceLock(tmp_path).wait_for_request)
            for _ in range(2):
                queue.unlink(missing_ok=True)
                queue.symlink_to(queue)
                await anyio.sleep(2 * POLL_S)
                queue.unlink()
                await anyio.sleep(2 * POLL_S)
            group.cancel_scope.cancel()
    assert [record.message.partition(": ")[2][:17] for record in caplog.records] == ["no other instance"] * 2


async def test_the_holder_ends_when_its_directory_is_gone(tmp_path: Path) -> None:
    """What it would write to the records from then on, no start would find."""
    directory = tmp_path / "state"
    lock = InstanceLock(directory)
    with anyio.fail_after(LONGEST_S), lock.acquire_nowait():
        shutil.rmtree(directory)
        with pytest.raises(LockError, match=f"{directory} is gone"):
            await lock.wait_for_request()


async def test_the_holder_learns_that_another_instance_requests_a_handover(tmp_path: Path) -> None:
    second = await take_over(tmp_path, InstanceLock(tmp_path).acquire_nowait())
    with await take_over(tmp_path, second), pytest.raises(AlreadyRunningError):
        InstanceLock(tmp_path).acquire_nowait()


async def test_an_instance_that_requests_nothing_takes_over_when_the_others_are_gone(tmp_path: Path) -> None:
    first = InstanceLock(tmp_path).acquire_nowait()
    acquired: list[FileLock] = []

    async def wait() -> None:
        acquired.append(await InstanceLock(tmp_path).acquire(may_request=lambda: False))

    with anyio.fail_after(LONGEST_S):
        async with anyio.create_task_group() as group:
            group.start_soon(wait)
            second = await take_over(tmp_path, first)
            await anyio.sleep(2 * POLL_S)
            assert not acquired
            second.release()
    acquired[0].release()


def test_a_lock_is_released_once(tmp_path: Path) -> None:
    """By the second time its descriptor may be another file's."""
    with InstanceLock(tmp_path).acquire_nowait() as lock:
        lock.release()
        again = InstanceLock(tmp_path).acquire_nowait()
    with again, pytest.raises(AlreadyRunningError):
        InstanceLock(tmp_path).acquire_nowait()


class DrainedPreparer:
    """A preparer whose plugin stops."""

    async def prepare_claim(self, claim: ClaimRef) -> PreparedClaim:
        raise StoppingError

    async def unprepare_claim(self, claim: ClaimRef) -> None:
        raise StoppingError


class Preparer:
    """A preparer that works."""

    async def prepare_claim(self, claim: ClaimRef) -> PreparedClaim:
        return record(claim.name)

    async def unprepare_claim(self, claim: ClaimRef) -> None:
        return None


def plugin_with(preparer: DrainedPreparer | Preparer) -> NodePlugin:
    return cast("NodePlugin", SimpleNamespace(preparer=preparer))


@pytest.mark.parametrize("operation", ["prepare_when_active", "unprepare_when_active"])
async def test_a_call_that_a_hand_over_stops_waits_for_the_next_activation(operation: str) -> None:
    proxy, claim = ActiveInstanceProxy(), record().claim
    stopping = plugin_with(DrainedPreparer())
    proxy.activate(stopping)
    with pytest.raises(StoppingError):  # its plugin is the active one: it stops with the process
        await getattr(proxy, operation)(claim)
    answered = anyio.Event()

    async def call() -> None:
        await getattr(proxy, operation)(claim)
        answered.set()

    async with anyio.create_task_group() as group:
        group.start_soon(call)
        proxy.deactivate()
        await anyio.wait_all_tasks_blocked()
        assert not answered.is_set()
        proxy.activate(plugin_with(Preparer()))
        with anyio.fail_after(1):
            await answered.wait()
    proxy.deactivate()
    proxy.close()
    with pytest.raises(StoppingError):
        await getattr(proxy, operation)(claim)


class HandedOverPreparer(DrainedPreparer):
    """A preparer whose plugin hands over while a call is in it."""

    def __init__(self, proxy: ActiveInstanceProxy, successor: NodePlugin) -> None:
        self._proxy = proxy
        self._successor = successor

    async def prepare_claim(self, claim: ClaimRef) -> PreparedClaim:
        self._proxy.activate(self._successor)
        raise StoppingError

    async def unprepare_claim(self, claim: ClaimRef) -> None:
        self._proxy.activate(self._successor)
        raise StoppingError


@pytest.mark.parametrize("operation", ["prepare_when_active", "unprepare_when_active"])
async def test_a_call_that_was_cut_off_goes_to_the_next_plugin(operation: str) -> None:
    proxy = ActiveInstanceProxy()
    proxy.activate(plugin_with(HandedOverPreparer(proxy, plugin_with(Preparer()))))
    with anyio.fail_after(1):
        await getattr(proxy, operation)(record().claim)


def test_the_state_directory_is_for_its_owner_only(tmp_path: Path) -> None:
    InstanceLock(tmp_path / "state")
    assert (tmp_path / "state").stat().st_mode & 0o777 == 0o700


def test_a_lock_in_which_nobody_can_write_is_named_and_let_go(tmp_path: Path) -> None:
    """A full disk at this one write ended the plugin, as an error of the program."""
    (tmp_path / "lock").symlink_to("/dev/null")  # it can be opened and locked, and has no size to change
    with pytest.raises(LockError, match=f"{tmp_path}/lock: cannot be made: Invalid argument"):
        InstanceLock(tmp_path).acquire_nowait()
    lock = try_acquire(tmp_path / "lock")
    assert lock is not None
    lock.release()
