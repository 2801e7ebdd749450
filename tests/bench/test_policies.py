"""KEEP and first fit in the allocator, beside the policies that the publish order is measured with."""

from collections.abc import Collection, Sequence

import pytest

from kerf_dra.driver.partitions.geometry import Card, Partition
from tests.bench.policies import first_fit, keep
from tests.partitions import loss_system
from tests.partitions.cards import gpu


def choices(policy: loss_system.Policy, *, cards: int, mix: str, load: float, requests: int) -> list[Partition | None]:
    """What the policy gives to each request."""
    given: list[Partition | None] = []

    def recorded(node: Sequence[Card], taken: Collection[Partition], profile: str) -> Partition | None:
        given.append(policy(node, taken, profile))
        return given[-1]

    loss_system.run(recorded, cards=cards, mix=mix, load=load, seed=1, requests=requests, warm_up=0)
    return given


@pytest.mark.long  # of what the bench is, not of what Kerf does
@pytest.mark.parametrize("mix", loss_system.MIXES)
def test_the_allocator_gives_what_the_policies_give_choice_by_choice(mix: str) -> None:
    """So the table of ``tests/partitions/test_publish_order.py`` is the allocator's too."""
    few = {"cards": 8, "mix": mix, "load": 1.0, "requests": 600}
    assert choices(keep(), **few) == choices(loss_system.published_order, **few)  # type: ignore[arg-type]
    assert choices(first_fit(), **few) == choices(loss_system.first_fit, **few)  # type: ignore[arg-type]


def test_a_pod_that_fits_nowhere_is_told_so() -> None:
    assert keep()([gpu()], [], "nope") is None
