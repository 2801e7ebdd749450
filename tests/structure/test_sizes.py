"""Modules and folders stay small enough to be read."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.structure.sources import PRODUCT, check, modules, text

LINES_OF_A_MODULE: Final = 600
"""What one can read in one sitting; 150 to 400 are normal."""
MODULES_OF_A_FOLDER: Final = 15
"""What can be taken in at a glance. Beyond that, packages follow the flow of the data."""
MODULES_ONE_OF_A_KIND: Final = 20
"""Where all modules of a folder play the same part, the list reads like a table."""
ONE_OF_A_KIND: Final[Mapping[str, str]] = {
    "driver/cli": "one module for each subcommand of kerf",
}
"""Folders whose modules are one of a kind each, with what they are."""


def lines(path: Path) -> int:
    return len(text(path).splitlines())


def folder_sizes() -> Counter[str]:
    """How many modules each folder of the product holds."""
    return Counter(path.parent.as_posix() for path in modules(*PRODUCT) if not path.stem.startswith("__"))


def crowded_folders() -> set[str]:
    return {
        folder
        for folder, count in folder_sizes().items()
        if count > (MODULES_ONE_OF_A_KIND if folder in ONE_OF_A_KIND else MODULES_OF_A_FOLDER)
    }


def test_a_folder_of_the_product_can_be_taken_in_at_a_glance() -> None:
    check(f"more than {MODULES_OF_A_FOLDER} modules", crowded_folders())


def test_only_folders_that_need_it_count_as_one_of_a_kind() -> None:
    sizes = folder_sizes()
    check("remove it from ONE_OF_A_KIND", {name for name in ONE_OF_A_KIND if sizes[name] <= MODULES_OF_A_FOLDER})


def test_a_module_can_be_read_in_one_sitting() -> None:
    found = {f"{path} ({lines(path)})" for path in modules(*PRODUCT, "tests") if lines(path) > LINES_OF_A_MODULE}
    check(f"more than {LINES_OF_A_MODULE} lines", found)
