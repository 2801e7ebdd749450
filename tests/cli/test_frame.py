"""What every subcommand of ``kerf`` shares."""

import json
import os
import subprocess
import sys

import pytest
import yaml

from kerf_dra.driver.cli import COMMANDS, main

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:click")


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(list(arguments))
    captured = capsys.readouterr()
    return code, captured.out, captured.err


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
