"""A node whose NVIDIA cards are the stand-in's, and a process that makes one call on it."""

from contextlib import closing
from pathlib import Path

import anyio

from kerf_dra.api.model.claims import ResourceClaim
from kerf_dra.driver.testing.nvml import NvidiaMachine
from kerf_dra.driver.testing.nvml.demonstration import StandInBackend, open_backend
from tests.fakes.claims import claim, ref
from tests.fakes.cluster import FakeCluster
from tests.kubeletplugin.claim_fixture import plugin_core

CLAIM = claim("gpu", "gpu-0-1g-20gb-at-0", "gpu-0-3g-40gb-at-4")


def hardware(root: Path) -> StandInBackend:
    """A backend of the cards whose machine lies below ``root``, opened."""
    file = root / "cards.yaml"
    file.write_text("cards: [{model: h100-80gb-sxm}]\n")
    backend = open_backend(file)
    backend.open()
    return backend


def machine(root: Path) -> NvidiaMachine:
    return NvidiaMachine(root / "machine")


async def call(root: Path, operation: str) -> None:
    await call_with(root, operation, CLAIM, hardware(root))


async def call_with(root: Path, operation: str, held: ResourceClaim, backend: StandInBackend) -> None:
    """Prepare or unprepare a claim with an opened backend, which is closed at the end."""
    cluster = FakeCluster()
    cluster.add(held)
    with closing(backend):
        async with plugin_core(root, cluster, other_backend=backend) as core:
            await (core.preparer.prepare(ref(held)) if operation == "prepare" else core.preparer.unprepare(ref(held)))


def call_in_process(root: Path, operation: str) -> None:
    """What a process does that makes one call."""
    anyio.run(call, root, operation)
