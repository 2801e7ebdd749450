"""The kubelet stand-in serves device plugins as the kubelet does (kubernetes/pkg/kubelet/cm/devicemanager)."""

import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import grpc.aio
import pytest
from msgspec.structs import replace

from kerf_dra.api.core.v1 import PODS, Container, Pod, PodSpec, ResourceRequirements
from kerf_dra.api.deviceplugin.v1beta1 import (
    ALLOCATE,
    GET_OPTIONS,
    GET_PREFERRED_ALLOCATION,
    LIST_AND_WATCH,
    PRE_START_CONTAINER,
    REGISTER,
    ContainerAllocation,
    DevicePluginOptions,
    ListedDevice,
    PreferenceRequest,
    Registration,
)
from kerf_dra.api.errors import PermanentError
from kerf_dra.api.model.metadata import ObjectMeta
from kerf_dra.api.model.names import ObjectRef
from kerf_dra.api.model.quantity import Quantity
from kerf_dra.api.podresources.v1 import DeviceUse, PodUses
from kerf_dra.driver.kube.http.client import Client
from kerf_dra.driver.kube.http.config import load_access
from kerf_dra.driver.kubeletplugin.grpc.pod_resources import PodResourcesClient
from kerf_dra.driver.kubeletplugin.grpc.server import serving_at, stream, unary
from kerf_dra.driver.local.cluster import ClusterSettings, LocalCluster
from kerf_dra.driver.local.kubelet.device_allocations import (
    DeviceAllocations,
    PodRejectedError,
    build_annotations,
    build_environment,
)
from kerf_dra.driver.local.kubelet.device_plugins import DevicePlugins
from kerf_dra.driver.local.kubelet.plugins import DriverCallError
from kerf_dra.driver.local.kubelet.pod_resources import serve_pod_resources
from kerf_dra.driver.runtime.notifier import Notifier

GPU = "example.com/gpu"
OPTIONS = DevicePluginOptions(pre_start_required=True, preferred_allocation=True)
LIMIT_S = 120.0
"""Of one wait: each takes milliseconds on an idle machine."""


@pytest.fixture
def root() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="kk", dir="/tmp") as folder:
        yield Path(folder)


class RefusalError(PermanentError):
    """The plugin's answer to an Allocate."""


@dataclass
class Plugin:
    """A device plugin whose lists and answers the test decides."""

    resource: str = GPU
    version: str = "v1beta1"
    options: DevicePluginOptions = OPTIONS
    devices: tuple[ListedDevice, ...] = tuple(ListedDevice(id=each) for each in "abc")
    preferred: tuple[str, ...] = ()
    refusal: str = ""
    """Why no device is allocated; empty: all are."""
    asked: list[PreferenceRequest] = field(default_factory=list)
    allocated: list[tuple[str, ...]] = field(default_factory=list)
    started: list[tuple[str, ...]] = field(default_factory=list)
    changed: Notifier = field(default_factory=Notifier)

    def list_now(self, *devices: ListedDevice) -> None:
        self.devices = devices
        self.changed.notify()

    @asynccontextmanager
    async def registered(self, folder: Path) -> AsyncIterator[None]:
        closed = anyio.Event()
        name = self.resource.replace("/", "-")

        async def get_options(_: None) -> DevicePluginOptions:
            return self.options

        async def watch(_: None) -> AsyncIterator[Sequence[ListedDevice]]:
            while not closed.is_set():
                change = self.changed.next_event
                yield self.devices
                await change.wait()

        async def prefer(requests: Sequence[PreferenceRequest]) -> Sequence[Sequence[str]]:
            self.asked += requests
            return [self.preferred]

        async def allocate(containers: Sequence[Sequence[str]]) -> Sequence[ContainerAllocation]:
            self.allocated += [tuple(ids) for ids in containers]
            if self.refusal:
                raise RefusalError(self.refusal)
            return [
                ContainerAllocation(environment={"IDS": ",".join(ids)}, annotations={self.resource: "one"})
                for ids in containers
            ]

        async def pre_start(ids: Sequence[str]) -> None:
            self.started.append(tuple(ids))

        handlers = [
            unary(GET_OPTIONS, get_options),
            stream(LIST_AND_WATCH, watch),
            unary(GET_PREFERRED_ALLOCATION, prefer),
            unary(ALLOCATE, allocate),
            unary(PRE_START_CONTAINER, pre_start),
        ]
        async with serving_at(folder / f"{name}.sock", dict(handlers), grace_s=0):
            try:
                await register(
                    folder,
                    Registration(
                        version=self.version, endpoint=f"{name}.sock", resource=self.resource, options=self.options
                    ),
                )
                yield
            finally:
                closed.set()
                self.changed.notify()


