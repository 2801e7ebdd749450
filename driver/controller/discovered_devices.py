"""What the controllers of both generations keep right in DiscoveredDevices."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from kerf_dra.api.core.v1 import NODES, ObjectReference
from kerf_dra.api.kerf.discovery_objects import (
    DISCOVERY_CONFIGURATIONS,
    DeviceUser,
    DiscoveredDeviceObject,
    DiscoveredDevices,
    DiscoveredDeviceStatus,
    DiscoveryConfigurationObject,
    DiscoveryConfigurationStatus,
)
from kerf_dra.api.model.base import JsonObject
from kerf_dra.api.model.metadata import Condition
from kerf_dra.driver.controller.conditions import continue_conditions
from kerf_dra.driver.families.shared.node_labels import find_missing_labels
from kerf_dra.driver.families.shared.objects import MAX_FOUND, Discovery, FoundDevice, find_misnaming
from kerf_dra.driver.kube.events import EventReporter
from kerf_dra.driver.kube.patches import if_unchanged

REMOVED: Final = "DiscoveredDevicesRemoved"
"""The reason of events about nodes that have made objects which may not be."""
_MAX_SHOWN: Final = 4
"""The objects that one event names: the others are of the same node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedDevice:
    """A DiscoveredDevice that is removed, though its node may see it."""

    node: str
    """The node whose plugin has made it; empty: unknown."""
    why: str


def list_nodes(devices: Sequence[DiscoveredDeviceObject]) -> set[str]:
    """Return the names of the nodes that see ``devices`` or have users of them."""
    named = {user.node for held in devices for user in held.status.users}
    for held in devices:
        nodes = held.spec.get("nodes")
        named |= {node for node in nodes if isinstance(node, str)} if isinstance(nodes, list) else set()
    return named


def find_refused(devices: Iterable[DiscoveredDeviceObject]) -> Mapping[str, RefusedDevice]:
    """Return the devices to remove, by name: those with a wrong name, and those beyond MAX_FOUND of one node.

    Of too many those that no node sees are removed first, then the newest.
    """
    refused: dict[str, RefusedDevice] = {}
    made: dict[str, list[DiscoveredDeviceObject]] = defaultdict(list)
    for held in devices:
        found_by = held.spec.get("foundBy")
        node = found_by if isinstance(found_by, str) else ""
        if (misnaming := find_misnaming(held)) is not None:
            refused[held.metadata.name] = RefusedDevice(node=node, why=misnaming)
        elif node:
            made[node].append(held)
    for node, own in made.items():
        why = f"node {node} has made {len(own)} DiscoveredDevices, and may make {MAX_FOUND}"
        for held in sorted(own, key=_rank)[MAX_FOUND:]:
            refused[held.metadata.name] = RefusedDevice(node=node, why=why)
    return refused


def _rank(held: DiscoveredDeviceObject) -> tuple[bool, str, str]:
    return not held.spec.get("nodes"), held.metadata.creation_timestamp or "", held.metadata.name


def report_refused(events: EventReporter, refused: Mapping[str, RefusedDevice]) -> None:
    """Report, as an event about each node, which of its devices are removed."""
    by_node: dict[str, list[str]] = defaultdict(list)
    for name, one in sorted(refused.items()):
        if one.node:
            by_node[one.node].append(f"{name}: {one.why}")
    for node, texts in by_node.items():
        more = f"; and {len(texts) - _MAX_SHOWN} more" if len(texts) > _MAX_SHOWN else ""
        about = ObjectReference(api_version=NODES.api_version, kind=NODES.kind, name=node, uid=node)
        message = f"DiscoveredDevices that this node has made are removed: {'; '.join(texts[:_MAX_SHOWN])}{more}"
        events.report(about, type="Warning", reason=REMOVED, message=message)


def find_expiry(one: FoundDevice, status: DiscoveredDeviceStatus) -> datetime | None:
    """Return when the device is deleted, if no node sees it until then; None: some node does."""
    if status.offline_since is None:
        return None
    try:
        since = datetime.strptime(status.offline_since, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
    except ValueError:  # a text that Kerf has not written counts as long ago
        since = datetime.min.replace(tzinfo=UTC)
    return since + timedelta(seconds=one.configuration.spec.offline_grace_seconds)


def build_correction(one: FoundDevice, lost_nodes: Collection[str]) -> JsonObject | None:
    """Return the merge patch that removes nodes that are no longer in the cluster, and adds the label by which nodes
    follow their devices. It fails when the object has changed. None: nothing is wrong.
    """
    spec, metadata = one.device.spec, one.device.metadata
    labels = find_missing_labels(spec, metadata.labels)
    kept = [node for node in spec.nodes if node not in lost_nodes]
    if not labels and len(kept) == len(spec.nodes):
        return None
    patch: JsonObject = {"metadata": if_unchanged(metadata)}
    if labels:
        patch["metadata"]["labels"] = labels
    if len(kept) < len(spec.nodes):
        patch["spec"] = {"nodes": kept}
    return patch


def report_device(
    held: DiscoveredDeviceObject,
    state: str,
    reason: str,
    message: str,
    *,
    offline_since: str | None = None,
    users: tuple[DeviceUser, ...] = (),
    now: datetime,
) -> DiscoveredDeviceStatus:
    """Return the status of a device whose condition Published is as given."""
    condition = Condition(type="Published", status=state, reason=reason, message=message)
    return DiscoveredDeviceStatus(
        observed_generation=held.metadata.generation,
        conditions=continue_conditions(
            (condition,), held.status.conditions, generation=held.metadata.generation, now=now
        ),
        offline_since=offline_since,
        users=users,
    )


def report_configuration(
    held: DiscoveryConfigurationObject,
    discovery: Discovery,
    ready: Condition,
    *,
    devices: DiscoveredDevices,
    device_class_name: str | None = None,
    now: datetime,
) -> DiscoveryConfigurationStatus:
    """Return the status of a configuration: whether its spec is accepted is said by ``discovery``."""
    fault = discovery.faults.get((DISCOVERY_CONFIGURATIONS.kind, held.metadata.name))
    if fault is None:
        accepted = Condition(type="Accepted", status="True", reason="Valid", message="the spec is valid")
    else:
        accepted = Condition(type="Accepted", status="False", reason="Invalid", message=fault)
    return DiscoveryConfigurationStatus(
        observed_generation=held.metadata.generation,
        conditions=continue_conditions(
            (accepted, ready), held.status.conditions, generation=held.metadata.generation, now=now
        ),
        device_class_name=device_class_name,
        devices=devices,
    )
