"""Kubelet, API server, containerd and plugin end and start in every order, and nothing of 20 held claims changes.

``make e2e`` tries two of the 24 orders, ``make e2e-all`` all of them.
"""

import os
import secrets
from collections.abc import AsyncIterator, Mapping, Sequence
from itertools import permutations
from typing import Final

import pytest

from tests.e2e import pods
from tests.e2e.conftest import NODE
from tests.e2e.held_claims import list_slices, read_state, restart_ended
from tests.e2e.namespace import Namespace
from tests.e2e.node import NodeView
from tests.e2e.wait import eventually
from tests.e2e.why_audit import WhyAudit
from tools.realcluster.api import Api
from tools.realcluster.cluster import Cluster
from tools.realcluster.kerf import Hardware, Kerf

HARDWARE = Hardware(cards=[{"kind": "gpu", "model": "h100-80gb-sxm", "count": 3}], options={})
HELD: Final = [f"p{number}" for number in range(20)]
"""Pods with a partition each; the cards have room for one more."""
KUBELET, API_SERVER, CONTAINERD, PLUGIN = "kubelet", "apiserver", "containerd", "plugin"
ORDERS: Final = list(permutations((KUBELET, API_SERVER, CONTAINERD, PLUGIN)))
TRIED: Final = ORDERS if os.environ.get("KERF_E2E_ORDERS") == "all" else [ORDERS[0], ORDERS[-1]]
"""All take a quarter of an hour on an idle machine."""


@pytest.fixture(scope="module")
async def held(
    api: Api, cluster: Cluster, nodes: Mapping[str, NodeView], idle_order: Sequence[str], why_audit: WhyAudit
) -> AsyncIterator[Namespace]:
    """A namespace whose pods run with their partitions during all tests of this module."""
    namespace = Namespace(api, f"t{secrets.token_hex(3)}", nodes, why_audit)
    await namespace.open()
    small = await namespace.resource_class("small", device="gpu", profile="1g.10gb")
    await namespace.template("small", pods.exactly("gpu", small))
    await namespace.create_pods("small", *HELD)
    state = await read_state(cluster, namespace, HELD)
    assert (state.records, len(state.uuids), len(state.cdi)) == (len(HELD),) * 3
    yield namespace
    await namespace.close()


@pytest.mark.parametrize("order", TRIED, ids="-".join)
async def test_no_container_restarts_and_nothing_changes(
    order: Sequence[str], cluster: Cluster, kerf: Kerf, held: Namespace
) -> None:
    before, slices = await read_state(cluster, held, HELD), await list_slices(held)
    for number, part in enumerate(order):
        is_killed = (ORDERS.index(tuple(order)) + number) % 2 == 1
        await end(part, cluster, kerf, is_killed=is_killed)
    for part in order:
        await start(part, cluster, kerf)
    await cluster.wait_served()

    async def are_back() -> bool:
        """Whether the kubelet, which deletes all slices when it starts, has a plugin that has published them since."""
        await restart_ended(cluster, kerf, NODE)
        now = await list_slices(held)
        return len(now) == len(slices) and now.isdisjoint(slices)

    await eventually("the slices that the kubelet has deleted are back", are_back, but=lambda: list_slices(held))
    await kerf.wait_plugin_ready(NODE)
    assert await read_state(cluster, held, HELD) == before


async def end(part: str, cluster: Cluster, kerf: Kerf, *, is_killed: bool) -> None:
    if part == PLUGIN:
        await (kerf.crash_plugin if is_killed else kerf.stop_plugin)(NODE)
        return
    name = part if part == API_SERVER else f"{NODE}-{part}"
    await (cluster.processes.kill if is_killed else cluster.processes.stop)(name)


async def start(part: str, cluster: Cluster, kerf: Kerf) -> None:
    if part == PLUGIN:
        kerf.start_plugin_again(NODE)
    elif part == API_SERVER:
        cluster.start_part(part)
    elif part == CONTAINERD:
        await cluster.start_containerd(NODE)
    else:
        cluster.start_kubelet(NODE)


async def test_after_all_of_them_another_pod_gets_the_partition_that_is_left(held: Namespace) -> None:
    await held.create_pods("small", "another")
    await held.wait_running("another")
    assert len(held.node.gpu_partitions) == len(HELD) + 1
    await held.delete_pod("another")
