"""Pictures of cards as SVG: what is in them can be read without colors, on light and dark pages."""

import re
from typing import Final
from xml.etree import ElementTree as ET

import pytest

from kerf_dra.driver.partitions.card_pictures.card_picture import (
    MEANINGS,
    CardPicture,
    Gauge,
    Unit,
    UnitRow,
    UnitState,
)
from kerf_dra.driver.partitions.card_pictures.claim_colors import COLORS, assign_colors
from kerf_dra.driver.partitions.card_pictures.svg_picture import draw_embedded, draw_patterns, draw_strip, draw_svg

SVG: Final = "{http://www.w3.org/2000/svg}"


def picture(*units: Unit, node: str = "node-1", problems: tuple[str, ...] = ()) -> CardPicture:
    row = UnitRow(name="slot", numbers=tuple(range(len(units))), units=units)
    gauge = Gauge(name="memory", used="3Gi", total="4Gi", permille=750)
    return CardPicture(
        node=node, driver="d", pool="p", name="card-0", model="m", rows=(row,), gauges=(gauge,), problems=problems
    )


def of(claim: str, part: str = "", **fields: str) -> Unit:
    return Unit(state=UnitState.HELD, holders=(claim,), part=part or claim, **fields)


def texts(svg: str) -> list[str]:
    return [each.text or "" for each in ET.fromstring(svg).iter(f"{SVG}text")]


def test_a_part_is_one_box_with_its_profile_and_its_claim() -> None:
    two = of("default/a", label="2g.20gb")
    svg = draw_svg([picture(two, two, of("default/b"), Unit())], "cards")
    boxes = re.findall(r'<rect class="part c\d" [^>]*width="([0-9]+)" height="46"', svg)
    assert boxes == ["182", "89"]
    shown = texts(svg)
    assert shown[0] == "node-1, card-0, m, by slot"
    assert {"2g.20gb", "default/a", "default/b", "free", "memory: 3Gi of 4Gi"} <= {*shown}
    assert ET.fromstring(svg).findtext(f"{SVG}desc") == (
        "card-0: slot 0-3: 0-1 2g.20gb default/a, 2 default/b, 3 free."
    )


@pytest.mark.parametrize("state", [state for state in UnitState if state is not UnitState.HELD])
def test_every_state_has_a_look_of_its_own_and_is_in_the_legend(state: UnitState) -> None:
    holders = ("x/a", "x/b") if state in (UnitState.SHARED, UnitState.CONTESTED) else ()
    svg = draw_svg([picture(of("x/c"), Unit(state=state, holders=holders))], "cards")
    assert texts(svg)[-1] == MEANINGS[state]
    lines = {one: re.findall(rf'id="kerf-{one}".*? d="([^"]+)"', svg) for one in UnitState}
    assert [one for one, found in lines.items() if found] == [state][state is UnitState.FREE :]
    assert svg.count(f"url(#kerf-{state})") == (0 if state is UnitState.FREE else 2)


def test_no_two_states_have_the_same_pattern() -> None:
    svg = draw_svg([picture(*(Unit(state=state) for state in UnitState if state.value not in ("held", "shared")))], "x")
    drawn = re.findall(r' d="([^"]+)"', svg)
    assert len(drawn) == len({*drawn}) == 7


def test_a_claim_without_room_is_in_the_legend_with_its_whole_name() -> None:
    long = f"default/{'n' * 253}"
    svg = draw_svg([picture(of(long), *[Unit()] * 7)], "cards")
    assert any(text.startswith(f"default/{'n' * 80}") and text.endswith("…") for text in texts(svg))
    assert f"<title>{long}</title>" in svg
    short = draw_svg([picture(of("default/web-1"), *[Unit()] * 7)], "cards")
    assert "web-1" in texts(short), "without the namespace it fits"
    both = draw_svg([picture(of("default/web-1"), of("others/web-1"), *[Unit()] * 6)], "cards")
    assert {"default/web-1", "others/web-1"} <= {*texts(both)}
    assert "web-1" not in texts(both), "it would be either"


