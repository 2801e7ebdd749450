"""Cards with several layouts, slot sets with gaps, and cards without slots: what is published, and in which order.

The rules are those of the oracle (``tests.partitions.oracle``), which knows no counters and no bitsets.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

import pytest

from kerf_dra.driver.families.fpga.geometry import fpga_geometry
from kerf_dra.driver.families.fpga.shell import Shell
from kerf_dra.driver.partitions.device_names import device_name
from kerf_dra.driver.partitions.fragmentation import fragmentation
from kerf_dra.driver.partitions.geometry import Card, InvalidGeometryError, Layout, Partition, Placement
from kerf_dra.driver.partitions.pool_compiler import CompiledPool, SliceLayout, compile_pool
from kerf_dra.driver.partitions.publish_order import publish_order
from kerf_dra.driver.partitions.records import from_card_part, to_card_part
from kerf_dra.driver.partitions.slice_limits import MAX_COUNTERS
from kerf_dra.driver.partitions.unit_map import UnitMap, count_disjoint, get_unit_map
from tests.partitions.cards import fpga, vocabulary_of, whole
from tests.partitions.counters import Counters, devices
from tests.partitions.layouts import divided, function, scattered
from tests.partitions.oracle import may_coexist
from tests.partitions.scheduler import allocate_each, ask

EVERY_WAY = divided(
    3,
    2,
    1,
    functions=[
        function("aes", Placement(0, 1), Placement(1, 1), Placement(2, 1)),
        function("fft", scattered(0, 2), Placement(0, 2)),
        function("aes", scattered(0, layout="halves"), scattered(1, layout="halves")),
        function("dpu", scattered(0, layout="whole")),
    ],
    undivided=[2],
)
"""Three slots with a function in two that are no neighbours, or two slots, or none."""
SIZES = ((1, 2, 4), (1, 2, 4, 8), (2, 3), (3, 3, 3), (1, 7), (4, 2, 2))
"""The layouts for which section 2.6 of the reference says that the encoding was tried."""


def compiled_of(*cards: Card, layout: SliceLayout = SliceLayout.SPLIT) -> CompiledPool:
    return compile_pool("n/fpga", "n", cards, vocabulary=vocabulary_of(cards[0]), layout=layout)


def at(card: Card, placement: Placement | None, name: str | None = None) -> Partition:
    found = Partition(kind="fpga", card_uuid=card.uuid, placement=placement, function=name)
    assert found in [spec.of(card.uuid) for spec in card.geometry.specs]
    return found


def singles_of(card: Card) -> list[str]:
    """The devices of one slot each, and the whole card."""
    parts = (spec.of(card.uuid) for spec in card.geometry.specs)
    return [device_name(card, one) for one in parts if one.placement is None or one.placement.size == 1]


def check_every_set(card: Card, compiled: CompiledPool, names: Sequence[str]) -> int:
    """Both verdicts stay no when devices are added, so it suffices to extend the yeses."""
    counters = Counters(compiled)

    def extend(taken: list[str], rest: Sequence[str]) -> int:
        tried = 0
        for number, name in enumerate(rest):
            together = [*taken, name]
            admitted = counters.admit(together)
            assert admitted == may_coexist(card, [compiled.partitions[one] for one in together]), together
            tried += 1 + (extend(together, rest[number + 1 :]) if admitted else 0)
        return tried

    return extend([], names)


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_counters_of_layouts_admit_exactly_what_one_layout_allows(sizes: tuple[int, ...]) -> None:
    """FP-10, by brute force over every set of slots: section 2.6's cases."""
    card = fpga(divided(*sizes))
    compiled = compiled_of(card)
    assert check_every_set(card, compiled, singles_of(card)) >= sum(2**size - 1 for size in sizes)
    [counters] = [each for content in compiled.pool.slices for each in content.shared_counters]
    assert len(counters.counters) == sum(sizes)


@pytest.mark.parametrize("shell", [EVERY_WAY, divided(2, 3), divided(3, 3)], ids=lambda shell: shell.name)
def test_counters_of_layouts_admit_exactly_what_the_slots_allow(shell: Shell) -> None:
    """Also of runs, of slots that are no neighbours, and of functions."""
    card = fpga(shell)
    compiled = compiled_of(card)
    check_every_set(card, compiled, sorted(compiled.partitions))


