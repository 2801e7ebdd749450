"""Installs the packages of lock files into a virtual environment, and shows on a terminal how many it has by now.

``python tools/environment.py [--new] FOLDER LOCK...``: with ``--new`` it makes the environment, and installs Kerf
itself, editable, in the end. The Makefile calls it before any package is installed: it needs the standard library only.

uv installs where it is on the PATH, and pip elsewhere: pip says nothing for up to a minute, hence the count.
"""

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

_POLL_S: Final = 0.5
"""Between two counts: seldom enough to cost nothing, often enough to be seen to move."""
_PIP: Final = ("-m", "pip", "--disable-pip-version-check", "install")


class InstallationError(Exception):
    """The environment cannot be made; the message is what the failing program printed last."""


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="tools/environment.py", description=__doc__)
    parser.add_argument("--new", action="store_true", help="make the environment first, and install Kerf itself")
    parser.add_argument("folder", type=Path)
    parser.add_argument("locks", nargs="+")
    given = parser.parse_args(arguments)
    try:
        _install(given.folder, given.locks, is_new=given.new)
    except InstallationError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _install(folder: Path, locks: Sequence[str], *, is_new: bool) -> None:
    requirements = ["--require-hashes", *(f"--requirement={lock}" for lock in locks)]
    itself = ["--no-deps", "--no-build-isolation", "--editable=."]
    uv = shutil.which("uv")
    if is_new:
        make = [uv, "venv", "--quiet", "--clear", f"--python={sys.executable}"] if uv else [*_venv(), "--clear"]
        _run([*make, str(folder)], lambda _: "making the environment")
    python = str(folder / "bin" / "python")
    pip = [uv, "pip", "install", f"--python={python}"] if uv else [python, *_PIP]
    before = _count_packages(folder)
    _run([*pip, *requirements], lambda output: describe_progress(output, _count_packages(folder) - before))
    if is_new:
        _run([*pip, *itself], lambda _: "installing Kerf itself")


def _venv() -> list[str]:
    try:
        import ensurepip  # noqa: F401  (Debian has it in a package of its own)
    except ModuleNotFoundError:
        raise InstallationError(
            f"{sys.executable} cannot make environments: install the package python3-venv (Debian's and Ubuntu's name)"
        ) from None
    return [sys.executable, "-m", "venv"]


def describe_progress(output: str, installed: int) -> str:
    """Return what pip has done: it names each package that it collects, and all before it installs the first."""
    _, began, names = output.partition("Installing collected packages: ")
    if began:
        return f"packages: {installed} of {names.count(',') + 1} installed"
    return f"packages: {output.count('Collecting ')} collected"


def _count_packages(folder: Path) -> int:
    return sum(1 for _ in folder.glob("lib/python*/site-packages/*.dist-info"))


def _run(command: Sequence[str], describe: Callable[[str], str]) -> None:
    """Run ``command``, with what ``describe`` makes of its output on a terminal. Raises InstallationError."""
    with tempfile.NamedTemporaryFile() as output:
        path = Path(output.name)
        running = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT)
        while (code := running.poll()) is None:
            _show(describe(path.read_text(errors="replace")))
            time.sleep(_POLL_S)
        printed = path.read_text(errors="replace")
    _show(describe(printed), is_last=True)
    if code != 0:
        raise InstallationError(f"{' '.join(command)} failed:\n{printed}")


def _show(text: str, *, is_last: bool = False) -> None:
    if sys.stderr.isatty():
        print(f"\r{text:<60}", end="\n" if is_last else "", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
