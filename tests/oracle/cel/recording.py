"""``python -m tests.oracle.cel.recording FILE``: the judge's answers to every atom, for tests without Go."""

import json
import sys
import tempfile
from pathlib import Path
from typing import Final

from tests.oracle.cel.expressions import ATOMS, DEVICES, DRIVER
from tests.oracle.judging import Judge, build

_TEXT: Final = 80
"""Characters of an error that are kept: only that there is one is compared."""


def main(path: Path) -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        path.open("w", encoding="utf-8") as file,
        Judge(build(Path(__file__).parent, Path(folder) / "oracle")) as judge,
    ):
        for number, expression in enumerate(ATOMS):
            for at, device in enumerate(DEVICES):
                record = {"expression": expression, "driver": DRIVER, "device": {"name": "d", **device}}
                answer = judge.ask(record)
                errors = {"compile_error": answer.get("compileError"), "match_error": answer.get("runtimeError")}
                expect = {key: error and error[:_TEXT] for key, error in errors.items()}
                case = {"name": f"atom-{number}-{at}", "expression": expression, "driver": DRIVER, **device}
                case["expect"] = {**expect, "match": answer.get("matches")}
                file.write(json.dumps(case, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
