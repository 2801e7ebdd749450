"""With the scores of the extender, the scheduler's choices among nodes are those of KEEP over all cards."""

from collections.abc import Collection, Sequence

import pytest

from kerf_dra.api.model.claims import ResourceClaim
from kerf_dra.api.model.devices import ResourcePool, ResourceSlice, ResourceSliceSpec
from kerf_dra.api.model.metadata import ObjectMeta
from kerf_dra.driver.families.gpu import GPU
from kerf_dra.driver.partitions.geometry import Card, Partition
from kerf_dra.driver.partitions.pool_compiler import compile_pool
from kerf_dra.driver.partitions.publish_order import publish_order
from kerf_dra.driver.partitions.slice_limits import SliceLayout
from tests.controller.structured.placement.cluster import DRIVER, Cluster, claim_for, pod
from tests.partitions import loss_system


class ScoredNodes:
    """A policy of the loss system: nodes with one card each publish by Kerf's order before each request, and the
    scheduler takes the first of the nodes with the highest score, and the first device there that matches.
    """

    def __init__(self) -> None:
        self._cluster = Cluster()
        self._cluster.index.build()
        self._held: dict[Partition, ResourceClaim] = {}
        self._number = 0

    def __call__(self, cards: Sequence[Card], taken: Collection[Partition], profile: str) -> Partition | None:
        for partition in [each for each in self._held if each not in taken]:
            self._cluster.remove_claim(self._held.pop(partition))
        partitions = {f"n-{card.index}": self._publish(card, taken) for card in cards}
        self._number += 1
        asked = claim_for(profile, f"c-{self._number}")
        self._cluster.set_claim(asked)
        scores = self._cluster.scores(pod(asked.metadata.name), *partitions)
        best = max(scores.values())
        if not best:
            self._cluster.remove_claim(asked)
            return None
        node = next(name for name, score in scores.items() if score == best)
        allocated = self._cluster.allocate(asked, node)
        assert allocated.status.allocation is not None
        partition = partitions[node][allocated.status.allocation.devices.results[0].device]
        self._held[partition] = allocated
        return partition

    def _publish(self, card: Card, taken: Collection[Partition]) -> dict[str, Partition]:
        node = f"n-{card.index}"
        order = publish_order([card], [each for each in taken if each.card_uuid == card.uuid])
        compiled = compile_pool(node, node, [card], vocabulary=GPU.vocabulary, layout=SliceLayout.SPLIT, order=order)
        pool = ResourcePool(name=node, generation=1, resource_slice_count=len(compiled.pool.slices))
        slices = [
            ResourceSlice(
                metadata=ObjectMeta(name=f"{number}-{node}"),
                spec=ResourceSliceSpec(
                    driver=DRIVER,
                    pool=pool,
                    node_name=node,
                    devices=content.devices,
                    shared_counters=content.shared_counters,
                ),
            )
            for number, content in enumerate(compiled.pool.slices)
        ]
        if not any(each.spec.node_name == node for each in self._cluster.stored.values()):
            self._cluster.add_node(node, *slices)
        for each in slices:
            if self._cluster.stored[each.metadata.name] != each:
                self._cluster.set_slice(each)
        return dict(compiled.partitions)


def played(policy: loss_system.Policy, mix: str) -> list[Partition | None]:
    """What the policy gives to each request."""
    given: list[Partition | None] = []

    def recorded(cards: Sequence[Card], taken: Collection[Partition], profile: str) -> Partition | None:
        given.append(policy(cards, taken, profile))
        return given[-1]

    loss_system.run(recorded, cards=4, mix=mix, load=1.0, seed=1, requests=60, warm_up=0)
    return given


@pytest.mark.parametrize("mix", ["uniform", "small"])
def test_each_choice_is_that_of_keep_over_all_cards(mix: str) -> None:
    assert played(ScoredNodes(), mix) == played(loss_system.published_order, mix)
