"""Tries points of one scenario, and prints what became of them as JSON.

``python -m tests.kubeletplugin.fault_points SCENARIO [STEP]``: every STEP-th point. ``SCENARIO FAULT AT`` tries one.
"""

import gc
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.fakes.system_calls import CallFault
from tests.kubeletplugin.fault_points.cards import NvidiaCards, SimulatedCards
from tests.kubeletplugin.fault_points.node import CLAIMS, Node, Saved
from tests.kubeletplugin.fault_points.scenarios import SCENARIOS, Scenario, live
from tests.kubeletplugin.fault_points.trial import Fault, Operation, NVML_FAULTS, Point, Result, operate, try_point

SPACE = 8
"""Numbers after the last call that was counted, while they are calls: threads take turns otherwise each time."""


def main(name: str, *more: str) -> None:
    scenario = SCENARIOS[name]
    with TemporaryDirectory(prefix="kerf-", dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:
        root = Path(folder).resolve()
        cards = (SimulatedCards if scenario.is_simulated else NvidiaCards)(root, scenario.cards)
        node = Node(root, cards, CLAIMS[scenario.claims, scenario.cards])
        blank = node.save()
        node.restore(blank)
        live(node, prepares=True)  # what this process has loaded and worked out, its children have
        node.restore(blank)
        gc.freeze()
        scenario.arrange(node)
        saved = node.save()
        if len(more) == 2:
            fault = next(fault for fault in (*CallFault, *NVML_FAULTS) if fault.name == more[0])
            point = Point(scenario.operation, fault, int(more[1]))
            result = try_point(node, saved, point, prepares=True)
            print(result.hit, result.first, result.second, "\n".join(result.wrong))
            return
        step = int(more[0]) if more else 1
        results = [one for fault in faults_of(scenario) for one in try_all(node, saved, scenario.operation, fault, step)]
    report = {
        "points": len(results),
        "wrong": [text for one in results for text in one.wrong],
        "errors": sorted({text for one in results for text in one.errors}),
    }
    print(json.dumps(report, indent=1))


def faults_of(scenario: Scenario) -> list[Fault]:
    calls = [fault for fault in CallFault if fault is not CallFault.NONE]
    return calls if scenario.is_simulated else [*calls, *NVML_FAULTS]


def try_all(node: Node, saved: Saved, operation: Operation, fault: Fault, step: int) -> Iterator[Result]:
    node.restore(saved)
    counted = operate(node, Point(operation, fault, 0))
    count = counted.report.get("count", 0)
    begun = time.monotonic()
    if counted.failure or counted.report["wrong"] or counted.report["errors"]:
        raise AssertionError(f"without a fault: {counted}")
    lines = node.log.read_text().splitlines()
    at, tried = 1, 0
    while True:
        if fault is CallFault.KILL_HALFWAY and at <= count and not lines[at - 1].startswith(("write", "pwrite")):
            at += 1
            continue
        if at > count + SPACE:
            break
        result = try_point(node, saved, Point(operation, fault, at), prepares=tried % 2 == 0)
        if not result.was_struck and not result.wrong and at > count:
            break
        tried += 1
        yield result
        at += step
    print(f"{fault.name}: {count} calls, {tried} tried, {time.monotonic() - begun:.1f} s", file=sys.stderr)


if __name__ == "__main__":
    main(*sys.argv[1:])
