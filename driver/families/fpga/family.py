"""The family ``fpga``: FPGAs into whose slots functions are loaded (partial reconfiguration)."""

from types import MappingProxyType
from typing import Final

from kerf_dra.api.kerf.fpga_objects import FPGA_IMAGES, FPGA_SHELLS
from kerf_dra.api.kerf.v1alpha1 import FpgaConfig
from kerf_dra.api.model import device_attributes as v
from kerf_dra.api.model.devices import Attribute
from kerf_dra.api.model.names import DriverName
from kerf_dra.driver.families.base import COMMON_ATTRIBUTES, AttributeDefinition, Family
from kerf_dra.driver.families.fpga.geometry import KIND

_TEXT: Final = Attribute.of("")
_NUMBER: Final = Attribute.of(0)


FPGA: Final = Family(
    name=KIND,
    driver=DriverName("fpga.kerf.dev"),
    attributes=MappingProxyType(
        {
            **COMMON_ATTRIBUTES,
            "function": AttributeDefinition(
                description="The function that is loaded for a claim; empty: none, or one that its FpgaConfig names.",
                neutral=_TEXT,
            ),
            "loadedFunction": AttributeDefinition(
                description="The function that the slots run now, and that needs no load; empty: none.", neutral=_TEXT
            ),
            "loadSeconds": AttributeDefinition(
                description="The seconds that a load takes, rounded up; without a function the slowest one's.",
                neutral=_NUMBER,
            ),
            "model": AttributeDefinition(description="The shell, such as quad.", neutral=_TEXT),
            "architecture": AttributeDefinition(description="The FPGA's family, such as agilex.", neutral=_TEXT),
            "interfaceUUID": AttributeDefinition(
                description="The shell's interface UUID: images with another parent are refused.", neutral=_TEXT
            ),
            v.ATTRIBUTE_LAYOUT: AttributeDefinition(
                description="The layout that the card must have for the device; empty: the first or only one.",
                neutral=_TEXT,
            ),
            v.ATTRIBUTE_SHARED: AttributeDefinition(
                description="Whether several claims may each hold a share of the device (KEP-5075).",
                neutral=Attribute.of(False),
            ),
            "imageDigest": AttributeDefinition(
                description="The SHA-256 of the file that a load of the function takes; empty: there is none.",
                neutral=_TEXT,
            ),
            "refusedImages": AttributeDefinition(
                description="Functions that the node cannot load, with reasons; of further layouts LAYOUT/FUNCTION.",
                neutral=_TEXT,
            ),
        }
    ),
    capacities=MappingProxyType(
        {
            "slots": "Slots: the units in which functions are loaded.",
            "lut": "Look-up tables.",
            "ff": "Flip-flops.",
            "bram": "Block RAMs.",
            "dsp": "DSP blocks.",
            v.CAPACITY_COMPUTE_UNIT_PERCENT: "The function's compute units, each of which is 100.",
        }
    ),
    divided=("computeUnitPercent",),
    minimums=("slots", "lut", "dsp"),
    class_fields=frozenset({"minimum", "function", "allocation", "config"}),
    configurations=MappingProxyType({"FpgaConfig": FpgaConfig}),
    default_configuration="FpgaConfig",
    backends=MappingProxyType(
        {
            "dfl": "kerf_dra.driver.kubeletplugin.backends.dfl:open_backend",
            "xrt": "kerf_dra.driver.kubeletplugin.backends.xrt:open_backend",
            "slots": "kerf_dra.driver.kubeletplugin.backends.slots:open_backend",
        }
    ),
    description_kinds=(FPGA_SHELLS, FPGA_IMAGES),
    call_timeout_s=3700.0,
)
"""The timeout: above the 3600 s that a FpgaConfig may allow for one load."""
