"""A process of the plugin on a virtual clock: all its parts but the sockets, to be killed at any effect.

Calls to hardware and writes of files are made in the event loop, each at a moment that chance chooses, so that a seed
gives the same schedule each time. A process that is killed has no more effects: its tasks are cancelled, and whatever
they still try to change raises ``Killed``.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Final, TypeVar

import anyio

from kerf_dra.api.errors import KerfError
from kerf_dra.api.podresources.v1 import ClaimUse
from kerf_dra.driver.families.base import Family
from kerf_dra.driver.kubeletplugin.backends.base import Backend
from kerf_dra.driver.kubeletplugin.backends.card_executor import _RunningCall
from kerf_dra.driver.kubeletplugin.claims.checkpoint.checkpoint import Checkpoint, open_checkpoint
from kerf_dra.driver.kubeletplugin.cluster.base import Cluster
from kerf_dra.driver.kubeletplugin.plugin import NodePlugin
from kerf_dra.driver.kubeletplugin.settings import Settings
from kerf_dra.driver.runtime.worker_threads import Report, Work
from tests.fakes.claims import NODE
from tests.kubeletplugin.plugin_builder import build_parts, running_parts

ResultT = TypeVar("ResultT")

LONGEST_CALL_S: Final = 2.0
"""Of a call to hardware."""
EVENTS_S: Final = 20.0
"""Time until a backend that waits for events looks, where nothing hurries it."""
SURVEYS_S: Final = 40.0
"""Seconds between surveys: as seldom as schedules can bear, whose time most of them would take."""
PUBLICATIONS_S: Final = 60.0
"""Least seconds between two publications, for the same reason."""
_STOP_S: Final = 30.0
_FILE_WORK: Final = frozenset({"_write_files", "_remove_files"})
"""The functions of the plugin that write and remove claims' files."""
_FILE_READS: Final = frozenset({"_stamp", "_stamp_all", "find_pod_processes"})
"""The functions of the plugin that look at claims' files, and at processes."""
_SAMPLES: Final = frozenset({"read_usage", "write_usage", "sample_card"})
"""The functions of the plugin that find out and keep what claims use: nothing that a claim has depends on them."""
_WAIT: Final = "wait_for_events"
_CALLS: Final = frozenset(
    {
        "open",
        "discover",
        "list_unlisted",
        "survey_card",
        "renumber",
        "restore",
        "run_prepare",
        "run_release",
        "close",
        _WAIT,
    }
)
"""The calls to hardware by their functions. When the function of a wait was not found, each wait took a moment in place
of EVENTS_S, and a schedule four times the processor."""


