"""What alternatives by rank cost the search: as many steps as the plain request, however many they are.

kube-scheduler's allocator checks every device that is not in use for each alternative. Here an alternative without a
device that is available fails by its empty domain, before a step.
"""

from collections.abc import Sequence
from functools import cache
from itertools import islice, product
from typing import Final, NamedTuple

import pytest

from kerf_dra.api.model.claims import DeviceRequest
from kerf_dra.api.model.devices import ResourcePool, ResourceSlice, ResourceSliceSpec
from kerf_dra.api.model.metadata import ObjectMeta
from kerf_dra.api.model.names import DeviceId
from kerf_dra.driver.allocation import AllocatedState, Budget, DoesNotFit, Fits, Outcome, Undecided
from kerf_dra.driver.families.gpu import GPU
from kerf_dra.driver.partitions.geometry import Partition
from kerf_dra.driver.partitions.pool_compiler import compile_pool
from kerf_dra.driver.partitions.publish_order import publish_order
from kerf_dra.driver.partitions.slice_limits import SliceLayout
from tests.allocation.builders import NODE, alternative, claim, decide, first_of, request
from tests.fakes.cluster_states import card
from tests.partitions import loss_system

SMALL: Final = f'device.attributes["{GPU.driver}"].profile == "1g.10gb"'
RANK: Final = f'device.attributes["{GPU.driver}"].lossRank'
FULL_CARDS: Final = (
    ("7g.80gb",),
    ("3g.40gb", "3g.40gb"),
    ("4g.40gb", "2g.20gb", "1g.10gb"),
    ("2g.20gb", "2g.20gb", "2g.20gb", "1g.10gb"),
    ("1g.10gb",) * 7,
)
"""What is taken of a card on which no 1g.10gb fits any more."""
CARDS_IN_USE: Final = ((), ("4g.40gb",), ("4g.40gb", "2g.20gb"), ("1g.10gb",), ("4g.40gb", "1g.10gb", "1g.10gb"))
"""What is taken of cards on which one fits, of one rank or another."""
HIGHEST_RANKS: Final = {"no alternatives": (), "as the policy makes them": (0, 2), "as many as there may be": range(7)}
"""The highest rank of each alternative but the last, which takes any."""


class Node(NamedTuple):
    """What is published of a node, and what is taken of it."""

    slices: Sequence[ResourceSlice]
    allocated: AllocatedState


@cache
def build_node(*taken: Sequence[str]) -> Node:
    """Build a node with a card for each of ``taken``, of which those profiles are taken, as its plugin publishes it."""
    cards = [card(index, NODE.name) for index in range(len(taken))]
    held: list[Partition] = []
    for one, profiles in zip(cards, taken, strict=True):
        of_card: list[Partition] = []
        for profile in profiles:
            partition = loss_system.published_order([one], of_card, profile)
            assert partition is not None
            of_card.append(partition)
        held += of_card
    order = publish_order(cards, held)
    compiled = compile_pool("pool", NODE.name, cards, vocabulary=GPU.vocabulary, layout=SliceLayout.SPLIT, order=order)
    contents = compiled.pool.slices
    slices = [
        ResourceSlice(
            metadata=ObjectMeta(name=f"slice-{number}"),
            spec=ResourceSliceSpec(
                driver=GPU.driver,
                pool=ResourcePool(name="pool", generation=1, resource_slice_count=len(contents)),
                node_name=NODE.name,
                devices=content.devices,
                shared_counters=content.shared_counters,
            ),
        )
        for number, content in enumerate(contents)
    ]
    devices = {DeviceId(GPU.driver, "pool", name) for name, each in compiled.partitions.items() if each in held}
    return Node(slices, AllocatedState(exclusive=frozenset(devices)))


def build_request(highest_ranks: Sequence[int]) -> DeviceRequest:
    if not highest_ranks:
        return request("r", SMALL)
    ranked = [alternative(f"rank-{rank}", SMALL, f"has({RANK}) && {RANK} <= {rank}") for rank in highest_ranks]
    return first_of("r", *ranked, alternative("any", SMALL))


def allocate_on(node: Node, asked: DeviceRequest, steps: int) -> Outcome:
    return decide(node.slices, claim(asked), allocated=node.allocated, budget=Budget(steps=steps))


@pytest.mark.parametrize("highest_ranks", HIGHEST_RANKS.values(), ids=HIGHEST_RANKS.keys())
def test_twenty_full_nodes_take_no_step_however_many_alternatives_there_are(highest_ranks: Sequence[int]) -> None:
    asked = build_request(highest_ranks)
    nodes = list(islice(product(FULL_CARDS, repeat=2), 20))
    assert len(nodes) == 20
    for taken in nodes:
        assert isinstance(allocate_on(build_node(*taken), asked, steps=0), DoesNotFit), taken


@pytest.mark.parametrize(
    ("alternatives", "satisfied"),
    [
        ("no alternatives", {"r"}),
        ("as the policy makes them", {"r/rank-0", "r/rank-2", "r/any"}),
        ("as many as there may be", {f"r/rank-{rank}" for rank in (0, 1, 2, 3, 6)}),
    ],
)
def test_a_node_that_fits_takes_one_step_however_many_alternatives_there_are(
    alternatives: str, satisfied: set[str]
) -> None:
    asked = build_request(HIGHEST_RANKS[alternatives])
    found: set[str] = set()
    for taken in product(CARDS_IN_USE, ((), FULL_CARDS[0])):
        node = build_node(*taken)
        assert isinstance(allocate_on(node, asked, steps=0), Undecided), taken
        outcome = allocate_on(node, asked, steps=1)
        assert isinstance(outcome, Fits), taken
        found |= {result.request for result in outcome.results[0].devices.results}
    assert found == satisfied
