"""Kerf is imported as ``kerf_dra``: a foreign ``api``, ``cdi`` or ``driver`` on a user's path changes nothing.

An installed Kerf once had these three as top-level packages; with any folder ``api`` on the path every command ended
with a ModuleNotFoundError. From the root of a checkout the bare names still lead to the same files, as second
modules with second classes. ruff refuses them in import statements (``TID251``); here are texts and strings.
"""

import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.structure.rules import check
from tools.sources import GENERATED, IMPORT_PACKAGE, PRODUCT, ROOT, files, modules, text

KEPT: Final = frozenset(
    {
        Path("ARCHITECTURE.md"),  # its picture leaves the prefix out, to be readable
        Path("driver/runtime/logs.py"),  # so does the field `logger` of logs, so that queries over them stay valid
        Path("tests/runtime/test_logs.py"),
        Path("tools/generate/packages.py"),
        Path("tests/upgrade/kerf"),  # of an earlier version
        Path("tests/structure/test_import_package.py"),  # its cases
    }
)
READ: Final = frozenset({".py", ".md", ".toml", ".importlinter", ".yaml", ""})


def bare_name() -> re.Pattern[str]:
    """What names a module or package of Kerf without its import package."""
    inside = {path.with_suffix("").parts[:2] for path in modules(*PRODUCT)} - {("cdi", "__init__")}
    names = "|".join(rf"{folder}\.{name}" for folder, name in sorted(inside))
    return re.compile(rf"(?<![\w./-])(?:{names})(?![\w-])")


def prose(path: Path) -> Iterator[tuple[int, str]]:
    """The lines of a text, or of a module's strings and comments: in its code ``api`` may be a variable."""
    if path.suffix != ".py":
        yield from enumerate(text(path).splitlines(), 1)
        return
    for token in tokenize.generate_tokens(io.StringIO(text(path)).readline):
        if token.type in (tokenize.STRING, tokenize.COMMENT):
            yield from enumerate(token.string.splitlines(), token.start[0])


def test_nothing_names_a_module_without_its_import_package() -> None:
    pattern = bare_name()
    places = {
        f"{path}:{number}: {line.strip()}"
        for path in files() - KEPT
        if path.suffix in READ and GENERATED not in path.parts and pattern.search(text(path))
        for number, line in prose(path)
        if pattern.search(line)
    }
    check(f"write {IMPORT_PACKAGE}.NAME", places)


def test_no_call_names_a_folder_as_a_package() -> None:
    """The demo asked ``resources.files("driver")`` for its examples: in an installed Kerf, a foreign package's."""
    call = re.compile(rf"(?:files|import_module|find_spec|__import__)\(f?[\"'](?:{'|'.join(PRODUCT)})[\"'.]")
    assert call.search('resources.files("driver")')
    places = (path for path in modules(*PRODUCT, "tests") if path.name != Path(__file__).name)
    check(f"write {IMPORT_PACKAGE}.NAME", {str(path) for path in places if call.search(text(path))})


@pytest.mark.parametrize("line", ["import driver.kube", 'import_module(f"api.resource.{version}")', "`cdi.store`"])
def test_a_bare_name_is_found(line: str) -> None:
    assert bare_name().search(line)


@pytest.mark.parametrize(
    "line", ["kerf_dra.driver.kube", "driver/kube", "cdi.k8s.io", "spec.driver.kube", "driver.name", "api/model"]
)
def test_other_words_are_none(line: str) -> None:
    assert not bare_name().search(line)


def test_the_links_of_a_checkout_lead_to_the_folders() -> None:
    links = {path.name: path.resolve() for path in (ROOT / IMPORT_PACKAGE).iterdir() if path.is_symlink()}
    assert links == {package: ROOT / package for package in PRODUCT}
