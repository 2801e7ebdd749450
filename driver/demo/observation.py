"""Reports of API objects and container bundles, for the demo to show. Pure."""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from kerf_dra.api.core.v1 import Pod
from kerf_dra.api.kerf.discovery_objects import DiscoveredDeviceObject
from kerf_dra.api.kerf.v1alpha1 import ResourceClassObject
from kerf_dra.api.model.allocations import DeviceRequestAllocationResult
from kerf_dra.api.model.base import JsonObject
from kerf_dra.api.model.claims import ResourceClaim
from kerf_dra.api.model.device_attributes import (
    ATTRIBUTE_CUT,
    ATTRIBUTE_FUNCTION,
    ATTRIBUTE_MODEL,
    ATTRIBUTE_PROFILE,
    ATTRIBUTE_UUID,
    CAPACITY_MEMORY,
    CAPACITY_SLOTS,
)
from kerf_dra.api.model.devices import Device, ResourceSlice, select_current_slices
from kerf_dra.api.model.names import DeviceId
from kerf_dra.api.model.quantity import Quantity
from kerf_dra.driver.demo.report import (
    CardReport,
    ClaimReport,
    ContainerReport,
    DeviceReport,
    DiscoveredDeviceReport,
    NodeReport,
    PodReport,
)
from kerf_dra.driver.families.shared.family import CAPACITY_USERS, SHARED
from kerf_dra.driver.partitions.device_names import parse_device_name

PublishedDevices = Mapping[DeviceId, Device]

