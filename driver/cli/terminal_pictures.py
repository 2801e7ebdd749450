"""Pictures of cards in the width and the colors of the terminal."""

import os
import shutil
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

from kerf_dra.driver.cli.terminal_colors import choose_color
from kerf_dra.driver.partitions.card_pictures.card_picture import CardPicture
from kerf_dra.driver.partitions.card_pictures.claim_colors import UNCOLORED, ColorDepth
from kerf_dra.driver.partitions.card_pictures.text_picture import draw_pictures

_NARROWEST: Final = 40
"""Columns of drawn cards, however narrow the terminal is: it breaks longer lines itself."""
_WIDEST: Final = 80
"""Columns of drawn cards, however wide the terminal is: as sentences have."""
_FORCED: Final[Mapping[str, ColorDepth]] = MappingProxyType(
    {"1": ColorDepth.BASIC, "2": ColorDepth.INDEXED, "3": ColorDepth.INDEXED}
)
"""The number of colors that ``FORCE_COLOR`` asks for, as other programs read it; 3 is 24 bits."""


def find_color_depth(environment: Mapping[str, str]) -> ColorDepth:
    """Return how many colors drawings have; output that goes to no terminal loses them when it is printed."""
    if choose_color(environment) is False:
        return ColorDepth.NONE
    if forced := _FORCED.get(environment.get("FORCE_COLOR", "")):
        return forced
    is_rich = "256color" in environment.get("TERM", "") or bool(environment.get("COLORTERM"))
    return ColorDepth.INDEXED if is_rich else ColorDepth.BASIC


def draw_in_terminal(
    pictures: Iterable[CardPicture],
    *,
    has_titles: bool = True,
    indent: str = "",
    columns: int | None = None,
    kept: Mapping[str, int] = UNCOLORED,
) -> list[str]:
    """Return the lines of pictures of cards, in the width and the colors of the terminal.

    ``columns`` is the width of a part of it; ``kept`` are the colors that claims have already.
    """
    most = shutil.get_terminal_size().columns if columns is None else columns
    width = max(_NARROWEST, min(_WIDEST, most)) - len(indent)
    lines = draw_pictures(pictures, width, depth=find_color_depth(os.environ), has_titles=has_titles, kept=kept)
    return [f"{indent}{line}" for line in lines]
