"""The file in which the energy of cards and claims, and the idleness of devices, outlive the process.

It is replaced as a whole, before anything shows what it has: so no total that was shown once is less after a restart.
It is not synced. After a power cut an older one may be there, or none: totals then are less than they were, as after a
loss of the file, and Prometheus takes that for a counter that has begun again.
"""

from pathlib import Path
from typing import Final, Literal

import msgspec

from kerf_dra.driver.kubeletplugin.usage.energy_account import CardAccount
from kerf_dra.driver.kubeletplugin.usage.idleness import IdleState
from kerf_dra.driver.runtime.documents.input_file import read_regular_file
from kerf_dra.driver.runtime.documents.output_file import discard_unfinished, replace_whole

FILE_NAME: Final = "usage.json"
_MAX_BYTES: Final = 4 * 2**20
"""Far above what a node needs: some 300 bytes for each device of a claim, of which sixteen cards have a few hundred."""
_MODE: Final = 0o644
"""The file has no secrets: metrics show what is in it."""


class UsageDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The content of the file."""

    version: Literal["v1"] = "v1"
    boot_id: str = ""
    """The boot in which it was written: in another one no device is known as idle."""
    cards: dict[str, CardAccount] = {}
    """The accounts by the UUID of the card."""
    idleness: dict[str, IdleState] = {}
    """What is known of devices, by the names that they have in the accounts."""


def read_usage(path: Path) -> UsageDocument:
    """Return the content of the file; of one that is not there an empty one. What a killed writer has left is removed.

    Raises OSError where it cannot be read or is too large, and ValueError where its content is another one.
    """
    discard_unfinished(_temporary_of(path))
    try:
        content = read_regular_file(path, max_bytes=_MAX_BYTES)
    except FileNotFoundError:
        return UsageDocument()
    return msgspec.json.decode(content, type=UsageDocument)


def write_usage(path: Path, document: UsageDocument) -> None:
    """Replace the file. Raises OSError: then the one before is there still."""
    replace_whole(path, msgspec.json.encode(document), _temporary_of(path), mode=_MODE)


def _temporary_of(path: Path) -> Path:
    return path.with_suffix(".new")
