"""The operations at whose every call a fault strikes, and the node before each."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import anyio

from kerf_dra.driver.kubeletplugin.claims.device_metadata import FOLDER
from tests.fakes.system_calls import CallFault
from tests.kubeletplugin.fault_points.child import End, run_child
from tests.kubeletplugin.fault_points.node import BY_MPS, BY_TIME_SLICES, Node, SharedCard
from tests.kubeletplugin.fault_points.trial import (
    ABSENCES,
    KILL_AT_ANY_NVML,
    NVML_ERROR,
    NVML_ERRORS,
    NVML_KILLS,
    Fault,
    Operation,
    Point,
    operate,
)

CALL_KILLS: Final = (CallFault.KILL_BEFORE, CallFault.KILL_HALFWAY, CallFault.KILL_AFTER)
NOT_DONE: Final = (CallFault.FAIL, CallFault.FULL)
"""Errors of calls that have done nothing, or a part."""
DONE: Final = (CallFault.DENY,)
"""Errors of calls that have done all."""
CALL_ERRORS: Final = NOT_DONE + DONE
KILLS: Final[tuple[Fault, ...]] = (*CALL_KILLS, *NVML_KILLS)
FAULTS: Final[tuple[Fault, ...]] = (*KILLS, *CALL_ERRORS, NVML_ERROR)
"""Every fault. A card of which NVML says nothing at the start is not there until the next discovery: no trial waits."""


@dataclass(frozen=True)
class Scenario:
    """One operation on one node."""

    operation: Operation
    arrange: Callable[[Node], None]
    """Brings the node to the state before the operation."""
    claims: int
    """In flight at once."""
    cards: int
    faults: tuple[Fault, ...]
    more_faults: tuple[Fault, ...] = ()
    """Those that only ``--all`` tries: other scenarios have them at the same calls."""
    is_simulated: bool = False
    sharing: SharedCard | None = None
    """How the claims share a whole card; None: they have partitions."""

    @property
    def is_killed_before_every_change(self) -> bool:
        """Whether the faults kill before each change of a file and of a card: one that is simulated has only files.

        Then a kill after a change, or before a call that only reads, leaves what the one before the next change leaves.
        """
        return self.is_simulated or set(NVML_KILLS) <= set(self.faults)


def _new(_: Node) -> None:
    """No plugin ever ran on the node."""


def _idle(node: Node) -> None:
    """A plugin has run, and there are no claims."""
    live(node, prepares=False)


def _busy(node: Node) -> None:
    """All claims are prepared, and the plugin was killed."""

    async def work(end: End) -> None:
        async with node.plugin() as life:
            end({"failure": " ".join(await life.prepare())})

    ended = run_child(work)
    assert not ended.failure, ended.failure


def _littered(node: Node) -> None:
    """As ``_busy``; a CDI file was removed, and interrupted writes have left theirs."""
    _busy(node)
    first, *_ = sorted(node.settings.cdi_dir.glob("*.json"))
    first.rename(first.with_name(f".{first.name}.0123456789abcdef.tmp"))
    stray = node.settings.plugin_dir / FOLDER / "uid-of-nobody"
    stray.mkdir(parents=True)
    (stray / "accelerator.json").write_text("{}")
    node.age()


def _killed(operation: Operation, share: float) -> Callable[[Node], None]:
    """The plugin was killed in an operation, when it had made this share of its system calls."""

    def arrange(node: Node) -> None:
        (_idle if operation is Operation.PREPARE else _busy)(node)
        saved = node.save()
        count = operate(node, Point(operation, CallFault.KILL_BEFORE, 0)).report["count"]
        node.restore(saved)
        assert operate(node, Point(operation, CallFault.KILL_BEFORE, round(count * share))).was_killed
        if operation is Operation.UNPREPARE:
            node.forget_answers()  # that claims are prepared: the kubelet has called for their end

    return arrange


def _rebooted(node: Node) -> None:
    """All claims were prepared, and then the machine was booted."""
    _busy(node)
    for path in node.settings.cdi_dir.iterdir():
        path.unlink()
    node.cards.reboot()
    node.boot_id = "boot-2"
    node.forget_answers()


def live(node: Node, *, prepares: bool) -> None:
    """Start a plugin in this process, and stop it."""

    async def work() -> None:
        async with node.plugin() as life:
            if prepares:
                assert await life.prepare() == []
                assert await life.unprepare() == []

    anyio.run(work)


SCENARIOS: Final[Mapping[str, Scenario]] = {
    "prepare of a claim": Scenario(Operation.PREPARE, _idle, claims=1, cards=1, faults=FAULTS),
    "prepare of a claim on two cards": Scenario(
        Operation.PREPARE, _idle, claims=1, cards=2, faults=KILLS, more_faults=NVML_ERRORS
    ),
    "prepare of three claims": Scenario(Operation.PREPARE, _idle, claims=3, cards=1, faults=KILLS),
    "prepare of three claims on two cards": Scenario(
        Operation.PREPARE, _idle, claims=3, cards=2, faults=KILLS + NOT_DONE, more_faults=DONE
    ),
    "prepare on simulated cards": Scenario(
        Operation.PREPARE,
        _idle,
        claims=3,
        cards=2,
        faults=CALL_KILLS,
        more_faults=CALL_ERRORS,
        is_simulated=True,
    ),
    "prepare of a card that is shared": Scenario(
        Operation.PREPARE, _idle, claims=1, cards=1, faults=KILLS + CALL_ERRORS, sharing=BY_TIME_SLICES
    ),
    "prepare of two claims that share a card": Scenario(
        Operation.PREPARE, _idle, claims=2, cards=1, faults=KILLS, more_faults=CALL_ERRORS, sharing=BY_MPS
    ),
    "prepare after a kill": Scenario(
        Operation.PREPARE, _killed(Operation.PREPARE, 0.7), claims=3, cards=2, faults=CALL_KILLS
    ),
    "unprepare of a claim": Scenario(Operation.UNPREPARE, _busy, claims=1, cards=1, faults=FAULTS),
    "unprepare of a claim on two cards": Scenario(
        Operation.UNPREPARE, _busy, claims=1, cards=2, faults=KILLS + ABSENCES, more_faults=NVML_ERRORS
    ),
    "unprepare of three claims": Scenario(Operation.UNPREPARE, _busy, claims=3, cards=1, faults=KILLS),
    "unprepare of three claims on two cards": Scenario(
        Operation.UNPREPARE, _busy, claims=3, cards=2, faults=KILLS + NOT_DONE, more_faults=DONE
    ),
    "unprepare on simulated cards": Scenario(
        Operation.UNPREPARE,
        _busy,
        claims=3,
        cards=2,
        faults=CALL_KILLS,
        more_faults=CALL_ERRORS,
        is_simulated=True,
    ),
    "unprepare of a card that is shared": Scenario(
        Operation.UNPREPARE, _busy, claims=1, cards=1, faults=KILLS + CALL_ERRORS, sharing=BY_TIME_SLICES
    ),
    "unprepare of two claims that share a card": Scenario(
        Operation.UNPREPARE, _busy, claims=2, cards=1, faults=KILLS, more_faults=CALL_ERRORS, sharing=BY_MPS
    ),
    "unprepare after a kill": Scenario(
        Operation.UNPREPARE, _killed(Operation.UNPREPARE, 0.5), claims=3, cards=2, faults=CALL_KILLS
    ),
    "first start": Scenario(
        Operation.START,
        _new,
        claims=1,
        cards=1,
        faults=KILLS + NOT_DONE,
        more_faults=DONE,
    ),
    "start with claims": Scenario(Operation.START, _littered, claims=3, cards=2, faults=KILLS + CALL_ERRORS),
    "start after a kill of prepare": Scenario(
        Operation.START,
        _killed(Operation.PREPARE, 0.7),
        claims=3,
        cards=2,
        faults=KILLS + NOT_DONE,
        more_faults=DONE,
    ),
    "start after a kill of unprepare": Scenario(
        Operation.START, _killed(Operation.UNPREPARE, 0.5), claims=3, cards=2, faults=CALL_KILLS
    ),
    "start after a boot": Scenario(
        Operation.START, _rebooted, claims=3, cards=2, faults=CALL_KILLS + NOT_DONE, more_faults=DONE
    ),
    "stop": Scenario(Operation.STOP, _busy, claims=3, cards=1, faults=CALL_KILLS + CALL_ERRORS),
}
SAMPLE: Final[Mapping[str, tuple[tuple[Fault, ...], int]]] = {
    "prepare of a claim": (NVML_KILLS, 1),
    "unprepare of a claim": (NVML_KILLS, 1),
    "prepare on simulated cards": ((CallFault.KILL_BEFORE,), 4),
    "unprepare on simulated cards": ((CallFault.KILL_BEFORE,), 4),
    "prepare of three claims on two cards": (
        (CallFault.KILL_BEFORE, CallFault.FAIL, CallFault.FULL, KILL_AT_ANY_NVML),
        2,
    ),
    "unprepare of three claims on two cards": ((CallFault.KILL_BEFORE, CallFault.FAIL, *ABSENCES), 2),
    "start with claims": ((CallFault.KILL_BEFORE, CallFault.FAIL), 2),
}
"""What is tried each time: faults, and how many points of each."""
