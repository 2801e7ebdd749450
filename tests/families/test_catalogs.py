"""The tables that ship with Kerf: what they say, that estimates follow their rules, and how models are found."""

import copy
import dataclasses
import itertools
import json
import math
import uuid
from fractions import Fraction
from importlib import resources
from operator import le
from typing import Any

import pytest

from kerf_dra.api.errors import InvalidDocumentError
from kerf_dra.driver.families.fpga.shell import Shell
from kerf_dra.driver.families.gpu.catalog import check_table, gpu_model, gpu_models
from kerf_dra.driver.families.gpu.model import GpuModel, Profile
from kerf_dra.driver.families.model_names import UnknownModelError
from kerf_dra.driver.kubeletplugin.backends.simulated.example_shells import shell, shells
from kerf_dra.driver.partitions.geometry import Placement

TABLE: dict[str, Any] = json.loads((resources.files("kerf_dra.driver.families.gpu") / "data" / "mig.json").read_text())
ROWS: dict[str, Any] = {row["id"]: row for row in TABLE["models"]}
MIB = 2**20


def by_id(model: GpuModel) -> str:
    return model.id


def test_every_model_of_the_table_is_known_by_its_id() -> None:
    assert [model.id for model in gpu_models()] == list(ROWS)
    assert all(gpu_model(model.id) is model for model in gpu_models())


