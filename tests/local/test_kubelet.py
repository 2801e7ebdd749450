"""The kubelet stand-in follows the kubelet's protocol (kubernetes/pkg/kubelet: pluginmanager, cm/dra)."""

import json
import os
import socket
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import anyio
import msgspec
import pytest

from kerf_dra import cdi
from kerf_dra.api.core.v1 import Container, ContainerClaim, Pod, PodResourceClaim, PodSpec, ResourceRequirements
from kerf_dra.api.dra.registry import DRA_SERVICES
from kerf_dra.api.model.allocations import (
    AllocationResult,
    DeviceAllocationResult,
    DeviceRequestAllocationResult,
    ResourceClaimConsumerReference,
    ResourceClaimStatus,
)
from kerf_dra.api.model.claims import ResourceClaim
from kerf_dra.api.model.metadata import ObjectMeta
from kerf_dra.api.model.names import ClaimRef
from kerf_dra.api.model.prepared import PrepareOutcome, ReportedDevice
from kerf_dra.api.registration.v1 import GET_INFO, NOTIFY_REGISTRATION_STATUS, PluginInfo, RegistrationStatus
from kerf_dra.api.resource.v1 import KINDS
from kerf_dra.driver.kube.http.client import Client
from kerf_dra.driver.kube.http.errors import NotFoundError
from kerf_dra.driver.kubeletplugin.grpc.server import serving_at, unary
from kerf_dra.driver.local.kubelet import plugins
from kerf_dra.driver.local.kubelet.claims import ClaimNotReadyError, NodeClaims
from kerf_dra.driver.local.kubelet.containers import ContainerBundles
from kerf_dra.driver.local.kubelet.plugins import DriverCallError, PluginWatcher

DRIVER = "d.example"
KNOWN = ("v1.DRAPlugin", "v1beta1.DRAPlugin")


@pytest.fixture
def root() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="kk", dir="/tmp") as folder:
        yield Path(folder)


@dataclass
class Plugin:
    """A DRA driver whose answers the test decides."""

    prepared: list[tuple[str, ...]] = field(default_factory=list)
    unprepared: list[str] = field(default_factory=list)
    statuses: list[RegistrationStatus] = field(default_factory=list)
    prepare_answers: Callable[[Sequence[ClaimRef]], Mapping[str, PrepareOutcome]] | None = None
    unprepare_answers: Callable[[Sequence[ClaimRef]], Mapping[str, str]] | None = None
    is_hanging: bool = False
    """Whether it answers no unprepare."""
    type: str = "DRAPlugin"
    versions: tuple[str, ...] = KNOWN

    async def prepare(self, claims: Sequence[ClaimRef]) -> Mapping[str, PrepareOutcome]:
        self.prepared.append(tuple(claim.uid for claim in claims))
        if self.prepare_answers is not None:
            return self.prepare_answers(claims)
        return {claim.uid: PrepareOutcome(devices=devices_of(claim)) for claim in claims}

    async def unprepare(self, claims: Sequence[ClaimRef]) -> Mapping[str, str]:
        self.unprepared += [claim.uid for claim in claims]
        if self.is_hanging:
            await anyio.sleep_forever()
        if self.unprepare_answers is not None:
            return self.unprepare_answers(claims)
        return {claim.uid: "" for claim in claims}

    @asynccontextmanager
    async def offered(self, root: Path, name: str = DRIVER, instance: str = "") -> AsyncIterator[Path]:
        """Serve, and offer the socket to the kubelet."""
        endpoint = root / f"dra{instance}.sock"
        registration = root / "plugins_registry" / f"{name}{instance}-reg.sock"
        info = PluginInfo(type=self.type, name=name, endpoint=str(endpoint), supported_versions=self.versions)

        async def get_info(_: None) -> PluginInfo:
            return info

        async def notify(status: RegistrationStatus) -> None:
            self.statuses.append(status)

        services = [unary(row.prepare, self.prepare) for row in DRA_SERVICES]
        services += [unary(row.unprepare, self.unprepare) for row in DRA_SERVICES]
        registering = [unary(GET_INFO, get_info), unary(NOTIFY_REGISTRATION_STATUS, notify)]
        async with (
            serving_at(endpoint, dict(services), grace_s=0),
            serving_at(registration, dict(registering), grace_s=0),
        ):
            yield registration


def devices_of(claim: ClaimRef) -> tuple[ReportedDevice, ...]:
    return tuple(
        ReportedDevice(requests=(request,), pool="p", device=request, cdi_ids=(f"x.example/dev={claim.uid}-{request}",))
        for request in ("one", "two/small")
    )


