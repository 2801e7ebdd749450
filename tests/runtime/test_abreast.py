"""Several things at a time."""

import anyio
import anyio.lowlevel
import pytest

from driver.runtime.abreast import abreast


@pytest.mark.parametrize("count", [0, 1, 2, 5])
async def test_each_is_worked_on_once(count: int) -> None:
    done: list[int] = []

    async def work(number: int) -> None:
        await anyio.lowlevel.checkpoint()
        done.append(number)

    await abreast(work, range(count))
    assert sorted(done) == list(range(count))


async def test_none_waits_for_another() -> None:
    second_has_begun = anyio.Event()

    async def work(number: int) -> None:
        if number == 1:
            second_has_begun.set()
        with anyio.fail_after(5):
            await second_has_begun.wait()

    await abreast(work, range(2))
