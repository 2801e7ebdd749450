"""A node whose FPGA cards are stand-ins of Alveo cards, and a process that makes one call on it.

``python -m tests.kubeletplugin.backends.xrt.process ROOT prepare|unprepare``: the process loads the stand-in's libxrt.
"""

import sys
from pathlib import Path

import anyio

from kerf_dra.driver.kubeletplugin.backends.xrt import XrtBackend
from tests.fakes.claims import claim, ref
from tests.fakes.cluster import FakeCluster
from tests.fakes.xrt import XrtMachine
from tests.kubeletplugin.backends.xrt.machine import build_config
from tests.kubeletplugin.claim_fixture import plugin_core

CLAIM = claim("fpga", "fpga-0-aes-at-0")


def machine(root: Path) -> XrtMachine:
    return XrtMachine(root / "machine")


def hardware(root: Path) -> XrtBackend:
    """A backend of the cards whose machine lies below ``root``, opened."""
    backend = XrtBackend(build_config(machine(root)))
    backend.open()
    return backend


async def call(root: Path, operation: str) -> None:
    cluster = FakeCluster()
    cluster.add(CLAIM)
    backend = hardware(root)
    try:
        async with plugin_core(root, cluster, other_backend=backend) as core:
            await (core.preparer.prepare(ref(CLAIM)) if operation == "prepare" else core.preparer.unprepare(ref(CLAIM)))
    finally:
        backend.close()


if __name__ == "__main__":
    anyio.run(call, Path(sys.argv[1]), sys.argv[2])
