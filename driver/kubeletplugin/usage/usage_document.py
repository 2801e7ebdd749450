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

FILE_NAME: Final = "usage.json"
_MAX_BYTES: Final = 4 * 2**20
"""Far above what a node needs: some 300 bytes for each device of a claim, of which sixteen cards have a few hundred."""


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
    """Return the content of the file; of one that is not there an empty one.

    Raises OSError where it cannot be read or is too large, and ValueError where its content is another one.
    """
    try:
        content = read_regular_file(path, max_bytes=_MAX_BYTES)
    except FileNotFoundError:
        return UsageDocument()
    return msgspec.json.decode(content, type=UsageDocument)


def write_usage(path: Path, document: UsageDocument) -> None:
    """Replace the file. Raises OSError: then the one before is there still."""
    temporary = path.with_suffix(".new")
    temporary.unlink(missing_ok=True)  # what an interrupted write has left, or a link
    with temporary.open("xb") as file:
        file.write(msgspec.json.encode(document))
    temporary.replace(path)
