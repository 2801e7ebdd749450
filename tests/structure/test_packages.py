"""The diagram of the packages in ``ARCHITECTURE.md`` is that of the present import statements."""

from graphlib import CycleError
from itertools import pairwise
from pathlib import Path

import pytest

from tools.generate import packages
from tools.generate.layered_graph import place_graph


def test_the_picture_is_what_the_imports_say(tmp_path: Path) -> None:
    for path in packages.generate(tmp_path):
        generated, kept = (tmp_path / path).read_text(), (packages.ROOT / path).read_text()
        assert generated == kept, f"{path} is stale: run `make generate`"


def test_the_picture_can_be_read() -> None:
    assert 10 < len(packages.imports()) <= 26


def test_an_edge_that_a_longer_way_implies_is_left_out() -> None:
    graph = {"top": {"middle", "bottom", "side"}, "middle": {"bottom"}, "side": set[str](), "bottom": set[str]()}
    assert packages.reduce_transitively(graph) == graph | {"top": {"middle", "side"}}


def test_a_package_is_drawn_above_all_that_it_imports_and_beside_others() -> None:
    edges = packages.reduce_transitively(packages.imports())
    layout = place_graph(edges, dict.fromkeys(edges, 50.0))
    assert all(layout.layers[source] < layout.layers[below] for source in edges for below in edges[source])
    for layer in {*layout.layers.values()}:
        centers = sorted(layout.centers[name] for name in edges if layout.layers[name] == layer)
        assert all(right - left > 50 for left, right in pairwise(centers))
    assert min(layout.centers.values()) >= 25


def test_an_edge_has_a_place_in_each_layer_that_it_passes() -> None:
    edges = {"top": {"middle", "bottom"}, "middle": {"low"}, "low": {"bottom"}, "bottom": set[str]()}
    layout = place_graph(edges, dict.fromkeys(edges, 50.0))
    assert layout.layers == {"top": 0, "middle": 1, "low": 2, "bottom": 3}
    bends = layout.bends["top", "bottom"]
    assert len(bends) == 2
    assert all(abs(bend - layout.centers[name]) > 30 for bend, name in zip(bends, ("middle", "low"), strict=True))
    assert layout.bends["top", "middle"] == []


def test_packages_that_import_one_another_are_an_error() -> None:
    with pytest.raises(CycleError):
        packages.reduce_transitively({"a": {"b"}, "b": {"a"}})
