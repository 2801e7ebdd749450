"""The types of the document that ``kerf why --output json`` prints.

The names of classes are internal; the names of fields are the format. No field is ever left out. Objects are written
``namespace/name``, devices ``driver/pool/device``.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeAlias

from kerf_dra.driver.allocation import Obstacle


class Verdict(StrEnum):
    """The result of a report in one word."""

    HAS_DEVICES = "has-devices"
    """All claims are allocated, and the pod, if there is one, has started."""
    STARTING = "starting"
    """All claims are allocated, the pod has not started yet, and no fault is found."""
    CANNOT_START = "cannot-start"
    """All claims are allocated, and a fault keeps the pod or one of its containers from starting."""
    DEVICES_FAILED = "devices-failed"
    """All claims are allocated, the pod, if there is one, has started, and a device of it is lost to it."""
    ENDING = "ending"
    """It is being deleted, and no fault is found."""
    CANNOT_END = "cannot-end"
    """It is being deleted, and a fault keeps it from ending."""
    FITS = "fits"
    """A node has free devices now; the pod waits for the scheduler, or for something other than devices."""
    WAITING = "waiting"
    """Its claims are not allocated, and no fault is found: the scheduler and drivers' controllers negotiate."""
    DOES_NOT_FIT = "does-not-fit"
    """No node has devices for it."""
    BLOCKED = "blocked"
    """Something other than devices has to change first, for example a scheduling gate."""
    INVALID = "invalid"
    """The claims cannot be evaluated on any node until an object is changed, for example a selector that fails."""
    UNDECIDED = "undecided"
    """The search exceeded its budget on some node, and no node fits."""


