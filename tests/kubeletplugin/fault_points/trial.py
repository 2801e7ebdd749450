"""One trial: a fault at one point of one operation, then a restart, and the kubelet calls again as it would."""

import logging
import re
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Final, NoReturn, TypeAlias

from grpc.aio import AioRpcError

from kerf_dra.api.errors import KerfError
from kerf_dra.driver.runtime.lifecycle import iter_leaf_errors
from kerf_dra.driver.testing.nvml import Death, NvidiaMachine
from kerf_dra.driver.testing.nvml.machine import EVERY_FUNCTION
from tests.fakes.nvml_functions import CHANGES, ERRORS, SHARING_CHANGES
from tests.fakes.system_calls import CallFault, SystemCalls
from tests.kubeletplugin.fault_points.cards import NvidiaCards
from tests.kubeletplugin.fault_points.child import End, Ended, run_child
from tests.kubeletplugin.fault_points.node import Life, Node, Saved
from tests.kubeletplugin.fault_points.verdict import judge, judge_answers

COUNTED_CALLS: Final = 1_000_000
"""More than any operation makes."""
_ASKS_FOR_A_RESTART: Final = "restart the plugin"
"""In the error of a sync that failed (``Checkpoint.sync``)."""


_CLEANS_LATER: Final = ("cannot check CDI files", "cannot remove stray files")
"""What a start logs that leaves to the next start what it could not remove (``ClaimGarbageCollector.check_files``)."""
_LITTER: Final = ("stale: ", "stray: ", "device metadata ")
"""How the judge's findings of such things begin."""


class Operation(StrEnum):
    """What the plugin does while the fault strikes."""

    PREPARE = "prepare"
    UNPREPARE = "unprepare"
    START = "start"
    """With its sockets; then the kubelet has all claims prepared."""
    STOP = "stop"


@dataclass(frozen=True, kw_only=True)
class NvmlFault:
    """What befalls a call of NVML: of one function, or of any."""

    function: str
    death: Death | None = None
    """None: the call fails with ``error``, and nothing is done."""
    error: str = "UNKNOWN"
    """A name of ``ERRORS``."""
    stays: bool = False
    """Whether all later calls fail, too."""

    @property
    def is_kill(self) -> bool:
        return self.death is not None

    @property
    def name(self) -> str:
        if self.death is not None:
            return f"{self.death.name} of {self.function}"
        return f"{self.error} of {self.function}{' from then on' if self.stays else ''}"


_SAYS_WHERE: Final = re.compile(r"gpu-\d-|/(kubelet|state|cdi|sharing)\b")
"""A device, or a path of the node."""
Fault: TypeAlias = CallFault | NvmlFault
NVML_KILLS: Final = tuple(
    NvmlFault(function=function, death=death)
    for function in (*CHANGES, *SHARING_CHANGES)
    for death in (Death.BEFORE, Death.HALFWAY, Death.AFTER)
)
KILL_AT_ANY_NVML: Final = NvmlFault(function=EVERY_FUNCTION, death=Death.BEFORE)
NVML_ERROR: Final = NvmlFault(function=EVERY_FUNCTION)
NVML_ERRORS: Final = tuple(
    NvmlFault(function=EVERY_FUNCTION, error=error, stays=stays) for error in ERRORS for stays in (False, True)
)
"""Every code of NVML, once and from then on."""
ABSENCES: Final = tuple(
    fault for fault in NVML_ERRORS if fault.error in {"NOT_SUPPORTED", "INVALID_ARGUMENT", "NOT_FOUND", "GPU_NOT_FOUND"}
)
"""The codes by which NVML also says that something is not there."""


@dataclass(frozen=True)
class Point:
    """A fault at one of the calls of an operation."""

    operation: Operation
    fault: Fault
    at: int
    """The number of the call, from 1; 0: no fault, the calls are counted."""

    def __str__(self) -> str:
        return f"{self.operation}, {self.fault.name} at call {self.at}"


class Faults:
    """The fault of a point, in this process."""

    def __init__(self, node: Node, point: Point) -> None:
        self._node = node
        self._point = point
        self._calls = SystemCalls(node.folders, node.log)
        self.count = 0
        """The calls that it might have befallen."""

    def arm(self) -> None:
        fault, at = self._point.fault, self._point.at
        if isinstance(fault, CallFault):
            self._calls.arm(fault, at)
            return
        machine, skip = self._machine, at - 1 if at else COUNTED_CALLS
        machine.clear_faults()
        if fault.death is None:
            times = None if fault.stays else 1
            machine.add_fault(fault.function, error=ERRORS[fault.error], skip=skip, times=times)
        else:
            machine.add_fault(fault.function, death=fault.death, skip=skip)

    def disarm(self) -> None:
        """Let all calls go well."""
        fault = self._point.fault
        if isinstance(fault, CallFault):
            self.count = self._calls.disarm()
        else:
            self.count = COUNTED_CALLS - self._machine.count_left(fault.function)
            self._machine.clear_faults()

    @property
    def _machine(self) -> NvidiaMachine:
        assert isinstance(self._node.cards, NvidiaCards)
        return self._node.cards.machine


