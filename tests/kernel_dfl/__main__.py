"""``python -m tests.kernel_dfl [--limit SECONDS] [--contract] [CASE …]``: the kernel's DFL drivers judge Kerf.

What is tried on the drivers in a guest, and on their stand-in here, is printed as a table; the exit status is 1 where
the two differ for no known reason. It needs Debian's packages (``packages``), which are fetched once, a C compiler with
libc's static library, and make. ``--contract`` runs the contract of backends in the guest as well, which takes several
times as long.
"""

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from tests.kernel_dfl.cases import NAMES
from tests.kernel_dfl.guest import RESULTS, GuestRun, build_qemu_command, pack_archive, run_guest, write_command
from tests.kernel_dfl.machine import list_card_parameters
from tests.kernel_dfl.modules import build_init, build_modules
from tests.kernel_dfl.packages import NoKernelError, unpack_packages
from tests.kernel_dfl.report import compare, format_table, parse_results
from tools.realcluster.builds import cache

_CHECKOUT: Final = Path(__file__).parents[2]
_LIMIT_S: Final = 1200
"""The time limit of the guest: on two idle cores it takes about two minutes, with other work beside it ten."""


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.kernel_dfl", description=__doc__)
    parser.add_argument("case", nargs="*", help="what to try, as the table calls it (default: all)")
    parser.add_argument("--limit", type=float, default=_LIMIT_S, help="seconds that the guest may run (%(default)g)")
    parser.add_argument("--contract", action="store_true", help="the contract of backends, too (some ten minutes)")
    parsed = parser.parse_args(arguments)
    if unknown := {*parsed.case} - {*NAMES}:
        parser.error(f"no such case: {', '.join(sorted(unknown))}; there are: {'; '.join(NAMES)}")
    names = parsed.case or NAMES
    try:
        trial = _run_in_guest(["-m", "tests.kernel_dfl.trial", RESULTS, "guest", *parsed.case], parsed.limit)
        if not trial.results:
            raise NoKernelError(trial.fault)
        rows = compare(names, parse_results(trial.results), _try_stand_in(parsed.case))
        print(format_table(rows))
        faults = [trial.fault]
        if parsed.contract:
            faults.append(_run_in_guest(_CONTRACT, parsed.limit).fault)
    except NoKernelError as error:
        print(f"make kernel-dfl: {error}", file=sys.stderr)
        return 1
    for fault in filter(None, faults):
        print(f"make kernel-dfl: {fault}", file=sys.stderr)
    return 1 if any(faults) or any(row.is_wrong for row in rows) else 0


_CONTRACT: Final = [
    *("-m", "pytest", "-q", "--color=no", "--tb=short", "-p", "no:cacheprovider"),
    "tests/kernel_dfl/kernel_contract.py",
]


def _run_in_guest(words: Sequence[str], limit_s: float) -> GuestRun:
    folder = cache().with_name("kernel-dfl")
    folder.mkdir(parents=True, exist_ok=True)
    print(f"the kernel's DFL drivers in a guest, from {folder} (the first time some minutes)", file=sys.stderr)
    root = unpack_packages(folder)
    modules = build_modules(root, folder)
    environment = {"PATH": os.defpath, "HOME": "/run", "TMPDIR": "/run", "PYTHONDONTWRITEBYTECODE": "1"}
    files = {
        "init": build_init(folder).read_bytes(),
        "command": write_command(_CHECKOUT, environment, [sys.executable, *words]),
        "parameters": list_card_parameters().encode(),
        **{f"modules/{number:02}-{path.name}": path.read_bytes() for number, path in enumerate(modules)},
    }
    with TemporaryDirectory() as run:
        archive = Path(run) / "files"
        archive.write_bytes(pack_archive(files))
        return run_guest(build_qemu_command(root, archive, Path(run)), Path(run), limit_s)


def _try_stand_in(chosen: Sequence[str]) -> dict[str, str]:
    with TemporaryDirectory() as run:
        results = Path(run) / "results"
        command = [sys.executable, "-m", "tests.kernel_dfl.trial", str(results), "stand-in", *chosen]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=_LIMIT_S)
        return parse_results(results.read_text())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
