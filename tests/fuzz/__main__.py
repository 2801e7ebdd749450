"""Fuzzes code that reads files: ``python -m tests.fuzz KIND... [--executions N] [--seed N]``; ``all``: every kind.

Each KIND is a module beside this one with ``target(folder)``, which returns a function that raises on an input with a
finding, and ``generated(seed)``, which returns the input of that seed. Where atheris is installed (``pip install
atheris``), it guides inputs by coverage; otherwise all inputs are generated.
"""

import argparse
import importlib
import importlib.util
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, Protocol, cast

_MOST_MIB: Final = 64
"""What a run may take of memory beyond what the process had at its start: no input has more than a few KiB."""

Target = Callable[[bytes], None]


class Kind(Protocol):
    """The interface of a module of inputs."""

    def target(self, folder: Path) -> Target: ...
    def generated(self, seed: int) -> bytes: ...


class FuzzFindingError(Exception):
    """An input on which the target raises."""


def main(arguments: Sequence[str]) -> int:
    kinds = sorted(file.stem for file in Path(__file__).parent.glob("[a-z]*.py") if not file.stem.startswith("test_"))
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("kinds", nargs="+", choices=(*kinds, "all"), metavar="KIND", help=", ".join((*kinds, "all")))
    parser.add_argument("--executions", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0, help="of the first generated input")
    parser.add_argument("--engine", choices=("atheris", "generated"), default=_engine())
    parsed = parser.parse_args(arguments)
    chosen = kinds if "all" in parsed.kinds else list(dict.fromkeys(parsed.kinds))
    options = ["--executions", str(parsed.executions), "--seed", str(parsed.seed), "--engine", parsed.engine]
    if len(chosen) > 1:  # a process for each: the memory of each counts for itself
        command = [sys.executable, "-m", "tests.fuzz"]
        return max(subprocess.run([*command, kind, *options], check=False).returncode for kind in chosen)
    [kind] = chosen
    print(f"{kind}: {parsed.executions} executions, {parsed.engine}", flush=True)
    fuzz = _run_guided if parsed.engine == "atheris" else _run_generated
    with tempfile.TemporaryDirectory() as folder:
        begin, before = time.monotonic(), _read_peak_mib()
        fuzz(kind, Path(folder), parsed.executions, parsed.seed)
        # atheris ends the process by itself and prints its own last line.
        took_s, grown = time.monotonic() - begin, _read_peak_mib() - before
        if grown > _MOST_MIB:
            raise FuzzFindingError(f"{kind}: {grown:.0f} MiB more memory than at the start")
        print(f"{kind}: {parsed.executions} executions in {took_s:.0f} s, {grown:.0f} MiB, no finding")
    return 0


def _read_peak_mib() -> float:
    """Return the most memory that this process has had so far (getrusage(2): KiB)."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _engine() -> str:
    return "atheris" if importlib.util.find_spec("atheris") else "generated"


def _kind(name: str) -> Kind:
    return cast("Kind", importlib.import_module(f"tests.fuzz.{name}"))


def _run_generated(name: str, folder: Path, executions: int, seed: int) -> None:
    kind = _kind(name)
    target = kind.target(folder)
    for number in range(seed, seed + executions):
        data = kind.generated(number)
        try:
            target(data)
        except Exception as error:
            raise FuzzFindingError(f"seed {number}: {data!r}") from error


def _run_guided(name: str, folder: Path, executions: int, seed: int) -> None:
    # By name: it is optional, and brings no types.
    atheris = importlib.import_module("atheris")
    # A kind reads the package of its name; that is what is watched.
    with atheris.instrument_imports(include=[name]):
        kind = _kind(name)

    def mutated(data: bytes, size: int, number: int) -> bytes:
        """Half of the inputs are generated, half are what libFuzzer makes of those that reached new lines."""
        return kind.generated(number)[:size] if number % 2 else cast("bytes", atheris.Mutate(data, size))

    options = [f"-runs={executions}", f"-seed={seed + 1}", "-max_len=8192", "-rss_limit_mb=2048", "-timeout=30"]
    atheris.Setup([sys.argv[0], *options], kind.target(folder), custom_mutator=mutated)
    atheris.Fuzz()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
