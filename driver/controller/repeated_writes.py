"""Objects whose status is written again and again, because what it says changes without an event."""

import logging
from collections.abc import Awaitable, Callable

import anyio

from kerf_dra.api.errors import KerfError
from kerf_dra.driver.runtime.problem_log import ProblemLog

_log = logging.getLogger(__name__)


async def write_repeatedly(write: Callable[[], Awaitable[None]], *, what: str, interval_s: float) -> None:
    """Call ``write`` every ``interval_s`` until cancelled. An error is logged once, until another or none follows.

    ``what`` is what the log says that could not be written.
    """
    problems = ProblemLog(_log)
    while True:
        try:
            await write()
            problems.clear(what)
        except KerfError as error:
            problems.note(what, f"{what} cannot be written: {error}")
        await anyio.sleep(interval_s)
