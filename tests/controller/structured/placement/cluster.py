"""Nodes with GPUs, claims and pods in the stores of informers, and the extender over them."""

import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from msgspec.structs import replace

from kerf_dra.api.core.v1 import Node
from kerf_dra.api.kerf.v1alpha1 import ResourceClassObject, ResourceClassStatus
from kerf_dra.api.model.allocations import ResourceClaimStatus
from kerf_dra.api.model.claims import DeviceClass, ResourceClaim
from kerf_dra.api.model.devices import ResourceSlice
from kerf_dra.api.model.metadata import ObjectMeta, ObjectT
from kerf_dra.api.wire import Kind
from kerf_dra.driver.allocation import AllocatedState, Budget, Features, Fits, NodeView, PoolIndex, allocate
from kerf_dra.driver.allocation.pools.interned_slices import CompactSlice, SliceCompactor
from kerf_dra.driver.controller.settings import LEASE
from kerf_dra.driver.controller.structured.extender_activity import ExtenderActivity
from kerf_dra.driver.controller.structured.placement.placement_index import PlacementIndex, project_claim
from kerf_dra.driver.controller.structured.placement.scheduler_extender import SchedulerExtender
from kerf_dra.driver.kube.http.errors import NotFoundError
from kerf_dra.driver.kube.store import ObjectChange, Store
from tests.allocation.builders import claim, class_, request
from tests.fakes import published_slices as published

DRIVER = "gpu.kerf.dev"
H100 = "h100-80gb-sxm"
START = datetime(2026, 11, 20, 8, 30, tzinfo=UTC)


def claim_for(profile: str, name: str, count: int = 1) -> ResourceClaim:
    return claim(request("r", f'device.attributes["{DRIVER}"].profile == "{profile}"', count=count), name=name)


def pod(*claims: str, resources: Mapping[str, str] | None = None, templated: Sequence[str] = ()) -> dict[str, Any]:
    """A pod with ``claims`` by name, and claims of templates of which the pod's status has the names ``templated``."""
    entries = [{"name": f"c{number}", "resourceClaimName": name} for number, name in enumerate(claims)]
    made = [{"name": f"t{number}", "resourceClaimName": name} for number, name in enumerate(templated) if name]
    entries += [{"name": f"t{number}", "resourceClaimTemplateName": "t"} for number in range(len(templated))]
    return {
        "metadata": {"name": "p", "namespace": "default", "uid": "u"},
        "spec": {"containers": [{"name": "c", "resources": {"limits": resources or {}}}], "resourceClaims": entries},
        "status": {"resourceClaimStatuses": made},
    }


class NoLeases:
    """An API server without any Lease."""

    async def get(self, kind: Kind[ObjectT], name: str, namespace: str = "") -> ObjectT:
        raise NotFoundError("GET", 404, "NotFound", f"{namespace}/{name}")

    async def update(self, kind: Kind[ObjectT], value: ObjectT, *, subresource: str = "") -> ObjectT:
        raise NotFoundError("PUT", 404, "NotFound", str(value.ref))


