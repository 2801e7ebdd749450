"""Discovered devices as extended resources on two nodes: together they have no more users than capacity (AK rows)."""

from collections.abc import AsyncIterator
from typing import Any, Final

import pytest

from kerf_dra.api.kerf.discovery_objects import device_name
from tests.e2e import container_log, pods
from tests.e2e.classic.conftest import LOGS, install
from tests.e2e.log_capture import keep_logs_on_failure
from tests.e2e.node import NodeView
from tests.e2e.permission_cases import ALLOWED, Case, clients, wait_said
from tests.e2e.wait import eventually
from tests.e2e.why_audit import ask_why
from tools.realcluster.api import Api, Document
from tools.realcluster.cluster import Cluster, running
from tools.realcluster.kerf import Hardware, Kerf
from tools.realcluster.versions import KubernetesVersion

NODES: Final = ("node1", "node2")
ARGUMENTS: Final = ("--backend=discovered", "--instance=one")
"""The instance is a part of the names of sockets, which a pod's UID would make too long in a test's folder."""
HARDWARE: Final = Hardware(cards=[{"kind": "gpu", "model": "a30-24gb"}], options={})
KERF: Final = "kerf.dev/v1alpha1"
SWEPT_S: Final = 240.0
"""What a pod had is free 30 to 60 s after its end, and the scheduler knows it some 10 s later."""


@pytest.fixture(scope="module")
async def cluster(version: KubernetesVersion, request: pytest.FixtureRequest) -> AsyncIterator[Cluster]:
    """A cluster of its own, because the one of the other tests has one kubelet."""
    async with running(version, nodes=NODES) as cluster:
        with keep_logs_on_failure(cluster, request.session, f"{LOGS}-discovered"):
            yield cluster


@pytest.fixture(scope="module")
async def kerf(cluster: Cluster, api: Api) -> Kerf:
    kerf = await install(cluster, api)
    await kerf.start_controller()
    for node in NODES:
        kerf.describe_hardware(node, HARDWARE)
        await kerf.start_plugin(node, ARGUMENTS)
    return kerf


DEVICE: Final = device_name("byhand", "one", node=None)
STATUS: Final = f"/apis/{KERF}/discovereddevices/{DEVICE}/status"
_OTHERS: Final = "may not write the users of other nodes"


def users_of(*nodes: str) -> Document:
    entries = [{"node": node, "resource": "akri.sh/byhand", "id": "0"} for node in nodes]
    return {"status": {"users": entries}}


CASES: Final = (
    Case("plugin", "patch", STATUS, ALLOWED, users_of("node2", "node1")),
    Case("plugin", "patch", STATUS, _OTHERS, users_of("node1")),
    Case("plugin", "patch", STATUS, _OTHERS, users_of("node2", "bare1")),
    Case("plugin", "patch", STATUS, _OTHERS, {"status": {"users": None}}),
    Case("plugin", "patch", STATUS, "may only write status.users of a device", {"status": {"offlineSince": "now"}}),
    Case("plugin of bare1", "patch", STATUS, ALLOWED, users_of()),
    Case("plugin without node", "patch", STATUS, "this token names no node", users_of("node2")),
    Case("controller", "patch", STATUS, ALLOWED, users_of("node1")),
)
"""The second plugin is that of node2, which has a user."""


_REFUSALS: Final = (
    "Insufficient akri.sh/doors",
    "requested number of devices unavailable for akri.sh/doors. Requested: 1, Available: 0",
    "no healthy devices present; cannot allocate unhealthy devices akri.sh/doors",
    "has no capacity left: 1 of 1 are in use",
)


class Cameras:
    """One device that both nodes see, by a configuration, and the pods of a namespace that use it."""

    def __init__(self, api: Api, cluster: Cluster, kerf: Kerf, configuration: str) -> None:
        self.api = api
        self.device = device_name(configuration, f"rtsp://{configuration}", node=None)
        self.any = f"akri.sh/{configuration}"
        self.this = f"akri.sh/{self.device}"
        self.url = f"URL_{self.device.rpartition('-')[2].upper()}"
        """The variable that the device's property URL is."""
        self._configuration = configuration
        self._views = {node: NodeView(cluster, kerf, node) for node in NODES}

    async def open(self, capacity: int) -> None:
        details = f"devices: [{{id: 'rtsp://{self._configuration}', shared: true, properties: {{URL: here}}}}]"
        spec = {
            "discoveryHandler": {"name": "static", "details": details},
            "capacity": capacity,
            "brokerProperties": {"QUALITY": "high"},
            "extendedResourceDomain": "akri.sh",
        }
        metadata = {"name": self._configuration}
        await self.api.apply({"apiVersion": KERF, "kind": "DiscoveryConfiguration", "metadata": metadata, "spec": spec})
        await self.api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
        for node in NODES:
            await self.wait_allocatable(node, self.any, 1)
            await self.wait_allocatable(node, self.this, capacity)

    async def allocatable(self, node: str, resource: str) -> int:
        found = await self.api.get("v1", "Node", node)
        return int(found["status"]["allocatable"].get(resource, 0))

    async def wait_allocatable(self, node: str, resource: str, count: int) -> None:
        async def has_count() -> bool:
            return await self.allocatable(node, resource) == count

        await eventually(
            f"{count} of {resource} are allocatable on {node}",
            has_count,
            within_s=SWEPT_S,
            but=lambda: self.allocatable(node, resource),
        )

    async def create(self, name: str, resource: str, node: str = "") -> None:
        pod = pods.pod(name, limits={resource: "1"})
        pod["metadata"]["namespace"] = self._configuration
        if node:
            pod["spec"]["nodeSelector"] = {"kubernetes.io/hostname": node}
        await self.api.create(pod)

    async def pod(self, name: str) -> Document:
        return await self.api.get("v1", "Pod", name, self._configuration)

    async def phase(self, name: str) -> str:
        return str((await self.pod(name)).get("status", {}).get("phase", ""))

    async def environment(self, name: str) -> Any:
        """Return the variables that a container sees, once it runs."""

        async def report() -> Any:
            found = await self.pod(name)
            if found["status"].get("phase") != "Running":
                return None
            return container_log.read(self._views[found["spec"]["nodeName"]].pod_logs(found, "main"))

        return (await eventually(f"pod {name} runs", report, within_s=SWEPT_S, but=lambda: self.pod(name))).environment

    async def delete(self, name: str) -> None:
        await self.api.delete("v1", "Pod", name, self._configuration, grace_s=0)

    async def users(self) -> list[tuple[str, str]]:
        found = await self.api.get(KERF, "DiscoveredDevice", self.device)
        return sorted((one["node"], one["resource"]) for one in found.get("status", {}).get("users", ()))

    async def wait_users(self, *users: tuple[str, str]) -> None:
        async def are_users() -> bool:
            return await self.users() == sorted(users)

        await eventually(f"{len(users)} use the device", are_users, within_s=SWEPT_S, but=self.users)

    async def messages(self) -> list[str]:
        return [str(event["message"]) for event in await self.api.list("v1", "Event", self._configuration)]


