"""The run time of ``kerf demo``, compared with an interpreter that imports the same modules."""

import subprocess
import sys
import time

from tests.bench.measurement import Row

RUNS = 3


async def measure() -> list[Row]:
    whole, imports = [], []
    for _ in range(RUNS):
        whole.append(_seconds("-m", "kerf_dra.driver.cli", "demo", "-o", "json"))
        imports.append(_seconds("-c", "import kerf_dra.driver.cli.demo"))
    row = Row(
        name="demo: from start to exit",
        unit="s",
        samples=whole,
        baseline_name="its imports",
        baseline=imports,
        goal="<= 30 s",
    )
    return [row]


def _seconds(*arguments: str) -> float:
    begin = time.perf_counter()
    subprocess.run([sys.executable, *arguments], check=True, capture_output=True)
    return time.perf_counter() - begin
