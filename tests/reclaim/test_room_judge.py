"""Where evicted pods fit, compared with a judge that knows nothing of Kerf's allocator.

The judge reads the names of devices alone: which part of which card each is. A device is free if no claim has one whose
memory slices overlap on its card, nor both have the engine of which a card has one. A pod gets the first free device of
its size in the order of publication, on the first node by name that accepts it. One MIG memory slice is an eighth of an
H100 (NVIDIA, "MIG User Guide", H100 profiles).
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Final

import pytest
from msgspec.structs import replace

from kerf_dra.api.core.v1 import Node, Pod, Taint
from kerf_dra.api.model.allocations import AllocationResult, DeviceAllocationResult, DeviceRequestAllocationResult
from kerf_dra.api.model.claims import ResourceClaim
from kerf_dra.api.model.metadata import OwnerReference
from kerf_dra.driver.allocation import Budget, Features
from kerf_dra.driver.families.gpu import GPU
from kerf_dra.driver.reclaim.cards import find_cards
from kerf_dra.driver.reclaim.plan import ReclaimPlan, ReclaimSnapshot, plan_reclaim
from tests.conftest import IS_LONG, SEED
from tests.fakes.cluster_states import CLASSES, allocated_claim, claim, node, owned, placed_pod, slices

CASES: Final = 10_000 if IS_LONG else 150
MEMORY_SLICES: Final = {"1g-10gb": 1, "1g-20gb": 2, "2g-20gb": 2, "3g-40gb": 4, "4g-40gb": 4, "7g-80gb": 8}
NODES: Final = ("node-1", "node-2")
CARDS: Final = 2
PUBLISHED: Final = {name: tuple(slices(name, CARDS)) for name in NODES}
BUDGET: Final = Budget(steps=100_000, seconds=60.0, clock=time.monotonic)


@dataclass(frozen=True, slots=True)
class Part:
    """A device by what its name says of it."""

    node: str
    device: str

    @property
    def card(self) -> str:
        return "-".join(self.device.split("-")[:2])

    @property
    def size(self) -> str:
        """The name of the class that asks for it."""
        return "-".join(self.device.split("-")[2:4]) or "whole"

    @property
    def memory(self) -> range:
        if self.size == "whole":
            return range(8)
        start = int(self.device.rpartition("-at-")[2])
        return range(start, start + MEMORY_SLICES[self.size])

    @property
    def has_media(self) -> bool:
        """Whether it has the card's only engine for optical flow (profiles with ``+me``)."""
        return "-me-" in self.device or self.size in ("7g-80gb", "whole")

    def overlaps(self, other: "Part") -> bool:
        """Whether a card cannot have both."""
        is_same_card = (self.node, self.card) == (other.node, other.card)
        return is_same_card and (bool(set(self.memory) & set(other.memory)) or (self.has_media and other.has_media))


PARTS: Final = {
    name: [
        Part(name, device.name)
        for one in sorted(published, key=lambda one: one.metadata.name)
        for device in one.spec.devices
        if Part(name, device.name).size in (*MEMORY_SLICES, "whole")
    ]
    for name, published in PUBLISHED.items()
}
"""The devices that claims may have, in the order of publication."""


@dataclass
class Case:
    """A cluster of two nodes with two cards each, with pods that have one device each."""

    drained: str
    held: dict[str, Part] = field(default_factory=dict)
    """The device of each pod, by its name."""
    bound: set[str] = field(default_factory=set)
    """The pods that run on the first node only, by a selector of nodes."""
    protected: set[str] = field(default_factory=set)
    """The pods that are not evicted."""
    closed: set[str] = field(default_factory=set)
    """The nodes that take no new pods."""

    def fits(self, part: Part) -> bool:
        return not any(part.overlaps(other) for other in self.held.values())


