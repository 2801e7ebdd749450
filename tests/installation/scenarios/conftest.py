"""The fixtures of ``tests/e2e``, with Kerf as pods in place of processes."""

from collections.abc import Mapping

import pytest

from tests.e2e.conftest import _all_parts_run, _why_is_known, idle_order, namespace, why_audit
from tests.e2e.node import NodeView
from tests.installation.kerf_pods import KerfPods
from tests.installation.release import NODE, Release
from tools.realcluster.cluster import Cluster

__all__ = ["_all_parts_run", "_why_is_known", "idle_order", "namespace", "why_audit"]


@pytest.fixture(scope="module")
async def kerf(release: Release, request: pytest.FixtureRequest) -> KerfPods:
    """Kerf, installed with the cards of the module's ``HARDWARE``."""
    kerf = KerfPods(release, request.module.HARDWARE)
    await kerf.install()
    return kerf


@pytest.fixture(scope="module")
def nodes(cluster: Cluster, kerf: KerfPods) -> Mapping[str, NodeView]:
    return {NODE: NodeView(cluster, kerf, NODE)}
