"""Checks what a handler says it has found: of each device, whether it can be an object, and how many there are.

One bad device hides no others. Whatever a handler sends, the result is bounded: the number of devices here, the size of
each by its kind's own limits (``kerf_dra.api.kerf.discovery_objects``).
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from kerf_dra.api.discovery.v1alpha1 import FoundDevice, FoundDeviceNode, FoundMount
from kerf_dra.api.errors import InvalidDocumentError
from kerf_dra.api.kerf.decoder import decode_discovered_device
from kerf_dra.api.kerf.discovery_objects import DiscoveredDeviceObject, DiscoveredDeviceSpec, device_name
from kerf_dra.api.model.base import JsonObject
from kerf_dra.api.model.metadata import ObjectMeta

MAX_DEVICES: Final = 256
"""The devices of one configuration on one node: twice the most that a slice has (``ResourceSliceMaxDevices``)."""
_MAX_PROBLEMS: Final = 8
"""The problems of a list that are reported: the others are of the same handler."""
_MAX_SHOWN: Final = 80
"""The characters of an id that a message quotes."""


@dataclass(frozen=True, slots=True)
class CheckedDevices:
    """The devices of a list that can be objects."""

    specs: Mapping[str, DiscoveredDeviceSpec]
    """As this node sees them, by the objects' names."""
    problems: tuple[str, ...] = ()
    """What is wrong with the others."""


def check_devices(
    configuration: str, found: Sequence[FoundDevice], *, node: str, known: Collection[str] = ()
) -> CheckedDevices:
    """Check the devices of a list. Of too many, those stay whose names are ``known``, then those first by id."""
    names = [device_name(configuration, each.id, node=None if each.shared else node) for each in found]
    repeated = {identity for identity, times in Counter((each.id, each.shared) for each in found).items() if times > 1}
    problems = [f"device {_show(id_)} is there several times" for id_, _ in sorted(repeated)]
    specs: dict[str, DiscoveredDeviceSpec] = {}
    order = sorted(zip(names, found, strict=True), key=lambda each: (each[0] not in known, each[1].id))
    for name, device in order:
        if name in specs:
            if (specs[name].device_id, specs[name].shared) != (device.id, device.shared):
                problems.append(f"device {_show(device.id)} has the name of {_show(specs[name].device_id)}: {name}")
            continue
        try:
            spec = _make_spec(name, device, configuration, node)
        except InvalidDocumentError as error:
            problems.append(f"device {_show(device.id)}: {'; '.join(map(str, error.problems))}")
            continue
        if len(specs) == MAX_DEVICES:
            problems.append(f"it has found {len(found)} devices, of which {MAX_DEVICES} are taken: look for fewer")
            break
        specs[name] = spec
    if more := problems[_MAX_PROBLEMS:]:
        problems[_MAX_PROBLEMS:] = [f"and {len(more)} problems more"]
    return CheckedDevices(specs, tuple(problems))


def _make_spec(name: str, device: FoundDevice, configuration: str, node: str) -> DiscoveredDeviceSpec:
    spec: JsonObject = {
        "configurationName": configuration,
        "deviceID": device.id,
        "shared": device.shared,
        "nodes": [node],
        "properties": dict(sorted(device.properties.items())),
        "mounts": [_paths(each) | {"readOnly": each.read_only} for each in device.mounts],
        "deviceNodes": [_paths(each) | {"permissions": each.permissions} for each in device.device_nodes],
    }
    return decode_discovered_device(DiscoveredDeviceObject(metadata=ObjectMeta(name=name), spec=spec)).spec


def _paths(each: FoundMount | FoundDeviceNode) -> JsonObject:
    return {"hostPath": each.host_path, "containerPath": each.container_path or each.host_path}


def _show(id_: str) -> str:
    return repr(id_ if len(id_) <= _MAX_SHOWN else f"{id_[:_MAX_SHOWN]}…")
