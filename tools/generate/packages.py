"""Generates the diagram of the packages and their imports, which ``ARCHITECTURE.md`` shows.

A package is drawn two levels deep. What another edge implies is left out: an edge is drawn where one package imports
another, and no other package that it imports leads there (the transitive reduction of the import graph). A test
generates the picture into another folder and compares.
"""

import ast
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path
from textwrap import wrap
from typing import Final

from tools.generate.diagram import LETTER, LINE, Box, build_diagram, draw_curve, draw_text
from tools.generate.layered_graph import place_graph

ROOT: Final = Path(__file__).parents[2]
PICTURE: Final = Path("docs/pictures/packages.svg")

_PRODUCT: Final = ("api", "cdi", "driver")
_IMPORT_PACKAGE: Final = "kerf_dra."
_NAMESPACES: Final = ("api", "driver")
"""Heads that have names and versions only: all packages may import those."""
_WIRE: Final = "api.*"
"""The wire formats, drawn as one: each stands on the model and knows no other."""
_KINDS: Final = {"api": "kubernetes", "cdi": "hardware", "driver": "kerf"}
"""How the packages of each folder are drawn."""
_LAYER, _HEIGHT, _TOP = 92.0, 44.0, 4.0
"""Pixels: from one layer to the next, of a package, and above the first layer."""


def generate(target: Path) -> list[Path]:
    """Write the present picture below ``target`` and return its path relative to it."""
    (target / PICTURE).parent.mkdir(parents=True, exist_ok=True)
    (target / PICTURE).write_text(build_picture(), encoding="utf-8")
    return [PICTURE]


def build_picture() -> str:
    """Return the packages as SVG, those at the top from which the longest chains of imports start."""
    edges = reduce_transitively(imports())
    layout = place_graph(edges, {name: _width(name) for name in edges})
    boxes = {name: _box(name, layout.centers[name], layout.layers[name]) for name in sorted(edges)}
    elements = []
    for (source, below), bends in sorted(layout.bends.items()):
        tops = [_TOP + _LAYER * number for number in range(layout.layers[source] + 1, layout.layers[below])]
        passed = [point for x, top in zip(bends, tops, strict=True) for point in ((x, top), (x, top + _HEIGHT))]
        start, end = boxes[source], boxes[below]
        elements.append(draw_curve([(start.middle, start.bottom), *passed, (end.middle, end.top - 1)]))
    elements += [element for box in boxes.values() for element in box.draw()]
    right, bottom = max(box.right for box in boxes.values()) + 2, max(box.bottom for box in boxes.values()) + 24
    note = f"An arrow leads to what a package imports. The wire formats of api: {', '.join(_list_wire())}."
    lines = wrap(note, int(right / LETTER))
    elements += [draw_text(8, bottom + number * LINE, line, "faint") for number, line in enumerate(lines)]
    described = "; ".join(f"{name} imports {', '.join(sorted(edges[name]))}" for name in sorted(edges) if edges[name])
    title = "The packages of Kerf, and which imports which"
    return build_diagram((right, bottom + LINE * len(lines)), title, f"{described}.", elements)


def _list_wire() -> list[str]:
    return sorted({module.split(".")[1] for module in _modules() if _package(module) == _WIRE})


def _width(name: str) -> float:
    return round(max(64.0, len(_split(name)[1]) * LETTER * 1.1 + 16), 1)


def _split(name: str) -> tuple[str, str]:
    """Return the folder of a package, and its own name."""
    folder, _, own = name.partition(".")
    return ("", folder) if not own else (folder, "wire formats" if name == _WIRE else own)


def _box(name: str, center: float, layer: int) -> Box:
    folder, own = _split(name)
    width = _width(name)
    return Box(
        left=round(center - width / 2, 1),
        top=_TOP + layer * _LAYER,
        width=width,
        height=_HEIGHT,
        kind=_KINDS[name.partition(".")[0]],
        name=own,
        above=folder,
    )


@cache
def imports() -> dict[str, set[str]]:
    """Return the packages that the modules of each package import, at any place in a module."""
    modules = _modules()
    found: dict[str, set[str]] = {}
    for module, path in modules.items():
        package = _package(module)
        targets = {_package(name) for name in _imported(path, modules) if name.partition(".")[0] in _PRODUCT}
        if targets or module not in _PRODUCT:  # the head of a namespace, without anything in it, is no package
            found.setdefault(package, set()).update(targets - {package, *_NAMESPACES})
    return found


def reduce_transitively(graph: Mapping[str, set[str]]) -> dict[str, set[str]]:
    """Return the transitive reduction: the graph without the edges that a longer path implies.

    Raises ``graphlib.CycleError`` where packages import one another in a circle.
    """
    reachable: dict[str, set[str]] = {}
    for node in TopologicalSorter(graph).static_order():
        targets = graph.get(node, set())
        reachable[node] = targets.union(*(reachable[target] for target in targets))
    return {
        node: {target for target in targets if not any(target in reachable[other] for other in targets)}
        for node, targets in graph.items()
    }


def _modules() -> dict[str, Path]:
    """The hand-written modules of the product by the names under which they are imported from ``kerf_dra``."""
    paths = (path for package in _PRODUCT for path in sorted((ROOT / package).rglob("*.py")))
    names = {".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path for path in paths}
    return {name: path for name, path in names.items() if "._generated" not in name}


def _package(module: str) -> str:
    """The node that a module belongs to: ``cdi`` is one, and so is each module that ``api`` has beside its packages."""
    first, *rest = module.split(".")
    if first == "cdi" or not rest:
        return first
    if first == "api" and rest[0] != "model" and (ROOT / first / rest[0]).is_dir():
        return _WIRE
    return f"{first}.{rest[0]}"


def _imported(path: Path, modules: Mapping[str, Path]) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        match node:
            case ast.Import(names=names):
                yield from (alias.name.removeprefix(_IMPORT_PACKAGE) for alias in names)
            case ast.ImportFrom(module=str(source), names=names, level=0):
                for alias in names:
                    inner = f"{source}.{alias.name}".removeprefix(_IMPORT_PACKAGE)
                    yield inner if inner in modules else inner.rpartition(".")[0]


if __name__ == "__main__":
    for path in generate(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT):
        print(path)
