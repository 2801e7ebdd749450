"""Claims that a driver's own controller allocates (KEP-3063, Kubernetes 1.27 to 1.31), whatever the version.

A claim asks by class and parameters, the scheduler and the controller agree on a node through a PodSchedulingContext,
and the controller writes the allocation. What the versions spell differently converts once, in ``api.resource``.
"""

from typing import Final

from api.model.allocations import DeviceAllocationResult, ResourceClaimConsumerReference
from api.model.base import JsonObject, Value
from api.model.metadata import NodeSelector, Object, ObjectMeta

MAX_NODES: Final = 128
"""Longest ``potentialNodes`` and ``unsuitableNodes`` (``PodSchedulingNodeListMaxSize``)."""
MAX_CONSUMERS: Final = 32
"""Longest ``reservedFor`` of a claim (``ResourceClaimReservedForMaxSize``)."""
MAX_HANDLE_BYTES: Final = 16 * 1024
"""Longest ``resourceHandles[].data`` (``ResourceHandleDataMaxSize``)."""


class ParametersReference(Value):
    """Where the parameters of a class or claim are: an object of ``api_group`` and ``kind``.

    ``namespace`` is for classes; a claim's parameters are in the claim's own. Some name ``group/version``.
    """

    api_group: str = ""
    kind: str
    name: str
    namespace: str = ""


class ClassicRequest(Value):
    """What a claim asks of one class. Until 1.30 a claim has exactly one, without a name."""

    name: str = ""
    class_name: str
    parameters_ref: ParametersReference | None = None
    parameters: tuple[JsonObject, ...] = ()
    """Opaque parameters for the controller's driver, from 1.31; the last one counts."""
    count: int = 1
    unsupported: tuple[str, ...] = ()
    """Fields that only a scheduler which allocates by itself could heed."""


class ClassicClaimSpec(Value):
    """What is asked for. Immutable once created."""

    requests: tuple[ClassicRequest, ...]
    controller: str | None = None
    """The driver that has to allocate, from 1.31; None until 1.30, where the class says it, and for the scheduler's."""
    immediate: bool = False
    """Allocate at once instead of waiting for a pod; until 1.30."""


class ClassicAllocation(Value):
    """What the claim got."""

    devices: DeviceAllocationResult = DeviceAllocationResult()
    """From all handles that are written by Kerf."""
    node_selector: NodeSelector | None = None
    """Where it can be used; None: on every node."""
    max_pods: int = 1
    """How many pods may use it at a time."""
    drivers: tuple[str, ...] = ()
    """Whose node plugins the kubelet calls."""
    unreadable: dict[str, str] = {}
    """By driver: why its handle is none that Kerf can read. Another driver's never is."""

    @property
    def shareable(self) -> bool:
        """All that the API itself knows of ``max_pods``, until 1.30."""
        return self.max_pods > 1


class ClassicClaimStatus(Value):
    """What the claim got and who uses it. An allocation is never changed, only cleared."""

    driver_name: str = ""
    """Who allocated it; empty while it is not allocated."""
    allocation: ClassicAllocation | None = None
    reserved_for: tuple[ResourceClaimConsumerReference, ...] = ()
    deallocation_requested: bool = False
    """The scheduler, or the end of the last pod, wants the devices back."""


class ClassicClaim(Object):
    """A ResourceClaim, as far as a controller that allocates is concerned."""

    spec: ClassicClaimSpec
    status: ClassicClaimStatus = ClassicClaimStatus()

    @property
    def is_full(self) -> bool:
        """Whether no further pod may use what it got."""
        allocation = self.status.allocation
        return allocation is not None and len(self.status.reserved_for) >= allocation.max_pods


class ClassicTemplateSpec(Value):
    """``metadata`` carries labels and annotations for the claims made from the template."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ClassicClaimSpec


class ClassicTemplate(Object):
    """A ResourceClaimTemplate."""

    spec: ClassicTemplateSpec


class ClassicClass(Object):
    """A ResourceClass; from 1.31 a DeviceClass, as such a controller sees it (cluster-scoped)."""

    driver_name: str = ""
    """Whose class it is; empty from 1.31, where the claim says it."""
    parameters_ref: ParametersReference | None = None
    parameters: dict[str, JsonObject] = {}
    """By driver, from 1.31: the last opaque parameters for it."""
    suitable_nodes: NodeSelector | None = None
    """Nodes that the scheduler considers at all."""
    structured: bool = False
    """The scheduler allocates claims of this class by itself (1.30)."""


class PodSchedulingContextSpec(Value):
    """The scheduler's side: with a selected node the drivers have to allocate, without one it only asks."""

    selected_node: str = ""
    potential_nodes: tuple[str, ...] = ()


class UnsuitableNodes(Value):
    """Nodes that cannot be had for one entry of the pod's ``resourceClaims``."""

    name: str
    unsuitable_nodes: tuple[str, ...] = ()


class PodSchedulingContextStatus(Value):
    """The drivers' side: each has the entries of its own claims."""

    resource_claims: tuple[UnsuitableNodes, ...] = ()


class PodSchedulingContext(Object):
    """Where scheduler and drivers look for a node together, for the pod of the same name."""

    spec: PodSchedulingContextSpec = PodSchedulingContextSpec()
    status: PodSchedulingContextStatus = PodSchedulingContextStatus()
