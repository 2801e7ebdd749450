"""Work that belongs to the plugin, not to the call that asked for it.

The kubelet's deadline cancels the handler of its call, and then it calls again. So each piece of work runs in a task of
its own, at most one for a key: a call for the same work joins it, a call for other work on the key waits its turn.
"""

import logging
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

import anyio
from anyio.abc import TaskGroup

from api.errors import KerfError, TransientError

KeyT = TypeVar("KeyT", bound=Hashable)
ResultT = TypeVar("ResultT")

_log = logging.getLogger(__name__)


class StoppingError(TransientError):
    """The plugin ends; what was begun is finished or taken back after its next start."""

    def __init__(self) -> None:
        super().__init__("the kubelet plugin is stopping: the kubelet's next try will find its successor")


class _Work(Generic[ResultT]):
    def __init__(self, verb: str) -> None:
        self.verb = verb
        self.scope = anyio.CancelScope(shield=True)
        self.ended = anyio.Event()
        self.error: Exception = StoppingError()
        self.results: list[ResultT] = []

    async def result(self) -> ResultT:
        await self.ended.wait()
        if not self.results:
            raise self.error
        return self.results[0]


class Joining(Generic[KeyT, ResultT]):
    """At most one piece of work for each key, run in ``tasks``."""

    def __init__(self, tasks: TaskGroup) -> None:
        self._tasks = tasks
        self._running: dict[KeyT, _Work[ResultT]] = {}
        self._stopping = False

    async def do(self, key: KeyT, verb: str, work: Callable[[], Awaitable[ResultT]]) -> ResultT:
        """What ``work`` returns or raises. Work of the same ``verb`` that runs for ``key`` is joined instead.

        Cancelling the caller leaves the work running. Raises StoppingError once ``drain`` was called.
        """
        while (running := self._running.get(key)) is not None:
            if running.verb == verb:
                return await running.result()
            await running.ended.wait()
        if self._stopping:
            raise StoppingError
        started = self._running[key] = _Work(verb)
        self._tasks.start_soon(self._run, key, started, work)
        return await started.result()

    async def drain(self, grace_s: float) -> None:
        """Take no more work; wait for what runs, at most ``grace_s`` seconds, then cancel it."""
        self._stopping = True
        with anyio.move_on_after(grace_s):
            for running in list(self._running.values()):
                await running.ended.wait()
        for running in self._running.values():
            running.scope.cancel()

    async def _run(self, key: KeyT, work: _Work[ResultT], body: Callable[[], Awaitable[ResultT]]) -> None:
        try:
            with work.scope:
                work.results.append(await body())
        except KerfError as error:
            work.error = error
            _log.warning("%s failed: %s", work.verb, error)
        except Exception as error:  # noqa: BLE001  (it is the callers' to see; the other claims go on)
            work.error = error
            _log.exception("%s failed unexpectedly", work.verb)
        finally:
            del self._running[key]
            work.ended.set()
