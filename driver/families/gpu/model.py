"""GPU models and their MIG profiles, as NVIDIA describes them."""

from dataclasses import dataclass

from kerf_dra.driver.partitions.geometry import Placement


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
    other_names: tuple[str, ...] = ()
    """The names in other releases of the driver, which round the memory differently."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuModel:
    """One GPU product."""

    id: str
    """The id in lower case, such as ``h100-80gb-sxm``."""
    product: str
    """The product's name, as NVML reports it of a card."""
    other_products: tuple[str, ...] = ()
    """Products of other names that are cut alike, such as another board with the same GPU and memory."""
    architecture: str
    cuda_compute_capability: str
    """The CUDA compute capability, such as ``9.0``."""
    pci_device_ids: tuple[str, ...]
    memory_bytes: int
    """The memory of the whole card, NVML's total."""
    compute_slices: int
    memory_slices: int
    multiprocessors: int
    engines: Engines
    exclusive_engines: tuple[str, ...]
    """The fields of Engines that partitions compete for beyond their placements (``ofa`` for +me profiles)."""
    profiles: tuple[Profile, ...]
    """The profiles, the smallest first."""

    @property
    def products(self) -> frozenset[str]:
        return frozenset({self.product, *self.other_products})

    def profile(self, name: str) -> Profile | None:
        return next((profile for profile in self.profiles if profile.name == name), None)
