"""``python -m tests.conformance KIND FILE.jsonl``: records with another implementation's answers, one JSON a line.

Every disagreement is printed; the last line counts. Each KIND is a module beside this one with a function ``run``.
"""

import argparse
import importlib
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import cast

Run = Callable[[Path, Sequence[str]], tuple[int, int]]
"""Takes the file and what else is on the command line, prints disagreements, gives the numbers of passed and failed."""


def main(arguments: Sequence[str]) -> int:
    kinds = sorted(file.stem for file in Path(__file__).parent.glob("[a-z]*.py"))
    parser = argparse.ArgumentParser(prog="python -m tests.conformance", description=__doc__)
    parser.add_argument("kind", choices=kinds)
    parser.add_argument("file", type=Path)
    parsed, rest = parser.parse_known_args(arguments)
    run = cast("Run", importlib.import_module(f"tests.conformance.{parsed.kind}").run)
    passed, failed = run(parsed.file, rest)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
