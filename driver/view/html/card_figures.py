"""Cards in a page: the picture by the one renderer, and below it in words who has what, with links."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import groupby
from typing import Final

from kerf_dra.api.model.names import ObjectRef
from kerf_dra.driver.allocation.explain.holders import PoolKey
from kerf_dra.driver.partitions.card_pictures.card_picture import (
    MEANINGS,
    OWNED,
    CardPicture,
    Gauge,
    Unit,
    UnitRow,
    UnitState,
)
from kerf_dra.driver.partitions.card_pictures.claim_colors import assign_colors
from kerf_dra.driver.partitions.card_pictures.svg_picture import draw_embedded, draw_strip
from kerf_dra.driver.view.html import addresses
from kerf_dra.driver.view.html.elements import NOTHING, Html, element, join
from kerf_dra.driver.view.html.page import PartBuilder
from kerf_dra.driver.view.snapshot_view import SnapshotView

_PODS: Final = 3
"""Pods named of one claim."""
_HOLDERS: Final = 64
"""Claims listed of one card: more than a card has units; ten thousand may share a device."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CardStyle:
    """How the cards of a page are shown."""

    view: SnapshotView
    colors: Mapping[str, int]
    """The number of each claim's color."""
    are_distinct: bool = True
    """Whether claims of one card are to have different colors, as far as there are any."""
    is_strip: bool = False
    """Whether a card is a small strip, without words."""
    has_nodes: bool = False
    """Whether cards of several nodes are side by side, so that each names its own."""
    marked: frozenset[str] = frozenset()
    """Claims that the page is about."""

    def show(self, parts: PartBuilder, picture: CardPicture) -> Html:
        """Add a card to a page, as a part of it."""
        identity = f"card-{_digest(picture)}"
        colors = separate_colors(picture.holders, self.colors) if self.are_distinct else self.colors
        if self.is_strip:
            strip = Html(draw_strip(picture, labels=self.view.labels, kept=colors))
            link = element("a", strip, href=addresses.address_of_card(picture))
            return parts.add("li", identity, link, class_="strip")
        drawn = Html(draw_embedded(picture, labels=self.view.labels, kept=colors))
        name = element("a", picture.title, href=addresses.address_of_card(picture))
        node = f"{picture.node} " if self.has_nodes and picture.node else ""
        caption = element("figcaption", node, name, " ", element("small", picture.model))
        return parts.add(
            "figure",
            identity,
            caption,
            drawn,
            element("p", describe_free(picture), class_="free-units"),
            self._list_holders(picture, colors),
            join(map(show_gauge, picture.gauges)),
            show_problems(picture),
            class_="card",
        )

    def _list_holders(self, picture: CardPicture, colors: Mapping[str, int]) -> Html:
        """Return who holds parts of a card, each with its pods and claim."""
        held = [*_find_held(picture)]
        if not held:
            return NOTHING
        entries = [self._show_holder(*each, colors.get(each[1])) for each in held[:_HOLDERS]]
        more = len(held) - _HOLDERS
        return element("ul", entries, element("li", f"and {more} more") if more > 0 else NOTHING, class_="holders")

    def _show_holder(self, unit: Unit, holder: str, place: str, color: int | None) -> Html:
        ref = parse_ref(holder)
        claim = self.view.cluster.claims.get(ref)
        pods = self.view.find_pods(claim) if claim is not None else ()
        swatch = element("span", class_=f"swatch k{color}" if color is not None else "swatch", aria_hidden="true")
        names = [element("a", f"pod {pod}", href=addresses.address_of_pod(pod)) for pod in pods[:_PODS]]
        more = f" and {len(pods) - _PODS} more" if len(pods) > _PODS else ""
        name = element("a", f"claim {holder}", href=addresses.address_of_claim(ref)) if claim is not None else holder
        state = "" if unit.state is UnitState.HELD else MEANINGS[unit.state]
        what = ", ".join(word for word in (unit.label, place, state, unit.note) if word)
        is_marked = holder in self.marked
        lines = (separate(names), more, element("br")) if names else NOTHING
        words = (element("small", name), element("small", what))
        return element("li", swatch, lines, words, class_="marked" if is_marked else None)


def separate_colors(holders: Sequence[str], colors: Mapping[str, int]) -> Mapping[str, int]:
    """Return the colors of the claims of one card: their own, unless one before them on the card has the same."""
    kept: dict[str, int] = {}
    for holder in holders:
        color = colors.get(holder)
        if color is not None and color not in kept.values():
            kept[holder] = color
    return assign_colors(holders, kept)


def separate(children: Sequence[Html]) -> Html:
    """Return children with commas between them."""
    return join((", " if number else "", child) for number, child in enumerate(children))


def parse_ref(name: str) -> ObjectRef:
    """Return the reference that is written ``namespace/name``."""
    namespace, _, rest = name.partition("/")
    return ObjectRef(namespace, rest)


def parse_pool(name: str) -> PoolKey:
    """Return the pool that is written ``driver/pool``."""
    driver, _, pool = name.partition("/")
    return driver, pool


def describe_free(picture: CardPicture) -> str:
    """Return how many units are free, such as ``3 of 8 memory-slice free``."""
    lines = []
    for row in picture.rows:
        free = sum(unit.state is UnitState.FREE for unit in row.units)
        others = {
            state: sum(unit.state is state for unit in row.units)
            for state in (UnitState.STRANDED, UnitState.TAINTED, UnitState.STATIC, UnitState.RESERVED)
        }
        more = "".join(f", {count} {state}" for state, count in others.items() if count)
        lines.append(f"{free} of {len(row.units)} {row.name if picture.name else 'devices'} free{more}")
    return "; ".join(lines)


def show_gauge(gauge: Gauge) -> Html:
    """Return an amount of which claims hold a part."""
    text = f"{gauge.name}: {gauge.used} of {gauge.total}"
    return element("p", element("meter", text, min=0, max=1000, value=min(gauge.permille, 1000), aria_label=text), text)


def show_problems(picture: CardPicture) -> Html:
    return join(element("p", f"the picture may be wrong: {each}", class_="fault") for each in picture.problems)


def show_legend() -> Html:
    """Return what the patterns of parts mean."""
    entries = []
    for state, meaning in MEANINGS.items():
        holders = ("claim",) if state in OWNED else ()
        row = UnitRow(name="", numbers=(0,), units=(Unit(state=state, holders=holders, part="-"),))
        picture = CardPicture(node="", driver="", pool="", name=meaning, model="", rows=(row,))
        entries.append(element("li", element("span", Html(draw_strip(picture)), aria_hidden="true"), meaning))
    return element("details", element("summary", "What the patterns mean"), element("ul", entries, class_="legend"))


def _find_held(picture: CardPicture) -> Iterator[tuple[Unit, str, str]]:
    """Yield each part that is held with one of its holders and its place."""
    for row in picture.rows:
        cells = zip(row.numbers, row.units, strict=True)
        for unit, run in groupby(cells, key=lambda cell: cell[1]):
            numbers = [number for number, _ in run]
            place = f"{row.name} {numbers[0]}" + (f"-{numbers[-1]}" if len(numbers) > 1 else "") if row.name else ""
            for holder in unit.holders:
                yield unit, holder, place


def list_pods(pods: Iterable[ObjectRef]) -> Html:
    """Return links to pods."""
    return separate([element("a", str(pod), href=addresses.address_of_pod(pod)) for pod in pods])


def _digest(picture: CardPicture) -> str:
    name = f"{picture.driver}\n{picture.pool}\n{picture.name}"
    return sha256(name.encode(errors="replace")).hexdigest()[:16]
