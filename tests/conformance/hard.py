"""``python -m tests.conformance hard FILE.jsonl [--limit-ms N]``: inputs on which a depth-first search explodes.

The fields are those of ``allocator``; ``fits`` is the right answer. Every case is timed; wrong, undecided and too late
are failures alike.
"""

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path

from tests.conformance.allocator import answer, compare, describe


def run(path: Path, arguments: Sequence[str]) -> tuple[int, int]:
    """Judge every case of ``path``; prints answer and time of each. Returns how many passed and how many failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.conformance hard")
    parser.add_argument("--limit-ms", type=float, default=100.0, help="for each case (default: 100)")
    limit_ms: float = parser.parse_args(arguments).limit_ms
    passed = failed = 0
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines()):
        case = json.loads(line)
        if not number:
            answer(case)  # what is loaded and compiled once in a process is not the case's own time
        begin = time.perf_counter()
        outcome = answer(case)
        took_ms = (time.perf_counter() - begin) * 1000
        wrong = compare(case, outcome)
        late = f"later than {limit_ms:.0f} ms" if took_ms > limit_ms else None
        failure = wrong or late
        print(f"{case['name']}: {took_ms:.1f} ms, {describe(outcome)[:80]}{f' - {failure}' if failure else ''}")
        passed, failed = (passed, failed + 1) if failure else (passed + 1, failed)
    return passed, failed
