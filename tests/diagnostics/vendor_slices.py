"""Slices of other vendors' drivers, in the shapes in which they publish them, without their data."""

from collections.abc import Sequence
from typing import Final

from kerf_dra.api.model.claims import DeviceClass
from kerf_dra.api.model.devices import (
    Attribute,
    Capacity,
    Counter,
    CounterSet,
    Device,
    DeviceCounterConsumption,
    DeviceTaint,
    ResourcePool,
    ResourceSlice,
    ResourceSliceSpec,
)
from kerf_dra.api.model.metadata import ObjectMeta
from kerf_dra.api.model.quantity import Quantity
from tests.fakes.cluster_states import device_class

NVIDIA: Final = "gpu.nvidia.com"
INTEL: Final = "gpu.intel.com"
DRANET: Final = "dra.net"
EXAMPLE: Final = "gpu.example.com"
AMD: Final = "gpu.amd.com"
HAMI: Final = "hami-core-gpu.project-hami.io"

MIG_CLASS: Final = device_class(
    "mig.nvidia.com", f"device.driver == '{NVIDIA}' && device.attributes['{NVIDIA}'].type == 'mig'"
)
GPU_CLASS: Final = device_class(
    "gpu.nvidia.com", f"device.driver == '{NVIDIA}' && device.attributes['{NVIDIA}'].type == 'gpu'"
)
INTEL_CLASS: Final = device_class("gpu.intel.com", f"device.driver == '{INTEL}'")
NIC_CLASS: Final = device_class("dranet", f"device.driver == '{DRANET}'")
CLASSES: Final[Sequence[DeviceClass]] = (MIG_CLASS, GPU_CLASS, INTEL_CLASS, NIC_CLASS)

_PROFILES: Final = (
    ("1g.10gb", 19, 16, 9856, 1, range(7)),
    ("2g.20gb", 14, 32, 19968, 2, (0, 2, 4)),
    ("3g.40gb", 9, 60, 40192, 4, (0, 4)),
    ("7g.80gb", 0, 132, 80896, 8, (0,)),
)
"""Profile, GPU instance profile id, multiprocessors, MiB, memory slices, starts: some of an H100 80GB's."""


def nvidia_slices(node: str, cards: int = 1) -> list[ResourceSlice]:
    """Return what NVIDIA's driver publishes with DynamicMIG from 1.35 on: counters, then one slice for each GPU."""
    contents: list[tuple[tuple[Device, ...], tuple[CounterSet, ...]]] = [
        ((), tuple(_nvidia_counters(minor) for minor in range(cards))),
        *((_nvidia_devices(minor), ()) for minor in range(cards)),
    ]
    return [_slice(NVIDIA, node, number, len(contents), *content) for number, content in enumerate(contents)]


def intel_slices(node: str, gpus: int = 2) -> list[ResourceSlice]:
    """Return what Intel's driver publishes: whole GPUs with memory and millicores, and taints of ill ones."""
    devices = [
        Device(
            name=f"0000-{number:02x}-00-0-0x56c0",
            attributes={
                "model": Attribute.of("Flex170"),
                "family": Attribute.of("Data Center Flex"),
                "resource.kubernetes.io/pcieRoot": Attribute.of(f"pci0000:{number:02x}"),
            },
            capacity={"memory": _capacity("16Gi"), "millicores": _capacity("1k")},
            taints=(DeviceTaint(key="gpu.intel.com/unhealthy", value="memory", effect="NoExecute"),) if number else (),
        )
        for number in range(gpus)
    ]
    return [_slice(INTEL, node, 0, 1, tuple(devices))]


def dranet_slices(node: str, interfaces: int = 2) -> list[ResourceSlice]:
    """Return what dranet publishes: the network interfaces of a node, without capacities."""
    devices = [
        Device(
            name=f"eth{number}",
            attributes={
                f"{DRANET}/ifName": Attribute.of(f"eth{number}"),
                f"{DRANET}/rdma": Attribute.of(number == 0),
                f"{DRANET}/mtu": Attribute.of(1500),
            },
        )
        for number in range(interfaces)
    ]
    return [_slice(DRANET, node, 0, 1, tuple(devices))]


def example_slices(node: str, gpus: int = 8) -> list[ResourceSlice]:
    """Return what Kubernetes' example of a driver publishes: whole devices with memory."""
    devices = [
        Device(
            name=f"gpu-{number}",
            attributes={
                "index": Attribute.of(number),
                "model": Attribute.of("LATEST-GPU-MODEL"),
                "uuid": Attribute.of(f"gpu-{number}"),
            },
            capacity={"memory": _capacity("80Gi")},
        )
        for number in range(gpus)
    ]
    return [_slice(EXAMPLE, node, 0, 1, tuple(devices))]


