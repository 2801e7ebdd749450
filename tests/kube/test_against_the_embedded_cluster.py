"""The parts together, over real sockets, with the embedded API server in place of the one in memory."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from http import HTTPStatus
from pathlib import Path

import anyio
import pytest
import yaml

from kerf_dra.api.core.v1 import EVENTS, LEASES, NODES, Lease, LeaseSpec, Node, ObjectReference
from kerf_dra.api.model.devices import (
    Attribute,
    Counter,
    CounterSet,
    Device,
    DeviceCounterConsumption,
    DeviceTaint,
    Pool,
    SliceContent,
)
from kerf_dra.api.model.metadata import ObjectMeta, OwnerReference
from kerf_dra.api.model.names import ObjectRef
from kerf_dra.api.model.quantity import Quantity
from kerf_dra.api.resource import registry
from kerf_dra.driver.kube.discovery import discover
from kerf_dra.driver.kube.events import EventReporter
from kerf_dra.driver.kube.http.client import Client, PatchType
from kerf_dra.driver.kube.http.config import load_access
from kerf_dra.driver.kube.http.errors import AlreadyExistsError, ConflictError, InvalidError, NotFoundError
from kerf_dra.driver.kube.informer import Informer
from kerf_dra.driver.kube.leader_election import LeaseSettings, run_as_leader
from kerf_dra.driver.kube.slice_publisher import PublishSettings
from kerf_dra.driver.kube.watch_decoder import EventType
from kerf_dra.driver.local.apiserver import ApiServer, ApiServerSettings
from kerf_dra.driver.local.apiserver.faults import InjectedFault
from tests.kube.awaited_publisher import AwaitedPublisher

IN_TIME_S = 120
"""For what takes milliseconds on an idle machine."""


@asynccontextmanager
async def cluster(tmp_path: Path, settings: ApiServerSettings | None = None) -> AsyncIterator[tuple[ApiServer, Client]]:
    server = ApiServer(settings=settings or ApiServerSettings())
    async with anyio.create_task_group() as group:
        await group.start(server.serve)
        kubeconfig = tmp_path / "kubeconfig"
        kubeconfig.write_text(yaml.safe_dump(server.kubeconfig()))
        async with Client(await load_access(kubeconfig), user_agent="kerf-test/1") as client:
            with anyio.fail_after(IN_TIME_S):
                yield server, client
        group.cancel_scope.cancel()


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    while not await condition():  # noqa: ASYNC110  (it is the server's state)
        await anyio.sleep(0.005)


def node(name: str, **labels: str) -> Node:
    return Node(metadata=ObjectMeta(name=name, labels=labels))


async def test_objects_are_created_changed_and_deleted(tmp_path: Path) -> None:
    async with cluster(tmp_path) as (_, client):
        made = await client.create(NODES, node("n1"), field_manager="kerf-test")
        with pytest.raises(AlreadyExistsError):
            await client.create(NODES, node("n1"))
        changed = await client.patch(NODES, "n1", {"metadata": {"labels": {"a": "1"}}}, type=PatchType.MERGE)
        assert changed.metadata.labels == {"a": "1"}
        add = [{"op": "add", "path": "/metadata/labels/b", "value": "2"}]
        assert (await client.patch(NODES, "n1", add, type=PatchType.JSON)).metadata.labels == {"a": "1", "b": "2"}
        assert (await client.get(NODES, "n1")).metadata.uid == made.metadata.uid
        with pytest.raises(ConflictError):
            await client.delete(NODES, "n1", uid="another")
        with pytest.raises(ConflictError):
            await client.delete(NODES, "n1", resource_version=made.metadata.resource_version)
        await client.delete(NODES, "n1", uid=made.metadata.uid)
        with pytest.raises(NotFoundError):
            await client.get(NODES, "n1")


async def test_applied_fields_that_are_not_applied_again_go(tmp_path: Path) -> None:
    async with cluster(tmp_path) as (_, client):
        before = {"metadata": {"name": "n1", "labels": {"a": "1", "b": "2"}}}
        await client.apply(NODES, before, field_manager="kerf-test")
        after = {"metadata": {"name": "n1", "labels": {"a": "3"}}}
        applied = await client.apply(NODES, after, field_manager="kerf-test")
        assert applied.metadata.labels == {"a": "3"}
        other = {"metadata": {"name": "n1", "labels": {"a": "4"}}}
        with pytest.raises(ConflictError):
            await client.apply(NODES, other, field_manager="other", force=False)
        assert (await client.apply(NODES, other, field_manager="other")).metadata.labels == {"a": "4"}


async def test_an_update_needs_the_resource_version_that_is_there(tmp_path: Path) -> None:
    async with cluster(tmp_path) as (_, client):
        held = await client.create(LEASES, Lease(metadata=ObjectMeta(name="l", namespace="default")))
        await client.update(LEASES, Lease(metadata=held.metadata, spec=LeaseSpec(holder_identity="me")))
        with pytest.raises(ConflictError):
            await client.update(LEASES, Lease(metadata=held.metadata))


async def test_what_the_server_refuses_is_told_with_the_field(tmp_path: Path) -> None:
    async with cluster(tmp_path) as (_, client):
        with pytest.raises(InvalidError, match=r"metadata\.name"):
            await client.create(NODES, node("Not A Name"))


async def test_a_list_of_more_than_a_page_is_whole_and_a_watch_goes_on_from_it(tmp_path: Path) -> None:
    async with cluster(tmp_path) as (_, client):
        for number in range(501):
            await client.create(NODES, node(f"n{number}"))
        listed = await client.list(NODES)
        assert len({value.metadata.name for value in listed.items}) == 501
        await client.create(NODES, node("later"))
        watch = client.watch(NODES, resource_version=listed.metadata.resource_version)
        async with aclosing(watch) as events:
            event = await anext(events)
        assert (event.type, event.ref) == (EventType.ADDED, ObjectRef("", "later"))


@pytest.mark.parametrize(
    "fault",
    [
        InjectedFault(kind="cut", after_lines=1),
        InjectedFault(code=HTTPStatus.GONE),
        InjectedFault(code=HTTPStatus.INTERNAL_SERVER_ERROR),
    ],
    ids=["cut", "410", "500"],
)
async def test_an_informer_follows_through_lost_and_expired_watches(tmp_path: Path, fault: InjectedFault) -> None:
    async with cluster(tmp_path) as (server, client):
        await client.create(NODES, node("n1"))
        informer = Informer(client, NODES, label_selector="!hidden")
        server.faults.add(fault, verb="watch", resource="nodes", times=2)
        async with anyio.create_task_group() as group:
            group.start_soon(informer.run)
            await informer.wait_synced()
            for number in range(2, 6):
                await client.create(NODES, node(f"n{number}"))
            await client.create(NODES, node("not-mine", hidden="yes"))
            await client.patch(NODES, "n2", {"metadata": {"labels": {"hidden": "yes"}}}, type=PatchType.MERGE)
            await client.delete(NODES, "n3")

            async def is_there() -> bool:
                return {ref.name for ref in informer.store.refs()} == {"n1", "n4", "n5"}

            await until(is_there)
            group.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("settings", "version", "split"),
    [
        (ApiServerSettings(), "v1", True),
        (ApiServerSettings(kubernetes=(1, 34)), "v1", False),
        (ApiServerSettings(kubernetes=(1, 33), resource_versions=("v1beta2", "v1beta1")), "v1beta2", False),
        (ApiServerSettings(kubernetes=(1, 32), resource_versions=("v1beta1",)), "v1beta1", False),
    ],
)
async def test_the_cluster_is_discovered(
    tmp_path: Path, settings: ApiServerSettings, version: str, split: bool
) -> None:
    async with cluster(tmp_path, settings) as (_, client):
        features = await discover(client)
    assert features.kubernetes == settings.kubernetes
    assert (features.resource.version, features.split_counter_slices) == (version, split)


def pool(letter: str = "a") -> Pool:
    """Counters and devices in slices of their own, as from Kubernetes 1.35."""
    one = {"slice-0": Counter(value=Quantity("1Gi"))}
    device = Device(
        name=f"gpu-{letter}",
        attributes={"model": Attribute.of(letter), "index": Attribute.of(0), "whole": Attribute.of(False)},
        consumes_counters=(DeviceCounterConsumption(counter_set="gpu-0", counters=one),),
        taints=(DeviceTaint(key="gpu.kerf.dev/ill", effect="NoSchedule"),),
    )
    return Pool(
        name="n1/gpu",
        slices=(
            SliceContent(shared_counters=(CounterSet(name="gpu-0", counters=one),)),
            SliceContent(devices=(device,)),
        ),
    )


@asynccontextmanager
async def publishing(client: Client, problems: list[str]) -> AsyncIterator[AwaitedPublisher]:
    owner = await client.create(NODES, node("n1"))
    publisher = AwaitedPublisher(
        client,
        (await discover(client)).resource,
        driver="gpu.kerf.dev",
        node_name="n1",
        owner=OwnerReference(api_version="v1", kind="Node", name="n1", uid=owner.metadata.uid),
        settings=PublishSettings(min_interval_s=0.05, repair_delay_s=0.1),
        on_problem=problems.append,
    )
    async with anyio.create_task_group() as group:
        group.start_soon(publisher.run)
        yield publisher
        group.cancel_scope.cancel()


@pytest.mark.parametrize("versions", [("v1",), ("v1beta2",), ("v1beta1",)])
async def test_slices_are_published_repaired_and_changed(tmp_path: Path, versions: tuple[str, ...]) -> None:
    problems: list[str] = []
    kind = registry.load_kinds(versions[0]).resource_slices
    async with cluster(tmp_path, ApiServerSettings(resource_versions=versions)) as (_, client):
        async with publishing(client, problems) as publisher:
            publisher.publish([pool("a")])
            await publisher.wait_published()
            first = (await client.list(kind)).items
            assert [len(value.spec.devices) for value in first] == [0, 1]

            for value in first:
                await client.delete(kind, value.metadata.name)

            async def is_back() -> bool:
                return len((await client.list(kind)).items) == 2

            await until(is_back)
            publisher.publish([pool("b")])
            await publisher.wait_published()
            second = (await client.list(kind)).items
            assert [device.name for value in second for device in value.spec.devices] == ["gpu-b"]
            assert len({value.spec.pool.generation for value in second}) == 1
        assert len((await client.list(kind)).items) == 2
    assert problems == []


async def test_fields_of_switched_off_features_are_noticed(tmp_path: Path) -> None:
    problems: list[str] = []
    dropped = {"resourceslices": ("spec.sharedCounters", "spec.devices[].consumesCounters", "spec.devices[].taints")}
    async with (
        cluster(tmp_path, ApiServerSettings(dropped_fields=dropped)) as (_, client),
        publishing(client, problems) as publisher,
    ):
        publisher.publish([pool()])
        await publisher.wait_published()
        assert publisher.dropped_fields == {"sharedCounters", "devices[].consumesCounters", "devices[].taints"}
    (problem,) = problems
    assert problem.endswith("switch on the feature gate DRADeviceTaints and DRAPartitionableDevices")


async def test_leadership_passes_from_one_to_the_next(tmp_path: Path) -> None:
    settings = LeaseSettings(duration_s=60, renew_deadline_s=40, retry_s=0.05)
    leading: list[str] = []

    async def contend(client: Client, name: str) -> None:
        async def body() -> None:
            leading.append(name)
            if len(leading) == 1:
                await anyio.sleep(0.2)  # and leaves; the other must be waiting by then

        await run_as_leader(client, ObjectRef("default", "kerf-controller"), name, settings, body)

    async with cluster(tmp_path) as (_, client):
        async with anyio.create_task_group() as group:
            group.start_soon(contend, client, "a")
            group.start_soon(contend, client, "b")
        lease = await client.get(LEASES, "kerf-controller", "default")
    assert sorted(leading) == ["a", "b"]
    assert (lease.spec.holder_identity, lease.spec.lease_transitions) == ("", 1)


async def test_events_are_there_to_be_read(tmp_path: Path) -> None:
    async with cluster(tmp_path) as (_, client), anyio.create_task_group() as group:
        reporter = EventReporter(client, component="kerf-controller", instance="pod-1")
        group.start_soon(reporter.run)
        about = ObjectReference(api_version="v1", kind="Node", name="n1", uid="u1")
        reporter.report(about, type="Warning", reason="CardLost", message="gpu-0 fell off the bus")

        async def is_there() -> bool:
            return bool((await client.list(EVENTS, field_selector="involvedObject.name=n1")).items)

        await until(is_there)
        (event,) = (await client.list(EVENTS, "default")).items
        assert (event.reason, event.type, event.count, event.involved_object.uid) == ("CardLost", "Warning", 1, "u1")
        group.cancel_scope.cancel()
