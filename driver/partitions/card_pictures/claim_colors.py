"""The color of each claim in pictures of cards, for people with any color vision.

The palette is that of Okabe and Ito (Color Universal Design, 2008), whose colors differ in brightness too and can be
distinguished with every common form of color blindness. Color is never the only cue: every part has a letter or a label
as well (WCAG 2.2, 1.4.1).

Which color a claim gets is a hash of its name, so that it is the same in the next picture; where another claim has the
color already, the next of those that fewest claims have.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import Final
from zlib import crc32

UNCOLORED: Final[Mapping[str, int]] = MappingProxyType({})
"""No claim has a color yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimColor:
    """A color of the palette, with the color of text on it."""

    name: str
    rgb: str
    """As in CSS, such as ``#e69f00``."""
    text_rgb: str
    indexed: tuple[int, int]
    """The nearest color of xterm's 256, and that of text on it."""
    basic: tuple[int, int]
    """The parameters of the escape sequence (ECMA-48 SGR) for one of 16 colors as background, and for text on it."""


_BLACK, _WHITE = 16, 231  # of xterm's 256 colors: unlike the first 16, themes do not change them
_BLACK_TEXT, _WHITE_TEXT = 30, 97

COLORS: Final = (
    ClaimColor(name="orange", rgb="#e69f00", text_rgb="#000000", indexed=(178, _BLACK), basic=(43, _BLACK_TEXT)),
    ClaimColor(name="sky blue", rgb="#56b4e9", text_rgb="#000000", indexed=(74, _BLACK), basic=(46, _BLACK_TEXT)),
    ClaimColor(name="bluish green", rgb="#009e73", text_rgb="#000000", indexed=(36, _BLACK), basic=(47, _BLACK_TEXT)),
    ClaimColor(name="yellow", rgb="#f0e442", text_rgb="#000000", indexed=(227, _BLACK), basic=(103, _BLACK_TEXT)),
    ClaimColor(name="blue", rgb="#0072b2", text_rgb="#ffffff", indexed=(25, _WHITE), basic=(44, _WHITE_TEXT)),
    ClaimColor(name="vermilion", rgb="#d55e00", text_rgb="#000000", indexed=(166, _BLACK), basic=(100, _WHITE_TEXT)),
    ClaimColor(name="purple", rgb="#cc79a7", text_rgb="#000000", indexed=(175, _BLACK), basic=(45, _BLACK_TEXT)),
)
"""The palette without black, which is the text. Of 16 colors red and green are left out, which most color-blind people
confuse; two greys stand for them."""


class ColorDepth(Enum):
    """How many colors text has."""

    NONE = 0
    BASIC = 16
    INDEXED = 256


def assign_colors(claims: Iterable[str], kept: Mapping[str, int] = UNCOLORED) -> dict[str, int]:
    """Return the number of a color of ``COLORS`` for each claim; those in ``kept`` keep theirs.

    >>> colors = assign_colors(["default/a", "default/b"])
    >>> assign_colors(["default/c", "default/b", "default/a"], colors).items() >= colors.items()
    True
    """
    names = dict.fromkeys(claims)
    assigned = {name: kept[name] for name in names if name in kept}
    used = Counter(assigned.values())
    for name in [each for each in names if each not in assigned]:
        preferred = crc32(name.encode(errors="surrogatepass")) % len(COLORS)
        order = [(preferred + step) % len(COLORS) for step in range(len(COLORS))]
        assigned[name] = min(order, key=lambda color: used[color])
        used[assigned[name]] += 1
    return assigned
