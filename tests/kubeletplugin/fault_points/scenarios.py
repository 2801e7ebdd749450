"""The operations at whose every call a fault strikes, and the node before each."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import anyio

from driver.kubeletplugin.claims.device_metadata import FOLDER
from tests.fakes.system_calls import CallFault
from tests.kubeletplugin.fault_points.child import End, run_child
from tests.kubeletplugin.fault_points.node import Node
from tests.kubeletplugin.fault_points.trial import Operation, Point, operate


@dataclass(frozen=True)
class Scenario:
    """One operation on one node."""

    operation: Operation
    arrange: Callable[[Node], None]
    """Brings the node to the state before the operation."""
    claims: int = 1
    cards: int = 1
    is_simulated: bool = False


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


def _interrupted(node: Node) -> None:
    """The plugin was killed in the middle of a prepare."""
    _idle(node)
    saved = node.save()
    count = operate(node, Point(Operation.PREPARE, CallFault.KILL_BEFORE, 0)).report["count"]
    assert isinstance(count, int)
    node.restore(saved)
    assert operate(node, Point(Operation.PREPARE, CallFault.KILL_BEFORE, count * 2 // 3)).was_killed


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
    "prepare of a claim": Scenario(Operation.PREPARE, _idle),
    "prepare of a claim on two cards": Scenario(Operation.PREPARE, _idle, cards=2),
    "prepare of three claims": Scenario(Operation.PREPARE, _idle, claims=3),
    "prepare of three claims on two cards": Scenario(Operation.PREPARE, _idle, claims=3, cards=2),
    "prepare on simulated cards": Scenario(Operation.PREPARE, _idle, claims=3, cards=2, is_simulated=True),
    "unprepare of a claim": Scenario(Operation.UNPREPARE, _busy),
    "unprepare of a claim on two cards": Scenario(Operation.UNPREPARE, _busy, cards=2),
    "unprepare of three claims": Scenario(Operation.UNPREPARE, _busy, claims=3),
    "unprepare of three claims on two cards": Scenario(Operation.UNPREPARE, _busy, claims=3, cards=2),
    "unprepare on simulated cards": Scenario(Operation.UNPREPARE, _busy, claims=3, cards=2, is_simulated=True),
    "first start": Scenario(Operation.START, _new),
    "start with claims": Scenario(Operation.START, _littered, claims=3, cards=2),
    "start after a kill": Scenario(Operation.START, _interrupted, claims=3, cards=2),
    "start after a boot": Scenario(Operation.START, _rebooted, claims=3, cards=2),
    "stop": Scenario(Operation.STOP, _busy, claims=3),
}
