"""A snapshot of the objects of a cluster that diagnostics need: the content of a dump."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from kerf_dra.api.core.v1 import Event, Node, Pod
from kerf_dra.api.kerf.classic_parameters import ParametersObject
from kerf_dra.api.kerf.discovery_objects import DeviceUser
from kerf_dra.api.kerf.node_inventory import NodeInventory
from kerf_dra.api.kerf.v1alpha1 import ResourceClassObject
from kerf_dra.api.model.base import Value
from kerf_dra.api.model.claims import DeviceClass, ResourceClaim, ResourceClaimTemplate
from kerf_dra.api.model.classic import ClassicClaim, ClassicClass, ClassicTemplate, PodSchedulingContext
from kerf_dra.api.model.devices import DeviceTaintRule, ResourceSlice
from kerf_dra.api.model.quantity import Quantity
from kerf_dra.driver.allocation.pools.interned_slices import CompactSlice

NODE_REASONS: Final = frozenset(
    {
        "InUseOutsideKerf",
        "CardInQuarantine",
        "CardModeUnavailable",
        "CardsNotDiscovered",
        "PartitionGone",
        "SharesNotPublished",
        "CardFree",
        "CardsDiscovered",
    }
)
"""The reasons of events about nodes that a snapshot keeps: why plugins of Kerf withhold devices, and that they end."""


class ClassicState(Value):
    """The objects of a cluster where a driver's own controller allocates (KEP-3063, Kubernetes 1.27 to 1.31)."""

    claims: tuple[ClassicClaim, ...] = ()
    templates: tuple[ClassicTemplate, ...] = ()
    classes: tuple[ClassicClass, ...] = ()
    """ResourceClasses, from 1.31 on DeviceClasses."""
    contexts: tuple[PodSchedulingContext, ...] = ()
    inventories: tuple[NodeInventory, ...] = ()
    """What Kerf's plugins report of their nodes; other drivers report nothing."""
    parameters: dict[str, tuple[ParametersObject, ...]] = {}
    """The parameters of Kerf's classes and claims, by kind."""


class OfferedResource(Value):
    """An extended resource that a ResourceClass offers by the kubelet's device plugin interface (``devicePlugin``)."""

    name: str
    class_name: str
    per_node: int
    """How many placements each node of the class is to keep for it."""
    refusal: str = ""
    """Why no node offers it, as Kerf's controller says; empty: nodes may."""
    allocatable: dict[str, int] = {}
    """How many the kubelet of each node lists, by node."""


class DiscoveryConfigurationState(Value):
    """A DiscoveryConfiguration, without what it looks for and what containers get."""

    name: str
    class_name: str
    """The DeviceClass for any of its devices, on Kubernetes 1.32 and later."""
    is_valid: bool = True
    resource: str = ""
    """The extended resource for any of its devices; empty: it has none."""
    must_differ: bool = True
    """Whether a container that gets several devices by this resource must have them all different."""
    allocatable: dict[str, int] = {}
    """How many of the resource the kubelet of each node lists, by node."""


class DiscoveredDeviceState(Value):
    """A DiscoveredDevice, without what it is and what containers get."""

    name: str
    class_name: str
    """The DeviceClass for this device, on Kubernetes 1.32 and later."""
    configuration: str
    """The DiscoveryConfiguration by which it was found; empty: the device is not valid."""
    is_valid: bool = True
    resource: str = ""
    """The extended resource for this device; empty: it has none."""
    nodes: tuple[str, ...] = ()
    """The nodes that see it."""
    capacity: int = 0
    """The claims, or the containers with its extended resources, that may have it at a time."""
    users: tuple[DeviceUser, ...] = ()
    """Who uses it by extended resources, where nodes count that (Kubernetes 1.29 to 1.31)."""
    not_published: str = ""
    """Why claims cannot get it, as Kerf's controller says; empty: they can."""
    allocatable: dict[str, int] = {}
    """How many of its resource the kubelet of each node lists, by node."""


class RequestedResources(Value):
    """What the pods of one node request together, as kube-scheduler counts it."""

    node: str
    pods: int
    requests: dict[str, Quantity] = {}
    """The sums by resource, such as ``cpu``."""


class CardMaintenanceState(Value):
    """A CardMaintenance, with the phase of its status."""

    name: str
    node: str
    card: str
    """The card's UUID or PCI address."""
    reason: str = ""
    since: str = ""
    """The time of its creation in RFC 3339."""
    phase: str = ""
    """Its phase; empty: `kerf controller --reclaim` has written none."""
    then: str = "None"
    """What its node does with the free card."""


class PluginPodState(Value):
    """A pod of Kerf's kubelet plugin, as the chart makes them."""

    node: str
    is_ready: bool = False


class ClusterState(Value):
    """The objects on which allocation depends; ``dump.redact`` removes what no report needs."""

    kubernetes: str = ""
    """The version of the API server, such as ``1.37``."""
    gathered_at: str = ""
    """The time of collection in RFC 3339, by the collector's clock."""
    nodes: tuple[Node, ...] = ()
    pods: tuple[Pod, ...] = ()
    """The pods that use devices."""
    requested: tuple[RequestedResources, ...] | None = None
    """What all pods request of the nodes on which they run; None: it is unknown, as in older dumps."""
    claims: tuple[ResourceClaim, ...] = msgspec.field(default=(), name="resourceClaims")
    templates: tuple[ResourceClaimTemplate, ...] = msgspec.field(default=(), name="resourceClaimTemplates")
    classes: tuple[DeviceClass, ...] = msgspec.field(default=(), name="deviceClasses")
    slices: Sequence[ResourceSlice] = msgspec.field(default=(), name="resourceSlices")
    """Those of a large cluster are InternedSlices: each is restored when it is read, so none should be kept."""
    unreadable: tuple[str, ...] = ()
    """Kind and name of the objects that exist and cannot be read; they are in none of the other lists."""
    taint_rules: tuple[DeviceTaintRule, ...] = msgspec.field(default=(), name="deviceTaintRules")
    resource_classes: tuple[ResourceClassObject, ...] = msgspec.field(default=(), name="resourceClasses")
    """Kerf's ResourceClasses, from which its controller compiles DeviceClasses."""
    offered_resources: tuple[OfferedResource, ...] = ()
    """What these ResourceClasses offer as extended resources by the kubelet's device plugin interface."""
    discovery_configurations: tuple[DiscoveryConfigurationState, ...] = ()
    discovered_devices: tuple[DiscoveredDeviceState, ...] = ()
    """The devices that nodes have found by these configurations."""
    plugin_pods: tuple[PluginPodState, ...] = ()
    """The pods of Kerf's plugins; none where a plugin is no pod, or has other labels than the chart's."""
    card_maintenances: tuple[CardMaintenanceState, ...] = ()
    """The cards that are drained."""
    events: tuple[Event, ...] = ()
    """The events that say why devices are not prepared, not released, withheld by a plugin of Kerf, or not allocated by
    a driver's controller, and why containers do not get them."""
    forbidden_lists: dict[str, str] = {}
    """The optional lists that may not be read, and without which a report is less exact: the reason, by plural."""
    classic: ClassicState | None = None
    """The claims of a cluster where a driver's controller allocates; None: the scheduler does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartialState:
    """What has arrived of a cluster that is being read: without claims, so that what is free is not known."""

    nodes: int = 0
    """How many nodes have arrived."""
    slices: tuple[CompactSlice, ...] = ()
    """The slices that have arrived; of a pool it may be some only."""
