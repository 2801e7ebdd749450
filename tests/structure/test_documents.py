"""No page, docstring or comment names a file, module or command that is not there, and no link leads nowhere."""

import ast
import io
import os
import re
import tokenize
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

import pytest

from tests.structure.references import missing
from tests.structure.rules import check
from tools.sources import PRODUCT, ROOT, files, modules, text, tree

_FENCE: Final = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_COMMAND: Final = re.compile(r"^(?:\$ )?((?:make|kerf|python -m) .*)$", re.MULTILINE)
_PAGE_SPAN: Final = re.compile(r"(?<!`)`([^`]+)`(?!`)")
_CODE_SPAN: Final = re.compile(r"``([^`]+)``")
_COMMENT_WITH_SPAN: Final = re.compile(r"#.*``")
_LINK: Final = re.compile(r"\]\(([^)\s]+)\)")
_FENCE_LINE: Final = re.compile(r"(?P<indent> *)```")
_BOLD_STEP: Final = re.compile(r"\*\*\d+\. ")
_STEP: Final = re.compile(r"\d+\. ")
_HEADING: Final = re.compile(r"^#{1,6} +(.+?) *$", re.MULTILINE)
_NO_SLUG: Final = re.compile(r"[^\w\- ]")
"""What GitHub and the documentation site leave out of a heading's anchor; spaces become hyphens."""


def pages() -> Iterator[Path]:
    for path in sorted(files()):
        if path.suffix == ".md" and path.parts[0] not in ("tests", ".github"):
            yield path


def spans_of_page(page: str) -> Iterator[str]:
    """Code spans, and the commands in fenced blocks."""
    for block in _FENCE.findall(page):
        yield from (command.partition("#")[0] for command in _COMMAND.findall(block))
    yield from _PAGE_SPAN.findall(_FENCE.sub("", page))


def broken_links(path: Path, page: str) -> Iterator[str]:
    """The links of ``page``, which is in ``path``, to files that are not there, and to headings that are not."""
    for target in _LINK.findall(_FENCE.sub("", page)):
        place, _, anchor = target.partition("#")
        if "://" in place or place.startswith("mailto:"):
            continue
        file = Path(os.path.normpath(path.parent / place)) if place else path
        if not (ROOT / file).exists() or (anchor and anchor not in anchors(text(file) if place else page)):
            yield target


@cache
def anchors(page: str) -> frozenset[str]:
    """The anchors of the headings of ``page``; a heading that is there a second time has a number."""
    found: Counter[str] = Counter()
    names = set()
    for heading in _HEADING.findall(_FENCE.sub("", page)):
        plain = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
        slug = _NO_SLUG.sub("", plain.lower()).replace(" ", "-")
        names.add(f"{slug}-{found[slug]}" if found[slug] else slug)
        found[slug] += 1
    return frozenset(names)


def prose(path: Path) -> Iterator[str]:
    """The docstrings, the texts below constants and the comments of a module."""
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.value.value
    if _COMMENT_WITH_SPAN.search(text(path)):  # the others, nearly all, need not be taken apart
        for token in tokenize.generate_tokens(io.StringIO(text(path)).readline):
            if token.type == tokenize.COMMENT:
                yield token.string


def broken_lists(page: str) -> Iterator[str]:
    """The blocks of code in items of lists that the site does not show in them, and steps that are no list.

    The site's Markdown wants four spaces for each level of a list before a block; GitHub's takes two or three, too.
    """
    lines = page.splitlines()
    is_code = False
    for before, line in zip(["", *lines], lines, strict=False):
        fence = _FENCE_LINE.match(line)
        if fence and not is_code and len(fence["indent"]) % 4:
            yield line
        is_code ^= fence is not None
        follows_text = before.strip() != "" and not before.startswith((" ", "|")) and not _STEP.match(before)
        if not is_code and (_BOLD_STEP.match(line) or (_STEP.match(line) and follows_text)):
            yield line


