"""How a process starts and ends.

The first SIGTERM or SIGINT cancels ``main``; its clean-up is its own business, in shielded scopes with deadlines. A
second signal ends the process at once: whoever sends it does not want to wait.
"""

import ctypes
import gc
import logging
import os
import signal
from collections.abc import Awaitable, Callable, Iterator
from typing import Final

import anyio
from anyio.abc import TaskStatus

from api.errors import KerfError

FAILED: Final = 1
"""Exit code when ``main`` raised."""

_log = logging.getLogger(__name__)


_M_ARENA_MAX: Final = -8
"""Parameter of mallopt(3) in glibc's ``malloc.h``."""


def run(main: Callable[[], Awaitable[None]]) -> int:
    """Run ``main`` until it returns, raises or is stopped by a signal; returns the exit code.

    0: it returned, or was stopped and cleaned up. 1: it raised; a KerfError is logged as the message it is, anything
    else with its traceback.
    """
    _share_one_heap()
    gc.freeze()  # modules stay for good: a full collection would look at them all, in the time of ten claims
    try:
        anyio.run(_until_signalled, main, backend="asyncio")
    except Exception as error:  # noqa: BLE001  (the last resort: whatever it is becomes an exit code)
        for leaf in leaves(error):
            if isinstance(leaf, KerfError):
                _log.critical("%s", leaf)
            else:
                _log.critical("unexpected error", exc_info=leaf)
        return FAILED
    return 0


def _share_one_heap() -> None:
    """Keep gRPC's threads from making a heap of their own each: they would keep a megabyte for good."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:  # other C libraries have other ways
        mallopt(_M_ARENA_MAX, 1)


async def _until_signalled(main: Callable[[], Awaitable[None]]) -> None:
    async with anyio.create_task_group() as group:
        with anyio.CancelScope() as stopping:
            await group.start(_cancel_on_signal, stopping)
            await main()
        group.cancel_scope.cancel()


async def _cancel_on_signal(
    stopping: anyio.CancelScope, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED
) -> None:
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        task_status.started()
        async for number in signals:
            if stopping.cancel_called:
                os._exit(128 + number)  # what a shell reports for a process that the signal killed
            _log.info("%s: stopping", number.name)
            stopping.cancel()


def leaves(error: BaseException) -> Iterator[BaseException]:
    """The errors in ``error``: task groups wrap them in groups, people want the errors."""
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from leaves(inner)
    else:
        yield error