@asynccontextmanager
async def watching(root: Path, versions: tuple[str, ...] = KNOWN) -> AsyncIterator[PluginWatcher]:
    watcher = PluginWatcher(root / "plugins_registry", versions, lambda name, is_registered: None)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watcher.run)
        yield watcher
        tasks.cancel_scope.cancel()


async def until(is_true: Callable[[], object]) -> None:
    with anyio.fail_after(120):
        while not is_true():  # noqa: ASYNC110  (the watcher under test looks at a directory, which sets no event)
            await anyio.sleep(0.005)


@pytest.mark.parametrize(
    ("knows", "offers", "chosen"),
    [
        (KNOWN, KNOWN, "v1.DRAPlugin"),
        (KNOWN, ("v1beta1.DRAPlugin", "v1.DRAPlugin"), "v1beta1.DRAPlugin"),
        (("v1beta1.DRAPlugin",), KNOWN, "v1beta1.DRAPlugin"),
    ],
)
async def test_the_first_version_of_the_plugins_list_that_the_kubelet_knows_is_used(
    root: Path, knows: tuple[str, ...], offers: tuple[str, ...], chosen: str
) -> None:
    plugin = Plugin(versions=offers)
    async with watching(root, knows) as watcher, plugin.offered(root):
        await until(lambda: plugin.statuses)
        driver = watcher.get(DRIVER)
        assert driver is not None
        assert driver.service.supported_version == chosen
        assert plugin.statuses == [RegistrationStatus(registered=True)]


@pytest.mark.parametrize(
    ("plugin", "told"),
    [
        (Plugin(type="CSIPlugin"), "only DRAPlugin is handled"),
        (Plugin(versions=("v9.DRAPlugin",)), "offers v9.DRAPlugin; this kubelet knows"),
    ],
)
async def test_a_plugin_that_cannot_be_used_is_told_why(root: Path, plugin: Plugin, told: str) -> None:
    async with watching(root) as watcher, plugin.offered(root):
        await until(lambda: plugin.statuses)
        assert not plugin.statuses[0].registered
        assert told in plugin.statuses[0].error
        assert watcher.get(DRIVER) is None


async def test_a_driver_is_registered_while_its_socket_is_there_and_the_newest_instance_serves(root: Path) -> None:
    old, new = Plugin(), Plugin()
    async with watching(root) as watcher:
        async with old.offered(root, instance="-1"):
            await until(lambda: watcher.get(DRIVER))
            async with new.offered(root, instance="-2"):
                await until(lambda: new.statuses)
                assert endpoint(watcher) == "dra-2.sock"
            await until(lambda: endpoint(watcher) == "dra-1.sock")
        await until(lambda: watcher.get(DRIVER) is None)


async def test_a_call_that_waits_when_the_socket_goes_is_an_error_and_no_end_of_the_task(root: Path) -> None:
    """The plugin was killed. grpc.aio cancels whoever waits, which ended all work of the stand-in."""
    errors: list[str] = []

    async def unprepare(driver: plugins.Driver) -> None:
        with pytest.raises(DriverCallError) as told:
            await driver.call(driver.service.unprepare, [ClaimRef("ns", "x", "x-uid")], 60)
        errors.append(str(told.value))

    plugin = Plugin(is_hanging=True)
    async with watching(root) as watcher, anyio.create_task_group() as tasks, plugin.offered(root) as registration:
        await until(lambda: watcher.get(DRIVER))
        driver = watcher.get(DRIVER)
        assert driver is not None
        tasks.start_soon(unprepare, driver)
        await until(lambda: plugin.unprepared)
        registration.unlink()
        await until(lambda: errors)
    [error] = errors
    assert error.endswith("NodeUnprepareResources: the driver's socket has gone")


def endpoint(watcher: PluginWatcher) -> str | None:
    driver = watcher.get(DRIVER)
    return Path(driver.endpoint).name if driver else None


def test_a_socket_that_has_got_the_inode_of_its_predecessor_is_another_one(root: Path) -> None:
    """As ext4 does for the successor of a killed plugin, which replaces its socket between two looks."""
    path = root / "dra-reg.sock"
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(path))
    killed = plugins._identify(path)
    path.chmod(0o600)
    assert plugins._identify(path) == killed is not None
    os.utime(path, ns=(0, 0))
    assert plugins._identify(path) != killed


