"""Modules and packages are named by nouns of their field, not by gerunds of everyday English."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.structure.rules import check
from tools.sources import PRODUCT, modules

TERMS: Final = frozenset(
    {
        "backtracking",
        "caching",
        "defaulting",
        "inlining",
        "interning",
        "logging",
        "matching",
        "pruning",
        "scheduling",
        "sharing",
        "testing",
        "troubleshooting",
    }
)
"""Gerunds that are terms of the field: what a textbook, a KEP or an upstream package is named by."""
KUBERNETES_NAMES: Final = ("binding_conditions", "mutating_policies", "rolling_update", "validating_policies")
"""KEP-5007, MutatingAdmissionPolicy, the update strategy of workloads, and ValidatingAdmissionPolicy: names of which a
gerund is a part."""
NO_GERUNDS: Final = frozenset({"string"})
"""Words that only end like one."""
EMPTY_WORDS: Final = frozenset({"common", "helper", "helpers", "manager", "managers", "misc", "util", "utils"})
"""Names that say nothing of what is in a module."""


def names(*packages: str) -> Iterator[tuple[Path, str]]:
    """Each module and package of the named top-level packages, with its own name."""
    files = set(modules(*packages))
    for path in sorted(files.union(*(file.parents[:-1] for file in files))):
        if not path.stem.startswith("__"):
            yield path, path.stem


def is_gerund(word: str) -> bool:
    return word.endswith("ing") and word not in TERMS | NO_GERUNDS


def has_gerund(name: str) -> bool:
    return not name.endswith(KUBERNETES_NAMES) and any(map(is_gerund, name.split("_")))


def gerunds(*packages: str) -> set[str]:
    return {path.as_posix() for path, name in names(*packages) if has_gerund(name)}


def test_no_module_of_the_product_is_named_by_a_gerund() -> None:
    check("named by a gerund that is no term", gerunds(*PRODUCT))


def test_no_module_of_tests_and_tools_is_named_by_a_gerund() -> None:
    check("named by a gerund that is no term", gerunds("tests", "tools"))


def test_no_module_is_named_by_a_word_that_says_nothing() -> None:
    found = {path.as_posix() for path, name in names(*PRODUCT, "tests", "tools") if EMPTY_WORDS & {*name.split("_")}}
    check("the name does not say what is in it", found)


@pytest.mark.parametrize(
    ("name", "verdict"),
    [
        ("asking", True),
        ("test_asking", True),
        ("leading_zero", True),
        ("node_sharing", False),
        ("string", False),
        ("test_rolling_update", False),
    ],
)
def test_any_word_of_a_name_may_be_the_gerund(name: str, verdict: bool) -> None:
    assert has_gerund(name) is verdict
