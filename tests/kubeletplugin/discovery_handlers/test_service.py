"""What nodes write of the devices that their handlers find, on an API server in memory and the virtual clock."""

import itertools
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

import anyio
import pytest

from kerf_dra.api.core.v1 import ObjectReference
from kerf_dra.api.discovery.v1alpha1 import DiscoveryRequest, FoundDevice
from kerf_dra.api.kerf.discovery_objects import device_name
from kerf_dra.driver.families.gpu import GPU
from kerf_dra.driver.kube.http.errors import UnreachableError
from kerf_dra.driver.kube.http.transport import HttpRequest
from kerf_dra.driver.kubeletplugin.discovery_handlers.base import HandlerError
from kerf_dra.driver.kubeletplugin.discovery_handlers.found_devices import MAX_DEVICES
from kerf_dra.driver.kubeletplugin.discovery_handlers.remote_handlers import HandlerRegistry
from kerf_dra.driver.kubeletplugin.discovery_handlers.service import DeviceDiscovery
from kerf_dra.driver.kubeletplugin.settings import Settings
from kerf_dra.driver.runtime.metrics import REGISTRY
from kerf_dra.driver.runtime.notifier import Notifier
from tests.kube.memory_server import MemoryServer, status
from tests.runtime.virtual_time import VIRTUAL_TIME, pass_time

SETTINGS = Settings(node_name="n1", family=GPU, backends=())
GRACE_S = SETTINGS.handler_grace_s
SOON_S = 5.0
"""More than what follows at once takes: no write waits longer where no list came before."""


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, object]]:
    return VIRTUAL_TIME


@dataclass
class Finder:
    """A handler that finds what a test says."""

    devices: Sequence[FoundDevice] = ()
    error: Exception | None = None
    is_silent: bool = False
    changed: Notifier = field(default_factory=Notifier)
    requests: list[tuple[float, DiscoveryRequest]] = field(default_factory=list)

    def find(self, *devices: FoundDevice) -> None:
        self.devices = devices
        self.changed.notify()

    def fail(self, error: Exception | None) -> None:
        self.error = error
        self.changed.notify()

    async def discover(self, request: DiscoveryRequest) -> AsyncGenerator[Sequence[FoundDevice], None]:
        self.requests.append((anyio.current_time(), request))
        if self.is_silent:
            await anyio.sleep_forever()
        while True:
            change = self.changed.next_event
            if self.error is not None:
                raise self.error
            yield self.devices
            await change.wait()


@dataclass
class Node:
    """A node with one handler, ``finder``."""

    name: str
    server: MemoryServer
    finder: Finder = field(default_factory=Finder)
    events: list[tuple[str, str]] = field(default_factory=list)
    registry: HandlerRegistry | None = None

    def report(self, about: ObjectReference, *, type: str, reason: str, message: str) -> None:  # noqa: A002
        assert (about.kind, type) == ("DiscoveryConfiguration", "Warning")
        self.events.append((reason, message))

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Node"]:
        settings = replace(SETTINGS, node_name=self.name)
        self.registry = HandlerRegistry({"finder": self.finder})
        discovery = DeviceDiscovery(settings, self.server.client(), self.registry, self.report)
        async with anyio.create_task_group() as group:
            group.start_soon(discovery.run)
            yield self
            group.cancel_scope.cancel()


def configure(server: MemoryServer, name: str = "cams", handler: str = "finder", details: str = "") -> None:
    spec = {"discoveryHandler": {"name": handler, "details": details}, "capacity": 3}
    server.put("discoveryconfigurations", {"metadata": {"name": name}, "spec": spec})


def devices(server: MemoryServer) -> dict[str, list[str]]:
    """The nodes of each device."""
    return {
        name: value["spec"].get("nodes", [])
        for (collection, _, name), value in server.objects.items()
        if collection == "discovereddevices"
    }


def camera(id_: str = "rtsp://10.0.0.7", **properties: str) -> FoundDevice:
    return FoundDevice(id=id_, shared=True, properties=properties)


def local(id_: str, **properties: str) -> FoundDevice:
    return FoundDevice(id=id_, properties=properties)


