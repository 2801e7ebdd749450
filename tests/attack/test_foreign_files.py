"""Commands that are given the path of a file which their user may not read, but the process may: /etc/shadow, a key."""

from collections.abc import Callable
from pathlib import Path

import pytest

from kerf_dra.driver.cli import main
from kerf_dra.driver.kube.http.errors import AccessError
from kerf_dra.driver.kube.http.kubeconfig import _parse

SECRET = "hunter2canary"
FILES = {
    "a password database": f"root:${SECRET}:19000:0:99999:7:::\ndaemon:*:19000\n",
    "a key": f"-----BEGIN KEY-----\n{SECRET}==\n-----END KEY-----\n",
    "words": f"{SECRET} {SECRET}",
    "a bracket": f"a: [{SECRET}\n",
    "a tag": f"!{SECRET} a\n",
    "a tag inside": f"state: !!python/object:{SECRET} a\n",
    "an alias": f"a: *{SECRET}\n",
    "an anchor twice": f"a: &{SECRET} 1\nb: &{SECRET} 2\nc: {{\n",
    "a directive": f"%{SECRET} 1\n--- a\n",
    "a tabulator": f"{SECRET}:\n\t{SECRET}: 1\n",
    "settings": f"PASSWORD: {SECRET}\n{SECRET}: 1\n",
    "a list": f"- {SECRET}\n",
    "a key twice": f"{SECRET}: 1\n{SECRET}: 2\n",
    "documents": f"{SECRET}: 1\n---\n{SECRET}: 2\n",
    "a date that is none": f"a: 2001-99-99 # {SECRET}\n",
    "a number": "1",
    "no text": f"\0{SECRET}",
    "a reader's error": f"{SECRET}\x01",
    "levels": f"a: {'[' * 3000}{SECRET}",
}


@pytest.fixture(params=list(FILES))
def file(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / "theirs"
    path.write_text(FILES[request.param])
    return path


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str]]:
    def call(*arguments: str) -> tuple[int, str]:
        try:
            code = main(list(arguments))
        except SystemExit as end:
            code = int(end.code or 0)
        captured = capsys.readouterr()
        return code, captured.out + captured.err

    return call


def test_a_file_that_is_no_simulated_hardware_is_named_but_not_shown(
    file: Path, run: Callable[..., tuple[int, str]]
) -> None:
    code, output = run("devices", "--backend", f"simulated={file}")
    assert code == 1
    assert str(file) in output
    assert SECRET not in output


def test_the_place_of_what_is_no_yaml_is_told(tmp_path: Path, run: Callable[..., tuple[int, str]]) -> None:
    path = tmp_path / "cards.yaml"
    path.write_text("state: x\ncards: *none\n")
    assert f"{path}: is not YAML at line 2, column 8" in run("devices", "--backend", f"simulated={path}")[1]


def test_a_kubeconfig_that_cannot_be_parsed_is_named_but_not_shown(file: Path) -> None:
    try:
        _parse(file)
        message = ""  # it is a kubeconfig with nothing in it that counts
    except AccessError as error:
        message = str(error)
    assert SECRET not in message
    assert not message or str(file) in message
