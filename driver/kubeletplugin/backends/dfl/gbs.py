"""Reads the header of a GBS file: the image of an accelerator function as Intel's and OFS's tools package it. Pure.

A file begins with 16 bytes of magic (``XeonFPGA``, 0xB7, ``GBSv001``) and the length of the metadata as a little-endian
32-bit number; then come the metadata in JSON, and the bits that the card takes (OPAE/opae-sdk, ``libraries/plugins/
xfpga/bitstream.c``). Only the head of a file is needed, and no input makes this use more than a few times its size.
"""

import struct
import uuid
from dataclasses import dataclass
from typing import Final

import msgspec

from kerf_dra.api.errors import PermanentError
from kerf_dra.driver.kubeletplugin.backends.fpga.images.header import ImageHeader, ReadAt

MAGIC: Final = b"XeonFPGA\xb7GBSv001"
_LENGTH: Final = struct.Struct("<I")
_FIRST: Final = len(MAGIC) + _LENGTH.size
"""The first byte of the metadata."""
_MAX_METADATA: Final = 4096
"""The length of the metadata is less (``METADATA_MAX_LEN`` of OPAE)."""
HEAD_BYTES: Final = _FIRST + _MAX_METADATA
"""So many bytes of a file are enough for ``parse_gbs``."""


class InvalidGbsError(PermanentError):
    """A file is no image of an accelerator function in the format GBS; the message says what is wrong in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GbsHeader(ImageHeader):
    """What a GBS file says of its image."""

    name: str = ""
    """The accelerator's name; empty: it has none."""


class _Cluster(msgspec.Struct, rename="kebab"):
    accelerator_type_uuid: str
    name: str = ""


class _AfuImage(msgspec.Struct, rename="kebab"):
    interface_uuid: str
    accelerator_clusters: list[_Cluster]


class _Metadata(msgspec.Struct, rename="kebab"):
    """What is read of the metadata; tools add more."""

    afu_image: _AfuImage


def parse_gbs(head: bytes, size: int) -> GbsHeader:
    """Read the header from ``head``, the first HEAD_BYTES or all of a file of ``size`` bytes.

    Raises InvalidGbsError.
    """
    if not head.startswith(MAGIC):
        raise InvalidGbsError("it is not a GBS file: it does not begin with XeonFPGA·GBSv001")
    if len(head) < _FIRST:
        raise InvalidGbsError("it ends before the length of its metadata")
    (length,) = _LENGTH.unpack_from(head, len(MAGIC))
    if not 0 < length < _MAX_METADATA:
        raise InvalidGbsError(f"its metadata have {length} bytes; 1 to {_MAX_METADATA - 1} are possible")
    end = _FIRST + length
    if end > min(len(head), size):
        raise InvalidGbsError("it ends in the middle of its metadata")
    if end == size:
        raise InvalidGbsError("it has metadata, but no bits for the card")
    image = _decode(head[_FIRST:end]).afu_image
    if len(image.accelerator_clusters) != 1:
        count = len(image.accelerator_clusters)
        raise InvalidGbsError(f"it has {count} accelerator clusters; a port takes an image with exactly one")
    (cluster,) = image.accelerator_clusters
    return GbsHeader(
        interface_uuid=_normalize(image.interface_uuid, "interface-uuid"),
        afu_id=_normalize(cluster.accelerator_type_uuid, "accelerator-type-uuid"),
        name=cluster.name,
        bits_offset=end,
    )


def read_gbs_header(read_at: ReadAt, size: int) -> GbsHeader:
    """Read the header of a file (``ImageFormat``). Raises InvalidGbsError."""
    return parse_gbs(read_at(0, HEAD_BYTES), size)


def _decode(metadata: bytes) -> _Metadata:
    try:
        return msgspec.json.decode(metadata.rstrip(b"\0"), type=_Metadata)  # tools fill up with zeros
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidGbsError(f"its metadata cannot be read: {error}") from error


def _normalize(text: str, field: str) -> str:
    try:
        return str(uuid.UUID(text))
    except ValueError:
        raise InvalidGbsError(f"its {field} is not a UUID") from None