SHARED = device_name("cams", "rtsp://10.0.0.7", node=None)


async def test_ak_02_a_device_is_one_object_of_the_same_name_when_it_is_found_again_and_after_a_restart() -> None:
    server = MemoryServer()
    configure(server)
    node = Node("n1", server, Finder((local("/dev/video0"),)))
    for _ in range(2):
        async with node.running():
            await pass_time(SOON_S)
            node.finder.find(local("/dev/video1"), local("/dev/video0"))
            await pass_time(SOON_S)
    assert devices(server) == {device_name("cams", f"/dev/video{n}", node="n1"): ["n1"] for n in (0, 1)}
    assert len(server.sent("POST")) == 2
    assert not server.sent("PATCH")


async def test_every_write_names_the_plugin_as_its_writer() -> None:
    server = MemoryServer()
    configure(server)
    async with Node("n1", server, Finder((camera(),))).running(), Node("n2", server, Finder((camera(),))).running():
        await pass_time(60)
    created, entered = server.sent("POST"), server.sent("PATCH")
    assert created
    assert entered
    assert {request.query.get("fieldManager") for request in (*created, *entered)} == {SETTINGS.field_manager}


async def test_ak_03_a_shared_device_is_one_object_with_all_its_nodes_and_another_one_an_object_for_each_node() -> None:
    server = MemoryServer()
    configure(server)
    found = camera(), local("/dev/video0")
    async with Node("n1", server, Finder(found)).running(), Node("n2", server, Finder(found)).running():
        await pass_time(60)
    assert devices(server) == {
        SHARED: ["n1", "n2"],
        device_name("cams", "/dev/video0", node="n1"): ["n1"],
        device_name("cams", "/dev/video0", node="n2"): ["n2"],
    }


async def test_ak_18_a_device_that_its_handler_reports_gone_loses_the_node_and_keeps_its_object() -> None:
    server = MemoryServer()
    configure(server)
    async with (
        Node("n1", server, Finder((camera(),))).running() as one,
        Node("n2", server, Finder((camera(),))).running(),
    ):
        await pass_time(60)
        one.finder.find()
        await pass_time(SOON_S)
        assert devices(server) == {SHARED: ["n2"]}


async def test_ak_19_a_device_that_comes_back_is_the_same_object() -> None:
    server = MemoryServer()
    configure(server)
    async with Node("n1", server, Finder((camera(),))).running() as node:
        await pass_time(60)
        uid = server.objects["discovereddevices", "", SHARED]["metadata"]["uid"]
        node.finder.find()
        await pass_time(10)
        assert devices(server) == {SHARED: []}
        node.finder.find(camera())
        await pass_time(SOON_S)
    assert devices(server) == {SHARED: ["n1"]}
    assert server.objects["discovereddevices", "", SHARED]["metadata"]["uid"] == uid


async def test_ak_21_the_end_of_a_configuration_ends_its_handler_and_takes_the_node_off_its_devices() -> None:
    server = MemoryServer()
    configure(server)
    async with Node("n1", server, Finder((camera(),))).running() as node:
        await pass_time(SOON_S)
        owner = server.objects["discovereddevices", "", SHARED]["metadata"]["ownerReferences"][0]
        assert (owner["kind"], owner["name"], owner["uid"]) == ("DiscoveryConfiguration", "cams", "uid-1")
        server.remove("discoveryconfigurations", "cams")
        await pass_time(SOON_S)
        assert devices(server) == {SHARED: []}
        node.finder.find(camera("other"))
        await pass_time(60)
    assert devices(server) == {SHARED: []}


