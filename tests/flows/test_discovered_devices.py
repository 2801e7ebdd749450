"""Discovered devices from their objects to the containers, on the embedded cluster: controller, scheduler and plugins.

The scenarios are those of Akri's pull request 565 (configuration-level resources) and of its end-to-end tests.
"""

import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import uuid4

import anyio
from anyio.abc import TaskStatus

from kerf_dra.api.core.v1 import PODS, Container, ContainerClaim, Pod, PodResourceClaim, PodSpec, ResourceRequirements
from kerf_dra.api.kerf.discovery_objects import (
    DISCOVERED_DEVICES,
    DISCOVERY_CONFIGURATIONS,
    DiscoveredDeviceObject,
    DiscoveryConfigurationObject,
    device_name,
)
from kerf_dra.api.model.claims import (
    DeviceClaim,
    DeviceConstraint,
    DeviceRequest,
    ExactDeviceRequest,
    ResourceClaim,
    ResourceClaimSpec,
)
from kerf_dra.api.model.metadata import ObjectMeta
from kerf_dra.api.model.names import ObjectRef
from kerf_dra.api.podresources.v1 import ClaimUse
from kerf_dra.api.resource.v1 import KINDS
from kerf_dra.driver.controller.app import run as run_controller
from kerf_dra.driver.controller.settings import Settings as ControllerSettings
from kerf_dra.driver.families.shared import SHARED
from kerf_dra.driver.families.shared.node_labels import make_labels
from kerf_dra.driver.kube.http.client import Client, PatchType
from kerf_dra.driver.kube.http.config import load_access
from kerf_dra.driver.kube.leader_election import LeaseSettings
from kerf_dra.driver.kubeletplugin import app
from kerf_dra.driver.kubeletplugin.backends.registry import BackendChoice
from kerf_dra.driver.kubeletplugin.settings import ProcessSettings, Settings
from kerf_dra.driver.local.cluster import ClusterSettings, LocalCluster
from tools.generate import crds

LONGEST_S = 240.0
"""Of one test: each takes a few seconds on an idle machine."""
NODE_NAMES = ("node-1", "node-2", "node-3")
ANY = "cameras.shared.kerf.dev"


@dataclass
class Site:
    """A cluster of three nodes."""

    client: Client
    local: LocalCluster

    async def configure(self, **spec: Any) -> None:
        """Add the configuration ``cameras``."""
        value = DiscoveryConfigurationObject(
            metadata=ObjectMeta(name="cameras"), spec={"discoveryHandler": {"name": "debugEcho"}, **spec}
        )
        await self.client.create(DISCOVERY_CONFIGURATIONS, value)

    async def find(self, device_id: str, *nodes: str, **spec: Any) -> str:
        """Add a device that ``nodes`` see, all of them by default; returns its name."""
        name = device_name("cameras", device_id, node=None if spec.get("shared", True) else nodes[0])
        what = {"configurationName": "cameras", "deviceID": device_id, "shared": True, "nodes": nodes or NODE_NAMES}
        labels = make_labels((nodes or NODE_NAMES)[0], shared=bool(spec.get("shared", True)))
        value = DiscoveredDeviceObject(metadata=ObjectMeta(name=name, labels=labels), spec={**what, **spec})
        await self.client.create(DISCOVERED_DEVICES, value)
        while not await self.is_published(name):  # noqa: ASYNC110  (another program's doing, as below)
            await anyio.sleep(0.02)
        return name

    async def is_published(self, name: str) -> bool:
        listed = await self.client.list(KINDS.resource_slices, field_selector="spec.driver=shared.kerf.dev")
        classes = {one.metadata.name for one in (await self.client.list(KINDS.device_classes)).items}
        return name in {one.spec.pool.name for one in listed.items} and {ANY, f"{name}.shared.kerf.dev"} <= classes

    async def ask(self, name: str, *class_names: str, distinct: bool = False, **pod: Any) -> None:
        """Add a pod with one claim, which has a device of each class."""
        requests = tuple(
            DeviceRequest(name=f"d{number}", exactly=ExactDeviceRequest(device_class_name=each))
            for number, each in enumerate(class_names)
        )
        constraints = (DeviceConstraint(distinct_attribute="shared.kerf.dev/uuid"),) if distinct else ()
        spec = ResourceClaimSpec(devices=DeviceClaim(requests=requests, constraints=constraints))
        metadata = ObjectMeta(name=name, namespace="default")
        await self.client.create(KINDS.resource_claims, ResourceClaim(metadata=metadata, spec=spec))
        use = ResourceRequirements(claims=(ContainerClaim(name="devices"),))
        containers = (Container(name="main", image="none", resources=use),)
        entry = PodResourceClaim(name="devices", resource_claim_name=name)
        value = Pod(metadata=metadata, spec=PodSpec(containers=containers, resource_claims=(entry,), **pod))
        await self.client.create(PODS, value)

    async def running(self, *names: str) -> list[Pod]:
        pods = []
        for name in names:
            while (pod := await self.client.get(PODS, name, "default")).status.phase != "Running":  # noqa: ASYNC110
                await anyio.sleep(0.02)
            pods.append(pod)
        return pods

    async def waiting(self, name: str) -> str:
        """Wait until the scheduler has said why a pod cannot run; returns the message."""
        while True:
            pod = await self.client.get(PODS, name, "default")
            for condition in pod.status.conditions:
                if condition.type == "PodScheduled" and condition.status == "False":
                    return condition.message
            await anyio.sleep(0.02)

    async def devices(self, name: str) -> list[str]:
        """The devices of a pod's claim."""
        claim = await self.client.get(KINDS.resource_claims, name, "default")
        assert claim.status.allocation is not None
        return [result.device for result in claim.status.allocation.devices.results]

    async def end(self, name: str) -> None:
        await self.client.delete(PODS, name, "default")
        await self.client.delete(KINDS.resource_claims, name, "default")

    def container(self, pod: Pod) -> Any:
        """The OCI runtime spec of the container of a pod."""
        assert pod.spec.node_name is not None
        root = self.local.kubelet_root(pod.spec.node_name)
        [found] = root.glob(f"**/{pod.metadata.uid}/main/config.json")
        return json.loads(found.read_text())


