"""Pictures of cards, from slices and claims alone: what each unit is, for the slices of any driver."""

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from math import dist
from typing import Final

import pytest

from kerf_dra.api.model.devices import (
    Capacity,
    Counter,
    CounterSet,
    Device,
    DeviceCounterConsumption,
    DeviceTaint,
    DeviceTaintRule,
    DeviceTaintRuleSpec,
    DeviceTaintSelector,
    ResourcePool,
    ResourceSlice,
    ResourceSliceSpec,
)
from kerf_dra.api.model.metadata import ObjectMeta
from kerf_dra.api.model.names import DeviceId
from kerf_dra.api.model.quantity import Quantity
from kerf_dra.driver.partitions.card_pictures.card_picture import CardPicture, UnitState
from kerf_dra.driver.partitions.card_pictures.claim_colors import COLORS, ClaimColor, assign_colors
from kerf_dra.driver.partitions.card_pictures.picture_builder import (
    build_card_pictures,
    find_consumed,
    find_holders,
)
from kerf_dra.driver.partitions.card_pictures.svg_picture import draw_svg
from kerf_dra.driver.partitions.card_pictures.text_picture import draw_pictures
from tests.diagnostics.vendor_slices import (
    AMD,
    amd_mode_slices,
    amd_slices,
    dranet_slices,
    example_slices,
    hami_slices,
    intel_slices,
    nvidia_slices,
)
from tests.fakes.cluster_states import allocate_claims, claim, gpu_cluster
from tests.fakes.published_slices import fpgas, slices

DRIVER: Final = "gpu.example.com"


def device(name: str, units: Mapping[str, int] | None = None, **fields: object) -> Device:
    """A device that consumes these counters of the set ``card``."""
    counters = {key: Counter(value=Quantity(amount)) for key, amount in (units or {}).items()}
    consumed = (DeviceCounterConsumption(counter_set="card", counters=counters),) if units else ()
    return Device(name=name, consumes_counters=consumed, **fields)  # type: ignore[arg-type]


def pool(
    devices: Iterable[Device], counters: Mapping[str, int] | None = None, *, generation: int = 1, count: int = 1
) -> ResourceSlice:
    totals = {name: Counter(value=Quantity(amount)) for name, amount in (counters or {}).items()}
    return ResourceSlice(
        metadata=ObjectMeta(name=f"slice-{generation}"),
        spec=ResourceSliceSpec(
            driver=DRIVER,
            pool=ResourcePool(name="n", generation=generation, resource_slice_count=count),
            node_name="n",
            devices=tuple(devices),
            shared_counters=(CounterSet(name="card", counters=totals),) if counters else (),
        ),
    )


def held(**claims: Sequence[str]) -> dict[DeviceId, Sequence[str]]:
    """The claims of each device; underscores stand for hyphens in its name."""
    return {DeviceId(DRIVER, "n", name.replace("_", "-")): names for name, names in claims.items()}


def draw(slices: Iterable[ResourceSlice], holders: Mapping[DeviceId, Sequence[str]]) -> list[str]:
    return draw_pictures(build_card_pictures(slices, holders), 100)


FOUR: Final = {f"slot-{number}": 1 for number in range(4)}
HALVES: Final = (device("left", {"slot-0": 1, "slot-1": 1}), device("right", {"slot-2": 1, "slot-3": 1}))
WHOLE: Final = device("whole", FOUR)
DRAINED: Final = (DeviceTaint(key="example.com/drain", effect="NoSchedule"),)


def test_free_stranded_and_held_units_differ_in_any_drivers_slices() -> None:
    text = draw([pool([WHOLE, *HALVES, device("one", {"slot-2": 1})], FOUR)], held(one=["default/a"]))
    assert text == ["n  card  [ . . a - ]  a = default/a  . = free  - = stranded: free, nothing fits"]


def test_a_unit_is_stranded_when_another_counter_than_its_own_is_used_up() -> None:
    amounts = {"memory": 10, **FOUR}
    devices = [device("left", {"memory": 8, "slot-0": 1, "slot-1": 1}), device("right", {"memory": 8, "slot-3": 1})]
    picture, *_ = build_card_pictures([pool(devices, amounts)], held(left=["x/a"]))
    assert [unit.state for unit in picture.units] == ["held", "held", "withheld", "stranded"]
    [gauge] = picture.gauges
    assert (gauge.name, gauge.used, gauge.total, gauge.permille) == ("memory", "8", "10", 800)


