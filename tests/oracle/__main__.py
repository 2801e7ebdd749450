"""``python -m tests.oracle [KIND …] [--cases N | --short]``: generated cases, judged by reference implementations.

Without a KIND all run. Each kind has a folder beside this file with the tests that compare the results of a program in
Go with Kerf's. They need Go and, for the first build, its module proxy; ``nvidia`` also needs root, runc and a C
compiler, because it makes device nodes, mounts and containers. ``nvidia-driver``, which needs root and a C compiler,
too, runs NVIDIA's DRA driver beside Kerf's plugin, with all models in the long form only. ``kubelet-dra`` runs the
kubelet's DRA manager with Kerf's plugin, and kills both; ``make test-long`` runs 100,000 cases of it. ``sanity`` runs
``kerf sanity`` on NVIDIA's driver, on Kubernetes' example of a DRA driver and on Kerf's. ``drivers`` runs the first two
on Kerf's demo cluster, ``monitors`` runs nvitop, gpustat and the bindings of Rust on the stand-in for NVML; these
three are left out of the short form, as they download and build. ``prometheus`` and ``xrt`` need no Go: their judges
are promtool, which is taken from Debian's package where there is none, and Debian's libxrt1.
"""

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

CASES: Final[Mapping[str, int]] = {
    "allocator": 20_000,
    "cdi": 1250,  # ten thousand for its eight properties together
    "cel": 5000,
    "drivers": 1,  # drivers of others run, nothing is generated
    "helm": 1,  # the chart is rendered, nothing is generated
    "kubelet-dra": 1000,  # claims of each test, from allocation to deletion
    "monitors": 1,  # programs of others run, nothing is generated
    "nvidia": 300,
    "nvidia-driver": 40,  # sequences of calls for each model
    "prometheus": 1,  # as for the chart
    "protobuf": 200,  # objects of each kind in each version
    "sanity": 1,  # drivers run, nothing is generated
    "xrt": 2000,
}
"""Generated cases for each property."""
SHORT: Final[Mapping[str, int]] = {
    "allocator": 500,
    "cdi": 40,
    "cel": 200,
    "helm": 1,
    "kubelet-dra": 10,
    "nvidia": 10,
    "nvidia-driver": 5,
    "prometheus": 1,
    "protobuf": 5,
    "xrt": 40,
}
"""The same, of the short form that judges every change: with all builds cached, about two minutes for all kinds."""
_WITHOUT_GO: Final = frozenset({"monitors", "prometheus", "xrt"})
"""Their judges are no programs in Go."""


def main(arguments: Sequence[str]) -> int:
    here = Path(__file__).parent
    kinds = sorted(CASES)
    parser = argparse.ArgumentParser(prog="python -m tests.oracle", description=__doc__)
    parser.add_argument("kind", nargs="*", help=f"of {', '.join(kinds)} (default: all)")
    defaults = ", ".join(f"{kind} {CASES[kind]}" for kind in kinds)
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--cases", type=int, help=f"generated cases for each property (default: {defaults})")
    size.add_argument("--short", action="store_true", help="few cases, as for every change")
    parsed, rest = parser.parse_known_args(arguments)
    if not {*parsed.kind} <= {*kinds}:
        parser.error(f"kinds are {', '.join(kinds)}")
    chosen = parsed.kind or kinds
    if not {*chosen} <= _WITHOUT_GO and shutil.which("go") is None:
        parser.error("the judges are written in Go, and there is no go on the PATH: install it (https://go.dev/dl)")
    cases = SHORT if parsed.short else CASES
    chosen = [kind for kind in chosen if kind in cases or kind in parsed.kind]
    folders = {kind: here / kind.replace("-", "_") for kind in chosen}
    return max(_run_comparisons(folders[kind], parsed.cases or cases.get(kind, 1), rest) for kind in chosen)


def _run_comparisons(folder: Path, cases: int, arguments: Sequence[str]) -> int:
    """Run the comparisons of one kind in a process of its own, because the number of cases is an environment
    variable."""
    print(f"{folder.name}: {cases} cases for each property", flush=True)
    command = [sys.executable, "-m", "pytest", str(folder), "-q", "-m", "oracle", *arguments]
    return subprocess.run(command, env={**os.environ, "KERF_ORACLE_CASES": str(cases)}, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
