"""A plugin may write the inventory of its own node only, by the permissions of ``deploy/classic``."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.e2e.classic.dialects import DRIVER, KERF
from tests.e2e.classic.namespace import ClassicNamespace
from tools.realcluster.api import Api, Document, StatusError
from tools.realcluster.cluster import Cluster
from tools.realcluster.kerf import PLUGIN, Kerf


@pytest.fixture
async def plugin(namespace: ClassicNamespace, cluster: Cluster, kerf: Kerf) -> AsyncIterator[Api]:
    """A client with the permissions of the plugin on the test's node."""
    token = await kerf.token(PLUGIN, await kerf.plugin_pod(namespace.node.name))
    async with Api(cluster.write_kubeconfig("plugin", {"token": token})) as api:
        yield api


async def refused(call: Any) -> str:
    with pytest.raises(StatusError) as info:
        await call
    assert info.value.code == 403
    return info.value.message


async def test_a_plugin_tells_of_its_own_node_and_changes_no_claim(namespace: ClassicNamespace, plugin: Api) -> None:
    #
    own = namespace.node.name
    label = {"metadata": {"labels": {"told": "again"}}}
    await plugin.patch(KERF, "NodeInventory", f"{own}-{DRIVER}", label)
    stolen: Document = {"apiVersion": KERF, "kind": "NodeInventory", "metadata": {"name": f"bare1-{DRIVER}"}}
    message = f'the kubelet plugin of node "{own}" may not write the NodeInventory of node "bare1"'
    assert message in await refused(plugin.create({**stolen, "spec": {"driver": DRIVER, "node": "bare1"}}))
    message = f'the NodeInventory of driver "{DRIVER}" on node "{own}" has the name "{own}-{DRIVER}"'
    assert message in await refused(plugin.create({**stolen, "spec": {"driver": DRIVER, "node": own}}))

    await namespace.claim("one", "gpu-small")
    assert "cannot patch" in await refused(
        plugin.patch(namespace.resource, "ResourceClaim", "one", label, namespace.name)
    )
    assert "cannot create" in await refused(plugin.create({**stolen, "kind": "GpuClassParameters", "spec": {}}))
