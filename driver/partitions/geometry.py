"""The values that describe cards and their partitions: profiles, placements, shells, slots, cards.

GPUs and FPGAs have one model: a card is a row of *units* (memory slices of a GPU, slots of an FPGA), and a partition
covers a contiguous run of them, its *placement*. Two partitions of a card can coexist when their placements are
disjoint and together they need no more exclusive engines than there are. The tables are loaded in ``catalog``.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, TypeAlias


class Placement(NamedTuple):
    """A run of ``size`` units from unit ``start`` (0-based)."""

    start: int
    size: int

    @property
    def units(self) -> range:
        return range(self.start, self.start + self.size)

    def overlaps(self, other: "Placement") -> bool:
        return self.start < other.start + other.size and other.start < self.start + self.size


class DeviceKind(StrEnum):
    """The kind of a card; the value is the device attribute ``kind``."""

    GPU = "gpu"
    FPGA = "fpga"


@dataclass(frozen=True, slots=True, kw_only=True)
class Engines:
    """Fixed-function engines of a GPU or one of its partitions (counts)."""

    copy: int = 0
    decoders: int = 0
    encoders: int = 0
    jpeg: int = 0
    ofa: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """A MIG GPU-instance profile."""

    name: str
    """The name as NVIDIA prints it: ``1g.10gb``, ``1g.24gb+me.all``."""
    gi_profile_id: int | None
    """The id in the hardware (not the enum of the API); None where no source states it."""
    gi_profile_enum: int
    """The index that ``nvmlDeviceGetGpuInstanceProfileInfo`` takes."""
    compute_slices: int
    memory_bytes: int
    multiprocessors: int
    engines: Engines
    placements: tuple[Placement, ...]
    """All legal placements, ascending by start."""
    max_instances: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuModel:
    """The geometry of one GPU product."""

    id: str
    """The id in lower case, such as ``h100-80gb-sxm``."""
    product: str
    architecture: str
    pci_device_ids: tuple[str, ...]
    memory_bytes: int
    """The memory of the whole card."""
    compute_slices: int
    memory_slices: int
    multiprocessors: int
    engines: Engines
    exclusive_engines: tuple[str, ...]
    """The fields of Engines that partitions compete for beyond their placements (``ofa`` for +me profiles)."""
    profiles: tuple[Profile, ...]
    """The profiles, the smallest first."""

    def profile(self, name: str) -> Profile | None:
        return next((profile for profile in self.profiles if profile.name == name), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Logic:
    """FPGA resources of a slot or a run of slots (counts)."""

    lut: int = 0
    ff: int = 0
    bram: int = 0
    dsp: int = 0

    def __add__(self, other: "Logic") -> "Logic":
        return Logic(
            lut=self.lut + other.lut, ff=self.ff + other.ff, bram=self.bram + other.bram, dsp=self.dsp + other.dsp
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Function:
    """A function that can be loaded into a shell, with one image for each placement that it was built for."""

    name: str
    version: str
    afu_id: str
    """The UUID that the hardware reports once the function runs."""
    placements: tuple[Placement, ...]
    load_s: float
    """The load time in seconds that the image's vendor states; simulated hardware takes exactly this long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shell:
    """The static design of an FPGA: its slots and the functions built for it."""

    name: str
    uuid: str
    """The interface UUID: an image with another parent must not be loaded."""
    family: str
    slots: tuple[Logic, ...]
    """The logic of each slot, by the number of the slot."""
    functions: tuple[Function, ...]

    def function(self, name: str) -> Function | None:
        return next((function for function in self.functions if function.name == name), None)

    def logic(self, placement: Placement) -> Logic:
        return sum((self.slots[slot] for slot in placement.units), Logic())


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuCard:
    """A GPU of the node that can be partitioned."""

    uuid: str
    index: int
    """The minor number of the driver, which is part of device names and must not change while the node is up."""
    model: GpuModel
    pci_bus_id: str
    numa_node: int
    driver_version: str

    @property
    def kind(self) -> DeviceKind:
        return DeviceKind.GPU

    @property
    def units(self) -> int:
        return self.model.memory_slices


@dataclass(frozen=True, slots=True, kw_only=True)
class FpgaCard:
    """An FPGA of the node with its shell."""

    uuid: str
    index: int
    shell: Shell
    pci_bus_id: str
    numa_node: int
    driver_version: str
    loaded: Mapping[Placement, str]
    """The functions that are loaded now, by placement, which can be allocated there without a load."""

    @property
    def kind(self) -> DeviceKind:
        return DeviceKind.FPGA

    @property
    def units(self) -> int:
        return len(self.shell.slots)


Card: TypeAlias = GpuCard | FpgaCard


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """The part of a card, or the whole card, that a published device represents.

    A GPU partition has a profile and a placement; an FPGA one a placement and, unless the claim's config names it, a
    function. Without a placement it is the whole card.
    """

    kind: DeviceKind
    card_uuid: str
    profile: str | None = None
    placement: Placement | None = None
    function: str | None = None
    shared: bool = False
    """Whether several claims may hold the partition (KEP-5075)."""

    @property
    def is_whole(self) -> bool:
        return self.placement is None

    def overlaps(self, other: "Partition") -> bool:
        """Whether the two partitions have units of the same card in common."""
        if self.card_uuid != other.card_uuid:
            return False
        if self.placement is None or other.placement is None:
            return True
        return self.placement.overlaps(other.placement)
