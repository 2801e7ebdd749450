"""A node whose FPGA dfx-mgrd's stand-in loads; ``call_in_process`` is what a process does that makes one call on it."""

from functools import partial
from pathlib import Path
from typing import Final

import anyio

from kerf_dra.driver.kubeletplugin.backends.slots import SlotsBackend
from kerf_dra.driver.kubeletplugin.backends.slots.config import SlotsConfig
from tests.fakes.claims import claim, ref
from tests.fakes.cluster import FakeCluster
from tests.fakes.dfx import DfxMachine
from tests.kubeletplugin.claim_fixture import plugin_core

DEVICE: Final = "fpga-0-aes-at-1"


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


async def call(root: Path, socket: str, operation: str, device: str = DEVICE) -> None:
    cluster = FakeCluster()
    allocated = claim(device, device)
    cluster.add(allocated)
    backend = hardware(root, socket)
    try:
        async with plugin_core(root, cluster, other_backend=backend) as core:
            change = core.preparer.prepare if operation == "prepare" else core.preparer.unprepare
            await change(ref(allocated))
    finally:
        backend.close()


def call_in_process(root: Path, socket: str, operation: str, device: str) -> None:
    anyio.run(partial(call, root, socket, operation, device))