def test_what_the_driver_has_withdrawn_is_not_drawn_as_free() -> None:
    assert draw([pool([HALVES[0]], FOUR)], {}) == ["n  card  [ . . / / ]  . = free  / = not offered by the driver"]


def test_units_that_are_taken_out_of_the_counters_are_reserved() -> None:
    counters = {**FOUR, "slot-2": 0, "slot-3": 0}
    assert draw([pool([WHOLE, *HALVES], counters)], {})[0].startswith("n  card  [ . . + + ]")


def test_shared_parts_have_large_letters_and_contested_units_a_mark() -> None:
    shared = device("left", {"slot-0": 1, "slot-1": 1}, allow_multiple_allocations=True)
    other = device("most", {"slot-2": 1, "slot-3": 1})
    text = draw(
        [pool([shared, HALVES[1], other], FOUR)],
        held(left=["x/a", "x/b"], right=["x/c"], most=["x/d"]),
    )
    assert text[0].startswith("n  card  [ A A ! ! ]  A = x/a, x/b (shared)")
    assert "! = held more than once (x/c, x/d)" in " ".join(text)
    assert "claims hold 2 of 1 slot-2" in " ".join(text)


def test_one_device_of_two_claims_that_may_not_share_it_is_contested() -> None:
    [picture] = build_card_pictures([pool(HALVES, FOUR)], held(left=["x/a", "x/b"]))
    assert [unit.state for unit in picture.units[:3]] == ["contested", "contested", "free"]


def rule(**selected: str) -> DeviceTaintRule:
    spec = DeviceTaintRuleSpec(device_selector=DeviceTaintSelector(**selected), taint=DRAINED[0])
    return DeviceTaintRule(metadata=ObjectMeta(name="r"), spec=spec)


@pytest.mark.parametrize(
    ("selected", "states", "note"),
    [
        ({"device": "right"}, "held held tainted tainted", ""),
        ({"driver": DRIVER, "pool": "n"}, "held held tainted tainted", "tainted: example.com/drain"),
        ({"driver": "other.example.com"}, "held held free free", ""),
        ({"pool": "m"}, "held held free free", ""),
        ({"device": "left"}, "held held free free", "tainted: example.com/drain"),
    ],
)
def test_a_rule_taints_the_units_of_the_devices_that_it_selects(
    selected: dict[str, str], states: str, note: str
) -> None:
    [picture] = build_card_pictures([pool(HALVES, FOUR)], held(left=["x/a"]), rules=[rule(**selected)])
    assert [str(unit.state) for unit in picture.units] == states.split()
    assert picture.units[0].note == note


def test_a_taint_that_only_informs_is_not_drawn() -> None:
    informing = (DeviceTaint(key="example.com/slow", effect="None"),)
    tainted = [device("left", FOUR, taints=DRAINED), device("right", FOUR, taints=informing)]
    assert draw([pool(tainted, FOUR)], {}) == ["n  card  [ . . . . ]  . = free"]
    assert draw([pool(tainted[:1], FOUR)], {})[0].startswith("n  card  [ ~ ~ ~ ~ ]")


def test_pools_without_counters_are_rows_of_whole_devices() -> None:
    devices = [device("gpu-10"), device("gpu-2", taints=DRAINED), device("gpu-1")]
    text = draw([pool(devices)], held(gpu_1=["default/a"], gpu_10=["default/b"]))
    assert text[0].startswith(f"n  {DRIVER}  [ a ~ b ]  a = default/a  b = default/b")


def test_shares_of_whole_devices_are_summed_by_capacity() -> None:
    two = [
        device(f"gpu-{n}", allow_multiple_allocations=True, capacity={"memory": Capacity(value=Quantity("16Gi"))})
        for n in range(2)
    ]
    consumed = {DeviceId(DRIVER, "n", "gpu-0"): {"memory": Quantity("8Gi")}}
    [picture] = build_card_pictures([pool(two)], held(gpu_0=["x/a", "x/b"]), consumed=consumed)
    assert [unit.state for unit in picture.units] == [UnitState.SHARED, UnitState.FREE]
    assert [(each.name, each.used, each.total) for each in picture.gauges] == [("memory", "8Gi", "32Gi")]