def test_one_file_is_for_light_and_dark_pages_and_loads_nothing() -> None:
    svg = draw_svg([picture(of("x/a"))], "cards")
    assert "@media (prefers-color-scheme:dark)" in svg
    assert all(color.rgb in svg for color in COLORS)
    assert set(re.findall(r'(?:href|src|url)[=(]"?([^")]+)', svg)) <= {f"#kerf-{state}" for state in UnitState}
    assert re.findall(r"https?://[^\"' ]+", svg) == ["http://www.w3.org/2000/svg"]


def test_colors_that_claims_have_already_are_kept() -> None:
    kept = {"x/b": (assign_colors(["x/b"])["x/b"] + 1) % len(COLORS)}
    svg = draw_svg([picture(of("x/a"), of("x/b"))], "cards", kept=kept)
    assert f'<rect class="part c{kept["x/b"]}"' in svg


def test_what_is_wrong_and_what_is_left_out_is_said() -> None:
    svg = draw_svg([picture(*[Unit()] * 300, problems=("claims hold 12 of 8 memory",))], "cards")
    assert "the picture may be wrong: claims hold 12 of 8 memory" in texts(svg)
    assert "and 44 more" in texts(svg)
    assert texts(svg).count("free") <= 257


def test_the_same_cards_give_the_same_file() -> None:
    units = [of(f"x/{name}") for name in "abcdefgh"]
    assert draw_svg([picture(*units)], "cards") == draw_svg([picture(*units)], "cards")


def test_ten_thousand_devices_with_a_claim_each_are_a_file_that_a_browser_shows() -> None:
    svg = draw_svg([picture(*(of(f"default/pod-{number}") for number in range(10_000)))], "cards")
    assert "and 9744 more" in texts(svg)
    assert (ET.fromstring(svg).findtext(f"{SVG}desc") or "").endswith("31 default/pod-31 and 9968 more.")
    assert len(svg) < 150_000


def test_a_card_in_a_page_has_neither_styles_nor_patterns_of_its_own() -> None:
    """A content security policy forbids styles of elements, and two elements of a page must not have one name."""
    units = (of("x/a", label="1g"), Unit(state=UnitState.STRANDED), *[Unit()] * 6)
    svg = draw_embedded(picture(*units, problems=("odd",)))
    root = ET.fromstring(svg)
    assert {each.tag.removeprefix(SVG) for each in root.iter()} == {"svg", "g", "title", "rect", "text"}
    assert not re.search(r'\b(id|style)="', svg)
    assert root.get("aria-label") == ("node-1 card-0: slot 0-7: 0 1g x/a, 1 stranded: free, nothing fits, 2-7 free")
    assert {"1g", "x/a", "free"} <= {*texts(svg)}
    defined = re.findall(r'id="(kerf-[a-z]+)"', draw_patterns())
    assert sorted(defined) == sorted(f"kerf-{state}" for state in UnitState if state not in ("free", "held"))
    assert {*re.findall(r"url\(#([^)]+)\)", svg)} == {"kerf-stranded"} <= {*defined}


def test_a_strip_has_the_parts_of_a_card_without_words() -> None:
    two = of("x/a")
    svg = draw_strip(picture(two, two, of("x/b"), Unit()), labels={"x/a": "pod"}, kept={"x/a": 3, "x/b": 5})
    assert texts(svg) == []
    boxes = re.findall(r'<rect class="([^"]+)" x="([0-9.]+)" y="0" width="([0-9.]+)"', svg)
    assert boxes == [("part c3", "0.5", "23"), ("part c5", "24.5", "11"), ("free", "36.5", "11")]
    assert [each.text for each in ET.fromstring(svg).iter(f"{SVG}title")] == ["pod", "x/b", "free"]


def test_markup_in_names_stays_text_in_pages() -> None:
    hostile = '"><script>x</script>'
    for draw in (draw_embedded, draw_strip):
        svg = draw(picture(of(hostile), node=hostile))
        assert "<script" not in svg
        assert ET.fromstring(svg).tag == f"{SVG}svg"


def test_a_row_of_very_many_units_is_cut_in_pages() -> None:
    svg = draw_strip(picture(*[Unit()] * 10_000))
    assert svg.count("<rect") == 256
