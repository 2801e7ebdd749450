"""A call to the hardware that does not return ends the process, once an hour at most, and the next goes on.

NVIDIA/gpu-operator#1361: after an update of the driver calls to the device plugin hung, and pods stayed Pending.
"""

import os
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest

from driver.kubeletplugin.backends.base import HardwareBusyError
from driver.kubeletplugin.backends.card_executor import CardExecutor
from driver.kubeletplugin.backends.kernel_files import is_uninterruptible
from driver.kubeletplugin.claims.checkpoint import open_checkpoint
from driver.kubeletplugin.hanging_calls import EVERY_S, RECORD, HangingCallError, HangingCallWatch
from driver.kubeletplugin.instance import HANGING_EXIT_CODE
from driver.partitions.geometry import Card
from tests.fakes.claims import FAMILY, claim
from tests.fakes.kubelet import ClaimError
from tests.fakes.nvml import NEEDS_COMPILER
from tests.kubeletplugin.hanging_process import prepare_in_process
from tests.kubeletplugin.harness import LONGEST_S, Machine, machine, short_directory
from tests.kubeletplugin.nvidia_machine import hardware
from tests.kubeletplugin.nvidia_machine import machine as nvidia_machine
from tests.kubeletplugin.wait import until
from tests.runtime.fork_server import run_in_fork

SLICE = "gpu-0-1g-1gb-at-0"
OTHER_CARD = "gpu-1-1g-1gb-at-0"
STAYS = "the process stays, because"


@contextmanager
def impatient_machine(**settings: Any) -> Iterator[Machine]:
    """A node whose plugin takes a call for hanging after a tenth of a second, and ends soon after."""
    quick = {"family": replace(FAMILY, call_timeout_s=0.1), "hanging_grace_s": 0.05, "shutdown_grace_s": 0.01}
    with machine(**{**quick, **settings}) as node:
        node.settings.state.mkdir(parents=True)
        yield node


def note_end(node: Machine, ago_s: float) -> None:
    """A process has ended because of a call that hung, so long ago."""
    record = node.settings.state / RECORD
    record.touch()
    os.utime(record, (time.time() - ago_s,) * 2)


def is_quarantined(node: Machine, device: str) -> bool:
    devices = [device for pool in node.cluster.published[-1] for one in pool.slices for device in one.devices]
    return any(taint.key == "gpu.kerf.dev/quarantined" for one in devices if one.name == device for taint in one.taints)


async def fail_to_prepare(node: Machine, device: str) -> None:
    with pytest.raises(ClaimError, match=r"gave no answer within 0\.1 s"):
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
        note_end(node, EVERY_S / 2)
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


@pytest.mark.parametrize("ago_s", [EVERY_S + 60, -EVERY_S - 60], ids=["an hour ago", "before the clock was set back"])
async def test_after_an_hour_it_ends_again(ago_s: float) -> None:
    with impatient_machine() as node:
        note_end(node, ago_s)
        gate = node.backend.gate("prepare", SLICE)
        await run_until_it_ends(node)
        gate.opened.set()
        await until(lambda: set(node.backend.made) == {SLICE})


async def test_a_backend_that_hangs_ends_the_process_too_and_its_cards_cannot_be_changed_by_it() -> None:
    with impatient_machine(discovery_timeout_s=0.1, discovery_interval_s=0.05) as node:
        discover, hanging = node.backend.discover, list[anyio.Event]()
        gate = node.backend.gate("discover", "")

        def discover_once() -> Sequence[Card]:
            if hanging:
                gate.pass_through()
            hanging.append(anyio.Event())
            return discover()

        node.backend.discover = discover_once  # type: ignore[method-assign]

        async def run() -> None:
            async with node.plugin():
                await anyio.sleep_forever()

        with pytest.raises(ExceptionGroup) as raised:
            await run()
        assert raised.group_contains(HangingCallError, match="backend fake does not answer: discover", depth=None)
        assert node.ended_with_lock_held == []
        gate.opened.set()


@pytest.mark.parametrize(
    ("has_folder", "can_end", "reason"),
    [(True, False, "the call waits in the kernel"), (False, True, "hanging-calls cannot be written")],
    ids=["no signal would end it", "nobody would know that it has ended before"],
)
async def test_a_process_stays_whose_end_would_help_nobody(
    has_folder: bool, can_end: bool, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    with impatient_machine() as node:
        state_dir = None if has_folder else node.root / "not there"
        executor = CardExecutor({}, call_timeout_s=0.01, discovery_timeout_s=0.01)
        watch = HangingCallWatch(
            executor, replace(node.settings, state_dir=state_dir), can_end=lambda thread_id: can_end
        )
        returned = threading.Event()
        with pytest.raises(HardwareBusyError, match="gave no answer"):
            async with executor.lock("GPU-0") as card:
                await card.call("prepare", returned.wait, LONGEST_S)
        async with anyio.create_task_group() as group:
            group.start_soon(watch.run)
            await until(lambda: STAYS in caplog.text)
            assert reason in caplog.text
            group.cancel_scope.cancel()
        returned.set()
        executor.close()


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
