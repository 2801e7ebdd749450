"""What follows from DiscoveryConfigurations and DiscoveredDevices: slices, DeviceClasses and reports. Pure.

| a device | slice | object |
|---|---|---|
| that some node sees | one, for the nodes that see it | stays |
| that no node sees | none: no claim gets it again, claims keep it | deleted after the configuration's grace |
| that is invalid, or of no configuration | none | stays, and says why |
| whose name is not that of its content, or that is one too many of its node | none | deleted, and its node reported |

Each device is a pool of its own with one slice, so that a change of one is one atomic write that concerns no other.
Pool and device have the object's name: a device that comes back within its grace, or later, is the same one to
claims that still have it. All claims, by any device or by this one, take from the same capacity of the same device, so
kube-scheduler never gives more than there is (KEP-5075). Without that feature a device has one user.

A node is removed from a device's list when it is removed from the cluster; one that is only not ready gets no pods.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from kerf_dra.api.kerf.discovery_objects import (
    DISCOVERED_DEVICES,
    DISCOVERY_CONFIGURATIONS,
    DiscoveredDeviceObject,
    DiscoveredDevices,
    DiscoveredDeviceStatus,
    DiscoveryConfigurationObject,
    DiscoveryConfigurationStatus,
)
from kerf_dra.api.model import device_attributes as v
from kerf_dra.api.model.base import JsonObject
from kerf_dra.api.model.claims import DeviceClass, DeviceClassSpec
from kerf_dra.api.model.devices import (
    Attribute,
    Capacity,
    CapacityRequestPolicy,
    Device,
    ResourcePool,
    ResourceSlice,
    ResourceSliceSpec,
)
from kerf_dra.api.model.metadata import (
    Condition,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    ObjectMeta,
    OwnerReference,
)
from kerf_dra.api.model.quantity import Quantity
from kerf_dra.api.model.times import format_time
from kerf_dra.driver.controller.discovered_devices import (
    RefusedDevice,
    build_correction,
    find_expiry,
    find_refused,
    report_configuration,
    report_device,
)
from kerf_dra.driver.families.selectors import attribute_is, build_selectors, of_driver
from kerf_dra.driver.families.shared import SHARED
from kerf_dra.driver.families.shared.family import ATTRIBUTE_MULTI_NODE, CAPACITY_USERS
from kerf_dra.driver.families.shared.objects import Discovery, FoundDevice, join_objects, name_class

HOSTNAME: Final = "kubernetes.io/hostname"
"""The label by which a slice selects several nodes: a node selector of a slice has one term, which can name one node
by its name (``resource.k8s.io`` validation)."""
_ONE: Final = Quantity(1)
_LABELS: Final = {"app.kubernetes.io/part-of": "kerf"}


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscoverySnapshot:
    """The state on which all slices, classes and reports depend."""

    configurations: tuple[DiscoveryConfigurationObject, ...]
    devices: tuple[DiscoveredDeviceObject, ...]
    hostnames: Mapping[str, str]
    """The label HOSTNAME of each node of the cluster, by its name; empty: it has none."""
    taken_classes: frozenset[str] = frozenset()
    """The DeviceClasses of other writers that have a name which is ours."""
    keeps_shares: bool = True
    """Whether the API server keeps what lets several claims have a device (KEP-5075)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DevicePlan:
    """What follows for one DiscoveredDevice."""

    held: DiscoveredDeviceObject
    correction: JsonObject | None
    """The patch that corrects its nodes and label; None: they are right."""
    is_expired: bool
    """Whether no node has seen it for as long as its configuration keeps it."""
    refused: RefusedDevice | None = None
    """Why it is removed, also while nodes see it; None: it is not."""
    status: DiscoveredDeviceStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscoveryPlan:
    """What there should be."""

    slices: Mapping[str, ResourceSlice]
    """The slices, by their names; all others of the driver are to go."""
    classes: Mapping[str, DeviceClass]
    """The DeviceClasses, by their names; those of objects that are gone are garbage-collected."""
    configurations: tuple[tuple[DiscoveryConfigurationObject, DiscoveryConfigurationStatus], ...]
    devices: tuple[DevicePlan, ...]
    next_expiry: datetime | None
    """When the next device expires; None: none is offline."""