@asynccontextmanager
async def site() -> AsyncIterator[Site]:
    with TemporaryDirectory(prefix="kd-", dir="/tmp") as directory, anyio.fail_after(LONGEST_S):
        settings = ClusterSettings(root=Path(directory), nodes=NODE_NAMES, crds=crds.documents())
        cluster = LocalCluster(settings, share_id=lambda: str(uuid4()), boot_id=lambda: "boot-1")
        async with anyio.create_task_group() as group:
            await group.start(_run, cluster)
            client = Client(await load_access(cluster.kubeconfig), user_agent="kerf-test/1")
            async with client, anyio.create_task_group() as programs:
                programs.start_soon(run_controller, controller(cluster))
                for node in NODE_NAMES:
                    programs.start_soon(partial(app.run, plugin(cluster, node)))
                yield Site(client, cluster)
                programs.cancel_scope.cancel()
            group.cancel_scope.cancel()


async def _run(cluster: LocalCluster, *, task_status: TaskStatus[None]) -> None:
    await cluster.run(task_status=task_status)


def controller(cluster: LocalCluster) -> ControllerSettings:
    leading = LeaseSettings(duration_s=60, renew_deadline_s=40, retry_s=0.1)
    return ControllerSettings(
        kubeconfig=cluster.kubeconfig,
        identity="one",
        lease=ObjectRef("default", "kerf-controller"),
        leading=leading,
        settle_s=0.01,
        probes="127.0.0.1:0",
    )


def plugin(cluster: LocalCluster, node: str) -> ProcessSettings:
    settings = Settings(
        node_name=node,
        family=SHARED,
        backends=(BackendChoice(name="discovered"),),
        kubelet_root=cluster.kubelet_root(node),
        device_plugins_dir=cluster.device_plugins_dir(node),
        cdi_dir=cluster.cdi_dir(node),
    )
    return ProcessSettings(
        node_name=node, plugins=(settings,), kubeconfig=cluster.kubeconfig, probes_address="127.0.0.1:0"
    )