class CauseCode(StrEnum):
    """A reason why a pod or claim waits, besides those of ``kerf_dra.driver.allocation.Obstacle``. Values never
    change.
    """

    NODE_FILTER = "node-filter"
    """The pod may not run on the node: a taint, a node selector, an affinity, or a claim allocated on another node."""
    NODE_ERROR = "error"
    """The slices of a node cannot be evaluated."""
    UNDECIDED = "undecided"
    """The search for devices on a node was given up."""

    POD_FINISHED = "pod-finished"
    """The pod has ended: it gets no devices any more."""
    SCHEDULING_GATE = "scheduling-gate"
    """A scheduling gate of the pod excludes it from scheduling."""
    CLAIM_MISSING = "claim-missing"
    """A claim that the pod names does not exist."""
    TEMPLATE_MISSING = "template-missing"
    """A template that the pod names does not exist."""
    CLAIM_NOT_CREATED = "claim-not-created"
    """A claim has not been created from its template yet."""
    QUOTA_EXCEEDED = "quota-exceeded"
    """A ResourceQuota keeps a claim from being created from its template: the message has what is used and left."""
    CLAIM_REFUSED = "claim-refused"
    """The API server refuses a claim that is to be created from its template: the message has the reason."""
    CLAIM_DELETING = "claim-deleting"
    """A claim of the pod is being deleted."""
    CLASS_MISSING = "class-missing"
    """The class that a claim names does not exist."""
    CLASS_NOT_COMPILED = "class-not-compiled"
    """There is a ResourceClass of this name, but no DeviceClass: its conditions say why."""
    CLASS_MATCHES_NOTHING = "class-matches-nothing"
    """No published device matches the ResourceClass: its condition says why."""
    EXTENDED_RESOURCE = "extended-resource"
    """A node has too few of an extended resource that a ResourceClass offers by the device plugin interface."""
    EXTENDED_RESOURCE_REFUSED = "extended-resource-refused"
    """No plugin gives the extended resource of a ResourceClass, or of discovered devices."""
    INSUFFICIENT_RESOURCE = "insufficient-resource"
    """A node has too little CPU, memory or another counted resource left for the pod, or as many pods as it may."""
    NODE_TOO_SMALL = "node-too-small"
    """A node has less CPU, memory or another counted resource than the pod requests, however few pods it has."""
    RESOURCE_NOT_OFFERED = "resource-not-offered"
    """No node and no class offers an extended resource that the pod requests."""
    DISCOVERED_DEVICE_UNSEEN = "discovered-device-unseen"
    """A node sees no discovered device of what is asked for."""
    DISCOVERED_DEVICE_FULL = "discovered-device-full"
    """Discovered devices have as many users as their capacity (Kubernetes 1.29 to 1.31)."""
    DISCOVERED_DEVICE_UNLISTED = "discovered-device-unlisted"
    """A kubelet lists less of a discovered device's extended resource than is left (Kubernetes 1.29 to 1.31)."""
    RESERVED = "reserved"
    """Placements are kept for extended resources, and claims cannot have them."""
    CLAIM_INVALID = "claim-invalid"
    """A claim cannot be evaluated on any node, for example because a selector fails."""
    NO_NODE = "no-node"
    """The cluster has no node."""
    NO_POD = "no-pod"
    """No pod uses the claim: the scheduler allocates claims for pods only."""
    SCHEDULER = "scheduler"
    """Devices are free: the pod waits for the scheduler, or for something other than devices."""
    DEVICE_LOADING = "device-loading"
    """A device is made ready before the pod is bound (binding conditions, KEP-5007)."""
    DEVICE_FAILED = "device-failed"
    """A device reports that it cannot be made ready (binding failure conditions, KEP-5007)."""
    NOT_BOUND = "not-bound"
    """All claims are allocated, and the scheduler has not bound the pod to a node yet."""
    BOUND_WITHOUT_ALLOCATION = "bound-without-allocation"
    """The pod is on a node, and a claim of it is not allocated: no scheduler allocates claims of a bound pod."""
    NODE_MISSING = "node-missing"
    """The pod's node does not exist."""
    NODE_NOT_READY = "node-not-ready"
    """The kubelet of the pod's node does not report."""
    DRIVER_ABSENT = "driver-absent"
    """The driver's plugin does not run on the node, or is not registered with the kubelet."""
    DOUBLE_ALLOCATION = "double-allocation"
    """Two claims hold hardware that only one of them can have."""
    DEVICE_GONE = "device-gone"
    """An allocated device is no longer published."""
    DEVICE_TAINTED = "device-tainted"
    """An allocated device is tainted."""
    DEVICE_UNHEALTHY = "device-unhealthy"
    """The kubelet reports a device of a container as unhealthy: the message has the driver's words (KEP-4680)."""
    DEVICE_INJECTION_FAILED = "device-injection-failed"
    """The container runtime cannot give a container its devices: a CDI name, a device node or a hook of CDI fails."""
    CARD_UNAVAILABLE = "card-unavailable"
    """A plugin of Kerf withholds devices of a card of its node, or cannot find cards: an event of the Node says why."""
    PARAMETERS_REFUSED = "parameters-refused"
    """A field of a claim or its class does not fit, mostly of its configuration: the message has the field."""
    HARDWARE_HELD = "hardware-held"
    """Another program than the cluster's claims holds the hardware."""
    NOT_RESERVED = "not-reserved"
    """A claim is not reserved for the pod, so the kubelet does not start it."""
    CLAIM_NOT_VISIBLE = "claim-not-visible"
    """The API server does not let the node's kubelet read the claim yet."""
    KUBELET_ERROR = "kubelet-error"
    """The kubelet itself reports an error before or after it asks a driver: the next step says what ends it."""
    PREPARE_SLOW = "prepare-slow"
    """The driver has not answered within the kubelet's time limit."""
    PREPARE_FAILED = "prepare-failed"
    """The driver refuses to prepare a claim: the message has its reason."""
    PREPARING = "preparing"
    """No fault is found: the kubelet is preparing the devices, or has not begun."""
    CONTAINER_WAITING = "container-waiting"
    """The devices are prepared, and a container waits for something else."""
    CONTAINERS_STOPPING = "containers-stopping"
    """The pod's containers are being stopped."""
    UNPREPARE_PENDING = "unprepare-pending"
    """The containers have ended, and the kubelet waits for the driver to release the devices."""
    UNPREPARE_FAILED = "unprepare-failed"
    """The devices cannot be released: the message has the reason."""
    FINALIZER = "finalizer"
    """A finalizer keeps the object: its setter has to remove it."""
    CLAIM_IN_USE = "claim-in-use"
    """Pods use the claim that is being deleted."""
    CLAIM_FULL = "claim-full"
    """As many pods use the claim as its class allows (classic DRA)."""
    CLAIM_CONTRADICTION = "claim-contradiction"
    """The allocation of a claim cannot be read or names hardware that is not there (classic DRA)."""
    DEALLOCATION_REQUESTED = "deallocation-requested"
    """The claim's devices are being given back, before it is allocated again (classic DRA)."""
    PARAMETERS_MISSING = "parameters-missing"
    """The parameters that a claim or class refers to do not exist (classic DRA)."""
    CONTROLLER_SILENT = "controller-silent"
    """The controller of the claim's driver has not answered the scheduler (classic DRA)."""
    NO_SUITABLE_NODE = "no-suitable-node"
    """The driver's controller reports every potential node as unsuitable (classic DRA)."""
    ALLOCATION_PENDING = "allocation-pending"
    """A node is selected, and the driver's controller has not allocated the claim yet (classic DRA)."""


