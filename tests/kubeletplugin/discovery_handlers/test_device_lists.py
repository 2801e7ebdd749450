"""The lists of a handler are read at a bounded pace, whatever it does, on the virtual clock."""

import itertools
from collections.abc import AsyncGenerator, Sequence

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kerf_dra.api.discovery.v1alpha1 import FoundDevice
from kerf_dra.driver.kubeletplugin.discovery_handlers.base import HandlerError
from kerf_dra.driver.kubeletplugin.discovery_handlers.device_lists import FIRST_LIST_S, MAX_LISTS, QUIET_S, follow_lists
from tests.runtime.virtual_time import VIRTUAL_TIME, VirtualTimeLoop


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, object]]:
    return VIRTUAL_TIME


def devices(number: int) -> Sequence[FoundDevice]:
    return (FoundDevice(id=str(number)),)


async def at(*times: float) -> AsyncGenerator[Sequence[FoundDevice], None]:
    """A list at each of these times, numbered, then silence."""
    began = anyio.current_time()
    for number, time in enumerate(times):
        await anyio.sleep(began + time - anyio.current_time())
        yield devices(number)
    await anyio.sleep_forever()


async def follow(lists: AsyncGenerator[Sequence[FoundDevice], None], for_s: float) -> list[tuple[float, int]]:
    """When which list was passed on."""
    began = anyio.current_time()
    taken: list[tuple[float, int]] = []
    with anyio.move_on_after(for_s):
        await follow_lists(
            lists, lambda found: taken.append((round(anyio.current_time() - began, 6), int(found[0].id)))
        )
    return taken


async def test_lists_that_come_now_and_then_are_passed_on_at_once() -> None:
    assert await follow(at(0, 100, 200), 1000) == [(0, 0), (100, 1), (200, 2)]


async def test_of_lists_that_come_together_the_last_one_counts() -> None:
    assert await follow(at(0, 0.1, 0.2, 0.3), 1000) == [(0, 0), (1, 3)]


async def test_a_handler_that_always_changes_its_mind_is_heard_once_a_minute_and_the_newest_list_counts() -> None:
    taken = await follow(at(*range(3600)), 3600)
    assert len(taken) < 70
    assert all(number >= time - 1 for time, number in taken)
    assert taken[-1][0] > 3600 - QUIET_S - 1


async def test_after_a_quiet_minute_a_list_is_passed_on_at_once_again() -> None:
    burst = [number / 10 for number in range(100)]
    taken = await follow(at(*burst, 200, 300), 1000)
    assert taken[-3:] == [(15, 99), (200, 100), (300, 101)]


async def test_a_handler_that_says_nothing_at_first_has_failed() -> None:
    began = anyio.current_time()
    with pytest.raises(HandlerError, match=f"has not said within {FIRST_LIST_S:g} s"):
        await follow_lists(at(FIRST_LIST_S + 1), lambda _: None)
    assert anyio.current_time() - began == FIRST_LIST_S


async def test_a_handler_that_floods_has_failed() -> None:
    async def flood() -> AsyncGenerator[Sequence[FoundDevice], None]:
        while True:
            yield devices(0)
            await anyio.sleep(QUIET_S / MAX_LISTS / 2)

    with pytest.raises(HandlerError, match=f"more than {MAX_LISTS} lists"):
        await follow_lists(flood(), lambda _: None)


async def test_a_handler_that_ends_has_failed() -> None:
    async def once() -> AsyncGenerator[Sequence[FoundDevice], None]:
        yield devices(0)

    async def never() -> AsyncGenerator[Sequence[FoundDevice], None]:
        for number in range(0):
            yield devices(number)

    for lists in (once(), never()):
        with pytest.raises(HandlerError, match="has ended"):
            await follow_lists(lists, lambda _: None)


async def test_what_a_handler_raises_is_raised() -> None:
    async def fail() -> AsyncGenerator[Sequence[FoundDevice], None]:
        yield devices(0)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await follow_lists(fail(), lambda _: None)


@given(st.lists(st.floats(min_value=0, max_value=120), min_size=1, max_size=60))
def test_whenever_lists_come_the_last_one_is_passed_on_and_pauses_are_kept(pauses: list[float]) -> None:
    times = [sum(pauses[:end]) for end in range(1, len(pauses) + 1)]
    times[0] = min(times[0], FIRST_LIST_S - 1)
    taken = anyio.run(follow, at(*times), times[-1] + 10 * QUIET_S, backend_options={"loop_factory": VirtualTimeLoop})
    assert taken[-1][1] == len(times) - 1
    assert [number for _, number in taken] == sorted({number for _, number in taken})
    # But for what sums of binary fractions lose: 31.57... + 1 - 31.57... is less than 1.
    assert all(later - earlier >= 1 - 1e-9 for (earlier, _), (later, _) in itertools.pairwise(taken))
