"""A call to the hardware that does not return ends the process, once an hour at most, and the next goes on.

NVIDIA/gpu-operator#1361: after an update of the driver calls to the device plugin hung, and pods stayed Pending.
"""

import os
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest

from kerf_dra.driver.families.gpu import GPU
from kerf_dra.driver.kubeletplugin.backends.base import HardwareBusyError
from kerf_dra.driver.kubeletplugin.backends.card_executor import CardExecutor
from kerf_dra.driver.kubeletplugin.backends.kernel_files import is_uninterruptible
from kerf_dra.driver.kubeletplugin.call_watchdog import EVERY_S, RECORD, CallWatchdog, HangingCallError
from kerf_dra.driver.kubeletplugin.claims.checkpoint.checkpoint import open_checkpoint
from kerf_dra.driver.kubeletplugin.instance import HANGING_EXIT_CODE
from kerf_dra.driver.kubeletplugin.settings import Settings
from kerf_dra.driver.runtime.worker_threads import Work
from tests.fakes.claims import FAMILY, NODE, claim
from tests.fakes.hardware import FakeBackend
from tests.fakes.kubelet import ClaimError
from tests.fakes.nvml import NEEDS_COMPILER
from tests.kubeletplugin.backends.nvidia.node import hardware
from tests.kubeletplugin.backends.nvidia.node import machine as nvidia_machine
from tests.kubeletplugin.harness import Machine, machine, short_directory
from tests.kubeletplugin.wait import until
from tests.kubeletplugin.watchdog_process import prepare_in_process
from tests.runtime.fork_server import run_in_fork
from tests.runtime.virtual_time import VIRTUAL_TIME

SLICE = "gpu-0-1g-1gb-at-0"
OTHER_CARD = "gpu-1-1g-1gb-at-0"
STAYS = "the process stays, because"
NOW = 1_800_000_000.0
"""Unix time, in the tests on virtual time."""


@contextmanager
def impatient_machine(**settings: Any) -> Iterator[Machine]:
    """A node whose plugin takes a call for hanging after a second, and ends soon after."""
    quick = {"family": replace(FAMILY, call_timeout_s=1.0), "hanging_grace_s": 0.05, "shutdown_grace_s": 0.01}
    with machine(**{**quick, **settings}) as node:
        node.settings.state.mkdir(parents=True)
        yield node


def is_quarantined(node: Machine, device: str) -> bool:
    devices = [device for pool in node.cluster.published[-1] for one in pool.slices for device in one.devices]
    return any(taint.key == "gpu.kerf.dev/quarantined" for one in devices if one.name == device for taint in one.taints)


async def fail_to_prepare(node: Machine, device: str) -> None:
    with pytest.raises(ClaimError, match="gave no answer within 1 s"):
        await node.kubelet.prepare(node.cluster.add(claim("training", device)))


async def run_until_it_ends(node: Machine) -> None:
    """Run a plugin that is to prepare a claim until it ends by itself."""

    async def run() -> None:
        async with node.plugin():
            await fail_to_prepare(node, SLICE)
            await anyio.sleep_forever()

    with pytest.raises(ExceptionGroup) as raised:
        await run()
    reason = f"the process has to start again: card GPU-0 does not answer: prepare of {SLICE}"
    assert raised.group_contains(HangingCallError, match=reason, depth=None)


async def test_a_call_that_hangs_ends_the_process_which_has_the_lock_until_then_and_the_next_goes_on() -> None:
    with impatient_machine() as node:
        gate = node.backend.gate("prepare", SLICE)
        await run_until_it_ends(node)
        assert node.ended_with_lock_held == [True], "nobody else may work on the card before the call is gone"
        assert "card GPU-0 does not answer: prepare" in (node.settings.state / RECORD).read_text()
        with open_checkpoint(node.settings.state, boot_id=node.boot_id) as checkpoint:
            assert len(checkpoint.records) == 1, "the next one knows of it"
        gate.opened.set()
        async with node.plugin():
            await node.kubelet.prepare(node.cluster.add(claim("training", SLICE)))
            assert set(node.backend.made) == {SLICE}


async def test_a_card_that_hangs_again_within_the_hour_is_in_quarantine_and_the_other_cards_go_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with impatient_machine() as node:
        (node.settings.state / RECORD).write_text("another process has ended just now\n")
        gate = node.backend.gate("prepare", SLICE)
        async with node.plugin():
            await fail_to_prepare(node, SLICE)
            await until(lambda: STAYS in caplog.text)
            await node.kubelet.prepare(node.cluster.add(claim("other", OTHER_CARD)))
            await until(lambda: is_quarantined(node, SLICE) and not is_quarantined(node, OTHER_CARD))
            gate.opened.set()
            await until(lambda: not is_quarantined(node, SLICE))
        assert node.ended_with_lock_held == []
    assert caplog.text.count(STAYS) == 1, "it is told once"


