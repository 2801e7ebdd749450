"""Every option of the command line has a test that names it, and a row in the reference."""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

import click
import pytest

from kerf_dra.driver.cli import kerf
from tests.structure.rules import check
from tests.structure.test_page_facts import options
from tools.sources import files, text

REFERENCE: Final = Path("docs/reference/command-line.md")
WITHOUT: Final = frozenset(
    {
        "kerf check cluster --controller-account",
        "kerf check cluster --kerf-namespace",
        "kerf check cluster --plugin-account",
        "kerf controller --identity",
        "kerf demo --speed",
        "kerf demo --verbose",
        "kerf kubelet-plugin --features-dir",
        "kerf kubelet-plugin --host-root",
        "kerf mps-daemons --shared-memory",
        "kerf view --every",
        "kerf view --port",
    }
)
"""Options that no test names; what they set is tested, by the settings of their programs. The list only shrinks."""
_GENERATED: Final = "kerf claim "
"""Its options are made of a family's vocabulary: ``tests/cli/test_claim.py`` tests how."""

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:click")


def all_options() -> Iterator[tuple[str, str]]:
    """Each option that is written out in ``driver/cli``: the command, and the option's long name."""
    for path, option in options(kerf, click.Context(kerf, info_name="kerf")):
        if not path.startswith(_GENERATED):
            yield path, max(option.opts, key=len)


@cache
def _all_tests() -> str:
    tests = (path for path in files() if path.parts[0] == "tests" and path.suffix in (".py", ".toml"))
    return "\n".join(text(path) for path in tests if path.name != Path(__file__).name)


def is_tested(path: str, option: str) -> bool:
    """Whether a test names the option, of this command or of another one, or its environment variable."""
    variable = f"{path} {option.lstrip('-')}".upper().replace(" ", "_").replace("-", "_")
    return re.search(rf"(?<![\w-])({re.escape(option)}|{variable})(?![\w-])", _all_tests()) is not None


def explain(path: str, option: str) -> str:
    """Say what an option without a test needs, and where."""
    command = path.split()[1].replace("-", "_")
    return f"{path} {option}: call it in tests/cli/test_{command}.py, and write its line into CHANGELOG.md"


def test_every_option_has_a_test() -> None:
    found = {explain(*one) for one in all_options() if " ".join(one) not in WITHOUT and not is_tested(*one)}
    check("no test names the option", found)


def test_the_list_of_options_without_a_test_only_shrinks() -> None:
    named = {" ".join(one) for one in all_options() if not is_tested(*one)}
    check("it is tested, or there is no such option: take it off WITHOUT", WITHOUT - named)


@pytest.mark.parametrize(
    ("path", "option", "verdict"),
    [
        ("kerf plan", "--nodes-of", False),
        ("kerf plan", "--out", False),
        ("kerf plan", "--output", True),
        ("kerf kubelet-plugin", "--node-name", True),
    ],
)
def test_an_option_is_tested_if_a_test_has_its_whole_name(path: str, option: str, verdict: bool) -> None:
    assert is_tested(path, option) is verdict


def test_an_option_without_a_test_is_reported_with_the_file_where_one_belongs() -> None:
    assert "tests/cli/test_kubelet_plugin.py" in explain("kerf kubelet-plugin", "--no-such")


def test_every_option_is_in_the_reference() -> None:
    section = dict(re.findall(r"^#+ `?(kerf[\w -]*?)`?\n(.*?)(?=^#|\Z)", text(REFERENCE), re.MULTILINE | re.DOTALL))
    found = {
        f"{path} {option}: {REFERENCE} has no row of it: run `make generate`"
        for path, option in all_options()
        if f"`{option}`" not in section.get(path, "")
    }
    check("the reference has no such option", found)
