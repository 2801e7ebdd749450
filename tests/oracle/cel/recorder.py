"""``python -m tests.oracle.cel.recorder FILE``: the judge's answers, for tests without Go.

To every atom on every device, and to every costly expression on one.
"""

import json
import sys
import tempfile
from pathlib import Path
from typing import Final

from tests.oracle.cel.expressions import ALONE, COSTLY, DEVICES, DRIVER
from tests.oracle.judge import Judge, build

_TEXT: Final = 80
"""Characters of an error that are kept: only that there is one is compared."""


def main(path: Path) -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        path.open("w", encoding="utf-8") as file,
        Judge(build(Path(__file__).parent, Path(folder) / "oracle")) as judge,
    ):
        named = [(f"atom-{number}", expression, DEVICES) for number, expression in enumerate(ALONE)]
        named += [(f"costly-{number}", expression, DEVICES[:1]) for number, expression in enumerate(COSTLY)]
        for name, expression, devices in named:
            for at, device in enumerate(devices):
                record = {"expression": expression, "driver": DRIVER, "device": {"name": "d", **device}}
                answer = judge.ask(record)
                errors = {"compile_error": answer.get("compileError"), "match_error": answer.get("runtimeError")}
                expect = {key: error and error[:_TEXT] for key, error in errors.items()}
                case = {"name": f"{name}-{at}", "expression": expression, "driver": DRIVER, **device}
                case["expect"] = {**expect, "match": answer.get("matches"), "cost": answer.get("mostCost")}
                file.write(json.dumps(case, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
