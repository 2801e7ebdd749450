"""The answer to "why": data, and at the same time the document that ``kerf why --output json`` prints.

Every field is always there. Names of objects are ``namespace/name``, of devices ``driver/pool/device``.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    """What the answer comes down to."""

    HAS_DEVICES = "has-devices"
    """Nothing is missing: all claims are allocated."""
    FITS = "fits"
    """There is a node where it fits now; what waits is the scheduler, or something other than devices."""
    DOES_NOT_FIT = "does-not-fit"
    BLOCKED = "blocked"
    """It is not a question of devices: something has to happen first."""
    INVALID = "invalid"
    """The claims ask for what no node can decide: somebody must change an object."""
    UNDECIDED = "undecided"
    """The search was given up on some node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What was asked about."""

    kind: str
    """``Pod`` or ``ResourceClaim``."""
    namespace: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimState:
    """One claim of the subject."""

    name: str
    state: str
    """``allocated``, ``pending``, ``deleting`` or ``missing``."""
    devices: tuple[str, ...] = ()
    waits_for: tuple[str, ...] = ()
    """Binding conditions that are not true yet (KEP-5007): ``condition of device``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnmetCondition:
    """A condition that a device does not meet, and what it has instead."""

    source: str
    condition: str
    has: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class NearMiss:
    """Devices that nearly match."""

    device: str
    """The first of them, on the first node."""
    devices: int
    unmet: tuple[UnmetCondition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeReason:
    """One obstacle on some nodes."""

    claim: str
    """Empty: the obstacle is the pod's."""
    request: str
    obstacle: str
    """A word of ``driver.allocation.Obstacle``, or ``node-filter``, ``error``, ``undecided``."""
    message: str
    near_misses: tuple[NearMiss, ...] = ()
    taints: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class InTheWay:
    """Hardware of one card that is not free, and who has it."""

    node: str
    pool: str
    card: str
    counters: tuple[str, ...]
    claims: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeGroup:
    """Nodes with the same reasons."""

    nodes: tuple[str, ...]
    reasons: tuple[NodeReason, ...]
    in_the_way: tuple[InTheWay, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EndingClaim:
    """A claim that would have to end, and the pods that use it."""

    claim: str
    pods: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedy:
    """Running claims of one node: if they all ended it would fit there, and none of them could stay."""

    node: str
    claims: tuple[EndingClaim, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class WhyAnswer:
    """Why a pod or a claim waits."""

    subject: Subject
    verdict: Verdict
    message: str
    """One sentence."""
    scheduler_says: str
    """The message of the pod's condition PodScheduled; empty when there is none."""
    claims: tuple[ClaimState, ...]
    nodes: int
    """How many there are."""
    fitting_nodes: tuple[str, ...]
    groups: tuple[NodeGroup, ...]
    """The other nodes, the largest group first."""
    remedies: tuple[Remedy, ...]
    """The smallest first."""
    remedies_searched: int
    """Nodes on which remedies were looked for."""
