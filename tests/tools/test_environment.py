"""The environment of `make demo` and `make test` is installed with a count, and says why where it cannot be."""

import sys
from pathlib import Path

import pytest

from tools.environment import describe_progress, main

COLLECTING = "Collecting anyio==4.16.0 (from -r requirements.lock)\nCollecting click==8.5.1\n"


@pytest.mark.parametrize(
    ("output", "installed", "text"),
    [
        ("", 0, "packages: 0 collected"),
        (COLLECTING, 0, "packages: 2 collected"),
        (f"{COLLECTING}Installing collected packages: click, anyio\n", 1, "packages: 1 of 2 installed"),
    ],
)
def test_what_pip_prints_is_counted(output: str, installed: int, text: str) -> None:
    assert describe_progress(output, installed) == text


def test_why_a_package_is_not_installed_is_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))  # where there is no uv
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/python").write_text(
        f"#!{sys.executable}\nimport sys\nsys.exit('no such version: ' + sys.argv[-1])\n"
    )
    (tmp_path / "bin/python").chmod(0o755)
    assert main([str(tmp_path), "requirements.lock"]) == 1
    assert "no such version: --requirement=requirements.lock" in capfd.readouterr().err


def test_a_python_without_ensurepip_names_the_package_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "ensurepip", None)
    assert main(["--new", str(tmp_path / "environment"), "requirements.lock"]) == 1
    assert "install the package python3-venv" in capsys.readouterr().err
