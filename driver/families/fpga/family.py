"""The family ``fpga``: FPGAs into whose slots functions are loaded (partial reconfiguration)."""

from collections.abc import Iterator
from types import MappingProxyType
from typing import Final

from api.kerf.fpga_objects import FPGA_IMAGES, FPGA_SHELLS
from api.kerf.v1alpha1 import FpgaConfig
from api.model.devices import Attribute
from api.model.names import DriverName
from driver.families.base import COMMON_ATTRIBUTES, AttributeDefinition, Family
from driver.families.fpga.catalog import shell, shell_figures, shells
from driver.families.fpga.geometry import KIND, fpga_geometry
from driver.partitions.geometry import Geometry

_TEXT: Final = Attribute.of("")
_NUMBER: Final = Attribute.of(0)


def _geometries() -> Iterator[Geometry]:
    return map(fpga_geometry, shells())


def _resolve_model(name: str) -> str:
    return shell(name).name


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
            "imageDigest": AttributeDefinition(
                description="The SHA-256 of the file that a load of the function takes; empty: there is none.",
                neutral=_TEXT,
            ),
            "refusedImages": AttributeDefinition(
                description="Functions of the card's interface that the node cannot load, each with the reason.",
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
        }
    ),
    minimums=("slots", "lut", "dsp"),
    class_fields=frozenset({"minimum", "function", "config"}),
    configurations=MappingProxyType({"FpgaConfig": FpgaConfig}),
    default_configuration="FpgaConfig",
    geometries=_geometries,
    figures=shell_figures,
    resolve_model=_resolve_model,
    backends=MappingProxyType(
        {
            "simulated": "driver.kubeletplugin.backends.simulated:open_fpgas",
            "dfl": "driver.kubeletplugin.backends.dfl:open_backend",
            "slots": "driver.kubeletplugin.backends.slots:open_backend",
        }
    ),
    description_kinds=(FPGA_SHELLS, FPGA_IMAGES),
    call_timeout_s=3700.0,
)
"""The timeout: above the 3600 s that a FpgaConfig may allow for one load."""
