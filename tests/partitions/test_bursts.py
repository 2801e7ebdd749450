"""Claims that come at once, to what is published now, break as many cards as the same claims one after the other."""

import random
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Final, TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kerf_dra.driver.families.gpu.catalog import gpu_models
from kerf_dra.driver.kubeletplugin.backends.simulated.example_shells import shells
from kerf_dra.driver.partitions.geometry import Card, Partition, Placement
from kerf_dra.driver.partitions.publish_order import needs_republish, publish_order
from tests.partitions.cards import fpga, gpu_partition, gpus, slots
from tests.partitions.loss_system import MEMORY_SLICES
from tests.partitions.oracle import may_coexist

Size: TypeAlias = tuple[str | None, str | None, int]
"""What a claim selects: profile, function, and the number of slots (0: of a GPU, or the whole card)."""
H100: Final = tuple((profile, None, 0) for profile in MEMORY_SLICES)


BURSTS: Final = 300
"""Bursts of a seeded test: some seconds."""


def size_of(partition: Partition) -> Size:
    placement = partition.placement if partition.kind == "fpga" and partition.function is None else None
    return (partition.profile, partition.function, placement.size if placement else 0)


def is_free(card: Card, partition: Partition, taken: Collection[Partition]) -> bool:
    return may_coexist(card, [partition, *(other for other in taken if other.card_uuid == card.uuid)])


def first_fit(
    cards: Sequence[Card], published: Sequence[Partition], taken: Sequence[Partition], size: Size
) -> Partition | None:
    """The scheduler's choice: the first published device that a claim selects and that nobody has."""
    by_uuid = {card.uuid: card for card in cards}
    return next((p for p in published if size_of(p) == size and is_free(by_uuid[p.card_uuid], p, taken)), None)


def load(card: Card, partition: Partition) -> Card:
    """The card once ``partition`` is prepared: its function has replaced what was loaded there."""
    if card.uuid != partition.card_uuid or card.kind == "gpu" or partition.placement is None:
        return card
    if partition.function is not None and card.loaded.get(partition.placement) == partition.function:
        return card
    kept = {place: function for place, function in card.loaded.items() if not place.overlaps(partition.placement)}
    return replace(card, loaded={**kept, **({partition.placement: partition.function} if partition.function else {})})


def at_once(cards: Sequence[Card], taken: Sequence[Partition], sizes: Sequence[Size]) -> list[Partition | None]:
    """What claims get that come before anything is published anew."""
    published = publish_order(cards, taken).partitions
    given: list[Partition | None] = []
    for size in sizes:
        given.append(first_fit(cards, published, [*taken, *filter(None, given)], size))
    return given


def one_by_one(cards: Sequence[Card], taken: Sequence[Partition], sizes: Sequence[Size]) -> list[Partition | None]:
    """What claims get if everything is prepared and published anew after each."""
    given: list[Partition | None] = []
    for size in sizes:
        held = [*taken, *filter(None, given)]
        found = first_fit(cards, publish_order(cards, held).partitions, held, size)
        if found is not None:
            cards = [load(card, found) for card in cards]
        given.append(found)
    return given


def broken(taken: Collection[Partition | None]) -> int:
    """How many cards are not whole any more."""
    return len({partition.card_uuid for partition in taken if partition is not None})


def draw_taken(data: st.DataObject, cards: Sequence[Card], most: int) -> list[Partition]:
    everything = publish_order(cards, ()).partitions
    by_uuid = {card.uuid: card for card in cards}
    taken: list[Partition] = []
    for partition in data.draw(st.lists(st.sampled_from(everything), max_size=most)):
        if is_free(by_uuid[partition.card_uuid], partition, taken):
            taken.append(partition)
    return taken


@pytest.mark.parametrize(
    ("count", "cards"), [(2, 1), (3, 1), (7, 1), (8, 2), (14, 2), (15, 3)], ids=lambda number: str(number)
)
def test_1g_claims_at_once_fill_one_card_before_the_next(count: int, cards: int) -> None:
    given = at_once(gpus(8), [], [("1g.10gb", None, 0)] * count)
    assert broken(given) == cards
    assert None not in given


def test_halves_at_once_share_cards() -> None:
    assert broken(at_once(gpus(8), [], [("3g.40gb", None, 0)] * 4)) == 2


def test_one_claim_of_each_size_at_once_takes_as_few_cards_as_one_by_one() -> None:
    sizes = [*H100, *H100]
    assert at_once(gpus(8), [], sizes) == one_by_one(gpus(8), [], sizes)


@given(data=st.data())
def test_claims_of_one_size_get_at_once_what_they_get_one_by_one(data: st.DataObject) -> None:
    """On any cards, whatever is in use."""
    model = data.draw(st.sampled_from(gpu_models()))
    cards = gpus(data.draw(st.integers(1, 3)), model)
    taken = draw_taken(data, cards, 6)
    size = size_of(data.draw(st.sampled_from(publish_order(cards, ()).partitions)))
    sizes = [size] * data.draw(st.integers(1, 16))
    assert at_once(cards, taken, sizes) == one_by_one(cards, taken, sizes)


@given(data=st.data())
def test_functions_at_once_go_where_they_go_one_by_one(data: st.DataObject) -> None:
    """Also where some are loaded already, and one claim replaces what another would have found."""
    cards, everything = draw_fpgas(data)
    taken = draw_taken(data, cards, 3)
    wanted = [partition for partition in everything if partition.function is not None]
    sizes = [size_of(data.draw(st.sampled_from(wanted)))] * data.draw(st.integers(1, 8))
    assert at_once(cards, taken, sizes) == one_by_one(cards, taken, sizes)


