"""``python -m tests.soak --claims 1000000``: prints its progress, and one line with the result."""

import argparse
import json
import os
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from random import Random

from tests.soak.run import Report, merge, soak


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--claims", type=int, default=1_000_000)
    parser.add_argument("--processes", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--seed", type=int, default=Random().randrange(10**9))
    options = parser.parse_args(arguments)
    reports = run_in_processes(options.claims, options.processes, options.seed, shows_progress=True)
    whole = merge(reports)
    print(json.dumps({"seed": options.seed, "processes": options.processes, **whole.to_json()}))
    return 0 if whole.is_good else 1


def run_in_processes(claims: int, processes: int, seed: int, *, shows_progress: bool = False) -> list[Report]:
    """Run a part of the claims in each process, on a node of its own."""
    parts = [claims // processes + (number < claims % processes) for number in range(processes)]
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        runs = [
            pool.submit(soak, part, seed + number, shows_progress=shows_progress and number == 0)
            for number, part in enumerate(parts)
        ]
        return [run.result() for run in runs]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
