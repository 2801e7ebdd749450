"""Files without end, without bottom or without anything, in place of those that commands read; rows of ``kinds.toml``.

Each is what was found once: 30 kB of brackets ended every command that reads YAML by a segmentation fault, because
libyaml composed them before their depth was known; ``/dev/zero`` took all memory; aliases and merge keys stood for more
values than any memory has; a number of 200,000 sexagesimal digits, and 50,000 tags, took minutes.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec
import pytest

from kerf_dra.driver.cli import main
from tests.attack.kinds import cases
from tests.attack.test_configuration import KUBECONFIG

READERS: Final = {
    "migrate": ["migrate", "-f", "{file}"],
    "plan": ["plan", "-f", "{file}"],
    "demo": ["demo", "-f", "{file}"],
    "devices": ["devices", "--backend=simulated={file}"],
    "devices of NVIDIA": ["devices", "--backend=nvidia={file}"],
    "why": ["why", "pod", "--kubeconfig={file}"],
    "controller": ["controller", "--kubeconfig={file}"],
    "plugin": ["kubelet-plugin", "--node-name=n", "--backend=simulated={file}", "--kubeconfig={kubeconfig}"],
    "fpga verify": ["fpga", "verify", "{file}"],
    "dump": ["why", "pod", "--from={file}"],
}
"""The commands that read a file, by a name of what they read."""


class EndlessFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A file of text that is repeated, or that is another file, and what its readers say."""

    begin: str = ""
    text: str = ""
    """``{n}`` in it is the number of the repetition, ``{m}`` that of the one before."""
    times: int = 1
    path: str = ""
    """The file itself; empty: one is written."""
    says: str = ""
    readers: tuple[str, ...] = (
        "migrate",
        "plan",
        "demo",
        "devices",
        "devices of NVIDIA",
        "why",
        "controller",
        "plugin",
    )


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[[list[str]], tuple[int, str]]:
    def call(arguments: list[str]) -> tuple[int, str]:
        try:
            code = main(arguments)
        except SystemExit as end:
            code = int(end.code or 0)
        captured = capsys.readouterr()
        return code, captured.out + captured.err

    return call


@pytest.mark.parametrize(
    "endless", cases("test_endless_files.py::test_every_command_refuses_it_by_its_path_at_once", EndlessFile)
)
def test_every_command_refuses_it_by_its_path_at_once(
    endless: EndlessFile, tmp_path: Path, run: Callable[[list[str]], tuple[int, str]]
) -> None:
    file = Path(endless.path) if endless.path else tmp_path / "file"
    if not endless.path:
        numbers = range(1, endless.times + 1)
        text = "".join(endless.text.replace("{n}", str(n)).replace("{m}", str(n - 1)) for n in numbers)
        file.write_text(endless.begin + text)
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(KUBECONFIG)
    for reader in endless.readers:
        code, output = run([one.format(file=file, kubeconfig=kubeconfig) for one in READERS[reader]])
        assert code in (1, 2, 3), (reader, output)
        assert endless.says in output, (reader, output)
        assert str(file) in output, reader
        assert "Traceback" not in output, reader
        assert len(output) < 4000, reader
