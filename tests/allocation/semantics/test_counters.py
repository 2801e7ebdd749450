"""Packed counters against plain arithmetic."""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kerf_dra.api.model.devices import CounterSet, Device
from kerf_dra.driver.allocation.semantics.counters import NO_GROUPS, Groups, fits, join_groups, pack_counters
from tests.allocation.builders import counters, device

SETS = ("card-0", "card-1")
COUNTERS = ("slices", "memory")
sizes = st.integers(0, 7) | st.sampled_from([0, 10 * 2**30, 20 * 2**30, 80 * 2**30])
amounts = st.fixed_dictionaries(dict.fromkeys(COUNTERS, sizes))


@given(
    st.fixed_dictionaries(dict.fromkeys(SETS, amounts)),
    st.lists(st.dictionaries(st.sampled_from(SETS), amounts, min_size=1), max_size=6),
)
def test_a_device_fits_exactly_when_every_counter_suffices(
    totals: Mapping[str, Mapping[str, int]], uses: list[Mapping[str, Mapping[str, int]]]
) -> None:
    devices = [device(f"d{index}", uses=use) for index, use in enumerate(uses)]
    packed = pack_counters([CounterSet(name=name, counters=counters(of)) for name, of in totals.items()], devices)
    left = {(set_, name): amount for set_, of in totals.items() for name, amount in of.items()}
    remaining = packed.remaining([])
    assert remaining is not None
    for each, use in zip(devices, uses, strict=True):
        wanted = {(set_, name): amount for set_, of in use.items() for name, amount in of.items()}
        enough = all(left[key] >= amount for key, amount in wanted.items())
        taking = packed.use(each)
        assert all(fits(remaining[use.set], use.amount, packed.guards[use.set]) for use in taking) is enough
        if enough:
            left |= {key: left[key] - amount for key, amount in wanted.items()}
            for taken in taking:
                remaining[taken.set] -= taken.amount or 0


def test_what_is_taken_leaves_the_rest_and_too_much_leaves_nothing() -> None:
    half = device("half", uses={"card": {"slices": 2}})
    packed = pack_counters([CounterSet(name="card", counters=counters({"slices": 4}))], [half])
    use = packed.use(half)
    assert packed.remaining([*use, *use]) == list(packed.guards)
    assert packed.remaining([*use, *use, *use]) is None


def test_a_message_names_the_counter_that_does_not_suffice() -> None:
    big = device("big", uses={"card": {"slices": 1, "memory": 3}})
    packed = pack_counters([CounterSet(name="card", counters=counters({"slices": 4, "memory": 4}))], [big])
    (use,) = packed.use(big)
    remaining = packed.remaining([use])
    assert remaining is not None
    assert packed.find_exhausted(remaining[0], use) == "memory"


@pytest.mark.parametrize(("slices", "memory", "named"), [(1, 1, "slices"), (0, 2, "memory"), (0, 1, "")])
def test_a_message_names_the_first_counter_that_is_short_by_one(slices: int, memory: int, named: str) -> None:
    most = device("most", uses={"card": {"slices": 4, "memory": 4}})
    more = device("more", uses={"card": {"slices": slices, "memory": memory}})
    packed = pack_counters([CounterSet(name="card", counters=counters({"slices": 4, "memory": 5}))], [most, more])
    remaining = packed.remaining(packed.use(most))
    assert remaining is not None
    (use,) = packed.use(more)
    assert packed.find_exhausted(remaining[0], use) == named


def test_a_device_that_is_larger_than_its_card_never_fits() -> None:
    huge: Device = device("huge", uses={"card": {"slices": 9}})
    packed = pack_counters([CounterSet(name="card", counters=counters({"slices": 4}))], [huge])
    assert packed.use(huge)[0].amount is None


MIG, BOTH, TIME = frozenset({"mig"}), frozenset({"mig", "time"}), frozenset({"time"})


@pytest.mark.parametrize(
    ("present", "joining", "then"),
    [
        (None, NO_GROUPS, NO_GROUPS),
        (None, BOTH, BOTH),
        (NO_GROUPS, NO_GROUPS, NO_GROUPS),
        (NO_GROUPS, MIG, None),
        (MIG, NO_GROUPS, None),
        (BOTH, MIG, MIG),
        (MIG, BOTH, MIG),
        (MIG, TIME, None),
    ],
)
def test_devices_share_a_card_while_they_have_a_group_in_common(
    present: Groups | None, joining: Groups, then: Groups | None
) -> None:
    assert join_groups(present, joining) == then
