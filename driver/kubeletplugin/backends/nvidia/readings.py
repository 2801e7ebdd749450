"""What NVML reports, as values."""

from dataclasses import dataclass
from enum import IntEnum

from kerf_dra.driver.families.gpu.model import Engines
from kerf_dra.driver.partitions.geometry import Placement


@dataclass(frozen=True, slots=True, kw_only=True)
class MigMode:
    """The MIG mode of a card."""

    is_on: bool
    is_on_later: bool
    """The mode after a reset of the card or a boot; another one than now: it is pending."""


class ComputeMode(IntEnum):
    """Which processes may use a card (NVML_COMPUTEMODE_*)."""

    DEFAULT = 0
    """Any number of processes."""
    EXCLUSIVE_THREAD = 1
    PROHIBITED = 2
    EXCLUSIVE_PROCESS = 3
    """One process, which with MPS is its server."""


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
    is_filled: bool
    """Whether it has one compute instance, with all its compute slices."""

    @property
    def uuid(self) -> str:
        """The UUID of its first MIG device; empty: it has none yet."""
        return self.compute_instances[0][1] if self.compute_instances else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessReading:
    """A process that uses a card."""

    pid: int
    instance: int | None
    """Id of the GPU instance; None: outside of all instances."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConditionReading:
    """What a card that answers says of its own health."""

    has_pending_rows: bool = False
    """Whether rows of its memory are remapped at the next reset."""
    has_failed_rows: bool = False
    """Whether rows of its memory could not be remapped."""
    recovery_action: int | None = None
    """NVML_GPU_RECOVERY_ACTION_*, 0 for none; None: the driver does not report it (before R565)."""
    is_too_hot: bool = False
    """Whether the hardware has lowered the clocks because of the temperature."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventReading:
    """An event of a card."""

    card_uuid: str | None
    """None: of a card that no longer says which it is."""
    xid: int | None
    """None: something else, such as a change of instances."""
    instance: int | None
    """Id of the GPU instance; None: the whole card."""