def draw_case(chance: Random) -> Case:
    case = Case(drained=f"gpu-{chance.randrange(CARDS)}")
    for number in range(chance.randint(1, 9)):
        free = [part for name in NODES for part in PARTS[name] if case.fits(part)]
        if free:
            size = chance.choice(sorted({part.size for part in free}))
            case.held[f"pod-{number}"] = chance.choice([part for part in free if part.size == size])
    case.bound = {name for name in case.held if chance.random() < 0.2}
    case.protected = {name for name in case.held if chance.random() < 0.2}
    case.closed = {name for name in NODES if chance.random() < 0.2}
    return case


# --- the case as objects ----------------------------------------------------------------------------------------------


def build_nodes(case: Case) -> Iterator[Node]:
    for name in NODES:
        taints = (Taint(key="closed", effect="NoSchedule"),) if name in case.closed else ()
        yield node(name, labels={"name": name}, taints=taints)


def build_claim(name: str, part: Part) -> ResourceClaim:
    result = DeviceRequestAllocationResult(request="r0", driver=GPU.driver, pool=f"{part.node}/gpu", device=part.device)
    allocation = AllocationResult(devices=DeviceAllocationResult(results=(result,)))
    made = allocated_claim(claim(name, part.size), allocation, name)
    owner = OwnerReference(api_version="v1", kind="Pod", name=name, uid=f"uid-{name}")
    return replace(made, metadata=replace(made.metadata, owner_references=(owner,)))


def build_pod(case: Case, name: str, part: Part) -> Pod:
    labels = {"kerf.dev/do-not-evict": "true"} if name in case.protected else {}
    made = owned(placed_pod(name, name, on=part.node), "ReplicaSet", "web", **labels)
    selector = {"name": "node-1"} if name in case.bound else {}
    return replace(made, spec=replace(made.spec, node_selector=selector))


def plan(case: Case) -> ReclaimPlan:
    snapshot = ReclaimSnapshot(
        nodes=tuple(build_nodes(case)),
        pods=tuple(build_pod(case, name, part) for name, part in case.held.items()),
        claims=tuple(build_claim(name, part) for name, part in case.held.items()),
        classes=CLASSES,
        slices=tuple(one for published in PUBLISHED.values() for one in published),
        features=Features(),
        budget=BUDGET,
    )
    cards = find_cards(snapshot.slices, "node-1")
    card = next(each for each in cards if each.name == case.drained)
    return plan_reclaim(snapshot, card, evicts_bare=False)


# --- the judge --------------------------------------------------------------------------------------------------------


def judge(case: Case) -> dict[str, tuple[str, str]]:
    """Return the node and the device that each evicted pod would get; both empty: it fits nowhere."""
    holders = {name for name, part in case.held.items() if (part.node, part.card) == ("node-1", case.drained)}
    evicted = sorted(holders - case.protected)
    held = {name: part for name, part in case.held.items() if name not in evicted}
    found = {}
    for pod in evicted:
        size = case.held[pod].size
        rooms = (
            part
            for name in NODES
            if name not in case.closed and not (pod in case.bound and name != "node-1")
            for part in PARTS[name]
            if part.size == size
            and (name, part.card) != ("node-1", case.drained)
            and not any(part.overlaps(other) for other in held.values())
        )
        room = next(rooms, None)
        found[pod] = ("", "") if room is None else (room.node, room.device)
        if room is not None:
            held[pod] = room
    return found


@pytest.mark.property
def test_who_is_evicted_and_where_each_fits_is_what_the_judge_says() -> None:
    chance = Random(SEED if IS_LONG else 0)
    moved = stranded = kept = 0
    for number in range(CASES):
        case = draw_case(chance)
        planned = plan(case)
        found = {
            each.holder.pod.name: (each.new_node, "".join(each.new_devices))
            for each in planned.evicted
            if each.holder.pod is not None
        }
        assert found == judge(case), (number, case)
        rooms = [each.new_node for each in planned.evicted]
        assert rooms == sorted(rooms, key=lambda name: not name), "those that fit somewhere are evicted first"
        moved += sum(bool(name) for name in rooms)
        stranded += rooms.count("")
        kept += len(planned.others)
    assert min(moved, stranded, kept) > CASES / 20, "all outcomes are tried"
