"""Waiting for what the plugin does by itself, seen from outside: a file, a publication."""

from collections.abc import Callable

import anyio


async def until(condition: Callable[[], bool]) -> None:
    """Look again and again; whoever runs the plugin bounds the wait."""
    while not condition():  # noqa: ASYNC110  (files and fakes set no event)
        await anyio.sleep(0.001)
