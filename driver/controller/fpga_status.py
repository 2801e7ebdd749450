"""The status of FpgaShells and FpgaImages, from what nodes publish of their cards. Pure.

| condition | True | False | Unknown |
|---|---|---|---|
| Verified | the spec is valid, and contradicts no other | it does not: the message says why | |
| Fetched | every node with a card of the interface has checked and has the image | some have not | no node has one |
| Refused | some node cannot load a file of it: the message names nodes and reasons | none says so | |

A node has an image when each of its cards with the interface has a device of the function whose ``imageDigest`` is
that of one of its files.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, TypeAlias

from kerf_dra.api.kerf.fpga_objects import (
    FPGA_IMAGES,
    FPGA_SHELLS,
    FpgaImageObject,
    FpgaNodes,
    FpgaShellObject,
    FpgaStatus,
)
from kerf_dra.api.model.base import JsonObject
from kerf_dra.api.model.device_attributes import ATTRIBUTE_FUNCTION, ATTRIBUTE_LAYOUT, ATTRIBUTE_UUID
from kerf_dra.api.model.devices import Attribute, Device, ResourceSlice
from kerf_dra.api.model.metadata import Condition
from kerf_dra.api.model.names import list_names
from kerf_dra.driver.controller.conditions import continue_conditions
from kerf_dra.driver.families.fpga.descriptions import Description, Descriptions, build_descriptions, normalize_uuid
from kerf_dra.driver.families.fpga.refused_images import BLANK, select_refusals

FpgaObject: TypeAlias = FpgaShellObject | FpgaImageObject

_VERIFIED: Final = "Verified"
_FETCHED: Final = "Fetched"
_REFUSED: Final = "Refused"
_NAMED: Final = 5
"""Nodes that a message names."""
_INTERFACE: Final = "interfaceUUID"
_DIGEST: Final = "imageDigest"
_REFUSED_IMAGES: Final = "refusedImages"
_READ: Final = (_INTERFACE, ATTRIBUTE_UUID, ATTRIBUTE_FUNCTION, _DIGEST, _REFUSED_IMAGES, ATTRIBUTE_LAYOUT)
"""The attributes of devices that are read here."""
_ABSENT: Final = Attribute()


@dataclass(frozen=True, slots=True)
class PublishedNode:
    """What a node publishes of its cards with one interface."""

    images: dict[str, set[tuple[str, str]]] = field(default_factory=dict)
    """The functions of each card with the digests of their files, by the card's UUID."""
    refused: dict[str, str] = field(default_factory=dict)
    """The reasons by function, for what it refuses."""

    def has_image(self, function: str, digests: Iterable[str]) -> bool:
        """Whether every card has the function, from one of these files."""
        wanted = {(function, digest) for digest in digests}
        return all(wanted & found for found in self.images.values())


Published: TypeAlias = Mapping[str, Mapping[str, PublishedNode]]
"""What nodes publish, by interface UUID and node."""


def summarize_slices(slices: Iterable[ResourceSlice]) -> Published:
    """Return what the slices of the FPGA driver say, by interface and node."""
    found: dict[str, dict[str, PublishedNode]] = {}
    for one in slices:
        for device in one.spec.devices if one.spec.node_name else ():
            _add_device(found, one.spec.node_name or "", device)
    return found


def reduce_devices(devices: Iterable[Device]) -> tuple[Device, ...]:
    """Return what ``summarize_slices`` reads of ``devices``: those of cards with an interface, equal ones once."""
    found: dict[tuple[Attribute | None, ...], str] = {}
    for device in devices:
        if _INTERFACE in device.attributes:
            found.setdefault(tuple(device.attributes.get(name) for name in _READ), device.name)
    return tuple(
        Device(name=name, attributes={key: one for key, one in zip(_READ, read, strict=True) if one is not None})
        for read, name in found.items()
    )


def describe_objects(objects: Iterable[FpgaObject]) -> Descriptions:
    """Put the objects together as every node does: in the order of their names, without files of nodes."""
    found = [Description(source_of(held), to_document(held)) for held in objects]
    return build_descriptions(sorted(found, key=lambda one: one.source))