class Killed(BaseException):
    """The process was killed; nothing of it runs after this but what Python cannot prevent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outside:
    """What is outside of the process and outlives it."""

    root: Path
    cluster: Cluster
    backend: Backend
    family: Family
    boot_id: str
    chance: Random
    list_uses: Callable[[], Awaitable[Sequence[ClaimUse]]]
    wall_clock: Callable[[], float]
    """Unix time, which an administrator may set."""
    observe: Callable[[], None]
    """Called after each call that may have changed the hardware."""

    @property
    def settings(self) -> Settings:
        root = self.root
        return Settings(
            node_name=NODE,
            family=self.family,
            backends=(),
            kubelet_root=root / "kubelet",
            cdi_dir=root / "cdi",
            survey_interval_s=SURVEYS_S,
            publish_min_interval_s=PUBLICATIONS_S,
        )


class PluginProcess:
    """One process, from its start to its end."""

    def __init__(self, outside: Outside, *, on_death: Callable[[], None]) -> None:
        """``on_death`` is called at the moment at which the process is killed, or has ended by itself."""
        self._outside = outside
        self._on_death = on_death
        self._scope = anyio.CancelScope()
        self._stop = anyio.Event()
        self._waits: list[Callable[[], None]] = []
        self.ended = anyio.Event()
        self.is_dead = False
        self.is_serving = False
        self.effects = 0
        self.strike: Callable[[], None] | None = None
        self.strike_at = 0
        """``strike`` is called right before the effect of this number, from 1."""
        self.checkpoint: Checkpoint | None = None
        self.plugin: NodePlugin | None = None

    async def run(self) -> None:
        """Run until killed or stopped."""
        try:
            with self._scope:
                await self._run()
        except BaseExceptionGroup as group:
            rest = group.split(Killed)[1]
            if rest is not None:
                raise
        except Killed:
            pass
        finally:
            if not self.is_dead:
                self.is_dead = True
                self._on_death()
            self.is_serving = False
            self.ended.set()

    def kill(self) -> None:
        """Kill the process, now."""
        if self.is_dead:
            return
        self.is_dead, self.is_serving = True, False
        if self.plugin is not None:
            flights = self.plugin.lifecycle.flights
            flights._is_stopping = True
            for flight in flights._flights.values():
                flight.scope.cancel()
        self._scope.cancel()
        self._on_death()

    def stop(self) -> None:
        """Ask the process to end, as for an update: it finishes what it has begun."""
        self.is_serving = False
        self._stop.set()

    def strike_before(self, number: int, strike: Callable[[], None]) -> None:
        """Have ``strike`` called right before the effect that is so many from now."""
        self.strike, self.strike_at = strike, self.effects + number

    def pass_effect(self) -> None:
        """Come to a moment at which something durable changes. Raises Killed in a process that is dead by then."""
        if not self.is_dead:
            self.effects += 1
            if self.strike is not None and self.effects == self.strike_at:
                strike, self.strike = self.strike, None
                strike()
        if self.is_dead:
            raise Killed

    def hurry_events(self) -> None:
        """Have the backend look for events soon."""
        waits, self._waits = self._waits, []
        for look in waits:
            asyncio.get_running_loop().call_later(0.01, look)

    async def _run(self) -> None:
        outside, settings = self._outside, self._outside.settings
        settings.state.mkdir(parents=True, exist_ok=True)
        with open_checkpoint(settings.state, boot_id=outside.boot_id, fdatasync=lambda _: None) as checkpoint:
            self.checkpoint = checkpoint
            write = checkpoint._write

            def write_or_die(changes: Any) -> None:
                self.pass_effect()
                write(changes)

            checkpoint._write = write_or_die  # type: ignore[method-assign]
            try:
                await self._work(settings, checkpoint)
            finally:
                self.checkpoint = None

    async def _work(self, settings: Settings, checkpoint: Checkpoint) -> None:
        outside = self._outside
        async with anyio.create_task_group() as tasks:
            plugin = self.plugin = build_parts(
                settings,
                outside.cluster,
                outside.backend,
                checkpoint,
                tasks,
                boot_id=outside.boot_id,
                list_uses=outside.list_uses,
                now=outside.wall_clock,
                start_call=self._start_call,
            )
            async with running_parts(plugin):
                self.is_serving = True
                await self._stop.wait()
            with anyio.CancelScope(shield=True):
                await plugin.drain(_STOP_S)
                self.hurry_events()
                await plugin.close()

    def _start_call(self, work: Work) -> None:
        """Have a call to hardware made in the event loop, later, or files written there, at once."""
        assert isinstance(work, partial)
        name = _name_function(work)
        if name in _FILE_WORK:
            asyncio.get_running_loop().call_soon(lambda: self._wrap_file_work(work)()())
            return
        if name in _FILE_READS or (name in _SAMPLES and not self.is_dead):
            asyncio.get_running_loop().call_soon(lambda: work()())
            return
        if name in _SAMPLES:
            return

        def make_call() -> None:
            if self.is_dead:
                return
            report = work()
            self._outside.observe()
            report()

        assert name in _CALLS, name
        loop = asyncio.get_running_loop()
        if name != _WAIT:
            loop.call_later(self._outside.chance.choice((0.0, 0.001, 0.1, LONGEST_CALL_S)), make_call)
            return
        pending = [make_call]

        def look() -> None:
            if pending:
                pending.pop()()

        self._waits.append(look)
        loop.call_later(EVENTS_S, look)

    def _wrap_file_work(self, work: "partial[Report]") -> Work:
        """Return ``work`` with an effect before it and after it; what they raise ends it, and its task hears of it."""
        loop, context, function, args, end = work.args

        def write(*arguments: object) -> object:
            self.pass_effect()
            result = function(*arguments)
            self.pass_effect()
            return result

        return partial(work.func, loop, context, write, args, end)


def _name_function(work: "partial[Report]") -> str:
    """Return the name of the function that ``start_call`` was called with; a call to hardware also notes its thread."""
    _, _, function, args, _ = work.args
    if function.__qualname__ == _RunningCall.run_in_thread.__qualname__:
        function = args[0]
    return str(getattr(function, "func", function).__name__)


async def answer_of(call: Awaitable[ResultT]) -> ResultT | KerfError | None:
    """Wait for a call of the kubelet; returns its result or its error, and None when the process has died."""
    with suppress(Killed):
        try:
            return await call
        except KerfError as error:
            return error
    return None