def test_only_the_newest_generation_of_a_pool_is_drawn() -> None:
    old, new = pool([WHOLE], FOUR), pool([device("one", {"slot-0": 1})], {"slot-0": 1}, generation=2)
    assert draw([old, new], {}) == draw([new, old], {}) == ["n  card  [ . ]  . = free"]


CONTRADICTIONS: Final[dict[str, tuple[list[ResourceSlice], dict[DeviceId, Sequence[str]], str]]] = {
    "a set that is not published": ([pool([WHOLE])], {}, "whole consumes from card, which is not published"),
    "a counter that the set does not have": (
        [pool([device("odd", {"slot-9": 1})], FOUR)],
        {},
        "odd consumes slot-9, which card does not have",
    ),
    "a set that is published twice": (
        [pool([WHOLE], FOUR, count=2), pool([], FOUR, count=2)],
        {},
        "the counter set card is published 2 times",
    ),
    "a slice that is missing": ([pool([WHOLE], FOUR, count=3)], {}, "1 of 3 slices are published"),
    "a device that is gone": ([pool([WHOLE], FOUR)], held(gone=["x/a"]), "gone of x/a is not published"),
    "more in use than there is": (
        [pool([device("big", {"memory": 12})], {"memory": 8})],
        held(big=["x/a"]),
        "claims hold 12 of 8 memory",
    ),
}


@pytest.mark.parametrize("case", CONTRADICTIONS)
def test_a_picture_names_what_contradicts_itself(case: str) -> None:
    published, holders, problem = CONTRADICTIONS[case]
    [picture, *_] = build_card_pictures(published, holders)
    assert problem in picture.problems
    assert any(f"the picture may be wrong: {problem}" in line for line in draw_pictures([picture], 200))


def test_a_fault_in_every_device_is_named_a_few_times() -> None:
    [picture] = build_card_pictures([pool([device(f"d{n}", {f"x{n}": 1}) for n in range(99)], FOUR)], {})
    assert len(picture.problems) == 5
    assert picture.problems[-1] == "and 95 more"


def test_counters_of_other_amounts_and_names_are_bars() -> None:
    counters = {"memory": 80, "engine-0": 4, "9": 1, f"slot-{'9' * 4400}": 1, "slot-0": 1, "slot-1": 1}
    [picture] = build_card_pictures([pool([device("all", counters)], counters)], held(all=["x/a"]))
    assert [row.title for row in picture.rows] == ["slot 0-1"]
    assert {each.name for each in picture.gauges} == counters.keys() - {"slot-0", "slot-1"}


def picture_of(found: Iterable[ResourceSlice]) -> list[CardPicture]:
    return [*build_card_pictures(found, {})]


@pytest.mark.parametrize(
    ("found", "rows"),
    [
        (nvidia_slices("n", cards=2), ["memory-slice 0-7", "memory-slice 0-7"]),
        (intel_slices("n"), ["device 0-1"]),
        (dranet_slices("n"), ["device 0-1"]),
        (example_slices("n"), ["device 0-7"]),
        (amd_slices("n"), ["device 0-15"]),
        (amd_mode_slices("n"), ["device 0", "device 0"]),
        (hami_slices("n"), ["device 0-1"]),
        (slices("n", fpgas("quad")), ["slot 0-3"]),
    ],
    ids=["NVIDIA", "Intel", "dranet", "example", "AMD", "AMD's modes", "HAMi", "FPGA"],
)
def test_the_slices_of_every_driver_are_drawn(found: list[ResourceSlice], rows: list[str]) -> None:
    pictures = picture_of(found)
    assert [row.title for each in pictures for row in each.rows] == rows
    assert {unit.state for each in pictures for unit in each.units} <= {UnitState.FREE, UnitState.TAINTED}
    assert all(each.problems == () for each in pictures)