def source_of(held: FpgaObject) -> str:
    """Return what messages call an object."""
    return f"{_kind_of(held)} {held.metadata.name}"


def to_document(held: FpgaObject) -> JsonObject:
    """Return the manifest of an object."""
    return FPGA_IMAGES.encode(held) if isinstance(held, FpgaImageObject) else FPGA_SHELLS.encode(held)


def build_status(held: FpgaObject, descriptions: Descriptions, published: Published, *, now: datetime) -> FpgaStatus:
    """Build the status that ``held`` should have; a condition with an unchanged status keeps its transition time."""
    fault = descriptions.faults.get(source_of(held), "")
    conditions = [_verified(fault)]
    nodes = None
    if not fault:
        on_nodes = published.get(normalize_uuid(held.spec["interfaceUUID"]), {})
        name = held.spec["function"] if isinstance(held, FpgaImageObject) else BLANK
        nodes = FpgaNodes(total=len(on_nodes))
        if isinstance(held, FpgaImageObject):
            digests = {file["sha256"] for file in held.spec["files"]}
            without = sorted(node for node, one in on_nodes.items() if not one.has_image(name, digests))
            nodes = FpgaNodes(total=len(on_nodes), fetched=len(on_nodes) - len(without))
            conditions.append(_fetched(nodes, without))
        conditions.append(_refused({node: one.refused[name] for node, one in on_nodes.items() if name in one.refused}))
    return FpgaStatus(
        observed_generation=held.metadata.generation,
        conditions=continue_conditions(
            conditions, held.status.conditions, generation=held.metadata.generation, now=now
        ),
        nodes=nodes,
    )


def _kind_of(held: FpgaObject) -> str:
    return FPGA_IMAGES.kind if isinstance(held, FpgaImageObject) else FPGA_SHELLS.kind


def _add_device(found: dict[str, dict[str, PublishedNode]], node: str, device: Device) -> None:
    interface, card = _word(device, _INTERFACE), _word(device, ATTRIBUTE_UUID)
    if not interface or not card:
        return
    published = found.setdefault(interface, {}).setdefault(node, PublishedNode())
    images = published.images.setdefault(card, set())
    if function := _word(device, ATTRIBUTE_FUNCTION):
        images.add((function, _word(device, _DIGEST)))
    published.refused.update(select_refusals(_word(device, _REFUSED_IMAGES), _word(device, ATTRIBUTE_LAYOUT)))


def _word(device: Device, name: str) -> str:
    return device.attributes.get(name, _ABSENT).string or ""


def _verified(fault: str) -> Condition:
    if fault:
        return Condition(type=_VERIFIED, status="False", reason="Invalid", message=fault)
    return Condition(type=_VERIFIED, status="True", reason="Valid", message="the spec is valid")


def _fetched(nodes: FpgaNodes, without: Sequence[str]) -> Condition:
    if not nodes.total:
        message = "no node publishes a card with its interface"
        return Condition(type=_FETCHED, status="Unknown", reason="NoCards", message=message)
    message = f"{nodes.fetched} of {nodes.total} nodes with such cards have it"
    if without:
        message += f"; not {list_names(without, _NAMED)}"
    state = "False" if without else "True"
    return Condition(type=_FETCHED, status=state, reason="Missing" if without else "OnAllNodes", message=message)


def _refused(reasons: Mapping[str, str]) -> Condition:
    if not reasons:
        return Condition(type=_REFUSED, status="False", reason="NotRefused", message="no node refuses it")
    by_reason: dict[str, list[str]] = {}
    for node, reason in sorted(reasons.items()):
        by_reason.setdefault(reason, []).append(node)
    said = "; ".join(f"{reason} on {list_names(nodes, _NAMED)}" for reason, nodes in by_reason.items())
    message = f"{said}: the logs of Kerf's kubelet plugin there say more"
    return Condition(type=_REFUSED, status="True", reason="RefusedByNodes", message=message)
