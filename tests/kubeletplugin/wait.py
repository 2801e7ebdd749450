"""Waiting for an effect of the plugin that can be seen from outside: a file, a publication."""

from collections.abc import Callable

import anyio


async def until(condition: Callable[[], bool]) -> None:
    """Poll a condition; the caller that runs the plugin bounds the wait."""
    while not condition():  # noqa: ASYNC110  (files and fakes set no event)
        await anyio.sleep(0.001)