ReasonCode: TypeAlias = CauseCode | Obstacle
"""A code of the closed list that docs/diagnostics.md explains."""
CODES: Final[frozenset[str]] = frozenset((*CauseCode, *Obstacle))
"""All reason codes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """One reason why the subject waits, and what to do about it."""

    code: ReasonCode
    message: str
    next_step: str
    objects: tuple[str, ...] = ()
    """The objects that are concerned, as ``kind namespace/name`` or ``device driver/pool/device``."""
    is_fault: bool = True
    """Whether it stays until a person acts; else it passes by itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """The pod or claim that a report is about, or the object that has made the pods."""

    kind: str
    """``Pod`` or ``ResourceClaim``; of several pods their owner's, such as ``Deployment``, or ``Namespace``."""
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
    obstacle: ReasonCode
    """An Obstacle, or a CauseCode that is about a node."""
    message: str
    near_misses: tuple[NearMiss, ...] = ()
    taints: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockedCard:
    """Hardware of one card that other claims hold."""

    node: str
    """Empty for hardware that several nodes of the group can use."""
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
    causes: tuple[Cause, ...]
    """Why the subject waits, the most important first; at least one for each pod that waits or is being deleted."""
    scheduler_says: str
    """The message of the pod's condition PodScheduled; empty without one."""
    claims: tuple[ClaimState, ...]
    nodes: int
    """The number of nodes in the cluster."""
    fitting_nodes: tuple[str, ...]
    """The nodes that fit; if the pod cannot start on its own node, those that would take one in its place."""
    groups: tuple[NodeGroup, ...]
    """The nodes that do not fit, the largest group first."""
    remedies: tuple[Victims, ...]
    """The smallest set first."""
    remedies_searched: int
    """The number of nodes that were searched for ``remedies``."""
    warnings: tuple[str, ...] = ()
    """What the subject and its claims have that is legal and has no effect."""
    notes: tuple[str, ...] = ()
    """The sizes that the subject's claims get, or would get, and that are hardly meant; of one pod, which node is
    preferred for it, and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadReport:
    """The reports on the pods of an owner, such as a Deployment, or of a namespace."""

    subject: Subject
    message: str
    """How many of the pods wait, in one sentence."""
    pods: tuple[WhyReport, ...]
    """The reports, those on pods that wait first."""