async def wait_socket(path: Path) -> None:
    with anyio.fail_after(LIMIT_S):
        while not path.is_socket():  # noqa: ASYNC110  (a folder sets no event)
            await anyio.sleep(0.005)


async def register(folder: Path, registration: Registration) -> None:
    async with grpc.aio.insecure_channel(f"unix:{folder}/kubelet.sock") as channel:
        await channel.unary_unary(
            REGISTER.path, request_serializer=REGISTER.encode_request, response_deserializer=REGISTER.decode_response
        )(registration, timeout=LIMIT_S)


@dataclass
class Clock:
    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Node:
    folder: Path
    plugins: DevicePlugins
    devices: DeviceAllocations
    clock: Clock

    async def wait_counts(self, resource: str, capacity: int, allocatable: int) -> None:
        with anyio.fail_after(LIMIT_S):
            while True:
                change = self.plugins.changed.next_event
                counts = self.plugins.count_capacity().get(resource), self.plugins.count_allocatable().get(resource)
                if counts == (capacity, allocatable):
                    return
                await change.wait()


@pytest.fixture
async def node(root: Path) -> AsyncIterator[Node]:
    clock = Clock()
    folder = root / "device-plugins"
    plugins = DevicePlugins(folder, clock)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(plugins.run)
        await wait_socket(folder / "kubelet.sock")
        yield Node(folder, plugins, DeviceAllocations(plugins), clock)
        tasks.cancel_scope.cancel()


def container(name: str, restart_policy: str = "", **limits: int) -> Container:
    """A container with so many of ``example.com/NAME``."""
    amounts = {f"example.com/{resource}": Quantity(count) for resource, count in limits.items()}
    return Container(
        name=name, image="none", resources=ResourceRequirements(limits=amounts), restart_policy=restart_policy
    )


def pod(name: str, *containers: Container, init: Sequence[Container] = ()) -> Pod:
    spec = PodSpec(containers=containers or (container("main", gpu=1),), init_containers=tuple(init))
    return Pod(metadata=ObjectMeta(name=name, namespace="ns", uid=name), spec=spec)


async def test_each_list_is_complete_and_unhealthy_devices_are_capacity_only(node: Node) -> None:
    gpus, nics = Plugin(), Plugin(resource="example.com/nic", devices=(ListedDevice(id="n"),))
    async with gpus.registered(node.folder), nics.registered(node.folder):
        await node.wait_counts(GPU, 3, 3)
        await node.wait_counts("example.com/nic", 1, 1)
        gpus.list_now(ListedDevice(id="a"), ListedDevice(id="b", health="Unhealthy"))
        await node.wait_counts(GPU, 2, 1)
        await node.wait_counts("example.com/nic", 1, 1)


async def test_a_plugin_that_goes_leaves_unhealthy_devices_and_after_five_minutes_none(node: Node) -> None:
    async with Plugin().registered(node.folder):
        await node.wait_counts(GPU, 3, 3)
    await node.wait_counts(GPU, 3, 0)
    node.clock.now += 299
    assert node.plugins.count_capacity() == {GPU: 3}
    node.clock.now += 1
    assert node.plugins.count_capacity() == {GPU: 0}
    assert node.plugins.count_allocatable() == {GPU: 0}
    async with Plugin().registered(node.folder):
        await node.wait_counts(GPU, 3, 3)


@pytest.mark.parametrize(
    ("plugin", "message"),
    [
        (Plugin(version="v1alpha"), 'requested API version "v1alpha" is not supported by kubelet'),
        (Plugin(resource="gpu"), 'the ResourceName "gpu" is invalid'),
        (Plugin(resource="kubernetes.io/gpu"), 'the ResourceName "kubernetes.io/gpu" is invalid'),
        (Plugin(resource="a.kubernetes.io/gpu"), 'the ResourceName "a.kubernetes.io/gpu" is invalid'),
        (Plugin(resource="requests.example.com/gpu"), 'the ResourceName "requests.example.com/gpu" is invalid'),
    ],
)
async def test_a_registration_that_the_kubelet_refuses_says_why(node: Node, plugin: Plugin, message: str) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        async with plugin.registered(node.folder):
            pass
    assert message in (caught.value.details() or "")
    assert node.plugins.count_capacity() == {}


