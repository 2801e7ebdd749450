"""What a node may run out of besides its disk: descriptors and threads. Memory that ends is a kill, by the kernel."""

import os
import resource
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
import pytest
from anyio import to_thread

from kerf_dra.driver.kubeletplugin.claims.hardware import DevicesFailedError
from tests.fakes.claims import claim
from tests.fakes.cluster import FakeCluster
from tests.kubeletplugin.claim_fixture import plugin_core
from tests.kubeletplugin.harness import Machine, machine

SLICE, NEXT_SLICE = "gpu-0-1g-1gb-at-0", "gpu-0-1g-1gb-at-1"
THREADS = 20
"""More than a plugin of two cards has."""


@contextmanager
def no_more_descriptors() -> Iterator[None]:
    """Let no file be opened: the limit is the first free number."""
    free = os.dup(0)
    os.close(free)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_without_a_descriptor_a_claim_fails_and_succeeds_when_there_is_one(tmp_path: Path) -> None:
    async with plugin_core(tmp_path, FakeCluster()) as core:
        ended, held = core.cluster.add(claim("ended", NEXT_SLICE)), core.cluster.add(claim("training", SLICE))
        await core.preparer.prepare_claim(ended)
        with no_more_descriptors():
            with pytest.raises(DevicesFailedError, match="Too many open files"):
                await core.preparer.prepare_claim(held)
            with pytest.raises(Exception, match="Too many open files"):
                await core.preparer.unprepare_claim(ended)
        await core.preparer.prepare_claim(held)
        await core.preparer.unprepare_claim(ended)
        assert (list(core.backend.made), len(core.store.names())) == ([SLICE], 1)


def leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:
            yield from leaves(each)
    else:
        yield error


async def hold_every_thread(released: threading.Event) -> None:
    """Take each worker thread as soon as it is idle, until cancelled."""
    limiter = anyio.CapacityLimiter(THREADS)

    async def hold() -> None:
        while True:
            try:
                await to_thread.run_sync(released.wait, limiter=limiter, abandon_on_cancel=True)
            except RuntimeError:
                await anyio.sleep(0.001)

    async with anyio.create_task_group() as group:
        for _ in range(THREADS):
            group.start_soon(hold)


async def end_without_threads(node: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a plugin that prepares a claim, and then has a full process table around it."""

    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")  # what Python says of EAGAIN

    released = threading.Event()
    try:
        async with node.plugin():
            await node.kubelet.prepare(node.cluster.add(claim("training", SLICE)))
            monkeypatch.setattr(threading.Thread, "start", refuse)
            await hold_every_thread(released)
    finally:
        monkeypatch.undo()
        released.set()


async def test_a_plugin_that_can_start_no_thread_ends_and_the_next_one_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kubelet starts its container again: better than a plugin that runs and can do nothing."""
    with machine() as node:
        told: list[str] = []
        try:  # not pytest.raises, which keeps the frames, and with them channels that wait for the socket that was
            await end_without_threads(node, monkeypatch)
        except* RuntimeError as ended:
            told += map(str, leaves(ended))
        assert {*told} == {"can't start new thread"}
        made, files = dict(node.backend.made), node.cdi_files
        assert list(made) == [SLICE]
        async with node.plugin():
            await node.kubelet.prepare(node.cluster.add(claim("next", NEXT_SLICE)))
            assert node.backend.made.items() > made.items()
            assert set(node.cdi_files) > set(files)
