"""The tests of the kubelet plugin lie as the plugin does: a folder of tests is a package of the product."""

from pathlib import Path
from typing import Final

from tests.structure.rules import check
from tools.sources import modules

PRODUCT: Final = Path("driver/kubeletplugin")
TESTS: Final = Path("tests/kubeletplugin")
KINDS: Final = {
    "fault_points": "one test of the whole plugin, with the node and the judge that it needs",
}
"""Folders of tests that are of a kind, not of a package."""


def test_a_folder_of_tests_is_a_package_of_the_product_or_of_a_kind() -> None:
    product = {path.parent.relative_to(PRODUCT) for path in modules("driver") if path.is_relative_to(PRODUCT)}
    tests = {path.parent.relative_to(TESTS) for path in modules("tests") if path.is_relative_to(TESTS)}
    assert len(tests & product) > 10
    check("the product has no such package", {str(TESTS / one) for one in tests - product - {*map(Path, KINDS)}})


def test_a_folder_of_a_kind_is_there() -> None:
    assert [kind for kind in KINDS if not any(path.is_relative_to(TESTS / kind) for path in modules("tests"))] == []


def test_no_test_is_named_by_a_package_that_it_is_not_in() -> None:
    """What the health of NVIDIA's cards is tested by is ``backends/nvidia/test_health.py``."""
    packages = {path.parent.relative_to(PRODUCT) for path in modules("driver") if path.is_relative_to(PRODUCT)}
    found = {
        str(path)
        for path in modules("tests")
        if path.is_relative_to(TESTS)
        for package in packages
        if package.parent == path.parent.relative_to(TESTS) and path.stem.startswith(f"test_{package.name}_")
    }
    check("the name begins with a package, which is to be its folder", found)