async def test_what_is_no_socket_or_hidden_is_passed_over(root: Path) -> None:
    registry = root / "plugins_registry"
    registry.mkdir()
    (registry / "file-reg.sock").write_text("")
    plugin = Plugin()
    async with watching(root) as watcher, plugin.offered(root, name=".hidden"):
        async with Plugin().offered(root, instance="-visible"):
            await until(lambda: watcher.get(DRIVER))
        assert plugin.statuses == []


class Claims:
    """The API server, as far as the kubelet reads claims."""

    def __init__(self) -> None:
        self.objects: dict[str, ResourceClaim] = {}

    def add(self, name: str, *pods: Pod, uid: str = "", drivers: Sequence[str] = (DRIVER,)) -> None:
        consumers = [
            ResourceClaimConsumerReference(resource="pods", name=pod.metadata.name, uid=pod.metadata.uid)
            for pod in pods
        ]
        results = [
            DeviceRequestAllocationResult(request="one", driver=driver, pool="p", device="one") for driver in drivers
        ]
        allocation = AllocationResult(devices=DeviceAllocationResult(results=tuple(results)))
        self.objects[name] = ResourceClaim(
            metadata=ObjectMeta(name=name, namespace="ns", uid=uid or f"{name}-uid"),
            status=ResourceClaimStatus(allocation=allocation, reserved_for=tuple(consumers)),
        )

    async def get(self, kind: object, name: str, namespace: str) -> ResourceClaim:
        if name not in self.objects:
            raise NotFoundError("GET", 404, "NotFound", name)
        return self.objects[name]


def pod(name: str, *claims: str, requests: Sequence[str] = ("",)) -> Pod:
    entries = tuple(PodResourceClaim(name=claim, resource_claim_name=claim) for claim in claims)
    wanted = tuple(ContainerClaim(name=claim, request=request) for claim in claims for request in requests)
    container = Container(name="main", resources=ResourceRequirements(claims=wanted))
    return Pod(
        metadata=ObjectMeta(name=name, namespace="ns", uid=name),
        spec=PodSpec(containers=(container,), resource_claims=entries),
    )


@dataclass
class Node:
    api: Claims
    plugin: Plugin
    claims: NodeClaims


@pytest.fixture
async def node(root: Path) -> AsyncIterator[Node]:
    api, plugin = Claims(), Plugin()
    async with watching(root) as watcher, plugin.offered(root):
        await until(lambda: watcher.get(DRIVER))
        yield Node(api, plugin, NodeClaims(cast("Client", api), KINDS, watcher))


async def test_all_claims_of_a_pod_are_prepared_in_one_call(node: Node) -> None:
    a = pod("a", "x", "y")
    node.api.add("x", a)
    node.api.add("y", a)
    await node.claims.prepare(a)
    await node.claims.prepare(a)
    assert node.plugin.prepared == [("x-uid", "y-uid")]


async def test_a_shared_claim_is_prepared_with_the_first_pod_and_unprepared_with_the_last(node: Node) -> None:
    a, b = pod("a", "x"), pod("b", "x")
    node.api.add("x", a, b)
    await node.claims.prepare(a)
    await node.claims.prepare(b)
    assert node.plugin.prepared == [("x-uid",)]
    await node.claims.unprepare(a)
    assert node.plugin.unprepared == []
    await node.claims.unprepare(b)
    await node.claims.unprepare(b)
    assert node.plugin.unprepared == ["x-uid"]


async def test_a_restarted_kubelet_prepares_again(node: Node, root: Path) -> None:
    a = pod("a", "x")
    node.api.add("x", a)
    await node.claims.prepare(a)
    async with watching(root) as watcher:
        await until(lambda: watcher.get(DRIVER))
        await NodeClaims(cast("Client", node.api), KINDS, watcher).prepare(a)
    assert node.plugin.prepared == [("x-uid",), ("x-uid",)]


@pytest.mark.parametrize(
    ("answers", "told"),
    [
        ({"x-uid": PrepareOutcome(error="no such card")}, "could not prepare ResourceClaim ns/x: no such card"),
        ({}, "skipped the claims x-uid"),
        ({"x-uid": PrepareOutcome(), "z": PrepareOutcome()}, "answered for claims it was not asked for: z"),
    ],
)
async def test_a_bad_answer_fails_the_pod_and_the_next_try_asks_again(
    node: Node, answers: Mapping[str, PrepareOutcome], told: str
) -> None:
    a = pod("a", "x")
    node.api.add("x", a)
    node.plugin.prepare_answers = lambda claims: answers
    with pytest.raises(DriverCallError, match=told):
        await node.claims.prepare(a)
    node.plugin.prepare_answers = None
    await node.claims.prepare(a)
    assert node.plugin.prepared == [("x-uid",), ("x-uid",)]


