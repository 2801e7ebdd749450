"""Runs the asynchronous part of a command."""

from collections.abc import Awaitable, Callable
from typing import TypeVar, TypeVarTuple

import anyio

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


def run(main: Callable[[*Ts], Awaitable[T]], *args: *Ts) -> T:
    """Run ``main(*args)`` in an event loop, and return its result.

    ``anyio.run`` does the same, but asyncio of Python 3.11 builds the text of the finished task, and of its result,
    when it takes its handler of SIGINT back (``signal._int_to_enum``): of the state of a large cluster for a minute.
    """
    results: list[T] = []

    async def keep_result() -> None:
        results.append(await main(*args))

    anyio.run(keep_result)
    return results.pop()
