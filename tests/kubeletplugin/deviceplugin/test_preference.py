"""Which of the free devices a container should get (DP-05)."""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kerf_dra.api.deviceplugin.v1beta1 import PreferenceRequest
from kerf_dra.api.kerf.v1alpha1 import PreferredDevices
from kerf_dra.driver.kubeletplugin.deviceplugin.preference import DevicePlace, choose_devices

PREFERRED: tuple[PreferredDevices, ...] = ("Packed", "Spread")
PLACES: Mapping[str, DevicePlace] = {
    f"c{card}-{number}": DevicePlace(card=f"c{card}", pcie_root=f"root{card // 2}", numa_node=card // 4)
    for card in range(8)
    for number in range(4)
}
"""Eight cards with four devices each: two cards behind a root complex, two root complexes on a NUMA node."""


def cards(ids: tuple[str, ...]) -> list[str]:
    return sorted(PLACES[each].card for each in ids)


@given(
    available=st.lists(st.sampled_from([*PLACES, "x", "y"]), unique=True),
    data=st.data(),
    preferred=st.sampled_from(PREFERRED),
)
def test_an_answer_has_the_size_what_must_be_in_it_and_nothing_that_is_not_available(
    available: list[str], data: st.DataObject, preferred: PreferredDevices
) -> None:
    size = data.draw(st.integers(0, len(available)))
    must = data.draw(st.lists(st.sampled_from(available), unique=True, max_size=size)) if available else []
    request = PreferenceRequest(available=tuple(available), must_include=tuple(must), size=size)
    chosen = choose_devices(request, PLACES, preferred)
    assert len(chosen) == len(set(chosen)) == size
    assert {*must} <= {*chosen} <= {*available}


@pytest.mark.parametrize(
    ("size", "preferred", "expected"),
    [
        (4, "Packed", ["c0"] * 4),
        (4, "Spread", ["c0", "c0", "c1", "c1"]),
        (6, "Packed", ["c0"] * 4 + ["c1"] * 2),
        (12, "Packed", ["c0"] * 4 + ["c1"] * 4 + ["c2"] * 4),
        (12, "Spread", ["c0"] * 3 + ["c1"] * 3 + ["c2"] * 3 + ["c3"] * 3),
    ],
)
def test_a_container_gets_devices_near_to_each_other(
    size: int, preferred: PreferredDevices, expected: list[str]
) -> None:
    request = PreferenceRequest(available=tuple(PLACES), size=size)
    assert cards(choose_devices(request, PLACES, preferred)) == expected


@pytest.mark.parametrize("others", [(), ("c2-0", "c2-1", "c2-2")], ids=["", "of a card alone behind its root complex"])
def test_packed_takes_the_smallest_group_that_holds_the_container(others: tuple[str, ...]) -> None:
    available = (*(each for each in PLACES if each.startswith("c0")), "c1-0", "c1-1", *others)
    assert cards(choose_devices(PreferenceRequest(available=available, size=2), PLACES, "Packed")) == ["c1", "c1"]


@pytest.mark.parametrize("preferred", PREFERRED)
def test_others_follow_what_a_container_must_have(preferred: PreferredDevices) -> None:
    request = PreferenceRequest(available=tuple(PLACES), must_include=("c6-1",), size=3)
    chosen = choose_devices(request, PLACES, preferred)
    assert {PLACES[each].pcie_root for each in chosen} == {"root3"}


def test_what_is_still_prepared_for_an_earlier_container_comes_last() -> None:
    places = {each: DevicePlace(card="c", pcie_root="", numa_node=0, is_prepared=each != "b") for each in "abc"}
    assert choose_devices(PreferenceRequest(available=("a", "b", "c"), size=1), places, "Packed") == ("b",)


def test_where_fewer_are_available_all_of_them_are_the_answer() -> None:
    assert choose_devices(PreferenceRequest(available=("c0-0", "c5-0"), size=9), PLACES, "Packed") == ("c0-0", "c5-0")
