"""The layout of a directed graph in layers (Sugiyama, Tagawa and Toda, 1981).

Each node is below all nodes that lead to it. An edge that passes a layer has a place in it. The order in a layer, and
where each place is, follow the mean of the places that edges join it with in the neighboring layers. For a graph with
``n`` places the layout takes some ``24 n log n`` steps.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from graphlib import TopologicalSorter
from itertools import pairwise
from typing import Final

_BEND: Final = 10.0
"""The width of an edge's place in a layer that it passes."""
_GAP: Final = 14.0
"""Pixels between places of one layer."""
_MARGIN: Final = 2.0
"""Pixels left of the leftmost place."""
_SWEEPS: Final = 24
"""Passes over all layers; the order has settled before."""

_Place = str | tuple[str, str, int]
"""What has a place in a layer: a node, or the edge from one node to another with the number of the layer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphLayout:
    """Where the nodes of a graph are, and where its edges pass."""

    layers: Mapping[str, int]
    """The layer of each node, from 0, the highest."""
    centers: Mapping[str, float]
    """The middle of each node, in pixels from the left."""
    bends: Mapping[tuple[str, str], Sequence[float]]
    """Where each edge passes the layers between its nodes, from the higher to the lower."""


def place_graph(edges: Mapping[str, set[str]], widths: Mapping[str, float]) -> GraphLayout:
    """Return a layout of nodes of these widths in pixels. ``edges`` has the nodes that each node leads to.

    Raises ``graphlib.CycleError`` where nodes lead to one another in a circle.
    """
    layers = _build_layers(edges)
    centers = _find_centers(layers, _join(edges, layers), widths)
    found = {name: number for number, layer in enumerate(layers) for name in layer if isinstance(name, str)}
    return GraphLayout(
        layers=found,
        centers={name: centers[name] for name in found},
        bends={
            (source, below): [centers[source, below, number] for number in range(found[source] + 1, found[below])]
            for source in edges
            for below in edges[source]
        },
    )


def measure_depths(graph: Mapping[str, set[str]]) -> dict[str, int]:
    """Return the number of nodes in the longest chain that starts at each node."""
    depths: dict[str, int] = {}
    for node in TopologicalSorter(graph).static_order():
        depths[node] = 1 + max((depths[target] for target in graph.get(node, ())), default=0)
    return depths


def _build_layers(edges: Mapping[str, set[str]]) -> list[list[_Place]]:
    """Return the layers from the highest: nodes by the longest chain below them, and the edges that pass each."""
    depths = measure_depths(edges)
    for name in sorted(name for name in edges if not edges[name]):  # a node without edges is right below the others
        depths[name] = max(1, min((depths[other] for other in edges if name in edges[other]), default=2) - 1)
    layers: list[list[_Place]] = [[] for _ in range(max(depths.values()))]
    for name, depth in sorted(depths.items()):
        layers[-depth].append(name)
    for source in sorted(edges):
        for below in sorted(edges[source]):
            for depth in range(depths[below] + 1, depths[source]):
                layers[-depth].append((source, below, len(layers) - depth))
    return layers


def _join(edges: Mapping[str, set[str]], layers: Sequence[Sequence[_Place]]) -> dict[_Place, list[_Place]]:
    """Return the places in neighboring layers that edges join each place with."""
    numbers = {name: number for number, layer in enumerate(layers) for name in layer}
    found: dict[_Place, list[_Place]] = {name: [] for name in numbers}
    for source, targets in edges.items():
        for below in targets:
            chain: list[_Place] = [source, below]
            chain[1:1] = [(source, below, number) for number in range(numbers[source] + 1, numbers[below])]
            for upper, lower in pairwise(chain):
                found[upper].append(lower)
                found[lower].append(upper)
    return found


def _find_centers(
    layers: list[list[_Place]], joined: Mapping[_Place, Sequence[_Place]], widths: Mapping[str, float]
) -> dict[_Place, float]:
    """Order the layers, and return the middle of each place: as near to the mean of its neighbors as there is room."""
    centers: dict[_Place, float] = {}
    for layer in layers:
        centers |= _spread(layer, dict.fromkeys(layer, 0.0), widths)
    for sweep in range(_SWEEPS):
        for layer in layers if sweep % 2 else reversed(layers):
            wanted = {name: _mean([centers[other] for other in joined[name] or [name]]) for name in layer}
            ranks = {name: (wanted[name], str(name)) for name in layer}
            layer.sort(key=ranks.__getitem__)
            centers |= _spread(layer, wanted, widths)
    left = min(x - _measure(name, widths) / 2 for name, x in centers.items())
    return {name: round(x - left + _MARGIN, 1) for name, x in centers.items()}


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _measure(name: _Place, widths: Mapping[str, float]) -> float:
    return widths[name] if isinstance(name, str) else _BEND


def _spread(
    layer: Sequence[_Place], wanted: Mapping[_Place, float], widths: Mapping[str, float]
) -> dict[_Place, float]:
    """Return the middle of each place of an ordered layer: where it is wanted, moved to both sides as others need."""
    rightward = _push(layer, wanted, widths)
    leftward = _push([*reversed(layer)], {name: -x for name, x in wanted.items()}, widths)
    return {name: (rightward[name] - leftward[name]) / 2 for name in layer}


def _push(layer: Sequence[_Place], wanted: Mapping[_Place, float], widths: Mapping[str, float]) -> dict[_Place, float]:
    """Return the middle of each place, where it is wanted or right of the one before it."""
    found: dict[_Place, float] = {}
    free = float("-inf")
    for name in layer:
        half = _measure(name, widths) / 2
        found[name] = max(free + half, wanted[name])
        free = found[name] + half + _GAP
    return found
