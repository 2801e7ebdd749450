"""Generates what ``kerf plan`` says of the examples in ``deploy/examples`` into their pages.

The cluster is one node with an H100 and an FPGA, with ResourceSlices as the plugin compiles them. A test generates the
pages into another folder and compares.
"""

import contextlib
import io
import os
import tempfile
from itertools import takewhile
from pathlib import Path
from typing import Final
from unittest.mock import patch

from kerf_dra.driver.cli import main
from kerf_dra.driver.diagnostics.cluster_state import ClusterState
from kerf_dra.driver.diagnostics.dump import encode_dump
from tests.fakes.cluster_states import node, state
from tests.fakes.published_slices import fpgas, gpus, slices
from tools.generate.page_block import ROOT, write_page

__all__ = ["FOLDERS", "ROOT", "generate"]

_EXAMPLES: Final = Path("deploy/examples")
_OTHERS: Final = frozenset(
    {"classic", "device-plugin", "discovered-cameras", "intel-fractions", "quota", "resource-classes"}
)
"""For other releases or cards, for what nodes list or find once they run, for Kueue, and without pods: they have tests
of their own."""
FOLDERS: Final = tuple(
    sorted(folder.relative_to(ROOT) for folder in (ROOT / _EXAMPLES).iterdir() if folder.name not in _OTHERS)
)
"""The examples with pods; each folder has a page."""
_NOT_PLANNED: Final = frozenset({"gpu-in-shares"})
"""Shares of cards are published once a class asks for them: before, no pod fits."""
_COLUMNS: Final = "100"


def generate(target: Path) -> list[Path]:
    """Write the pages with the present plans below ``target`` and return their paths relative to it."""
    return [
        page
        for folder in FOLDERS
        if folder.name not in _NOT_PLANNED
        for page in write_page(target, folder / "README.md", "plan", _plan(folder))
    ]


def one_node() -> ClusterState:
    """A node with an H100 and an FPGA of four slots, without claims."""
    published = [*slices("node-1", gpus("h100-80gb-sxm")), *slices("node-1", fpgas("quad"))]
    return state(node("node-1"), published=published)


def _plan(folder: Path) -> str:
    """What is placed where: the report up to its first empty line."""
    output = io.StringIO()
    with (
        tempfile.NamedTemporaryFile(suffix=".json") as dump,
        patch.dict(os.environ, {"COLUMNS": _COLUMNS}),
        contextlib.redirect_stdout(output),
    ):
        Path(dump.name).write_bytes(encode_dump(one_node(), compress=False))
        code = main(["plan", "-f", str(ROOT / folder), "--from", dump.name])
    assert code == 0, f"{folder} does not fit: {output.getvalue()}"
    lines = takewhile(bool, output.getvalue().splitlines())
    return "\n".join(("```text", f"$ kerf plan -f {folder}", *lines, "```"))