def amd_slices(node: str, gpus: int = 2) -> list[ResourceSlice]:
    """Return what AMD's driver publishes of cards that an administrator has partitioned: no counters, a PCI address."""
    devices = [
        Device(
            name=f"gpu-{8 * gpu + part}-{128 + 8 * gpu + part}",
            attributes={
                "type": Attribute.of("amdgpu-partition"),
                "productName": Attribute.of("AMD_Instinct_MI300X"),
                "partitionProfile": Attribute.of("cpx_nps4"),
                "resource.kubernetes.io/pciBusID": Attribute.of(f"0000:{gpu:02x}:00.0"),
            },
            capacity={"memory": _capacity("24Gi"), "computeUnits": _capacity("38")},
        )
        for gpu in range(gpus)
        for part in range(8)
    ]
    return [_slice(AMD, node, 0, 1, tuple(devices))]


def amd_mode_slices(node: str, gpus: int = 2) -> list[ResourceSlice]:
    """Return what AMD's driver publishes where it partitions: a device for each mode, and a counter of one for a card.

    Claims share a device, up to its partitions (consumable capacity).
    """
    modes = {"spx-nps1": 1, "dpx-nps2": 2, "cpx-nps1": 8, "cpx-nps4": 8}
    devices = [
        Device(
            name=f"gpu-{gpu}-{mode}",
            attributes={"computePartition": Attribute.of(mode[:3]), "memoryPartition": Attribute.of(mode[4:])},
            capacity={"partitions": _capacity(str(count)), "memory": _capacity(f"{192 // count}Gi")},
            allow_multiple_allocations=True,
            consumes_counters=(
                DeviceCounterConsumption(counter_set=f"gpu-{gpu}-mutex", counters={"partition-mode": _counter(1)}),
            ),
        )
        for gpu in range(gpus)
        for mode, count in modes.items()
    ]
    counters = [CounterSet(name=f"gpu-{gpu}-mutex", counters={"partition-mode": _counter(1)}) for gpu in range(gpus)]
    return [_slice(AMD, node, 0, 2, (), tuple(counters)), _slice(AMD, node, 1, 2, tuple(devices))]


def hami_slices(node: str, gpus: int = 2) -> list[ResourceSlice]:
    """Return what HAMi's driver publishes: cards of which claims have shares of cores and memory."""
    devices = [
        Device(
            name=f"hami-gpu-{number}",
            attributes={"type": Attribute.of("hami-gpu"), "productName": Attribute.of("NVIDIA A10")},
            capacity={"cores": _capacity("100"), "memory": _capacity("23028Mi")},
            allow_multiple_allocations=True,
        )
        for number in range(gpus)
    ]
    return [_slice(HAMI, node, 0, 1, tuple(devices))]


def _slice(
    driver: str,
    node: str,
    number: int,
    of: int,
    devices: tuple[Device, ...],
    counters: tuple[CounterSet, ...] = (),
) -> ResourceSlice:
    return ResourceSlice(
        metadata=ObjectMeta(name=f"{node}-{driver}-{number}"),
        spec=ResourceSliceSpec(
            driver=driver,
            pool=ResourcePool(name=node, generation=1, resource_slice_count=of),
            node_name=node,
            devices=devices,
            shared_counters=counters,
        ),
    )


def _nvidia_counters(minor: int) -> CounterSet:
    slices = {f"memory-slice-{number}": _counter(1) for number in range(8)}
    amounts = {"multiprocessors": _counter(132), "copy-engines": _counter(8), "memory": _counter("80896Mi")}
    return CounterSet(name=f"gpu-{minor}-counter-set", counters=amounts | slices)


def _nvidia_devices(minor: int) -> tuple[Device, ...]:
    parent = {"parentUUID": Attribute.of(f"GPU-{minor}"), "type": Attribute.of("mig")}
    partitions = [
        Device(
            name=f"gpu-{minor}-mig-{profile.replace('.', '')}-{profile_id}-{start}",
            attributes=parent | {"profile": Attribute.of(profile)},
            capacity={"memory": _capacity(f"{memory}Mi"), "multiprocessors": _capacity(str(processors))},
            consumes_counters=(_consumption(minor, processors, memory, range(start, min(start + size, 8))),),
        )
        for profile, profile_id, processors, memory, size, starts in _PROFILES
        for start in starts
    ]
    whole = Device(
        name=f"gpu-{minor}",
        attributes={"uuid": Attribute.of(f"GPU-{minor}"), "type": Attribute.of("gpu")},
        capacity={"memory": _capacity("80896Mi")},
        consumes_counters=(_consumption(minor, 132, 80896, range(8)),),
    )
    return whole, *partitions


def _consumption(minor: int, processors: int, memory: int, slices: Sequence[int]) -> DeviceCounterConsumption:
    taken = {f"memory-slice-{number}": _counter(1) for number in slices}
    amounts = {"multiprocessors": _counter(processors), "memory": _counter(f"{memory}Mi")}
    return DeviceCounterConsumption(counter_set=f"gpu-{minor}-counter-set", counters=amounts | taken)


def _counter(amount: str | int) -> Counter:
    return Counter(value=Quantity(amount))


def _capacity(amount: str) -> Capacity:
    return Capacity(value=Quantity(amount))
