"""``docs/getting-started.md``, word by word: every command of its blocks is known here, and does what the page says."""

import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

from driver.cli import main
from tests.structure.sources import ROOT, text

PAGE: Final = Path("docs/getting-started.md")
_BLOCK: Final = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)

RUN_HERE: Final[Mapping[str, tuple[int, str]]] = {
    # command: its exit code, and a part of what it prints
    "kerf claim gpu --memory 18Gi": (0, 'compareTo(quantity("18Gi")) >= 0'),
    "kerf models h100-80gb-sxm": (0, "7g.80gb"),
    "kerf why pod/trainer --from docs/examples/full-card/cluster.json": (1, "default/notebook on node-1 ends"),
    "kerf frag --from docs/examples/full-card/cluster.json": (0, "1 of 8 units are free, 1 of them stranded"),
    "kerf plan -f deploy/examples/gpu-by-size --from docs/examples/full-card/cluster.json": (1, "would wait"),
}
RUN_ELSEWHERE: Final[Mapping[str, str]] = {
    "make demo": "the story: tests/flows/test_demo.py",
    "kerf demo -f deploy/examples/gpu-by-size": "the same example: tests/flows/test_demo.py",
    "kerf demo --keep": "tests/flows/test_demo.py",
}
"""Commands that take longer, with the tests that run them."""

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:click")


def test_the_commands_of_the_page_are_those_that_tests_run() -> None:
    commands = [line for block in _BLOCK.findall(text(PAGE)) for line in block.splitlines()]
    assert sorted(commands) == sorted([*RUN_HERE, *RUN_ELSEWHERE])


@pytest.mark.parametrize("command", RUN_HERE)
def test_a_command_of_the_page_does_what_it_says(
    command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("COLUMNS", "200")
    code = main(shlex.split(command)[1:])
    output = capsys.readouterr()
    expected, said = RUN_HERE[command]
    assert (code, output.err) == (expected, "")
    assert said in " ".join(output.out.split())