async def test_a_configuration_that_is_being_deleted_counts_as_deleted() -> None:
    server = MemoryServer()
    configure(server)
    async with Node("n1", server, Finder((camera(),))).running():
        await pass_time(SOON_S)
        held = server.objects["discoveryconfigurations", "", "cams"]
        metadata = {**held["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["x"]}
        server.put("discoveryconfigurations", {**held, "metadata": metadata})
        await pass_time(SOON_S)
    assert devices(server) == {SHARED: []}


async def test_what_happened_while_no_plugin_ran_is_caught_up() -> None:
    server = MemoryServer()
    configure(server)
    async with Node("n1", server, Finder((camera(), local("a"), local("b")))).running():
        await pass_time(SOON_S)
    async with Node("n1", server, Finder((local("b"),))).running():
        await pass_time(SOON_S)
    b = device_name("cams", "b", node="n1")
    assert devices(server) == {SHARED: [], device_name("cams", "a", node="n1"): [], b: ["n1"]}


async def test_devices_of_a_configuration_that_went_while_no_plugin_ran_lose_the_node() -> None:
    server = MemoryServer()
    configure(server)
    async with Node("n1", server, Finder((camera(),))).running():
        await pass_time(SOON_S)
    server.remove("discoveryconfigurations", "cams")
    async with Node("n1", server).running():
        await pass_time(SOON_S)
    assert devices(server) == {SHARED: []}


async def test_ak_22_devices_stay_for_a_grace_while_their_handler_fails_and_then_the_node_sees_none() -> None:
    server = MemoryServer()
    configure(server)
    async with Node("n1", server, Finder((camera(),))).running() as node:
        await pass_time(SOON_S)
        node.finder.fail(HandlerError("it is broken"))
        await pass_time(GRACE_S - SOON_S)
        assert devices(server) == {SHARED: ["n1"]}
        await pass_time(2 * SOON_S)
        assert devices(server) == {SHARED: []}
        node.finder.error = None
        await pass_time(120)
        assert devices(server) == {SHARED: ["n1"]}
    assert ("DiscoveryFailed", "node n1: handler finder: it is broken") in node.events


async def test_a_handler_that_is_back_within_the_grace_costs_no_write() -> None:
    server = MemoryServer()
    configure(server)
    async with Node("n1", server, Finder((camera(),))).running() as node:
        await pass_time(SOON_S)
        node.finder.fail(HandlerError("it is restarted"))
        await pass_time(SOON_S)
        node.finder.error = None
        await pass_time(600)
    assert devices(server) == {SHARED: ["n1"]}
    assert not server.sent("PATCH")


async def test_devices_stay_for_the_grace_when_the_plugin_starts_before_their_handler() -> None:
    server = MemoryServer()
    configure(server)
    async with Node("n1", server, Finder((camera(),))).running():
        await pass_time(SOON_S)
    async with Node("n1", server, Finder(is_silent=True)).running():
        await pass_time(GRACE_S - SOON_S)
        assert devices(server) == {SHARED: ["n1"]}
        await pass_time(2 * SOON_S)
        assert devices(server) == {SHARED: []}


async def test_ak_33_a_handler_that_fails_again_and_again_is_tried_at_most_a_minute_apart() -> None:
    server = MemoryServer()
    configure(server)
    async with Node("n1", server, Finder(error=ValueError("a fault of the handler"))).running() as node:
        await pass_time(1500)
    times = [time for time, _ in node.finder.requests]
    gaps = [later - earlier for earlier, later in itertools.pairwise(times)]
    limit = SETTINGS.retry.limit_s * (1 + SETTINGS.retry.jitter)
    assert len(times) > 20
    assert gaps[0] < 1
    assert all(gap <= limit for gap in gaps)
    assert all(gap >= SETTINGS.retry.limit_s for gap in gaps[10:])
    assert {reason for reason, _ in node.events} == {"DiscoveryFailed"}
    assert {message for _, message in node.events} == {"node n1: handler finder: unexpected error: ValueError"}


async def test_a_handler_that_says_nothing_is_given_up_and_tried_again() -> None:
    server = MemoryServer()
    configure(server)
    async with Node("n1", server, Finder(is_silent=True)).running() as node:
        await pass_time(600)
    assert 5 < len(node.finder.requests) < 10
    assert "has not said within" in node.events[0][1]


async def test_a_configuration_waits_without_an_event_for_a_handler_that_this_node_does_not_have() -> None:
    server = MemoryServer()
    configure(server, handler="onvif")
    async with Node("n1", server).running() as node:
        await pass_time(3600)
        assert not node.events
        assert node.registry is not None
        node.registry.add("onvif", Finder((camera(),)))
        await pass_time(SOON_S)
    assert devices(server) == {SHARED: ["n1"]}


async def test_what_a_configuration_says_reaches_its_handler_and_a_change_of_it_begins_anew() -> None:
    server = MemoryServer()
    configure(server, details="one")
    async with Node("n1", server).running() as node:
        await pass_time(SOON_S)
        configure(server, details="two")
        await pass_time(SOON_S)
        held = server.objects["discoveryconfigurations", "", "cams"]
        server.put("discoveryconfigurations", {**held, "status": {"observedGeneration": 2}})
        await pass_time(SOON_S)
    assert [request.details for _, request in node.finder.requests] == ["one", "two"]


async def test_a_change_of_a_configuration_takes_no_device_away_before_the_handler_has_answered() -> None:
    server = MemoryServer()
    configure(server, details="one")
    async with Node("n1", server, Finder((camera(),))).running() as node:
        await pass_time(SOON_S)
        node.finder.is_silent = True
        configure(server, details="two")
        await pass_time(GRACE_S - SOON_S)
        assert devices(server) == {SHARED: ["n1"]}


async def test_ak_23_two_devices_are_two_objects() -> None:
    server = MemoryServer()
    configure(server)
    async with Node("n1", server, Finder((local("foo"), local("bar")))).running():
        await pass_time(SOON_S)
    assert len(devices(server)) == 2


async def test_twelve_devices_of_four_configurations_are_twelve_objects() -> None:
    server = MemoryServer()
    for number in range(4):
        configure(server, name=f"c{number}")
    async with Node("n1", server, Finder([local(id_) for id_ in "abc"])).running():
        await pass_time(SOON_S)
    assert sorted(devices(server)) == sorted(device_name(f"c{n}", id_, node="n1") for n in range(4) for id_ in "abc")


async def test_a_bad_device_hides_no_other_and_is_told() -> None:
    server = MemoryServer()
    configure(server)
    async with Node("n1", server, Finder((local("a"), local("b\x00"), local("a\n")))).running() as node:
        await pass_time(SOON_S)
    assert list(devices(server)) == [device_name("cams", "a", node="n1")]
    assert [reason for reason, _ in node.events] == ["DevicesNotTaken"]


async def test_two_nodes_that_enter_at_once_are_both_entered() -> None:
    server = MemoryServer()
    configure(server)
    names = [f"n{number}" for number in range(8)]
    async with anyio.create_task_group() as group:

        async def run(name: str) -> None:
            async with Node(name, server, Finder((camera(),))).running():
                await pass_time(300)

        for name in names:
            group.start_soon(run, name)
    assert devices(server) == {SHARED: names}


async def test_an_object_that_somebody_deletes_comes_back_while_its_device_is_there() -> None:
    server = MemoryServer()
    configure(server)
    async with Node("n1", server, Finder((camera(),))).running():
        await pass_time(SOON_S)
        server.remove("discovereddevices", SHARED)
        await pass_time(SOON_S)
    assert devices(server) == {SHARED: ["n1"]}


async def test_an_api_server_that_fails_is_asked_again_until_all_is_written() -> None:
    server = MemoryServer()
    configure(server)
    failures: list[Callable[[HttpRequest], Exception]] = [
        lambda call: UnreachableError(str(call), "down"),
        lambda call: status(call, 500),
        lambda call: status(call, 409, "Conflict"),
    ]

    def fail(request: HttpRequest) -> Exception | None:
        return failures.pop()(request) if failures and request.method in {"POST", "PATCH"} else None

    server.faults.append(fail)
    async with Node("n1", server, Finder((camera(), local("a")))).running() as node:
        await pass_time(60)
        assert len(devices(server)) == 2
        node.finder.find()
        failures.append(lambda call: UnreachableError(str(call), "down"))
        await pass_time(60)
    assert set(map(tuple, devices(server).values())) == {()}


async def test_a_node_follows_its_own_devices_and_shared_ones_and_no_others() -> None:
    server = MemoryServer()
    configure(server)
    async with Node("n2", server, Finder((local("a"),))).running():
        await pass_time(SOON_S)
    before = len(server.requests)
    async with Node("n1", server, Finder((local("a"), camera()))).running():
        await pass_time(SOON_S)
    watched = {request.query.get("labelSelector") for _, request in server.requests[before:]}
    assert watched == {None, "kerf.dev/node in (Shared,n1)"}
    labels = {name: server.objects["discovereddevices", "", name]["metadata"]["labels"] for name in devices(server)}
    assert labels == {
        SHARED: {"kerf.dev/node": "Shared"},
        device_name("cams", "a", node="n1"): {"kerf.dev/node": "n1"},
        device_name("cams", "a", node="n2"): {"kerf.dev/node": "n2"},
    }


async def test_definitions_may_be_installed_after_the_plugin() -> None:
    server = MemoryServer()
    is_there = False

    def missing(request: HttpRequest) -> Exception | None:
        return None if is_there else status(request, 404, "NotFound")

    server.faults.append(missing)
    async with Node("n1", server, Finder((camera(),))).running():
        await pass_time(3600)
        assert len(server.requests) == pytest.approx(3600 / SETTINGS.classes_poll_s, abs=2)
        is_there = True
        configure(server)
        await pass_time(SETTINGS.classes_poll_s + SOON_S)
    assert devices(server) == {SHARED: ["n1"]}


async def test_ak_29_metrics_say_what_is_found_and_what_fails_and_forget_a_configuration_that_is_gone() -> None:
    server = MemoryServer()
    configure(server, name="counted")

    def read(name: str) -> float | None:
        return REGISTRY.get_sample_value(f"kerf_discovery_{name}", {"configuration": "counted"})

    async with Node("n1", server, Finder((camera(), local("a")))).running() as node:
        await pass_time(SOON_S)
        assert (read("devices"), read("lists_total"), read("failures_total")) == (2, 1, None)
        node.finder.fail(HandlerError("it is broken"))
        await pass_time(GRACE_S + SOON_S)
        assert read("devices") == 0
        assert (read("failures_total") or 0) > 3
        server.remove("discoveryconfigurations", "counted")
        await pass_time(SOON_S)
        assert (read("devices"), read("lists_total"), read("failures_total")) == (None, None, None)


async def test_an_hour_in_which_nothing_changes_costs_no_call() -> None:
    server = MemoryServer()
    configure(server)
    async with Node("n1", server, Finder((camera(),))).running():
        await pass_time(60)
        before = len(server.requests)
        await pass_time(3600)
        assert len(server.requests) == before


async def test_what_others_write_of_a_device_costs_this_node_no_call() -> None:
    server = MemoryServer()
    configure(server)
    async with Node("n1", server, Finder((camera(),))).running():
        await pass_time(60)
        before = len(server.requests)
        for number in range(100):
            held = server.objects["discovereddevices", "", SHARED]
            server.put("discovereddevices", {**held, "status": {"observedGeneration": number}})
            await pass_time(10)
        assert len(server.requests) == before


async def test_of_too_many_devices_the_same_are_taken_after_a_restart_and_a_change_of_the_configuration() -> None:
    server = MemoryServer()
    configure(server, details="one")
    async with Node("n1", server, Finder([local(f"z{number}") for number in range(MAX_DEVICES)])).running():
        await pass_time(SOON_S)
    before = devices(server)
    many = [local(f"{letter}{number}") for letter in "az" for number in range(MAX_DEVICES)]
    async with Node("n1", server, Finder(many)).running():
        await pass_time(SOON_S)
        configure(server, details="two")
        await pass_time(SOON_S)
    assert devices(server) == before
    assert len(before) == MAX_DEVICES


async def test_a_handler_that_changes_its_mind_all_the_time_costs_a_write_a_minute_for_each_device() -> None:
    server = MemoryServer()
    configure(server)
    async with Node("n1", server, Finder((local("a"),))).running() as node:
        for number in range(3600):
            node.finder.find(local("a", NUMBER=str(number)))
            await pass_time(1)
    assert len(server.sent("PATCH")) < 80
