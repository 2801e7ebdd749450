"""Work on several things at the same time."""

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

import anyio

T = TypeVar("T")


async def abreast(work: Callable[[T], Coroutine[Any, Any, None]], things: Sequence[T]) -> None:
    """``work`` on all of ``things``. On a single one without a task: most claims have one device, most pods one claim,
    and a task would cost more than the rest of such a call.

    Of several, what fails is raised in an ExceptionGroup.
    """
    if len(things) == 1:
        await work(things[0])
        return
    async with anyio.create_task_group() as group:
        for thing in things:
            group.start_soon(work, thing)
