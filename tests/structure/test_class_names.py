"""One word has one meaning: a public class name occurs once in ``driver``."""

import ast
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.structure.rules import check
from tools.sources import modules, tree

SEVERAL: Final[Mapping[str, str]] = {
    "Settings": "each program has its own, and no module needs two of them",
}
"""Names that several classes may have, each with its reason."""


def homonyms() -> dict[str, list[Path]]:
    """Each public class name that several modules of ``driver`` define, with these modules."""
    places = defaultdict(list)
    for path in modules("driver"):
        for node in tree(path).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(path)
    return {name: paths for name, paths in places.items() if len(paths) > 1}


def repeated() -> set[str]:
    """``Name 2`` for the second class of a name, ``Name 3`` for the third: independent of the modules they are in."""
    return {
        f"{name} {number}"
        for name, paths in homonyms().items()
        if name not in SEVERAL
        for number in range(2, len(paths) + 1)
    }


def test_a_public_class_name_occurs_once() -> None:
    places = "; ".join(f"{name}: {', '.join(map(str, paths))}" for name, paths in sorted(homonyms().items()))
    check(f"another class of the driver has this name ({places})", repeated())


def test_a_name_that_several_classes_may_have_is_had_by_several() -> None:
    check("remove it from SEVERAL", SEVERAL.keys() - homonyms().keys())
