"""Pages, messages and docstrings are plain technical English: they name who acts, and what is reported or available.

``nobody``, ``somebody``, ``everybody`` and ``whoever`` hide the actor: write "no claim", "another program", "each
user". A message is *reported* or *logged*, not *told*; a device is *available*, not *to be had*; a thing is done
*again*, not *anew*. Tests are not read: their names are sentences about behaviour, for developers.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.structure.rules import check
from tools.sources import GENERATED, PRODUCT, files, text

WORDS: Final = re.compile(
    r"\b(?:nobody|somebody|anybody|everybody|whoever|anew|tells?|told)\b"
    r"|\b(?:can(?:not|no longer)?|could|to) be had\b",
    re.IGNORECASE,
)
LINES: Final = 1
"""How many lines still have such a word: one, a value of a metric's label, which is public. The number only shrinks."""
_FOLDERS: Final = (*PRODUCT, "docs", "deploy", "tools")
_SUFFIXES: Final = (".py", ".md", ".yaml", ".json", ".toml", ".c", ".h", ".tpl")
_OTHERS: Final = ("tools/realcluster/kube/", "docs/site/")
"""Words of other projects, and of the site's theme."""


def is_read(path: Path) -> bool:
    """Whether users or maintainers read the file: tests, generated code and what others have written is left out."""
    is_ours = path.parts[0] in _FOLDERS or (len(path.parts) == 1 and path.suffix == ".md")
    is_text = path.suffix in _SUFFIXES and GENERATED not in path.parts
    return is_ours and is_text and not path.as_posix().startswith(_OTHERS)


def lines_with_words() -> Iterator[str]:
    for path in sorted(files()):
        if is_read(path):
            for number, line in enumerate(text(path).splitlines(), 1):
                if WORDS.search(line):
                    yield f"{path}:{number}: {line.strip()}"


def test_the_lines_with_words_that_hide_the_actor_only_shrink() -> None:
    found = list(lines_with_words())
    check(f"{len(found)} lines, {LINES} at most: name who acts", found if len(found) > LINES else ())


@pytest.mark.parametrize(
    ("line", "verdict"),
    [
        ("Nobody uses the card.", True),
        ("a limit that anybody may read", True),
        ("the plugin is told which device", True),
        ("it cannot be had in one piece", True),
        ("is made anew", True),
        ("a card that was renewed had no tolerance", False),
        ("test_what_somebody_has_cut", False),
    ],
)
def test_a_line_with_such_a_word_is_found(line: str, verdict: bool) -> None:
    assert bool(WORDS.search(line)) is verdict


if __name__ == "__main__":  # python -m tests.structure.test_words: lists them
    print(*lines_with_words(), sep="\n")
