"""The vocabulary of devices that nodes find by discovery."""

from types import MappingProxyType
from typing import Final

from kerf_dra.api.kerf.discovery_objects import DISCOVERED_DEVICES, DISCOVERY_CONFIGURATIONS
from kerf_dra.api.model import device_attributes as v
from kerf_dra.api.model.devices import Attribute
from kerf_dra.api.model.names import DriverName
from kerf_dra.driver.families.base import AttributeDefinition, Family
from kerf_dra.driver.families.shared.node_labels import make_selector

CAPACITY_USERS: Final = "users"
"""The capacity of which each claim's share takes one."""
ATTRIBUTE_MULTI_NODE: Final = "multiNode"

SHARED: Final = Family(
    name="shared",
    driver=DriverName("shared.kerf.dev"),
    attributes=MappingProxyType(
        {
            v.ATTRIBUTE_CUT: AttributeDefinition(description="Always whole.", neutral=Attribute.of("")),
            v.ATTRIBUTE_MODEL: AttributeDefinition(
                description="The DiscoveryConfiguration by which it was found.", neutral=Attribute.of("")
            ),
            v.ATTRIBUTE_UUID: AttributeDefinition(
                description="The name of its DiscoveredDevice.", neutral=Attribute.of("")
            ),
            "node": AttributeDefinition(
                description="The node that has it; empty for a device that several nodes may reach.",
                neutral=Attribute.of(""),
            ),
            ATTRIBUTE_MULTI_NODE: AttributeDefinition(
                description="Whether several nodes may reach it.", neutral=Attribute.of(False)
            ),
        }
    ),
    capacities=MappingProxyType({CAPACITY_USERS: "The claims that may have it at a time; each takes one."}),
    backends=MappingProxyType({"discovered": "kerf_dra.driver.kubeletplugin.backends.discovered:open_backend"}),
    description_kinds=(DISCOVERY_CONFIGURATIONS, DISCOVERED_DEVICES),
    select_descriptions=lambda node: {DISCOVERED_DEVICES.kind: make_selector(node)},
    is_network_attached=True,
    call_timeout_s=30.0,
)
"""The timeout: nothing is done to a device."""
