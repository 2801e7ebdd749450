"""``python -m tests.oracle [KIND …] [--cases N]``: others' libraries as judges of generated cases.

Without a KIND all are asked. Each is a folder beside this file: a Go module that answers questions, and tests that
compare. They need Go and, the first time, its module proxy.
"""

import argparse
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

# Ten thousand for the eight properties of cdi together.
_CASES = 1250


def main(arguments: Sequence[str]) -> int:
    here = Path(__file__).parent
    kinds = sorted(file.parent.name for file in here.glob("*/go.mod"))
    parser = argparse.ArgumentParser(prog="python -m tests.oracle", description=__doc__)
    parser.add_argument("kind", nargs="*", help=f"of {', '.join(kinds)} (default: all)")
    parser.add_argument(
        "--cases", type=int, default=_CASES, help=f"generated cases for each property (default: {_CASES})"
    )
    parsed, rest = parser.parse_known_args(arguments)
    if not {*parsed.kind} <= {*kinds}:
        parser.error(f"kinds are {', '.join(kinds)}")
    if shutil.which("go") is None:
        print("skipped: the judges are written in Go, and there is no go on the PATH")
        return 0
    os.environ["KERF_ORACLE_CASES"] = str(parsed.cases)
    folders = [str(here / kind) for kind in parsed.kind or kinds]
    return int(pytest.main([*folders, "-q", "-m", "oracle", *rest]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
