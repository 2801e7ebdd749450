"""A node whose FPGA dfx-mgrd's stand-in loads, and a process that makes one call on it.

``python -m tests.kubeletplugin.slots_machine ROOT SOCKET prepare|unprepare``
"""

import sys
from pathlib import Path

import anyio

from driver.kubeletplugin.backends.slots import SlotsBackend
from driver.kubeletplugin.backends.slots.config import SlotsConfig
from tests.fakes.claims import claim, ref
from tests.fakes.cluster import FakeCluster
from tests.fakes.dfx import DfxMachine
from tests.kubeletplugin.claim_fixture import plugin_core

CLAIM = claim("fpga", "fpga-0-aes-at-1")


def hardware(root: Path, socket: str) -> SlotsBackend:
    """A backend of the board that lies below ``root``, opened."""
    here = DfxMachine(root / "machine")
    config = SlotsConfig(
        socket=socket,
        firmware_folder=str(here.firmware),
        description_folder=str(here.descriptions),
        overlay_folder=str(here.overlays),
        system_root=str(here.folder),
    )
    backend = SlotsBackend(config)
    backend.open()
    return backend


async def call(root: Path, socket: str, operation: str) -> None:
    cluster = FakeCluster()
    cluster.add(CLAIM)
    backend = hardware(root, socket)
    try:
        async with plugin_core(root, cluster, other_backend=backend) as core:
            await (core.preparer.prepare(ref(CLAIM)) if operation == "prepare" else core.preparer.unprepare(ref(CLAIM)))
    finally:
        backend.close()


if __name__ == "__main__":
    anyio.run(call, Path(sys.argv[1]), sys.argv[2], sys.argv[3])