def plan_discovery(snapshot: DiscoverySnapshot, now: datetime) -> DiscoveryPlan:
    """Plan everything again."""
    present = [one for one in snapshot.devices if not one.is_terminating]
    refused = find_refused(present)
    discovery = join_objects(
        (one for one in snapshot.configurations if not one.is_terminating),
        (one for one in present if one.metadata.name not in refused),
    )
    found = discovery.devices.values()
    slices = [
        _build_slice(one, selector, snapshot.keeps_shares)
        for one in found
        if (selector := _select_nodes(one, snapshot)) is not None
    ]
    plans = tuple(_plan_device(held, discovery, snapshot, refused.get(held.metadata.name), now) for held in present)
    expiries = [
        expiry
        for plan in plans
        if (one := discovery.devices.get(plan.held.metadata.name)) is not None
        and (expiry := find_expiry(one, plan.status)) is not None
        and expiry > now
    ]
    return DiscoveryPlan(
        slices={one.metadata.name: one for one in slices},
        classes={
            one.metadata.name: one
            for one in _build_classes(discovery)
            if one.metadata.name not in snapshot.taken_classes
        },
        configurations=tuple(
            (held, _report_configuration(held, discovery, plans, snapshot.taken_classes, now))
            for held in snapshot.configurations
            if not held.is_terminating
        ),
        devices=plans,
        next_expiry=min(expiries, default=None),
    )


def is_owned(device_class: DeviceClass) -> bool:
    """Whether a DeviceClass was made for a configuration or a device, the present one or an earlier one."""
    kinds = {DISCOVERY_CONFIGURATIONS.kind, DISCOVERED_DEVICES.kind}
    return any(
        owner.kind in kinds
        and owner.api_version.partition("/")[0] == DISCOVERED_DEVICES.group
        and name_class(owner.name) == device_class.metadata.name
        for owner in device_class.metadata.owner_references
    )


def _build_slice(one: FoundDevice, selector: NodeSelector, keeps_shares: bool) -> ResourceSlice:
    return ResourceSlice(
        metadata=ObjectMeta(
            name=f"{one.name}-{SHARED.driver}",
            labels=dict(_LABELS),
            owner_references=(_owner(DISCOVERED_DEVICES.kind, one.device.metadata),),
        ),
        spec=ResourceSliceSpec(
            driver=SHARED.driver,
            pool=ResourcePool(name=one.name, generation=1, resource_slice_count=1),
            node_selector=selector,
            devices=(_build_device(one, keeps_shares),),
        ),
    )


def _build_device(one: FoundDevice, keeps_shares: bool) -> Device:
    spec = one.device.spec
    users = Capacity(value=_ONE)
    if keeps_shares:
        users = Capacity(
            value=Quantity(one.capacity), request_policy=CapacityRequestPolicy(default=_ONE, valid_values=(_ONE,))
        )
    return Device(
        name=one.name,
        attributes={
            v.ATTRIBUTE_CUT: Attribute.of(v.CUT_WHOLE),
            v.ATTRIBUTE_MODEL: Attribute.of(one.configuration.metadata.name),
            v.ATTRIBUTE_UUID: Attribute.of(one.name),
            v.ATTRIBUTE_NODE: Attribute.of("" if spec.shared else v.node_attribute("".join(spec.nodes))),
            ATTRIBUTE_MULTI_NODE: Attribute.of(spec.shared),
        },
        capacity={CAPACITY_USERS: users},
        allow_multiple_allocations=True if keeps_shares else None,
    )


def _select_nodes(one: FoundDevice, snapshot: DiscoverySnapshot) -> NodeSelector | None:
    """Return the selector of the nodes that see the device; None: no such node can be selected."""
    nodes = [node for node in one.device.spec.nodes if node in snapshot.hostnames]
    if len(nodes) == 1:
        by_name = NodeSelectorRequirement(key="metadata.name", operator="In", values=(nodes[0],))
        return NodeSelector(node_selector_terms=(NodeSelectorTerm(match_fields=(by_name,)),))
    labels = sorted({snapshot.hostnames[node] for node in nodes} - {"", *_ambiguous(snapshot.hostnames)})
    if not labels:
        return None
    by_label = NodeSelectorRequirement(key=HOSTNAME, operator="In", values=tuple(labels))
    return NodeSelector(node_selector_terms=(NodeSelectorTerm(match_expressions=(by_label,)),))


def _ambiguous(hostnames: Mapping[str, str]) -> Collection[str]:
    """Return the labels that several nodes have: by them nodes would be selected that do not see the device."""
    return {label for label, nodes in Counter(hostnames.values()).items() if nodes > 1}