async def test_a_plugin_that_does_not_listen_is_not_registered(node: Node) -> None:
    registration = Registration(endpoint="gone.sock", resource=GPU, options=Plugin().options)
    with pytest.raises(grpc.aio.AioRpcError):
        await register(node.folder, registration)
    assert not node.plugins.is_served(GPU)


async def test_a_kubelet_that_starts_removes_the_sockets_of_its_predecessors_plugins(root: Path) -> None:
    folder = root / "device-plugins"
    async with serving_at(folder / "old.sock", {}, grace_s=0):
        (folder / "checkpoint").write_text("")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(DevicePlugins(folder).run)
            await wait_socket(folder / "kubelet.sock")
            assert {path.name for path in folder.iterdir()} == {"checkpoint", "kubelet.sock"}
            tasks.cancel_scope.cancel()


async def test_pods_have_different_devices_and_what_a_pod_had_is_for_the_next_one(node: Node) -> None:
    plugin = Plugin(preferred=("c", "b"))
    async with plugin.registered(node.folder):
        await node.wait_counts(GPU, 3, 3)
        await node.devices.admit(pod("one", container("main", gpu=2, other=1)))
        await node.devices.admit(pod("two"))
        assert plugin.allocated == [("c", "b"), ("a",)]
        assert plugin.asked[0] == PreferenceRequest(available=("a", "b", "c"), size=2)
        with pytest.raises(PodRejectedError) as caught:
            await node.devices.admit(pod("three"))
        assert str(caught.value) == (
            "Allocate failed due to requested number of devices unavailable for example.com/gpu. Requested: 1, "
            "Available: 0, which is unexpected"
        )
        node.devices.remove("one")
        await node.devices.admit(pod("four"))
        assert node.devices.list_devices("four") == {GPU: ("c",)}
        assert node.devices.list_devices("one") == node.devices.list_devices("three") == {}


async def test_a_pod_that_is_admitted_again_keeps_its_devices(node: Node) -> None:
    plugin = Plugin()
    async with plugin.registered(node.folder):
        await node.wait_counts(GPU, 3, 3)
        for _ in range(2):
            await node.devices.admit(pod("one", container("left", gpu=1), container("right", gpu=1)))
        assert plugin.allocated == [("a",), ("b",)]


async def test_a_plugin_that_cannot_allocate_rejects_the_pod_which_keeps_nothing(node: Node) -> None:
    plugin = Plugin(refusal="the card is busy")
    nics = Plugin(resource="example.com/a", devices=(ListedDevice(id="n"),))
    async with plugin.registered(node.folder), nics.registered(node.folder):
        await node.wait_counts(GPU, 3, 3)
        await node.wait_counts("example.com/a", 1, 1)
        with pytest.raises(PodRejectedError, match=r"^Allocate failed due to .*, which is unexpected"):
            await node.devices.admit(pod("one", container("main", a=1, gpu=1)))
        assert nics.allocated == [("n",)]
        assert node.devices.list_uses() == ()
        await node.devices.admit(pod("two", container("main", a=1)))


async def test_containers_reuse_what_init_containers_had_but_not_what_sidecars_have(node: Node) -> None:
    plugin = Plugin()
    async with plugin.registered(node.folder):
        await node.wait_counts(GPU, 3, 3)
        first, sidecar = container("first", gpu=1), container("side", "Always", gpu=1)
        one = pod("one", container("main", gpu=2), init=(first, sidecar))
        await node.devices.admit(one)
        assert plugin.allocated == [("a",), ("a",), ("b", "c")]
        assert [use.id for use in node.devices.list_uses()] == ["a", "b", "c"]


async def test_the_account_of_devices_leaves_out_those_of_init_containers(node: Node) -> None:
    async with Plugin().registered(node.folder):
        await node.wait_counts(GPU, 3, 3)
        await node.devices.admit(pod("one", container("main"), init=(container("first", gpu=1),)))
        assert node.devices.list_uses() == ()
        await node.devices.admit(pod("two"))
        assert not node.devices.was_listed("two")
        assert node.devices.list_uses() == (DeviceUse(resource=GPU, id="b", pod=ObjectRef("ns", "two")),)
        assert node.devices.was_listed("two")
        node.devices.remove("two")
        assert not node.devices.was_listed("two")


