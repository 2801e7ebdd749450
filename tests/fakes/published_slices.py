"""Published devices of nodes, for tests: compiled as a node's plugin does."""

from collections.abc import Sequence
from dataclasses import replace

from kerf_dra.api.kerf.v1alpha1 import SHARING_ATTRIBUTES
from kerf_dra.api.model.device_attributes import pool_name
from kerf_dra.api.model.devices import Attribute, ResourcePool, ResourceSlice, ResourceSliceSpec
from kerf_dra.api.model.metadata import ObjectMeta
from kerf_dra.driver.families.fpga.geometry import fpga_geometry
from kerf_dra.driver.families.gpu.catalog import gpu_model
from kerf_dra.driver.families.gpu.geometry import gpu_geometry
from kerf_dra.driver.families.registry import BUILT_IN_BY_NAME
from kerf_dra.driver.kubeletplugin.backends.simulated.example_shells import shell
from kerf_dra.driver.partitions.geometry import Card
from kerf_dra.driver.partitions.pool_compiler import SliceLayout, compile_pool
from kerf_dra.driver.partitions.publish_order import publish_order
from kerf_dra.driver.partitions.shared_devices import ShareableProfiles, order_shared_partitions


def gpus(model: str, count: int = 1, *, driver_version: str = "580.65.6", sharing: Sequence[str] = ()) -> list[Card]:
    """GPUs that do the strategies ``sharing``."""
    return [
        Card(
            uuid=f"GPU-{model}-{index}",
            index=index,
            geometry=gpu_geometry(gpu_model(model)),
            pci_bus_id=f"0000:{index:02x}:00.0",
            numa_node=0,
            driver_version=driver_version,
            attributes={SHARING_ATTRIBUTES[strategy]: Attribute.of(True) for strategy in sharing},
        )
        for index in range(count)
    ]


def fpgas(name: str, count: int = 1) -> list[Card]:
    return [
        Card(
            uuid=f"FPGA-{name}-{index}",
            index=index,
            geometry=fpga_geometry(shell(name)),
            pci_bus_id=f"0000:{64 + index:02x}:00.0",
            numa_node=0,
            driver_version="6.8.0",
            loaded={},
        )
        for index in range(count)
    ]


def slices(
    node: str,
    cards: list[Card],
    *,
    driver: str = "",
    generation: int = 1,
    shareable: ShareableProfiles = frozenset(),
) -> list[ResourceSlice]:
    """What the plugin of ``node`` publishes; cards of one family. ``driver`` is another than the family's."""
    kind = str(cards[0].kind)
    driver = driver or f"{kind}.kerf.dev"
    cards = [_on(node, card) for card in cards]
    vocabulary = BUILT_IN_BY_NAME[kind].vocabulary
    shared = order_shared_partitions(cards, publish_order(cards, ()).partitions, shareable, ())
    compiled = compile_pool(
        pool_name(node, kind), node, cards, vocabulary=vocabulary, layout=SliceLayout.SPLIT, shared=shared
    )
    contents = compiled.pool.slices
    pool = ResourcePool(name=pool_name(node, kind), generation=generation, resource_slice_count=len(contents))
    return [
        ResourceSlice(
            metadata=ObjectMeta(name=f"{index}-{node}-{kind}"),
            spec=ResourceSliceSpec(
                driver=driver,
                pool=pool,
                node_name=node,
                devices=content.devices,
                shared_counters=content.shared_counters,
            ),
        )
        for index, content in enumerate(contents)
    ]


def _on(node: str, card: Card) -> Card:
    """Cards of different nodes have different UUIDs."""
    return replace(card, uuid=f"{card.uuid}@{node}")
