"""Backends share what is the same in them: no two have a long block of equal lines.

One FPGA load was once written four times, and the fourth copy already lacked a check that the others had.
"""

import ast
from collections.abc import Mapping
from itertools import combinations
from pathlib import Path
from typing import Final

import pytest

from tests.structure.rules import check
from tools.sources import modules, text

BACKENDS: Final = Path("driver/kubeletplugin/backends")
SHARED: Final = frozenset({"fpga"})
"""Folders of backends that are none themselves, but what several have in common."""
LINES: Final = 10
"""Equal lines that are a block: fewer are signatures of one protocol and lists of its types."""


def list_lines(source: str) -> list[str]:
    """The lines of a module without imports, comments and what is blank."""
    imports = {
        number
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for number in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    lines = (line.strip() for number, line in enumerate(source.splitlines(), 1) if number not in imports)
    return [line for line in lines if line and not line.startswith("#")]


def list_blocks(source: str) -> set[tuple[str, ...]]:
    lines = list_lines(source)
    return {tuple(lines[at : at + LINES]) for at in range(len(lines) - LINES + 1)}


def find_shared(sources: Mapping[str, Mapping[str, str]]) -> set[str]:
    """The modules of two backends that have a block in common, by backend and module, with the block's first line."""
    blocks = [
        (backend, name, list_blocks(source)) for backend, named in sources.items() for name, source in named.items()
    ]
    return {
        f"{one[0]}/{one[1]} and {other[0]}/{other[1]}: {min(common)[0]}"
        for one, other in combinations(blocks, 2)
        if one[0] != other[0] and (common := one[2] & other[2])
    }


def read_backends() -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    for path in modules("driver"):
        if path.is_relative_to(BACKENDS) and path.parent != BACKENDS:
            backend, *rest = path.relative_to(BACKENDS).parts
            if backend not in SHARED:
                found.setdefault(backend, {})["/".join(rest)] = text(path)
    return found


def test_no_two_backends_have_a_block_of_equal_lines() -> None:
    sources = read_backends()
    assert {"dfl", "xrt", "slots", "simulated", "intel", "nvidia", "discovered"} <= sources.keys()
    check(f"{LINES} equal lines of two backends: move them to what backends share", find_shared(sources))


def write_module(lines: int, *, indent: str = "") -> str:
    """A module with imports that others have, too, and a function with so many lines that others have."""
    imports = "from base import (\n" + "".join(f"    name_{number},\n" for number in range(2 * LINES)) + ")\n"
    body = "".join(f"{indent}    value_{number} = {number}  # as there\n\n" for number in range(lines))
    own = f"{indent}    own = {indent!r}\n"
    return f"{imports}\n{'if True:' if indent else ''}\n{indent}def work_{len(indent)}():\n{body}{own}"


@pytest.mark.parametrize(("lines", "is_found"), [(LINES, True), (LINES + 5, True), (LINES - 1, False), (0, False)])
def test_a_block_that_was_copied_is_found_wherever_it_is(lines: int, is_found: bool) -> None:
    copied = {"one": {"card.py": write_module(lines)}, "two": {"x/board.py": write_module(lines, indent="    ")}}
    assert bool(find_shared(copied)) is is_found


def test_modules_of_one_backend_are_not_compared() -> None:
    assert find_shared({"one": {"a.py": write_module(LINES), "b.py": write_module(LINES, indent="    ")}}) == set()


def test_the_report_names_both_places() -> None:
    copied = {"one": {"card.py": write_module(LINES)}, "two": {"board.py": write_module(LINES, indent="    ")}}
    assert find_shared(copied) == {"one/card.py and two/board.py: value_0 = 0  # as there"}