async def test_a_claim_that_cannot_be_unprepared_is_kept_for_the_next_try(node: Node) -> None:
    a = pod("a", "x")
    node.api.add("x", a)
    await node.claims.prepare(a)
    node.plugin.unprepare_answers = lambda claims: {"x-uid": "busy"}
    with pytest.raises(DriverCallError, match="could not unprepare ResourceClaim ns/x: busy"):
        await node.claims.unprepare(a)
    node.plugin.unprepare_answers = None
    await node.claims.unprepare(a)
    assert node.plugin.unprepared == ["x-uid", "x-uid"]


def not_allocated(claim: ResourceClaim) -> ResourceClaim:
    return msgspec.structs.replace(claim, status=ResourceClaimStatus())


def not_reserved(claim: ResourceClaim) -> ResourceClaim:
    return msgspec.structs.replace(claim, status=msgspec.structs.replace(claim.status, reserved_for=()))


@pytest.mark.parametrize(
    ("change", "told"),
    [(not_allocated, "is not allocated"), (not_reserved, "is not reserved for the pod"), (None, "does not exist")],
)
async def test_a_claim_that_is_not_the_pods_is_not_prepared(node: Node, change: Any, told: str) -> None:
    a = pod("a", "x")
    node.api.add("x", a)
    if change is None:
        node.api.objects.clear()
    else:
        node.api.objects["x"] = change(node.api.objects["x"])
    with pytest.raises(ClaimNotReadyError, match=told):
        await node.claims.prepare(a)
    assert node.plugin.prepared == []


async def test_a_new_claim_of_an_old_name_waits_for_the_end_of_the_old_one(node: Node) -> None:
    a, b = pod("a", "x"), pod("b", "x")
    node.api.add("x", a)
    await node.claims.prepare(a)
    node.api.add("x", b, uid="newer")
    with pytest.raises(ClaimNotReadyError, match="older"):
        await node.claims.prepare(b)
    await node.claims.unprepare(a)
    await node.claims.prepare(b)
    assert node.plugin.prepared == [("x-uid",), ("newer",)]


async def test_a_missing_driver_holds_the_pod_back(node: Node) -> None:
    a = pod("a", "x")
    node.api.add("x", a, drivers=["other.example"])
    with pytest.raises(DriverCallError, match=r"other\.example is not registered"):
        await node.claims.prepare(a)


@pytest.mark.parametrize(
    ("requests", "ids"),
    [
        ([""], ["x-uid-one", "x-uid-two/small"]),
        (["one"], ["x-uid-one"]),
        (["two"], ["x-uid-two/small"]),
        (["one", ""], ["x-uid-one", "x-uid-two/small"]),
        (["three"], []),
    ],
)
async def test_a_container_gets_the_devices_of_the_requests_it_names_each_once(
    node: Node, requests: Sequence[str], ids: Sequence[str]
) -> None:
    a = pod("a", "x", requests=requests)
    node.api.add("x", a)
    await node.claims.prepare(a)
    assert node.claims.cdi_ids(a, a.spec.containers[0]) == tuple(f"x.example/dev={id_}" for id_ in ids)


@pytest.fixture
def cdi_dir(root: Path) -> Path:
    edits = cdi.ContainerEdits(env=("A=b",))
    spec = cdi.Spec(
        kind=cdi.Kind(vendor="x.example", class_name="dev"), devices=(cdi.Device(name="d", container_edits=edits),)
    )
    cdi.Store(root / "cdi").write("x", spec)
    return root / "cdi"


def test_a_container_is_its_runtime_spec_with_the_cdi_edits_in_it(root: Path, cdi_dir: Path) -> None:
    containers, a = ContainerBundles(root / "containers", [cdi_dir]), pod("a")
    containers.start(a, a.spec.containers[0], ["x.example/dev=d"])
    spec = json.loads((root / "containers" / "a" / "main" / "config.json").read_text())
    assert "A=b" in spec["process"]["env"]
    containers.start(a, a.spec.containers[0], ["x.example/dev=gone"])  # it runs already
    containers.stop(a)
    assert list((root / "containers").iterdir()) == []


def test_a_device_that_no_cdi_file_defines_starts_no_container(root: Path, cdi_dir: Path) -> None:
    containers, a = ContainerBundles(root / "containers", [cdi_dir]), pod("a")
    with pytest.raises(cdi.CDIError, match=r"x\.example/dev=gone"):
        containers.start(a, a.spec.containers[0], ["x.example/dev=gone"])
    assert not (root / "containers").exists()
