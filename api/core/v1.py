"""The few fields of core, coordination and events objects that Kerf reads or writes.

Reading loses every other field: never write one of these back whole. Pods, Nodes and Namespaces are only read; status
changes go as merge patches of exactly what changed.
"""

import msgspec

from api.model.base import Value
from api.model.metadata import Condition, NodeSelector, Object
from api.model.quantity import Quantity
from api.wire import Kind, identity_kind


class ContainerClaim(Value):
    """``resources.claims[]``: a claim of the pod, or one request of it, that the container gets."""

    name: str
    request: str = ""


class ResourceRequirements(Value):
    """What one container asks for. ``limits`` may name an extended resource (KEP-5004)."""

    claims: tuple[ContainerClaim, ...] = ()
    limits: dict[str, Quantity] = {}
    requests: dict[str, Quantity] = {}


class EnvVar(Value):
    """One variable with a literal value; other sources are not read."""

    name: str
    value: str = ""


class Container(Value):
    """What DRA needs of a container."""

    name: str
    image: str = ""
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    env: tuple[EnvVar, ...] = ()
    resources: ResourceRequirements = ResourceRequirements()


class ClaimSource(Value):
    """Until Kubernetes 1.30 a pod's entry names its claim or template in here."""

    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None


class PodResourceClaim(Value):
    """``spec.resourceClaims[]``: a claim by name, or a template from which one is made."""

    name: str
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None
    source: ClaimSource | None = None
    """Instead of the two names, until Kubernetes 1.30."""

    @property
    def claim_name(self) -> str | None:
        """The claim that the pod's author named, however the version spells it."""
        return self.resource_claim_name or (self.source.resource_claim_name if self.source else None)

    @property
    def template_name(self) -> str | None:
        """The template that the pod's author named, however the version spells it."""
        return self.resource_claim_template_name or (self.source.resource_claim_template_name if self.source else None)


class NodeAffinity(Value):
    """Only the required part: preferences do not exclude a node."""

    required_during_scheduling_ignored_during_execution: NodeSelector | None = None


class Affinity(Value):
    """Only node affinity is read."""

    node_affinity: NodeAffinity | None = None


class Toleration(Value):
    """A pod's toleration of node taints: ``operator`` Exists or Equal; empty key or effect: every."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


class PodSchedulingGate(Value):
    """Holds a pod back from scheduling while present."""

    name: str


class PodSpec(Value):
    """What the scheduler and the kubelet need to know of a pod with claims."""

    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    resource_claims: tuple[PodResourceClaim, ...] = ()
    node_name: str = ""
    node_selector: dict[str, str] = {}
    affinity: Affinity | None = None
    tolerations: tuple[Toleration, ...] = ()
    scheduling_gates: tuple[PodSchedulingGate, ...] = ()
    scheduler_name: str = ""
    restart_policy: str = "Always"
    termination_grace_period_seconds: int | None = None


class PodResourceClaimStatus(Value):
    """Which claim was made for an entry of ``spec.resourceClaims``; no name: none was needed."""

    name: str
    resource_claim_name: str | None = None


class ContainerExtendedResourceRequest(Value):
    """Which request of the pod's claim for extended resources a container gets, and for which resource."""

    container_name: str
    resource_name: str
    request_name: str


class PodExtendedResourceClaimStatus(Value):
    """The claim that was made for the pod's extended resources (KEP-5004)."""

    resource_claim_name: str
    request_mappings: tuple[ContainerExtendedResourceRequest, ...] = ()


class PodStatus(Value):
    """``phase``: Pending, Running, Succeeded, Failed, Unknown."""

    phase: str = "Pending"
    conditions: tuple[Condition, ...] = ()
    resource_claim_statuses: tuple[PodResourceClaimStatus, ...] = ()
    extended_resource_claim_status: PodExtendedResourceClaimStatus | None = None
    message: str = ""
    reason: str = ""


class Pod(Object):
    """A pod, as far as DRA goes."""

    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def is_finished(self) -> bool:
        return self.status.phase in {"Succeeded", "Failed"}

    def claim_names(self) -> dict[str, str]:
        """Pod claim name to ResourceClaim name, for every claim that exists by now."""
        made = {status.name: status.resource_claim_name for status in self.status.resource_claim_statuses}
        named = {claim.name: claim.claim_name or made.get(claim.name) for claim in self.spec.resource_claims}
        return {name: claim for name, claim in named.items() if claim}

    @property
    def all_claim_names(self) -> tuple[str, ...]:
        """The ResourceClaims that exist by now, that for extended resources last."""
        extended = self.extended_claim_name
        return (*self.claim_names().values(), *([extended] if extended else []))

    @property
    def extended_claim_name(self) -> str | None:
        """The claim for the pod's extended resources; None: there is none (yet)."""
        extended = self.status.extended_resource_claim_status
        return extended.resource_claim_name if extended else None


class Taint(Value):
    """A node's taint; ``effect``: NoSchedule, PreferNoSchedule, NoExecute."""

    key: str
    value: str = ""
    effect: str


class NodeSpec(Value):
    """What decides whether a pod may go to a node, beside its labels."""

    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()


class NodeSystemInfo(Value):
    """What the kubelet reports of its machine."""

    boot_id: str = msgspec.field(default="", name="bootID")
    kubelet_version: str = ""


class NodeStatus(Value):
    """Readiness and the kubelet's facts."""

    conditions: tuple[Condition, ...] = ()
    node_info: NodeSystemInfo = NodeSystemInfo()
    declared_features: tuple[str, ...] = ()
    """What the kubelet says it supports (KEP-5328)."""


class Node(Object):
    """A node, as far as DRA goes."""

    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()

    @property
    def is_ready(self) -> bool:
        return any(condition.type == "Ready" and condition.status == "True" for condition in self.status.conditions)


class Namespace(Object):
    """A namespace: its labels decide on admin access (KEP-5018)."""


class ObjectReference(Value):
    """What an event is about."""

    api_version: str = ""
    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""
    resource_version: str = ""
    field_path: str = ""


def reference(pod: Pod) -> ObjectReference:
    """The pod as what an event is about."""
    return ObjectReference(
        api_version="v1",
        kind="Pod",
        namespace=pod.metadata.namespace,
        name=pod.metadata.name,
        uid=pod.metadata.uid,
    )


class EventSource(Value):
    """Which component made an event."""

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
    """Who holds a lease; times are RFC 3339 with microseconds."""

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


class CustomResourceDefinitionStatus(Value):
    """``Established`` is true once objects of the kind can be made."""

    conditions: tuple[Condition, ...] = ()


class CustomResourceDefinition(Object):
    """``apiextensions.k8s.io/v1``: whether a kind of ours is there."""

    status: CustomResourceDefinitionStatus = CustomResourceDefinitionStatus()

    @property
    def is_established(self) -> bool:
        return any(
            condition.type == "Established" and condition.status == "True" for condition in self.status.conditions
        )


PODS: Kind[Pod] = identity_kind(Pod, group="", version="v1", plural="pods", namespaced=True)
BINDINGS: Kind[Binding] = identity_kind(Binding, group="", version="v1", plural="pods", namespaced=True)
NODES: Kind[Node] = identity_kind(Node, group="", version="v1", plural="nodes", namespaced=False)
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
