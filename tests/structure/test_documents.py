"""No page, docstring or comment names a file, module or command that is not there."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.structure.references import missing
from tests.structure.sources import PRODUCT, ROOT, check, files, modules, text, tree

_FENCE: Final = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_COMMAND: Final = re.compile(r"^(?:\$ )?((?:make|kerf|python -m) .*)$", re.MULTILINE)
_PAGE_SPAN: Final = re.compile(r"(?<!`)`([^`]+)`(?!`)")
_CODE_SPAN: Final = re.compile(r"``([^`]+)``")
_COMMENT_WITH_SPAN: Final = re.compile(r"#.*``")
_LINK: Final = re.compile(r"\]\(([^)\s]+)\)")


def pages() -> Iterator[Path]:
    for path in sorted(files()):
        if path.suffix == ".md" and path.parts[0] != "tests":
            yield path


def spans_of_page(page: str) -> Iterator[str]:
    """Code spans, and the commands in fenced blocks."""
    for block in _FENCE.findall(page):
        yield from (command.partition("#")[0] for command in _COMMAND.findall(block))
    yield from _PAGE_SPAN.findall(_FENCE.sub("", page))


def broken_links(path: Path) -> Iterator[str]:
    for target in _LINK.findall(_FENCE.sub("", text(path))):
        place = target.partition("#")[0]
        if place and "://" not in place and not (ROOT / path.parent / place).exists():
            yield target


def prose(path: Path) -> Iterator[str]:
    """The docstrings, the texts below constants and the comments of a module."""
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.value.value
    if _COMMENT_WITH_SPAN.search(text(path)):  # the others, nearly all, need not be taken apart
        for token in tokenize.generate_tokens(io.StringIO(text(path)).readline):
            if token.type == tokenize.COMMENT:
                yield token.string


def missing_in_pages() -> set[str]:
    found = {f"{page}: {target}" for page in pages() for target in broken_links(page)}
    return found | {
        f"{page}: {name}" for page in pages() for span in spans_of_page(text(page)) for name in missing(span)
    }


def missing_in_code() -> set[str]:
    return {
        f"{path}: {name}"
        for path in modules(*PRODUCT, "tests")
        if "``" in text(path)
        for part in prose(path)
        for span in _CODE_SPAN.findall(part)
        for name in missing(span)
    }


def test_what_pages_name_is_there() -> None:
    check("the page names what is not there", missing_in_pages())


def test_what_docstrings_and_comments_name_is_there() -> None:
    check("the module names what is not there", missing_in_code())


@pytest.mark.parametrize(
    "span",
    [
        "api.errors.KerfError",
        "cdi/store.py",
        "cdi.Store",
        "store.py",
        "driver/",
        "kerf --help",
        "kerf why POD",
        "kerf cdi validate FILE",
        "make e2e CLASSIC=1.31",
        "python -m tests.structure",
        "tests/structure/test_documents.py::test_what_pages_name_is_there",
        "resource.k8s.io/v1",
        "pkg/apis/resource/types.go",
        "driver.example.com/gpu",
    ],
)
def test_a_span_that_names_what_is_there_or_is_not_ours_passes(span: str) -> None:
    assert not [*missing(span)]


@pytest.mark.parametrize(
    "span",
    [
        "api.errors.NoSuchError",
        "cdi/no_such.py",
        "no_such.py",
        "driver.no_such",
        "kerf no-such",
        "make no-such",
        "python -m tests.no_such",
        "tests/structure/test_documents.py::test_no_such",
    ],
)
def test_a_span_that_names_what_is_not_there_is_found(span: str) -> None:
    assert [*missing(span)]
