"""Generates the pictures of cards in ``docs/pictures``, and reports in ``README.md`` and ``docs/examples/full-card``.

Cards are drawn from ResourceSlices as the plugin compiles them, with claims that the allocator has placed. A test
generates the pages into another folder and compares.
"""

import contextlib
import io
import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final
from unittest.mock import patch

from kerf_dra.api.model.devices import ResourceSlice
from kerf_dra.api.model.names import DeviceId
from kerf_dra.driver.cli import main
from kerf_dra.driver.diagnostics.cluster_state import ClusterState
from kerf_dra.driver.diagnostics.dump import encode_dump
from kerf_dra.driver.partitions.card_pictures.card_picture import FREE_UNIT, CardPicture, Unit, UnitRow
from kerf_dra.driver.partitions.card_pictures.picture_builder import build_card_pictures, find_holders
from kerf_dra.driver.partitions.card_pictures.svg_picture import draw_svg
from tests.fakes import cluster_states
from tests.fakes.cluster_states import allocate_claims, claim, gpu_cluster, pod, with_amounts
from tools.generate.page_block import ROOT, write_page

__all__ = ["EXAMPLE", "PAGES", "ROOT", "generate"]

EXAMPLE: Final = Path("docs/examples/full-card/README.md")
DUMP: Final = EXAMPLE.parent / "cluster.json"
FRONT: Final = Path("README.md")
PAGES: Final = (EXAMPLE, FRONT)
PLACEMENTS: Final = Path("docs/pictures/placements.svg")
CUTS: Final = Path("docs/pictures/one-card-two-cuts.svg")
CARD: Final = Path("docs/pictures/full-card.svg")

_COLUMNS: Final = "100"
_PODS: Final = ("notebook", "trainer", "serving", *(f"web-{number}" for number in range(7)))
_NAMES: Final = {f"default/{name}": name for name in _PODS}
"""What claims are called in pictures, all of one namespace."""


def generate(target: Path) -> list[Path]:
    """Write the pages, the pictures and the dump below ``target`` and return their paths relative to it."""
    seven = allocate_claims(gpu_cluster(), *(claim(f"web-{n}", "1g-10gb") for n in range(7)))
    two = allocate_claims(gpu_cluster(), claim("trainer", "4g-40gb"), claim("serving", "3g-40gb"))
    pictures = {
        PLACEMENTS: draw_svg(
            [_draw_placements()],
            "Every placement of each profile of an H100 with 80 GB",
            captions=("the memory slices of an H100 with 80 GB",),
            has_states=False,
        ),
        CUTS: draw_svg(
            [*_draw_claims(seven), *_draw_claims(two)],
            "One H100, with seven pods, and then with two",
            captions=("the memory slices of an H100, with seven pods", "the same card, once these pods have ended"),
            labels=_NAMES,
        ),
        CARD: draw_svg([*_draw_claims(full_card())], "An H100 with four claims", labels=_NAMES),
    }
    (target / DUMP.parent).mkdir(parents=True, exist_ok=True)
    (target / DUMP).write_bytes(encode_dump(full_card(), compress=False))
    for path, picture in pictures.items():
        (target / path).parent.mkdir(parents=True, exist_ok=True)
        (target / path).write_text(picture, encoding="utf-8")
    why = fence(run_command("why", "pod/trainer", target / DUMP))
    for page, name, content in (
        (FRONT, "why", why),
        (EXAMPLE, "why", why),
        (EXAMPLE, "frag", fence(run_command("frag", target / DUMP))),
    ):
        write_page(target, page, name, content, source=target if (target / page).exists() else ROOT)
    return [*PAGES, *pictures, DUMP]


def full_card() -> ClusterState:
    """A node whose card has three small partitions and a large one, and a pod that waits for another large one."""
    held = (*(claim(f"web-{number}", "1g-10gb") for number in range(3)), claim("notebook", "3g-40gb"))
    now = allocate_claims(gpu_cluster(), *held)
    waiting = claim("trainer", "4g-40gb")
    now = cluster_states.replace(now, claims=(*now.claims, waiting), pods=(pod("trainer", "trainer"),))
    return with_amounts(now, cpu="64", memory="512Gi", pods="110")


def run_command(*arguments: str | Path) -> list[str]:
    """What ``kerf`` prints about the dump, which is the last of ``arguments``."""
    *command, dump = map(str, arguments)
    output = io.StringIO()
    with patch.dict(os.environ, {"COLUMNS": _COLUMNS}), contextlib.redirect_stdout(output):
        main([*command, "--from", dump])
    return [f"$ kerf {' '.join(command)} --from {DUMP.name}", *output.getvalue().splitlines()]


def fence(lines: Iterable[str]) -> str:
    return "\n".join(("```text", *(line.rstrip() for line in lines), "```"))


def _draw_claims(now: ClusterState) -> list[CardPicture]:
    """The cards with the claims that have their partitions, without the counters that are no units."""
    return [replace(each, gauges=()) for each in build_card_pictures(now.slices, find_holders(now.claims))]


def _draw_placements() -> CardPicture:
    """Every placement of each profile of a card, one row for those that do not overlap."""
    published = gpu_cluster().slices
    [empty] = _draw_claims(gpu_cluster())
    [none] = empty.rows
    rows: list[UnitRow] = []
    for profile, devices in _list_devices(published).items():
        found = [build_card_pictures(published, {id_: (profile,)}) for id_ in devices]
        placements = [picture.rows[0].units for pictures in found for picture in pictures]
        rows += (replace(none, units=units) for units in _merge(placements))
    return replace(empty, rows=tuple(rows), gauges=())


def _list_devices(published: Iterable[ResourceSlice]) -> dict[str, list[DeviceId]]:
    """The devices of each profile, but for 1g.10gb+me, which has the placements of 1g.10gb."""
    found: dict[str, list[DeviceId]] = {}
    for slice_ in published:
        for device in slice_.spec.devices:
            profile = str(device.attributes["profile"].value)
            if profile and "+" not in profile:
                found.setdefault(profile, []).append(DeviceId(slice_.spec.driver, slice_.spec.pool.name, device.name))
    return found


def _merge(placements: Iterable[Sequence[Unit]]) -> list[tuple[Unit, ...]]:
    """Put placements that do not overlap into one row; the first ones come first."""
    rows: list[list[Unit]] = []
    for units in sorted(placements, key=lambda units: [not unit.holders for unit in units]):
        covered = [index for index, unit in enumerate(units) if unit.holders]
        row = next((row for row in rows if not any(row[index].holders for index in covered)), None)
        if row is None:
            rows.append(row := [FREE_UNIT] * len(units))
        for index in covered:
            row[index] = units[index]
    return [tuple(row) for row in rows]