def change(row: int, *path: str, to: object) -> bytes:
    """The table, with another value at ``path`` of a row."""
    table = copy.deepcopy(TABLE)
    place = table["models"][row]
    for key in path[:-1]:
        place = place.setdefault(key, {})
    place[path[-1]] = to
    return json.dumps(table).encode()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (change(1, "grid", to="seven-of-nine"), 'a100-40gb.grid: "seven-of-nine" is not in grids; there are '),
        (change(1, "sibling", to="a200"), 'a100-40gb.sibling: "a200" is no model of the table'),
        (change(1, "profiles", "9g", to=TABLE["models"][1]["whole"]), '"9g" is no cut of the grid seven-of-eight'),
        (change(1, "whole", "estimated", "memory", to="twin"), 'whole.estimated: "memory" is no figure; there are '),
        (change(1, "profiles", "1g", "estimated", to={"engines": "guess"}), 'the rule "guess" is not in rules'),
        (change(15, "sibling", to=""), 'gb200-189gb.sibling: is empty, but the rule "'),
        (change(1, "estimated", "memory_mib", to="twin"), 'only "grid" can be estimated here, not memory_mib'),
        (change(1, "colour", to="green"), "unknown field `colour` - at `$.models[1]`"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_name_that_the_table_does_not_have_is_a_sentence_with_its_row(content: bytes, message: str) -> None:
    """It was ``KeyError: 'estimated'``, from the first program that listed models."""
    with pytest.raises(InvalidDocumentError) as caught:
        check_table(content)
    assert str(caught.value).startswith("mig.json: ")
    assert message in str(caught.value)


def test_a_model_whose_figures_are_all_from_sources_needs_no_estimates() -> None:
    assert check_table(change(1, "whole", "estimated", to={})).models[1].whole.estimated == {}


@pytest.mark.parametrize(
    ("name", "id_"),
    [
        ("h100-80gb-sxm", "h100-80gb-sxm"),
        ("H100-80GB", "h100-80gb-sxm"),
        (" H100-80GB-PCIe ", "h100-80gb-pcie"),
        ("a30", "a30-24gb"),
        ("rtx-pro-6000", "rtx-pro-6000-blackwell-96gb"),
        ("GB200", "gb200-186gb"),
        ("h200", "h200-141gb"),
        ("h100-80gb-s", "h100-80gb-sxm"),
    ],
)
def test_a_model_is_found_by_id_alias_or_unambiguous_beginning_in_any_case(name: str, id_: str) -> None:
    assert gpu_model(name).id == id_


@pytest.mark.parametrize(
    ("name", "close"),
    [
        ("a100", {"a100-40gb", "a100-80gb"}),
        ("h100-80gb-", {"h100-80gb-sxm", "h100-80gb-pcie"}),
        ("a10-80gb", {"a100-80gb", "a100-40gb"}),
        ("tpu-v5", set()),
        ("", set()),
    ],
)
def test_a_name_that_means_no_model_or_several_is_an_error_with_the_close_ones(name: str, close: set[str]) -> None:
    with pytest.raises(UnknownModelError) as caught:
        gpu_model(name)
    assert close <= set(caught.value.close)
    assert bool(close) == bool(caught.value.close)
    assert all(one in str(caught.value) for one in caught.value.close)


def test_h100_is_what_nvidia_smi_lists() -> None:
    """``nvidia-smi mig -lgip`` and ``-lgipp`` of an H100 80GB HBM3."""
    model = gpu_model("h100-80gb-sxm")
    assert (model.compute_slices, model.memory_slices, model.multiprocessors) == (7, 8, 132)
    listing = {
        p.name: (p.gi_profile_id, p.memory_bytes / 2**30, p.multiprocessors, [x.run for x in p.placements])
        for p in model.profiles
    }
    assert listing == {
        "1g.10gb": (19, 9.75, 16, [(start, 1) for start in range(7)]),
        "1g.10gb+me": (20, 9.75, 16, [(start, 1) for start in range(7)]),
        "1g.20gb": (15, 19.625, 26, [(0, 2), (2, 2), (4, 2), (6, 2)]),
        "2g.20gb": (14, 19.625, 32, [(0, 2), (2, 2), (4, 2)]),
        "3g.40gb": (9, 39.5, 60, [(0, 4), (4, 4)]),
        "4g.40gb": (5, 39.5, 64, [(0, 4)]),
        "7g.80gb": (0, 79.25, 132, [(0, 8)]),
    }


@pytest.mark.parametrize("model", gpu_models(), ids=by_id)
def test_a_models_figures_are_consistent(model: GpuModel) -> None:
    units = set(range(model.memory_slices))
    for profile in model.profiles:
        starts = [placement.start for placement in profile.placements]
        assert starts == sorted(set(starts))
        assert len({placement.size for placement in profile.placements}) == 1
        assert all(set(placement.units) <= units for placement in profile.placements)
        assert 0 <= profile.memory_bytes <= model.memory_bytes
        assert profile.multiprocessors <= model.multiprocessors
        assert profile.compute_slices <= model.compute_slices
    assert len({profile.name for profile in model.profiles}) == len(model.profiles)
    assert all(getattr(model.engines, engine) > 0 for engine in model.exclusive_engines)


@pytest.mark.parametrize("model", gpu_models(), ids=by_id)
def test_a_larger_profile_never_has_less(model: GpuModel) -> None:
    def size(profile: Profile) -> tuple[int, int]:
        return profile.placements[0].size, profile.compute_slices

    def engines(profile: Profile) -> tuple[int, ...]:
        return dataclasses.astuple(profile.engines)

    for small in model.profiles:
        for large in model.profiles:
            if size(small) != size(large) and all(map(le, size(small), size(large))):
                assert small.memory_bytes <= large.memory_bytes, (small.name, large.name)
                assert small.multiprocessors <= large.multiprocessors, (small.name, large.name)
                if not {"+", "-"} & {*small.name, *large.name}:  # variants differ in engines by design
                    assert all(map(le, engines(small), engines(large))), (small.name, large.name)


@pytest.mark.parametrize("model", [one for one in gpu_models() if one.memory_bytes], ids=by_id)
def test_two_partitions_have_no_more_memory_than_one_that_takes_their_place(model: GpuModel) -> None:
    """The estimate for 3g of a GH200 144G was less than two 2g: with counters of memory as large as the 7g's, as
    NVIDIA's DRA driver has them, a 3g and four 1g did not fit on it.
    """
    memory: dict[int, list[int]] = {}
    for profile in model.profiles:
        memory.setdefault(profile.placements[0].size, []).append(profile.memory_bytes)
    pairs = [(size, 2 * size) for size in memory if 2 * size in memory]
    assert pairs
    for size, double in pairs:
        assert 2 * max(memory[size]) <= min(memory[double]), (size, double)


def test_aliases_name_models_and_nothing_twice() -> None:
    names = [*ROWS, *(alias for row in ROWS.values() for alias in row["aliases"])]
    assert len(names) == len(set(names))
    assert all(name == name.lower() for name in names)


def go_nvlib_gigabytes(memory_mib: int, total_bytes: int) -> int:
    """Return the number in a profile's name as NVIDIA/go-nvlib computes it (``pkg/nvlib/device/mig_profile.go``).

    The profile's share of the card, rounded up to eighths, of the card's whole GiB, rounded up; halves are rounded up.
    """
    eighths = math.ceil(Fraction(memory_mib * MIB * 8, total_bytes))
    return math.floor(Fraction(eighths * -(-total_bytes // 2**30), 8) + Fraction(1, 2))


@pytest.mark.parametrize("model", [one for one in gpu_models() if one.memory_bytes], ids=by_id)
def test_programs_over_go_nvlib_name_the_profiles_of_a_model_as_the_driver_does(model: GpuModel) -> None:
    """With the memory of the largest profile as the card's they showed 7g.79gb of an A100, and twelve others wrong."""
    for profile in model.profiles:
        named = int(profile.name.split(".")[1].partition("gb")[0])
        assert go_nvlib_gigabytes(profile.memory_bytes // MIB, model.memory_bytes) == named, profile.name


def test_the_products_and_the_pci_ids_of_models_are_of_one_model_or_of_variants_with_other_memory() -> None:
    for one, other in itertools.combinations(gpu_models(), 2):
        shared = one.products & other.products or {*one.pci_device_ids} & {*other.pci_device_ids}
        assert not shared or one.memory_bytes != other.memory_bytes, (one.id, other.id)


# Estimates. Each rule is computed here from its text in the table, and every figure that names it must follow it.


def sibling_cut(row: dict[str, Any], cut: str) -> dict[str, Any]:
    """The sibling's profile with the same share of the card: the same partition of the same units."""
    sibling = ROWS[row["sibling"]]
    profiles: dict[str, dict[str, Any]] = sibling["profiles"]
    if sibling["grid"] == row["grid"]:
        return profiles[cut]
    mine, theirs = TABLE["grids"][row["grid"]], TABLE["grids"][sibling["grid"]]

    def share(grid: dict[str, Any], name: str) -> tuple[Fraction, Fraction]:
        one = grid["cuts"][name]
        return (
            Fraction(one["compute_slices"], grid["compute_slices"]),
            Fraction(one["size"], grid["memory_slices"]),
        )

    plain = [name for name in theirs["cuts"] if "+" not in name and "-" not in name]
    return next(profiles[name] for name in plain if share(theirs, name) == share(mine, cut))


def nominal_ratio(row: dict[str, Any]) -> Fraction:
    return Fraction(row["nominal_gb"], ROWS[row["sibling"]]["nominal_gb"])


def memory_share(row: dict[str, Any], cut: str) -> int:
    return int(sibling_cut(row, cut)["memory_mib"] * nominal_ratio(row)) // 128 * 128


def multiprocessor_share(row: dict[str, Any], cut: str) -> int:
    sibling = ROWS[row["sibling"]]
    measured = [
        Fraction(profile["multiprocessors"], sibling["profiles"][name]["multiprocessors"])
        for name, profile in row["profiles"].items()
        if "multiprocessors" not in profile.get("estimated", {}) and row["grid"] == sibling["grid"]
    ]
    ratio = min(measured) if measured else min(Fraction(1), nominal_ratio(row))
    return int(sibling_cut(row, cut)["multiprocessors"] * ratio) // 2 * 2


def twin(row: dict[str, Any], cut: str) -> int:
    memory: int = row["profiles"][{"1g-double": "2g", "2g": "1g-double"}[cut]]["memory_mib"]
    return memory


def twice_the_half(row: dict[str, Any], cut: str) -> int:
    half: int = row["profiles"][{"3g": "2g", "4g": "2g", "7g": "3g"}[cut]]["memory_mib"]
    return 2 * half


RULES: dict[str, Any] = {
    "memory-share": memory_share,
    "twice-the-half": twice_the_half,
    "twin": twin,
    "multiprocessor-share": multiprocessor_share,
    "zero-where-unknown": lambda row, cut: 0,
}
ESTIMATES = [
    (row["id"], cut, figure, rule)
    for row in ROWS.values()
    for cut, profile in row["profiles"].items()
    for figure, rule in profile.get("estimated", {}).items()
]


@pytest.mark.parametrize(("id_", "cut", "figure", "rule"), ESTIMATES, ids=lambda value: str(value))
def test_an_estimated_figure_follows_the_rule_it_names(id_: str, cut: str, figure: str, rule: str) -> None:
    row = ROWS[id_]
    profile = row["profiles"][cut]
    if figure == "engines":
        assert rule == "engine-of-sibling"
        assert profile["engines"] == sibling_cut(row, cut)["engines"]
    elif rule == "engine-of-sibling":
        engine = figure.removeprefix("engines.")
        assert profile["engines"].get(engine, 0) == sibling_cut(row, cut)["engines"].get(engine, 0)
    else:
        assert rule in RULES, (
            f"RULES of this module computes no {rule!r}: write its function, from its text in mig.json"
        )
        assert profile[figure] == RULES[rule](row, cut)


@pytest.mark.parametrize("row", ROWS.values(), ids=lambda row: row["id"])
def test_a_whole_card_that_is_estimated_follows_its_rule(row: dict[str, Any]) -> None:
    whole = row["whole"]
    for figure, rule in whole.get("estimated", {}).items():
        figures = [profile[figure] for profile in row["profiles"].values()]
        if rule == "zero-where-unknown":
            assert whole[figure] == 0
        elif rule == "card-share":
            assert whole[figure] == int(ROWS[row["sibling"]]["whole"][figure] * nominal_ratio(row))
        elif figure == "engines":
            engines = {engine for one in figures for engine in one}
            assert whole[figure] == {engine: max(one.get(engine, 0) for one in figures) for engine in engines}
        else:
            assert whole[figure] == max(figures)


def test_every_rule_that_is_named_is_explained_and_every_explained_rule_is_named() -> None:
    named = {rule for *_, rule in ESTIMATES}
    named |= {rule for row in ROWS.values() for rule in row["whole"].get("estimated", {}).values()}
    named |= {rule for row in ROWS.values() for rule in row.get("estimated", {}).values()}
    named |= {grid["estimated"] for grid in TABLE["grids"].values() if "estimated" in grid}
    assert named == set(TABLE["rules"])


def test_every_model_names_its_sources() -> None:
    assert all(row["sources"] for row in ROWS.values())


def test_shells_are_found_by_name_and_beginning() -> None:
    assert {known.name for known in shells()} == {"quad", "edge-3", "big-little"}
    assert shell("QUAD").name == "quad"
    assert shell("edge").name == "edge-3"
    with pytest.raises(UnknownModelError, match="did you mean quad"):
        shell("quat")


@pytest.mark.parametrize("known", shells(), ids=lambda known: known.name)
def test_a_shells_functions_have_images_for_its_slots_and_ids_of_their_own(known: Shell) -> None:
    slots = set(range(len(known.slots)))
    for function in known.functions:
        assert function.placements
        assert all(set(placement.units) <= slots for placement in function.placements)
        assert len({placement.start for placement in function.placements}) == len(function.placements)
        assert 0.2 <= function.load_s <= 0.9
    ids = [uuid.UUID(function.afu_id) for function in known.functions] + [uuid.UUID(known.uuid)]
    assert len(ids) == len(set(ids))


def test_logic_of_a_run_of_slots_is_the_sum_of_its_slots() -> None:
    known = shell("big-little")
    assert known.logic(Placement(0, 2)).lut == 190_000
    assert known.logic(Placement(1, 3)).dsp == 600
