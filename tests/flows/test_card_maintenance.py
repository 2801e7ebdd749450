"""One card is drained and comes back, on the embedded cluster: API server, scheduler, plugins and both controllers."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import uuid4

import anyio
from anyio.abc import TaskStatus

from kerf_dra.api.core.v1 import PODS, Pod
from kerf_dra.api.core.workloads import DEPLOYMENTS
from kerf_dra.api.kerf.card_maintenance import (
    CARD_MAINTENANCES,
    CardMaintenanceObject,
    CardMaintenanceStatus,
    maintenance_name,
)
from kerf_dra.api.model.base import JsonObject
from kerf_dra.api.model.devices import Device
from kerf_dra.api.model.metadata import ObjectMeta
from kerf_dra.api.model.names import ObjectRef
from kerf_dra.api.resource.v1 import KINDS
from kerf_dra.driver.controller.app import run as run_controller
from kerf_dra.driver.controller.reclaim.settings import ReclaimSettings
from kerf_dra.driver.controller.settings import Settings as ControllerSettings
from kerf_dra.driver.families.gpu import GPU
from kerf_dra.driver.families.shared.node_labels import NODE_LABEL
from kerf_dra.driver.kube.http.client import Client, PatchType
from kerf_dra.driver.kube.http.config import load_access
from kerf_dra.driver.kube.leader_election import LeaseSettings
from kerf_dra.driver.kubeletplugin import app
from kerf_dra.driver.kubeletplugin.backends.registry import BackendChoice, choose_families
from kerf_dra.driver.kubeletplugin.settings import ProcessSettings, Settings
from kerf_dra.driver.local.cluster import ClusterSettings, LocalCluster
from tools.generate import crds

LONGEST_S = 240.0
"""Of one test: each takes a few seconds on an idle machine."""
NODE = "node-1"
TEMPLATE: JsonObject = {
    "metadata": {"name": "cut", "namespace": "default"},
    "spec": {
        "spec": {
            "devices": {
                "requests": [
                    {
                        "name": "gpu",
                        "exactly": {
                            "deviceClassName": GPU.driver,
                            "selectors": [
                                {"cel": {"expression": f'device.attributes["{GPU.driver}"].profile == "2g.20gb"'}}
                            ],
                        },
                    }
                ]
            }
        }
    },
}


@dataclass
class Site:
    """A cluster of one node with four cards of three partitions each."""

    client: Client
    local: LocalCluster
    cards: dict[str, str] = field(default_factory=dict)
    """The UUID of each card, by its name."""

    async def deploy(self, replicas: int) -> None:
        pod: JsonObject = {
            "metadata": {"labels": {"app": "web"}},
            "spec": {
                "containers": [{"name": "main", "image": "none", "resources": {"claims": [{"name": "gpu"}]}}],
                "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "cut"}],
            },
        }
        spec = {"replicas": replicas, "selector": {"matchLabels": {"app": "web"}}, "template": pod}
        document = {"metadata": {"name": "web", "namespace": "default"}, "spec": spec}
        await self.client.apply(DEPLOYMENTS, document, field_manager="test")

    async def list_pods(self) -> dict[str, Pod]:
        """Return the pods that run, by UID."""
        listed = (await self.client.list(PODS)).items
        return {pod.metadata.uid: pod for pod in listed if pod.status.phase == "Running" and not pod.is_terminating}

    async def list_holders(self, card: str) -> set[str]:
        """Return the UIDs of the pods that hold something of a card."""
        return {
            user.uid
            for claim in (await self.client.list(KINDS.resource_claims)).items
            if claim.status.allocation is not None
            and any(one.device.startswith(f"{card}-") for one in claim.status.allocation.devices.results)
            for user in claim.status.reserved_for
        }

    async def list_devices(self, card: str) -> list[Device]:
        listed = (await self.client.list(KINDS.resource_slices)).items
        devices = (device for one in listed for device in one.spec.devices)
        return [one for one in devices if one.name == card or one.name.startswith(f"{card}-")]

    async def are_running(self, count: int) -> dict[str, Pod]:
        while len(pods := await self.list_pods()) != count:  # noqa: ASYNC110  (another program's doing, as below)
            await anyio.sleep(0.02)
        return pods

    async def drain(self, card: str, **spec: object) -> str:
        name = maintenance_name(NODE, self.cards[card])
        value = CardMaintenanceObject(
            metadata=ObjectMeta(name=name), spec={"nodeName": NODE, "card": self.cards[card], **spec}
        )
        await self.client.create(CARD_MAINTENANCES, value)
        return name

    async def until_phase(self, name: str, phase: str) -> CardMaintenanceStatus:
        while (held := await self.client.get(CARD_MAINTENANCES, name)).status.phase != phase:  # noqa: ASYNC110  (as above)
            await anyio.sleep(0.02)
        assert held.metadata.labels[NODE_LABEL] == NODE
        return held.status


@asynccontextmanager
async def site() -> AsyncIterator[Site]:
    with TemporaryDirectory(prefix="kd-", dir="/tmp") as directory, anyio.fail_after(LONGEST_S):
        root = Path(directory)
        settings = ClusterSettings(root=root, nodes=(NODE,), crds=crds.documents())
        cluster = LocalCluster(settings, share_id=lambda: str(uuid4()), boot_id=lambda: "boot-1")
        async with anyio.create_task_group() as group:
            await group.start(_run, cluster)
            client = Client(await load_access(cluster.kubeconfig), user_agent="kerf-test/1")
            async with client, anyio.create_task_group() as programs:
                programs.start_soon(run_controller, reclaimer(cluster))
                programs.start_soon(partial(app.run, plugin(cluster, root)))
                place = Site(client, cluster)
                await _prepare(place)
                yield place
                programs.cancel_scope.cancel()
            group.cancel_scope.cancel()


async def _run(cluster: LocalCluster, *, task_status: TaskStatus[None]) -> None:
    await cluster.run(task_status=task_status)


async def _prepare(place: Site) -> None:
    """Add the class and the template, and wait until the four cards are published."""
    selector = {"cel": {"expression": f'device.driver == "{GPU.driver}"'}}
    document = {"metadata": {"name": GPU.driver}, "spec": {"selectors": [selector]}}
    await place.client.apply(KINDS.device_classes, document, field_manager="test")
    await place.client.apply(KINDS.resource_claim_templates, TEMPLATE, field_manager="test")
    for number in range(4):
        name = f"gpu-{number}"
        while not (devices := await place.list_devices(name)):  # noqa: ASYNC110  (as above)
            await anyio.sleep(0.02)
        place.cards[name] = str(devices[0].attributes["uuid"].value)


def reclaimer(cluster: LocalCluster) -> ControllerSettings:
    leading = LeaseSettings(duration_s=60, renew_deadline_s=40, retry_s=0.1)
    return ControllerSettings(
        kubeconfig=cluster.kubeconfig,
        identity="one",
        lease=ObjectRef("default", "kerf-reclaimer"),
        leading=leading,
        probes="127.0.0.1:0",
        reclaim=ReclaimSettings(active_s=0.1, settle_s=0.01),
    )


def plugin(cluster: LocalCluster, root: Path) -> ProcessSettings:
    hardware = root / "cards.yaml"
    cards = [{"kind": "gpu", "model": "h100-80gb-sxm", "count": 4}]
    hardware.write_text(json.dumps({"state": "hardware", "pace": 0, "cards": cards}))
    [choice] = choose_families((GPU.name,), [BackendChoice(name="simulated", config=hardware)])
    settings = Settings(
        node_name=NODE,
        family=choice.family,
        backends=choice.backends,
        kubelet_root=cluster.kubelet_root(NODE),
        device_plugins_dir=cluster.device_plugins_dir(NODE),
        cdi_dir=cluster.cdi_dir(NODE),
        publish_min_interval_s=0.01,
        classes_poll_s=0.1,
    )
    return ProcessSettings(
        node_name=NODE, plugins=(settings,), kubeconfig=cluster.kubeconfig, probes_address="127.0.0.1:0"
    )


async def test_the_pods_of_one_card_are_evicted_and_those_of_the_others_notice_nothing() -> None:
    async with site() as place:
        await place.deploy(replicas=8)
        before = await place.are_running(8)
        leaving = await place.list_holders("gpu-1")
        assert 0 < len(leaving) < 8, "the drained card and others are in use"

        name = await place.drain("gpu-1", reason="fan is loud")
        status = await place.until_phase(name, "Free")
        assert (status.holder_count, status.holders) == (0, ())
        assert {(one.type, one.status) for one in status.conditions} == {
            ("Accepted", "True"),
            ("Withheld", "True"),
            ("Free", "True"),
        }
        after = await place.are_running(8)
        assert before.keys() - after.keys() == leaving, "the pods of the other cards are the same"
        assert not await place.list_holders("gpu-1")
        taints = {
            (taint.key, taint.value, taint.effect) for one in await place.list_devices("gpu-1") for taint in one.taints
        }
        assert taints == {(f"{GPU.driver}/maintenance", "idle", "NoSchedule")}
        assert not [taint for one in await place.list_devices("gpu-0") for taint in one.taints]

        await place.client.delete(CARD_MAINTENANCES, name)
        while any(one.taints for one in await place.list_devices("gpu-1")):  # noqa: ASYNC110  (as above)
            await anyio.sleep(0.02)
        await place.deploy(replicas=12)
        await place.are_running(12)
        assert await place.list_holders("gpu-1"), "the card gets claims again"


async def test_a_pod_that_must_not_be_evicted_keeps_the_card_and_is_named() -> None:
    async with site() as place:
        await place.deploy(replicas=2)
        pods = await place.are_running(2)
        [card] = [name for name in place.cards if await place.list_holders(name)]
        protected, other = sorted(pods)
        patch = {"metadata": {"annotations": {"kerf.dev/do-not-evict": "true"}}}
        ref = pods[protected].ref
        await place.client.patch(PODS, ref.name, patch, type=PatchType.MERGE, namespace=ref.namespace)
        name = await place.drain(card)
        status = await place.until_phase(name, "Stuck")
        assert [(one.pod, one.verdict) for one in status.holders] == [(str(ref), "Protected")]
        after = await place.are_running(2)
        assert protected in after
        assert other not in after
        await place.client.delete(PODS, ref.name, ref.namespace)
        await place.until_phase(name, "Free")


async def test_a_reset_card_is_verified_and_gets_claims_again_while_the_object_is_still_there() -> None:
    async with site() as place:
        await place.deploy(replicas=8)
        before = await place.are_running(8)
        leaving = await place.list_holders("gpu-1")
        name = await place.drain("gpu-1", then="Reset")
        status = await place.until_phase(name, "Returned")
        assert status.work is not None
        assert (status.work.state, status.work.message, status.work.attempts) == ("Done", "gpu-1 was reset", 0)
        assert status.work.started_at is not None
        assert status.work.finished_at is not None
        gone = before.keys() - (await place.are_running(8)).keys()
        assert gone == leaving, "the pods of the other cards are the same"
        while any(one.taints for one in await place.list_devices("gpu-1")):  # noqa: ASYNC110  (as above)
            await anyio.sleep(0.02)
        await place.deploy(replicas=12)
        after = await place.are_running(12)
        assert await place.list_holders("gpu-1"), "the card gets claims again"
        assert (await place.client.get(CARD_MAINTENANCES, name)).status.phase == "Returned"
        assert after.keys() >= before.keys() - leaving, "nobody is evicted from the card that is back"