_UNIT: Final = re.compile(r"(?P<name>.+)-(?P<number>\d+)")
"""A counter of one unit of a card, such as ``memory-slice-3``."""
_GIB: Final = 2**30
_TEMPLATE_HASH: Final = "pod-template-hash"
"""The label of a Deployment's pods (``k8s.io/api/apps/v1``)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CardState:
    """A card with what its pods hold of it."""

    node: str
    name: str
    """Its name on the node, such as ``gpu-0``."""
    model: str
    unit: str
    """What a unit is called, such as ``memory slice``."""
    units: tuple[str, ...]
    """The device that holds each unit, as ``pool/device``; empty: it is free."""

    @property
    def is_free(self) -> bool:
        return not any(self.units)


def list_published_devices(slices: Iterable[ResourceSlice]) -> dict[DeviceId, Device]:
    """List every published device by its identity."""
    return {
        DeviceId(slice_.spec.driver, slice_.spec.pool.name, device.name): device
        for slice_ in _list_current(slices)
        for device in slice_.spec.devices
    }


def build_node_reports(slices: Iterable[ResourceSlice]) -> tuple[NodeReport, ...]:
    """Report the nodes that publish devices, with their cards."""
    by_node: dict[str, list[ResourceSlice]] = {}
    for slice_ in slices:
        by_node.setdefault(slice_.spec.node_name or "", []).append(slice_)
    return tuple(_node(name, list_published_devices(by_node[name])) for name in sorted(by_node))


def build_card_states(slices: Iterable[ResourceSlice], pods: Iterable[PodReport]) -> tuple[CardState, ...]:
    """Return the cards that are published, in order of their names, each with the devices of it that ``pods`` hold."""
    current = _list_current(slices)
    held = {(device.pool, device.device) for pod in pods for device in pod.devices}
    units: dict[tuple[str, str, str], dict[str, dict[str, str]]] = {}
    totals: dict[tuple[str, str, str], dict[str, Quantity]] = {}
    models: dict[tuple[str, str, str], str] = {}
    for slice_ in current:
        for set_ in slice_.spec.shared_counters:
            key = slice_.spec.node_name or "", slice_.spec.pool.name, set_.name
            matches = [(name, match) for name in set_.counters if (match := _UNIT.fullmatch(name))]
            layouts: dict[str, dict[str, str]] = {}
            for name, _ in sorted(matches, key=lambda each: int(each[1]["number"])):
                layouts.setdefault(name.rpartition("-")[0], {})[name] = ""
            units[key] = layouts
            totals[key] = {name: counter.value for name, counter in set_.counters.items()}
    for slice_ in current:
        for device in slice_.spec.devices:
            for consumption in device.consumes_counters:
                key = slice_.spec.node_name or "", slice_.spec.pool.name, consumption.counter_set
                models.setdefault(key, _text(device, ATTRIBUTE_MODEL))
                if (slice_.spec.pool.name, device.name) in held:
                    # All of a unit: of those of another layout a device consumes a part.
                    covered = {
                        name
                        for name, counter in consumption.counters.items()
                        if counter.value == totals.get(key, {}).get(name)
                    }
                    for taken in units.get(key, {}).values():
                        taken |= dict.fromkeys(taken.keys() & covered, device_key(key[1], device.name))
    return tuple(
        CardState(
            node=key[0],
            name=key[2],
            model=models.get(key, ""),
            unit=unit.replace("-", " "),
            units=holders,
        )
        for key, layouts in sorted(units.items(), key=lambda item: _natural(item[0]))
        if layouts
        for unit, holders in [_find_layout(layouts)]
    )


def _find_layout(layouts: Mapping[str, Mapping[str, str]]) -> tuple[str, tuple[str, ...]]:
    """Return the name of a unit, and the holders, of the layout in use, or else of the one with most units."""
    unit = max(layouts, key=lambda name: (any(layouts[name].values()), len(layouts[name])))
    return unit, tuple(layouts[unit].values())


def device_key(pool: str, device: str) -> str:
    """Return what names a device in ``CardState.units``."""
    return f"{pool}/{device}"


def build_discovered_devices(
    held: Iterable[DiscoveredDeviceObject], slices: Iterable[ResourceSlice], pods: Iterable[PodReport]
) -> tuple[DiscoveredDeviceReport, ...]:
    """Report the discovered devices that are published, in order of their names, each with the pods that have it."""
    users = [(device.pool, pod.ref) for pod in pods for device in pod.devices if device.driver == SHARED.driver]
    published = {id_.pool: device for id_, device in list_published_devices(slices).items()}
    return tuple(
        DiscoveredDeviceReport(
            name=name,
            nodes=tuple(sorted(one.spec["nodes"])),
            capacity=int(published[name].capacity[CAPACITY_USERS].value),
            users=tuple(sorted(ref for pool, ref in users if pool == name)),
        )
        for one in sorted(held, key=lambda each: each.metadata.name)
        if (name := one.metadata.name) in published
    )


def find_users(pods: Iterable[PodReport]) -> dict[str, list[PodReport]]:
    """Return the pods that use each device, by ``device_key``."""
    users: dict[str, list[PodReport]] = defaultdict(list)
    for pod in pods:
        for key in dict.fromkeys(device_key(device.pool, device.device) for device in pod.devices):
            users[key].append(pod)
    return users


def describe_part(device: DeviceReport) -> str:
    """Return what part of a card a device is, such as ``1g.20gb, 19.6 GiB``."""
    memory = f", {device.memory_bytes / _GIB:.1f} GiB" if device.memory_bytes else ""
    part = device.profile or "the whole card"
    return f"a share of {part}{memory}" if device.is_share else f"{part}{memory}"


def describe_holdings(pod: PodReport) -> str:
    """Name the devices of a pod with the UIDs of its claims; "nothing": it has none."""
    return ", ".join(f"{device} of {pool} (claim {uid})" for uid, _, pool, device in pod.holdings) or "nothing"


def build_claim_report(claim: ResourceClaim, cdi_ids: Iterable[str], devices: PublishedDevices) -> ClaimReport:
    results = claim.status.allocation.devices.results if claim.status.allocation else ()
    return ClaimReport(
        name=claim.metadata.name,
        uid=claim.metadata.uid,
        devices=tuple(_device(result, devices.get(result.id)) for result in results),
        cdi_ids=tuple(cdi_ids),
    )


def build_container_report(name: str, spec: JsonObject) -> ContainerReport:
    """Report what a container with this OCI runtime spec sees."""
    environment = (variable.partition("=") for variable in spec["process"]["env"])
    return ContainerReport(
        name=name,
        env={key: value for key, _, value in environment},
        device_nodes=tuple(node["path"] for node in spec.get("linux", {}).get("devices", ())),
        mounts=tuple(mount["destination"] for mount in spec.get("mounts", ())),
    )


def build_pod_report(
    pod: Pod,
    claims: Iterable[ClaimReport],
    containers: Sequence[ContainerReport],
    extended_devices: Mapping[str, tuple[str, ...]] = MappingProxyType({}),
) -> PodReport:
    return PodReport(
        namespace=pod.metadata.namespace,
        name=pod.metadata.name,
        node=pod.spec.node_name,
        phase="Terminating" if pod.is_terminating else pod.status.phase,
        claims=tuple(claims),
        extended_devices=dict(extended_devices),
        containers=tuple(containers),
    )


def find_owners(pod: Pod) -> Iterable[tuple[str, str]]:
    """Yield kind and name of the pod's owners, and of a ReplicaSet the Deployment after which it is named."""
    for owner in pod.metadata.owner_references:
        yield owner.kind, owner.name
        suffix = f"-{pod.metadata.labels.get(_TEMPLATE_HASH, '')}"
        if owner.kind == "ReplicaSet" and len(suffix) > 1 and owner.name.endswith(suffix):
            yield "Deployment", owner.name.removesuffix(suffix)


