"""Cards are drawn by one piece of code, whatever shows them."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.structure.rules import check
from tools.sources import modules, tree

RENDERERS: Final = "driver/partitions/card_pictures/"
SHOWING: Final = (
    "driver/cli/cluster/frag.py",
    "driver/cli/cluster/plan.py",
    "driver/cli/cluster/top_state.py",
    "driver/cli/cluster/why.py",
    "driver/cli/node/devices.py",
    "driver/demo/cluster_picture.py",
    "driver/demo/display.py",
    "driver/view/html/card_figures.py",
    "tools/generate/pictures.py",
)
"""What shows cards, and must not draw them itself."""
OTHER_PICTURES: Final = {
    "tools/generate/diagram.py": "boxes and arrows",
    "tools/generate/dashboard.py": "the panels of a dashboard",
    "tools/generate/placement_plot.py": "figures, as bars",
}
"""Modules that draw something else than cards, as SVG."""
OTHER_ESCAPES: Final = {"driver/cli/options/cluster.py": "erases the line that shows progress"}
"""Modules that write escape sequences of terminals for something else than colors."""
_SOURCES: Final = ("draw_in_terminal", "draw_cards", "draw_svg", "draw_embedded", "DrawnCard")


def literals(path: Path) -> Iterator[str]:
    return (
        node.value for node in ast.walk(tree(path)) if isinstance(node, ast.Constant) and isinstance(node.value, str)
    )


def containing(part: str) -> set[str]:
    """The modules of the product and of tools that have ``part`` in a text."""
    return {
        path.as_posix()
        for path in modules("driver", "tools")
        if not path.as_posix().startswith(RENDERERS) and any(part in text for text in literals(path))
    }


def test_no_other_module_writes_svg() -> None:
    check("draw it by card_pictures", (containing("<svg") | containing("<rect")) - OTHER_PICTURES.keys())


def test_no_script_and_no_style_sheet_draws() -> None:
    files = [*Path("driver/view/static").iterdir()]
    assert len(files) == 2
    check(
        "draw it by card_pictures",
        {str(file) for file in files if re.search("<svg|<rect|createElementNS|canvas", file.read_text())},
    )


def test_no_other_module_writes_escape_sequences() -> None:
    check("click.style colors text, card_pictures cards", containing("\x1b[") - OTHER_ESCAPES.keys())


def test_what_may_write_them_does() -> None:
    assert OTHER_PICTURES.keys() <= containing("<svg")
    assert OTHER_ESCAPES.keys() <= containing("\x1b[")


@pytest.mark.parametrize("path", SHOWING)
def test_what_shows_cards_has_them_drawn(path: str) -> None:
    imported = {
        alias.name for node in ast.walk(tree(Path(path))) if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    assert imported.intersection(_SOURCES)
