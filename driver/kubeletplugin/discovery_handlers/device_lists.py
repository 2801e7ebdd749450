"""Reads the lists of one handler at a bounded pace: the newest counts, and older ones are passed over.

A handler may say nothing, say it too often, change its mind all the time, or raise anything. Whatever it does, a list
is passed on at once if the devices were quiet, and at most once a minute if they never are.
"""

from collections import deque
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from typing import Final

import anyio

from kerf_dra.api.discovery.v1alpha1 import FoundDevice
from kerf_dra.driver.kubeletplugin.discovery_handlers.base import HandlerError
from kerf_dra.driver.runtime.backoff import Backoff

FIRST_LIST_S: Final = 70.0
"""Seconds for the first list, which comes at once: more than the built-in handlers allow for a look at the devices."""
MAX_LISTS: Final = 600
"""The lists within QUIET_S beyond which a handler is cut off: each is read, so that the newest is known."""
QUIET_S: Final = 60.0
"""Seconds without a list after which the next one is passed on at once again."""
PACE: Final = Backoff(first_s=1, factor=2, limit_s=QUIET_S, jitter=0)
"""Time between lists that are passed on: a list may cost a write to the API server for each device."""

Lists = AsyncGenerator[Sequence[FoundDevice], None]


async def follow_lists(lists: Lists, on_list: Callable[[Sequence[FoundDevice]], None]) -> None:
    """Call ``on_list`` with the newest list, after the first one and after changes, until the handler fails.

    Raises HandlerError when it does not begin, sends too much, or ends; and whatever it raises.
    """
    newest = _Newest()
    failure: Exception | None = None
    async with anyio.create_task_group() as group:
        group.start_soon(_pass_on, newest, on_list)
        try:
            await _read(lists, newest)
        except Exception as error:  # noqa: BLE001  (raised below: a task group would wrap it)
            failure = error
        group.cancel_scope.cancel()
    raise failure or HandlerError("it has ended without being asked to")


class _Newest:
    """The newest list that was not passed on."""

    def __init__(self) -> None:
        self.devices: Sequence[FoundDevice] | None = None
        self.came = anyio.Event()

    def put(self, devices: Sequence[FoundDevice]) -> None:
        self.devices = devices
        self.came.set()

    async def take(self) -> Sequence[FoundDevice]:
        await self.came.wait()
        assert self.devices is not None, "it came"
        devices, self.devices, self.came = self.devices, None, anyio.Event()
        return devices


async def _read(lists: Lists, newest: _Newest) -> None:
    recent: deque[float] = deque(maxlen=MAX_LISTS)
    async with aclosing(lists):
        with anyio.move_on_after(FIRST_LIST_S) as limit:
            first = await anext(lists, None)
            if first is None:
                return
            newest.put(first)
        if limit.cancelled_caught:
            raise HandlerError(f"it has not said within {FIRST_LIST_S:g} s which devices there are")
        async for devices in lists:
            newest.put(devices)
            now = anyio.current_time()
            if len(recent) == MAX_LISTS and now - recent[0] < QUIET_S:
                raise HandlerError(f"it has sent more than {MAX_LISTS} lists within {QUIET_S:g} s")
            recent.append(now)


async def _pass_on(newest: _Newest, on_list: Callable[[Sequence[FoundDevice]], None]) -> None:
    while True:
        for delay_s in PACE.delays():
            on_list(await newest.take())
            await anyio.sleep(delay_s)
            with anyio.move_on_after(QUIET_S) as quiet:
                await newest.came.wait()
            if quiet.cancelled_caught:
                break
