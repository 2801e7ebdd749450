"""The files of the repository that tools and structure tests read."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
PRODUCT: Final = ("api", "cdi", "driver")
"""The folders of the product's packages."""
IMPORT_PACKAGE: Final = "kerf_dra"
"""The package that they are imported from."""
GENERATED: Final = "_generated"
"""The folders that protoc writes: no guard looks there."""
_FOLDERS: Final = (*PRODUCT, "tests", "tools", "docs", "deploy", ".ci", ".github")
"""The folders of the repository; others in the root are caches and environments."""


@cache
def files() -> frozenset[Path]:
    """Every file of the repository but caches, relative to the root."""
    found = {path for path in ROOT.iterdir() if path.is_file()}
    found |= {path for folder in _FOLDERS for path in (ROOT / folder).rglob("*") if path.is_file()}
    return frozenset(path.relative_to(ROOT) for path in found if "__pycache__" not in path.parts)


def modules(*packages: str) -> Iterator[Path]:
    """The hand-written modules of the named top-level packages, in order."""
    for path in sorted(files()):
        if path.suffix == ".py" and path.parts[0] in packages and GENERATED not in path.parts:
            yield path


def dotted(path: Path) -> str:
    """The name by which the module in ``path`` is imported."""
    name = ".".join(path.with_suffix("").parts).removesuffix(".__init__")
    return f"{IMPORT_PACKAGE}.{name}" if path.parts[0] in PRODUCT else name


@cache
def text(path: Path) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(text(path))
