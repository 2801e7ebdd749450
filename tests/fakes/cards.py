"""Small cards: a GPU of four slices, which can be shared, and an FPGA of two slots, enough for every kind of device."""

from kerf_dra.api.kerf.v1alpha1 import SHARING_ATTRIBUTES
from kerf_dra.api.model.devices import Attribute
from kerf_dra.driver.families.fpga.geometry import fpga_geometry
from kerf_dra.driver.families.fpga.shell import Function, Logic, Shell
from kerf_dra.driver.families.gpu.geometry import gpu_geometry
from kerf_dra.driver.families.gpu.model import Engines, GpuModel, Profile
from kerf_dra.driver.partitions.geometry import Card, Placement

_GIB = 2**30


def _profile(slices: int, starts: tuple[int, ...]) -> Profile:
    return Profile(
        name=f"{slices}g.{slices}gb",
        gi_profile_id=None,
        gi_profile_enum=slices,
        compute_slices=slices,
        memory_bytes=slices * _GIB,
        multiprocessors=10 * slices,
        engines=Engines(copy=slices),
        placements=tuple(Placement(start, slices) for start in starts),
        max_instances=len(starts),
    )


GPU_MODEL = GpuModel(
    id="toy-4gb",
    product="Toy 4GB",
    architecture="toy",
    cuda_compute_capability="1.0",
    pci_device_ids=(),
    memory_bytes=4 * _GIB,
    compute_slices=4,
    memory_slices=4,
    multiprocessors=40,
    engines=Engines(copy=4),
    exclusive_engines=(),
    profiles=(_profile(1, (0, 1, 2, 3)), _profile(2, (0, 2)), _profile(4, (0,))),
)
SHELL = Shell(
    name="toy-shell",
    uuid="9d1c1f0e-8f5b-4d0e-9e8c-0c8a9a3b7f01",
    family="toy",
    slots=(Logic(lut=1000), Logic(lut=1000)),
    functions=(
        Function(
            name="aes",
            version="1.0.0",
            afu_id="9d1c1f0e-8f5b-4d0e-9e8c-0c8a9a3b7f02",
            placements=(Placement(0, 1), Placement(1, 1)),
            load_s=0.2,
        ),
    ),
)


def gpu(index: int) -> Card:
    return Card(
        uuid=f"GPU-{index}",
        index=index,
        geometry=gpu_geometry(GPU_MODEL),
        pci_bus_id=f"0000:0{index}:00.0",
        numa_node=0,
        driver_version="1.0.0",
        attributes={name: Attribute.of(True) for name in SHARING_ATTRIBUTES.values()},
    )


def fpga(index: int) -> Card:
    return Card(
        uuid=f"FPGA-{index}",
        index=index,
        geometry=fpga_geometry(SHELL),
        pci_bus_id=f"0000:1{index}:00.0",
        numa_node=0,
        driver_version="1.0.0",
    )
