"""``python -m tests.oracle KIND [--cases N]``: libraries of others as judges of generated cases.

Each KIND is a folder beside this file: a Go module that answers questions, and tests that compare. They need Go and,
the first time, its module proxy.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest


def main(arguments: Sequence[str]) -> int:
    here = Path(__file__).parent
    kinds = sorted(file.parent.name for file in here.glob("*/go.mod"))
    parser = argparse.ArgumentParser(prog="python -m tests.oracle", description=__doc__)
    parser.add_argument("kind", choices=kinds)
    parser.add_argument("--cases", type=int, default=1000, help="generated cases for each property (default: 1000)")
    parsed, rest = parser.parse_known_args(arguments)
    os.environ["KERF_ORACLE_CASES"] = str(parsed.cases)
    return int(pytest.main([str(here / parsed.kind), "-q", "-m", "oracle", *rest]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
