"""A node's token in foreign hands: what one node says of devices costs no other node its devices or its containers."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import pytest

from kerf_dra.api.kerf.discovery_objects import (
    DiscoveredDeviceObject,
    DiscoveryConfigurationObject,
    device_name,
)
from kerf_dra.api.model.metadata import ObjectMeta
from kerf_dra.driver.families.shared.objects import join_objects
from kerf_dra.driver.kubeletplugin.backends.discovered.handles import build_edits, build_handle
from tests.attack.kinds import cases

ID = "rtsp://10.0.0.7"
SHARED = device_name("cameras", ID, node=None)
OTHER = device_name("usb", "usb-1-1", node=None)


def configuration(name: str = "cameras", **spec: Any) -> DiscoveryConfigurationObject:
    handler = {"discoveryHandler": {"name": "static"}}
    return DiscoveryConfigurationObject(metadata=ObjectMeta(name=name, uid=name), spec={**handler, **spec})


def device(name: str = SHARED, *, labels: Mapping[str, str] | None = None, **spec: Any) -> DiscoveredDeviceObject:
    known = {"configurationName": "cameras", "deviceID": ID, "shared": True, "nodes": ["evil"]}
    return DiscoveredDeviceObject(
        metadata=ObjectMeta(name=name, uid=name, labels=dict(labels or {})), spec={**known, **spec}
    )


class Names(msgspec.Struct, frozen=True):
    """Names of environment variables."""

    names: Sequence[str]


@pytest.mark.parametrize(
    "case", cases("test_node_tokens.py::test_no_property_of_a_device_has_a_name_that_programs_read", Names)
)
def test_no_property_of_a_device_has_a_name_that_programs_read(case: Names) -> None:
    administrators = {"QUALITY": "high", case.names[0]: "administrator"}
    discovery = join_objects(
        [configuration(brokerProperties=administrators), configuration("usb")],
        [
            device(properties=dict.fromkeys(case.names, "evil")),
            device(OTHER, configurationName="usb", deviceID="usb-1-1", properties=dict.fromkeys(case.names, "evil")),
        ],
    )
    assert [*discovery.devices] == [SHARED, OTHER]
    for one in discovery.devices.values():
        variables = dict(each.split("=", 1) for each in build_edits(build_handle(one)).env)
        its = administrators if one.name == SHARED else {}
        assert {name: variables.get(name) for name in case.names} == {name: its.get(name) for name in case.names}
        assert [name for name, value in variables.items() if value == "evil"] == [
            f"{name}_{one.digest.upper()}" for name in case.names
        ]
