"""The digest of the checkpoint's content, in a file beside it: what SQLite has lost without a word is noticed by it.

SQLite reads its log up to the first frame whose checksum is wrong and takes the rest for never written
(https://www.sqlite.org/fileformat2.html#walformat): a flipped bit there, a shortened or a deleted log is an older
content to it, not an error. So the plugin keeps in a file of its own, without SQLite, which content it has written:
the number of claims, and one digest over all rows, the XOR of theirs, so that a change of one row costs one hash.

The file has one sector and is overwritten in place: before each write of the database with the content before and
after it, and with the one after when that is done. Neither write is synced, and neither needs to be: they outlive the
process, and another boot voids them. What is found at the start of a process is therefore, in the same boot,

- the one content that the file names; or one of two, when the process was killed in the middle of a write that it
  answered to no caller;
- or else damage, and the plugin refuses to start: anything that is less, more or other than what was written.

In another boot the content is what is found: after a power cut the last writes may be missing, and nothing that an
earlier boot has recorded is on the hardware (``transitions``). The file itself is synced when it is made and at the
first start of a boot, and a sector is written as a whole, so one that cannot be read is damaged in every boot.
"""

import hashlib
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

from kerf_dra.api.checkpoint import v1
from kerf_dra.api.checkpoint.v1 import CheckpointError, ContentRecord, ContentSummary

FILE_NAME: Final = "checkpoint.digest"

Row: TypeAlias = tuple[str, str]
"""The key of a row: a claim's UID with nothing for its record, or with a share, as text, for the notes on it."""

SIZE: Final = 512
"""Bytes of the file, the rest of them spaces: one sector, the unit that disks write as a whole."""
_DIGEST_BYTES: Final = 16
"""Enough to distinguish contents that were not made to collide: the file is root's, as the database is."""
_EMPTY: Final = ContentSummary(claims=0, digest="0" * 2 * _DIGEST_BYTES)
_UNREADABLE: Final = (
    "restore it, or drain the node, remove the partitions by the vendor's tool, then all files checkpoint.*"
)
_LOST: Final = "restore the folder, or drain the node and reboot it: what is lost is then on no card any more"


@dataclass(frozen=True, slots=True, kw_only=True)
class ContentChange:
    """What the digest is after a change of rows."""

    summary: ContentSummary
    digests: Mapping[Row, int | None]
    """The digests of the changed rows; None: the row is deleted."""


class ContentDigest:
    """The digest of all rows of a checkpoint, kept as they change."""

    def __init__(self, rows: Mapping[Row, bytes]) -> None:
        self._digests: dict[Row, int] = {}
        self.summary = _EMPTY
        self.apply(self.preview(rows))

    def preview(self, changes: Mapping[Row, bytes | None]) -> ContentChange:
        """Return what ``changes`` make of it: the new content of each changed row, None where it is deleted."""
        digest, claims = int(self.summary.digest, 16), self.summary.claims
        digests: dict[Row, int | None] = {}
        for row, data in changes.items():
            if (before := self._digests.get(row)) is not None:
                digest ^= before
                claims -= not row[1]
            digests[row] = after = None if data is None else _hash(row, data)
            if after is not None:
                digest ^= after
                claims += not row[1]
        summary = ContentSummary(claims=claims, digest=f"{digest:0{2 * _DIGEST_BYTES}x}")
        return ContentChange(summary=summary, digests=digests)

    def apply(self, change: ContentChange) -> None:
        """Take note of a change, which has been made."""
        self.summary = change.summary
        for row, digest in change.digests.items():
            if digest is None:
                self._digests.pop(row, None)
            else:
                self._digests[row] = digest


class DigestFile:
    """The open file, for one process: the one that has the checkpoint open."""

    def __init__(self, path: Path, descriptor: int, boot_id: str) -> None:
        self._path = path
        self._descriptor = descriptor
        self._boot_id = boot_id

    def check(self, found: ContentSummary, database: Path) -> None:
        """Compare what was ``found`` in ``database`` with what was written in this boot, and go on from there.

        Raises CheckpointError when they differ, or the file is damaged, and OSError.
        """
        noted = self._read()
        if noted.boot_id == self._boot_id:
            if found not in noted.contents:
                raise CheckpointError(str(database), _describe(found, noted), _LOST)
            self.write(found)
        else:
            self.write(found)
            os.fdatasync(self._descriptor)

    def write(self, *contents: ContentSummary) -> None:
        """Write the content that the database has, or the two between which it is. Raises OSError."""
        data = v1.encode_contents(ContentRecord(boot_id=self._boot_id, contents=contents))
        os.pwrite(self._descriptor, data.ljust(SIZE), 0)

    def finish_write(self, content: ContentSummary) -> None:
        """Write the content after a write. Where that fails, the two before it stand, and one of them it is."""
        with suppress(OSError):
            self.write(content)

    def _read(self) -> ContentRecord:
        return _decode(self._path, os.pread(self._descriptor, SIZE + 1, 0))


@contextmanager
def open_digest_file(directory: Path, boot_id: str) -> Iterator[DigestFile]:
    """Open the file. Raises CheckpointError when there is none, and OSError."""
    path = directory / FILE_NAME
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError as error:
        reason = "it is missing, so it cannot be checked whether the checkpoint beside it is complete"
        raise CheckpointError(str(path), reason, _UNREADABLE) from error
    try:
        yield DigestFile(path, descriptor, boot_id)
    finally:
        with suppress(OSError):  # what it has is compared at the next start, and its descriptor is free (close(2))
            os.close(descriptor)


def create_digest_file(database: Path, boot_id: str) -> None:
    """Make the file of a ``database`` that is about to be made, and sync it; the caller syncs the directory.

    Raises CheckpointError when there is one that is damaged, or that names claims of this boot: then the checkpoint was
    lost. Raises OSError.
    """
    path = database.with_name(FILE_NAME)
    if path.exists():
        noted = _decode(path, path.read_bytes()[: SIZE + 1])
        if noted.boot_id == boot_id and _EMPTY not in noted.contents:
            reason = f"it is missing, and {_count(noted)} claims were written since the node was booted"
            raise CheckpointError(str(database), reason, _LOST)
    temporary = path.with_name(f"{FILE_NAME}.new")
    temporary.unlink(missing_ok=True)
    descriptor = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        DigestFile(path, descriptor, boot_id).write(_EMPTY)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    temporary.rename(path)


def _decode(path: Path, data: bytes) -> ContentRecord:
    if len(data) != SIZE:
        raise CheckpointError(str(path), f"unreadable: it has not {SIZE} bytes", _UNREADABLE)
    return v1.decode_contents(data, str(path), _UNREADABLE)


def _describe(found: ContentSummary, noted: ContentRecord) -> str:
    claims = {content.claims for content in noted.contents}
    if claims == {found.claims}:
        return f"damaged: records or notes of its {found.claims} claims are not those that were written"
    return f"damaged: it has {found.claims} claims, and {_count(noted)} were written since the node was booted"


def _count(noted: ContentRecord) -> str:
    return " or ".join(map(str, sorted({content.claims for content in noted.contents})))


def _hash(row: Row, data: bytes) -> int:
    # The lengths keep what is moved from one part to the next from having the same digest.
    key = f"{len(row[0])} {len(row[1])} {row[0]}{row[1]}".encode()
    return int.from_bytes(hashlib.blake2b(key + data, digest_size=_DIGEST_BYTES).digest(), "big")
