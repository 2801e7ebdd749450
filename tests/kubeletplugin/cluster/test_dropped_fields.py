"""The fields that the API server drops are known before anything is published, and the probe leaves nothing."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
import yaml

from kerf_dra.api.core.v1 import Node
from kerf_dra.api.model.metadata import ObjectMeta
from kerf_dra.api.model.names import DriverName
from kerf_dra.api.resource.v1 import KINDS
from kerf_dra.driver.families.gpu import GPU
from kerf_dra.driver.kube.discovery import discover
from kerf_dra.driver.kube.http.client import Client
from kerf_dra.driver.kube.http.config import load_access
from kerf_dra.driver.kube.http.errors import NotFoundError, UnexpectedAnswerError
from kerf_dra.driver.kubeletplugin.cluster.dropped_fields import (
    GatesChangedError,
    probe_dropped_fields,
    probe_list_attributes,
    watch_dropped_fields,
)
from kerf_dra.driver.kubeletplugin.cluster.node_watch import NodeWatch
from kerf_dra.driver.kubeletplugin.cluster.resource_classes import ResourceClassWatch
from kerf_dra.driver.kubeletplugin.cluster.structured import StructuredCluster
from kerf_dra.driver.kubeletplugin.inventory.devices import PublishTarget
from kerf_dra.driver.kubeletplugin.settings import Settings
from kerf_dra.driver.local.apiserver import ApiServer, ApiServerSettings
from kerf_dra.driver.partitions.slice_limits import SliceLayout
from tests.fakes.claims import DRIVER, NODE, VOCABULARIES
from tests.kube.memory_server import MemoryServer, answering, failing
from tests.kubeletplugin.harness import LONGEST_S
from tests.runtime.virtual_time import VIRTUAL_TIME

COUNTERS = ("devices[].consumesCounters", "sharedCounters")
SHARES = ("devices[].allowMultipleAllocations", "devices[].capacity{}.requestPolicy")
CONDITIONS = ("devices[].bindingConditions", "devices[].bindingFailureConditions")
LISTS = ("devices[].attributes{}.strings", "devices[].attributes{}.ints")
VERSIONS = pytest.mark.parametrize("version", ["v1", "v1beta2", "v1beta1"])


@asynccontextmanager
async def client_of(directory: Path, settings: ApiServerSettings) -> AsyncIterator[Client]:
    server = ApiServer(settings=settings)
    with anyio.fail_after(LONGEST_S):
        async with anyio.create_task_group() as group:
            await group.start(server.serve)
            (directory / "kubeconfig").write_text(yaml.safe_dump(server.kubeconfig()))
            async with Client(await load_access(directory / "kubeconfig"), user_agent="kerf-test/1") as client:
                yield client
            group.cancel_scope.cancel()


async def lost(directory: Path, version: str, layout: SliceLayout, dropped: Sequence[str]) -> set[str]:
    fields = {"resourceslices": [f"spec.{path}" for path in dropped]}
    settings = ApiServerSettings(resource_versions=(version,), dropped_fields=fields)
    async with client_of(directory, settings) as client:
        kind = (await discover(client)).resource.resource_slices
        found = await probe_dropped_fields(
            client, kind, PublishTarget(driver=DriverName(DRIVER), node=NODE, layout=layout, vocabularies=VOCABULARIES)
        )
        assert not (await client.list(kind)).items, "a question leaves nothing behind"
        return set(found)


@VERSIONS
async def test_a_server_that_keeps_all_fields_loses_none(
    tmp_path: Path, version: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert await lost(tmp_path, version, SliceLayout.SPLIT, ()) == set()
    assert "cannot ask" not in caplog.text


@pytest.mark.parametrize("feature", [("devices[].consumesCounters",), SHARES, CONDITIONS])
async def test_fields_whose_gate_is_off_are_named(tmp_path: Path, feature: tuple[str, ...]) -> None:
    """``{}`` in the server's setting stands for any key."""
    expected = {path.replace("{}", ".memory") for path in feature}
    assert await lost(tmp_path, "v1", SliceLayout.SPLIT, feature) == expected