def test_an_allocated_half_keeps_quarters_and_the_whole_card_away_and_leaves_the_other_half() -> None:
    """FP-10."""
    card = fpga(divided(4, 2, 1, undivided=[2], functions=[function("dpu", scattered(0, layout="whole"))]))
    counters = Counters(compiled_of(card))
    half = "fpga-0-slot-0-of-halves"
    assert counters.admit([half, "fpga-0-slot-1-of-halves"])
    for other in ("fpga-0", "fpga-0-slot-0", "fpga-0-slots-2-3", "fpga-0-dpu-at-0-of-whole", half):
        assert not counters.admit([half, other]), other
    assert counters.admit([f"fpga-0-slot-{slot}" for slot in range(4)])


def test_devices_of_layouts_are_published_with_their_layout_and_its_interface() -> None:
    compiled = compiled_of(fpga(EVERY_WAY))
    found = {device.name: device for device in devices(compiled.pool)}
    assert found.keys() == {
        "fpga-0",
        *(f"fpga-0-slot-{slot}" for slot in range(3)),
        *("fpga-0-slots-0-1", "fpga-0-slots-1-2", "fpga-0-slots-0-2", "fpga-0-slots-0-and-2"),
        *(f"fpga-0-aes-at-{slot}" for slot in range(3)),
        *("fpga-0-fft-at-0-1", "fpga-0-fft-at-0-and-2"),
        *("fpga-0-slot-0-of-halves", "fpga-0-slot-1-of-halves", "fpga-0-slots-0-1-of-halves"),
        *("fpga-0-aes-at-0-of-halves", "fpga-0-aes-at-1-of-halves"),
        "fpga-0-dpu-at-0-of-whole",
    }
    said = {
        name: tuple(found[name].attributes[key].string for key in ("layout", "interfaceUUID"))
        for name in ("fpga-0-aes-at-1", "fpga-0-aes-at-1-of-halves", "fpga-0-dpu-at-0-of-whole", "fpga-0")
    }
    uuid = "00000000-0000-4000-8000-00000000000"
    assert said == {
        "fpga-0-aes-at-1": ("", f"{uuid}0"),
        "fpga-0-aes-at-1-of-halves": ("halves", f"{uuid}1"),
        "fpga-0-dpu-at-0-of-whole": ("whole", f"{uuid}2"),
        "fpga-0": ("", f"{uuid}0"),
    }
    slots = {name: int(device.capacity["slots"].value) for name, device in found.items()}
    assert (slots["fpga-0"], slots["fpga-0-fft-at-0-and-2"], slots["fpga-0-dpu-at-0-of-whole"]) == (3, 2, 0)
    assert found["fpga-0-aes-at-1-of-halves"].attributes["loadSeconds"].int_value == 3, "the layout and the function"


def test_a_card_without_partial_reconfiguration_is_the_whole_card_and_its_functions() -> None:
    """FP-03: and a function has the compute units of its image."""
    card = fpga(divided(1, undivided=[0], functions=[function("vadd", Placement(0, 1), compute_units=4)]))
    compiled = compiled_of(card)
    found = {device.name: device for device in devices(compiled.pool)}
    assert found.keys() == {"fpga-0", "fpga-0-vadd-at-0"}
    capacity = {name: int(found["fpga-0-vadd-at-0"].capacity[name].value) for name in ("computeUnitPercent", "slots")}
    assert capacity == {"computeUnitPercent": 400, "slots": 0}
    assert int(found["fpga-0"].capacity["lut"].value) == 1200
    check_every_set(card, compiled, sorted(compiled.partitions))


def test_layouts_are_published_in_the_layout_of_slices_before_kubernetes_1_35() -> None:
    cards = [fpga(divided(4, 2, 1), index) for index in range(2)]
    check_every_set(cards[0], compiled_of(*cards, layout=SliceLayout.COMBINED), singles_of(cards[0]))


def test_what_is_reserved_in_one_layout_leaves_nothing_to_the_others() -> None:
    card = fpga(divided(4, 2))
    half = at(card, scattered(0, layout="halves"))
    compiled = compile_pool(
        "n/fpga", "n", [card], vocabulary=vocabulary_of(card), layout=SliceLayout.SPLIT, reserved=[half]
    )
    counters = Counters(compiled)
    left = {name for name in compiled.partitions if counters.admit([name])}
    assert left == {"fpga-0-slot-1-of-halves"}


