"""What every subcommand of ``kerf`` shares."""

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import click
import pytest
import yaml

from kerf_dra.driver.cli import COMMANDS, GROUPS, kerf, main
from kerf_dra.driver.cli.demo import _display

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:click")


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(list(arguments))
    captured = capsys.readouterr()
    return code, captured.out, captured.err


EXAMPLE = Path(__file__).parents[2] / "docs/examples/full-card"
STATE = ("--from", str(EXAMPLE / "cluster.json"))


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    "arguments",
    [
        ["why", "pod/trainer", *STATE],
        ["why", "pods", "-A", *STATE],
        ["plan", "-f", str(EXAMPLE.parents[2] / "deploy/examples/gpu-small"), *STATE],
        ["frag", *STATE],
        ["check", "node"],
    ],
    ids=lambda arguments: " ".join(arguments[:2]),
)
def test_a_terminal_has_colors_unless_no_color_is_set(monkeypatch: pytest.MonkeyPatch, arguments: list[str]) -> None:
    """NO_COLOR was heeded by the demo only."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    shown: dict[str, str] = {}
    for value in ("", "1"):
        monkeypatch.setenv("NO_COLOR", value)
        monkeypatch.setattr(sys, "stdout", terminal := Terminal())
        monkeypatch.setattr(sys, "stderr", Terminal())
        main(arguments)
        shown[value] = terminal.getvalue()
    assert "\x1b[" in shown[""], "an empty value is none"
    assert shown["1"] == click.unstyle(shown[""])


def test_sentences_of_frag_have_the_width_of_a_terminal_and_name_a_model_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It ended in a line of 270 characters, with the model's name eight times."""
    _, out, _ = run(capsys, "frag", *STATE)
    end = out.split("\n\n")[-1]
    assert end.startswith("free only when claims end, not by recreating them elsewhere: whole, 7g.80gb,\n")
    assert end.count("of h100-80gb-sxm") == 1
    assert max(map(len, end.splitlines())) <= 80


@pytest.mark.parametrize("color", [None, False])
def test_the_demo_has_the_colors_of_its_command(monkeypatch: pytest.MonkeyPatch, color: bool | None) -> None:
    monkeypatch.setattr(sys, "stdout", terminal := Terminal())
    with click.Context(kerf, color=color):
        _display("text", None).verdict("OK all", is_good=True)
    assert ("\x1b[" in terminal.getvalue()) is (color is None)


def test_the_help_has_the_commands_in_three_groups(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "--help")
    titles = [line.rstrip(":") for line in out.splitlines() if line.rstrip(":") in GROUPS]
    assert titles == list(GROUPS)
    assert len(titles) == 3
    places = [out.index(f"\n  {name} ") for name in COMMANDS]
    assert places == sorted(places), "each below its group, in the order of the table"
    starts = [out.index(title) for title in titles]
    for start, end, commands in zip(starts, [*starts[1:], len(out)], GROUPS.values(), strict=True):
        assert all(start < out.index(f"\n  {name} ") < end for name in commands)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(capsys: pytest.CaptureFixture[str], command: str) -> None:
    code, out, _ = run(capsys, command, "--help")
    assert code == 0
    assert "usage" in out.lower()


@pytest.mark.parametrize(
    "command", ["demo", "controller", "kubelet-plugin", "devices", "families", "rbac", "why", "plan", "frag", "gather"]
)
def test_every_option_names_its_environment_variable(capsys: pytest.CaptureFixture[str], command: str) -> None:
    _, out, _ = run(capsys, command, "--help")
    options = [line for line in out.splitlines() if line.strip().startswith("-") and "--help" not in line]
    assert " ".join(out.split()).count("env var:") == len(options) > 0


def test_an_environment_variable_stands_for_an_option(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KERF_VERSION_OUTPUT", "json")
    _, out, _ = run(capsys, "version")
    assert json.loads(out)["resourceApi"][0] == "resource.k8s.io/v1"


def test_json_and_yaml_carry_the_same_document(capsys: pytest.CaptureFixture[str]) -> None:
    _, as_json, _ = run(capsys, "version", "-o", "json")
    _, as_yaml, _ = run(capsys, "version", "-o", "yaml")
    assert json.loads(as_json) == yaml.safe_load(as_yaml)


@pytest.mark.parametrize("arguments", [["nope"], ["version", "--nope"], ["version", "-o", "xml"], ["devices"]])
def test_wrong_usage_is_told_on_stderr_with_exit_code_2(
    capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    code, out, err = run(capsys, *arguments)
    assert (code, out) == (2, "")
    assert "Error:" in err


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_code_is_printed_for_every_shell(capsys: pytest.CaptureFixture[str], shell: str) -> None:
    code, out, _ = run(capsys, "completion", shell)
    assert code == 0
    assert "_KERF_COMPLETE" in out


def test_a_daemon_starts_without_what_only_people_need() -> None:
    """The kubelet plugin's memory budget is 65 MB: tables, colors, CEL and the official client are not for it."""
    code = (
        "import sys, kerf_dra.driver.cli.daemons.kubelet_plugin, kerf_dra.driver.kubeletplugin.app; print(*sys.modules)"
    )
    loaded = set(
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    )
    assert loaded.isdisjoint(
        {"rich", "kubernetes", "pydantic", "cel_expr_python", "jsonschema", "jsonpatch", "kerf_dra.driver.local"}
    )


def test_models_lists_every_gpu(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "models", "-o", "json")
    document = json.loads(out)
    assert len(document["gpu"]) == 22
    code, out, _ = run(capsys, "models")
    assert code == 0
    assert "rtx-pro-6000-blackwell-96gb" in out


def test_the_help_of_completion_has_a_line_for_each_shell(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "completion", "--help")
    assert [line.split(":")[0].strip() for line in out.splitlines() if "kerf completion" in line][1:] == [
        "bash",
        "zsh",
        "fish",
    ]


@pytest.mark.parametrize(("given", "used"), [(None, "ERROR"), ("DEBUG", "DEBUG")], ids=["by default", "as asked"])
def test_grpc_writes_of_errors_only(given: str | None, used: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a demo whose reader goes writes a line of the library's about a closed connection, now and then."""
    monkeypatch.delenv("GRPC_VERBOSITY", raising=False)
    if given is not None:
        monkeypatch.setenv("GRPC_VERBOSITY", given)
    assert main(["version"]) == 0
    assert os.environ["GRPC_VERBOSITY"] == used
