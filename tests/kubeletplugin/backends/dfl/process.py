"""A node whose FPGA cards are the stand-in's, and a process that makes one call on it.

``python -m tests.kubeletplugin.backends.dfl.process ROOT prepare|unprepare``, with the stand-in's library in
LD_PRELOAD: the backend's own system calls go to it.
"""

import sys
from pathlib import Path

import anyio

from kerf_dra.driver.kubeletplugin.backends.dfl import DflBackend
from kerf_dra.driver.kubeletplugin.backends.dfl.config import DflConfig
from kerf_dra.driver.kubeletplugin.backends.dfl.driver_calls import SystemCalls
from tests.fakes.claims import claim, ref
from tests.fakes.cluster import FakeCluster
from tests.fakes.dfl import DflMachine
from tests.kubeletplugin.claim_fixture import plugin_core

CLAIM = claim("fpga", "fpga-0-aes-at-1")


def machine(root: Path) -> DflMachine:
    return DflMachine(root / "machine")


def hardware(root: Path, calls: SystemCalls | None = None) -> DflBackend:
    """A backend of the cards whose machine lies below ``root``, opened."""
    here = machine(root)
    config = DflConfig(
        description_folder=str(here.descriptions), image_folder=str(here.images), system_root=str(here.folder)
    )
    backend = DflBackend(config, calls=calls)
    backend.open()
    return backend


async def call(root: Path, operation: str, calls: SystemCalls | None = None) -> None:
    cluster = FakeCluster()
    cluster.add(CLAIM)
    backend = hardware(root, calls)
    try:
        async with plugin_core(root, cluster, other_backend=backend) as core:
            await (core.preparer.prepare(ref(CLAIM)) if operation == "prepare" else core.preparer.unprepare(ref(CLAIM)))
    finally:
        backend.close()


if __name__ == "__main__":
    anyio.run(call, Path(sys.argv[1]), sys.argv[2])
