"""The proof that a claim has ended, from what the API server answers about it. Pure.

A release cannot be undone while a pod runs, and one answer may be wrong: a cache may be old, a proxy may answer for
another cluster, etcd may have been restored from a backup. So an end takes answers that agree, apart by a grace: from
the server's storage (a GET without a resource version) and from its cache (with the newest one that was seen) in turn.

- ANSWERS of them where the kubelet lists the claims of its pods, and says that none uses this one.
- ANSWERS_ALONE where it lists no claims: there nothing on the node contradicts.

An answer that shows the claim in use by the storage ends the doubt. One that contradicts what was seen before, a cache
that contradicts the storage, and a list that contradicts both, count for nothing, and the count begins again: an object
never has an older version than before, nor two contents at one version. Versions are compared where both are decimal
(KEP-5504), and are forgotten with the process: after a restore of etcd they begin lower.

Example: a claim is gone. Storage, at 0 s: it does not exist. Cache, at 60 s: the same. Its end is proven.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final, TypeAlias

from kerf_dra.api.errors import TransientError
from kerf_dra.api.model.allocations import ResourceClaimConsumerReference
from kerf_dra.api.model.claims import AllocatedClaim, ResourceClaim
from kerf_dra.api.model.metadata import version_number
from kerf_dra.api.model.prepared import PreparedClaim

ANSWERS: Final = 2
"""Answers that agree: one from the storage and one from the cache."""
ANSWERS_ALONE: Final = 3 * ANSWERS
"""The same twice more, where only the API server can say that no pod uses the claim: with a grace of a minute five
minutes, longer than a proxy or a server that is being replaced gives wrong answers."""


AnyClaim: TypeAlias = ResourceClaim | AllocatedClaim
"""A claim as a read shows it, or an answer to a write of its status."""


class EndContradictedError(TransientError):
    """The API server shows a claim as ended, and contradicts itself."""


class ClaimEnd(StrEnum):
    """Why a claim, as the API server has it, no longer needs the devices of its record."""

    ABSENT = "it does not exist"
    """No claim of this UID: it was deleted, and perhaps created again."""
    TAKEN = "it no longer has these devices"
    """It was deallocated, or allocated otherwise."""
    UNRESERVED = "it is reserved for no pod"


class Source(StrEnum):
    """Where the API server has an answer from."""

    STORAGE = "its storage"
    CACHE = "its cache"


def find_end(claim: AnyClaim | None, record: PreparedClaim, uid: str) -> ClaimEnd | None:
    """Return why ``claim`` no longer needs the devices of ``record``; None: it does, as far as the API server says.

    ``uid`` is that of the claim that has, or had, these devices. It is not the record's own where the claim was
    allocated otherwise since: then the claim has these devices again only if it has no others beside them.
    """
    if claim is None or claim.metadata.uid != uid:
        return ClaimEnd.ABSENT
    allocation = claim.status.allocation
    allocated = {result.share for result in allocation.devices.results} if allocation is not None else set()
    held = {device.share for device in record.devices}
    if allocation is None or not held <= allocated:
        return ClaimEnd.TAKEN
    drivers = {share.id.driver for share in held}
    if record.claim.uid != uid and held != {share for share in allocated if share.id.driver in drivers}:
        return ClaimEnd.TAKEN
    return None if claim.status.reserved_for else ClaimEnd.UNRESERVED


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenClaim:
    """What this process has seen of one claim."""

    newest: str = ""
    """Its newest resource version; empty: it has not been seen, or versions are no numbers."""
    in_use: int = 0
    """The newest version, as a number, at which it had its devices and a reservation."""
    pods: tuple[ResourceClaimConsumerReference, ...] = ()
    """The pods that it was reserved for then."""

    def find_contradiction(self, claim: AnyClaim | None) -> str:
        """Return why ``claim``, which is shown as ended, cannot be as it is shown; empty: it can."""
        version, newest = (claim.metadata.version if claim is not None else 0), version_number(self.newest)
        if not version or not newest:
            return ""
        if version < newest:
            return f"it is shown at version {version}, which is older than {newest}, at which it was seen before"
        return f"at the same version {version} it was in use" if version == self.in_use else ""

    def note(self, claim: AnyClaim, *, is_in_use: bool) -> "SeenClaim":
        """Return what has been seen once ``claim`` has."""
        version = claim.metadata.version
        is_newer = version >= version_number(self.newest)
        pods = tuple(one for one in claim.status.reserved_for if one.resource == "pods")
        return SeenClaim(
            newest=claim.metadata.resource_version if version and is_newer else self.newest,
            in_use=max(self.in_use, version) if is_in_use else self.in_use,
            pods=pods if is_in_use and is_newer else self.pods,
        )


class SeenClaims:
    """What this process has seen of the claims that have a record, by the records' UIDs."""

    def __init__(self) -> None:
        self._seen: dict[str, SeenClaim] = {}

    def get(self, uid: str) -> SeenClaim:
        return self._seen.get(uid, SeenClaim())

    def note(self, uid: str, claim: AnyClaim | None, *, is_in_use: bool) -> None:
        """Note what an answer shows of the claim whose record has ``uid``."""
        if claim is not None:
            self._seen[uid] = self.get(uid).note(claim, is_in_use=is_in_use)

    def keep(self, uids: Collection[str]) -> None:
        """Forget all others."""
        for uid in self._seen.keys() - set(uids):
            del self._seen[uid]


@dataclass(frozen=True, slots=True, kw_only=True)
class EndProof:
    """The answers so far that show one end of a claim. Times are monotonic, in seconds."""

    end: ClaimEnd
    since: float
    """The time of the first of them."""
    answers: int = 0
    """The number of answers that count, the latest in a row."""
    counted_at: float = 0.0
    """The time of the latest one that counts."""
    source: Source = Source.CACHE
    """Where it was from; the storage is asked first."""
    doubt: str = ""
    """Why the latest answer does not count; empty: it does."""

    @property
    def next_source(self) -> Source:
        """Where the next answer is to be from."""
        return Source.CACHE if self.source is Source.STORAGE else Source.STORAGE

    def reject(self, doubt: str) -> "EndProof":
        """Return the proof after an answer that contradicts it."""
        return replace(self, answers=0, source=Source.CACHE, doubt=doubt)


def add_answer(
    proof: EndProof | None, source: Source, end: ClaimEnd | None, contradiction: str, *, now: float, grace_s: float
) -> EndProof | None:
    """Return the proof after an answer; None: the claim needs its devices.

    ``end`` is what the answer shows, None: the claim in use; ``contradiction`` is what speaks against it.
    """
    if end is None:
        return None if proof is None or source is Source.STORAGE else proof.reject(f"{source} has it in use")
    if proof is None or proof.end is not end:
        proof = EndProof(end=end, since=now)
    if contradiction:
        return proof.reject(contradiction)
    if proof.answers and now - proof.counted_at < grace_s:
        return proof
    return replace(proof, answers=proof.answers + 1, counted_at=now, source=source, doubt="")
