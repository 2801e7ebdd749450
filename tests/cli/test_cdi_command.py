"""``kerf cdi`` is ``python -m cdi``."""

from pathlib import Path

import pytest

from kerf_dra.cdi import cli
from kerf_dra.driver.cli import main

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:click")

BAD = Path(__file__).parents[1] / "data" / "cdi" / "bad" / "twice.json"
GOOD = Path(__file__).parents[1] / "data" / "cdi" / "good" / "gpu.json"


@pytest.mark.parametrize(
    "arguments",
    [
        ["--spec-dir", str(GOOD.parent), "devices"],
        ["validate", "--output", "json", str(GOOD)],
        ["validate", str(BAD)],
        ["explain", "-d", str(GOOD.parent), "acme.io/gpu=none"],
        ["inject", "/does/not/exist", "acme.io/gpu=0"],
    ],
)
def test_it_says_and_returns_the_same(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    alone = (cli.main(arguments), *capsys.readouterr())
    assert (main(["cdi", *arguments]), *capsys.readouterr()) == alone


def test_usage_has_its_whole_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cdi", "nothing"]) == 2
    assert "usage: kerf cdi" in capsys.readouterr().err
