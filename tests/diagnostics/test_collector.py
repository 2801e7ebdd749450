"""The collector reads both generations of DRA, and says what it may not read."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any

import anyio
import pytest
import yaml

from kerf_dra.api.core.v1 import (
    EVENTS,
    NODES,
    PODS,
    Container,
    Event,
    EventSource,
    Node,
    ObjectReference,
    Pod,
    PodResourceClaim,
    PodSpec,
)
from kerf_dra.api.model.classic import (
    ClassicClaim,
    ClassicClaimSpec,
    ClassicClass,
    ClassicRequest,
    PodSchedulingContext,
)
from kerf_dra.api.model.metadata import ObjectMeta
from kerf_dra.api.resource.v1alpha2 import KINDS as CLASSIC
from kerf_dra.driver.controller.settings import NAME as KERF_CONTROLLER
from kerf_dra.driver.diagnostics.cluster_state import ClusterState
from kerf_dra.driver.diagnostics.collector import PLUGIN_NAME, collect_state
from kerf_dra.driver.kube.http.client import Client, PatchType
from kerf_dra.driver.kube.http.config import load_access
from kerf_dra.driver.local.apiserver import ApiServer, ApiServerSettings
from kerf_dra.driver.local.apiserver.faults import InjectedFault

IN_TIME_S = 120
"""For what takes milliseconds on an idle machine."""
CHART = Path(__file__).parents[2] / "deploy" / "chart" / "kerf" / "templates" / "kubelet-plugin.yaml"
FORBIDDEN = InjectedFault(code=HTTPStatus.FORBIDDEN)


@asynccontextmanager
async def cluster(tmp_path: Path, **settings: Any) -> AsyncIterator[tuple[ApiServer, Client]]:
    server = ApiServer(settings=ApiServerSettings(**settings))
    async with anyio.create_task_group() as group:
        await group.start(server.serve)
        kubeconfig = tmp_path / "kubeconfig"
        kubeconfig.write_text(yaml.safe_dump(server.kubeconfig()))
        async with Client(await load_access(kubeconfig), user_agent="kerf-test/1") as client:
            with anyio.fail_after(IN_TIME_S):
                yield server, client
        group.cancel_scope.cancel()


async def collect(client: Client, namespace: str = "") -> ClusterState:
    return await collect_state(client, lambda: "2026-11-21T08:00:00+00:00", namespace)


async def create_pod(client: Client, name: str) -> Pod:
    spec = PodSpec(
        containers=(Container(name="main", image="busybox"),),
        resource_claims=(PodResourceClaim(name="gpu", resource_claim_name=name),),
    )
    return await client.create(PODS, Pod(metadata=ObjectMeta(name=name, namespace="default"), spec=spec))


async def report(
    client: Client, about: ObjectReference, reasons: Sequence[str], component: str = "kubelet", message: str = ""
) -> None:
    for number, reason in enumerate(reasons):
        event = Event(
            metadata=ObjectMeta(name=f"{about.name}.{about.kind}.{number}".lower(), namespace="default"),
            involved_object=about,
            reason=reason,
            message=message or f"message {number}",
            type="Warning",
            count=1,
            last_timestamp=f"2026-11-21T07:{number:02}:00Z",
            source=EventSource(component=component),
        )
        await client.create(EVENTS, event)


def about(pod: Pod, **fields: str) -> ObjectReference:
    metadata = pod.metadata
    named = {"kind": "Pod", "namespace": "default", "name": metadata.name, "uid": metadata.uid} | fields
    return ObjectReference(api_version="v1", **named)


async def test_events_about_devices_are_read_the_newest_of_each_pod(tmp_path: Path) -> None:
    async with cluster(tmp_path) as (_, client):
        made = await create_pod(client, "p")
        await report(client, about(made), ["FailedPrepareDynamicResources"] * 12)
        await report(client, about(made, name="gone", uid="of-another-pod"), ["FailedPrepareDynamicResources"])
        await report(client, about(made, name="other"), ["BackOff"])
        state = await collect(client)
    assert [event.message for event in state.events] == [f"message {number}" for number in range(11, 3, -1)]
    assert (state.forbidden_lists, state.resource_classes, state.classic) == ({}, (), None)


async def test_events_of_the_kubelet_and_of_plugins_are_read_as_far_as_they_are_about_devices(tmp_path: Path) -> None:
    """The first of the kubelet's reasons is that of every failed container, mostly for its image."""
    node = ObjectReference(api_version="v1", kind="Node", name="n", uid="n", namespace="default")
    async with cluster(tmp_path) as (_, client):
        made = await create_pod(client, "p")
        await report(client, about(made), ["Failed", "FailedMount", "Killing"])
        await report(client, about(made, kind="Container"), ["Failed"], message="unresolvable CDI devices x/y=z")
        await report(client, node, ["NodeNotReady", "CardInQuarantine", "CardFree"])
        state = await collect(client)
    assert sorted(event.reason for event in state.events) == ["CardFree", "CardInQuarantine", "Failed", "FailedMount"]
    assert {event.message for event in state.events if event.reason == "Failed"} == {"unresolvable CDI devices x/y=z"}