def loads(card: Card, taken: Sequence[Partition], slots: int) -> list[str]:
    """The available devices of ``slots`` in publish order."""
    order = publish_order([card], taken)
    found = [one for one in order.partitions if one in order.available]
    return [device_name(card, one) for one in found if one.placement is not None and one.placement.size == slots]


def test_of_two_layouts_with_equal_slots_the_one_that_the_card_has_comes_first() -> None:
    shell = divided(2, 2)
    here, there = ["fpga-0-slot-0", "fpga-0-slot-1"], ["fpga-0-slot-0-of-halves", "fpga-0-slot-1-of-halves"]
    assert loads(fpga(shell), (), 1) == [*here, *there]
    assert loads(replace(fpga(shell), layout="halves"), (), 1) == [*there, *here]


def test_a_claim_goes_to_the_card_that_has_the_layout() -> None:
    shell = divided(4, 2, functions=[function("aes", scattered(0, layout="halves"), scattered(1, layout="halves"))])
    cards = [fpga(shell, 0), replace(fpga(shell, 1), layout="halves"), fpga(shell, 2)]
    order = publish_order(cards, [at(cards[2], Placement(0, 1))])
    aes = [one.card_uuid for one in order.partitions if one.function == "aes" and one in order.available]
    assert aes == ["FPGA-1", "FPGA-1", "FPGA-0", "FPGA-0"], "and never to the card whose other layout is in use"


def test_slots_are_taken_first_where_the_layout_is_in_use_already() -> None:
    shell = divided(4, 2)
    cards = [fpga(shell, 0), fpga(shell, 1)]
    order = publish_order(cards, [at(cards[1], Placement(0, 1))])
    slots = [one for one in order.partitions if one in order.available and one.placement == Placement(1, 1)]
    assert [one.card_uuid for one in slots] == ["FPGA-1", "FPGA-0"]


def test_fragmentation_is_that_of_the_layout_in_use() -> None:
    card = fpga(divided(4, 2))
    empty = fragmentation(card, ())
    assert (empty.units, empty.free_units, empty.stranded_units, empty.largest_free_run) == (4, 4, 0, 4)
    assert empty.free_instances == {"": 4}
    half = fragmentation(card, [at(card, scattered(1, layout="halves"))])
    assert (half.units, half.free_units, half.stranded_units, half.largest_free_run) == (2, 1, 0, 1)
    quarter = fragmentation(card, [at(card, Placement(1, 1))])
    assert (quarter.units, quarter.free_units, quarter.largest_free_run) == (4, 3, 2)
    assert fragmentation(card, [whole(card)]).free_units == 0
    unknown = Partition(kind="fpga", card_uuid=card.uuid, placement=scattered(0, layout="thirds"))
    assert fragmentation(card, [unknown]).free_units == 0, "a layout that nobody describes any more"


def test_a_function_in_slots_that_are_no_neighbours_is_counted_by_exhaustion() -> None:
    """Greedy by earliest end would take [0, 1], which leaves neither of the two others."""
    sets = [scattered(0, 1), scattered(0, 2), scattered(1, 3)]
    card = fpga(divided(4, functions=[function("fft", *sets)]))
    assert fragmentation(card, ()).free_instances["fft"] == 2
    assert fragmentation(card, [at(card, Placement(3, 1))]).free_instances["fft"] == 1


def test_the_most_disjoint_sets_are_those_of_a_search_over_all() -> None:
    sets = [scattered(*units) for size in (1, 2, 3) for units in combinations(range(5), size)]
    unit_map = UnitMap(fpga_geometry(divided(5, functions=[function("any", *sets)])))
    for chosen in combinations([spec.mask for spec in unit_map.specs if spec.function == "any"], 4):
        masks = sorted(chosen, key=int.bit_length)
        for free in (0b11111, 0b10111, 0b01101):
            inside = [mask for mask in masks if not mask & ~free]
            best = max(
                (
                    count
                    for count in range(len(inside) + 1)
                    for some in combinations(inside, count)
                    if all(not one & other for one, other in combinations(some, 2))
                ),
                default=0,
            )
            assert count_disjoint(masks, free) == best, (masks, bin(free))


