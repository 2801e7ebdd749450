"""From the API server to an open page: an object that changes, and an API server that goes away and comes back."""

from http import HTTPStatus
from pathlib import Path

import anyio
import yaml
from msgspec.structs import replace

from kerf_dra.api.core.v1 import NODES
from kerf_dra.api.model.claims import DeviceClaimConfiguration, OpaqueDeviceConfiguration
from kerf_dra.api.resource.v1 import KINDS
from kerf_dra.driver.allocation import Budget
from kerf_dra.driver.kube.http.client import Client
from kerf_dra.driver.kube.http.config import load_access
from kerf_dra.driver.local.apiserver import ApiServer
from kerf_dra.driver.local.apiserver.faults import InjectedFault
from kerf_dra.driver.view.server import ViewServer
from kerf_dra.driver.view.snapshot_reader import ClusterReader, SnapshotReader
from kerf_dra.driver.view.snapshots import Snapshots
from tests.fakes.cluster_states import claim, node, slices
from tests.view.test_server import IN_TIME_S, TOKEN, Server, watch

EVERY_S = 0.05
"""Between two reads: the test waits for what an open page is sent."""


async def test_an_open_page_follows_the_cluster_through_an_outage(tmp_path: Path) -> None:
    api = ApiServer()
    with anyio.fail_after(IN_TIME_S):
        async with anyio.create_task_group() as tasks:
            await tasks.start(api.serve)
            kubeconfig = tmp_path / "kubeconfig"
            kubeconfig.write_text(yaml.safe_dump(api.kubeconfig()))
            async with Client(await load_access(kubeconfig), user_agent="kerf-test/1") as client:
                cluster = ClusterReader(client, "default")
                snapshots = Snapshots(await cluster.read(), Budget(), "Live")
                reader = SnapshotReader(cluster, EVERY_S)
                view = ViewServer(snapshots, TOKEN, reader)
                server = Server(view, snapshots, await tasks.start(view.serve, 0))
                tasks.start_soon(reader.follow, snapshots)
                async with watch(server) as events:
                    assert "Live" in (await events.next())[1]
                    assert "No node" in (await events.next())[1]
                    assert reader.watchers == 1
                    await client.create(NODES, node("node-1"))
                    assert "node-1" in (await events.next())[1]
                    for each in slices("node-1"):
                        await client.create(KINDS.resource_slices, each)
                    while "gpu-0" not in str(await events.next()):
                        pass
                    api.faults.add(InjectedFault(code=HTTPStatus.FORBIDDEN), verb="list", resource="nodes")
                    assert "Not current since" in (await events.next())[1]
                    assert "Live" in (await events.next())[1]
            tasks.cancel_scope.cancel()


async def test_a_snapshot_has_no_parameters_of_claims_as_no_command_has(tmp_path: Path) -> None:
    """They may be secrets; every other command drops them as soon as it has read a cluster."""
    opaque = OpaqueDeviceConfiguration(driver="gpu.example.com", parameters={"password": "canary"})
    made = claim("secretive", "gpu")
    devices = replace(made.spec.devices, config=(DeviceClaimConfiguration(opaque=opaque),))
    api = ApiServer()
    with anyio.fail_after(IN_TIME_S):
        async with anyio.create_task_group() as tasks:
            await tasks.start(api.serve)
            kubeconfig = tmp_path / "kubeconfig"
            kubeconfig.write_text(yaml.safe_dump(api.kubeconfig()))
            async with Client(await load_access(kubeconfig), user_agent="kerf-test/1") as client:
                await client.create(KINDS.resource_claims, replace(made, spec=replace(made.spec, devices=devices)))
                state = await ClusterReader(client, "default").read()
            tasks.cancel_scope.cancel()
    assert [one.metadata.name for one in state.claims] == ["secretive"]
    assert "canary" not in repr(state)