async def test_counters_that_stand_beside_their_devices_are_asked_for_too(tmp_path: Path) -> None:
    assert await lost(tmp_path, "v1", SliceLayout.COMBINED, COUNTERS) == set(COUNTERS)


async def test_a_server_that_refuses_the_question_is_taken_to_keep_all_until_a_loss_shows(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with client_of(tmp_path, ApiServerSettings()) as client:
        kind = (await discover(client)).resource.resource_slices
        nowhere = PublishTarget(
            driver=DriverName(DRIVER), node="not a name", layout=SliceLayout.SPLIT, vocabularies=VOCABULARIES
        )
        assert await probe_dropped_fields(client, kind, nowhere) == frozenset()
    assert "cannot find out which fields of slices the API server keeps" in caplog.text


@pytest.mark.parametrize(("lost", "takes_lists"), [((), True), (LISTS, False), (LISTS[:1], False)])
async def test_whether_lists_are_taken_is_asked_without_a_trace(
    tmp_path: Path, lost: tuple[str, ...], takes_lists: bool
) -> None:
    fields = {"resourceslices": [f"spec.{path}" for path in lost]}
    async with client_of(tmp_path, ApiServerSettings(dropped_fields=fields)) as client:
        kind = (await discover(client)).resource.resource_slices
        target = PublishTarget(
            driver=DriverName(DRIVER), node=NODE, layout=SliceLayout.SPLIT, vocabularies=VOCABULARIES
        )
        assert await probe_list_attributes(client, kind, target) is takes_lists
        assert not (await client.list(kind)).items, "a question leaves nothing behind"


@pytest.mark.parametrize(("lost", "can_evict"), [((), True), (("devices[].taints",), False)])
async def test_a_server_that_keeps_no_taints_evicts_nobody_by_them(
    tmp_path: Path, lost: tuple[str, ...], can_evict: bool
) -> None:
    fields = {"resourceslices": [f"spec.{path}" for path in lost]}
    async with client_of(tmp_path, ApiServerSettings(dropped_fields=fields)) as client:
        node = NodeWatch(client, Node(metadata=ObjectMeta(name=NODE, uid="1")))
        settings = Settings(node_name=NODE, family=GPU, backends=())
        classes = ResourceClassWatch(client)
        cluster = await StructuredCluster.connect(client, await discover(client), node, settings, classes)
        assert cluster.can_evict is can_evict


@pytest.mark.parametrize(
    "documents",
    [
        {
            "/apis/kerf.dev": {"versions": [{"version": "v1alpha1"}]},
            "/apis/kerf.dev/v1alpha1": {"resources": [{"name": "resourceclasses"}]},
        },
        {"/apis/kerf.dev": {"versions": [{"version": "v1alpha1"}]}, "/apis": {"groups": [{"name": "kerf.dev"}]}},
        {"/apis": {"groups": [{"name": "apps"}, {"name": "kerf.dev"}]}},
        {},
    ],
    ids=["a kind that is served", "a version that is served", "a group that is served", "nothing but 404"],
)
@pytest.mark.parametrize("anyio_backend", [VIRTUAL_TIME], ids=["virtual time"])
async def test_a_404_that_discovery_does_not_confirm_withdraws_no_shares(
    anyio_backend: object, documents: dict[str, Any]
) -> None:
    """A proxy's page at a start was a cluster without classes: shares that pods had were withdrawn for a minute."""
    server = MemoryServer(json=documents)
    server.faults.append(
        lambda request: None if request.path in documents else NotFoundError("GET", 404, "", "default backend - 404")
    )
    with pytest.raises(UnexpectedAnswerError, match=r"404|no answer that the"):
        await ResourceClassWatch(server.client()).list_now()


@pytest.mark.parametrize("anyio_backend", [VIRTUAL_TIME], ids=["virtual time"])
async def test_classes_are_watched_once_they_can_be_listed(anyio_backend: object) -> None:
    server = MemoryServer()
    server.json["/apis"] = {"groups": [{"name": "apps"}]}
    server.faults.append(failing(answering(404, "NotFound"), name="/kerf.dev"))
    watch = ResourceClassWatch(server.client())
    assert await watch.list_now() is None
    server.requests.clear()
    async with anyio.create_task_group() as group:
        group.start_soon(partial(watch.follow, lambda: None, poll_s=60))
        await anyio.sleep(3600)
        synced = [watch.synced]
        assert len(server.requests) == 59, "once a minute"
        server.faults.clear()
        await anyio.sleep(61)
        assert [*synced, watch.synced] == [False, True]
        group.cancel_scope.cancel()


@pytest.mark.parametrize("anyio_backend", [VIRTUAL_TIME], ids=["virtual time"])
async def test_a_server_that_takes_a_slice_without_its_lists_takes_no_lists(anyio_backend: object) -> None:
    server = MemoryServer()
    server.on_write = lambda value: {**value, "spec": {**value["spec"], "devices": [{"name": "listed"}]}}
    target = PublishTarget(driver=DriverName(DRIVER), node=NODE, layout=SliceLayout.SPLIT, vocabularies=VOCABULARIES)
    assert not await probe_list_attributes(server.client(), KINDS.resource_slices, target)


class GatedServer:
    """An API server whose gates are switched on and off."""

    def __init__(self, *dropped: str) -> None:
        self.dropped = set(dropped)
        self.server = MemoryServer()
        self.server.on_write = self._drop
        self.server.faults.append(lambda _: self.server.objects.clear())  # a dry run stores nothing

    def _drop(self, value: dict[str, Any]) -> dict[str, Any]:
        spec = value["spec"]
        devices = [{key: held for key, held in each.items() if key not in self.dropped} for each in spec["devices"]]
        return {**value, "spec": {**spec, "devices": devices}}

    async def watch(self, dropped: set[str]) -> None:
        layout = SliceLayout.SPLIT
        target = PublishTarget(driver=DriverName(DRIVER), node=NODE, layout=layout, vocabularies=VOCABULARIES)
        with anyio.move_on_after(3600):
            await watch_dropped_fields(self.server.client(), KINDS.resource_slices, target, dropped)


@pytest.mark.parametrize("anyio_backend", [VIRTUAL_TIME], ids=["virtual time"])
async def test_a_gate_that_is_switched_on_starts_the_plugin_again(anyio_backend: object) -> None:
    """Partitions, shares or conditions stayed unpublished until a person started the plugin again."""
    gated = GatedServer("taints", "bindingConditions")
    async with anyio.create_task_group() as group:

        async def switch_on() -> None:
            await anyio.sleep(1800)
            gated.dropped.discard("bindingConditions")

        group.start_soon(switch_on)
        with pytest.raises(GatesChangedError, match="keeps bindingConditions now"):
            await gated.watch({"devices[].taints", "devices[].bindingConditions"})


@pytest.mark.parametrize("anyio_backend", [VIRTUAL_TIME], ids=["virtual time"])
@pytest.mark.parametrize(
    ("dropped", "asked"),
    [
        ((), 0),
        (("devices[].taints",), 5),
        (("devices[].capacity.decoders.allowMultipleAllocations",), 5),
        (("sharedCounters", "devices[].skipNodeOperations"), 0),
    ],
    ids=["nothing", "a field", "a field elsewhere", "fields that no dry run has"],
)
async def test_while_a_gate_stays_off_it_is_asked_six_times_an_hour_and_nothing_ends(
    anyio_backend: object, dropped: tuple[str, ...], asked: int
) -> None:
    gated = GatedServer("taints", "allowMultipleAllocations")
    await gated.watch({*dropped})
    assert len(gated.server.sent("POST")) == asked


@pytest.mark.parametrize("anyio_backend", [VIRTUAL_TIME], ids=["virtual time"])
async def test_a_dry_run_that_is_refused_says_nothing_of_gates(anyio_backend: object) -> None:
    gated = GatedServer()
    gated.server.faults.append(failing(answering(403, "Forbidden"), method="POST"))
    await gated.watch({"devices[].taints"})
    assert len(gated.server.sent("POST")) == 5
