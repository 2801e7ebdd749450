"""The style sheet: the file beside the script, that of pictures of cards, and the colors of claims."""

from functools import cache
from pathlib import Path
from typing import Final

from kerf_dra.driver.partitions.card_pictures.claim_colors import COLORS
from kerf_dra.driver.partitions.card_pictures.svg_picture import STYLE

_FOLDER: Final = Path(__file__).parents[1] / "static"


@cache
def build_style_sheet() -> bytes:
    """Return the style sheet of all pages."""
    swatches = "".join(f".swatch.k{number}{{background:{color.rgb}}}" for number, color in enumerate(COLORS))
    return b"\n".join(((_FOLDER / "view.css").read_bytes(), swatches.encode(), STYLE.encode()))


@cache
def read_script() -> bytes:
    """Return the script of all pages."""
    return (_FOLDER / "view.js").read_bytes()
