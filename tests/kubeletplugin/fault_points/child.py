"""A child of this process that does one thing and ends at once, or is killed: what was imported need not be again."""

import json
import os
import select
import signal
import time
import traceback
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NoReturn, TypeAlias

import anyio

from kerf_dra.driver.runtime.lifecycle import iter_leaf_errors

LONGEST_S: Final = 60.0
"""A child that has not ended by then hangs, and is killed."""


End: TypeAlias = Callable[[Mapping[str, object]], NoReturn]
"""Ends the child at once with its report: nothing is cleaned up."""
Work: TypeAlias = Callable[[End], Awaitable[None]]


@dataclass(frozen=True)
class Ended:
    """How a child ended."""

    was_killed: bool
    report: Mapping[str, Any]
    """What it returned; empty: it was killed, or it failed."""
    failure: str
    """The traceback of its error, or that it hung."""


def run_child(work: Work) -> Ended:
    """Run ``work`` in a fork of this process, which has no other threads."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        _be_child(work, writer)
    os.close(writer)
    answer, hung = _read(reader, pid)
    _, status = os.waitpid(pid, 0)
    if hung:
        return Ended(was_killed=False, report={}, failure="it hangs")
    if os.WIFSIGNALED(status):
        return Ended(was_killed=os.WTERMSIG(status) == signal.SIGKILL, report={}, failure="")
    report = json.loads(answer or "{}")
    return Ended(was_killed=False, report=report, failure=str(report.get("failure", "")))


def _end(writer: int, report: Mapping[str, object]) -> NoReturn:
    data = json.dumps(report).encode()
    while data:
        data = data[os.write(writer, data) :]
    os._exit(0)


def _be_child(work: Work, writer: int) -> NoReturn:
    try:
        anyio.run(work, partial(_end, writer))
    except BaseException as error:
        _end(writer, {"failure": " ".join(map(_describe, iter_leaf_errors(error)))})
    _end(writer, {"failure": "it has ended without a report"})


def _describe(error: BaseException) -> str:
    *_, last = traceback.extract_tb(error.__traceback__)
    return f"{error!r} at {last.filename}:{last.lineno}"


def _read(reader: int, pid: int) -> tuple[bytes, bool]:
    """Read until the child closes its end; returns whether it had to be killed for that."""
    answer, end = b"", time.monotonic() + LONGEST_S
    try:
        while True:
            ready, _, _ = select.select([reader], [], [], max(0.0, end - time.monotonic()))
            if not ready:
                os.kill(pid, signal.SIGKILL)
                return answer, True
            data = os.read(reader, 65536)
            if not data:
                return answer, False
            answer += data
    finally:
        os.close(reader)
