"""Classic DRA: claims that a driver's own controller allocates (KEP-3063, Kubernetes 1.27 to 1.31), in any version.

A claim names a class and parameters, the scheduler and the controller negotiate a node in a PodSchedulingContext, and
the controller writes the allocation. ``kerf_dra.api.resource`` converts what differs between versions.
"""

from typing import Final

from kerf_dra.api.model.allocations import DeviceAllocationResult, ResourceClaimConsumerReference
from kerf_dra.api.model.base import JsonObject, Value
from kerf_dra.api.model.metadata import NodeSelector, Object, ObjectMeta

MAX_NODES: Final = 128
"""The most ``potentialNodes`` and ``unsuitableNodes`` (``PodSchedulingNodeListMaxSize``)."""
MAX_CONSUMERS: Final = 32
"""The most entries in ``reservedFor`` of a claim (``ResourceClaimReservedForMaxSize``)."""
MAX_HANDLE_BYTES: Final = 16 * 1024
"""The most bytes of ``resourceHandles[].data`` (``ResourceHandleDataMaxSize``)."""

ONLY_REQUEST: Final = "claim"
"""The name of a claim's one request, in its allocation, where the API has no request names (until Kubernetes 1.30)."""


class ParametersReference(Value):
    """A reference to the object with the parameters of a class or claim.

    ``namespace`` is for classes; a claim's parameters are in its own namespace. Some authors write ``group/version`` in
    ``api_group``.
    """

    api_group: str = ""
    kind: str
    name: str
    namespace: str = ""


class ClassicRequest(Value):
    """A request for devices of one class. Until 1.30 a claim has exactly one, without a name."""

    name: str = ""
    class_name: str
    parameters_ref: ParametersReference | None = None
    parameters: tuple[JsonObject, ...] = ()
    """Opaque parameters for the controller's driver, from 1.31 on; the last ones apply."""
    count: int = 1
    unsupported: tuple[str, ...] = ()
    """The names of set fields that only the scheduler's own allocator supports."""


class ClassicClaimSpec(Value):
    """The specification of a claim, immutable once created."""

    requests: tuple[ClassicRequest, ...]
    controller: str | None = None
    """The driver that must allocate, from 1.31 on; None: the class names it (to 1.30), or the scheduler allocates."""
    immediate: bool = False
    """Whether to allocate at once instead of for the first pod; until 1.30."""


class ClassicAllocation(Value):
    """The allocation of a claim."""

    devices: DeviceAllocationResult = DeviceAllocationResult()
    """The devices of all handles that Kerf has written."""
    node_selector: NodeSelector | None = None
    """The nodes where the claim can be used; None: all."""
    max_pods: int = 1
    """The number of pods that may use the claim at a time."""
    drivers: tuple[str, ...] = ()
    """The drivers whose node plugins the kubelet calls."""
    unreadable: dict[str, str] = {}
    """The reason why each driver's handle cannot be read; handles of other drivers never can."""

    @property
    def shareable(self) -> bool:
        """Whether several pods may use the claim: until 1.30 the only form of ``max_pods`` in the API."""
        return self.max_pods > 1


class ClassicClaimStatus(Value):
    """A claim's allocation and consumers. An allocation is never changed, only cleared."""

    driver_name: str = ""
    """The driver that allocated the claim; empty while it is not allocated."""
    allocation: ClassicAllocation | None = None
    reserved_for: tuple[ResourceClaimConsumerReference, ...] = ()
    deallocation_requested: bool = False
    """Whether the scheduler, or the end of the last pod, requests deallocation."""


class ClassicClaim(Object):
    """A ResourceClaim as seen by a controller that allocates."""

    spec: ClassicClaimSpec
    status: ClassicClaimStatus = ClassicClaimStatus()

    @property
    def is_full(self) -> bool:
        """Whether no further pod may use the claim."""
        allocation = self.status.allocation
        return allocation is not None and len(self.status.reserved_for) >= allocation.max_pods


class ClassicTemplateSpec(Value):
    """A claim's spec, with ``metadata`` of labels and annotations for the claims made from the template."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ClassicClaimSpec


class ClassicTemplate(Object):
    """A ResourceClaimTemplate."""

    spec: ClassicTemplateSpec


class ClassicClass(Object):
    """A ResourceClass, from 1.31 on a DeviceClass, as seen by a controller that allocates (cluster-scoped)."""

    driver_name: str = ""
    """The driver of the class; empty from 1.31 on, where the claim names it."""
    parameters_ref: ParametersReference | None = None
    parameters: dict[str, JsonObject] = {}
    """The last opaque parameters for each driver, from 1.31 on."""
    suitable_nodes: NodeSelector | None = None
    """The nodes that the scheduler considers; None: all."""
    structured: bool = False
    """Whether the scheduler allocates claims of this class by itself (1.30)."""


class PodSchedulingContextSpec(Value):
    """The scheduler's request: drivers allocate on the selected node, and report which potential ones do not suit."""

    selected_node: str = ""
    potential_nodes: tuple[str, ...] = ()


class UnsuitableNodes(Value):
    """The nodes on which one entry of the pod's ``resourceClaims`` cannot be allocated."""

    name: str
    unsuitable_nodes: tuple[str, ...] = ()


class PodSchedulingContextStatus(Value):
    """The drivers' answer: each driver writes the entries of its own claims."""

    resource_claims: tuple[UnsuitableNodes, ...] = ()


class PodSchedulingContext(Object):
    """The negotiation of a node between scheduler and drivers, for the pod of the same name."""

    spec: PodSchedulingContextSpec = PodSchedulingContextSpec()
    status: PodSchedulingContextStatus = PodSchedulingContextStatus()
