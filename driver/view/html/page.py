"""A page: its skeleton, and the parts in it that are updated by themselves.

A part is an element with an identity. While a page is built, a mark stands for each of its parts, so that two
renderings of a page can be compared: if their skeletons are equal, only the parts that differ are sent to the browser.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Final

from kerf_dra.driver.partitions.card_pictures.svg_picture import draw_patterns
from kerf_dra.driver.view.html import addresses
from kerf_dra.driver.view.html.elements import Child, Html, element, join

_MARK: Final = re.compile("\x00([^\x00]*)\x00")
"""What stands for a part: the character is in no text, because texts are made printable."""
_PAGES: Final = (
    (addresses.CLUSTER, "Cluster"),
    (addresses.CLAIMS, "Claims"),
    (addresses.CLASSES, "Classes"),
    (addresses.WHAT_IF, "What if"),
)


class PartBuilder:
    """Collects the parts of a page while its skeleton is built."""

    def __init__(self) -> None:
        self.parts: dict[str, Html] = {}

    def add(self, tag: str, identity: str, *children: Child, **attributes: str | int | bool | None) -> Html:
        """Add an element with the identity ``identity``, and return what stands for it. Parts have no parts."""
        self.parts[identity] = element(tag, *children, id=identity, **attributes)
        return Html(f"\x00{identity}\x00")


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """One rendering of a page."""

    title: str
    path: str
    """The path of its address, which is marked in the navigation."""
    skeleton: Html
    """What is in ``main``, with marks for the parts."""
    parts: Mapping[str, Html] = field(default_factory=dict)
    status: int = 200
    """The status code of HTTP."""
    is_live: bool = True
    """Whether it is updated while it is open."""

    @property
    def main(self) -> Html:
        """What is in ``main``, with the parts."""
        return Html(_MARK.sub(lambda mark: self.parts[mark[1]], self.skeleton))

    @property
    def digest(self) -> str:
        """A short text that differs from that of each other rendering."""
        return sha256(self.main.encode(errors="replace")).hexdigest()[:32]

    def find_changed_parts(self, former: "Page") -> Mapping[str, Html] | None:
        """Return the parts that differ from those of a former rendering; None: the skeletons differ."""
        if self.skeleton != former.skeleton:
            return None
        return {identity: part for identity, part in self.parts.items() if former.parts[identity] != part}


def build_page(
    title: str, path: str, parts: PartBuilder, *children: Child, status: int = 200, is_live: bool = True
) -> Page:
    """Return a page of ``children`` below its title."""
    skeleton = join((element("h1", title), *children))
    return Page(title=title, path=path, skeleton=skeleton, parts=parts.parts, status=status, is_live=is_live)


def render_document(page: Page, state: Html) -> str:
    """Return the whole document of a page; ``state`` says of when its facts are."""
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("title", f"{page.title} - Kerf"),
        element("link", rel="stylesheet", href=addresses.STYLE),
        element("script", src=addresses.SCRIPT, defer=True),
    )
    links = (element("a", name, href=path, aria_current="page" if path == page.path else None) for path, name in _PAGES)
    header = element("header", element("nav", *links, aria_label="Pages"), state)
    main = element("main", page.main, id="main", tabindex="-1", data_digest=page.digest if page.is_live else None)
    skip = element("a", "Skip to the content", href="#main", class_="skip")
    body = element("body", skip, Html(draw_patterns()), header, main)
    return f"<!doctype html>\n{element('html', head, body, lang='en')}\n"


def render_state(text: str, *, is_current: bool) -> Html:
    """Return the line that says whether what is shown is current."""
    return element("p", text, id="state", role="status", class_="current" if is_current else "outdated")
