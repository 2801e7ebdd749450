"""Clusters of DGX-like nodes for the allocator's bench, and the measurement of ours in a process of its own.

A node has eight H100 with every MIG placement published: 208 devices in 5 slices. ``python -m
tests.bench.cluster_workload NODES [SCENARIO …]`` prints the figures and where each claim went as one JSON object.
"""

import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from kerf_dra.api.model.allocations import AllocationResult, DeviceAllocationResult, ResourceClaimStatus
from kerf_dra.api.model.allocations import DeviceRequestAllocationResult as Result
from kerf_dra.api.model.base import JsonObject
from kerf_dra.api.model.claims import (
    CelSelector,
    DeviceClaim,
    DeviceClass,
    DeviceClassSpec,
    DeviceRequest,
    DeviceSelector,
    ExactDeviceRequest,
    ResourceClaim,
    ResourceClaimSpec,
)
from kerf_dra.api.model.devices import ResourcePool, ResourceSlice, ResourceSliceSpec
from kerf_dra.api.model.metadata import ObjectMeta
from kerf_dra.api.wire import dec_hook, enc_hook
from kerf_dra.driver.allocation import Budget, ClusterAllocator, Features, NodeAllocation, NodeView, PoolIndex
from kerf_dra.driver.families.gpu import GPU
from kerf_dra.driver.families.gpu.catalog import gpu_model
from kerf_dra.driver.families.gpu.geometry import gpu_geometry
from kerf_dra.driver.partitions.geometry import Card
from kerf_dra.driver.partitions.pool_compiler import compile_pool
from kerf_dra.driver.partitions.slice_limits import SliceLayout

DRIVER: Final = "gpu.kerf.dev"
CARDS: Final = 8
_PLACEHOLDER: Final = "n-00000"
FEATURES: Final = Features()
_ATTRIBUTES: Final = f'device.attributes["{DRIVER}"]'
_MEMORY: Final = f'device.capacity["{DRIVER}"].memory'


def _class(name: str, expression: str) -> DeviceClass:
    selector = DeviceSelector(cel=CelSelector(expression=expression))
    return DeviceClass(metadata=ObjectMeta(name=name), spec=DeviceClassSpec(selectors=(selector,)))


CLASSES: Final = {
    "gpu": _class("gpu", f'device.driver == "{DRIVER}"'),
    "partition": _class("partition", f'device.driver == "{DRIVER}" && {_ATTRIBUTES}.cut == "partition"'),
}


class Kind(NamedTuple):
    """The request of a pod, without its minimum of memory."""

    class_: str
    selector: str
    """Beside the one for memory; may be empty."""
    memory: int
    """Most that may be asked for, in MiB."""
    devices: int = 1


KINDS: Final = (
    Kind("partition", f'{_ATTRIBUTES}.profile == "1g.10gb"', 9_984),
    Kind("gpu", f'{_ATTRIBUTES}.profile == "2g.20gb"', 20_096),
    Kind("partition", f'{_ATTRIBUTES}.profile in ["3g.40gb", "4g.40gb"]', 40_448),
    Kind("gpu", f'{_ATTRIBUTES}.profile == ""', 81_559),
    Kind("partition", "", 20_096),
    Kind("gpu", f'{_ATTRIBUTES}.profile == "1g.10gb"', 9_984, devices=2),
)
"""What pods ask for, in turns."""

MOST_CLAIMS: Final = 6000
"""In one scenario: no two claims of all scenarios are the same question, so nothing remembered answers another."""

SCENARIOS: Final[Mapping[str, str]] = {
    "empty": "nothing is taken",
    "spread": "4 of 8 cards are taken on each node",
    "fragmented": "a 3g.40gb is taken on each card",
    "packed": "the first half of the nodes is full",
    "full": "everything is taken",
}


def node_name(number: int) -> str:
    return f"n-{number:05d}"


def slices(nodes: int) -> Iterator[bytes]:
    """All slices as JSON, node after node."""
    templates = [msgspec.json.encode(slice_, enc_hook=enc_hook) for slice_ in _slices()]
    for number in range(nodes):
        name = node_name(number).encode()
        for template in templates:
            yield template.replace(_PLACEHOLDER.encode(), name)


def _slices() -> list[ResourceSlice]:
    cards = [
        Card(
            uuid=f"GPU-{_PLACEHOLDER}-{index}",
            index=index,
            geometry=gpu_geometry(gpu_model("h100-80gb-sxm")),
            pci_bus_id=f"0000:{index:02x}:00.0",
            numa_node=index // (CARDS // 2),
            driver_version="570.86.15",
        )
        for index in range(CARDS)
    ]
    pool = compile_pool(
        f"{_PLACEHOLDER}/gpu", _PLACEHOLDER, cards, vocabulary=GPU.vocabulary, layout=SliceLayout.SPLIT
    ).pool
    return [
        ResourceSlice(
            metadata=ObjectMeta(name=f"{position}-{_PLACEHOLDER}"),
            spec=ResourceSliceSpec(
                driver=DRIVER,
                pool=ResourcePool(name=pool.name, generation=1, resource_slice_count=len(pool.slices)),
                node_name=_PLACEHOLDER,
                devices=content.devices,
                shared_counters=content.shared_counters,
            ),
        )
        for position, content in enumerate(pool.slices)
    ]


