"""The product needs no tool and no test, a tool only the stand-ins of the tests, and no tool needs itself."""

import ast
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Final

import pytest

from tests.structure.rules import check
from tools.sources import PRODUCT, modules, tree

FAKES: Final = "tests.fakes"
"""What tools may import of the tests; it imports no tool, so that nothing imports itself through a tool."""
CERTIFICATES: Final = "tests.kube.certificates"
"""Files, and the constant with their folder."""


def imports(path: Path) -> Iterator[str]:
    """The absolute names that a module imports, at any place in it."""
    for node in ast.walk(tree(path)):
        match node:
            case ast.Import(names=names):
                yield from (alias.name for alias in names)
            case ast.ImportFrom(module=str(source), names=names):
                yield from (f"{source}.{alias.name}" for alias in names)


def is_in(name: str, *packages: str) -> bool:
    return any(f"{name}.".startswith(f"{package}.") for package in packages)


def test_the_product_imports_no_test_and_no_tool() -> None:
    found = {f"{path}: {name}" for path in modules(*PRODUCT) for name in imports(path) if is_in(name, "tests", "tools")}
    check("a module of the product imports it", found)


def test_tools_import_of_the_tests_only_stand_ins() -> None:
    found = {
        f"{path}: {name}"
        for path in modules("tools")
        for name in imports(path)
        if is_in(name, "tests") and not is_in(name, FAKES)
    }
    check(f"a tool imports more of the tests than {FAKES}", found)


def test_stand_ins_import_only_the_product_and_one_another() -> None:
    found = {
        f"{path}: {name}"
        for path in modules("tests")
        if path.is_relative_to(Path(*FAKES.split("."))) and not path.name.startswith("test_")
        for name in imports(path)
        if is_in(name, "tests", "tools") and not is_in(name, FAKES, CERTIFICATES)
    }
    check(f"a module of {FAKES} imports it", found)


def test_no_tool_imports_itself_through_another() -> None:
    graph: dict[str, set[str]] = {}
    for path in modules("tools"):
        tool = path.parts[1]
        targets = {name.split(".")[1] for name in imports(path) if is_in(name, "tools")}
        graph.setdefault(tool, set()).update(targets - {tool})
    assert len(graph) > 5
    TopologicalSorter(graph).prepare()


def test_a_circle_is_found() -> None:
    with pytest.raises(CycleError):
        TopologicalSorter({"image": {"helm"}, "helm": {"image"}}).prepare()
