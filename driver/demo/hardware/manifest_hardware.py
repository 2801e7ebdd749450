"""The hardware that manifests describe or need, beside the simulated cards that every node of a demo has. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from kerf_dra.api.kerf.discovery_objects import DISCOVERY_CONFIGURATIONS
from kerf_dra.api.kerf.fpga_objects import FPGA_IMAGES, FPGA_SHELLS
from kerf_dra.api.model.base import JsonObject
from kerf_dra.driver.families.fpga.descriptions import Description, build_descriptions
from kerf_dra.driver.families.gpu_intel import GPU_INTEL

HARDWARE_KINDS: Final = (FPGA_SHELLS.kind, FPGA_IMAGES.kind, DISCOVERY_CONFIGURATIONS.kind)
"""The kinds by which administrators describe hardware; shells come before the images that are built for them."""
_FPGA_KINDS: Final = HARDWARE_KINDS[:2]


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestHardware:
    """The hardware that manifests describe or need."""

    descriptions: tuple[JsonObject, ...] = ()
    """The FpgaShells and FpgaImages."""
    discovers: bool = False
    """Whether a DiscoveryConfiguration is among the manifests, so that nodes have to look for devices."""
    has_intel_gpus: bool = False
    """Whether they name Intel's GPUs, which nodes have beside the cards of every demo."""

    @property
    def shells(self) -> tuple[str, ...]:
        """The names of the FpgaShells: every node has cards with each."""
        return tuple(one["metadata"]["name"] for one in self.descriptions if one["kind"] == FPGA_SHELLS.kind)

    def find_faults(self) -> tuple[str, ...]:
        """Return what is wrong with the descriptions as a whole, such as an image for a shell that is not described."""
        named = (Description(f"{one['kind']} {one['metadata']['name']}", one) for one in self.descriptions)
        return build_descriptions(named).problems


def find_manifest_hardware(bodies: Iterable[JsonObject]) -> ManifestHardware:
    """Return the hardware that valid manifests describe or need."""
    bodies = tuple(bodies)
    return ManifestHardware(
        descriptions=tuple(body for body in bodies if body["kind"] in _FPGA_KINDS),
        discovers=any(body["kind"] == DISCOVERY_CONFIGURATIONS.kind for body in bodies),
        has_intel_gpus=any(map(_names_intel_gpus, bodies)),
    )


def _names_intel_gpus(value: object) -> bool:
    """Whether a document has the family or the driver of Intel's GPUs in a field, also within an expression."""
    match value:
        case str():
            return value == GPU_INTEL.name or GPU_INTEL.driver in value
        case Mapping():
            return any(map(_names_intel_gpus, value.values()))
        case list():
            return any(map(_names_intel_gpus, value))
        case _:
            return False
