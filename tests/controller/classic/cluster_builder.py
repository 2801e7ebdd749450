"""A cluster as one controller sees it, built in a line each: for tests of pure decisions."""

from typing import Any

from kerf_dra.api.core.v1 import Node, Pod, PodResourceClaim, PodResourceClaimStatus, PodSpec, PodStatus
from kerf_dra.api.kerf.classic_parameters import CLAIM_PARAMETERS, CLASS_PARAMETERS, ParametersObject
from kerf_dra.api.kerf.node_inventory import NodeInventory, inventory_name
from kerf_dra.api.model.allocations import ResourceClaimConsumerReference
from kerf_dra.api.model.base import JsonObject
from kerf_dra.api.model.classic import (
    ClassicAllocation,
    ClassicClaim,
    ClassicClaimSpec,
    ClassicClaimStatus,
    ClassicClass,
    ClassicRequest,
    ParametersReference,
    PodSchedulingContext,
    PodSchedulingContextSpec,
    PodSchedulingContextStatus,
    UnsuitableNodes,
)
from kerf_dra.api.model.metadata import ObjectMeta, OwnerReference
from kerf_dra.api.model.names import ObjectRef
from kerf_dra.driver.controller.classic.state import ClusterView, InformerStores
from kerf_dra.driver.families.fpga import FPGA
from kerf_dra.driver.families.gpu import GPU
from kerf_dra.driver.kube.store import ObjectChange, Store
from tests.controller.classic.hardware import DRIVER, gpu, inventories, node_object

FINALIZER = "kerf.dev/deletion-protection"


class Clock:
    """Monotonic seconds, moved by hand."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class ClusterBuilder:
    """One controller's caches, and shorthands to fill them."""

    def __init__(self, **settings: Any) -> None:
        kinds = (*CLASS_PARAMETERS, *CLAIM_PARAMETERS)
        self.stores = InformerStores(parameters={kind.kind: Store() for kind in kinds})
        self.clock = Clock()
        self.claims_version = 0
        """The resource version up to which the claims' store has all changes."""
        settings = {"claims_version": lambda: self.claims_version} | settings
        self.view = ClusterView(self.stores, monotonic=self.clock, **settings)

    def node(self, name: str, *cards: Any, labels: dict[str, str] | None = None, **more: Any) -> None:
        self.put_node(node_object(name, labels))
        for each in inventories(name, *(cards or (gpu(name, 0),)), **more):
            self.put_inventory(each)

    def put_node(self, node: Node) -> None:
        self.stores.nodes.put(node)

    def put_inventory(self, value: NodeInventory) -> None:
        old = self.stores.inventories.get(value.ref)
        self.stores.inventories.put(value)
        self.view.on_inventory(ObjectChange(value.ref, old, value))

    def remove_inventory(self, node: str, driver: str = DRIVER) -> None:
        ref = ObjectRef("", inventory_name(node, driver))
        old = self.stores.inventories.get(ref)
        self.stores.inventories.remove(ref)
        self.view.on_inventory(ObjectChange(ref, old, None))

    def resource_class(self, name: str = "gpu", spec: JsonObject | None = None, **more: Any) -> ClassicClass:
        """A class of ours with class parameters ``spec``; None: without parameters."""
        reference = None
        kind = more.pop("kind", "GpuClassParameters")
        if spec is not None:
            self.parameters(kind, name, spec)
            reference = ParametersReference(api_group="kerf.dev", kind=kind, name=name)
        driver = GPU.driver if kind.startswith("Gpu") else FPGA.driver
        fields = {"driver_name": driver, "parameters_ref": reference} | more
        class_ = ClassicClass(metadata=ObjectMeta(name=name, uid=f"class-{name}"), **fields)
        self.stores.classes.put(class_)
        return class_

    def parameters(self, kind: str, name: str, spec: JsonObject, namespace: str = "") -> None:
        metadata = ObjectMeta(name=name, namespace=namespace)
        self.stores.parameters[kind].put(ParametersObject(metadata=metadata, spec=spec))

    def claim_parameters(self, name: str, spec: JsonObject, kind: str = "GpuClaimParameters") -> None:
        self.parameters(kind, name, spec, "ns")

    def claim(self, name: str = "claim", **fields: Any) -> ClassicClaim:
        value = claim(name, **fields)
        self.put_claim(value)
        return value

    def put_claim(self, value: ClassicClaim) -> None:
        """Show a claim as the informer does: one that replaces another of its name ends that one first."""
        old = self.stores.claims.get(value.ref)
        if old is not None and old.metadata.uid != value.metadata.uid:
            self.remove_claim(value.ref)
            old = None
        self.stores.claims.put(value)
        self.view.on_claim(ObjectChange(value.ref, old, value))

    def remove_claim(self, ref: ObjectRef) -> None:
        old = self.stores.claims.get(ref)
        if old is not None:
            self.stores.claims.remove(ref)
            self.view.on_claim(ObjectChange(ref, old, None))

    def context(self, name: str = "pod", **fields: Any) -> PodSchedulingContext:
        value = context(name, **fields)
        self.stores.contexts.put(value)
        return value


