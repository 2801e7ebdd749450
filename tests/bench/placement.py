"""How much of a loss system's load the allocator accepts on one node, in the scheduler's order and by KEEP.

``python -m tests.bench placement`` is one seed of eight cards. ``python -m tests.bench.placement`` is the whole table,
beside the figures that an independent implementation of the same rules gave: minutes for 8 cards, a quarter of an hour
for 100; with ``--limits``, what could be accepted at best with knowing the future; with ``--nodes`` and ``--cluster``,
what is accepted on several nodes, in a model and by a real kube-scheduler. ``docs/placement.md`` has what they printed.
"""

import argparse
import sys
from collections.abc import Iterable
from statistics import mean
from typing import Final, NamedTuple

import anyio

from kerf_dra.driver.cli.output import format_table
from tests.bench import limits, node_choice, placement_cluster, policies
from tests.bench.measurement import Row
from tests.partitions import loss_system
from tests.partitions.loss_system import Accepted

REQUESTS: Final = 12_000
WARM_UP: Final = 3_000
"""Not counted: the cards fill."""
SEEDS: Final = {8: range(6), 100: range(3)}
QUICK: Final = {"seed": 0, "requests": 4_000, "warm_up": 1_000}
"""For ``make bench``: 20 seconds for all five cells."""


class Cell(NamedTuple):
    """One load of the table, and what was accepted of it elsewhere."""

    cards: int
    mix: str
    load: float
    first: Accepted
    kept: Accepted

    def __str__(self) -> str:
        return f"{self.cards} H100, {self.mix}, load {self.load}"

    def run(
        self, policy: loss_system.Policy, *, seed: int, requests: int = REQUESTS, warm_up: int = WARM_UP
    ) -> Accepted:
        given = {"cards": self.cards, "seed": seed, "requests": requests, "warm_up": warm_up}
        return loss_system.run(policy, mix=self.mix, load=self.load, **given)


REFERENCE: Final = (
    Cell(100, "uniform", 0.85, Accepted(97.2, 94.9), Accepted(98.9, 97.7)),
    Cell(100, "uniform", 1.0, Accepted(92.3, 85.5), Accepted(94.7, 89.2)),
    Cell(100, "uniform", 1.3, Accepted(83.3, 68.3), Accepted(85.0, 70.4)),
    Cell(100, "small", 1.0, Accepted(95.4, 87.5), Accepted(96.1, 89.6)),
    Cell(100, "big", 0.85, Accepted(95.9, 94.0), Accepted(98.3, 97.3)),
    Cell(100, "big", 1.0, Accepted(89.3, 84.3), Accepted(93.0, 88.8)),
    Cell(100, "bimodal", 1.0, Accepted(93.6, 87.3), Accepted(94.3, 88.5)),
    Cell(8, "uniform", 0.85, Accepted(86.4, 76.5), Accepted(88.4, 79.7)),
    Cell(8, "uniform", 1.0, Accepted(81.9, 69.3), Accepted(83.8, 72.2)),
    Cell(8, "small", 1.0, Accepted(87.6, 73.8), Accepted(88.4, 75.7)),
    Cell(8, "big", 1.0, Accepted(77.4, 68.7), Accepted(79.4, 71.6)),
    Cell(8, "bimodal", 1.0, Accepted(83.4, 68.7), Accepted(84.1, 69.6)),
)
"""12,000 requests, of which 3,000 do not count; means of all seeds; Python's ``random.Random``."""


async def measure() -> list[Row]:
    return [
        Row(
            name=f"{cell}: KEEP",
            unit="% accepted",
            samples=[cell.run(policies.keep(), **QUICK).requests],
            baseline_name="first fit",
            baseline=[cell.run(policies.first_fit(), **QUICK).requests],
            goal=">= 1.00 x",
        )
        for cell in REFERENCE
        if cell.cards == 8
    ]


HEADER: Final = ("WHAT", "FIRST FIT", "REFERENCE", "KEEP", "REFERENCE")


def row(cell: Cell) -> tuple[str, ...]:
    means = []
    for policy in (policies.first_fit, policies.keep):
        runs = [cell.run(policy(), seed=seed) for seed in SEEDS[cell.cards]]
        means.append(Accepted(mean(run.requests for run in runs), mean(run.slices for run in runs)))
    first, kept = means
    return str(cell), _text(first), _text(cell.first), _text(kept), _text(cell.kept)


def _text(accepted: Accepted) -> str:
    """Requests, and in brackets memory slices, in percent."""
    return f"{accepted.requests:.1f} ({accepted.slices:.1f})"


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.placement", description=__doc__)
    parser.add_argument("--cards", type=int, choices=list(SEEDS), action="append", help="8, 100 or (default) both")
    instead = parser.add_mutually_exclusive_group()
    instead.add_argument(
        "--limits", type=int, nargs="*", metavar="CARDS", help="the best with knowing the future; default 8"
    )
    instead.add_argument(
        "--nodes",
        nargs="*",
        type=node_choice.Nodes.parse,
        metavar="NODESxCARDS",
        help="several nodes, in a model; default 8x1, 2x4 and 25x4",
    )
    instead.add_argument(
        "--cluster", nargs="*", metavar="VARIANT", help="several nodes and a real kube-scheduler; default all variants"
    )
    options = parser.parse_args(arguments)
    loads = [(cell.mix, cell.load) for cell in REFERENCE if cell.cards == 8]
    if options.limits is not None:
        rows = (limits.row(cards, *load) for cards in options.limits or [8] for load in loads)
        print(format_table(limits.HEADER, _said(rows)))
    elif options.nodes is not None:
        rows = (each for nodes in options.nodes or node_choice.USUAL for each in node_choice.rows(nodes))
        print(format_table(node_choice.HEADER, _said(rows)))
    elif options.cluster is not None:
        variants = [each for each in placement_cluster.VARIANTS if each.name in options.cluster or not options.cluster]
        courses = anyio.run(placement_cluster.play, variants, placement_cluster.RUNS)
        print(format_table(placement_cluster.HEADER, list(placement_cluster.rows(courses, placement_cluster.RUNS))))
    else:
        chosen = [cell for cell in REFERENCE if cell.cards in (options.cards or SEEDS)]
        print(format_table(HEADER, _said(map(row, chosen))))


def _said(rows: Iterable[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """``rows``, each also shown as soon as it is there: some take minutes."""
    shown = []
    for each in rows:
        print("  ".join(each), file=sys.stderr)
        shown.append(each)
    return shown


if __name__ == "__main__":
    main(sys.argv[1:])
