"""Generates the picture of the live terminal, and what ``kerf top --once`` prints, in ``docs/top.md``.

Textual exports the screen as SVG; what of it would be loaded from elsewhere, fonts, is removed.
"""

import os
import re
from pathlib import Path
from typing import Final
from unittest.mock import patch

import anyio

from kerf_dra.driver.cli.cluster.top_app import TopApp
from kerf_dra.driver.cli.cluster.top_state import FileSource, build_reading, explain_more
from kerf_dra.driver.diagnostics.cluster_state import ClusterState
from kerf_dra.driver.diagnostics.dump import encode_dump
from kerf_dra.driver.diagnostics.overview.cluster_overview import EVERYTHING
from tests.fakes.cluster_states import allocate_claims, claim, gpu_cluster, placed_pod, pod, replace, with_amounts
from tools.generate.page_block import ROOT, write_page
from tools.generate.pictures import fence, run_command

__all__ = ["PAGE", "ROOT", "generate"]

PAGE: Final = Path("docs/top.md")
SCREEN: Final = Path("docs/pictures/top.svg")
_SIZE: Final = (80, 24)
_COLORS: Final = ("NO_COLOR", "FORCE_COLOR", "COLORTERM")
"""Variables of the environment on which colors depend."""
_FONT: Final = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)
_NUMBER: Final = re.compile(r"terminal-\d+")
"""How Textual names elements: by a number that differs with its version."""


def generate(target: Path) -> list[Path]:
    """Write the page and the picture below ``target`` and return their paths relative to it."""
    now = two_nodes()
    (target / "top.json").write_bytes(encode_dump(now, compress=False))
    (target / SCREEN.parent).mkdir(parents=True, exist_ok=True)
    environment = {name: value for name, value in os.environ.items() if name not in _COLORS}
    with patch.dict(os.environ, environment | {"TERM": "xterm-256color"}, clear=True):
        (target / SCREEN).write_text(anyio.run(_draw_screen, now), encoding="utf-8")
    _, *printed = run_command("top", "--once", target / "top.json")
    text = fence(["$ kerf top --once", *printed])
    write_page(target, PAGE, "top", text, source=target if (target / PAGE).exists() else ROOT)
    (target / "top.json").unlink()
    return [PAGE, SCREEN]


def two_nodes() -> ClusterState:
    """Two nodes with two H100 each: small partitions, large ones, and a pod that waits for a whole card."""
    now = gpu_cluster(nodes=2, cards=2)
    now = allocate_claims(now, *(claim(f"web-{number}", "1g-10gb") for number in range(4)), on="node-1")
    now = allocate_claims(now, claim("notebook", "3g-40gb"), on="node-1")
    now = allocate_claims(now, claim("serving", "3g-40gb"), claim("tuning", "7g-80gb"), on="node-2")
    names = {
        each.metadata.name: "node-2" if each.metadata.name in ("serving", "tuning") else "node-1" for each in now.claims
    }
    created = [
        replace(each, metadata=replace(each.metadata, creation_timestamp=f"2026-11-21T0{number % 8}:15:30Z"))
        for number, each in enumerate(now.claims)
    ]
    waiting = claim("training", "whole", "whole")
    waiting = replace(waiting, metadata=replace(waiting.metadata, creation_timestamp="2026-11-21T07:56:00Z"))
    running = [placed_pod(name, name, on=node, phase="Running") for name, node in names.items()]
    now = replace(now, claims=(*created, waiting), pods=(*running, pod("training", "training")))
    return with_amounts(now, cpu="64", memory="512Gi", pods="110")


async def _draw_screen(now: ClusterState) -> str:
    app = TopApp(explain_more(build_reading(now, EVERYTHING), 9), FileSource(now))
    async with app.run_test(size=_SIZE) as pilot:
        await pilot.pause()
        svg = app.export_screenshot(title="kerf top")
    return _NUMBER.sub("terminal", _FONT.sub("", svg)) + "\n"
