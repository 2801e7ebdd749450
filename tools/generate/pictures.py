"""Generates pictures of cards and reports: in ``docs/concepts.md``, ``README.md`` and ``docs/examples/full-card``.

Cards are drawn from ResourceSlices as the plugin compiles them, with claims that the allocator has placed. A test
generates the pages into another folder and compares.
"""

import contextlib
import io
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple
from unittest.mock import patch

from kerf_dra.api.model.devices import Device
from kerf_dra.driver.cli import main
from kerf_dra.driver.diagnostics.cluster_state import ClusterState
from kerf_dra.driver.diagnostics.dump import encode_dump
from tests.fakes.cluster_states import allocate_claims, claim, gpu_cluster, pod, replace, with_amounts
from tools.generate.page_block import ROOT, write_page

__all__ = ["EXAMPLE", "PAGES", "ROOT", "generate"]

CONCEPTS: Final = Path("docs/concepts.md")
EXAMPLE: Final = Path("docs/examples/full-card/README.md")
DUMP: Final = EXAMPLE.parent / "cluster.json"
FRONT: Final = Path("README.md")
PAGES: Final = (CONCEPTS, EXAMPLE, FRONT)

_CELL: Final = 8
"""Characters of a memory slice: the names of the smallest profiles, and a bar."""
_COLUMNS: Final = "100"
_UNIT: Final = "memory-slice-"


class Part(NamedTuple):
    """A device on its units."""

    start: int
    size: int
    label: str


def generate(target: Path) -> list[Path]:
    """Write the pages and the dump below ``target`` and return their paths relative to it."""
    seven = _draw_claims(allocate_claims(gpu_cluster(), *(claim(f"web-{n}", "1g-10gb") for n in range(7))))
    two = _draw_claims(allocate_claims(gpu_cluster(), claim("trainer", "4g-40gb"), claim("serving", "3g-40gb")))
    cut = _fence([*seven, "", "the same card, once these pods have ended:", "", *two])
    (target / DUMP.parent).mkdir(parents=True, exist_ok=True)
    (target / DUMP).write_bytes(encode_dump(full_card(), compress=False))
    why = _fence(_run("why", "pod/trainer", target / DUMP))
    for page, name, content in (
        (CONCEPTS, "placements", _fence(_draw_placements())),
        (CONCEPTS, "cuts", cut),
        (FRONT, "cuts", cut),
        (FRONT, "why", why),
        (EXAMPLE, "card", _fence(_draw_claims(full_card()))),
        (EXAMPLE, "why", why),
        (EXAMPLE, "frag", _fence(_run("frag", target / DUMP))),
    ):
        write_page(target, page, name, content, source=target if (target / page).exists() else ROOT)
    return [*PAGES, DUMP]


def full_card() -> ClusterState:
    """A node whose card has three small partitions and a large one, and a pod that waits for another large one."""
    held = (*(claim(f"web-{number}", "1g-10gb") for number in range(3)), claim("notebook", "3g-40gb"))
    now = allocate_claims(gpu_cluster(), *held)
    waiting = claim("trainer", "4g-40gb")
    now = replace(now, claims=(*now.claims, waiting), pods=(pod("trainer", "trainer"),))
    return with_amounts(now, cpu="64", memory="512Gi", pods="110")


def _run(*arguments: str | Path) -> list[str]:
    """What ``kerf`` prints about the dump, which is the last of ``arguments``."""
    *command, dump = map(str, arguments)
    output = io.StringIO()
    with patch.dict(os.environ, {"COLUMNS": _COLUMNS}), contextlib.redirect_stdout(output):
        main([*command, "--from", dump])
    return [f"$ kerf {' '.join(command)} --from {DUMP.name}", *output.getvalue().splitlines()]


def _fence(lines: Iterable[str]) -> str:
    return "\n".join(("```text", *(line.rstrip() for line in lines), "```"))


def _draw_placements() -> Iterator[str]:
    """Every placement of each profile of a card, one row for those that do not overlap."""
    yield from _draw_head()
    profiles: dict[str, list[Part]] = {}
    for device in _devices(gpu_cluster()):
        if (profile := _profile(device)) and "+" not in profile:  # 1g.10gb+me has the placements of 1g.10gb
            profiles.setdefault(profile, []).append(_part(device, profile))
    for parts in profiles.values():
        rows: list[list[Part]] = []
        for part in sorted(parts):
            for row in rows:
                if row[-1].start + row[-1].size <= part.start:
                    row.append(part)
                    break
            else:
                rows.append([part])
        yield from map(_draw_row, rows)


def _draw_claims(now: ClusterState) -> Iterator[str]:
    """The card with the claims that have its partitions, their profiles above their names."""
    devices = {device.name: device for device in _devices(now)}
    having = [
        (devices[result.device], each.metadata.name)
        for each in now.claims
        if each.status.allocation is not None
        for result in each.status.allocation.devices.results
    ]
    yield from _draw_head()
    yield _draw_row([_part(device, _profile(device)) for device, _ in having], empty="free")
    yield _draw_row([_part(device, name) for device, name in having])


def _draw_head() -> Iterator[str]:
    yield "".join(f" slice {number}".ljust(_CELL) for number in range(_count_units()))


def _draw_row(parts: Sequence[Part], empty: str = "") -> str:
    cells = ["|"]
    at = 0
    for part in sorted(parts):
        cells += [_cell(empty, 1) for _ in range(part.start - at)]
        cells.append(_cell(part.label, part.size))
        at = part.start + part.size
    return "".join((*cells, *(_cell(empty, 1) for _ in range(_count_units() - at))))


def _cell(label: str, size: int) -> str:
    return f"{label:^{size * _CELL - 1}}|"


def _part(device: Device, label: str) -> Part:
    units = _units(device)
    return Part(start=min(units), size=len(units), label=label)


def _devices(now: ClusterState) -> Iterator[Device]:
    return (device for each in now.slices for device in each.spec.devices)


def _count_units() -> int:
    return max(max(_units(device), default=0) for device in _devices(gpu_cluster())) + 1


def _units(device: Device) -> list[int]:
    """The memory slices that a device consumes, by its counters."""
    names = (name for each in device.consumes_counters for name in each.counters)
    return sorted(int(name.removeprefix(_UNIT)) for name in names if name.startswith(_UNIT))


def _profile(device: Device) -> str:
    return str(device.attributes["profile"].value)
