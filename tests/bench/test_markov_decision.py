"""Exact values of small chains, compared with formulas, with each other, and with simulated policies."""

import itertools
from collections.abc import Collection, Sequence
from math import factorial

import pytest

from kerf_dra.driver.partitions.geometry import Card, Partition, unit_mask
from tests.bench import card_states, online
from tests.bench.markov_decision import Chain, explore, solve_best_policy
from tests.bench.repack_policy import can_pack
from tests.partitions import loss_system
from tests.partitions.loss_system import MEMORY_SLICES, MIXES

PROFILES = list(MEMORY_SLICES)
ONE_EACH = [1] * len(PROFILES)
SIZES = list(MEMORY_SLICES.values())
WITHIN = 0.01


def value(
    chain: Chain, mix: str, *, worth: Sequence[float] = ONE_EACH, cards: int = 1, may_refuse: bool = False
) -> float:
    rate = loss_system.rate(cards=cards, mix=mix, load=1.0)
    low, high = solve_best_policy(
        chain, [rate * share for share in MIXES[mix]], worth, may_refuse=may_refuse, within=WITHIN
    )
    assert 0 <= high - low <= WITHIN
    return (low + high) / 2


def lines(servers: int) -> Chain:
    """A loss system of one kind of request."""
    return explore(
        0, ["any"], lambda busy, _: [busy + 1] if busy < servers else [], lambda busy: {busy - 1: busy} if busy else {}
    )


@pytest.mark.parametrize(("servers", "load"), [(1, 0.5), (1, 2.0), (7, 7.0), (40, 30.0)])
def test_equal_requests_are_lost_as_erlang_says(servers: int, load: float) -> None:
    """Erlang's B formula (1917)."""
    terms = [load**busy / factorial(busy) for busy in range(servers + 1)]
    low, high = solve_best_policy(lines(servers), [load], [1], may_refuse=False)
    assert low - 1e-9 <= 100 * (1 - terms[-1] / sum(terms)) <= high + 1e-9


def test_only_one_profile_on_one_card_is_erlangs_formula_too() -> None:
    """Seven places of 1g.10gb, whoever places: none stands in the way of another."""
    only_small = [7.0, 0, 0, 0, 0, 0]
    erlang = solve_best_policy(lines(7), [7.0], [1], may_refuse=False)
    for policy in (card_states.first_fit, card_states.publish_order, card_states.all_placements):
        low, high = solve_best_policy(card_states.build_chain(1, policy), only_small, ONE_EACH, may_refuse=False)
        assert low <= erlang.high
        assert erlang.low <= high


def test_a_cheap_request_is_refused_where_a_dear_one_may_come() -> None:
    """One server: who refuses what is worth 1 has, of every 10 dear ones that come at rate 1, half."""
    chain = explore(0, ["cheap", "dear"], lambda busy, _: [] if busy else [1], lambda busy: {0: 1} if busy else {})
    arrivals, worth = [1, 1], [1, 10]
    assert solve_best_policy(chain, arrivals, worth, may_refuse=False).low == pytest.approx(100 / 3, abs=WITHIN)
    assert solve_best_policy(chain, arrivals, worth, may_refuse=True).low == pytest.approx(100 * 5 / 11, abs=WITHIN)


def test_where_everything_moves_and_nothing_is_refused_the_shares_are_a_product() -> None:
    """Reversible: the weight of a state is the product of load^count / count! over the profiles (Kaufman, 1981)."""
    rate = loss_system.rate(cards=1, mix="uniform", load=1.0)
    states = [  # as many of each as a card has at most, and those together for which it has room
        counts
        for counts in itertools.product(*map(range, (8, 5, 4, 3, 2, 2)))
        if can_pack(dict(zip(PROFILES, counts, strict=True)), 1)
    ]

    def weight(counts: tuple[int, ...]) -> float:
        result = 1.0
        for count in counts:
            result *= (rate / 6) ** count / factorial(count)
        return result

    known = set(states)
    room = [
        sum(weight(each) for each in states if (*each[:at], each[at] + 1, *each[at + 1 :]) in known) for at in range(6)
    ]
    expected = 100 * sum(room) / 6 / sum(map(weight, states))
    assert value(card_states.build_repacking_chain(1), "uniform") == pytest.approx(expected, abs=WITHIN)


