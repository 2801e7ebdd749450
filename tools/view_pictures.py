"""Takes the pictures of docs/view.md: pages of ``kerf view`` over a small cluster, in Chromium.

``python -m tools.view_pictures`` writes them in place. Nothing compares them: fonts differ from machine to machine. It
needs what ``make view-test`` installs.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import anyio.from_thread
from playwright.sync_api import Browser, sync_playwright

from kerf_dra.driver.allocation import Budget
from kerf_dra.driver.diagnostics.cluster_state import ClusterState
from kerf_dra.driver.view.server import ViewServer
from kerf_dra.driver.view.snapshots import Snapshots
from tests.fakes.cluster_states import allocate_claims, claim, gpu_cluster, placed_pod, pod, replace
from tools.browser import find_chromium

ROOT: Final = Path(__file__).parents[1]
PICTURES: Final = ROOT / "docs/pictures"
_PAGES: Final[tuple[tuple[str, str, int, int, Any], ...]] = (
    ("view-cluster.png", "/", 800, 700, "light"),
    ("view-pod.png", "/pod?namespace=default&name=trainer", 800, 700, "light"),
    ("view-phone.png", "/node?name=node-1", 360, 640, "dark"),
)
"""File, address, width, height and colors."""
_MOST_BYTES: Final = 100_000
"""The most bytes of one picture, which each clone of the repository downloads."""


def build_example() -> ClusterState:
    """Return two nodes of two cards, of which a waiting pod would need one."""
    sizes = {"notebook": "3g-40gb", "web-0": "1g-10gb", "web-1": "1g-10gb", "finetune": "2g-20gb", "batch": "4g-40gb"}
    now = allocate_claims(gpu_cluster(2, 2), *(claim(name, size) for name, size in sizes.items()), on="node-1")
    now = allocate_claims(now, claim("llm", "whole"), claim("eval", "1g-10gb"), on="node-2")
    running = [placed_pod(each.metadata.name, each.metadata.name, phase="Running") for each in now.claims]
    waiting = claim("trainer", "whole")
    return replace(now, claims=(*now.claims, waiting), pods=(*running, pod("trainer", "trainer")))


@contextmanager
def serve() -> Iterator[str]:
    """Serve the cluster; the value is the address with the token."""
    server = ViewServer(Snapshots(build_example(), Budget(), "Live from https://cluster.example"), "token")
    with anyio.from_thread.start_blocking_portal() as portal:
        task, _ = portal.start_task(server.serve, 0)
        yield server.address
        task.cancel()


def take(browser: Browser, address: str) -> None:
    for name, page, width, height, scheme in _PAGES:
        context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
        opened = context.new_page()
        opened.goto(address)
        opened.goto(address.partition("/?")[0] + page)
        opened.screenshot(path=PICTURES / name)
        context.close()
        size = (PICTURES / name).stat().st_size
        print(f"docs/pictures/{name}: {size} bytes")
        if size > _MOST_BYTES:
            raise ValueError(f"{name} has more than {_MOST_BYTES} bytes")


def main() -> int:
    with serve() as address, sync_playwright() as program:
        browser = program.chromium.launch(executable_path=find_chromium(), args=["--no-sandbox"])
        take(browser, address)
        browser.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
