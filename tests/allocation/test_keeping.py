"""KEEP and first fit in the allocator, beside the policies that the publish order is measured with."""

from collections.abc import Callable, Collection, Sequence

import pytest
from msgspec.structs import replace

from api.model.allocations import ResourceClaimStatus
from api.model.devices import Device, ResourcePool, ResourceSlice, ResourceSliceSpec
from api.model.metadata import ObjectMeta
from api.model.names import ObjectRef
from driver.allocation import Cluster, Features, Keep, NodeView, Nowhere, Placed, Placement, Profile, StepBudget
from driver.partitions.compiling import compile_pool
from driver.partitions.geometry import GpuCard, Partition
from driver.partitions.limits import SliceLayout
from tests.allocation.building import claim, class_, request
from tests.partitions import losses
from tests.partitions.cards import gpu

DRIVER = "kerf.dev"
CLASSES = {"any": class_()}


def profile_of(device: Device) -> Profile | None:
    """Whole cards, and the variants with media engines, are the same hardware as other profiles."""
    name = device.attributes["profile"].string or ""
    compute = int(device.capacity["computeSlices"].value)
    return Profile(name, compute) if name and "+" not in name else None


class Allocator:
    """A policy of the loss system: the allocator on a cluster of nodes with one card each."""

    def __init__(self, place: Callable[..., Placement] | None) -> None:
        self._place = place
        self._cluster: Cluster | None = None
        self._partitions: dict[tuple[str, str], Partition] = {}
        self._held: dict[Partition, ObjectRef] = {}
        self._number = 0

    def _start(self, cards: Sequence[GpuCard]) -> Cluster:
        cluster = Cluster(Features())
        for card in cards:
            node = f"n-{card.index:03}"
            compiled = compile_pool(node, node, [card], layout=SliceLayout.COMBINED)
            (content,) = compiled.pool.slices
            spec = ResourceSliceSpec(
                driver=DRIVER,
                pool=ResourcePool(name=node, generation=1, resource_slice_count=1),
                node_name=node,
                devices=tuple(sorted(content.devices, key=lambda device: device.name)),
                shared_counters=content.shared_counters,
            )
            cluster.set_slice(ResourceSlice(metadata=ObjectMeta(name=node), spec=spec))
            cluster.set_node(NodeView(node, {}))
            self._partitions |= {(node, name): partition for name, partition in compiled.partitions.items()}
        return cluster

    def __call__(self, cards: Sequence[GpuCard], taken: Collection[Partition], profile: str) -> Partition | None:
        cluster = self._cluster = self._cluster or self._start(cards)
        for partition in [each for each in self._held if each not in taken]:
            cluster.remove_claim(self._held.pop(partition))
        self._number += 1
        expression = f'device.attributes["{DRIVER}"].profile == "{profile}"'
        asked = claim(request("r", expression), name=f"c{self._number}")
        arguments = ([asked], CLASSES)
        options = {"share_id": str, "budget": StepBudget()}
        place = self._place
        placement = (
            cluster.place(*arguments, share_id=str, budget=StepBudget())
            if place is None
            else place(cluster, *arguments, **options)
        )
        if not isinstance(placement, Placed):
            assert placement == Nowhere(())
            return None
        cluster.set_claim(replace(asked, status=ResourceClaimStatus(allocation=placement.results[0])))
        device = placement.results[0].devices.results[0].device
        partition = self._partitions[placement.node, device]
        self._held[partition] = asked.ref
        return partition


def choices(policy: losses.Policy, *, cards: int, mix: str, load: float, requests: int) -> list[Partition | None]:
    """What the policy gives to each request."""
    given: list[Partition | None] = []

    def recorded(node: Sequence[GpuCard], taken: Collection[Partition], profile: str) -> Partition | None:
        given.append(policy(node, taken, profile))
        return given[-1]

    losses.run(recorded, cards=cards, mix=mix, load=load, seed=1, requests=requests, warm_up=0)
    return given


@pytest.mark.parametrize("mix", losses.MIXES)
def test_the_allocator_gives_what_the_policies_give_choice_by_choice(mix: str) -> None:
    """So the table of ``tests/partitions/test_ordering.py`` is the allocator's too."""
    few = {"cards": 8, "mix": mix, "load": 1.0, "requests": 600}
    kept, first = Allocator(Keep(profile_of).place), Allocator(None)
    assert choices(kept, **few) == choices(losses.published_order, **few)  # type: ignore[arg-type]
    assert choices(first, **few) == choices(losses.first_fit, **few)  # type: ignore[arg-type]


def test_a_pod_that_fits_nowhere_is_told_so() -> None:
    assert Allocator(Keep(profile_of).place)([gpu()], [], "nope") is None