@pytest.mark.parametrize(
    ("found", "held_devices", "drawn"),
    [
        (
            nvidia_slices("n", cards=2),
            {"gpu-0-mig-1g10gb-19-0": ["x/a"], "gpu-1": ["x/b"]},
            ["[ a . . . . . . . ]", "[ b b b b b b b b ]"],
        ),
        (example_slices("n"), {"gpu-0": ["x/a"], "gpu-5": ["x/b"]}, ["[ a . . . . b . . ]"]),
        (amd_slices("n"), {"gpu-1-129": ["x/a"], "gpu-9-137": ["x/b"]}, ["[ . a . . . . . . . b . . . . . . ]"]),
        (
            amd_mode_slices("n"),
            {"gpu-0-cpx-nps4": ["x/a", "x/c"], "gpu-1-spx-nps1": ["x/b"]},
            ["[ A ]", "[ B ]"],
        ),
        (intel_slices("n"), {"0000-00-00-0-0x56c0": ["x/a"]}, ["[ a ~ ]"]),
        (hami_slices("n"), {"hami-gpu-0": ["x/a", "x/b"]}, ["[ A . ]"]),
        (dranet_slices("n"), {"eth1": ["x/a"]}, ["[ . a ]"]),
    ],
    ids=["NVIDIA", "example", "AMD", "AMD's modes", "Intel", "HAMi", "dranet"],
)
def test_the_claims_of_every_driver_are_drawn_on_their_devices(
    found: list[ResourceSlice], held_devices: dict[str, list[str]], drawn: list[str]
) -> None:
    holders = {DeviceId(found[0].spec.driver, "n", name): claims for name, claims in held_devices.items()}
    text = " ".join(draw_pictures(build_card_pictures(found, holders), 100))
    assert re.findall(r"\[ [A-Za-z.~ ]+ \]", text) == drawn
    assert all(claim in text for claims in held_devices.values() for claim in claims)
    svg = draw_svg([*build_card_pictures(found, holders)], "cards")
    assert all(claim in svg for claims in held_devices.values() for claim in claims)


def test_a_card_without_units_shows_what_is_held_what_claims_share_of_it_and_whether_anything_fits() -> None:
    mode = DeviceId(AMD, "n", "gpu-0-cpx-nps4")
    used, free = build_card_pictures(
        amd_mode_slices("n"), {mode: ["x/a", "x/c"]}, consumed={mode: {"partitions": Quantity(2)}}
    )
    assert [(unit.state, unit.label, unit.holders) for unit in used.units] == [("shared", "cpx", ("x/a", "x/c"))]
    assert [(each.name, each.used, each.total) for each in used.gauges] == [
        ("partition-mode", "1", "1"),
        ("partitions", "2", "8"),
    ]
    assert [unit.state for unit in free.units] == [UnitState.FREE]


@pytest.mark.parametrize(
    ("devices", "taken", "states"),
    [
        ([], [], ["withheld"]),
        ([device("half", {"memory": 40}), device("other", {"memory": 40})], ["half"], ["held", "free"]),
        ([device("most", {"memory": 60}), device("other", {"memory": 40})], ["most"], ["held"]),
        ([device("more", {"memory": 90})], [], ["stranded"]),
    ],
    ids=["no device", "something fits", "nothing fits beside a claim", "nothing fits at all"],
)
def test_a_card_that_counts_memory_alone_has_a_unit_for_each_claim(
    devices: list[Device], taken: list[str], states: list[str]
) -> None:
    [picture] = build_card_pictures([pool(devices, {"memory": 80})], held(**{name: [f"x/{name}"] for name in taken}))
    assert [str(unit.state) for unit in picture.units] == states


def test_kerfs_own_cards_are_drawn_from_what_the_scheduler_allocated() -> None:
    now = allocate_claims(gpu_cluster(2), *(claim(f"web-{n}", "1g-10gb") for n in range(7)), on="node-2")
    pictures = [*build_card_pictures(now.slices, find_holders(now.claims), consumed=find_consumed(now.claims))]
    assert [each.node for each in pictures] == ["node-1", "node-2"]
    free, full = pictures
    assert free.holders == ()
    assert sorted(full.holders) == [f"default/web-{n}" for n in range(7)]
    assert [unit.label for unit in full.units] == ["1g.10gb"] * 7 + [""]
    assert full.units[7].state is UnitState.STRANDED