@pytest.mark.parametrize("is_required", [True, False])
async def test_a_plugin_that_wants_it_is_called_before_a_container_starts(node: Node, is_required: bool) -> None:
    plugin = Plugin(options=DevicePluginOptions(pre_start_required=is_required, preferred_allocation=False))
    async with plugin.registered(node.folder):
        await node.wait_counts(GPU, 3, 3)
        one = pod("one", container("left", gpu=1), container("right", gpu=1))
        await node.devices.admit(one)
        found = await node.devices.prepare_start(one, one.spec.containers[1])
        assert plugin.started == ([("b",)] if is_required else [])
        assert plugin.asked == []
        assert (build_environment(found), build_annotations(found)) == ({"IDS": "b"}, {GPU: "one"})


async def test_no_container_starts_whose_plugin_has_gone_for_good(node: Node) -> None:
    one = pod("one")
    async with Plugin().registered(node.folder):
        await node.wait_counts(GPU, 3, 3)
        await node.devices.admit(one)
    await node.wait_counts(GPU, 3, 0)
    node.clock.now += 300
    assert node.plugins.count_capacity() == {GPU: 0}
    with pytest.raises(DriverCallError, match=r"no device plugin is registered for example\.com/gpu"):
        await node.devices.prepare_start(one, one.spec.containers[0])


@dataclass
class Account:
    uses: PodUses

    def list_uses(self) -> PodUses:
        return self.uses


async def test_plugins_read_the_kubelets_account_at_its_socket(root: Path) -> None:
    account = Account(PodUses(devices=(DeviceUse(resource=GPU, id="a", pod=ObjectRef("ns", "one")),)))
    socket = root / "pod-resources" / "kubelet.sock"
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(serve_pod_resources, root, account)
        await wait_socket(socket)
        assert await PodResourcesClient(socket).list_device_uses() == account.uses.devices
        tasks.cancel_scope.cancel()


async def test_the_node_shows_its_devices_and_a_pod_that_cannot_have_one_fails(root: Path) -> None:
    """The second pod was sent to the node by name, past the scheduler, which would have counted."""
    settings = ClusterSettings(root=root, nodes=("node-1",))
    cluster = LocalCluster(settings, share_id=lambda: "share", boot_id=lambda: "boot")
    folder = cluster.device_plugins_dir("node-1")
    plugin = Plugin(devices=(ListedDevice(id="a"), ListedDevice(id="b", health="Unhealthy")))
    async with anyio.create_task_group() as tasks:
        await tasks.start(cluster.run)
        async with Client(await load_access(cluster.kubeconfig), user_agent="test/1") as client:
            with anyio.fail_after(LIMIT_S):
                await wait_socket(folder / "kubelet.sock")
                async with plugin.registered(folder):
                    counted = await wait_status(client, "nodes", "node-1", lambda status: GPU in status["capacity"])
                    assert (counted["capacity"][GPU], counted["allocatable"][GPU]) == ("2", "1")
                    await client.create(PODS, bare(pod("one")))
                    running = await wait_status(client, "pods", "one", lambda status: status.get("phase") == "Running")
                    assert running["containerStatuses"][0]["ready"]
                    await client.create(PODS, bare(pod("two"), node="node-1"))
                    failed = await wait_status(client, "pods", "two", lambda status: status.get("phase") == "Failed")
                    assert failed["reason"] == "UnexpectedAdmissionError"
                    assert failed["message"].startswith("Pod was rejected: Allocate failed due to requested number of")
        tasks.cancel_scope.cancel()


def bare(value: Pod, node: str = "") -> Pod:
    """The pod as a user writes it, without its UID."""
    metadata = ObjectMeta(name=value.metadata.name, namespace="default")
    return replace(value, metadata=metadata, spec=replace(value.spec, node_name=node or None))


async def wait_status(client: Client, plural: str, name: str, is_reached: Any) -> dict[str, Any]:
    """Wait until the status of an object is so; returns it as the server has it."""
    path = f"/api/v1/nodes/{name}" if plural == "nodes" else f"/api/v1/namespaces/default/{plural}/{name}"
    while True:
        status: dict[str, Any] = (await client.get_json(path)).get("status") or {}
        if is_reached(status):
            return status
        await anyio.sleep(0.01)
