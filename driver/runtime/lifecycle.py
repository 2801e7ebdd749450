"""The start and the end of a process.

The first SIGTERM, SIGINT or SIGHUP cancels ``main``, which cleans up in shielded scopes with deadlines. A second
signal ends the process at once. A SIGHUP that the process was started to ignore (nohup) stays ignored.

A process that was started with PARENT_PID in its environment gets a SIGTERM when that parent ends, however it ends.
"""

import ctypes
import gc
import logging
import os
import resource
import signal
from asyncio import sslproto
from collections.abc import Awaitable, Callable, Iterator
from typing import Final

import anyio
from anyio.abc import TaskStatus

from kerf_dra.api.errors import KerfError

FAILED: Final = 1
"""Exit code when ``main`` raised."""

PARENT_PID: Final = "KERF_PARENT_PID"
"""The environment variable with the number of the process without which this one has no purpose."""

_log = logging.getLogger(__name__)

_PR_SET_PDEATHSIG: Final = 1
"""Option of prctl(2) in Linux's ``prctl.h``: the signal that the end of the parent sends."""
_OPEN_FILES: Final = 65_536
"""The open files of a process, where its hard limit allows. Many systems start programs with 1,024, for those that use
select(2), which Python's event loops do not."""

_TLS_BUFFER: Final = 64 * 1024
"""Bytes of the buffer into which a TLS connection reads: four of TLS's records (RFC 8446, 5.1)."""
_M_ARENA_MAX: Final = -8
_M_MMAP_THRESHOLD: Final = -3
"""Parameters of mallopt(3) in glibc's ``malloc.h``."""
_LARGE_BUFFER: Final = 128 * 1024
"""Bytes from which a buffer has a mapping of its own: glibc's default, which it raises to 32 MiB by itself."""


def run(main: Callable[[], Awaitable[None]]) -> int:
    """Run ``main`` until it returns, raises or is stopped by a signal; returns the exit code.

    The code is 0 when ``main`` returned, or was stopped and cleaned up. It is FAILED when ``main`` raised: a KerfError
    and a file that cannot be used are logged as a message, any other error with its traceback.
    """
    _limit_heap()
    _shrink_tls_buffers()
    _raise_open_files()
    if not _ends_with_parent():
        return FAILED
    gc.freeze()  # modules stay for good: a full collection would traverse them all, in the time of ten claims
    try:
        anyio.run(_until_signalled, main, backend="asyncio")
    except Exception as error:  # noqa: BLE001  (any error becomes an exit code)
        for leaf in iter_leaf_errors(error):
            if isinstance(leaf, KerfError):
                _log.critical("%s", leaf)
            elif isinstance(leaf, OSError) and leaf.filename is not None:  # a folder that an option names, or its disk
                _log.critical("%s: %s", leaf.filename, leaf.strerror)
                _log.debug("where that was", exc_info=leaf)
            else:
                _log.critical("unexpected error", exc_info=leaf)
        return FAILED
    return 0


def _limit_heap() -> None:
    """Keep memory from staying with the process that it no longer uses.

    gRPC's threads would make a heap each, which holds a megabyte for good. And a page of a list, of 25 MB, would be
    taken from the heap once another has been freed: what is allocated behind it keeps all of it resident.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:  # only glibc has it
        mallopt(_M_ARENA_MAX, 1)
        mallopt(_M_MMAP_THRESHOLD, _LARGE_BUFFER)


def _ends_with_parent() -> bool:
    """Have the parent's end stop this process, if it was started so; returns False when the parent has ended before."""
    parent = os.environ.get(PARENT_PID, "")
    if not parent:
        return True
    prctl = getattr(ctypes.CDLL(None, use_errno=True), "prctl", None)
    if prctl is None or prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0):
        _log.warning("this process does not end with its parent: %s", os.strerror(ctypes.get_errno()))
    if str(os.getppid()) == parent:
        return True
    _log.critical("the process that started this one has ended")
    return False


def _shrink_tls_buffers() -> None:
    """Let TLS connections have smaller buffers than asyncio's 256 KiB each: a client that is busy has some twenty."""
    sslproto.SSLProtocol.max_size = _TLS_BUFFER


def _raise_open_files() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _OPEN_FILES if hard == resource.RLIM_INFINITY else min(_OPEN_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


async def _until_signalled(main: Callable[[], Awaitable[None]]) -> None:
    async with anyio.create_task_group() as group:
        with anyio.CancelScope() as stopping:
            await group.start(_cancel_on_signal, stopping)
            await main()
        group.cancel_scope.cancel()


def stop_signals() -> tuple[signal.Signals, ...]:
    """Return the signals that stop a process in order."""
    hangup = () if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else (signal.SIGHUP,)
    return (signal.SIGTERM, signal.SIGINT, *hangup)


async def _cancel_on_signal(
    stopping: anyio.CancelScope, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED
) -> None:
    with anyio.open_signal_receiver(*stop_signals()) as signals:
        task_status.started()
        async for number in signals:
            if stopping.cancel_called:
                os._exit(128 + number)  # what a shell reports for a process that the signal killed
            _log.info("%s: stopping", number.name)
            stopping.cancel()


def iter_leaf_errors(error: BaseException) -> Iterator[BaseException]:
    """Yield the errors inside ``error``, which task groups wrap in exception groups."""
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from iter_leaf_errors(inner)
    else:
        yield error
