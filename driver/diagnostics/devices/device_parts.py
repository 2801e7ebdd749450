"""Devices that are one hardware by their UUIDs, of any driver: a card, and what was cut from it.

Drivers that do not count shared hardware by counters (KEP-4815) say what a device was cut from by the attribute
``parentUUID``, as NVIDIA's does for static MIG devices; nothing keeps the scheduler from giving both the card and its
part. Kerf's partitions have the UUID of their card as ``uuid``.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from kerf_dra.api.model.claims import ResourceClaim
from kerf_dra.api.model.device_attributes import ATTRIBUTE_CUT, ATTRIBUTE_UUID, CUT_PARTITION
from kerf_dra.api.model.devices import Device, ResourceSlice
from kerf_dra.api.model.names import DeviceId, ObjectRef

_PARENT: Final = "parentUUID"
"""NVIDIA's name of the attribute, in lower and upper case as its driver writes it."""


class Hardware(NamedTuple):
    """What a device is; texts are empty where it does not say."""

    node: str
    uuid: str = ""
    parent: str = ""
    """The UUID of the device that it was cut from."""


class GivenPart(NamedTuple):
    """A device that a claim has, and one that the same or another claim has and that the first was cut from."""

    part: DeviceId
    part_of: ObjectRef
    """The claim that has the part."""
    whole: DeviceId
    whole_of: ObjectRef


def find_hardware(device: Device, node: str) -> Hardware:
    """Return what a device of ``node`` is; names of attributes may have any domain."""
    texts = {name.rpartition("/")[2]: attribute.value for name, attribute in device.attributes.items()}
    uuid, parent = (value if isinstance(value := texts.get(name), str) else "" for name in (ATTRIBUTE_UUID, _PARENT))
    if texts.get(ATTRIBUTE_CUT) == CUT_PARTITION and not parent:
        return Hardware(node=node, parent=uuid)
    return Hardware(node=node, uuid=uuid, parent=parent)


def find_given_parts(claims: Iterable[ResourceClaim], slices: Iterable[ResourceSlice]) -> Iterator[GivenPart]:
    """Yield each device that a claim of ``claims`` has while one has what it was cut from. Admin access has nothing."""
    given: defaultdict[DeviceId, list[ObjectRef]] = defaultdict(list)
    for claim in claims:
        for result in claim.status.allocation.devices.results if claim.status.allocation else ():
            if not result.admin_access and claim.ref not in given[result.id]:
                given[result.id].append(claim.ref)
    hardware = _find_all(slices, given)
    wholes = {(each.node, each.uuid): id_ for id_, each in hardware.items() if each.uuid}
    for part, each in hardware.items():
        whole = wholes.get((each.node, each.parent)) if each.parent else None
        if whole is not None and whole != part:
            for part_of in given[part]:
                for whole_of in given[whole]:
                    yield GivenPart(part=part, part_of=part_of, whole=whole, whole_of=whole_of)


def _find_all(slices: Iterable[ResourceSlice], given: Mapping[DeviceId, object]) -> Mapping[DeviceId, Hardware]:
    found: dict[DeviceId, Hardware] = {}
    for slice_ in slices:
        for device in slice_.spec.devices:
            id_ = DeviceId(slice_.spec.driver, slice_.spec.pool.name, device.name)
            if id_ in given:
                found[id_] = find_hardware(device, slice_.spec.node_name or "")
    return found
