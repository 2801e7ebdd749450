"""``python -m tests.kernel_dfl.trial FILE guest|stand-in [CASE …]``: tries the cases, and writes a line for each."""

import json
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.kernel_dfl.bench import GuestBench, StandInBench
from tests.kernel_dfl.cases import NAMES, run_case


def main(file: Path, kind: str, chosen: list[str]) -> None:
    with file.open("w", buffering=1) as lines:
        for name in chosen or NAMES:
            with TemporaryDirectory() as folder:
                bench = (GuestBench if kind == "guest" else StandInBench)(Path(folder) / "machine")
                lines.write(json.dumps({"case": name, "seen": run_case(name, bench)}) + "\n")
        lines.write(json.dumps({"end": True}) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3:])
