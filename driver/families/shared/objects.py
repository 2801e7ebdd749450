"""What the cluster's DiscoveryConfigurations and DiscoveredDevices say together. Pure.

A device that is invalid, or whose configuration is not there, is a fault: it is neither published nor prepared. So is
one whose name is not that of its content: a node that could choose names would take those of other nodes' devices.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from kerf_dra.api.errors import InvalidDocumentError
from kerf_dra.api.kerf.decoder import decode_discovered_device, decode_discovery_configuration
from kerf_dra.api.kerf.discovery_objects import (
    DeviceUser,
    DiscoveredDevice,
    DiscoveredDeviceObject,
    DiscoveryConfiguration,
    DiscoveryConfigurationObject,
    device_name,
)
from kerf_dra.driver.families.shared.family import SHARED
from kerf_dra.driver.families.shared.node_labels import find_labeled_node

MAX_FOUND: Final = 256
"""The devices that one node may make objects of: as many as one configuration may find on a node, and several times
what a node has. Every plugin follows all shared devices, and 256 of the largest size, 74 KB, are 19 MB to each."""
_DIGEST: Final = re.compile(r"[0-9a-f]{6}")


def name_class(name: str) -> str:
    """Return the name of the DeviceClass of a configuration (any of its devices), or of a device.

    >>> name_class("cameras")
    'cameras.shared.kerf.dev'
    """
    return f"{name}.{SHARED.driver}"


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundDevice:
    """A device with its configuration, both valid."""

    device: DiscoveredDevice
    configuration: DiscoveryConfiguration

    @property
    def name(self) -> str:
        """The name of its object, its pool and its device in slices."""
        return self.device.metadata.name

    @property
    def digest(self) -> str:
        """The part of the name by which it differs from others of its configuration."""
        return self.name.removeprefix(f"{self.configuration.metadata.name}-")

    @property
    def users(self) -> tuple[DeviceUser, ...]:
        """Who uses it, where its nodes count them (``users``)."""
        return self.device.status.users

    @property
    def capacity(self) -> int:
        """The claims, or the containers with its extended resources, that may have it at a time."""
        own = self.device.spec.capacity
        return self.configuration.spec.capacity if own is None else own


@dataclass(frozen=True, slots=True, kw_only=True)
class Discovery:
    """All that is known of devices that were found."""

    configurations: Mapping[str, DiscoveryConfiguration] = field(default_factory=dict)
    """The valid ones, by name."""
    devices: Mapping[str, FoundDevice] = field(default_factory=dict)
    """The valid ones of valid configurations, by name."""
    faults: Mapping[tuple[str, str], str] = field(default_factory=dict)
    """Why an object counts for nothing, by its kind and name."""


def join_objects(
    configurations: Iterable[DiscoveryConfigurationObject], devices: Iterable[DiscoveredDeviceObject]
) -> Discovery:
    """Put the objects together."""
    faults: dict[tuple[str, str], str] = {}
    valid: dict[str, DiscoveryConfiguration] = {}
    for one in configurations:
        try:
            valid[one.metadata.name] = decode_discovery_configuration(one)
        except InvalidDocumentError as error:
            faults["DiscoveryConfiguration", one.metadata.name] = str(error)
    found: dict[str, FoundDevice] = {}
    for held in devices:
        name = held.metadata.name
        if (misnaming := find_misnaming(held)) is not None:
            faults["DiscoveredDevice", name] = misnaming
            continue
        try:
            device = decode_discovered_device(held)
        except InvalidDocumentError as error:
            faults["DiscoveredDevice", name] = str(error)
            continue
        its = device.spec.configuration_name
        if (configuration := valid.get(its)) is None:
            what = "is invalid" if ("DiscoveryConfiguration", its) in faults else "does not exist"
            faults["DiscoveredDevice", name] = f'DiscoveryConfiguration "{its}" {what}'
        else:
            found[name] = FoundDevice(device=device, configuration=configuration)
    return Discovery(configurations=valid, devices=found, faults=faults)


def find_misnaming(held: DiscoveredDeviceObject) -> str | None:
    """Return what is wrong with the name of an object, also of one that cannot be decoded; None: nothing.

    A device that is not shared has the name that its node makes: the one that found it, else the one that sees it, else
    the one of its label. If none is known, any digest will do.
    """
    name, spec = held.metadata.name, held.spec
    configuration, device_id = spec.get("configurationName"), spec.get("deviceID")
    if not isinstance(configuration, str) or not isinstance(device_id, str):
        return None
    if spec.get("shared") is True:
        wanted = device_name(configuration, device_id, node=None)
        return None if name == wanted else f'metadata.name must be "{wanted}": the device is shared'
    if (node := _find_node(held)) is not None:
        wanted = device_name(configuration, device_id, node=node)
        return None if name == wanted else f'metadata.name must be "{wanted}": the device is one of node {node}'
    if name.startswith(f"{configuration}-") and _DIGEST.fullmatch(name, len(configuration) + 1):
        return None
    return f'metadata.name must be "{configuration}-" and a digest of six digits'


def _find_node(held: DiscoveredDeviceObject) -> str | None:
    found_by, nodes = held.spec.get("foundBy"), held.spec.get("nodes")
    known = [found_by, *(nodes if isinstance(nodes, list) else []), find_labeled_node(held.metadata.labels)]
    return next((node for node in known if isinstance(node, str) and node), None)
