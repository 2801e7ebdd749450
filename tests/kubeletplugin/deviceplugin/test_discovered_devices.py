"""Discovered devices by the device plugin interface: whole plugins of two nodes, their kubelets, one API server."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import anyio
import grpc
import pytest
import yaml

from kerf_dra import cdi
from kerf_dra.api.core.v1 import CUSTOM_RESOURCE_DEFINITIONS, NODES, Node, NodeStatus, NodeSystemInfo
from kerf_dra.api.kerf.discovery_objects import DISCOVERED_DEVICES, DISCOVERY_CONFIGURATIONS, device_name
from kerf_dra.api.model.base import JsonObject
from kerf_dra.api.model.metadata import ObjectMeta
from kerf_dra.api.resource.v1alpha2 import KINDS
from kerf_dra.driver.families.shared import SHARED
from kerf_dra.driver.families.shared.node_labels import make_labels
from kerf_dra.driver.kube.discovery import ClassicFeatures
from kerf_dra.driver.kube.http.client import Client, PatchType
from kerf_dra.driver.kube.http.credentials import Access
from kerf_dra.driver.kubeletplugin.backends.discovered import open_backend
from kerf_dra.driver.kubeletplugin.backends.registry import BackendChoice
from kerf_dra.driver.kubeletplugin.cluster.discovered_device_objects import DiscoveredDeviceCluster
from kerf_dra.driver.kubeletplugin.cluster.node_watch import NodeWatch
from kerf_dra.driver.kubeletplugin.handover import InstanceLock
from kerf_dra.driver.kubeletplugin.instance import Instance, acquire_free_lock
from kerf_dra.driver.kubeletplugin.settings import Settings
from kerf_dra.driver.local.apiserver import ApiServer, ApiServerSettings
from kerf_dra.driver.runtime.backoff import Backoff
from tests.fakes.device_plugins import FakeDevicePluginKubelet
from tests.kubeletplugin.harness import LONGEST_S, short_directory

CRDS = Path(__file__).parents[3] / "deploy/crds"
IDS = ("rtsp://10.0.0.7", "rtsp://10.0.0.8")
FIRST, SECOND = (device_name("cameras", one, node=None) for one in IDS)
DIGESTS = {name: name.removeprefix("cameras-") for name in (FIRST, SECOND)}
ANY, THIS = "akri.sh/cameras", f"akri.sh/{FIRST}"
NEVER_S = 1e6


class SharedNode:
    """A node: its kubelet and what outlives its plugin."""

    def __init__(self, name: str, root: Path, client: Client, **settings: Any) -> None:
        self.name = name
        self.client = client
        usual: dict[str, Any] = {
            "socket_poll_s": 0.02,
            "rpc_grace_s": 0.1,
            "shutdown_grace_s": 0.5,
            "publish_min_interval_s": 0.05,
            "retry": Backoff(first_s=0.01, factor=1.5, limit_s=0.1, jitter=0),
            "device_plugin_poll_s": 0.02,
            "usage_interval_s": 0.02,
            "usage_retry_s": 0.02,
            "classes_poll_s": 0.05,
            "collect_unused_interval_s": 0.05,
        }
        self.settings = Settings(
            node_name=name,
            family=SHARED,
            backends=(BackendChoice(name="discovered"),),
            kubelet_root=root / name,
            device_plugins_dir=root / name / "device-plugins",
            cdi_dir=root / name / "cdi",
            **{**usual, **settings},
        )
        self.kubelet = FakeDevicePluginKubelet(root / name)

    @property
    def cdi_files(self) -> list[str]:
        return cdi.Store(self.settings.cdi_dir).names()

    def cdi_text(self) -> str:
        return "".join(path.read_text() for path in sorted(self.settings.cdi_dir.iterdir()))

    @asynccontextmanager
    async def plugin(self) -> AsyncIterator[None]:
        """The plugin runs inside."""
        async with anyio.create_task_group() as group:
            await group.start(self._run)
            yield
            group.cancel_scope.cancel()

    async def _run(self, *, task_status: Any) -> None:
        features = ClassicFeatures(kubernetes=(1, 30), resource=KINDS)
        info = NodeSystemInfo(kubelet_version="v1.30.14")
        held = Node(metadata=ObjectMeta(name=self.name, uid="1"), status=NodeStatus(node_info=info))
        watch = NodeWatch(self.client, held)
        cluster = DiscoveredDeviceCluster(self.client, features, watch, self.settings, now=lambda: datetime.now(UTC))
        lock = InstanceLock(self.settings.state)
        instance = Instance(self.settings, cluster, [open_backend(None)], lock, boot_id="boot-1")
        await instance.run(acquire_free_lock(self.settings, lock, boot_id="boot-1"), task_status=task_status)


class Cameras:
    """Two nodes and an administrator."""

    def __init__(self, client: Client, nodes: dict[str, SharedNode]) -> None:
        self.client = client
        self.nodes = nodes
        self.n1, self.n2 = nodes["n1"], nodes["n2"]

    async def configure(self, **spec: Any) -> None:
        usual = {"discoveryHandler": {"name": "byHand"}, "capacity": 2, "extendedResourceDomain": "akri.sh"}
        value: JsonObject = {"metadata": {"name": "cameras"}, "spec": {**usual, **spec}}
        await self.client.apply(DISCOVERY_CONFIGURATIONS, value, field_manager="test")

    async def see(self, name: str, *nodes: str) -> None:
        id_ = dict(zip((FIRST, SECOND), IDS, strict=True))[name]
        spec = {"configurationName": "cameras", "deviceID": id_, "shared": True, "nodes": [*nodes]}
        metadata: JsonObject = {"name": name, "labels": make_labels("n1", shared=True)}
        value: JsonObject = {"metadata": metadata, "spec": {**spec, "properties": {"URL": id_}}}
        await self.client.apply(DISCOVERED_DEVICES, value, field_manager="test")

    async def users(self, name: str = FIRST) -> list[tuple[str, str, str]]:
        held = await self.client.get(DISCOVERED_DEVICES, name)
        return [(user.node, user.resource, user.id) for user in held.status.users]

    async def write_users(self, *users: tuple[str, str, str]) -> None:
        entries = [dict(zip(("node", "resource", "id"), user, strict=True)) for user in users]
        patch = {"status": {"users": entries}}
        await self.client.patch(
            DISCOVERED_DEVICES, FIRST, patch, type=PatchType.MERGE, subresource="status", field_manager="test"
        )

    async def wait_users(self, *users: tuple[str, str, str]) -> None:
        while sorted(await self.users()) != sorted(users):  # noqa: ASYNC110  (the API server is asked)
            await anyio.sleep(0.01)


@asynccontextmanager
async def cameras(**settings: Any) -> AsyncIterator[Cameras]:
    """A cluster whose plugins run, with FIRST on both nodes, of capacity 2."""
    server = ApiServer(settings=ApiServerSettings(kubernetes=(1, 30), resource_versions=("v1alpha2",)))
    with anyio.fail_after(LONGEST_S), short_directory() as root:
        async with anyio.create_task_group() as tasks:
            await tasks.start(server.serve)
            async with AsyncExitStack() as stack:
                client = await stack.enter_async_context(Client(Access(server=server.url), user_agent="test"))
                for path in CRDS.glob("kerf.dev_discover*.yaml"):
                    definition = yaml.safe_load(path.read_text())
                    await client.apply(CUSTOM_RESOURCE_DEFINITIONS, definition, field_manager="test")
                nodes = {name: SharedNode(name, root, client, **settings) for name in ("n1", "n2")}
                for name, node in nodes.items():
                    await client.create(NODES, Node(metadata=ObjectMeta(name=name)))
                    await stack.enter_async_context(node.kubelet.running())
                found = Cameras(client, nodes)
                await found.configure()
                await found.see(FIRST, "n1", "n2")
                yield found
            tasks.cancel_scope.cancel()


def id_of(number: int, name: str = FIRST) -> str:
    return f"{DIGESTS[name]}-{number}"


async def test_ak_04_ak_05_ak_15_both_levels_are_listed_and_follow_each_other_on_all_nodes() -> None:
    async with cameras() as place, place.n1.plugin(), place.n2.plugin():
        for node in place.nodes.values():
            assert {*await node.kubelet.wait_list(ANY, 2, healthy=1)} == {id_of(0), id_of(1)}
            await node.kubelet.wait_list(THIS, 2, healthy=2)
        await place.n1.kubelet.allocate(ANY, id_of(0), pod="a")
        assert await place.users() == [("n1", ANY, id_of(0))]
        await place.n1.kubelet.wait_list(ANY, 2, healthy=2)  # its own, and one more
        await place.n1.kubelet.wait_list(THIS, 2, healthy=1)
        await place.n2.kubelet.wait_list(THIS, 2, healthy=1)
        await place.n2.kubelet.allocate(THIS, id_of(0), pod="b")
        assert await place.users() == [("n1", ANY, id_of(0)), ("n2", THIS, id_of(0))]
        await place.n2.kubelet.wait_list(ANY, 2, healthy=0)
        await place.n1.kubelet.wait_list(ANY, 2, healthy=1)
        await place.n1.kubelet.wait_list(THIS, 2, healthy=0)


async def test_ak_26_a_container_gets_what_a_claim_for_the_device_gets() -> None:
    async with cameras() as place, place.n1.plugin():
        await place.n1.kubelet.wait_list(ANY, 2)
        answer = await place.n1.kubelet.allocate(ANY, id_of(0))
        assert [device.name.startswith("k8s.shared.kerf.dev/claim=") for device in answer.cdi_devices] == [True]
        assert answer.envs["KERF_RESOURCE_AKRI_SH_CAMERAS"] == FIRST
        text = place.n1.cdi_text()
        assert f"URL_{DIGESTS[FIRST].upper()}={IDS[0]}" in text
        assert "URL=" not in text


async def test_ak_06_ak_12_the_last_user_is_entered_once_and_the_other_node_is_told_why_not() -> None:
    async with cameras() as place, place.n1.plugin(), place.n2.plugin():
        await place.configure(capacity=1)
        for node in place.nodes.values():
            await node.kubelet.wait_list(THIS, 1, healthy=1)
        refused: list[str] = []

        async def allocate(node: SharedNode) -> None:
            try:
                await node.kubelet.allocate(THIS, id_of(0), pod="p")
            except grpc.aio.AioRpcError as error:
                refused.append(error.details() or "")

        async with anyio.create_task_group() as group:
            for node in place.nodes.values():
                group.start_soon(allocate, node)
        [why] = refused
        [(winner, _, _)] = await place.users()
        assert why == f"DiscoveredDevice {FIRST} has no capacity left: 1 of 1 are in use, on {winner}"
        assert sorted(len(node.cdi_files) for node in place.nodes.values()) == [0, 1]


async def test_ak_13_ak_14_a_repeated_allocation_takes_no_second_user() -> None:
    async with cameras() as place, place.n1.plugin():
        await place.n1.kubelet.wait_list(ANY, 2)
        first = await place.n1.kubelet.allocate(ANY, id_of(0))
        assert await place.n1.kubelet.allocate(ANY, id_of(0)) == first
        assert await place.users() == [("n1", ANY, id_of(0))]


async def test_ak_07_ak_10_a_container_gets_different_devices_or_is_refused() -> None:
    async with cameras() as place, place.n1.plugin():
        await place.see(SECOND, "n1")
        await place.n1.kubelet.wait_list(ANY, 4, healthy=2)
        both = [id_of(0), id_of(0, SECOND)]
        assert sorted(await place.n1.kubelet.prefer(ANY, [*both, id_of(1)], 2)) == sorted(both)
        with pytest.raises(grpc.aio.AioRpcError, match="must be different devices"):
            await place.n1.kubelet.allocate(ANY, id_of(0), id_of(1))
        assert await place.users() == []
        await place.n1.kubelet.allocate(ANY, id_of(0), pod="a")
        await place.n1.kubelet.wait_list(ANY, 4, healthy=3)
        assert await place.n1.kubelet.prefer(ANY, [id_of(1), id_of(0, SECOND)], 1) == [id_of(0, SECOND)]
        await place.configure(uniqueDevices=False)
        await place.n1.kubelet.wait_list(ANY, 4, healthy=4)
        await place.n1.kubelet.allocate(ANY, id_of(0, SECOND), id_of(1, SECOND), pod="b")
        assert len(await place.users(SECOND)) == 2


async def test_ak_16_what_a_pod_had_is_free_on_all_nodes_after_its_end() -> None:
    async with cameras(unused_grace_s=0.05, unlisted_grace_s=NEVER_S) as place, place.n1.plugin(), place.n2.plugin():
        await place.configure(capacity=1)
        await place.n1.kubelet.wait_list(THIS, 1, healthy=1)
        await place.n1.kubelet.allocate(THIS, id_of(0), pod="a")
        await place.n2.kubelet.wait_list(ANY, 1, healthy=0)
        await place.n1.kubelet.wait_lists_asked(3)
        place.n1.kubelet.end("a")
        await place.n2.kubelet.wait_list(ANY, 1, healthy=1)
        await place.wait_users()
        await place.n2.kubelet.allocate(ANY, id_of(0), pod="b")
        assert place.n1.cdi_files == []


async def test_ak_17_what_the_kubelet_does_not_list_yet_is_not_free() -> None:
    async with cameras(unused_grace_s=0.0, unlisted_grace_s=NEVER_S) as place, place.n1.plugin():
        await place.n1.kubelet.wait_list(ANY, 2)
        await place.n1.kubelet.allocate(ANY, id_of(0))
        await place.n1.kubelet.wait_lists_asked(5)
        assert await place.users() == [("n1", ANY, id_of(0))]


@asynccontextmanager
async def camera_of_a_rejected_pod() -> AsyncIterator[Cameras]:
    """Cameras of capacity 1, whose one user on n1 was removed because its container did not begin."""
    async with cameras(unstarted_grace_s=0.05, unlisted_grace_s=NEVER_S) as place, place.n1.plugin(), place.n2.plugin():
        await place.configure(capacity=1)
        for node in place.nodes.values():
            await node.kubelet.wait_list(THIS, 1, healthy=1)
        await place.n1.kubelet.allocate(THIS, id_of(0))
        await place.wait_users()
        yield place


async def test_a_rejected_pods_user_is_removed_and_a_container_that_begins_later_has_it_anew_or_is_told() -> None:
    async with camera_of_a_rejected_pod() as place:
        await place.n1.kubelet.pre_start(THIS, id_of(0))
        assert await place.users() == [("n1", THIS, id_of(0))]
    async with camera_of_a_rejected_pod() as place:
        await place.n2.kubelet.allocate(THIS, id_of(0), pod="b")
        with pytest.raises(grpc.aio.AioRpcError, match="has no capacity left: 1 of 1 are in use, on n2"):
            await place.n1.kubelet.pre_start(THIS, id_of(0))
        assert await place.users() == [("n2", THIS, id_of(0))]


async def test_ak_11_users_outlive_the_plugin() -> None:
    async with cameras(unused_grace_s=0.05, unlisted_grace_s=NEVER_S) as place:
        async with place.n1.plugin():
            await place.n1.kubelet.wait_list(ANY, 2)
            await place.n1.kubelet.allocate(ANY, id_of(0), pod="a")
        async with place.n1.plugin():
            await place.n1.kubelet.wait_lists_asked(5)
            assert await place.users() == [("n1", ANY, id_of(0))]
            place.n1.kubelet.end("a")
            await place.wait_users()


async def test_a_user_without_a_record_is_released_when_no_pod_has_it_and_one_of_another_node_stays() -> None:
    """The checkpoint was lost, or the plugin was killed before it had written the record."""
    async with cameras(unused_grace_s=0.05, unlisted_grace_s=0.05) as place:
        await place.write_users(("n1", ANY, id_of(0)), ("n2", ANY, id_of(0)))
        place.n1.kubelet.pods[ANY, id_of(0)] = "a"
        async with place.n1.plugin():
            await place.n1.kubelet.wait_lists_asked(8)
            assert len(await place.users()) == 2
            place.n1.kubelet.end("a")
            await place.wait_users(("n2", ANY, id_of(0)))


async def test_a_user_that_somebody_has_removed_is_entered_again_and_nobody_is_beyond_the_capacity() -> None:
    async with cameras(unlisted_grace_s=NEVER_S) as place, place.n1.plugin():
        await place.n1.kubelet.wait_list(ANY, 2)
        await place.n1.kubelet.allocate(ANY, id_of(0), pod="a")
        await place.write_users()
        await place.wait_users(("n1", ANY, id_of(0)))
        full = [("n2", THIS, id_of(0)), ("n2", THIS, id_of(1))]
        await place.write_users(*full)
        await place.n1.kubelet.wait_list(THIS, 2, healthy=0)
        await place.n1.kubelet.wait_lists_asked(8)
        assert await place.users() == full
        await place.write_users(full[0])
        await place.wait_users(full[0], ("n1", ANY, id_of(0)))


async def test_what_is_wrong_with_a_user_is_told_once_and_again_when_it_was_gone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def count(id_: str) -> int:
        return sum(f"as they should be: {id_}: " in record.getMessage() for record in caplog.records)

    caplog.set_level("WARNING")  # whatever a test before has set
    unknown = ("nobodys-0", "nobodys-1")
    async with cameras() as place, place.n1.plugin():
        for times in (1, 2):
            for id_ in unknown:
                await place.write_users(("n1", ANY, id_))
                while count(id_) < times:  # noqa: ASYNC110  (the log is asked)
                    await anyio.sleep(0.01)
    assert [count(id_) for id_ in unknown] == [2, 2]


async def test_ak_18_a_device_that_a_node_sees_no_more_is_for_nobody_there_and_its_container_keeps_it() -> None:
    async with cameras(unlisted_grace_s=NEVER_S) as place, place.n1.plugin(), place.n2.plugin():
        await place.n1.kubelet.wait_list(ANY, 2)
        await place.n1.kubelet.allocate(ANY, id_of(0), pod="a")
        await place.n2.kubelet.wait_list(THIS, 2, healthy=1)
        await place.see(FIRST, "n2")
        await place.n1.kubelet.wait_list(ANY, 2, healthy=0)
        assert await place.users() == [("n1", ANY, id_of(0))]
        assert place.n1.cdi_files
        await place.see(FIRST, "n1", "n2")
        await place.n1.kubelet.wait_list(ANY, 2, healthy=2)


async def test_ak_32_a_new_capacity_counts_at_once_and_a_smaller_one_takes_nothing_away() -> None:
    async with cameras(unlisted_grace_s=NEVER_S) as place, place.n1.plugin():
        await place.n1.kubelet.wait_list(THIS, 2, healthy=2)
        for number in range(2):
            await place.n1.kubelet.allocate(THIS, id_of(number), pod=f"p{number}")
        await place.configure(capacity=3)
        await place.n1.kubelet.wait_list(THIS, 3, healthy=3)
        await place.configure(capacity=1)
        listed = await place.n1.kubelet.wait_list(THIS, 2, healthy=0)  # until one of them has ended
        assert {*listed} == {id_of(0), id_of(1)}
        assert len(await place.users()) == 2
        await place.write_users(("n1", THIS, id_of(0)))
        await place.n1.kubelet.wait_list(THIS, 1, healthy=1)