async def test_ak_26_ak_27_a_container_gets_what_its_device_and_its_configuration_name() -> None:
    async with site() as place:
        mount = {"hostPath": "/srv", "containerPath": "/models", "readOnly": True}
        await place.configure(brokerProperties={"QUALITY": "high", "URL": "none"}, mounts=[mount])
        node = {"hostPath": "/dev/null", "containerPath": "/dev/video0", "permissions": "rw"}
        name = await place.find(
            "usb-1-1", "node-2", shared=False, properties={"URL": "file:///dev/video0"}, deviceNodes=[node]
        )
        other = await place.find("rtsp://10.0.0.7", properties={"URL": "rtsp://10.0.0.7"})
        await place.ask("broker", f"{name}.shared.kerf.dev", f"{other}.shared.kerf.dev")
        [pod] = await place.running("broker")
        assert pod.spec.node_name == "node-2"
        spec = place.container(pod)
        variables = dict(entry.split("=", 1) for entry in spec["process"]["env"])
        digest, its = (one.removeprefix("cameras-").upper() for one in (name, other))
        assert (variables["QUALITY"], variables["URL"]) == ("high", "none")
        assert variables[f"URL_{digest}"] == "file:///dev/video0"
        assert variables[f"URL_{its}"] == "rtsp://10.0.0.7"
        assert variables[f"KERF_DEVICE_CAMERAS_{digest}"] == "usb-1-1"
        assert "/dev/video0" in [device["path"] for device in spec["linux"]["devices"]]
        assert ("/srv", "/models") in [(one["source"], one["destination"]) for one in spec["mounts"]]
        used = ObjectRef("default", "broker")
        accounts = {node: kubelet.list_uses().claims for node, kubelet in place.local.kubelets.items()}
        assert accounts == {**dict.fromkeys(NODE_NAMES, ()), "node-2": (ClaimUse(claim=used, pod=used),)}


async def test_capacity_is_one_for_any_device_and_for_this_one() -> None:
    """AK-05, AK-06, AK-07, AK-08, AK-09: claims by configuration and by device take from the same users."""
    async with site() as place:
        await place.configure(capacity=2)
        first = await place.find("rtsp://10.0.0.1")
        this = f"{first}.shared.kerf.dev"
        for name in ("this-1", "this-2"):
            await place.ask(name, this)
        await place.running("this-1", "this-2")
        await place.ask("any", ANY)
        assert "cannot allocate all claims" in await place.waiting("any")
        await place.end("this-1")
        await place.running("any")
        await place.ask("this-3", this)
        assert "cannot allocate all claims" in await place.waiting("this-3")
        for name in ("any", "this-2", "this-3"):
            await place.end(name)

        second = await place.find("rtsp://10.0.0.2")
        replicas = ("replica-1", "replica-2", "replica-3")
        for name in replicas:
            await place.ask(name, ANY)
        await place.running(*replicas)
        used = Counter([device for name in replicas for device in await place.devices(name)])
        assert used.keys() <= {first, second}
        assert max(used.values()) <= 2
        await place.ask("replica-4", ANY)
        await place.running("replica-4")
        await place.ask("replica-5", ANY)
        assert "cannot allocate all claims" in await place.waiting("replica-5")
        for name in (*replicas, "replica-4", "replica-5"):
            await place.end(name)

        await place.ask("unique", ANY, ANY, distinct=True)
        await place.running("unique")
        assert set(await place.devices("unique")) == {first, second}
        await place.end("unique")
        await place.find("rtsp://10.0.0.3")
        await place.ask("three", ANY, ANY, ANY, ANY, distinct=True)
        assert "cannot allocate all claims" in await place.waiting("three")
        await place.end("three")
        await place.ask("twice", this, this)
        await place.running("twice")
        assert await place.devices("twice") == [first, first]


async def test_ak_19_a_device_that_goes_and_comes_back_keeps_its_claims() -> None:
    async with site() as place:
        await place.configure()
        name = await place.find("rtsp://10.0.0.1")
        await place.ask("first", ANY)
        await place.running("first")
        for nodes in ([], [*NODE_NAMES]):
            patch = {"spec": {"nodes": nodes}}
            await place.client.patch(DISCOVERED_DEVICES, name, patch, type=PatchType.MERGE)
            while await place.is_published(name) is not bool(nodes):  # noqa: ASYNC110
                await anyio.sleep(0.02)
        [pod] = await place.running("first")
        assert pod.metadata.deletion_timestamp is None
        await place.ask("second", ANY)
        assert "cannot allocate all claims" in await place.waiting("second")
        await place.end("first")
        await place.running("second")
