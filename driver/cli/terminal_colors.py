"""Whether the output of commands has colors, and how many: what the environment says."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from kerf_dra.driver.partitions.card_pictures.claim_colors import ColorDepth

_FORCED: Final[Mapping[str, ColorDepth]] = MappingProxyType(
    {"1": ColorDepth.BASIC, "2": ColorDepth.INDEXED, "3": ColorDepth.INDEXED}
)
"""The number of colors that ``FORCE_COLOR`` asks for, as other programs read it; 3 is 24 bits."""


def choose_color(environment: Mapping[str, str]) -> bool | None:
    """Return whether output is to have colors: True or False whatever it goes to, None: if it goes to a terminal.

    ``NO_COLOR`` (https://no-color.org) comes first, if it is not empty; then ``FORCE_COLOR`` (https://force-color.org),
    of which ``0`` and ``false`` mean none; a terminal whose ``TERM`` is ``dumb`` has none.
    """
    if environment.get("NO_COLOR"):
        return False
    if forced := environment.get("FORCE_COLOR"):
        return forced.lower() not in ("0", "false")
    return False if environment.get("TERM") == "dumb" else None


def find_color_depth(environment: Mapping[str, str]) -> ColorDepth:
    """Return how many colors drawings have; output that goes to no terminal loses them when it is printed."""
    if choose_color(environment) is False:
        return ColorDepth.NONE
    if forced := _FORCED.get(environment.get("FORCE_COLOR", "")):
        return forced
    is_rich = "256color" in environment.get("TERM", "") or bool(environment.get("COLORTERM"))
    return ColorDepth.INDEXED if is_rich else ColorDepth.BASIC
