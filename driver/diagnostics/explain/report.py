"""The types of the document that ``kerf why --output json`` prints.

The names of classes are internal; the names of fields are the format. No field is ever left out. Objects are written
``namespace/name``, devices ``driver/pool/device``.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    """The result of a report in one word."""

    HAS_DEVICES = "has-devices"
    """All claims are allocated."""
    FITS = "fits"
    """A node has free devices now; the pod waits for the scheduler, or for something other than devices."""
    DOES_NOT_FIT = "does-not-fit"
    """No node has devices for it."""
    BLOCKED = "blocked"
    """Something other than devices has to change first, for example a scheduling gate."""
    INVALID = "invalid"
    """The claims cannot be evaluated on any node until an object is changed, for example a selector that fails."""
    UNDECIDED = "undecided"
    """The search exceeded its budget on some node, and no node fits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """The pod or claim that a report is about."""

    kind: str
    """``Pod`` or ``ResourceClaim``."""
    namespace: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimState:
    """The state of one claim of the subject."""

    name: str
    state: str
    """``allocated``, ``pending``, ``deleting`` or ``missing``."""
    devices: tuple[str, ...] = ()
    waits_for: tuple[str, ...] = ()
    """Binding conditions that are not yet true (KEP-5007), each as ``condition of device``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnmetCondition:
    """A condition that a device does not meet."""

    source: str
    """The object that has the condition."""
    condition: str
    has: Mapping[str, str]
    """The device's values of the attributes and capacities that the condition reads, by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NearMiss:
    """Devices that fail the same few conditions of a request."""

    device: str
    """The first device, on the first node."""
    devices: int
    """The number of such devices on one node."""
    unmet: tuple[UnmetCondition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeReason:
    """One obstacle on the nodes of a group."""

    claim: str
    """The claim that meets the obstacle; empty when it concerns the whole pod."""
    request: str
    obstacle: str
    """A value of ``driver.allocation.Obstacle``, or ``node-filter``, ``error`` or ``undecided``."""
    message: str
    near_misses: tuple[NearMiss, ...] = ()
    taints: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockedCard:
    """Hardware of one card that other claims hold."""

    node: str
    pool: str
    card: str
    counters: tuple[str, ...]
    claims: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeGroup:
    """Nodes with equal obstacles."""

    nodes: tuple[str, ...]
    reasons: tuple[NodeReason, ...]
    in_the_way: tuple[BlockedCard, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Victim:
    """A claim that would have to end, with the pods that use it."""

    claim: str
    pods: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Victims:
    """A minimal set of claims of one node whose end makes the subject fit there."""

    node: str
    claims: tuple[Victim, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class WhyReport:
    """The report on why a pod or a claim waits for devices."""

    subject: Subject
    verdict: Verdict
    message: str
    """The verdict in one sentence."""
    scheduler_says: str
    """The message of the pod's condition PodScheduled; empty without one."""
    claims: tuple[ClaimState, ...]
    nodes: int
    """The number of nodes in the cluster."""
    fitting_nodes: tuple[str, ...]
    groups: tuple[NodeGroup, ...]
    """The nodes that do not fit, the largest group first."""
    remedies: tuple[Victims, ...]
    """The smallest set first."""
    remedies_searched: int
    """The number of nodes that were searched for ``remedies``."""
