"""Cards are drawn within the width, with every unit and every holder in the legend."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kerf_dra.driver.partitions.card_pictures.card_picture import Unit, UnitState, units_of
from kerf_dra.driver.partitions.card_pictures.claim_colors import ColorDepth
from kerf_dra.driver.partitions.card_pictures.text_picture import DrawnCard, assign_letters, draw_cards

NAMES = st.text("abc-/", min_size=1, max_size=12)
LABELS = st.lists(st.text("abcdefgh1.", min_size=1, max_size=20), min_size=1, max_size=4).map(" ".join)
CARDS = st.builds(
    DrawnCard,
    units=st.lists(st.sampled_from(["", "v", "w", "x", "y", "z"]), min_size=1, max_size=80).map(units_of),
    names=st.lists(NAMES, max_size=2).map(tuple),
    note=st.one_of(st.just(""), LABELS),
)


@given(
    cards=st.lists(CARDS, min_size=1, max_size=4),
    labels=st.dictionaries(st.sampled_from("vwxyz"), LABELS),
    width=st.integers(min_value=40, max_value=120),
)
def test_no_line_is_wider_than_the_width(cards: list[DrawnCard], labels: dict[str, str], width: int) -> None:
    assert [line for line in draw_cards(cards, labels, width) if len(line) > width] == []


@given(card=CARDS, width=st.integers(min_value=40, max_value=120))
def test_every_unit_is_drawn_and_every_holder_explained(card: DrawnCard, width: int) -> None:
    lines = draw_cards([card], {}, width)
    drawn = "".join(match for line in lines for match in re.findall(r"\[ (.*?) \]", line)).replace(" ", "")
    letters = {holder: letter for (_, (holder,)), letter in assign_letters(card.units).items()}
    assert drawn == "".join(letters[unit.holders[0]] if unit.holders else "." for unit in card.units)
    text = " ".join(lines)
    assert all(f"{letter} = {holder}" in text for holder, letter in letters.items())


CASES: list[tuple[str, list[DrawnCard], dict[str, str], int, list[str]]] = [
    (
        "before and after",
        [
            DrawnCard(names=("gpu-0", "before"), units=units_of(("",) * 4), note="4 slices, all free"),
            DrawnCard(names=("", "after"), units=units_of(("", "", "x", "x"))),
        ],
        {"x": "trainer"},
        80,
        ["gpu-0  before  [ . . . . ]  4 slices, all free", "       after   [ . . a a ]  a = trainer"],
    ),
    (
        "holders alike share an entry",
        [DrawnCard(names=("gpu-0",), units=units_of(("p", "q", "r", "", "s", "s")))],
        {**dict.fromkeys("pqr", "1g.10gb"), "s": "2g.20gb"},
        80,
        ["gpu-0  [ a b c . d d ]  a-c = 1g.10gb  d = 2g.20gb"],
    ),
    (
        "without room beside it the legend is below",
        [DrawnCard(names=("node-1/gpu-0", "before"), units=units_of(("x",) * 8))],
        {"x": "a-pod-with-a-long-name"},
        60,
        ["node-1/gpu-0  before  [ a a a a a a a a ]", " " * 22 + "a = a-pod-with-a-long-name"],
    ),
    (
        "what was explained above is not repeated",
        [DrawnCard(units=units_of(("x", ""))), DrawnCard(units=units_of(("x", "y")))],
        {},
        80,
        ["[ a . ]  a = x", "[ a b ]  b = y"],
    ),
]


@pytest.mark.parametrize(("cards", "labels", "width", "lines"), [case[1:] for case in CASES], ids=[c[0] for c in CASES])
def test_drawings(cards: list[DrawnCard], labels: dict[str, str], width: int, lines: list[str]) -> None:
    assert draw_cards(cards, labels, width) == lines


def test_claims_beyond_the_52nd_share_a_symbol_and_an_entry() -> None:
    units = units_of(str(number) for number in range(60))
    assert len(assign_letters(units)) == 52
    text = " ".join(draw_cards([DrawnCard(units=units)], {}, 260))
    assert "Y Z # # # # # # # # ]" in text
    assert "Z = 51 # = 52, 53, 54, 55 and 4 more" in " ".join(text.split())


def test_a_part_and_its_letter_in_the_legend_have_the_color_of_the_claim() -> None:
    units = (*units_of(["x", "x", "y", "z", ""]), Unit(state=UnitState.SHARED, holders=("v",)))
    card = DrawnCard(units=units, names=("gpu-0",))
    labels = {"y": "1g", "z": "1g"}
    [plain] = draw_cards([card], labels, 80)
    for depth, begin in ((ColorDepth.BASIC, r"\x1b\[\d+;\d+"), (ColorDepth.INDEXED, r"\x1b\[48;5;\d+;38;5;\d+")):
        [line] = draw_cards([card], labels, 80, depth=depth)
        assert re.sub(r"\x1b\[[0-9;]*m", "", line) == plain
        [of_part, of_letter] = re.findall(rf"({begin})m(?:a a|a)\x1b", line)
        assert of_part == of_letter, "one color for the whole part, and for its letter"
        assert len(re.findall(rf"{begin};4mA\x1b", line)) == 2, "what is shared is underlined"
        assert "b, c = 1g" in line, "two claims have two colors"


def test_a_line_that_is_wrapped_keeps_the_color_of_its_letter() -> None:
    long = " ".join(["word"] * 20)
    lines = draw_cards([DrawnCard(units=units_of(["x"] * 8))], {"x": long}, 60, depth=ColorDepth.INDEXED)
    assert " ".join(re.sub(r"\x1b\[[0-9;]*m", "", " ".join(lines)).split()).endswith(f"a = {long}")
    assert sum("\x1b[0m = word" in line for line in lines) == 1
    assert all(len(re.sub(r"\x1b\[[0-9;]*m", "", line)) <= 60 for line in lines)
