"""Runs pytest in forked processes, each in a copy of the working tree.

A forked process begins with the libraries imported, and imports Kerf and its tests again, from its copy. It has a
process group of its own, which is killed with it.
"""

import os
import resource
import shutil
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Final

import hypothesis
import pytest

TREE: Final = Path(__file__).parents[2]
_PACKAGES: Final = ("kerf_dra", "tests", "tools", "acme_npu")
POLL_S: Final = 0.02
"""Much less than any run of pytest takes."""
NOT_BEGUN: Final = 70
"""The exit code of a process whose ``work`` has not begun: EX_SOFTWARE of sysexits(3), which pytest never returns."""
_MEMORY_BYTES: Final = 3 << 30
"""More than any test needs, less than a machine has: a mutant may collect numbers without end."""
FORK_IMPORTS: Final = ("aiohttp", "anyio", "click", "grpc", "msgspec", "prometheus_client", "pytest_timeout", "yaml")
"""Libraries that most tests import, and that may be imported before a fork: none of them starts a thread."""


def copy_tree(folder: Path, template: Path | None = None) -> None:
    """Copy the files that git does not ignore to ``folder``, or all of a ``template``, with its compiled files.

    Links stay links: those of ``kerf_dra`` lead to the modules of the copy that mutants change.
    """
    if template is not None:
        shutil.copytree(template, folder, symlinks=True)
        return
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=TREE, capture_output=True, check=True).stdout
    for name in filter(None, listed.decode().split("\0")):
        if (TREE / name).is_file() or (TREE / name).is_symlink():
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(TREE / name, target, follow_symlinks=False)


class Process:
    """A process that runs ``work`` in a copy of the tree, with its output in ``output``."""

    def __init__(self, tree: Path, output: Path, work: Callable[[], int], *, limit_s: float) -> None:
        self._ends_at = time.monotonic() + limit_s
        self.begun_at = time.monotonic()
        self._has_ended = False
        self._pid = os.fork()
        if self._pid == 0:
            _run_as_child(tree, output, work)

    def poll(self) -> int | None:
        """Return the exit code, negative for a signal; None: it runs. One that runs too long is killed."""
        pid, status = os.waitpid(self._pid, os.WNOHANG)
        if pid:
            self._has_ended = True
            self._kill_group()
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > self._ends_at:
            self.kill()
            return -signal.SIGKILL
        return None

    def wait(self) -> int:
        """Return the exit code when the process has ended."""
        while (code := self.poll()) is None:
            time.sleep(POLL_S)
        return code

    def kill(self) -> None:
        """Kill the process, unless it has ended."""
        if not self._has_ended:
            self._kill_group()
            os.waitpid(self._pid, 0)
            self._has_ended = True

    def _kill_group(self) -> None:
        """Kill what the tests have left running, too."""
        try:
            os.killpg(self._pid, signal.SIGKILL)
        except ProcessLookupError:
            pass  # nothing is left


def run_pytest(arguments: list[str], plugin: object) -> int:
    """Run pytest in this process; a failing property is not made smaller, which takes long and is not read."""
    phases = (hypothesis.Phase.explicit, hypothesis.Phase.generate)
    imported = "-Wignore:Module already imported:pytest.PytestAssertRewriteWarning"  # plugins, before the fork
    return int(pytest.main(["-q", imported, *arguments], plugins=[plugin, _Profile(phases)]))


class _Profile:
    """Replaces hypothesis's profile after ``tests/conftest.py`` has loaded one, and before tests are imported."""

    def __init__(self, phases: tuple[hypothesis.Phase, ...]) -> None:
        self._phases = phases

    def pytest_collection(self) -> None:
        hypothesis.settings.register_profile("mutants", phases=self._phases)
        hypothesis.settings.load_profile("mutants")


def _run_as_child(tree: Path, output: Path, work: Callable[[], int]) -> None:
    code = NOT_BEGUN
    try:
        os.setsid()
        descriptor = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(descriptor, 1)
        os.dup2(descriptor, 2)
        resource.setrlimit(resource.RLIMIT_DATA, (_MEMORY_BYTES, _MEMORY_BYTES))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        os.chdir(tree)
        for name in list(sys.modules):
            if name.partition(".")[0] in _PACKAGES:
                del sys.modules[name]
        kept = (entry for entry in sys.path if entry and Path(entry).resolve() != TREE)
        sys.path[:] = [str(tree), *kept]
        os.environ["PYTHONPATH"] = str(tree)
        code = int(pytest.ExitCode.INTERNAL_ERROR)  # if it raises something: a coroutine that was not awaited, say
        code = work()
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