@given(data=st.data())
def test_slots_at_once_break_as_many_cards_as_one_by_one(data: st.DataObject) -> None:
    """On a shell of unlike slots they may get others than one by one."""
    cards, everything = draw_fpgas(data)
    taken = draw_taken(data, cards, 3)
    wanted = [partition for partition in everything if partition.function is None]
    sizes = [size_of(data.draw(st.sampled_from(wanted)))] * data.draw(st.integers(1, 8))
    together, each = at_once(cards, taken, sizes), one_by_one(cards, taken, sizes)
    assert broken([*taken, *together]) == broken([*taken, *each])
    assert together.count(None) == each.count(None)


def draw_fpgas(data: st.DataObject) -> tuple[list[Card], Sequence[Partition]]:
    """Draw cards of one shell, with functions that were left in some slots, and everything that they offer."""
    shell = data.draw(st.sampled_from(shells()))
    cards = [fpga(shell, index) for index in range(data.draw(st.integers(1, 3)))]
    by_uuid = {card.uuid: number for number, card in enumerate(cards)}
    everything = publish_order(cards, ()).partitions
    for partition in data.draw(st.lists(st.sampled_from(everything), max_size=6)):
        if partition.function is not None:
            number = by_uuid[partition.card_uuid]
            cards[number] = load(cards[number], partition)
    return cards, everything


def test_an_engine_that_each_card_has_once_sends_nobody_to_another_card() -> None:
    """Both want the same first slice; the next card's comes after all that is left on this one."""
    sizes = [("1g.10gb", None, 0), ("1g.10gb+me", None, 0)]
    assert at_once(gpus(2), [], sizes) == one_by_one(gpus(2), [], sizes)
    assert broken(at_once(gpus(2), [], sizes)) == 1


@pytest.mark.parametrize("model", ["h100-80gb-sxm", "a30-24gb"])
def test_mixed_claims_at_once_break_as_many_empty_cards_as_one_by_one(model: str) -> None:
    rng = random.Random(1)
    for _ in range(BURSTS):
        cards = gpus(rng.choice([2, 4, 8]), model)
        sizes = draw_sizes(rng, cards[0])
        assert broken(at_once(cards, [], sizes)) == broken(one_by_one(cards, [], sizes)), sizes


def test_on_cards_in_use_mixed_claims_at_once_take_as_many_cards_as_one_by_one_but_for_one_in_a_hundred() -> None:
    """No fixed order can be the best for each mix: what one size loses depends on where the others went."""
    rng = random.Random(2)
    more, gained = 0, 0
    for _ in range(BURSTS):
        cards = gpus(rng.choice([2, 4, 8]))
        before = filter(None, one_by_one(cards, [], draw_sizes(rng, cards[0])))
        taken = [partition for partition in before if rng.random() < 0.5]
        sizes = draw_sizes(rng, cards[0])
        together, each = at_once(cards, taken, sizes), one_by_one(cards, taken, sizes)
        more += broken([*taken, *together]) - broken([*taken, *each])
        gained += len([*filter(None, together)]) - len([*filter(None, each)])
    assert more <= BURSTS / 100
    assert gained >= -BURSTS / 100


def draw_sizes(rng: random.Random, card: Card) -> list[Size]:
    """Two to fifteen claims, more of the small sizes."""
    profiles = list(dict.fromkeys(spec.profile for spec in card.geometry.specs if spec.profile))
    weights = [1 / (number + 1) for number in range(len(profiles))]
    return [(profile, None, 0) for profile in rng.choices(profiles, weights, k=rng.randint(2, 15))]


def test_claims_at_once_of_the_published_sizes_need_nothing_published_between_them() -> None:
    cards = gpus(8)
    before = publish_order(cards, ())
    taken = [before.partitions[number] for number in range(8)]
    after = publish_order(cards, taken)
    left = [
        partition for partition in before.partitions if partition.profile == "1g.10gb" and partition in after.available
    ]
    assert left == [
        partition for partition in after.partitions if partition.profile == "1g.10gb" and partition in after.available
    ]


def test_a_sequence_counts_when_orders_are_compared() -> None:
    """The first of each size may be the same, and what follows another card."""
    cards = gpus(3)
    taken = [gpu_partition(cards[0], "7g.80gb", 0)]
    other = [*taken, gpu_partition(cards[2], "1g.10gb", 0)]
    before, after = publish_order(cards, taken), publish_order(cards, other)
    assert needs_republish(before, after)


def test_what_a_sequence_replaces_no_longer_counts_as_loaded() -> None:
    """Once the dpu of the second card is replaced at slot 0, its slot 2 is as good as blank."""
    first = fpga("edge-3", 0, {Placement(1, 1): "aes-gcm", Placement(2, 1): "fir"})
    second = fpga("edge-3", 1, {Placement(0, 3): "dpu"})
    taken = [slots(second, 1, 1, "fir")]
    sizes: list[Size] = [(None, "aes-gcm", 0)] * 5
    given = at_once([first, second], taken, sizes)
    found = [
        (partition.card_uuid, partition.placement.start) for partition in given if partition and partition.placement
    ]
    assert found == [("FPGA-0", 1), ("FPGA-0", 0), ("FPGA-1", 0), ("FPGA-1", 2), ("FPGA-0", 2)]
    assert given == one_by_one([first, second], taken, sizes)
