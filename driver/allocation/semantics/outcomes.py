"""The allocator's parameters and outcomes.

Expected outcomes are values, one class each. A caller with several nodes takes the first ``Fits``; ``Failed("fatal")``
ends the whole attempt, as a CEL run-time error does in kube-scheduler; every other outcome is about this node only.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from math import inf
from typing import Literal, TypeAlias

from kerf_dra.api.model.allocations import AllocationResult


@dataclass(frozen=True, slots=True, kw_only=True)
class Features:
    """The enabled optional features of structured DRA; the defaults are those of Kubernetes 1.37.

    The names are those of ``k8s.io/dynamic-resource-allocation/structured`` (``Features``), each a feature gate.
    """

    admin_access: bool = True
    prioritized_list: bool = True
    partitionable_devices: bool = True
    device_taints: bool = True
    device_binding_and_status: bool = True
    consumable_capacity: bool = True
    fractional_capacity_range: bool = True
    list_type_attributes: bool = False
    derived_attributes: bool = False
    compatibility_groups: bool = False
    optional_node_operations: bool = False


@dataclass(frozen=True, slots=True)
class NodeView:
    """The properties of a node on which allocation depends."""

    name: str
    labels: Mapping[str, str]
    declared_features: frozenset[str] = frozenset()
    """``status.declaredFeatures``: the features that its kubelet declares (KEP-5328)."""


@dataclass(frozen=True, slots=True)
class Budget:
    """The limits of the search on one node, after which it ends as ``Undecided``; the first one reached counts.

    A step is one attempt to assign a device. Steps alone make the outcome reproducible; seconds bound the wait,
    whatever a step costs, and count only by the given ``clock``, because this package reads none.
    """

    steps: int = 100_000
    """A few seconds of work, below the ten that kube-scheduler gives a node (gate DRASchedulerFilterTimeout); the
    claims of real pods need some dozens."""
    seconds: float = inf
    clock: Callable[[], float] = lambda: 0.0
    """A monotonic clock, in seconds; by the default no time passes."""


class Obstacle(StrEnum):
    """The kind of reason why a request could not be served, in the order in which the reasons are checked."""

    NO_POOL = "no-pool"
    POOL_INCOMPLETE = "pool-incomplete"
    POOL_INVALID = "pool-invalid"
    CLASS = "class"
    SELECTOR = "selector"
    NODE = "node"
    CAPACITY = "capacity"
    TAINTED = "tainted"
    IN_USE = "in-use"
    COUNTERS = "counters"
    CONSTRAINT = "constraint"
    TOO_FEW = "too-few"
    COMBINATION = "combination"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """The first obstacle of one request on one node.

    ``claim`` is ``namespace/name``, ``request`` the name in the claim (``request/subrequest`` for an alternative),
    ``message`` a text without claim and request, and without a full stop.
    """

    claim: str
    request: str
    obstacle: Obstacle
    message: str

    def __str__(self) -> str:
        return f"claim {self.claim}, request {self.request}: {self.message}"


@dataclass(frozen=True, slots=True)
class Fits:
    """One allocation result for each claim, in the order of the claims."""

    results: tuple[AllocationResult, ...]


@dataclass(frozen=True, slots=True)
class DoesNotFit:
    """No combination of devices serves all claims on this node; a later change of the cluster may help."""

    reasons: tuple[Reason, ...]


@dataclass(frozen=True, slots=True)
class Failed:
    """Nothing can be decided: on this node (``node``), or on any until some object is changed (``fatal``)."""

    kind: Literal["node", "fatal"]
    message: str


@dataclass(frozen=True, slots=True)
class Undecided:
    """The search ended with neither a solution nor a proof that there is no solution."""

    limit: Literal["steps", "seconds"]
    """The limit of the budget that was reached."""
    amount: float
    """The value of that limit, in steps or seconds."""

    def __str__(self) -> str:
        return f"no decision within {self.amount:,g} {self.limit}"


Outcome: TypeAlias = Fits | DoesNotFit | Failed | Undecided
