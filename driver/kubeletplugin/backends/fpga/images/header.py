"""What an image file says of itself, whatever its format is, and how its format is read."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

ReadAt: TypeAlias = Callable[[int, int], bytes]
"""Returns the bytes of a file from an offset, as many as are wanted or fewer at its end. Raises OSError."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageHeader:
    """What a file says of its image; UUIDs have dashes and are in lower case."""

    interface_uuid: str
    """The interface of the shell that the image was built for."""
    afu_id: str
    """The UUID that the card reports once the image is loaded."""
    bits_offset: int = 0
    """Where the bits for the card begin."""
    compute_units: int = 0
    """The compute units that programs can run; 0: the format knows none."""


ImageFormat: TypeAlias = Callable[[ReadAt, int], ImageHeader]
"""Reads the header of a file of so many bytes. Raises KerfError: it is none of this format, or makes no sense."""
