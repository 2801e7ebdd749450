"""What the controller writes of discovered devices, and when: on an API server in memory, under virtual time."""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import anyio
import pytest

from kerf_dra.api.core.v1 import NODES
from kerf_dra.api.kerf.discovery_objects import device_name
from kerf_dra.api.resource.v1 import KINDS
from kerf_dra.driver.controller.settings import NAME
from kerf_dra.driver.controller.structured.discovery.reconciler import DiscoveryReconciler
from kerf_dra.driver.kube.assume_cache import AssumeCache
from kerf_dra.driver.kube.events import EventReporter
from kerf_dra.driver.kube.http.transport import HttpRequest
from kerf_dra.driver.kube.http.write_history import UndoneWriteError
from kerf_dra.driver.kube.informer import Informer
from tests.kube.memory_server import Fault, MemoryServer, answering, failing, unreachable
from tests.runtime.virtual_time import VIRTUAL_TIME

START = datetime(2026, 1, 1, tzinfo=UTC)
QUIET_S = 60.0
"""More than all that follows from a change takes."""
RETRY_S = 600.0
GRACE_S = 3600
OWNERS = {"cameras": "rtsp://10.0.0.1", "printers": "ipp://10.0.0.2"}
CAMERA, PRINTER = (device_name(name, id_, node=None) for name, id_ in OWNERS.items())
SLICE, OTHER_SLICE = f"{CAMERA}-shared.kerf.dev", f"{PRINTER}-shared.kerf.dev"


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, object]]:
    return VIRTUAL_TIME


class Cluster:
    """Nodes ``n1`` and ``n2``, which see a camera, and the controller's part."""

    def __init__(self) -> None:
        self.server = MemoryServer()
        for name in ("n1", "n2"):
            self.label(name)
        self.configure("cameras")
        self.see("cameras", "n1", "n2")

    def label(self, node: str, **labels: str) -> None:
        usual = {"kubernetes.io/hostname": f"host-{node}"}
        self.server.put("nodes", {"metadata": {"name": node, "labels": {**usual, **labels}}})

    def configure(self, name: str, **spec: Any) -> None:
        usual = {"discoveryHandler": {"name": "byHand"}, "capacity": 3, "offlineGraceSeconds": GRACE_S}
        held = self.server.objects.get(("discoveryconfigurations", "", name), {"metadata": {"name": name}})
        self.server.put("discoveryconfigurations", {**held, "spec": {**usual, **spec}})

    def see(self, owner: str, *nodes: str) -> None:
        name = device_name(owner, OWNERS[owner], node=None)
        held = self.server.objects.get(("discovereddevices", "", name), {"metadata": {"name": name}})
        spec = {"configurationName": owner, "deviceID": OWNERS[owner], "shared": True, "nodes": [*nodes]}
        self.server.put("discovereddevices", {**held, "spec": spec})

    @asynccontextmanager
    async def controller(self, *, unseen: str = "") -> AsyncIterator[None]:
        """The controller runs inside, whose watch of the collection ``unseen`` shows nothing."""
        begun = anyio.current_time()
        client = self.server.client()
        nodes = Informer(client, NODES, on_change=lambda change: reconciler.on_node(change))
        slices = Informer(client, KINDS.resource_slices, on_change=lambda change: reconciler.on_slice(change))
        classes = Informer(client, KINDS.device_classes, on_change=lambda change: on_class(change))
        class_cache = AssumeCache(classes.store)

        def on_class(change: Any) -> None:
            class_cache.on_change(change)
            reconciler.on_device_class(change)

        events = EventReporter(client, component=NAME, instance="one")
        reconciler = DiscoveryReconciler(
            client,
            KINDS,
            device_classes=class_cache,
            slices=slices.store,
            nodes=nodes.store,
            events=events,
            settle_s=1.0,
            retry_s=RETRY_S,
            now=lambda: START + timedelta(seconds=anyio.current_time() - begun),
        )
        informers: dict[str, Informer[Any]] = {"nodes": nodes, "resourceslices": slices, "deviceclasses": classes}
        async with anyio.create_task_group() as group:
            for collection, informer in informers.items():
                if collection != unseen:
                    group.start_soon(informer.run)
                    await informer.wait_synced()
            group.start_soon(events.run)
            group.start_soon(reconciler.run)
            await anyio.sleep(QUIET_S)
            yield
            group.cancel_scope.cancel()

    def names(self, collection: str) -> set[str]:
        return {name for kind, _, name in self.server.objects if kind == collection}

    def find(self, collection: str, name: str) -> Any:
        return self.server.objects[collection, "", name]

    def reasons(self, collection: str, name: str) -> list[str]:
        return [one["reason"] for one in self.find(collection, name)["status"]["conditions"]]

    def count_writes(self) -> int:
        return len([request for _, request in self.server.requests if request.method != "GET"])

    def patch(self, collection: str, name: str, **spec: Any) -> None:
        """Have somebody change an object."""
        held = self.find(collection, name)
        self.server.put(collection, {**held, "spec": {**held["spec"], **spec}})


