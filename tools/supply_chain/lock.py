"""The lock files: every requirement with its version and the hashes of its files, as ``uv pip compile`` writes them."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
LOCKS: Final = ("requirements.lock", "requirements-dev.lock", "requirements-docs.lock", "requirements-browser.lock")
_PINNED: Final = re.compile(
    r"(?P<name>[A-Za-z0-9._-]+)(?:\[(?P<extras>[^\]]+)\])?==(?P<version>[^\s;]+)\s*(?:;\s*(?P<marker>.*?))?\s*"
)
_HASH: Final = re.compile(r"--hash=sha256:[0-9a-f]{64}")


class NotLockedError(ValueError):
    """A line of a lock file is no pinned requirement with hashes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LockedPackage:
    """One requirement of a lock file."""

    name: str
    version: str
    extras: frozenset[str]
    """The extras that other packages need; pip refuses in hash mode what is locked without them."""
    marker: str
    """Where it is needed; empty: everywhere."""
    hashes: tuple[str, ...]
    """The SHA-256 of each file that may be installed."""


def read_lock(path: Path) -> tuple[LockedPackage, ...]:
    """Return the packages of a lock file. Raises NotLockedError for one that is not pinned, or without a hash."""
    lines = path.read_text().replace("\\\n", " ").splitlines()
    return tuple(_read(line) for line in lines if line.strip() and not line.startswith("#"))


def _read(line: str) -> LockedPackage:
    requirement, *hashes = re.split(r"\s+(?=--hash=)", line.strip())
    match = _PINNED.fullmatch(requirement)
    if match is None or not hashes or not all(map(_HASH.fullmatch, hashes)):
        raise NotLockedError(f"is not pinned with SHA-256 hashes: {requirement}")
    return LockedPackage(
        name=match["name"],
        version=match["version"],
        extras=frozenset((match["extras"] or "").split(",")) - {""},
        marker=match["marker"] or "",
        hashes=tuple(each.rpartition(":")[2] for each in hashes),
    )
