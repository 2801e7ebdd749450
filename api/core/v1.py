"""Core, coordination and apiextensions objects, with the few fields that Kerf reads or writes.

Decoding drops all other fields, so such an object must never be written back as a whole: changes are merge patches.
"""

import msgspec

from kerf_dra.api.model.base import JsonObject, Value
from kerf_dra.api.model.metadata import Condition, NodeSelector, Object
from kerf_dra.api.model.quantity import Quantity
from kerf_dra.api.wire import Kind, identity_kind


class ContainerClaim(Value):
    """An entry of ``resources.claims``: a claim of the pod, or one of its requests, for the container."""

    name: str
    request: str = ""


class ResourceRequirements(Value):
    """The resources that one container requests. ``limits`` may name an extended resource (KEP-5004)."""

    claims: tuple[ContainerClaim, ...] = ()
    limits: dict[str, Quantity] = {}
    requests: dict[str, Quantity] = {}


class EnvVar(Value):
    """An environment variable with a literal value; other sources are not read."""

    name: str
    value: str = ""


class Container(Value):
    """The fields of a container that DRA needs."""

    name: str
    image: str = ""
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    env: tuple[EnvVar, ...] = ()
    resources: ResourceRequirements = ResourceRequirements()
    restart_policy: str = ""
    """Always makes an init container a sidecar, which keeps running beside the containers (KEP-753)."""


class ClaimSource(Value):
    """The claim or template of a pod's entry, until Kubernetes 1.30."""

    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None


class PodResourceClaim(Value):
    """An entry of ``spec.resourceClaims``: the name of a claim, or of the template from which one is created."""

    name: str
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None
    source: ClaimSource | None = None
    """Replaces the two names, until Kubernetes 1.30."""

    @property
    def claim_name(self) -> str | None:
        """The claim that the pod names, in either form."""
        return self.resource_claim_name or (self.source.resource_claim_name if self.source else None)

    @property
    def template_name(self) -> str | None:
        """The template that the pod names, in either form."""
        return self.resource_claim_template_name or (self.source.resource_claim_template_name if self.source else None)


class NodeAffinity(Value):
    """Required node affinity; preferences do not exclude a node and are not read."""

    required_during_scheduling_ignored_during_execution: NodeSelector | None = None


class Affinity(Value):
    """A pod's affinity, of which only that to nodes is read."""

    node_affinity: NodeAffinity | None = None


class Toleration(Value):
    """A pod's toleration of node taints: ``operator`` Exists or Equal; an empty key or effect matches all."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


class PodSchedulingGate(Value):
    """A gate that excludes the pod from scheduling while it is present."""

    name: str


class PodSchedulingGroup(Value):
    """The PodGroup that the scheduler places the pod with (KEP-4671)."""

    pod_group_name: str = ""


class PodSpec(Value):
    """The fields of a pod with claims that scheduler and kubelet need."""

    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    resources: ResourceRequirements = ResourceRequirements()
    """The resources of the pod as a whole, in place of the sum of its containers (KEP-2837)."""
    overhead: dict[str, Quantity] = {}
    """What the pod's sandbox takes beside its containers, from its RuntimeClass."""
    resource_claims: tuple[PodResourceClaim, ...] = ()
    node_name: str = ""
    node_selector: dict[str, str] = {}
    affinity: Affinity | None = None
    tolerations: tuple[Toleration, ...] = ()
    scheduling_gates: tuple[PodSchedulingGate, ...] = ()
    scheduling_group: PodSchedulingGroup | None = None
    scheduler_name: str = ""
    restart_policy: str = "Always"
    termination_grace_period_seconds: int | None = None


class PodResourceClaimStatus(Value):
    """The claim that was created for an entry of ``spec.resourceClaims``; no name: no claim was needed."""

    name: str
    resource_claim_name: str | None = None


class ContainerExtendedResourceRequest(Value):
    """A container's extended resource, and the request for it in the pod's claim for extended resources."""

    container_name: str
    resource_name: str
    request_name: str


class PodExtendedResourceClaimStatus(Value):
    """The claim that was created for the pod's extended resources (KEP-5004)."""

    resource_claim_name: str
    request_mappings: tuple[ContainerExtendedResourceRequest, ...] = ()


class ContainerStateWaiting(Value):
    """Why a container has not started (again): ``reason`` is such as ``ContainerCreating`` or ``ImagePullBackOff``."""

    reason: str = ""
    message: str = ""