def taken(scenario: str, nodes: int) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The devices that are taken on each node at the start."""
    for number in range(nodes):
        match scenario:
            case "spread":
                held = [f"gpu-{index}" for index in range(CARDS // 2)]
            case "fragmented":
                held = [f"gpu-{index}-3g-40gb-at-4" for index in range(CARDS)]
            case "full":
                held = [f"gpu-{index}" for index in range(CARDS)]
            case "packed" if number < nodes // 2:
                held = [f"gpu-{index}" for index in range(CARDS)]
            case _:
                held = []
        yield node_name(number), tuple(held)


def claim(number: int) -> ResourceClaim:
    """Return the claim of that number: the kinds alternate, and each has a minimum of memory of its own."""
    return _claim(number, KINDS[number % len(KINDS)])


def nothing() -> ResourceClaim:
    """Return a claim that no device satisfies."""
    return _claim(0, Kind("gpu", "", 1_000_000))


def _claim(number: int, kind: Kind) -> ResourceClaim:
    enough = f'{_MEMORY}.compareTo(quantity("{kind.memory * 1024 - number}Ki")) >= 0'
    expression = " && ".join(filter(None, (kind.selector, enough)))
    request = ExactDeviceRequest(
        device_class_name=kind.class_,
        count=kind.devices,
        selectors=(DeviceSelector(cel=CelSelector(expression=expression)),),
    )
    return ResourceClaim(
        metadata=ObjectMeta(name=f"c-{number}", namespace="default"),
        spec=ResourceClaimSpec(devices=DeviceClaim(requests=(DeviceRequest(name="r", exactly=request),))),
    )


def claims(scenario: str, count: int) -> Iterator[ResourceClaim]:
    """Return the claims of a scenario, which no other scenario has."""
    first = [*SCENARIOS].index(scenario) * MOST_CLAIMS
    assert count <= MOST_CLAIMS
    return map(claim, range(first, first + count))


def _holding(node: str, devices: Sequence[str]) -> ResourceClaim:
    results = tuple(Result(request="r", driver=DRIVER, pool=f"{node}/gpu", device=device) for device in devices)
    allocation = AllocationResult(devices=DeviceAllocationResult(results=results))
    return ResourceClaim(
        metadata=ObjectMeta(name=node, namespace="taken"), status=ResourceClaimStatus(allocation=allocation)
    )


class _Reader:
    """Decodes slices one by one, and knows how long that took."""

    def __init__(self, nodes: int) -> None:
        self._encoded = slices(nodes)
        self.seconds = 0.0

    def __iter__(self) -> Iterator[ResourceSlice]:
        decoder = msgspec.json.Decoder(ResourceSlice, dec_hook=dec_hook)
        while True:
            begin = time.perf_counter()
            encoded = next(self._encoded, None)
            decoded = None if encoded is None else decoder.decode(encoded)
            self.seconds += time.perf_counter() - begin
            if decoded is None:
                return
            yield decoded


def memory_mb() -> float:
    """Return the resident memory of this process."""
    with open("/proc/self/statm", encoding="ascii") as file:  # noqa: PTH123  (a line of the kernel's, not a file)
        return int(file.read().split()[1]) * 4096 / 1e6


def measure(nodes: int, scenarios: Sequence[str], count: int) -> JsonObject:
    before_mb = memory_mb()
    reader = _Reader(nodes)
    views = [NodeView(node_name(number), {}) for number in range(nodes)]
    begin = time.perf_counter()
    cluster = ClusterAllocator(FEATURES, PoolIndex.build(reader), nodes=views)
    cluster.place([nothing()], CLASSES, share_id=str, budget=Budget())  # looks at every node
    index_s = time.perf_counter() - begin - reader.seconds
    figures: JsonObject = {"index_s": index_s, "memory_mb": memory_mb() - before_mb}
    figures["slice_ms"] = [_slice_ms(cluster, encoded) for encoded in islice(slices(nodes), 100)]
    figures["claim_ms"] = [_claim_ms(cluster, number) for number in range(100)]
    figures["scenarios"] = {name: _play(cluster, name, nodes, count) for name in scenarios}
    return figures


def _slice_ms(cluster: ClusterAllocator, encoded: bytes) -> float:
    changed = msgspec.json.decode(encoded, type=ResourceSlice, dec_hook=dec_hook)
    begin = time.perf_counter()
    cluster.set_slice(changed)
    return (time.perf_counter() - begin) * 1000


def _claim_ms(cluster: ClusterAllocator, number: int) -> float:
    comes = _holding(node_name(number % CARDS), ["gpu-0"])
    begin = time.perf_counter()
    cluster.set_claim(comes)
    seconds = time.perf_counter() - begin
    cluster.remove_claim(comes.ref)
    return seconds * 1000


def _play(cluster: ClusterAllocator, scenario: str, nodes: int, count: int) -> JsonObject:
    """Place claim after claim; the time of each includes the record of its allocation."""
    held = [_holding(node, devices) for node, devices in taken(scenario, nodes)]
    for each in held:
        cluster.set_claim(each)
    cluster.place([nothing()], CLASSES, share_id=str, budget=Budget())  # sees what has come
    places, seconds = [], []
    asked = [*claims(scenario, count)]
    for each in asked:
        begin = time.perf_counter()
        placement = cluster.place([each], CLASSES, share_id=str, budget=Budget())
        if isinstance(placement, NodeAllocation):
            cluster.set_claim(replace(each, status=ResourceClaimStatus(allocation=placement.results[0])))
        seconds.append(time.perf_counter() - begin)
        places.append([placement.node, *_devices(placement)] if isinstance(placement, NodeAllocation) else None)
    for each in (*held, *asked):
        cluster.remove_claim(each.ref)
    return {"seconds": seconds, "places": places}


def _devices(placement: NodeAllocation) -> list[str]:
    return [result.device for result in placement.results[0].devices.results]


if __name__ == "__main__":
    number, count, *names = sys.argv[1:]
    print(json.dumps(measure(int(number), names or list(SCENARIOS), int(count))))