@pytest.mark.parametrize("cards", [1, 2])
def test_the_states_of_the_best_policy_are_those_whose_future_differs(cards: int) -> None:
    """Of a pair four: nothing, one 1g, two, or one of two units; of the last pair two: something is there or not.

    A lower half is two pairs in no order, or one of four units; an upper half two different pairs, or one of four; a
    card is both, or one of eight.
    """
    assert card_states.build_chain(1, card_states.all_placements).leaving.shape[1] == 417
    merged = card_states.build_chain(cards, card_states.all_placements, card_states.canonicalize)
    assert merged.leaving.shape[1] == {1: 11 * 9 + 1, 2: 100 * 101 // 2}[cards]


@pytest.mark.parametrize("mix", MIXES)
@pytest.mark.parametrize("worth", [ONE_EACH, SIZES])
def test_states_with_the_same_future_may_be_one(mix: str, worth: list[int]) -> None:
    chains = (
        card_states.build_chain(1, card_states.all_placements),
        card_states.build_chain(1, card_states.all_placements, card_states.canonicalize),
    )
    apart, together = (value(chain, mix, worth=worth) for chain in chains)
    assert apart == pytest.approx(together, abs=WITHIN)


@pytest.mark.parametrize("mix", MIXES)
@pytest.mark.parametrize("worth", [ONE_EACH, SIZES])
def test_more_freedom_never_accepts_less(mix: str, worth: list[int]) -> None:
    best = card_states.build_chain(1, card_states.all_placements, card_states.canonicalize)
    repacked = card_states.build_repacking_chain(1)
    ladder = [
        value(card_states.build_chain(1, card_states.publish_order), mix, worth=worth),
        value(best, mix, worth=worth),
        value(best, mix, worth=worth, may_refuse=True),
        value(repacked, mix, worth=worth, may_refuse=True),
    ]
    assert all(less <= more + WITHIN for less, more in itertools.pairwise(ladder)), ladder


@pytest.mark.parametrize("cards", [1, 2, 3])
@pytest.mark.parametrize(
    ("policy", "meant"),
    [(card_states.first_fit, loss_system.first_fit), (card_states.publish_order, loss_system.published_order)],
)
def test_a_chain_places_as_its_policy_does(cards: int, policy: card_states.Policy, meant: loss_system.Policy) -> None:
    def both(node: Sequence[Card], taken: Collection[Partition], profile: str) -> Partition | None:
        chosen = meant(node, taken, profile)
        state = tuple(
            tuple(sorted(unit_mask(one.placement) for one in taken if one.card_uuid == card.uuid and one.placement))
            for card in node
        )
        expected = [(chosen.card_uuid, unit_mask(chosen.placement))] if chosen and chosen.placement else []
        assert [(node[card].uuid, units) for card, units in policy(state, profile)] == expected
        return chosen

    loss_system.run(both, cards=cards, mix="uniform", load=1.0, seed=0, requests=300, warm_up=0)


def test_the_exact_value_of_keep_is_what_a_simulation_comes_to() -> None:
    """6,000 requests: from seed to seed such runs spread by 0.54 points of requests and 0.70 of slices."""
    run = loss_system.run(
        loss_system.published_order, cards=1, mix="small", load=1.0, seed=0, requests=6_000, warm_up=0
    )
    chain = card_states.build_chain(1, card_states.publish_order)
    assert run.requests == pytest.approx(value(chain, "small"), abs=2 * 0.54)
    assert run.slices == pytest.approx(value(chain, "small", worth=SIZES), abs=2 * 0.70)


def test_one_card_comes_to_the_documented_figures() -> None:
    """docs/placement.md"""
    (row,) = online.rows(1, [("small", 1.0)])
    first, kept, both, *others = row[1:]
    assert (first, kept, both) == ("69.31 (52.07)", "69.74 (53.46)", "70.42")
    assert others == ["70.63 (53.63)", "71.11 (53.63)", "71.50 (57.31)", "72.45 (57.31)"]
