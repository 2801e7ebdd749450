"""What NVML reports, as values."""

from dataclasses import dataclass

from driver.families.gpu.model import Engines
from driver.partitions.geometry import Placement


@dataclass(frozen=True, slots=True, kw_only=True)
class MigMode:
    """The MIG mode of a card."""

    is_on: bool
    is_on_later: bool
    """The mode after a reset of the card or a boot; another one than now: it is pending."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CardReading:
    """A card as NVML describes it."""

    uuid: str
    product: str
    minor: int
    pci_address: str
    """The PCI address as Linux writes it, ``0000:3b:00.0``."""
    pci_device_id: str
    """The PCI device id, four hexadecimal digits."""
    memory_bytes: int
    """0: NVML does not report it, as of GPUs that use the machine's own memory."""
    architecture: str
    """In lower case, such as ``hopper``; ``unknown`` for one that this version of the bindings does not know."""
    cuda_compute_capability: str
    driver_version: str
    cuda_driver_version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileReading:
    """A GPU-instance profile of a card."""

    enum: int
    id: int
    name: str
    """The name without "MIG"; empty: a driver that does not report it."""
    compute_slices: int
    memory_bytes: int
    multiprocessors: int
    engines: Engines
    max_instances: int
    placements: tuple[Placement, ...]
    """All that the card allows, ascending; empty: the driver does not report them now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuInstanceReading:
    """A GPU instance on a card, and its compute instances."""

    id: int
    profile_id: int
    placement: Placement
    compute_instances: tuple[tuple[int, str], ...]
    """The id and the UUID of the MIG device of each."""

    @property
    def uuid(self) -> str:
        """The UUID of its first MIG device; empty: it has none yet."""
        return self.compute_instances[0][1] if self.compute_instances else ""
