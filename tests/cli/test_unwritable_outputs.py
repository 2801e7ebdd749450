"""Outputs that cannot be written, and errors that nobody expected: one line on standard error, no traceback."""

import os
import subprocess
import sys
from pathlib import Path

import click
import pytest

from kerf_dra.driver.cli import COMMANDS, TRACEBACK, main

FULL = "kerf: the output cannot be written: No space left on device\n"
WRITES = ["models", "version -o json", "claim gpu --profile 1g.10gb", "--help", "cdi schema"]
"""Commands that write at once, each in another way."""


def run(arguments: str, output: int | None) -> tuple[int, str]:
    command = [sys.executable, "-m", "kerf_dra.driver.cli", *arguments.split()]
    done = subprocess.run(command, stdout=output, stderr=subprocess.PIPE, text=True, check=False, timeout=240)
    return done.returncode, done.stderr


@pytest.mark.parametrize("arguments", WRITES)
def test_a_full_disk_is_told_in_one_line(arguments: str) -> None:
    output = os.open("/dev/full", os.O_WRONLY)
    try:
        assert run(arguments, output) == (1, FULL)
    finally:
        os.close(output)


@pytest.mark.parametrize("arguments", [each for each in WRITES if not each.startswith("cdi")])
def test_a_closed_pipe_ends_a_command_as_it_ends_others(arguments: str) -> None:
    """The package ``cdi`` has a command line of its own, which ends with 0."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        assert run(arguments, writer) == (141, "")
    finally:
        os.close(writer)


def test_a_file_that_cannot_be_written_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(**_: object) -> None:
        (tmp_path / "none" / "dump.json").write_bytes(b"")

    monkeypatch.setattr("kerf_dra.driver.cli.cluster.gather.command", click.Command("gather", callback=write))
    assert main(["gather"]) == 1
    assert capsys.readouterr().err == f"kerf: {tmp_path}/none/dump.json: No such file or directory\n"


def test_an_unexpected_error_is_one_line_and_where_it_is_on_request(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(**_: object) -> None:
        raise ExceptionGroup("tasks", [ValueError("too many cards")])

    monkeypatch.setattr("kerf_dra.driver.cli.version.command", click.Command("version", callback=fail))
    assert main(["version"]) == 1
    told = capsys.readouterr().err
    assert told.startswith("kerf: a fault in Kerf, please report it: ValueError: too many cards\n")
    assert "Traceback" not in told
    monkeypatch.setenv(TRACEBACK, "1")
    assert main(["version"]) == 1
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.parametrize("name", COMMANDS)
def test_the_option_o_is_the_format_in_every_command(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """`kerf gather -o json` wrote a file named json."""
    main([name, "--help"])
    options = [line for line in capsys.readouterr().out.splitlines() if line.strip().startswith("-o")]
    assert all("json" in line and "yaml" in line for line in options), options