def claim(
    name: str = "claim",
    *,
    class_name: str = "gpu",
    parameters: str | None = None,
    parameters_kind: str = "GpuClaimParameters",
    immediate: bool = False,
    owner: Pod | None = None,
    finalizers: tuple[str, ...] = (),
    deleted: bool = False,
    version: str = "1",
    allocation: ClassicAllocation | None = None,
    driver: str = DRIVER,
    reserved_for: tuple[ResourceClaimConsumerReference, ...] = (),
    deallocate: bool = False,
) -> ClassicClaim:
    reference = None
    if parameters is not None:
        reference = ParametersReference(api_group="kerf.dev", kind=parameters_kind, name=parameters)
    owners = (owner_of(owner),) if owner else ()
    return ClassicClaim(
        metadata=ObjectMeta(
            name=name,
            namespace="ns",
            uid=f"claim-{name}",
            resource_version=version,
            finalizers=finalizers,
            deletion_timestamp="2024-05-01T00:00:00Z" if deleted else None,
            owner_references=owners,
        ),
        spec=ClassicClaimSpec(
            requests=(ClassicRequest(class_name=class_name, parameters_ref=reference),), immediate=immediate
        ),
        status=ClassicClaimStatus(
            driver_name=driver if allocation else "",
            allocation=allocation,
            reserved_for=reserved_for,
            deallocation_requested=deallocate,
        ),
    )


def owner_of(pod: Pod) -> OwnerReference:
    return OwnerReference(api_version="v1", kind="Pod", name=pod.metadata.name, uid=pod.metadata.uid, controller=True)


def pod(
    name: str = "pod",
    *,
    claims: dict[str, str | None] | None = None,
    deleted: bool = False,
    uid: str | None = None,
    phase: str = "Pending",
) -> Pod:
    """``claims``: entry to the claim's name, by reference."""
    named = claims if claims is not None else {"gpu": "claim"}
    return Pod(
        metadata=ObjectMeta(
            name=name,
            namespace="ns",
            uid=uid or f"pod-{name}",
            deletion_timestamp="2024-05-01T00:00:00Z" if deleted else None,
        ),
        spec=PodSpec(
            resource_claims=tuple(
                PodResourceClaim(name=entry, resource_claim_name=claim_name) for entry, claim_name in named.items()
            )
        ),
        status=PodStatus(phase=phase),
    )


def pod_of_template(
    name: str = "pod", *, made: dict[str, str | None] | None = None, entries: tuple[str, ...] = ("gpu",)
) -> Pod:
    """``made``: what the pod's status says of its entries' claims."""
    return Pod(
        metadata=ObjectMeta(name=name, namespace="ns", uid=f"pod-{name}"),
        spec=PodSpec(
            resource_claims=tuple(PodResourceClaim(name=entry, resource_claim_template_name="t") for entry in entries)
        ),
        status=PodStatus(
            resource_claim_statuses=tuple(
                PodResourceClaimStatus(name=entry, resource_claim_name=claim_name)
                for entry, claim_name in (made or {}).items()
            )
        ),
    )


def context(
    name: str = "pod",
    *,
    selected: str = "",
    potential: tuple[str, ...] = (),
    reported: dict[str, tuple[str, ...]] | None = None,
    owner_uid: str | None = None,
    deleted: bool = False,
) -> PodSchedulingContext:
    owner = OwnerReference(api_version="v1", kind="Pod", name=name, uid=owner_uid or f"pod-{name}", controller=True)
    entries = tuple(UnsuitableNodes(name=entry, unsuitable_nodes=nodes) for entry, nodes in (reported or {}).items())
    return PodSchedulingContext(
        metadata=ObjectMeta(
            name=name,
            namespace="ns",
            uid=f"context-{name}",
            resource_version="1",
            owner_references=(owner,),
            deletion_timestamp="2024-05-01T00:00:00Z" if deleted else None,
        ),
        spec=PodSchedulingContextSpec(selected_node=selected, potential_nodes=potential),
        status=PodSchedulingContextStatus(resource_claims=entries),
    )


def consumer(uid: str = "pod-pod") -> ResourceClaimConsumerReference:
    return ResourceClaimConsumerReference(resource="pods", name="pod", uid=uid)
