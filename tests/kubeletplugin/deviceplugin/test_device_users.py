"""Any history of nodes that list, allocate, release and crash at once: no device has more users than its capacity.

Each call of the real offer goes on by one request to the API server at a time, in any order with those of other nodes;
a crash cuts it off between two of them.
"""

from collections.abc import Coroutine, Generator, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from msgspec.structs import replace

from kerf_dra.api.errors import KerfError
from kerf_dra.api.kerf.discovery_objects import (
    DeviceUser,
    DiscoveredDeviceObject,
    DiscoveryConfigurationObject,
    device_name,
)
from kerf_dra.api.model.metadata import ObjectMeta
from kerf_dra.api.model.names import DeviceId, DriverName, ShareId
from kerf_dra.api.model.prepared import CardPart, PreparedDevice
from kerf_dra.driver.families.shared.objects import Discovery, FoundDevice, join_objects
from kerf_dra.driver.families.shared.users import list_members
from kerf_dra.driver.kube.http.errors import ConflictError
from kerf_dra.driver.kubeletplugin.deviceplugin.discovered_device_offer import DiscoveredDeviceOffer
from kerf_dra.driver.runtime.notifier import Notifier
from tests.conftest import PROFILE
from tests.kubeletplugin.observed_state import ObservedState

HISTORIES = {"long": 500, "all": 10_000}.get(PROFILE, settings().max_examples)
"""Races that need three nodes at one step are rare: each history costs 40 ms."""
NODES = ("n1", "n2", "n3")
IDS = ("rtsp://10.0.0.7", "rtsp://10.0.0.8")
NAMES = tuple(device_name("cameras", one, node=None) for one in IDS)
ANY = "akri.sh/cameras"
RESOURCES = (ANY, *(f"akri.sh/{name}" for name in NAMES))
DRIVER = DriverName("shared.kerf.dev")


class Request:
    """An await that goes on with the next step of the history."""

    def __await__(self) -> Generator[None, None, None]:
        yield


class Server:
    """The API server's objects."""

    def __init__(self) -> None:
        handler = {"name": "byHand"}
        self.configuration = DiscoveryConfigurationObject(
            metadata=ObjectMeta(name="cameras"),
            spec={"discoveryHandler": handler, "capacity": 2, "extendedResourceDomain": "akri.sh"},
        )
        self.devices = {
            name: DiscoveredDeviceObject(
                metadata=ObjectMeta(name=name, resource_version="1"),
                spec={"configurationName": "cameras", "deviceID": id_, "shared": True, "nodes": [*NODES]},
            )
            for name, id_ in zip(NAMES, IDS, strict=True)
        }

    def configure(self, **spec: Any) -> None:
        self.configuration = replace(self.configuration, spec={**self.configuration.spec, **spec})

    def write(self, held: DiscoveredDeviceObject, **changes: Any) -> None:
        name = held.metadata.name
        if self.devices[name].metadata.resource_version != held.metadata.resource_version:
            raise ConflictError(f"PATCH {name}", 409, "Conflict", "the object has been modified")
        version = str(int(held.metadata.resource_version) + 1)
        self.devices[name] = replace(held, metadata=replace(held.metadata, resource_version=version), **changes)

    def found(self) -> Discovery:
        return join_objects([self.configuration], self.devices.values())


class Source:
    """Implements ``DiscoveredDeviceSource`` for one node: what it sees is old until the watch goes on."""

    is_synced = True

    def __init__(self, server: Server) -> None:
        self._server = server
        self.changed = Notifier()
        self.discovery = server.found()

    async def read(self, name: str) -> DiscoveredDeviceObject | None:
        await Request()
        return self._server.devices.get(name)

    def join(self, held: DiscoveredDeviceObject) -> FoundDevice | None:
        return join_objects([self._server.configuration], [held]).devices.get(held.metadata.name)

    async def write_users(self, held: DiscoveredDeviceObject, users: Sequence[DeviceUser]) -> None:
        await Request()
        self._server.write(held, status=replace(held.status, users=tuple(users)))


