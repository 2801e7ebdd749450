"""Counts the calls of operations, tries points of each, and prints as JSON what became of them.

``python -m tests.kubeletplugin.fault_points SCENARIO``: every point, but for kills that leave what others leave and
errors that other scenarios have at the same calls; with ``--all`` these too. ``SCENARIO --point FAULT AT``: one.
``sample``: a few of some scenarios. The process must have been started with the library that
``tests.fakes.system_calls`` builds.
"""

import argparse
import gc
import json
import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TypeAlias

from tests.fakes.system_calls import CallFault
from tests.kubeletplugin.fault_points import mps_daemons
from tests.kubeletplugin.fault_points.cards import NvidiaCards, SimulatedCards
from tests.kubeletplugin.fault_points.node import CLAIMS, Node, Saved
from tests.kubeletplugin.fault_points.scenarios import FAULTS, SAMPLE, SCENARIOS, Scenario, live
from tests.kubeletplugin.fault_points.trial import (
    KILL_AT_ANY_NVML,
    NVML_KILLS,
    Fault,
    Point,
    Result,
    operate,
    try_point,
)
from tests.runtime.memory_folder import memory_folder

MORE = 8
"""Numbers after the last call that was counted which are tried while there are such calls: threads take turns otherwise
each time."""


Choice: TypeAlias = Callable[[list[int]], list[int]]
"""Which of the calls that a fault may befall are tried."""


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.kubeletplugin.fault_points", description=__doc__)
    parser.add_argument("scenario", choices=[*SCENARIOS, "sample"])
    parser.add_argument("--all", action="store_true", help="also points that are like others")
    parser.add_argument("--point", nargs=2, metavar=("FAULT", "AT"))
    options = parser.parse_args(arguments)
    logging.getLogger().addHandler(logging.NullHandler())  # what the plugins log is read by no one
    if options.scenario == "sample":
        results = [
            one
            for scenario, (faults, number) in SAMPLE.items()
            for one in try_scenario(SCENARIOS[scenario], faults, _spread(number))
        ]
    elif options.point:
        fault, at = options.point
        results = [try_one(SCENARIOS[options.scenario], fault, int(at))]
        print(results[0].first, results[0].second, file=sys.stderr)
    else:
        scenario = SCENARIOS[options.scenario]
        results = list(try_every_call(scenario) if options.all else try_scenario(scenario, scenario.faults))
    report = {
        "points": len(results),
        "killed": sum(one.first.was_killed for one in results),
        "wrong": [text for one in results for text in one.wrong],
        "errors": sorted({text for one in results for text in one.errors}),
    }
    print(json.dumps(report, indent=1))


def try_one(scenario: Scenario, fault_name: str, at: int) -> Result:
    (fault,) = (fault for fault in (*FAULTS, KILL_AT_ANY_NVML) if fault.name == fault_name)
    with arranged(scenario) as (node, saved):
        return try_point(node, saved, Point(scenario.operation, fault, at), prepares=True)


def _spread(number: int) -> Choice:
    """So many, spread over the operation."""
    return lambda numbers: numbers[:: max(1, len(numbers) // number)][:number]


def _last(numbers: list[int]) -> list[int]:
    return numbers[-1:]


def try_every_call(scenario: Scenario) -> Iterator[Result]:
    """Try all points of all faults, and kills before calls of NVML that only read."""
    with arranged(scenario) as (node, saved):
        reads = (KILL_AT_ANY_NVML,) if set(NVML_KILLS) <= set(scenario.faults) else ()
        for fault in (*scenario.faults, *scenario.more_faults, *reads):
            yield from try_all(node, saved, Point(scenario.operation, fault, 0), None)


def try_scenario(scenario: Scenario, faults: "tuple[Fault, ...]", choose: Choice | None = None) -> Iterator[Result]:
    """Try points of each of the faults, None: all of them; of kills after a call one, where others leave the same."""
    with arranged(scenario) as (node, saved):
        for fault in faults:
            is_covered = fault is CallFault.KILL_AFTER and scenario.is_killed_before_every_change
            chosen = _last if is_covered else choose
            yield from try_all(node, saved, Point(scenario.operation, fault, 0), chosen)


@contextmanager
def arranged(scenario: Scenario) -> "Iterator[tuple[Node, Saved]]":
    """A node right before the operation."""
    with ExitStack() as stack:
        root = Path(stack.enter_context(memory_folder())).resolve()
        if scenario.sharing is not None:
            stack.enter_context(mps_daemons.answered(root))
        cards = (
            SimulatedCards(root, scenario.cards)
            if scenario.is_simulated
            else NvidiaCards(root, scenario.cards, is_sharing=scenario.sharing is not None)
        )
        claims = scenario.sharing.claims if scenario.sharing else CLAIMS[scenario.claims, scenario.cards]
        node = Node(root, cards, claims, sharing=scenario.sharing)
        blank = node.save()
        node.restore(blank)
        live(node, prepares=True)  # what this process has loaded and worked out, its children have
        gc.freeze()
        node.restore(blank)
        scenario.arrange(node)
        yield node, node.save()


def try_all(node: Node, saved: Saved, counted: Point, choose: Choice | None) -> Iterator[Result]:
    node.restore(saved)
    without = operate(node, counted)
    report = without.report
    if without.failure or report["wrong"] or report["errors"]:
        raise AssertionError(f"without a fault: {without}")
    count = int(report["count"])
    numbers = [at for at in range(1, count + 1) if _may_befall(counted.fault, node.read_log(at))]
    if choose is not None:
        numbers = choose(numbers)
    elif count:
        numbers += range(count + 1, count + 1 + MORE)
    for tried, at in enumerate(numbers):
        point = Point(counted.operation, counted.fault, at)
        result = try_point(node, saved, point, prepares=tried % 2 == 0)
        if not result.was_struck and not result.wrong:
            if at > count:
                return
            continue  # it had fewer calls this time
        yield result


def _may_befall(fault: Fault, call: str) -> bool:
    """Whether a call, as it was logged, has a point for the fault: only writes have a middle."""
    return fault is not CallFault.KILL_HALFWAY or call.startswith(("write", "pwrite"))


if __name__ == "__main__":
    main(sys.argv[1:])