class ContainerStateTerminated(Value):
    """How a container ended: ``reason`` is such as ``Completed``, ``Error``, or ``StartError`` if it never began."""

    reason: str = ""
    message: str = ""


class ContainerState(Value):
    """The state of a container: at most one field is set, none stands for waiting."""

    waiting: ContainerStateWaiting | None = None
    running: JsonObject | None = None
    terminated: ContainerStateTerminated | None = None


class ResourceHealth(Value):
    """The health of one device as its driver reports it to the kubelet (KEP-4680)."""

    resource_id: str = msgspec.field(default="", name="resourceID")
    """The first CDI name of the device, else ``driver/pool/device``; of device plugins their own id."""
    health: str = ""
    """``Healthy``, ``Unhealthy``, or ``Unknown`` while no driver reports it."""
    message: str = ""


class ResourceStatus(Value):
    """The devices of one claim, or of one extended resource, that a container has."""

    name: str
    """``claim:NAME`` or ``claim:NAME/REQUEST`` with the name in ``spec.resourceClaims``, or the resource's name."""
    resources: tuple[ResourceHealth, ...] = ()


class ContainerStatus(Value):
    """The kubelet's report on one container."""

    name: str
    state: ContainerState = ContainerState()
    last_state: ContainerState = ContainerState()
    """How the container ended before it was started again."""
    allocated_resources_status: tuple[ResourceStatus, ...] = ()