def test_ten_thousand_claims_of_one_device_are_counted_in_the_legend() -> None:
    names = [f"default/c{number:05}" for number in range(10_000)]
    shared = device("gpu-0", allow_multiple_allocations=True)
    text = draw([pool([shared])], held(gpu_0=names))
    assert len(" ".join(text)) < 200
    assert "and 9996 more (shared)" in " ".join(" ".join(text).split())


def test_ten_thousand_claims_of_as_many_devices_are_drawn_in_a_page() -> None:
    devices = [device(f"gpu-{number}") for number in range(10_000)]
    holders = {DeviceId(DRIVER, "n", each.name): [f"default/{each.name}"] for each in devices}
    text = draw([pool(devices)], holders)
    assert "and 9744 more" in " ".join(text)
    assert len(text) < 60


def test_a_claim_keeps_its_color_while_others_come_and_go() -> None:
    colors = assign_colors(f"default/{name}" for name in "abcdefg")
    assert sorted(colors.values()) == [*range(len(COLORS))], "as many claims as colors have different ones"
    more = assign_colors(["x/new", "default/g", "default/a", *(f"x/{n}" for n in range(30))], colors)
    assert (more["default/a"], more["default/g"]) == (colors["default/a"], colors["default/g"])
    assert max([*more.values()].count(color) for color in range(len(COLORS))) <= 6


def linear(rgb: str) -> list[float]:
    """The channels of a color in proportion to their light."""
    channels = [int(rgb[start : start + 2], 16) / 255 for start in (1, 3, 5)]
    return [each / 12.92 if each <= 0.04045 else ((each + 0.055) / 1.055) ** 2.4 for each in channels]


def luminance(rgb: str) -> float:
    return sum(weight * each for weight, each in zip((0.2126, 0.7152, 0.0722), linear(rgb), strict=True))


@pytest.mark.parametrize("color", COLORS, ids=lambda color: color.name)
def test_text_on_a_color_has_the_contrast_that_wcag_asks_for(color: ClaimColor) -> None:
    dark, light = sorted((luminance(color.rgb), luminance(color.text_rgb)))
    assert (light + 0.05) / (dark + 0.05) >= 4.5


def lab(channels: Sequence[float]) -> list[float]:
    """CIELAB of linear sRGB with white D65."""
    to_xyz = ((0.4124, 0.3576, 0.1805), (0.2126, 0.7152, 0.0722), (0.0193, 0.1192, 0.9505))
    xyz = [sum(a * max(0.0, b) for a, b in zip(row, channels, strict=True)) for row in to_xyz]
    x, y, z = (
        ratio ** (1 / 3) if ratio > 0.008856 else 7.787 * ratio + 16 / 116
        for ratio in (value / white for value, white in zip(xyz, (0.9505, 1.0, 1.089), strict=True))
    )
    return [116 * y - 16, 500 * (x - y), 200 * (y - z)]


VISION: Final = {
    "any": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protanopia": ((0.11238, 0.88762, 0), (0.11238, 0.88762, 0), (0.00401, -0.00401, 1)),
    "deuteranopia": ((0.29275, 0.70725, 0), (0.29275, 0.70725, 0), (-0.02234, 0.02234, 1)),
}
"""What dichromats see of linear sRGB (Vienot, Brettel and Mollon, 1999)."""


@pytest.mark.parametrize("vision", VISION)
def test_colors_differ_for_people_who_confuse_red_and_green(vision: str) -> None:
    seen = [
        lab([sum(a * b for a, b in zip(row, linear(color.rgb), strict=True)) for row in VISION[vision]])
        for color in COLORS
    ]
    distances = [dist(one, other) for one, other in combinations(seen, 2)]
    assert min(distances) > 10, "CIE76; 2.3 can just be seen"


def test_of_sixteen_colors_red_and_green_are_not_used() -> None:
    backgrounds = [color.basic[0] for color in COLORS]
    assert len({*backgrounds}) == len(COLORS)
    assert not {41, 42, 101, 102} & {*backgrounds}