def undoing(name: str) -> Fault:
    """Refuse that an object of this name is created, as one that another program has deleted each time."""

    def refuse(request: HttpRequest) -> Exception | None:
        is_named = request.method == "POST" and f'"{name}"' in f"{request.body!r}"
        return UndoneWriteError(str(request), 3, 30) if is_named else None

    return refuse


def refusing(name: str, code: int = 422, reason: str = "Invalid") -> Fault:
    """Refuse that an object of this name is created, for good unless another answer is given."""
    refuse = answering(code, reason)
    return lambda request: refuse(request) if request.method == "POST" and f'"{name}"' in f"{request.body!r}" else None


async def test_an_object_with_another_name_than_its_own_is_removed_each_time_and_its_node_is_reported(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    cluster = Cluster()
    spec = {"configurationName": "printers", "deviceID": "else", "shared": True, "nodes": ["n2"], "foundBy": "n2"}
    cluster.configure("printers")
    async with cluster.controller():
        for _ in range(2):
            cluster.server.put("discovereddevices", {"metadata": {"name": PRINTER}, "spec": spec})
            await anyio.sleep(QUIET_S)
            assert cluster.names("discovereddevices") == {CAMERA}
            assert cluster.names("resourceslices") == {SLICE}
        cluster.see("printers", "n1")
        await anyio.sleep(QUIET_S)
        assert cluster.names("resourceslices") == {SLICE, OTHER_SLICE}
    [event] = [one for (kind, _, _), one in cluster.server.objects.items() if kind == "events"]
    assert (event["involvedObject"]["kind"], event["involvedObject"]["name"]) == ("Node", "n2")
    assert f"{PRINTER}: metadata.name must be" in event["message"]
    assert sum(PRINTER in message and "metadata.name must be" in message for message in caplog.messages) == 2


async def test_a_node_that_leaves_is_gone_from_the_device_although_nothing_else_has_changed() -> None:
    cluster = Cluster()
    async with cluster.controller():
        cluster.server.remove("nodes", "n2")
        await anyio.sleep(QUIET_S)
        assert cluster.find("discovereddevices", CAMERA)["spec"]["nodes"] == ["n1"]


@pytest.mark.parametrize(
    "answer", [None, answering(404), answering(404, "NotFound")], ids=["it is there", "a page", "?"]
)
async def test_a_node_that_the_watch_lacks_stays_in_its_devices_until_the_server_says_that_it_is_gone(
    answer: Any,
) -> None:
    cluster = Cluster()
    if answer is not None:
        cluster.server.faults.append(failing(answer, method="GET", name="nodes/"))
    async with cluster.controller(unseen="nodes"):
        await anyio.sleep(2 * RETRY_S)
        assert cluster.find("discovereddevices", CAMERA)["spec"]["nodes"] == ["n1", "n2"]
        cluster.server.faults.clear()
        cluster.server.remove("nodes", "n2")
        cluster.configure("cameras", capacity=4)
        await anyio.sleep(2 * RETRY_S)
        assert cluster.find("discovereddevices", CAMERA)["spec"]["nodes"] == ["n1"]


async def test_a_device_that_somebody_has_made_is_published_when_it_has_the_label_by_which_plugins_find_it() -> None:
    """Else a pod could come to a node whose plugin does not know the device yet."""
    cluster = Cluster()
    assert "labels" not in cluster.find("discovereddevices", CAMERA)["metadata"]
    async with cluster.controller():
        assert cluster.find("discovereddevices", CAMERA)["metadata"]["labels"] == {"kerf.dev/node": "Shared"}
        writes = [request for _, request in cluster.server.requests if request.method in ("POST", "PATCH")]
        assert [request.path.split("/")[4] for request in writes][:2] == ["discovereddevices", "resourceslices"]
        assert not writes[0].path.endswith("/status")


async def test_a_node_that_comes_or_is_renamed_is_selected() -> None:
    def selected() -> Any:
        [term] = cluster.find("resourceslices", SLICE)["spec"]["nodeSelector"]["nodeSelectorTerms"]
        return term["matchExpressions"][0]["values"]

    cluster = Cluster()
    async with cluster.controller():
        assert selected() == ["host-n1", "host-n2"]
        cluster.label("n2", **{"kubernetes.io/hostname": "other"})
        await anyio.sleep(QUIET_S)
        assert selected() == ["host-n1", "other"]


@pytest.mark.parametrize("how", ["is changed", "is deleted"])
@pytest.mark.parametrize(
    ("collection", "name", "drift"),
    [
        ("resourceslices", SLICE, {"devices": []}),
        ("deviceclasses", f"{CAMERA}.shared.kerf.dev", {"selectors": []}),
        ("deviceclasses", "cameras.shared.kerf.dev", {"selectors": [], "extendedResourceName": "example.com/all"}),
    ],
)
async def test_what_somebody_has_changed_or_deleted_is_written_again(
    collection: str, name: str, drift: dict[str, Any], how: str
) -> None:
    cluster = Cluster()
    async with cluster.controller():
        intended = cluster.find(collection, name)["spec"]
        if how == "is changed":
            cluster.patch(collection, name, **drift)
        else:
            cluster.server.remove(collection, name)
        await anyio.sleep(QUIET_S)
        assert cluster.find(collection, name)["spec"] == intended


@pytest.mark.parametrize("unseen", ["", "resourceslices", "deviceclasses"])
async def test_what_was_written_is_not_written_again_although_the_watch_does_not_show_it(unseen: str) -> None:
    cluster = Cluster()
    async with cluster.controller(unseen=unseen):
        before = cluster.count_writes()
        cluster.see("cameras", "n1", "n2")
        cluster.label("n1", zone="a")
        await anyio.sleep(QUIET_S)
        assert cluster.count_writes() == before


async def test_what_the_server_keeps_otherwise_is_not_written_again() -> None:
    """A server may drop fields that it does not know, or set others."""
    cluster = Cluster()

    def keep(value: Any) -> Any:
        if "shared.kerf.dev" not in value["metadata"]["name"]:
            return value
        return {**value, "spec": {name: field for name, field in value["spec"].items() if name != "selectors"}}

    cluster.server.on_write = keep
    async with cluster.controller():
        before = cluster.count_writes()
        cluster.label("n1", **{"kubernetes.io/hostname": "other"})
        await anyio.sleep(QUIET_S)
        assert cluster.count_writes() == before + 1, "the slice"


async def test_a_successor_writes_nothing_that_is_there_already() -> None:
    cluster = Cluster()
    async with cluster.controller():
        before = cluster.count_writes()
    async with cluster.controller():
        assert cluster.count_writes() == before


async def test_a_slice_that_the_server_keeps_otherwise_is_not_written_again() -> None:
    cluster = Cluster()

    def keep(value: Any) -> Any:
        if "devices" not in value["spec"]:
            return value
        bare = [
            {name: field for name, field in each.items() if name != "attributes"} for each in value["spec"]["devices"]
        ]
        return {**value, "spec": {**value["spec"], "devices": bare}}

    cluster.server.on_write = keep
    async with cluster.controller():
        before = cluster.count_writes()
        cluster.see("cameras", "n1", "n2")
        await anyio.sleep(QUIET_S)
        assert cluster.count_writes() == before


async def test_a_server_that_drops_shares_gets_devices_for_one_user_each_and_an_administrator_reads_why(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def drop(value: Any) -> Any:
        for device in value.get("spec", {}).get("devices", ()):
            device.pop("allowMultipleAllocations", None)
            device["capacity"]["users"].pop("requestPolicy", None)
        return value

    cluster = Cluster()
    cluster.server.on_write = drop
    async with cluster.controller():
        [device] = cluster.find("resourceslices", SLICE)["spec"]["devices"]
        assert device["capacity"]["users"] == {"value": "1"}
        assert cluster.reasons("discovereddevices", CAMERA) == ["NotShareable"]
        cluster.configure("printers")
        cluster.see("printers", "n1")
        await anyio.sleep(QUIET_S)
        assert cluster.names("resourceslices") == {SLICE, OTHER_SLICE}
    assert [record.levelname for record in caplog.records if "one user each" in record.message] == ["ERROR"]


async def test_a_class_of_somebody_else_is_left_as_it_is_and_the_configuration_says_so() -> None:
    cluster = Cluster()
    other = {"metadata": {"name": "cameras.shared.kerf.dev"}, "spec": {"selectors": []}}
    before = cluster.server.put("deviceclasses", other)
    async with cluster.controller():
        assert cluster.find("deviceclasses", "cameras.shared.kerf.dev") == before
        assert cluster.reasons("discoveryconfigurations", "cameras") == ["Valid", "NameTaken"]
        cluster.server.remove("deviceclasses", "cameras.shared.kerf.dev")
        await anyio.sleep(QUIET_S)
        assert cluster.reasons("discoveryconfigurations", "cameras") == ["Valid", "Compiled"]
        assert "cameras.shared.kerf.dev" in cluster.names("deviceclasses")


@pytest.mark.parametrize(
    ("fault", "written", "message"),
    [
        (failing(answering(403, "Forbidden"), method="POST", name="resourceslices"), set(), "cannot be published"),
        (failing(unreachable, method="POST", name="resourceslices"), set(), "cannot be published"),
        (refusing(SLICE), {OTHER_SLICE}, SLICE),
        (undoing(SLICE), {OTHER_SLICE}, SLICE),
    ],
    ids=["all may not be written", "the server is gone", "one is refused for good", "another program undoes one"],
)
async def test_a_write_that_fails_is_said_once_and_tried_again(
    fault: Fault, written: set[str], message: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    cluster = Cluster()
    cluster.configure("printers")
    cluster.see("printers", "n1")
    cluster.server.faults.append(fault)
    async with cluster.controller():
        assert cluster.names("resourceslices") == written
        for capacity in (1, 2):
            cluster.configure("cameras", capacity=capacity)
            await anyio.sleep(QUIET_S)
        assert [message in record.message for record in caplog.records] == [True]
        cluster.server.faults.clear()
        await anyio.sleep(RETRY_S)
        assert cluster.names("resourceslices") == {SLICE, OTHER_SLICE}


@pytest.mark.parametrize(("code", "reason"), [(404, "NotFound"), (409, "AlreadyExists"), (409, "Conflict")])
async def test_a_write_that_comes_too_late_is_no_failure_and_keeps_no_other_waiting(
    code: int, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    cluster = Cluster()
    cluster.configure("printers")
    cluster.see("printers", "n1")
    for name, written in ((SLICE, {OTHER_SLICE}), (OTHER_SLICE, {SLICE, OTHER_SLICE})):
        cluster.server.faults = [refusing(name, code, reason)]
        async with cluster.controller():
            assert cluster.names("resourceslices") == written
    assert [record for record in caplog.records if "shared.kerf.dev" in record.message] == []


async def test_what_was_refused_of_a_device_that_is_gone_is_forgotten(caplog: pytest.LogCaptureFixture) -> None:
    """Else the controller went through all devices every few seconds for an object that nobody has any more."""
    caplog.set_level(logging.WARNING)
    cluster = Cluster()
    cluster.server.faults.append(refusing(SLICE))
    async with cluster.controller():
        for _ in range(2):
            cluster.see("cameras", "n1")
            await anyio.sleep(QUIET_S)
            cluster.server.remove("discovereddevices", CAMERA)
            await anyio.sleep(QUIET_S)
    assert [SLICE in record.message for record in caplog.records] == [True, True]


async def test_the_configuration_counts_the_devices_that_nodes_see_down_to_none_and_says_it_once() -> None:
    def counts() -> Any:
        return cluster.find("discoveryconfigurations", "cameras")["status"]["devices"]

    cluster = Cluster()
    async with cluster.controller():
        assert counts() == {"total": 1, "online": 1}
        cluster.see("cameras")
        await anyio.sleep(QUIET_S)
        assert counts() == {"total": 1}
        before = cluster.count_writes()
        await anyio.sleep(QUIET_S)
        assert cluster.count_writes() == before


async def test_ak_19_a_device_that_nobody_sees_is_deleted_when_its_grace_is_over_and_not_before() -> None:
    cluster = Cluster()
    async with cluster.controller():
        cluster.see("cameras")
        await anyio.sleep(GRACE_S - QUIET_S)
        assert cluster.reasons("discovereddevices", CAMERA) == ["Offline"]
        assert cluster.names("resourceslices") == set()
        await anyio.sleep(2 * QUIET_S)
        assert cluster.names("discovereddevices") == set()


async def test_a_device_that_comes_back_while_it_is_being_deleted_stays() -> None:
    cluster = Cluster()

    def come_back(request: HttpRequest) -> None:
        if request.method == "DELETE" and "discovereddevices" in request.path:
            cluster.see("cameras", "n1")

    cluster.server.faults.append(come_back)
    async with cluster.controller():
        cluster.see("cameras")
        await anyio.sleep(GRACE_S + QUIET_S)
        assert cluster.server.sent("DELETE"), "the slice and the device"
        assert cluster.reasons("discovereddevices", CAMERA) == ["Published"]
        assert cluster.names("resourceslices") == {SLICE}


async def test_every_write_names_its_writer() -> None:
    cluster = Cluster()
    async with cluster.controller():
        cluster.label("n1", **{"kubernetes.io/hostname": "other"})
        cluster.server.remove("nodes", "n2")
        cluster.patch("deviceclasses", "cameras.shared.kerf.dev", selectors=[])
        await anyio.sleep(QUIET_S)
        writes = [*cluster.server.sent("POST"), *cluster.server.sent("PATCH")]
        assert {request.path.split("/")[4] for request in writes} == {
            "deviceclasses",
            "discovereddevices",
            "discoveryconfigurations",
            "resourceslices",
        }
        assert {request.query.get("fieldManager") for request in writes} == {NAME}


async def test_a_slice_of_nothing_is_deleted_and_one_of_a_node_is_left_to_it() -> None:
    cluster = Cluster()
    old = {"driver": "shared.kerf.dev", "pool": {"name": "old", "generation": 1, "resourceSliceCount": 1}}
    cluster.server.put("resourceslices", {"metadata": {"name": "old"}, "spec": {**old, "allNodes": True}})
    cluster.server.put("resourceslices", {"metadata": {"name": "of-n1"}, "spec": {**old, "nodeName": "n1"}})
    async with cluster.controller():
        assert cluster.names("resourceslices") == {SLICE, "of-n1"}


async def test_nothing_is_written_until_the_definitions_are_there() -> None:
    cluster = Cluster()
    cluster.server.faults.append(failing(answering(404, "NotFound"), name="discovereddevices"))
    async with cluster.controller():
        assert cluster.count_writes() == 0
        cluster.server.faults.clear()
        await anyio.sleep(RETRY_S)
        assert cluster.names("resourceslices") == {SLICE}