class _Messages(logging.Handler):
    """What the plugin logs as a warning or an error."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.seen: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.seen.append(record.getMessage())


def operate(node: Node, point: Point) -> Ended:
    """Do the operation in a process, with the fault; where the process lives on, the kubelet calls again without it."""
    return run_child(partial(_operate, node, point))


async def _operate(node: Node, point: Point, end: End) -> None:
    messages = _Messages()
    logging.getLogger().addHandler(messages)
    faults = Faults(node, point)
    errors: list[str] = []

    def report(wrong: Sequence[str] = ()) -> NoReturn:
        end({"count": faults.count, "errors": errors, "wrong": wrong, "messages": messages.seen})

    node.age()
    try:
        if point.operation is Operation.START:
            faults.arm()
        async with _live(node, point.operation) as life:
            if point.operation in (Operation.PREPARE, Operation.UNPREPARE):
                faults.arm()
                errors += await (life.prepare() if point.operation is Operation.PREPARE else life.unprepare())
            if point.operation is not Operation.STOP:
                faults.disarm()
                if any(_ASKS_FOR_A_RESTART in error for error in errors):
                    report()
                call_again = _unprepare if point.operation is Operation.UNPREPARE else _prepare
                wrong = await call_again(node, life)
                if any(message.startswith(_CLEANS_LATER) for message in messages.seen):
                    wrong = [one for one in wrong if not one.startswith(_LITTER)]
                report(wrong)
            faults.arm()
        faults.disarm()
    except BaseException as error:
        faults.disarm()
        leaves = list(iter_leaf_errors(error))
        ends = [leaf for leaf in leaves if isinstance(leaf, KerfError)]
        if not ends or not all(isinstance(leaf, KerfError | AioRpcError) for leaf in leaves):
            raise  # an error of the program, or of nothing but the kubelet's call
        errors += [f"the process ends: {leaf}" for leaf in ends]
    report()


def _live(node: Node, operation: Operation) -> AbstractAsyncContextManager[Life]:
    return node.instance() if operation in (Operation.START, Operation.STOP) else node.plugin()


async def _prepare(node: Node, life: Life) -> list[str]:
    """What is wrong once the kubelet has called for all claims; those that it has an answer for get the same."""
    before = {uid: answer for uid, answer in node.read_answers().items() if answer is not None}
    wrong = [f"prepare fails: {error}" for error in await life.prepare()]
    after = node.read_answers()
    others = {uid: after[uid] for uid, answer in before.items() if after[uid] != answer}
    wrong += [f"another answer for {uid}: {other}, not {before[uid]}" for uid, other in others.items()]
    return [*wrong, *judge(node, is_prepared=True)]


async def _unprepare(node: Node, life: Life) -> list[str]:
    wrong = [f"unprepare fails: {error}" for error in await life.unprepare()]
    return [*wrong, *judge(node, is_prepared=False)]


def recover(node: Node, operation: Operation, *, prepares: bool) -> Ended:
    """Start again a minute later, and let the kubelet prepare all claims, or not, and then unprepare them."""

    return run_child(partial(_recover, node, operation, prepares))


async def _recover(node: Node, operation: Operation, prepares: bool, end: End) -> None:
    node.age()
    async with node.plugin() as life:
        wrong = [*judge_answers(node, are_ending=operation is Operation.UNPREPARE)]
        if prepares:
            wrong += await _prepare(node, life)
        wrong += await _unprepare(node, life)
        end({"wrong": wrong})


def try_point(node: Node, saved: Saved, point: Point, *, prepares: bool) -> "Result":
    """Let the fault strike from what was saved on, and start again; ``prepares`` is the kubelet's next call then."""
    node.restore(saved)
    first = operate(node, point)
    hit = node.read_log(point.at)
    if first.failure or (point.fault.is_kill and not first.was_killed):
        return Result(point, hit, first, None)
    second = recover(node, point.operation, prepares=prepares)
    return Result(point, hit, first, second)


@dataclass(frozen=True)
class Result:
    """What became of a point."""

    point: Point
    hit: str
    """The call that the fault befell, as far as it is known."""
    first: Ended
    second: Ended | None
    """None: there was nothing to recover from."""

    @property
    def was_struck(self) -> bool:
        """Whether there was such a call."""
        return self.first.was_killed or bool(self.hit) or bool(self.errors)

    @property
    def errors(self) -> list[str]:
        return list(self.first.report.get("errors", []))

    @property
    def wrong(self) -> list[str]:
        found = [f"at once: {one}" for one in _list_wrong(self.first)]
        found += [f"after a restart: {one}" for one in _list_wrong(self.second)]
        found += [f"an error does not say where: {error}" for error in self.errors if not _SAYS_WHERE.search(error)]
        return [f"{self.point} ({self.hit}): {one}" for one in found]


def _list_wrong(ended: Ended | None) -> list[str]:
    if ended is None:
        return []
    return [*([ended.failure] if ended.failure else []), *ended.report.get("wrong", [])]
