"""A function is loaded before its pod is bound; where that fails, the pod goes to another node (KEP-5007)."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import uuid4

import anyio
from anyio.abc import TaskStatus

from kerf_dra.api.core.v1 import PODS, Container, ContainerClaim, Pod, PodResourceClaim, PodSpec, ResourceRequirements
from kerf_dra.api.model.claims import (
    CelSelector,
    DeviceClaim,
    DeviceClass,
    DeviceClassSpec,
    DeviceRequest,
    DeviceSelector,
    ExactDeviceRequest,
    ResourceClaim,
    ResourceClaimSpec,
)
from kerf_dra.api.model.metadata import ObjectMeta
from kerf_dra.api.resource.v1 import KINDS
from kerf_dra.driver.families.fpga import FPGA
from kerf_dra.driver.kube.http.client import Client
from kerf_dra.driver.kube.http.config import load_access
from kerf_dra.driver.kubeletplugin import app
from kerf_dra.driver.kubeletplugin.backends.registry import BackendChoice, choose_families
from kerf_dra.driver.kubeletplugin.backends.simulated import open_backend
from kerf_dra.driver.kubeletplugin.settings import ProcessSettings, Settings
from kerf_dra.driver.local.cluster import ClusterSettings, LocalCluster

LONGEST_S = 240.0
"""Of one test: each takes a few seconds on an idle machine."""
NODES = ("node-1", "node-2")
AES = 'device.driver == "fpga.kerf.dev" && device.attributes["fpga.kerf.dev"].function == "aes-gcm"'


@dataclass
class Site:
    """A cluster of two nodes with an FPGA each."""

    client: Client
    root: Path

    def hardware(self, node: str) -> Path:
        return self.root / f"{node}.json"

    def break_loads(self, node: str) -> None:
        """Make every load fail permanently from now on."""
        fault = {"step": "fpga-program", "times": None, "permanent": True, "reason": "CRC error"}
        (self.root / f"{node}-cards" / "faults.json").write_text(json.dumps({"faults": [fault]}))

    def loaded(self, node: str) -> list[str]:
        return [str(partition.function) for partition in open_backend(self.hardware(node)).partitions()]

    async def ask(self, name: str) -> None:
        """A pod with a claim for the function."""
        request = DeviceRequest(name="crypto", exactly=ExactDeviceRequest(device_class_name="aes"))
        spec = ResourceClaimSpec(devices=DeviceClaim(requests=(request,)))
        metadata = ObjectMeta(name=name, namespace="default")
        await self.client.create(KINDS.resource_claims, ResourceClaim(metadata=metadata, spec=spec))
        container = Container(
            name="main", image="none", resources=ResourceRequirements(claims=(ContainerClaim(name="crypto"),))
        )
        entry = PodResourceClaim(name="crypto", resource_claim_name=name)
        await self.client.create(
            PODS, Pod(metadata=metadata, spec=PodSpec(containers=(container,), resource_claims=(entry,)))
        )

    async def running(self, name: str) -> Pod:
        while (pod := await self.client.get(PODS, name, "default")).status.phase != "Running":  # noqa: ASYNC110
            await anyio.sleep(0.02)
        return pod

    async def claim(self, name: str) -> ResourceClaim:
        return await self.client.get(KINDS.resource_claims, name, "default")


@asynccontextmanager
async def site() -> AsyncIterator[Site]:
    with TemporaryDirectory(prefix="ke-", dir="/tmp") as directory, anyio.fail_after(LONGEST_S):
        root = Path(directory)
        (root / "c").mkdir()
        settings = ClusterSettings(root=root / "c", nodes=NODES)
        cluster = LocalCluster(settings, share_id=lambda: str(uuid4()), boot_id=lambda: "boot-1")
        async with anyio.create_task_group() as group:
            await group.start(_run, cluster)
            async with Client(await load_access(cluster.kubeconfig), user_agent="kerf-test/1") as client:
                place = Site(client, root)
                async with anyio.create_task_group() as plugins:
                    for node in NODES:
                        plugins.start_soon(partial(app.run, plugin(place, cluster, node)))
                    selector = DeviceSelector(cel=CelSelector(expression=AES))
                    offer = DeviceClass(metadata=ObjectMeta(name="aes"), spec=DeviceClassSpec(selectors=(selector,)))
                    await client.create(KINDS.device_classes, offer)
                    await conditional_devices(client)
                    yield place
                    plugins.cancel_scope.cancel()
            group.cancel_scope.cancel()


async def _run(cluster: LocalCluster, *, task_status: TaskStatus[None]) -> None:
    await cluster.run(task_status=task_status)


def plugin(place: Site, cluster: LocalCluster, node: str) -> ProcessSettings:
    cards = [{"kind": "fpga", "shell": "quad"}]
    document = {"state": f"{node}-cards", "pace": 0, "seed": node, "cards": cards}
    place.hardware(node).write_text(json.dumps(document))
    (choice,) = choose_families((FPGA.name,), [BackendChoice(name="simulated", config=place.hardware(node))])
    settings = Settings(
        node_name=node,
        family=choice.family,
        backends=choice.backends,
        kubelet_root=cluster.kubelet_root(node),
        device_plugins_dir=cluster.device_plugins_dir(node),
        cdi_dir=cluster.cdi_dir(node),
        publish_min_interval_s=0.05,
        early_load_s=0,
    )
    return ProcessSettings(
        node_name=node, plugins=(settings,), kubeconfig=cluster.kubeconfig, probes_address="127.0.0.1:0"
    )


async def conditional_devices(client: Client) -> None:
    """Both nodes publish their functions with conditions."""
    while True:
        slices = (await client.list(KINDS.resource_slices)).items
        if {one.spec.node_name for one in slices if any(device.binding_conditions for device in one.spec.devices)} == {
            *NODES
        }:
            return
        await anyio.sleep(0.02)


async def test_the_function_is_loaded_before_the_pod_is_bound() -> None:
    async with site() as place:
        await place.ask("crypto")
        pod = await place.running("crypto")
        assert pod.spec.node_name == "node-1"
        (device,) = (await place.claim("crypto")).status.devices
        assert {one.type: one.status for one in device.conditions} == {
            "fpga.kerf.dev/Loaded": "True",
            "fpga.kerf.dev/LoadFailed": "False",
            "Ready": "True",
            "Simulated": "True",
        }
        assert device.data is not None
        assert device.data["function"] == "aes-gcm"
        assert place.loaded("node-1") == ["aes-gcm"]


async def test_a_load_that_fails_sends_the_pod_to_the_other_node() -> None:
    async with site() as place:
        place.break_loads("node-1")
        await place.ask("crypto")
        pod = await place.running("crypto")
        assert pod.spec.node_name == "node-2"
        assert (place.loaded("node-1"), place.loaded("node-2")) == ([], ["aes-gcm"])


async def test_a_pod_that_goes_while_its_function_is_loaded_leaves_nothing() -> None:
    async with site() as place:
        await place.ask("crypto")
        await place.client.delete(PODS, "crypto", "default")
        while place.loaded("node-1") or (await place.claim("crypto")).status.allocation is not None:  # noqa: ASYNC110
            await anyio.sleep(0.02)
