"""A plugin that is started for one call: what a process does that is killed in it, and what the next one does."""

from contextlib import closing
from pathlib import Path

from kerf_dra.api.model.claims import ResourceClaim
from kerf_dra.driver.kubeletplugin.backends.base import Backend
from tests.fakes.claims import ref
from tests.fakes.cluster import FakeCluster
from tests.kubeletplugin.claim_fixture import plugin_core


async def call_plugin(root: Path, held: ResourceClaim, operation: str, backend: Backend) -> None:
    """Prepare or unprepare a claim with an opened backend, which is closed at the end."""
    cluster = FakeCluster()
    cluster.add(held)
    with closing(backend):
        async with plugin_core(root, cluster, other_backend=backend) as core:
            await (
                core.preparer.prepare_claim(ref(held))
                if operation == "prepare"
                else core.preparer.unprepare_claim(ref(held))
            )


async def collect_garbage(root: Path, backend: Backend) -> None:
    """Collect what the records have, in a cluster without claims; the opened backend is closed at the end."""
    with closing(backend):
        async with plugin_core(root, FakeCluster(), other_backend=backend) as core:
            await core.garbage_collector.collect(set(core.checkpoint.records))
