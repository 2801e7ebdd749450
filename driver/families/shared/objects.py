"""What the cluster's DiscoveryConfigurations and DiscoveredDevices say together. Pure.

A device that is invalid, or whose configuration is not there, is a fault: it is neither published nor prepared.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from kerf_dra.api.errors import InvalidDocumentError
from kerf_dra.api.kerf.decoder import decode_discovered_device, decode_discovery_configuration
from kerf_dra.api.kerf.discovery_objects import (
    DeviceUser,
    DiscoveredDevice,
    DiscoveredDeviceObject,
    DiscoveryConfiguration,
    DiscoveryConfigurationObject,
)
from kerf_dra.driver.families.shared.family import SHARED


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
        try:
            device = decode_discovered_device(held)
        except InvalidDocumentError as error:
            faults["DiscoveredDevice", name] = str(error)
            continue
        its = device.spec.configuration_name
        if (configuration := valid.get(its)) is None:
            what = "is invalid" if ("DiscoveryConfiguration", its) in faults else "does not exist"
            faults["DiscoveredDevice", name] = f'DiscoveryConfiguration "{its}" {what}'
        elif not name.startswith(f"{its}-") or "." in name:
            faults["DiscoveredDevice", name] = f'metadata.name must be "{its}-" and a digest: a DNS label'
        else:
            found[name] = FoundDevice(device=device, configuration=configuration)
    return Discovery(configurations=valid, devices=found, faults=faults)