@dataclass
class Node:
    """A node: its plugin, and what its kubelet knows."""

    name: str
    source: Source
    offer: DiscoveredDeviceOffer
    healthy: dict[str, set[str]] = field(default_factory=dict)
    """What the kubelet has been told of each resource."""
    containers: set[tuple[str, str]] = field(default_factory=set)
    """What the kubelet has given to containers, by resource and id."""
    records: set[tuple[str, str]] = field(default_factory=set)


@dataclass
class Call:
    """A call of the offer that is under way."""

    node: Node
    key: tuple[str, str]
    verb: str
    work: Coroutine[Any, Any, None]


def prepared(node: Node, resource: str, id_: str) -> PreparedDevice:
    members = list_members(node.source.discovery, resource, node.name)
    name = next((one.name for one in members if id_.startswith(one.digest)), "")
    share = ShareId(DeviceId(DRIVER, name, name), id_)
    return PreparedDevice(requests=(), share=share, part=PART, backend="discovered")


PART = CardPart(kind="shared", card_uuid="")


class UserMachine(RuleBasedStateMachine):
    """Three nodes that see two devices."""

    @initialize(capacity=st.integers(1, 3), unique=st.booleans())
    def begin(self, capacity: int, unique: bool) -> None:
        self.server = Server()
        self.server.configure(capacity=capacity, uniqueDevices=unique)
        self.largest = capacity
        self.calls: list[Call] = []
        self.nodes = [self._start(name) for name in NODES]
        for which in range(len(NODES)):
            self._tell_kubelet(which)

    def _start(self, name: str) -> Node:
        source = Source(self.server)
        devices: Any = SimpleNamespace(find=lambda _: True)
        return Node(
            name, source, DiscoveredDeviceOffer(source, driver=DRIVER, node=name, state=ObservedState(devices=devices))
        )

    # -- what nodes see

    @rule(which=st.integers(0, 2))
    def watch(self, which: int) -> None:
        self.nodes[which].source.discovery = self.server.found()

    @rule(which=st.integers(0, 2))
    def tell_kubelet(self, which: int) -> None:
        self._tell_kubelet(which)

    def _tell_kubelet(self, which: int) -> None:
        node = self.nodes[which]
        for resource in RESOURCES:
            listed = node.offer.list_devices(resource)
            assert len({each.id for each in listed}) == len(listed)
            node.healthy[resource] = {each.id for each in listed if each.health == "Healthy"}

    @rule(which=st.integers(0, 1), nodes=st.sets(st.sampled_from(NODES)))
    def see(self, which: int, nodes: set[str]) -> None:
        held = self.server.devices[NAMES[which]]
        self.server.write(held, spec={**held.spec, "nodes": sorted(nodes)})

    @rule(capacity=st.integers(1, 3))
    def resize(self, capacity: int) -> None:
        self.server.configure(capacity=capacity)
        self.largest = max(self.largest, capacity)

    # -- what containers do

    @rule(which=st.integers(0, 2), resource=st.sampled_from(RESOURCES), data=st.data())
    def allocate(self, which: int, resource: str, data: st.DataObject) -> None:
        self._allocate(which, resource, data)

    @rule(resource=st.sampled_from(RESOURCES), data=st.data())
    def allocate_on_all_at_once(self, resource: str, data: st.DataObject) -> None:
        before = len(self.calls)
        for which in range(len(NODES)):
            self._allocate(which, resource, data)
        for call in self.calls[before:]:
            call.work.send(None)
        for call in self.calls[before:]:  # each has read the same
            self._step(call)

    def _allocate(self, which: int, resource: str, data: st.DataObject) -> None:
        node = self.nodes[which]
        taken = {id_ for name, id_ in node.containers if name == resource}
        busy = {call.key[1] for call in self.calls if call.node is node and call.key[0] == resource}
        free = sorted(node.healthy.get(resource, set()) - taken - busy)
        if not free:
            return
        id_ = data.draw(st.sampled_from(free))
        try:
            node.offer.check(resource, [id_])
        except KerfError:
            return
        device = prepared(node, resource, id_)
        self.calls.append(Call(node, (resource, id_), "enter", node.offer.enter(resource, id_, device)))

    @rule(data=st.data())
    @precondition(lambda self: any(node.containers for node in self.nodes))
    def end(self, data: st.DataObject) -> None:
        node = data.draw(st.sampled_from([node for node in self.nodes if node.containers]))
        node.containers.discard(data.draw(st.sampled_from(sorted(node.containers))))

    @rule(data=st.data())
    @precondition(lambda self: self._list_unused())
    def release(self, data: st.DataObject) -> None:
        """What two answers of the kubelet do not have is released."""
        node, key = data.draw(st.sampled_from(self._list_unused()))
        self.calls.append(Call(node, key, "leave", node.offer.leave(*key, self._device_of(node, key))))

    @rule(data=st.data())
    @precondition(lambda self: self.calls)
    def go_on(self, data: st.DataObject) -> None:
        self._step(data.draw(st.sampled_from(self.calls)))

    @rule(which=st.integers(0, 2), loses_records=st.booleans())
    def crash(self, which: int, loses_records: bool) -> None:
        old = self.nodes[which]
        for call in [call for call in self.calls if call.node is old]:
            call.work.close()
            self.calls.remove(call)
        node = self.nodes[which] = self._start(old.name)
        node.containers = old.containers
        node.records = set() if loses_records else old.records
        for device in self.server.devices.values():  # as the keeper of users does: one without a record gets one
            node.records |= {(user.resource, user.id) for user in device.status.users if user.node == node.name}

    # -- what holds

    @invariant()
    def no_device_has_more_users_than_its_largest_capacity(self) -> None:
        for device in self.server.devices.values():
            assert len(device.status.users) <= self.largest
            assert len({*device.status.users}) == len(device.status.users)

    @invariant()
    def every_container_is_a_user(self) -> None:
        users = {user for device in self.server.devices.values() for user in device.status.users}
        for node in self.nodes:
            assert {DeviceUser(node=node.name, resource=name, id=id_) for name, id_ in node.containers} <= users

    @invariant()
    def the_kubelet_may_give_what_containers_have_and_what_is_left(self) -> None:
        for node in self.nodes:
            for one in node.source.discovery.devices.values():
                for resource in (ANY, f"akri.sh/{one.name}"):
                    healthy = [
                        each.id
                        for each in node.offer.list_devices(resource)
                        if each.health == "Healthy" and each.id.startswith(one.digest)
                    ]
                    own = [user for user in one.users if (user.node, user.resource) == (node.name, resource)]
                    assert len(healthy) <= len(own) + max(0, one.capacity - len(one.users))

    def teardown(self) -> None:
        """Once all is quiet the users are what containers have; and nothing is left when they have ended."""
        if not hasattr(self, "nodes"):
            return
        while self.calls:
            self._step(self.calls[0])
        for node in self.nodes:
            node.containers.clear()
        while unused := self._list_unused():
            node, key = unused[0]
            call = Call(node, key, "leave", node.offer.leave(*key, self._device_of(node, key)))
            self.calls.append(call)
            while call in self.calls:
                self._step(call)
        assert [user for device in self.server.devices.values() for user in device.status.users] == []

    def _list_unused(self) -> Sequence[tuple[Node, tuple[str, str]]]:
        """Return the records of no container that nothing is done to."""
        busy = {(call.node.name, call.key) for call in self.calls}
        return [
            (node, key)
            for node in self.nodes
            for key in sorted(node.records - node.containers)
            if (node.name, key) not in busy
        ]

    def _device_of(self, node: Node, key: tuple[str, str]) -> PreparedDevice:
        digest = key[1].rpartition("-")[0]
        name = f"cameras-{digest}"
        return PreparedDevice(
            requests=(), share=ShareId(DeviceId(DRIVER, name, name), key[1]), part=PART, backend="discovered"
        )

    def _step(self, call: Call) -> None:
        try:
            call.work.send(None)
            return
        except StopIteration:
            if call.verb == "enter":
                call.node.records.add(call.key)
                call.node.containers.add(call.key)
            else:
                call.node.records.discard(call.key)
        except KerfError:
            assert call.verb == "enter", "a user can always be removed"
        self.calls.remove(call)


UserMachine.TestCase.settings = settings(max_examples=HISTORIES, stateful_step_count=60)
TestNoHistoryHasMoreUsersThanCapacity: Any = UserMachine.TestCase