class PodStatus(Value):
    """The phase of a pod (Pending, Running, Succeeded, Failed or Unknown), its conditions and its claims."""

    phase: str = "Pending"
    conditions: tuple[Condition, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()
    container_statuses: tuple[ContainerStatus, ...] = ()
    resource_claim_statuses: tuple[PodResourceClaimStatus, ...] = ()
    extended_resource_claim_status: PodExtendedResourceClaimStatus | None = None
    message: str = ""
    reason: str = ""


class Pod(Object):
    """A pod, reduced to what DRA needs."""

    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def is_finished(self) -> bool:
        return self.status.phase in {"Succeeded", "Failed"}

    def claim_names(self) -> dict[str, str]:
        """Return the ResourceClaim of each entry of ``spec.resourceClaims`` that has one by now."""
        made = {status.name: status.resource_claim_name for status in self.status.resource_claim_statuses}
        named = {claim.name: claim.claim_name or made.get(claim.name) for claim in self.spec.resource_claims}
        return {name: claim for name, claim in named.items() if claim}

    @property
    def all_claim_names(self) -> tuple[str, ...]:
        """The names of the pod's ResourceClaims that exist by now, that for extended resources last."""
        extended = self.extended_claim_name
        return (*self.claim_names().values(), *([extended] if extended else []))

    @property
    def extended_claim_name(self) -> str | None:
        """The claim for the pod's extended resources; None: the claim does not exist (yet)."""
        extended = self.status.extended_resource_claim_status
        return extended.resource_claim_name if extended else None


class Taint(Value):
    """A node's taint; ``effect``: NoSchedule, PreferNoSchedule, NoExecute."""

    key: str
    value: str = ""
    effect: str


class NodeSpec(Value):
    """The scheduling restrictions of a node."""

    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()


class NodeSystemInfo(Value):
    """The kubelet's report on its machine."""

    boot_id: str = msgspec.field(default="", name="bootID")
    kubelet_version: str = ""


class NodeStatus(Value):
    """A node's conditions and the kubelet's report."""

    conditions: tuple[Condition, ...] = ()
    node_info: NodeSystemInfo = NodeSystemInfo()
    allocatable: dict[str, Quantity] = {}
    """The amounts that pods can have, by resource; empty: the kubelet has not reported them."""
    declared_features: tuple[str, ...] = ()
    """The features that the kubelet supports (KEP-5328)."""


class Node(Object):
    """A node, reduced to what DRA needs."""

    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()

    @property
    def is_ready(self) -> bool:
        return any(condition.type == "Ready" and condition.status == "True" for condition in self.status.conditions)


class NodeSoftware(Value):
    """The versions of a node's programs, as its kubelet reports them."""

    kubelet_version: str = ""
    container_runtime_version: str = ""
    """Name and version, such as ``containerd://2.1.4``."""


class NodeSetupStatus(Value):
    """What a kubelet reports of its node's programs and of what device plugins have registered."""

    node_info: NodeSoftware = NodeSoftware()
    allocatable: dict[str, str] = {}
    """The amounts that pods can have, by resource; extended resources such as ``nvidia.com/gpu`` among them."""


class NodeSetup(Object):
    """A node as `kerf check` sees it: what caches of nodes do not keep."""

    status: NodeSetupStatus = NodeSetupStatus()


class Namespace(Object):
    """A namespace: its labels decide on admin access (KEP-5018)."""


class ObjectReference(Value):
    """A reference to an object, such as the one that an event is about."""

    api_version: str = ""
    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""
    resource_version: str = ""
    field_path: str = ""


def reference(pod: Pod) -> ObjectReference:
    """Return a reference to a pod, for events."""
    return ObjectReference(
        api_version="v1",
        kind="Pod",
        namespace=pod.metadata.namespace,
        name=pod.metadata.name,
        uid=pod.metadata.uid,
    )


class EventSource(Value):
    """The component that reports an event."""

    component: str = ""


class Event(Object):
    """A core/v1 event: ``type`` Normal or Warning, ``reason`` a CamelCase word, ``message`` for people (<= 1024)."""

    involved_object: ObjectReference
    reason: str = ""
    message: str = ""
    type: str = ""
    count: int = 0
    first_timestamp: str | None = None
    last_timestamp: str | None = None
    source: EventSource = EventSource()
    reporting_component: str = ""
    reporting_instance: str = ""


class LeaseSpec(Value):
    """The holder of a lease and its times, RFC 3339 with microseconds."""

    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class Lease(Object):
    """``coordination.k8s.io/v1`` Lease: leader election and node heartbeats."""

    spec: LeaseSpec = LeaseSpec()


class Binding(Object):
    """Assigns the pod of its own name to a node: created once, as the pod's subresource ``binding``."""

    target: ObjectReference


class CustomResourceDefinitionVersion(Value):
    """One version of a CRD's kind."""

    name: str
    served: bool = False


class CustomResourceDefinitionSpec(Value):
    """The versions of a CRD's kind."""

    versions: tuple[CustomResourceDefinitionVersion, ...] = ()


class CustomResourceDefinitionStatus(Value):
    """The conditions of a CRD; ``Established`` is True once objects of the kind can be created."""

    conditions: tuple[Condition, ...] = ()


class CustomResourceDefinition(Object):
    """``apiextensions.k8s.io/v1`` CustomResourceDefinition, reduced to its versions and its status."""

    spec: CustomResourceDefinitionSpec = CustomResourceDefinitionSpec()
    status: CustomResourceDefinitionStatus = CustomResourceDefinitionStatus()

    @property
    def is_established(self) -> bool:
        return any(
            condition.type == "Established" and condition.status == "True" for condition in self.status.conditions
        )


class ServiceSpec(Value):
    """The address of a service."""

    cluster_ip: str = msgspec.field(default="", name="clusterIP")
    """The virtual address; empty: it is not assigned yet, ``None``: the service has none."""


class Service(Object):
    """A service, reduced to its address."""

    spec: ServiceSpec = ServiceSpec()


class Secret(Object):
    """A secret."""

    data: dict[str, str] = {}
    """The values in base64, by key."""


PODS: Kind[Pod] = identity_kind(Pod, group="", version="v1", plural="pods", namespaced=True)
BINDINGS: Kind[Binding] = identity_kind(Binding, group="", version="v1", plural="pods", namespaced=True)
SERVICES: Kind[Service] = identity_kind(Service, group="", version="v1", plural="services", namespaced=True)
SECRETS: Kind[Secret] = identity_kind(Secret, group="", version="v1", plural="secrets", namespaced=True)
NODES: Kind[Node] = identity_kind(Node, group="", version="v1", plural="nodes", namespaced=False)
NODE_SETUPS: Kind[NodeSetup] = identity_kind(
    NodeSetup, group="", version="v1", plural="nodes", namespaced=False, kind="Node"
)
NAMESPACES: Kind[Namespace] = identity_kind(Namespace, group="", version="v1", plural="namespaces", namespaced=False)
EVENTS: Kind[Event] = identity_kind(Event, group="", version="v1", plural="events", namespaced=True)
CUSTOM_RESOURCE_DEFINITIONS: Kind[CustomResourceDefinition] = identity_kind(
    CustomResourceDefinition,
    group="apiextensions.k8s.io",
    version="v1",
    plural="customresourcedefinitions",
    namespaced=False,
)
LEASES: Kind[Lease] = identity_kind(Lease, group="coordination.k8s.io", version="v1", plural="leases", namespaced=True)