@pytest.mark.parametrize("placement", [Placement(0, 2), scattered(0, 2), scattered(1, 2, 5, layout="halves"), None])
def test_a_record_says_which_slots_of_which_layout_a_device_has(placement: Placement | None) -> None:
    partition = Partition(kind="fpga", card_uuid="FPGA-0", placement=placement, function="aes")
    assert from_card_part(to_card_part(partition)) == partition


def test_partitions_of_two_layouts_overlap_and_those_of_one_by_their_slots() -> None:
    assert scattered(0, layout="halves").overlaps(Placement(3, 1))
    assert not scattered(0, layout="halves").overlaps(scattered(1, layout="halves"))
    assert not scattered(0, 2).overlaps(scattered(1, 3))
    assert scattered(0, 2).overlaps(scattered(1, 2))
    assert scattered(0, 2).units == (0, 2)
    assert (scattered(0, 1), scattered(0, 1).run) == (Placement(0, 2), (0, 2))
    assert scattered(0, 2).run is None


WRONG: Mapping[str, Any] = {
    "a layout of no units": {"layouts": (Layout("", 3), Layout("none", 0))},
    "two layouts of one name": {"layouts": (Layout("", 1), Layout("", 2))},
    "other units than its layouts": {"layouts": (Layout("", 3), Layout("halves", 2))},
}


@pytest.mark.parametrize("case", WRONG)
def test_a_geometry_whose_layouts_contradict_it_is_refused(case: str) -> None:
    with pytest.raises(InvalidGeometryError, match="layout"):
        replace(fpga_geometry(divided(3)), **WRONG[case])


@pytest.mark.parametrize("placement", [Placement(0, 2, 8), Placement(0, 2, 1), Placement(0, 3, layout="halves")])
def test_a_placement_that_is_none_is_refused(placement: Placement) -> None:
    """Gaps outside of it would make two values of one set of slots."""
    geometry = fpga_geometry(divided(4))
    specs = [
        replace(spec, placement=placement) if spec.placement == Placement(0, 2) else spec for spec in geometry.specs
    ]
    with pytest.raises(InvalidGeometryError):
        replace(geometry, specs=tuple(specs))


def test_layouts_with_more_slots_than_a_counter_set_has_are_no_longer_published() -> None:
    """A description of such a shell is refused before; this is what is left for other families."""
    assert MAX_COUNTERS == 32
    with pytest.raises(Exception, match="at most 32"):
        compiled_of(fpga(divided(16, 16, 1)))


def test_what_is_taken_of_one_layout_leaves_nothing_of_the_others_to_whoever_computes_with_units() -> None:
    """The classic controller searches by units, not by counters."""
    card = fpga(divided(4, 2))
    unit_map = get_unit_map(card)
    half = at(card, scattered(0, layout="halves"))
    spec = unit_map.find(half)
    assert spec is not None
    left = unit_map.without(spec, unit_map.all)
    assert left == unit_map.free([half])
    names = [device_name(card, one.of(card.uuid)) for one in unit_map.specs if unit_map.fits(one, left)]
    assert names == ["fpga-0-slot-1-of-halves"]


def test_only_those_free_units_of_a_layout_that_is_chosen_count_as_usable() -> None:
    unit_map = get_unit_map(fpga(divided(4, 2)))
    assert [mask.bit_count() for mask in unit_map.list_layouts(unit_map.all)] == [4, 2]


def test_the_scheduler_gives_both_halves_of_a_card_and_no_quarter_beside_them() -> None:
    """FP-10, as kube-scheduler allocates."""
    card = fpga(divided(4, 2))
    half, quarter = (f'device.attributes["kerf.dev"].layout == "{layout}"' for layout in ("halves", ""))
    pool = compiled_of(card).pool

    def give(*wanted: str) -> list[str | None]:
        asked = [ask(f"claim-{number}", where) for number, where in enumerate(wanted)]
        return [result.device if result else None for result in allocate_each(pool, asked)]

    halves = ["fpga-0-slot-0-of-halves", "fpga-0-slot-1-of-halves"]
    assert give(half, quarter, half, half) == [halves[0], None, halves[1], None]
    assert give(quarter, half, quarter) == ["fpga-0-slot-0", None, "fpga-0-slot-1"]
