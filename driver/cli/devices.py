"""``kerf devices``: the cards that this node's backends see, and the devices that would be published."""

from collections.abc import Iterator, Sequence

import click

from api.model.base import JsonObject
from api.model.device_attributes import pool_name
from api.model.devices import Device
from driver.cli.options import backend_option, option
from driver.cli.output import OutputFormat, format_table, output_option, print_document
from driver.families.registry import installed_families
from driver.kubeletplugin.backends.base import Backend
from driver.kubeletplugin.backends.registry import BackendChoice, load_backends
from driver.partitions.geometry import Card, Partition
from driver.partitions.pool_compiler import CompiledPool, compile_pool
from driver.partitions.slice_limits import SliceLayout

_HEADER = ("POOL", "DEVICE", "CUT", "PLACEMENT", "CAPACITY")


@click.command(short_help="Show what this node's backends see and what would be published.")
@backend_option
@option("--node-name", default="this-node", help="Name of the node, as in pools and attributes.")
@output_option
def command(backends: tuple[BackendChoice, ...], node_name: str, output: OutputFormat) -> None:
    """Show the cards that the backends see, and every device that would be published, in publish order."""
    cards = _discover(load_backends(backends))
    pools = list(_pools(node_name, cards))
    if output != "text":
        print_document({"cards": list(map(_describe, cards)), "pools": [compiled.pool for compiled in pools]}, output)
        return
    rows = [
        _row(compiled.pool.name, device, compiled.partitions[device.name])
        for compiled in pools
        for slice_ in compiled.pool.slices
        for device in slice_.devices
    ]
    click.echo(format_table(_HEADER, rows))
    click.echo(f"\n{len(cards)} cards, {len(rows)} devices in {sum(len(each.pool.slices) for each in pools)} slices")


def _discover(backends: Sequence[Backend]) -> list[Card]:
    return [card for backend in backends for card in backend.discover()]


def _pools(node_name: str, cards: Sequence[Card]) -> Iterator[CompiledPool]:
    for family in installed_families().values():
        of_kind = [card for card in cards if card.kind == family.name]
        if of_kind:
            name = pool_name(node_name, family.name)
            yield compile_pool(name, node_name, of_kind, vocabulary=family.vocabulary, layout=SliceLayout.SPLIT)


def _describe(card: Card) -> JsonObject:
    """The card with the name of its model in place of the geometry, whose partitions are the devices."""
    return {"kind": card.kind, "model": card.geometry.model} | {
        name: getattr(card, name)
        for name in ("uuid", "index", "pci_bus_id", "pcie_root", "numa_node", "driver_version", "attributes")
    }


def _row(pool: str, device: Device, partition: Partition) -> tuple[object, ...]:
    placement = partition.placement
    amounts = (f"{name}={held.value}" for name, held in device.capacity.items() if held.value)
    return (
        pool,
        device.name,
        partition.profile or partition.function or "-",
        "-" if placement is None else f"{placement.start}:{placement.size}",
        ",".join(amounts),
    )
