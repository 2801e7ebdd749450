"""``python -m tests.bench [NAME …]``: one table of everything measured, or of the named modules."""

import importlib
import os
import platform
import sys

import anyio

from driver.cli.output import table
from tests.bench.measuring import HEADER, Row

MODULES = ("allocation", "answers", "cdi", "plugin", "placement", "demo")


async def main(names: list[str]) -> None:
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    print(f"Python {platform.python_version()}, {os.cpu_count()} CPUs, load {load} at the start\n")
    rows: list[Row] = []
    for name in names:
        print(f"measuring {name} …", file=sys.stderr)
        rows += await importlib.import_module(f"tests.bench.{name}").measure()
    print(table(HEADER, [row.cells() for row in rows]))


if __name__ == "__main__":
    anyio.run(main, sys.argv[1:] or list(MODULES))