async def test_the_pods_of_kerfs_plugins_are_known_by_the_label_of_the_chart(tmp_path: Path) -> None:
    assert f"app.kubernetes.io/name: {PLUGIN_NAME}\n" in CHART.read_text()
    spec = PodSpec(containers=(Container(name="plugin", image="kerf"),), node_name="n")
    ready = {"conditions": [{"type": "Ready", "status": "True"}]}
    async with cluster(tmp_path) as (_, client):
        for name, label in (("ours", PLUGIN_NAME), ("starting", PLUGIN_NAME), ("other", "dcgm")):
            labels = {"app.kubernetes.io/name": label}
            made = Pod(metadata=ObjectMeta(name=name, namespace="default", labels=labels), spec=spec)
            await client.create(PODS, made)
        await client.patch(
            PODS, "ours", {"status": ready}, type=PatchType.MERGE, namespace="default", subresource="status"
        )
        state = await collect(client)
    assert sorted(each.is_ready for each in state.plugin_pods) == [False, True]
    assert {each.node for each in state.plugin_pods} == {"n"}
    assert state.pods == ()


async def test_without_permission_for_all_namespaces_events_of_one_are_read(tmp_path: Path) -> None:
    async with cluster(tmp_path) as (server, client):
        made = await create_pod(client, "p")
        await report(client, about(made), ["FailedPrepareDynamicResources"])
        server.faults.add(FORBIDDEN, verb="list", resource="events", times=1)
        state = await collect(client, namespace="default")
    assert len(state.events) == 1
    assert state.forbidden_lists == {}


@pytest.mark.parametrize("namespace", ["", "default"])
async def test_events_that_may_not_be_read_are_named_and_all_else_is_there(tmp_path: Path, namespace: str) -> None:
    async with cluster(tmp_path) as (server, client):
        await create_pod(client, "p")
        server.faults.add(FORBIDDEN, verb="list", resource="events", times=2)
        state = await collect(client, namespace)
    assert list(state.forbidden_lists) == ["events"]
    assert "403" in state.forbidden_lists["events"]
    assert len(state.pods) == 1


async def test_a_classic_cluster_is_collected_as_one(tmp_path: Path) -> None:
    async with cluster(tmp_path, kubernetes=(1, 30), resource_versions=("v1alpha2",)) as (_, client):
        await client.create(NODES, Node(metadata=ObjectMeta(name="node-1")))
        made = await create_pod(client, "p")
        metadata = ObjectMeta(name="p", namespace="default")
        spec = ClassicClaimSpec(requests=(ClassicRequest(class_name="gpu"),))
        await client.create(CLASSIC.claims, ClassicClaim(metadata=metadata, spec=spec))
        await client.create(
            CLASSIC.classes, ClassicClass(metadata=ObjectMeta(name="gpu"), driver_name="gpu.example.com")
        )
        await client.create(CLASSIC.scheduling_contexts, PodSchedulingContext(metadata=metadata))
        await report(client, about(made, kind="Pod"), ["Failed"], "resource driver gpu.example.com")
        await report(client, about(made, kind="ResourceClaim"), ["Failed"], KERF_CONTROLLER)
        await report(client, about(made, kind="PodSchedulingContext"), ["Failed"], "kubelet")
        state = await collect(client)
    classic = state.classic
    assert classic is not None
    assert state.kubernetes == "1.30"
    assert [claim.metadata.name for claim in classic.claims] == ["p"]
    assert [class_.driver_name for class_ in classic.classes] == ["gpu.example.com"]
    assert [context.metadata.name for context in classic.contexts] == ["p"]
    told = {event.involved_object.kind for event in state.events}
    assert told == {"Pod", "ResourceClaim"}, "the kubelet's `Failed` is about images"
    assert (classic.inventories, state.forbidden_lists) == ((), {})