async def test_ak_06_ak_16_two_nodes_use_a_device_of_capacity_two_and_a_third_pod_waits_until_one_has_ended(
    api: Api, cluster: Cluster, kerf: Kerf
) -> None:
    cameras = Cameras(api, cluster, kerf, "cameras")
    await cameras.open(capacity=2)
    await cameras.create("a", cameras.any, "node1")
    await cameras.create("b", cameras.this, "node2")
    for name in ("a", "b"):
        seen = await cameras.environment(name)
        assert (seen[cameras.url], seen["QUALITY"]) == ("here", "high")
    assert await cameras.users() == [("node1", cameras.any), ("node2", cameras.this)]
    # What is left on each node is what its own pod has.
    await cameras.wait_allocatable("node1", cameras.this, 0)
    await cameras.wait_allocatable("node2", cameras.any, 0)
    await cameras.create("c", cameras.this)

    async def is_told() -> bool:
        return any(f"Insufficient {cameras.this}" in message for message in await cameras.messages())

    await eventually("the third pod waits", is_told, but=cameras.messages)
    assert await cameras.phase("c") == "Pending"
    code, report = await ask_why(cluster, "pod/c", "-n", "cameras")
    assert (code, report["verdict"]) == (1, "does-not-fit")
    [full] = [cause["message"] for cause in report["causes"] if cause["code"] == "discovered-device-full"]
    assert full.endswith(
        f"{cameras.device} has 2 of 2 users: 1 on node1 by {cameras.any} (cameras/a), 1 on node2 by {cameras.this} "
        "(cameras/b)"
    )
    await cameras.delete("a")
    assert (await cameras.environment("c"))[cameras.url] == "here"
    await cameras.delete("b")
    await cameras.delete("c")
    await cameras.wait_users()


async def test_ak_12_of_two_pods_on_two_nodes_one_has_the_only_user_and_the_other_is_told_why(
    api: Api, cluster: Cluster, kerf: Kerf
) -> None:
    doors = Cameras(api, cluster, kerf, "doors")
    await doors.open(capacity=1)
    names = {"a": "node1", "b": "node2"}
    for name, node in names.items():
        await doors.create(name, doors.any, node)

    async def has_one() -> list[str] | None:
        phases = {name: await doors.phase(name) for name in names}
        if "Running" not in phases.values():
            return None
        return [name for name, phase in phases.items() if phase != "Running"]

    [loser] = await eventually("one pod runs", has_one, within_s=SWEPT_S, but=doors.messages)
    [winner] = names.keys() - {loser}
    assert await doors.users() == [(names[winner], doors.any)]

    async def is_told() -> bool:
        """The scheduler has not placed it, or its kubelet has refused it, with its own reason or with the plugin's."""
        said = str((await doors.pod(loser))["status"])
        return any(words in said for words in _REFUSALS)

    await eventually("the other pod is told why", is_told, within_s=SWEPT_S, but=lambda: doors.pod(loser))
    for name in names:
        await doors.delete(name)
    await doors.wait_users()


async def test_a_plugin_writes_no_users_of_other_nodes(api: Api, cluster: Cluster, kerf: Kerf) -> None:
    spec = {"configurationName": "byhand", "deviceID": "one", "shared": True}
    await api.apply({"apiVersion": KERF, "kind": "DiscoveredDevice", "metadata": {"name": DEVICE}, "spec": spec})
    await api.patch(KERF, "DiscoveredDevice", DEVICE, users_of("node2"), subresource="status")
    node1, node2 = await kerf.plugin_pod("node1"), await kerf.plugin_pod("node2")
    async with clients(cluster, kerf, node1, node2) as accounts:
        for case in CASES:
            await wait_said(accounts[case.who], case, case.said, "403 ")