def missing_in_pages() -> set[str]:
    found = {f"{page}: {target}" for page in pages() for target in broken_links(page, text(page))}
    return found | {
        f"{page}: {name}" for page in pages() for span in spans_of_page(text(page)) for name in missing(span)
    }


def missing_in_code() -> set[str]:
    return {
        f"{path}: {name}"
        for path in modules(*PRODUCT, "tests", "tools")
        if "``" in text(path)
        for part in prose(path)
        for span in _CODE_SPAN.findall(part)
        for name in missing(span)
    }


def test_what_pages_name_is_there() -> None:
    check("the page names what is not there", missing_in_pages())


def test_steps_and_blocks_of_code_are_parts_of_lists_on_the_site() -> None:
    check(
        "four spaces before a block in a list, `1. ` after an empty line",
        {f"{page}: {line}" for page in pages() for line in broken_lists(text(page))},
    )


@pytest.mark.parametrize(
    ("page", "is_broken"),
    [
        ("1. first\n2. second\n", False),
        ("1. first\n   goes on\n2. second\n", False),
        ("1. first\n\n    ```sh\n    a\n    ```\n\n2. second\n", False),
        ("1. first\n\n   ```sh\n   a\n   ```\n\n2. second\n", True),
        ("- first\n\n  ```sh\n  a\n  ```\n", True),
        ("these:\n1. first\n", True),
        ("**1. First**: this\n", True),
        ("```text\n**1. First**\n a:\n1. b\n```\n", False),
    ],
)
def test_a_list_that_the_site_breaks_is_found(page: str, is_broken: bool) -> None:
    assert any(broken_lists(page)) == is_broken


def test_the_site_has_every_page_once() -> None:
    """MkDocs says so, too, where it is installed (`make docs`)."""
    in_site = re.findall(r"^ *- (?:[^:\n]+: )?(\S+\.md)$", text(Path("mkdocs.yml")), re.MULTILINE)
    assert sorted(in_site) == sorted(path.as_posix() for path in pages())


def test_the_site_leads_from_each_earlier_name_of_a_page_to_one_that_is_there() -> None:
    [moved] = [
        ast.literal_eval(node.value)
        for node in tree(Path("docs/site/hooks.py")).body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "MOVED"
    ]
    check("no page has this name any more", {page for page in moved.values() if Path(page) not in {*pages()}})
    check("a page has this earlier name", {page for page in moved if Path(page) in {*pages()}})


def test_what_docstrings_and_comments_name_is_there() -> None:
    check("the module names what is not there", missing_in_code())


@pytest.mark.parametrize(
    "span",
    [
        "kerf_dra.api.errors.KerfError",
        "cdi/store.py",
        "cdi.Store",
        "store.py",
        "driver/",
        "kerf --help",
        "kerf why POD",
        "kerf cdi validate FILE",
        "kerf claim gpu --memory 18Gi | kubectl apply -f -",
        "kerf frag [--nodes PATTERN]",
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
        "kerf_dra.api.errors.NoSuchError",
        "cdi/no_such.py",
        "no_such.py",
        "driver.no_such",
        "kerf no-such",
        "kerf why --no-such",
        "kerf claim gpu --slots 2",
        "make no-such",
        "python -m tests.no_such",
        "tests/structure/test_documents.py::test_no_such",
    ],
)
def test_a_span_that_names_what_is_not_there_is_found(span: str) -> None:
    assert [*missing(span)]


@pytest.mark.parametrize(
    ("target", "is_broken"),
    [
        ("../README.md", False),
        ("quota.md#goals", True),
        ("nvidia.md#configuration", False),
        ("#a-heading-with-kerf-why", False),
        ("#no-such-heading", True),
        ("no-such-page.md", True),
        ("https://example.com/page#anchor", False),
    ],
)
def test_a_link_leads_to_a_file_and_a_heading(target: str, is_broken: bool) -> None:
    page = f"# A heading, with `kerf why`\n\nsee [this]({target})\n"
    assert [*broken_links(Path("docs/nvidia.md"), page)] == [target] * is_broken
