"""Absurd options and configuration files, as somebody writes them who is in a hurry: rows of ``kinds.toml``."""

from pathlib import Path
from typing import Final

import msgspec
import pytest

from kerf_dra.driver.cli import main
from tests.attack.kinds import cases

CANARY: Final = "hunter2canary"
"""What stands in every file: a file that was named by mistake may be anybody's."""
CARDS: Final = "state: state\ncards:\n- {kind: gpu, model: h100-80gb-sxm}\n"
KUBECONFIG: Final = """
clusters: [{name: c, cluster: {server: "https://127.0.0.1:1"}}]
users: [{name: u, user: {token: hunter2canary}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
"""
COMMANDS: Final = {
    "devices": ["devices", "--backend=simulated={file}"],
    "plugin": ["kubelet-plugin", "--node-name=n", "--backend=simulated={cards}", "--kubeconfig={kubeconfig}"],
    "controller": ["controller", "--kubeconfig={kubeconfig}"],
}


class Configuration(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A command with options, which come after those that it needs, or with the content of its file."""

    command: str
    options: tuple[str, ...] = ()
    file: str = ""
    times: int = 1
    """How often the file's content is repeated."""
    code: int = 2
    says: str = ""


@pytest.mark.parametrize(
    "configuration",
    cases("test_configuration.py::test_it_is_refused_by_the_name_of_what_is_wrong", Configuration),
)
def test_it_is_refused_by_the_name_of_what_is_wrong(
    configuration: Configuration, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    places = {name: str(tmp_path / name) for name in ("file", "cards", "kubeconfig")}
    text = configuration.file * configuration.times + f"\n# {CANARY}\n"
    (tmp_path / "file").write_bytes(text.encode("latin-1"))
    (tmp_path / "cards").write_text(CARDS)
    (tmp_path / "kubeconfig").write_text(KUBECONFIG)
    arguments = [
        one.format(**places, dir=tmp_path) for one in [*COMMANDS[configuration.command], *configuration.options]
    ]
    try:
        code: object = main(arguments)
    except SystemExit as end:
        code = end.code
    captured = capsys.readouterr()
    output = captured.out + captured.err
    assert (code, configuration.says in output) == (configuration.code, True), output
    assert "Traceback" not in output
    assert CANARY not in output
    assert len(output) < 4000
