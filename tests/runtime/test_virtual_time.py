"""The virtual clock passes hours at once, and fails a test in which something waits for nothing."""

import asyncio

import anyio
import anyio.lowlevel
import pytest

from tests.runtime.virtual_time import VIRTUAL_TIME, VirtualTimeLoop


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, object]]:
    return VIRTUAL_TIME


async def _spin() -> None:
    while True:
        await anyio.lowlevel.checkpoint()


def test_a_loop_that_waits_for_nothing_is_no_hang() -> None:
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner, pytest.raises(RuntimeError, match="something spins"):
        runner.run(_spin())


async def test_hours_pass_at_once() -> None:
    before = anyio.current_time()
    await anyio.sleep(10_000)
    assert anyio.current_time() - before == 10_000