def _build_classes(discovery: Discovery) -> Iterable[DeviceClass]:
    for configuration in discovery.configurations.values():
        name = configuration.metadata.name
        conditions = [of_driver(SHARED), attribute_is(SHARED, v.ATTRIBUTE_MODEL, name)]
        owner = _owner(DISCOVERY_CONFIGURATIONS.kind, configuration.metadata)
        yield _build_class(name, conditions, owner, configuration.spec.extended_resource_domain)
    for one in discovery.devices.values():
        conditions = [of_driver(SHARED), attribute_is(SHARED, v.ATTRIBUTE_UUID, one.name)]
        owner = _owner(DISCOVERED_DEVICES.kind, one.device.metadata)
        yield _build_class(one.name, conditions, owner, one.configuration.spec.extended_resource_domain)


def _build_class(name: str, conditions: list[str], owner: OwnerReference, domain: str | None) -> DeviceClass:
    return DeviceClass(
        metadata=ObjectMeta(name=name_class(name), labels=dict(_LABELS), owner_references=(owner,)),
        spec=DeviceClassSpec(
            selectors=build_selectors(conditions),
            extended_resource_name=None if domain is None else f"{domain}/{name}",
        ),
    )


def _plan_device(
    held: DiscoveredDeviceObject,
    discovery: Discovery,
    snapshot: DiscoverySnapshot,
    refused: RefusedDevice | None,
    now: datetime,
) -> DevicePlan:
    if refused is not None:
        status = report_device(held, "False", "Invalid", refused.why, now=now)
        return DevicePlan(held=held, correction=None, is_expired=False, refused=refused, status=status)
    one = discovery.devices.get(held.metadata.name)
    if one is None:
        fault = discovery.faults[DISCOVERED_DEVICES.kind, held.metadata.name]
        status = report_device(held, "False", "Invalid", fault, now=now)
        return DevicePlan(held=held, correction=None, is_expired=False, status=status)
    nodes = one.device.spec.nodes
    lost = tuple(node for node in nodes if node not in snapshot.hostnames)
    offline_since = None
    if len(lost) == len(nodes):
        offline_since = held.status.offline_since or format_time(now)
        message = f"no node sees it since {offline_since}; claims that have it keep it"
        status = report_device(held, "False", "Offline", message, offline_since=offline_since, now=now)
    elif _select_nodes(one, snapshot) is None:
        message = f"its nodes cannot be selected: each needs a label {HOSTNAME} of its own"
        status = report_device(held, "False", "NodesNotSelectable", message, now=now)
    elif one.capacity > 1 and not snapshot.keeps_shares:
        message = (
            f"one claim at a time can have it, not {one.capacity}: the API server drops the fields of shared devices "
            "(feature gate DRAConsumableCapacity)"
        )
        status = report_device(held, "True", "NotShareable", message, now=now)
    else:
        message = f"{one.capacity} claims at a time can have it, on {len(nodes) - len(lost)} nodes"
        status = report_device(held, "True", "Published", message, now=now)
    expiry = find_expiry(one, status)
    return DevicePlan(
        held=held,
        correction=build_correction(one, lost),
        is_expired=expiry is not None and expiry <= now,
        status=status,
    )


def _report_configuration(
    held: DiscoveryConfigurationObject,
    discovery: Discovery,
    plans: Iterable[DevicePlan],
    taken_classes: Collection[str],
    now: datetime,
) -> DiscoveryConfigurationStatus:
    name = held.metadata.name
    if name not in discovery.configurations:
        ready = Condition(type="Ready", status="False", reason="NotAccepted", message="the spec is not accepted")
    elif name_class(name) in taken_classes:
        message = f'a DeviceClass "{name_class(name)}" exists that was not made from this object; it is left alone'
        ready = Condition(type="Ready", status="False", reason="NameTaken", message=f"{message}: delete it")
    else:
        ready = Condition(type="Ready", status="True", reason="Compiled", message=f"claims name {name_class(name)}")
    own = [plan for plan in plans if plan.held.spec.get("configurationName") == name]
    online = [plan for plan in own if any(one.status == "True" for one in plan.status.conditions)]
    return report_configuration(
        held,
        discovery,
        ready,
        devices=DiscoveredDevices(total=len(own), online=len(online)),
        device_class_name=name_class(name) if ready.status == "True" else None,
        now=now,
    )


def _owner(kind: str, metadata: ObjectMeta) -> OwnerReference:
    return OwnerReference(
        api_version=DISCOVERED_DEVICES.api_version, kind=kind, name=metadata.name, uid=metadata.uid, controller=True
    )
