"""Any history of discovered devices, claims and late publications: no device has more users than it was published with.

The scheduler allocates from what was published last, which may be older than the objects; the claims that it counts are
those of now. So a list may be out of date when a claim is allocated from it, as between an agent's list and its
allocation in Akri (AK-06, AK-11, AK-12, AK-15, AK-32).
"""

from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from msgspec.structs import replace

from kerf_dra.api.kerf.discovery_objects import (
    DiscoveredDeviceObject,
    DiscoveryConfigurationObject,
    device_name,
)
from kerf_dra.api.model.allocations import ResourceClaimStatus
from kerf_dra.api.model.claims import (
    DeviceClaim,
    DeviceClass,
    DeviceConstraint,
    DeviceRequest,
    ExactDeviceRequest,
    ResourceClaim,
    ResourceClaimSpec,
)
from kerf_dra.api.model.devices import ResourceSlice
from kerf_dra.api.model.metadata import ObjectMeta
from kerf_dra.driver.allocation import AllocatedState, Budget, Features, Fits, NodeView, PoolIndex, allocate
from kerf_dra.driver.controller.structured.discovery.plan import DiscoveryPlan, DiscoverySnapshot, plan_discovery
from kerf_dra.driver.families.shared.objects import name_class
from tests.conftest import COSTLY

NODES = {"n1": "host-1", "n2": "host-2", "n3": "host-3"}
IDS = ("rtsp://10.0.0.1", "rtsp://10.0.0.2", "rtsp://10.0.0.3")
OWNERS = (None, "n1", None)
"""The node of each device that is not shared."""
NAMES = tuple(device_name("cameras", one, node=node) for one, node in zip(IDS, OWNERS, strict=True))
ANY = name_class("cameras")
GRACE_S = 300


