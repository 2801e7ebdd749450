"""The diagram of the packages in ``ARCHITECTURE.md`` is that of the present import statements."""

from graphlib import CycleError
from pathlib import Path

import pytest

from tools.generate import packages


def test_the_picture_is_what_the_imports_say(tmp_path: Path) -> None:
    for path in packages.generate(tmp_path):
        generated, kept = (tmp_path / path).read_text(), (packages.ROOT / path).read_text()
        assert generated == kept, f"{path} is stale: run `make generate`"


def test_the_picture_can_be_read() -> None:
    assert 10 < len(packages.imports()) <= 24


def test_an_edge_that_a_longer_way_implies_is_left_out() -> None:
    graph = {"top": {"middle", "bottom", "side"}, "middle": {"bottom"}, "side": set[str](), "bottom": set[str]()}
    assert packages.reduce_transitively(graph) == graph | {"top": {"middle", "side"}}


def test_packages_that_import_one_another_are_an_error() -> None:
    with pytest.raises(CycleError):
        packages.reduce_transitively({"a": {"b"}, "b": {"a"}})
