"""What a node writes of the objects of devices: pure decisions, each on an object as it was read.

Each node adds its own name to the nodes of a device that it sees, and removes it when it does not; an object itself is
never deleted here (the controller does, docs/discovered-devices.md). Writes hold only for the object that was read
(resource version), so that of two nodes that write at once one reads again, and no name is lost.

Of a device that they share nodes may see different properties, and any of them may be in foreign hands. The object
keeps what the node has said that made it, until an administrator changes it. A node that sees something else reports
that.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from kerf_dra.api.errors import InvalidDocumentError, PermanentError
from kerf_dra.api.kerf.decoder import decode_discovered_device
from kerf_dra.api.kerf.discovery_objects import (
    DISCOVERY_CONFIGURATIONS,
    DiscoveredDeviceObject,
    DiscoveredDeviceSpec,
    DiscoveryConfigurationObject,
)
from kerf_dra.api.model.base import JsonObject
from kerf_dra.api.model.metadata import ObjectMeta, OwnerReference
from kerf_dra.api.wire import to_builtins
from kerf_dra.driver.families.shared.node_labels import NODE_LABEL, make_labels, make_node_label
from kerf_dra.driver.families.shared.objects import find_misnaming
from kerf_dra.driver.kube.patches import if_unchanged

MAX_NODES: Final = 512
"""The nodes of one device, as its kind has it."""
_DESCRIPTION: Final = ("properties", "mounts", "deviceNodes")
"""The fields that describe the device, by what a handler says of it."""


class DeviceEntryError(PermanentError):
    """A node cannot enter itself in the object of a device."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceChange:
    """A write: either an object to create, or a merge patch of the one that was read."""

    create: DiscoveredDeviceObject | None = None
    patch: JsonObject | None = None


def plan_entry(
    held: DiscoveredDeviceObject | None,
    seen: DiscoveredDeviceSpec | None,
    *,
    name: str,
    node: str,
    configuration: DiscoveryConfigurationObject | None,
) -> DeviceChange | None:
    """Return what ``node`` has to write of the object ``name``; None: nothing.

    ``held`` is the object as it was read, ``seen`` the device as the node sees it (None: not at all); ``configuration``
    becomes the owner of an object that is made. Raises DeviceEntryError when the object is another device's, has too
    many nodes, or cannot be read.
    """
    if held is None:
        if seen is None or configuration is None:
            return None
        return DeviceChange(create=_make_object(name, seen, node, configuration))
    if held.is_terminating:
        return None
    if seen is not None and (misnaming := find_misnaming(held)) is not None:
        raise DeviceEntryError(f"DiscoveredDevice {name} is another device's: {misnaming}; the controller removes it")
    try:
        spec = decode_discovered_device(held).spec
    except InvalidDocumentError as error:
        if seen is None:
            return None
        raise DeviceEntryError(f"DiscoveredDevice {name} cannot be read: {error}") from error
    if seen is None:
        return _remove(held, spec, node) if node in spec.nodes else None
    return _enter(held, spec, seen, node)


def is_entered(held: DiscoveredDeviceObject, node: str) -> bool:
    """Whether ``node`` is among the nodes of a device, whatever else is in its object."""
    nodes = held.spec.get("nodes")
    return isinstance(nodes, list) and node in nodes


def find_differences(held: DiscoveredDeviceObject, seen: DiscoveredDeviceSpec) -> Sequence[str]:
    """Return the names of the properties that a node sees otherwise than the object of a shared device has them."""
    properties = held.spec.get("properties", {})
    if held.spec.get("shared") is not True or not isinstance(properties, dict):
        return ()
    names = properties.keys() | seen.properties.keys()
    return sorted(name for name in names if properties.get(name) != seen.properties.get(name))


def _remove(held: DiscoveredDeviceObject, spec: DiscoveredDeviceSpec, node: str) -> DeviceChange:
    nodes = [each for each in spec.nodes if each != node]
    return DeviceChange(patch={"metadata": if_unchanged(held.metadata), "spec": {"nodes": nodes}})


def _enter(
    held: DiscoveredDeviceObject, spec: DiscoveredDeviceSpec, seen: DiscoveredDeviceSpec, node: str
) -> DeviceChange | None:
    _check_identity(held, spec, seen, node)
    changes: JsonObject = {}
    if node not in spec.nodes:
        if len(spec.nodes) >= MAX_NODES:
            raise DeviceEntryError(f"DiscoveredDevice {held.metadata.name} has {MAX_NODES} nodes already")
        changes["nodes"] = sorted({*spec.nodes, node})
    if spec.shared:  # the label, too, is the controller's to mend
        return DeviceChange(patch={"metadata": if_unchanged(held.metadata), "spec": changes}) if changes else None
    changes |= _diff_description(to_builtins(spec), to_builtins(seen))
    labels = make_labels(node, shared=False)
    is_labeled = labels.items() <= held.metadata.labels.items()
    if not changes and is_labeled:
        return None
    metadata = if_unchanged(held.metadata) | ({} if is_labeled else {"labels": labels})
    return DeviceChange(patch={"metadata": metadata} | ({"spec": changes} if changes else {}))


def _check_identity(
    held: DiscoveredDeviceObject, spec: DiscoveredDeviceSpec, seen: DiscoveredDeviceSpec, node: str
) -> None:
    """Raise DeviceEntryError when the object is another device's: two digests of 24 bits may be alike."""
    is_other = any(
        getattr(spec, field) != getattr(seen, field) for field in ("device_id", "configuration_name", "shared")
    )
    # The digest of a device of one node has the node: an object may be another node's, which sees it no more.
    own = make_node_label(node)
    is_elsewhere = not spec.shared and (
        not {*spec.nodes} <= {node}
        or spec.found_by not in {None, node}
        or held.metadata.labels.get(NODE_LABEL, own) != own
    )
    if is_other or is_elsewhere:
        raise DeviceEntryError(
            f"DiscoveredDevice {held.metadata.name} is already that of device {spec.device_id!r} of "
            f"{spec.configuration_name} (nodes: {', '.join(spec.nodes) or 'none'})"
        )


def _diff_description(held: Mapping[str, object], seen: Mapping[str, object]) -> JsonObject:
    """Return the changes of the fields that describe a device, as a merge patch: a map's missing keys are nulls."""
    changes: JsonObject = {}
    for field in _DESCRIPTION:
        old, new = held.get(field), seen.get(field)
        if old == new:
            continue
        if isinstance(old, dict) and isinstance(new, dict):
            changes[field] = dict.fromkeys(old.keys() - new.keys()) | new
        else:
            changes[field] = new
    return changes


def _make_object(
    name: str, seen: DiscoveredDeviceSpec, node: str, configuration: DiscoveryConfigurationObject
) -> DiscoveredDeviceObject:
    owner = OwnerReference(
        api_version=DISCOVERY_CONFIGURATIONS.api_version,
        kind=DISCOVERY_CONFIGURATIONS.kind,
        name=configuration.metadata.name,
        uid=configuration.metadata.uid,
        controller=True,
    )
    return DiscoveredDeviceObject(
        metadata=ObjectMeta(name=name, labels=make_labels(node, shared=seen.shared), owner_references=(owner,)),
        spec={**to_builtins(seen), "foundBy": node},
    )
