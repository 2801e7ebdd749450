"""The allocator's strategies as policies of the loss system (``tests/partitions/loss_system.py``)."""

from collections.abc import Callable, Collection, Sequence
from typing import TypeAlias

from msgspec.structs import replace

from kerf_dra.api.model.allocations import ResourceClaimStatus
from kerf_dra.api.model.claims import DeviceClass, ResourceClaim
from kerf_dra.api.model.devices import Device, ResourcePool, ResourceSlice, ResourceSliceSpec
from kerf_dra.api.model.metadata import ObjectMeta
from kerf_dra.api.model.names import ObjectRef
from kerf_dra.driver.allocation import (
    Budget,
    ClusterAllocator,
    ClusterOutcome,
    Features,
    NodeAllocation,
    NodeView,
    NoFittingNode,
    PoolIndex,
)
from kerf_dra.driver.families.gpu import GPU
from kerf_dra.driver.partitions.geometry import Card, Partition
from kerf_dra.driver.partitions.pool_compiler import compile_pool
from kerf_dra.driver.partitions.slice_limits import SliceLayout
from tests.allocation.builders import claim, class_, request
from tests.bench.keep import Keep, Profile

DRIVER = "gpu.kerf.dev"
CLASS = class_()


def profile_of(device: Device) -> Profile | None:
    """Whole cards, and the variants with media engines, are the same hardware as other profiles."""
    name = device.attributes["profile"].string or ""
    compute = int(device.capacity["computeSlices"].value)
    return Profile(name, compute) if name and "+" not in name else None


def first_fit() -> "Allocator":
    """The scheduler's order."""

    def place(cluster: ClusterAllocator, _: object, asked: ResourceClaim, of_class: DeviceClass) -> ClusterOutcome:
        return cluster.place([asked], {of_class.metadata.name: of_class}, share_id=str, budget=Budget())

    return Allocator(place)


def keep() -> "Allocator":
    return Allocator(Keep(profile_of).place)


PublishTarget: TypeAlias = Callable[[ClusterAllocator, Sequence[NodeView], ResourceClaim, DeviceClass], ClusterOutcome]
"""A node and devices for a claim of that class; the nodes come with the cluster, by name."""


class Allocator:
    """A policy: a way to place claims in a cluster of nodes with one card each."""

    def __init__(self, place: PublishTarget) -> None:
        self._place = place
        self._cluster: ClusterAllocator | None = None
        self._nodes: list[NodeView] = []
        self._partitions: dict[tuple[str, str], Partition] = {}
        self._held: dict[Partition, ObjectRef] = {}
        self._number = 0

    def _start(self, cards: Sequence[Card]) -> ClusterAllocator:
        cluster = ClusterAllocator(Features(), PoolIndex.build(()))
        for card in cards:
            node = f"n-{card.index:03}"
            compiled = compile_pool(node, node, [card], vocabulary=GPU.vocabulary, layout=SliceLayout.COMBINED)
            (content,) = compiled.pool.slices
            spec = ResourceSliceSpec(
                driver=DRIVER,
                pool=ResourcePool(name=node, generation=1, resource_slice_count=1),
                node_name=node,
                devices=tuple(sorted(content.devices, key=lambda device: device.name)),
                shared_counters=content.shared_counters,
            )
            cluster.set_slice(ResourceSlice(metadata=ObjectMeta(name=node), spec=spec))
            self._nodes.append(NodeView(node, {}))
            cluster.set_node(self._nodes[-1])
            self._partitions |= {(node, name): partition for name, partition in compiled.partitions.items()}
        return cluster

    def __call__(self, cards: Sequence[Card], taken: Collection[Partition], profile: str) -> Partition | None:
        cluster = self._cluster = self._cluster or self._start(cards)
        for partition in [each for each in self._held if each not in taken]:
            cluster.remove_claim(self._held.pop(partition))
        self._number += 1
        expression = f'device.attributes["{DRIVER}"].profile == "{profile}"'
        asked = claim(request("r", expression), name=f"c{self._number}")
        placement = self._place(cluster, self._nodes, asked, CLASS)
        if not isinstance(placement, NodeAllocation):
            assert placement == NoFittingNode({})
            return None
        cluster.set_claim(replace(asked, status=ResourceClaimStatus(allocation=placement.results[0])))
        device = placement.results[0].devices.results[0].device
        partition = self._partitions[placement.node, device]
        self._held[partition] = asked.ref
        return partition