class Watch:
    """A watchdog on virtual time, and calls that never return."""

    def __init__(
        self, state_dir: Path, *, can_end: bool = True, begin: Callable[[Work], None] = lambda work: None
    ) -> None:
        """``begin`` has the thread of a call begin; unless given, there is no thread."""
        self.executor = CardExecutor(
            {"fake": FakeBackend([])}, call_timeout_s=120, discovery_timeout_s=100, start=begin
        )
        settings = Settings(node_name=NODE, family=GPU, backends=(), state_dir=state_dir)
        self.record = settings.state / RECORD
        self._dog = CallWatchdog(self.executor, settings, now=lambda: NOW, can_end=lambda thread_id: can_end)

    def note_end(self, ago_s: float) -> None:
        """A process has ended because of a call that hung, so long ago."""
        self.record.parent.mkdir(parents=True)
        self.record.touch()
        os.utime(self.record, (NOW - ago_s,) * 2)

    async def call(self) -> None:
        async with self.executor.lock("GPU-0") as card:
            await card.call("prepare", int)

    async def find_end(self, call: Callable[[], Awaitable[object]], limit_s: float) -> str:
        """Return why the process ends, which is no sooner than a minute after the limit; empty: it stays."""
        began = anyio.current_time()
        with pytest.raises(HardwareBusyError, match="gave no answer"):
            await call()
        with anyio.move_on_after(2 * EVERY_S):
            try:
                await self._dog.run()
            except HangingCallError as error:
                assert limit_s + 60 <= anyio.current_time() - began <= limit_s + 70
                return str(error)
        return ""


ON_VIRTUAL_TIME = pytest.mark.parametrize("anyio_backend", [VIRTUAL_TIME])


@ON_VIRTUAL_TIME
@pytest.mark.parametrize(
    ("ago_s", "ends"),
    [(EVERY_S - 60, False), (EVERY_S + 60, True), (-EVERY_S - 60, True), (-60, False)],
    ids=["within the hour", "before the hour", "before the clock was set back", "just before it was set back"],
)
async def test_a_process_ends_once_an_hour(ago_s: float, ends: bool, tmp_path: Path) -> None:
    watch = Watch(tmp_path)
    watch.note_end(ago_s)
    assert bool(await watch.find_end(watch.call, 120)) is ends


@ON_VIRTUAL_TIME
async def test_a_backend_that_hangs_while_it_looks_for_cards_ends_the_process_too(tmp_path: Path) -> None:
    watch = Watch(tmp_path)
    watch.record.parent.mkdir(parents=True)
    reason = await watch.find_end(lambda: watch.executor.discover("fake"), 120)
    assert reason.startswith("the process has to start again: backend fake does not answer: open, begun at ")
    assert "backend fake does not answer: open" in watch.record.read_text()
    assert not watch.executor.has_hanging_calls, "no card may still be changed"


@ON_VIRTUAL_TIME
@pytest.mark.parametrize(
    ("has_folder", "can_end", "reason"),
    [(True, False, "the call waits in the kernel"), (False, True, "hanging-calls cannot be written")],
    ids=["no signal would end it", "nobody would know that it has ended before"],
)
async def test_a_process_stays_whose_end_would_help_nobody(
    has_folder: bool, can_end: bool, reason: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:

    def begin(work: Work) -> None:
        """Run ``work`` at once, whose result nobody gets."""
        work()

    watch = Watch(tmp_path, can_end=can_end, begin=begin)
    if has_folder:
        watch.record.parent.mkdir(parents=True)
    assert await watch.find_end(watch.call, 120) == ""
    assert reason in caplog.text
    assert caplog.text.count(STAYS) == 1, "it is told once"


@pytest.mark.parametrize(
    ("stat", "is_so"),
    [("7 (kerf worker) D 1 7", True), ("7 (kerf worker) S 1 7", False), ("7 (a) D (b) R 1 7", False), ("", False)],
    ids=["waits in the kernel", "waits", "has an odd name", "ends just now"],
)
def test_the_kernel_says_which_thread_no_signal_ends(stat: str, is_so: bool, tmp_path: Path) -> None:
    task = tmp_path / "self/task/7"
    task.mkdir(parents=True)
    (task / "stat").write_text(stat)
    assert is_uninterruptible(tmp_path, 7) is is_so
    assert not is_uninterruptible(tmp_path, 8), "it is gone"


@pytest.mark.long
@NEEDS_COMPILER
def test_a_call_of_nvml_that_hangs_ends_the_process_and_the_next_one_finishes_the_claim() -> None:
    """With NVIDIA's unmodified bindings, whose calls nothing can end but the process."""
    with short_directory() as root:
        hardware(root).close()
        nvidia_machine(root).add_fault("nvmlGpuInstanceCreateComputeInstance", delay_s=600)
        assert run_in_fork(prepare_in_process, root) == HANGING_EXIT_CODE
        nvidia_machine(root).clear_faults()
        [begun] = nvidia_machine(root).list_instances()
        assert run_in_fork(prepare_in_process, root) == 0
        [finished] = nvidia_machine(root).list_instances()
        assert (begun.uuid, finished.id, finished.start) == ("", begun.id, begun.start)
        assert finished.uuid
