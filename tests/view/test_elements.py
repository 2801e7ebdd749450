"""Whatever a text is, it stays a text."""

from html.parser import HTMLParser
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kerf_dra.driver.view.html.elements import Html, element, join

TEXTS: Final = st.text(st.characters(codec="utf-8"))


class Reader(HTMLParser):
    """What a browser takes markup for."""

    def __init__(self, markup: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: dict[str, str | None] = {}
        self.text = ""
        self.feed(markup)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes |= dict(attrs)

    def handle_data(self, data: str) -> None:
        self.text += data


@given(TEXTS, TEXTS)
def test_a_text_makes_no_element_and_no_attribute(child: str, value: str) -> None:
    read = Reader(element("p", child, title=value))
    assert (read.tags, [*read.attributes]) == (["p"], ["title"])


@given(st.text(st.characters(categories=("L", "N", "P", "S"))))
def test_what_can_be_printed_is_shown_as_it_is(text: str) -> None:
    read = Reader(element("p", text, title=text))
    assert (read.text, read.attributes["title"]) == (text, text)


@pytest.mark.parametrize(
    ("markup", "written"),
    [
        (element("br"), "<br>"),
        (
            element("a", "x", href="/?a&b", class_="c", aria_label="l"),
            '<a href="/?a&amp;b" class="c" aria-label="l">x</a>',
        ),
        (element("option", selected=True, hidden=False, title=None), "<option selected></option>"),
        (element("p", ["a", Html("<b>b</b>"), ("c", [])]), "<p>a<b>b</b>c</p>"),
        (
            join(("\x1b[31m\N{RIGHT-TO-LEFT OVERRIDE}", "<")),
            "\N{REPLACEMENT CHARACTER}[31m\N{REPLACEMENT CHARACTER}&lt;",
        ),
    ],
)
def test_elements_are_written_in_html(markup: Html, written: str) -> None:
    assert markup == written