@dataclass
class Cluster:
    """The stores, as informers keep them up to date."""

    seconds: float = 0.0
    """What the clock shows."""
    step_s: float = 0.0
    """The time that passes each time the clock is read."""
    stored: dict[str, ResourceSlice] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.compactor = SliceCompactor()
        self.slices: Store[CompactSlice] = Store()
        self.claims: Store[ResourceClaim] = Store()
        self.nodes: Store[Node] = Store()
        self.classes: Store[DeviceClass] = Store()
        self.classes.put(class_())
        self.resource_classes: Store[ResourceClassObject] = Store()
        self.index = PlacementIndex(
            self.compactor,
            slices=self.slices,
            claims=self.claims,
            nodes=self.nodes,
            device_classes=self.classes,
            resource_classes=self.resource_classes,
        )
        self.activity = ExtenderActivity(NoLeases(), LEASE, now=lambda: START)
        self.extender = SchedulerExtender(self.index, self.activity, monotonic=self._monotonic)
        self._numbers = itertools.count()

    def _monotonic(self) -> float:
        self.seconds += self.step_s
        return self.seconds

    def add_node(self, name: str, *slices: ResourceSlice) -> None:
        """Add a node; without ``slices`` it has one H100."""
        node = Node(metadata=ObjectMeta(name=name))
        self.index.on_node(_put(self.nodes, node))
        for slice_ in slices or published.slices(name, published.gpus(H100)):
            self.set_slice(slice_)

    def set_slice(self, slice_: ResourceSlice) -> None:
        self.stored[slice_.metadata.name] = slice_
        self.index.on_slice(_put(self.slices, self.compactor.compact(slice_)))

    def remove_node(self, name: str) -> None:
        self.index.on_node(_remove(self.nodes, Node(metadata=ObjectMeta(name=name))))
        for slice_ in [each for each in self.stored.values() if each.spec.node_name == name]:
            del self.stored[slice_.metadata.name]
            self.index.on_slice(_remove(self.slices, self.compactor.compact(slice_)))

    def set_placement(self, placement: object, name: str = "any", *, is_compiled: bool = True) -> None:
        """Have a ResourceClass ask for ``placement``; Kerf has made its DeviceClass if ``is_compiled``."""
        held = ResourceClassObject(
            metadata=ObjectMeta(name=name),
            spec={"device": "gpu"} | ({"placement": placement} if placement else {}),
            status=ResourceClassStatus(device_class_name=name if is_compiled else None),
        )
        self.resource_classes.put(held)

    def set_claim(self, value: ResourceClaim) -> None:
        self.index.on_claim(_put(self.claims, project_claim(value)))

    def remove_claim(self, value: ResourceClaim) -> None:
        self.index.on_claim(_remove(self.claims, value))

    def allocate(self, value: ResourceClaim, node: str) -> ResourceClaim:
        """Allocate a claim on a node as kube-scheduler does; the claim with its devices."""
        found = allocate(
            PoolIndex.build(self.stored.values()),
            [value],
            NodeView(node, {}),
            {each.metadata.name: each for each in self.classes.values()},
            AllocatedState.from_claims(self.claims.values()),
            Features(),
            share_id=lambda: f"share-{next(self._numbers)}",
            budget=Budget(),
        )
        assert isinstance(found, Fits), found
        allocated = replace(value, status=ResourceClaimStatus(allocation=found.results[0]))
        self.set_claim(allocated)
        return allocated

    def scores(self, of: Mapping[str, Any], *nodes: str) -> dict[str, int]:
        """The answer of the extender to kube-scheduler, by node."""
        answer = json.loads(self.extender.prioritize(body(of, *nodes)))
        assert all(each.keys() == {"Host", "Score"} for each in answer)
        return {each["Host"]: each["Score"] for each in answer}


def body(of: Mapping[str, Any], *nodes: str) -> bytes:
    """What kube-scheduler sends (``ExtenderArgs`` as Go encodes it)."""
    return json.dumps({"Pod": of, "Nodes": None, "NodeNames": list(nodes)}).encode()


def _put(store: Store[ObjectT], value: ObjectT) -> ObjectChange[ObjectT]:
    old = store.get(value.ref)
    store.put(value)
    return ObjectChange(value.ref, old, value)


def _remove(store: Store[ObjectT], value: ObjectT) -> ObjectChange[ObjectT]:
    old = store.get(value.ref)
    store.remove(value.ref)
    return ObjectChange(value.ref, old, None)


def build_two_nodes() -> Cluster:
    """Two nodes: ``a`` has a 4g.40gb in use, ``c`` is empty; the claim ``new`` waits."""
    made = Cluster()
    for name in "ac":
        made.add_node(name)
    made.allocate(claim_for("4g.40gb", "held"), "a")
    made.set_claim(claim_for("1g.10gb", "new"))
    made.index.build()
    return made
