"""What imitates a cluster or hardware is apart: programs import none of it, and name none of it in a string.

The family ``gpu`` once named ``kerf_dra.driver.testing`` as the module of a backend. No import contract sees such a
string, and each node carried a stand-in for NVIDIA's library. ``.importlinter`` has the contracts for imports.
"""

import ast
import configparser
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.structure.rules import check
from tools.image.description import IMITATIONS
from tools.sources import PRODUCT, ROOT, modules, tree

PACKAGES: Final = tuple(path.replace("/", ".") for path in IMITATIONS if path != "kerf_dra/driver/deploy")
"""The imitations that are packages; the other folder has the demo's manifests."""
COMMAND: Final = "kerf_dra.driver.cli.demo"
"""The one command that imports them."""
NAMED: Final = re.compile(
    r"(?<!\w)(?:{})(?!\w)".format(
        "|".join(
            rf"(?:\w+\.)*{re.escape(parent)}\.{leaf}|(?:\w+/)*{re.escape(parent)}/{leaf}|\.+{leaf}(?=$|[.:])"
            for parent, leaf in (package.split(".")[-2:] for package in PACKAGES)
        )
    )
)
"""A dotted name, a path, or a relative name of one of them, at any place in a string."""


def strings(module: ast.Module) -> Iterator[tuple[int, str]]:
    """The strings of a module with their lines, without docstrings and the texts below constants."""
    texts = {id(node.value) for node in ast.walk(module) if isinstance(node, ast.Expr)}
    for node in ast.walk(module):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in texts:
            yield node.lineno, node.value


def is_apart(path: Path) -> bool:
    return f"kerf_dra/{path.as_posix()}".startswith(
        (*(f"{folder}/" for folder in IMITATIONS), "kerf_dra/driver/cli/demo.py")
    )


def test_no_string_of_a_program_names_what_imitates_a_cluster_or_hardware() -> None:
    programs = [path for path in modules(*PRODUCT) if not is_apart(path)]
    assert 400 < len(programs) < len([*modules(*PRODUCT)])
    places = {f"{path}:{line}: {text}" for path in programs for line, text in strings(tree(path)) if NAMED.search(text)}
    check("register it as an entry point of the group kerf.backends", places)


@pytest.mark.parametrize(
    "source",
    [
        'backends={"nvidia-fake": "kerf_dra.driver.testing.nvml.demonstration:open_backend"}',
        'import_module("kerf_dra.driver.kubeletplugin.backends.simulated")',
        'import_module(".local", "kerf_dra.driver")',
        'import_module("..backends.simulated:open_gpus", __package__)',
        'f"kerf_dra.driver.demo.{name}"',
        'files("kerf_dra.driver") / "../driver/testing/nvml/source"',
    ],
)
def test_a_string_that_names_one_is_found(source: str) -> None:
    assert [text for _, text in strings(ast.parse(source)) if NAMED.search(text)]


@pytest.mark.parametrize(
    "source",
    ['"""See kerf_dra.driver.testing."""', 'name = "simulated"', '"kerf_dra.driver.locals"', '"svc.cluster.local"'],
)
def test_other_strings_name_none(source: str) -> None:
    assert not [text for _, text in strings(ast.parse(source)) if NAMED.search(text)]


def test_entry_points_name_them_as_backends_only() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    groups = {"console_scripts": project["scripts"], **project["entry-points"]}
    found = {group for group, points in groups.items() for where in points.values() if NAMED.search(where)}
    assert found == {"kerf.backends"}
    assert all(map(NAMED.search, groups["kerf.backends"].values())), (
        "the families name backends for hardware: it is faster"
    )


def test_the_contracts_for_imports_are_about_the_same_packages() -> None:
    contracts = configparser.ConfigParser()
    contracts.read(ROOT / ".importlinter")
    protected = {
        module
        for section in contracts.values()
        for module in section.get("protected_modules", "").split()
        if section.get("type") == "protected"
    }
    assert protected == {*PACKAGES, COMMAND}


def test_there_are_such_folders() -> None:
    assert all((ROOT / package.replace(".", "/") / "__init__.py").is_file() for package in PACKAGES)
