"""Modules and folders stay small enough to be read."""

from collections import Counter
from pathlib import Path
from typing import Final

from tests.structure.rules import check
from tools.sources import PRODUCT, modules, text

LINES_OF_A_MODULE: Final = 600
"""What one can read in one sitting; 150 to 400 are normal."""
MODULES_OF_A_FOLDER: Final = 15
"""What can be taken in at a glance. Beyond that, packages follow the flow of the data."""

BYTES_OF_THE_ARCHITECTURE: Final = 8192
"""Two pages: a person who changes one thing reads all of it first."""


def lines(path: Path) -> int:
    return len(text(path).splitlines())


def folder_sizes() -> Counter[str]:
    """How many modules each folder of the product holds."""
    return Counter(path.parent.as_posix() for path in modules(*PRODUCT) if not path.stem.startswith("__"))


def crowded_folders() -> set[str]:
    return {folder for folder, count in folder_sizes().items() if count > MODULES_OF_A_FOLDER}


def test_a_folder_of_the_product_can_be_taken_in_at_a_glance() -> None:
    check(f"more than {MODULES_OF_A_FOLDER} modules", crowded_folders())


def test_a_module_can_be_read_in_one_sitting() -> None:
    found = {
        f"{path} ({lines(path)})" for path in modules(*PRODUCT, "tests", "tools") if lines(path) > LINES_OF_A_MODULE
    }
    check(f"more than {LINES_OF_A_MODULE} lines", found)


def test_the_page_of_the_architecture_is_read_at_once() -> None:
    size = len(text(Path("ARCHITECTURE.md")).encode())
    assert size <= BYTES_OF_THE_ARCHITECTURE, "move what is of one package into the docstring of its __init__.py"
