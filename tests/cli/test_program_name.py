"""The commands that Kerf prints for a user to copy are found by the user's shell."""

import io
import os
import shutil
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from kerf_dra.driver.cli.demo import _DemoRun
from kerf_dra.driver.cli.program_name import find_program_name, find_shell_command
from kerf_dra.driver.demo.display import TextDisplay
from kerf_dra.driver.demo.environment import DemoSettings
from kerf_dra.driver.demo.report import Report
from kerf_dra.driver.demo.scenario import show_kept_cluster
from kerf_dra.driver.families.gpu.catalog import gpu_model
from kerf_dra.driver.kubeletplugin.backends.simulated.example_shells import shell

_CHECKOUTS: Final = ("kerf", "other", "with a space")
"""Folders that have an installation each, in ``.venv/bin``, as ``make demo`` makes it."""


class Call(NamedTuple):
    started: str
    """``sys.argv[0]``."""
    folder: str
    """The present folder."""
    path: tuple[str, ...]
    """The folders of PATH."""
    interpreter: str = "kerf/.venv/bin/python"


@pytest.fixture
def enter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Call], Path]:
    for checkout in _CHECKOUTS:
        (tmp_path / checkout / ".venv/bin").mkdir(parents=True)
        for program in ("kerf", "kubectl-kerf"):
            (tmp_path / checkout / ".venv/bin" / program).touch(mode=0o755)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/kerf").symlink_to(tmp_path / "kerf/.venv/bin/kerf")

    def call(how: Call) -> Path:
        monkeypatch.chdir(tmp_path / how.folder)
        monkeypatch.setattr(sys, "argv", [how.started.replace("ROOT", str(tmp_path)), "demo"])
        monkeypatch.setattr(sys, "executable", str(tmp_path / how.interpreter))
        monkeypatch.setenv("PATH", os.pathsep.join(str(tmp_path / each) for each in how.path))
        return tmp_path

    return call


@pytest.mark.parametrize(
    ("call", "command", "in_any_folder"),
    [
        pytest.param(
            Call(".venv/bin/kerf", "kerf", ()), ".venv/bin/kerf", "ROOT/kerf/.venv/bin/kerf", id="after `make demo`"
        ),
        pytest.param(
            Call("ROOT/kerf/.venv/bin/kerf", "kerf", ("kerf/.venv/bin",)), "kerf", "kerf", id="environment is active"
        ),
        pytest.param(Call("ROOT/bin/kerf", "other", ("bin",)), "kerf", "kerf", id="a link on PATH"),
        pytest.param(
            Call(".venv/bin/kerf", "kerf", ("other/.venv/bin",)),
            ".venv/bin/kerf",
            "ROOT/kerf/.venv/bin/kerf",
            id="another program of the name on PATH",
        ),
        pytest.param(
            Call("../kerf/.venv/bin/kerf", "other", ()),
            "../kerf/.venv/bin/kerf",
            "ROOT/other/../kerf/.venv/bin/kerf",
            id="another folder",
        ),
        pytest.param(
            Call("./kerf", "kerf/.venv/bin", ()),
            "ROOT/kerf/.venv/bin/kerf",
            "ROOT/kerf/.venv/bin/kerf",
            id="the program's own folder",
        ),
        pytest.param(
            Call(".venv/bin/kerf", "with a space", ()),
            ".venv/bin/kerf",
            "'ROOT/with a space/.venv/bin/kerf'",
            id="a path that a shell would split",
        ),
        pytest.param(
            Call("ROOT/kerf_dra/driver/cli/__main__.py", "kerf", ()),
            ".venv/bin/kerf",
            "ROOT/kerf/.venv/bin/kerf",
            id="python -m",
        ),
        pytest.param(
            Call("ROOT/kerf_dra/driver/cli/__main__.py", "kerf", (), "usr/bin/python"),
            "kerf",
            "kerf",
            id="python -m without a program beside the interpreter",
        ),
        pytest.param(
            Call("ROOT/kerf/.venv/bin/kubectl-kerf", "kerf", ()), "kubectl kerf", "kubectl kerf", id="kubectl's plugin"
        ),
    ],
)
def test_a_command_to_copy_runs_the_program_that_prints_it(
    enter: Callable[[Call], Path], call: Call, command: str, in_any_folder: str
) -> None:
    """The demo said "Next: kerf demo --keep", which a shell did not find after ``make demo``."""
    root = str(enter(call))
    assert find_shell_command() == command.replace("ROOT", root)
    assert find_shell_command(in_any_folder=True) == in_any_folder.replace("ROOT", root)


@pytest.mark.parametrize(("started", "name"), [(".venv/bin/kerf", "kerf"), ("bin/kubectl-kerf", "kubectl kerf")])
def test_usage_lines_have_the_name_without_a_path(monkeypatch: pytest.MonkeyPatch, started: str, name: str) -> None:
    monkeypatch.setattr(sys, "argv", [started])
    assert find_program_name() == name


def test_the_demo_ends_with_commands_that_run_after_make_demo(enter: Callable[[Call], Path]) -> None:
    root = enter(Call(".venv/bin/kerf", "kerf", ()))
    assert shutil.which("kerf") is None
    written = io.StringIO()
    display = TextDisplay(partial(print, end="", file=written), columns=80)
    settings = DemoSettings(
        files=(),
        nodes=1,
        gpu_model=gpu_model("h100-80gb-sxm"),
        gpus=1,
        shell=shell("quad"),
        fpgas=1,
        keep=False,
        verbose=False,
    )
    assert _DemoRun(settings, [], display, "text")._conclude(Report(), 1.0) == 0
    said = " ".join(written.getvalue().split())
    assert "Next: .venv/bin/kerf demo --keep, or .venv/bin/kerf demo -f with your manifests." in said
    show_kept_cluster(display, root / "kubeconfig", find_shell_command(in_any_folder=True))
    assert f"  {root}/kerf/.venv/bin/kerf why pods\n" in written.getvalue()
