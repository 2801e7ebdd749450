"""DiscoveryConfigurations and DiscoveredDevices: what is refused, by its path, and the names of devices."""

from typing import Any

import pytest

from kerf_dra.api.errors import InvalidDocumentError
from kerf_dra.api.kerf.decoder import decode_discovered_device, decode_discovery_configuration
from kerf_dra.api.kerf.discovery_objects import (
    DiscoveredDeviceObject,
    DiscoveryConfigurationObject,
    device_name,
)
from kerf_dra.api.model.metadata import ObjectMeta

CONFIGURATION: dict[str, Any] = {"discoveryHandler": {"name": "udev", "details": 'KERNEL=="video[0-9]*"'}}
DEVICE: dict[str, Any] = {"configurationName": "cameras", "deviceID": "rtsp://10.0.0.7", "shared": True}
LOCAL: dict[str, Any] = {**DEVICE, "shared": False, "nodes": ["node-1"]}


def configuration(name: str = "cameras", **spec: Any) -> DiscoveryConfigurationObject:
    return DiscoveryConfigurationObject(metadata=ObjectMeta(name=name), spec={**CONFIGURATION, **spec})


def device(base: dict[str, Any], **spec: Any) -> DiscoveredDeviceObject:
    return DiscoveredDeviceObject(metadata=ObjectMeta(name="cameras-3f850a"), spec={**base, **spec})


@pytest.mark.parametrize(
    ("held", "paths"),
    [
        pytest.param(configuration(capacity=0), ["spec.capacity"], id="no capacity"),
        pytest.param(configuration(capaciy=2), ["spec.capaciy"], id="AK-28: a misspelled field"),
        pytest.param(configuration(discoveryHandler={}), ["spec.discoveryHandler.name"], id="no handler"),
        pytest.param(configuration("lab.cameras"), [""], id="a name with a dot"),
        pytest.param(configuration("c" * 57), [""], id="a name too long for devices"),
        pytest.param(
            configuration(mounts=[{"hostPath": "/srv/../etc", "containerPath": "etc"}]),
            ["spec.mounts[0].hostPath", "spec.mounts[0].containerPath"],
            id="paths that are not what they say",
        ),
        pytest.param(configuration(brokerProperties={"A-B": "1"}), ["spec.brokerProperties.A-B"], id="a variable"),
        pytest.param(configuration(extendedResourceDomain="akri"), ["spec.extendedResourceDomain"], id="a domain"),
    ],
)
def test_a_wrong_configuration_is_refused_with_each_path(held: DiscoveryConfigurationObject, paths: list[str]) -> None:
    with pytest.raises(InvalidDocumentError) as refused:
        decode_discovery_configuration(held)
    assert [problem.path for problem in refused.value.problems] == paths


@pytest.mark.parametrize(
    ("held", "paths"),
    [
        pytest.param(
            device(LOCAL, deviceNodes=[{"hostPath": "/dev/video0", "permissions": "rx"}]),
            ["spec.deviceNodes[0].permissions"],
            id="AK-28: permissions of a device node",
        ),
        pytest.param(device(LOCAL, nodes=["node-1", "node-2"]), ["spec.nodes"], id="two nodes, not shared"),
        pytest.param(device(DEVICE, deviceNodes=[{"hostPath": "/dev/video0"}]), ["spec.deviceNodes"], id="a node's"),
        pytest.param(
            device(DEVICE, mounts=[{"hostPath": "/srv", "containerPath": "/srv"}]), ["spec.mounts"], id="a path"
        ),
        pytest.param(device(DEVICE, properties={"URL": "a\nb"}), ["spec.properties.URL"], id="two lines"),
    ],
)
def test_a_wrong_device_is_refused_with_each_path(held: DiscoveredDeviceObject, paths: list[str]) -> None:
    with pytest.raises(InvalidDocumentError) as refused:
        decode_discovered_device(held)
    assert [problem.path for problem in refused.value.problems] == paths


def test_what_is_unset_is_akris_default() -> None:
    spec = decode_discovery_configuration(configuration()).spec
    assert (spec.capacity, spec.unique_devices, spec.offline_grace_seconds) == (1, True, 300)
    assert decode_discovered_device(device(DEVICE)).spec.capacity is None


def test_ak_02_a_device_has_the_same_name_whenever_it_is_found() -> None:
    assert device_name("cameras", "video1", node=None) == device_name("cameras", "video1", node=None)
    digest = "3f850a"  # printf rtsp://10.0.0.7 | b2sum -l 24
    assert device_name("cameras", "rtsp://10.0.0.7", node=None) == f"cameras-{digest}"


def test_ak_03_a_device_that_is_not_shared_has_another_name_on_each_node() -> None:
    names = {device_name("cameras", "video1", node=node) for node in (None, "node-a", "node-b")}
    assert len(names) == 3
