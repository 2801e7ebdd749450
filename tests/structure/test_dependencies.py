"""What pyproject.toml says Kerf depends on is what its code imports.

An installation once brought jsonschema and rich, which nothing imported, and lacked a row for pydantic and yarl, which
came along with other packages by chance.
"""

import ast
import sys
import tomllib
from collections.abc import Iterable
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any, Final

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.structure.rules import check
from tools.image.description import LEFT_OUT
from tools.sources import IMPORT_PACKAGE, PRODUCT, ROOT, modules, tree
from tools.supply_chain.lock import read_lock

PROJECT: Final[dict[str, Any]] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
OWN: Final = frozenset({IMPORT_PACKAGE, "tests", "tools", "acme_npu", "test_acme_npu"})
NEVER_IMPORTED: Final = {
    "editables": "an editable install needs it",
    "hatchling": "the build backend",
    "highspy": "loaded by its name, where the bench has it",
    "import-linter": "a program",
    "mypy": "a program",
    "mypy-protobuf": "a plugin of protoc",
    "pytest-cov": "a plugin of pytest",
    "pytest-xdist": "a plugin of pytest",
    "ruff": "a program",
    "types-grpcio": "types",
    "types-jsonschema": "types",
    "types-protobuf": "types",
    "types-pyyaml": "types",
}
"""Developers' packages that no module imports."""


def declared(*extras: str) -> set[str]:
    """The distributions that Kerf depends on, with extras."""
    optional = PROJECT["optional-dependencies"]
    lines = [*PROJECT["dependencies"], *(line for extra in extras for line in optional[extra])]
    return {canonicalize_name(Requirement(line).name) for line in lines}


def imported(paths: Iterable[Path]) -> set[str]:
    """The distributions of what modules import, at any place."""
    known = packages_distributions()
    found = {name for path in paths for name in heads(tree(path))} - OWN - sys.stdlib_module_names
    return {canonicalize_name(known[name.removeprefix("_")][0]) for name in found}


def heads(module: ast.Module) -> set[str]:
    """The first words of what a module imports."""
    found: set[str] = set()
    for node in ast.walk(module):
        match node:
            case ast.Import(names=names):
                found |= {alias.name.partition(".")[0] for alias in names}
            case ast.ImportFrom(module=str(source), level=0):
                found.add(source.partition(".")[0])
    return found


def test_the_product_depends_on_what_it_imports_and_on_nothing_else() -> None:
    assert imported(modules(*PRODUCT)) == declared("fpga", "nvidia", "testing", "view")


def test_what_an_extra_is_for_is_imported_by_what_it_is_for_only() -> None:
    """The extra `testing` is what the contract suite imports."""
    suite = imported(path for path in modules("driver") if path.is_relative_to("driver/testing"))
    others = imported(path for path in modules(*PRODUCT) if not path.is_relative_to("driver/testing"))
    assert declared("testing") - declared() == suite - others


def test_what_drives_a_browser_is_imported_by_the_tests_in_a_browser_only() -> None:
    """`make test` needs none of it: what is not installed has the name of its module here."""
    names = {name for path in modules("tests", "tools") if is_in_browser(path) for name in heads(tree(path))}
    third_party = names - OWN - sys.stdlib_module_names - {"anyio", "pytest"}
    assert {canonicalize_name(name.removesuffix(".sync_playwright")) for name in third_party} == declared(
        "browser"
    ) - declared()


def is_in_browser(path: Path) -> bool:
    return path.is_relative_to("tests/view/browser") or path == Path("tools/view_pictures.py")


def test_developers_have_what_the_tests_import() -> None:
    found = imported(path for path in modules("tests", "tools") if not is_in_browser(path))
    check("declare it in the extra dev", found - declared("dev"))
    unused = declared("dev") - declared() - found - imported(modules(*PRODUCT)) - NEVER_IMPORTED.keys()
    check("nothing imports it: remove it, or say in NEVER_IMPORTED what it is for", unused)
    check("it is imported, or not declared: remove it from NEVER_IMPORTED", NEVER_IMPORTED.keys() - declared("dev"))


def test_the_image_has_all_dependencies_but_those_that_it_leaves_out() -> None:
    of_users, of_image = (
        {each.name: each for each in read_lock(ROOT / lock)} for lock in ("requirements.lock", "deploy/image/kerf.lock")
    )
    assert of_image.items() <= of_users.items()
    assert declared() - of_image.keys() == LEFT_OUT
