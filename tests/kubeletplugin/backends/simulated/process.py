"""A node with simulated hardware, and a process that makes one call on it: for crashes inside the hardware."""

import json
from pathlib import Path

import anyio

from kerf_dra.api.model.claims import ResourceClaim
from kerf_dra.driver.kubeletplugin.backends.simulated import SimulatedBackend, open_backend
from tests.fakes.claims import claim, config, ref
from tests.fakes.cluster import FakeCluster
from tests.kubeletplugin.claim_fixture import plugin_core

FUNCTION = {"apiVersion": "kerf.dev/v1alpha1", "kind": "FpgaConfig", "function": "aes-gcm"}
GPU_CLAIM = claim("gpu", "gpu-0-1g-10gb-at-0", "gpu-0-2g-20gb-at-2")
FPGA_CLAIM = claim("fpga", "fpga-0-slot-1", configs=[config(FUNCTION)])
STATE = "hardware"


def hardware(root: Path) -> SimulatedBackend:
    """The cards whose state lies below ``root``; they take no time."""
    file = root / "cards.yaml"
    cards = [{"kind": "gpu", "model": "h100-80gb-sxm"}, {"kind": "fpga", "shell": "quad"}]
    file.write_text(json.dumps({"state": STATE, "pace": 0, "cards": cards}))
    return open_backend(file)


async def call(root: Path, held: ResourceClaim, operation: str) -> None:
    cluster = FakeCluster()
    cluster.add(held)
    async with plugin_core(root, cluster, other_backend=hardware(root)) as core:
        await (core.preparer.prepare(ref(held)) if operation == "prepare" else core.preparer.unprepare(ref(held)))


def call_in_process(root: Path, held: ResourceClaim, operation: str) -> None:
    """What such a process does."""
    anyio.run(call, root, held, operation)