def find_pending_reason(pod: Pod) -> str:
    """Return the scheduler's last message on the pod; empty when there is none."""
    return next((c.message for c in pod.status.conditions if c.type == "PodScheduled" and c.status == "False"), "")


def is_processed(class_: ResourceClassObject) -> bool:
    """Whether the controller has processed the class as it is now."""
    return class_.status.observed_generation == class_.metadata.generation


def find_refusal(class_: ResourceClassObject) -> str:
    """Return the controller's message why the class is refused; empty when claims can use it."""
    refusals = (condition.message for condition in class_.status.conditions if condition.status == "False")
    return next(refusals, "")


def _device(result: DeviceRequestAllocationResult, device: Device | None) -> DeviceReport:
    memory = result.consumed_capacity.get(CAPACITY_MEMORY)
    if memory is None and device is not None and CAPACITY_MEMORY in device.capacity:
        memory = device.capacity[CAPACITY_MEMORY].value
    return DeviceReport(
        request=result.request,
        driver=result.driver,
        pool=result.pool,
        device=result.device,
        profile=_profile(device),
        memory_bytes=None if memory is None else int(memory) or None,
        card=_text(device, ATTRIBUTE_UUID),
        is_share=result.share_id is not None,
    )


def _profile(device: Device | None) -> str | None:
    """Return the profile, the function, or the number of slots; None for a whole card."""
    if _text(device, ATTRIBUTE_CUT) == "whole":
        return None
    slots = f"{device.capacity[CAPACITY_SLOTS].value} slots" if device and CAPACITY_SLOTS in device.capacity else None
    return _text(device, ATTRIBUTE_PROFILE) or _text(device, ATTRIBUTE_FUNCTION) or slots


def _node(name: str, devices: PublishedDevices) -> NodeReport:
    cards = {
        CardReport(
            index=parsed.index,
            kind=parsed.kind,
            model=_text(device, ATTRIBUTE_MODEL),
            uuid=_text(device, ATTRIBUTE_UUID),
        )
        for device in devices.values()
        if (parsed := parse_device_name(device.name))
    }
    ordered = sorted(cards, key=lambda card: (card.kind != "gpu", card.index))
    return NodeReport(name=name, cards=tuple(ordered), devices=len(devices))


def _list_current(slices: Iterable[ResourceSlice]) -> list[ResourceSlice]:
    """Return the slices of each pool that count now, the newest last."""
    pools: dict[tuple[str, str], list[ResourceSlice]] = {}
    for slice_ in slices:
        pools.setdefault((slice_.spec.driver, slice_.spec.pool.name), []).append(slice_)
    return [slice_ for of_pool in pools.values() for slice_ in select_current_slices(of_pool)]


def _natural(key: tuple[str, str, str]) -> tuple[object, ...]:
    """Return a sort key by which ``gpu`` comes before ``fpga``, and ``node-2`` before ``node-10``."""
    node, pool, card = key
    return _numbers(node), not card.startswith("gpu-"), pool, _numbers(card)


def _numbers(name: str) -> tuple[tuple[str, int], ...]:
    return tuple((text, int(number or 0)) for text, number in re.findall(r"(\D+)(\d*)", name))


def _text(device: Device | None, attribute: str) -> str:
    value = device.attributes.get(attribute) if device else None
    return "" if value is None or value.value is None else str(value.value)