class DiscoveryMachine(RuleBasedStateMachine):
    """A cluster of three nodes, up to three devices, a controller that is late, and a scheduler."""

    def __init__(self) -> None:
        super().__init__()
        self.now = datetime(2026, 1, 1, tzinfo=UTC)
        self.capacity = 2
        self.devices: dict[str, DiscoveredDeviceObject] = {}
        self.slices: dict[str, ResourceSlice] = {}
        self.classes: dict[str, DeviceClass] = {}
        self.claims: dict[str, ResourceClaim] = {}
        self.shares = 0
        self.largest = 2
        """The largest capacity so far."""

    # -- what nodes and administrators do

    @initialize()
    def begin(self) -> None:
        for index in range(2):
            self.find(index, {*NODES})
        self.publish(None)

    @rule(index=st.integers(0, 2), nodes=st.sets(st.sampled_from(sorted(NODES))))
    def find(self, index: int, nodes: set[str]) -> None:
        name, owner = NAMES[index], OWNERS[index]
        seen = sorted(nodes if owner is None else nodes & {owner})
        spec = {"configurationName": "cameras", "deviceID": IDS[index], "shared": owner is None, "nodes": seen}
        if owner is not None:
            spec["foundBy"] = owner
        value = self.devices.get(name) or DiscoveredDeviceObject(metadata=ObjectMeta(name=name, uid=name))
        self.devices[name] = replace(value, spec=spec)

    @rule(capacity=st.integers(1, 3))
    def set_capacity(self, capacity: int) -> None:
        self.capacity = capacity
        self.largest = max(self.largest, capacity)

    @rule(seconds=st.sampled_from([10, GRACE_S]))
    def wait(self, seconds: int) -> None:
        self.now += timedelta(seconds=seconds)

    # -- what the controller does, sometimes only for one device: writes are single

    @rule(only=st.none() | st.sampled_from(NAMES))
    def publish(self, only: str | None) -> None:
        plan = self.plan()
        for name in [only] if only else NAMES:
            slice_name = f"{name}-shared.kerf.dev"
            self.slices.pop(slice_name, None)
            if slice_name in plan.slices:
                self.slices[slice_name] = plan.slices[slice_name]
        self.classes = {**self.classes, **plan.classes}
        for one in plan.devices:
            if one.is_expired:
                del self.devices[one.held.metadata.name]
            else:
                self.devices[one.held.metadata.name] = replace(one.held, status=one.status)

    def plan(self) -> DiscoveryPlan:
        spec: dict[str, Any] = {
            "discoveryHandler": {"name": "debugEcho"},
            "capacity": self.capacity,
            "offlineGraceSeconds": GRACE_S,
        }
        configuration = DiscoveryConfigurationObject(metadata=ObjectMeta(name="cameras", uid="cameras"), spec=spec)
        snapshot = DiscoverySnapshot(
            configurations=(configuration,), devices=tuple(self.devices.values()), hostnames=NODES
        )
        return plan_discovery(snapshot, self.now)

    # -- what pods and the scheduler do

    @precondition(lambda self: ANY in self.classes)
    @rule(
        node=st.sampled_from(sorted(NODES)),
        this=st.none() | st.sampled_from(NAMES),
        count=st.integers(1, 2),
        distinct=st.booleans(),
    )
    def allocate(self, node: str, this: str | None, count: int, distinct: bool) -> None:
        wanted = ANY if this is None else name_class(this)
        if wanted not in self.classes:
            return
        claim = self.make_claim(wanted, count, distinct=distinct)
        outcome = allocate(
            PoolIndex.build(self.slices.values()),
            [claim],
            NodeView(node, {"kubernetes.io/hostname": NODES[node]}),
            self.classes,
            AllocatedState.from_claims(self.claims.values()),
            Features(),
            share_id=self.next_share,
            budget=Budget(),
        )
        free = self.free_users(node, this)
        possible = len(free) >= count if distinct else free.total() >= count
        assert isinstance(outcome, Fits) == possible, (outcome, free)
        if isinstance(outcome, Fits):
            got = [result.device for result in outcome.results[0].devices.results]
            assert not distinct or len(set(got)) == count
            assert not Counter(got) - free, "each was free"
            self.claims[claim.metadata.uid] = replace(claim, status=ResourceClaimStatus(allocation=outcome.results[0]))

    @precondition(lambda self: ANY in self.classes)
    @rule(node=st.sampled_from(sorted(NODES)), this=st.none() | st.sampled_from(NAMES))
    def allocate_all(self, node: str, this: str | None) -> None:
        for _ in range(self.free_users(node, this).total() + 1):
            self.allocate(node, this, 1, distinct=False)

    @precondition(lambda self: self.claims)
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        del self.claims[data.draw(st.sampled_from(sorted(self.claims)))]

    def make_claim(self, wanted: str, count: int, *, distinct: bool) -> ResourceClaim:
        self.shares += 1
        requests = tuple(
            DeviceRequest(name=f"r{number}", exactly=ExactDeviceRequest(device_class_name=wanted))
            for number in range(count)
        )
        constraints = (DeviceConstraint(distinct_attribute="shared.kerf.dev/uuid"),) if distinct else ()
        return ResourceClaim(
            metadata=ObjectMeta(namespace="default", name=f"c{self.shares}", uid=f"c{self.shares}"),
            spec=ResourceClaimSpec(devices=DeviceClaim(requests=requests, constraints=constraints)),
        )

    def next_share(self) -> str:
        self.shares += 1
        return f"share-{self.shares}"

    def used(self) -> Counter[str]:
        """The users of each device, whichever way they asked for it."""
        allocations = [claim.status.allocation for claim in self.claims.values()]
        return Counter(result.device for one in allocations if one for result in one.devices.results)

    def free_users(self, node: str, this: str | None) -> Counter[str]:
        """The users that each device has left for pods of a node, by what is published."""
        used = self.used()
        found: Counter[str] = Counter()
        for one in self.slices.values():
            [device] = one.spec.devices
            left = int(device.capacity["users"].value) - used[device.name]
            if (this is None or device.name == this) and left > 0 and node in self.selected(one):
                found[device.name] = left
        return found

    def selected(self, one: ResourceSlice) -> set[str]:
        assert one.spec.node_selector is not None
        [term] = one.spec.node_selector.node_selector_terms
        if term.match_fields:
            return set(term.match_fields[0].values)
        return {node for node, label in NODES.items() if label in term.match_expressions[0].values}

    @invariant()
    def no_device_has_more_users_than_it_ever_could(self) -> None:
        assert all(number <= self.largest for number in self.used().values())

    @invariant()
    def a_device_that_has_just_been_published_is_for_the_nodes_that_see_it(self) -> None:
        for name, one in self.plan().slices.items():
            assert self.selected(one) == {*self.devices[name.removesuffix("-shared.kerf.dev")].spec["nodes"]}


DiscoveryMachine.TestCase.settings = settings(COSTLY, stateful_step_count=30)
TestNoHistoryGivesMoreThanThereIs: Any = DiscoveryMachine.TestCase
