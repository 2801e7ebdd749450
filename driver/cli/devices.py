"""``kerf devices``: the cards that this node's backends see, and the devices that would be published."""

from collections.abc import Iterator, Sequence

import click

from api.model.device_attributes import (
    ATTRIBUTE_FUNCTION,
    ATTRIBUTE_PROFILE,
    ATTRIBUTE_SIZE,
    ATTRIBUTE_START,
    CAPACITY_COMPUTE_SLICES,
    CAPACITY_MEMORY,
    CAPACITY_SLOTS,
    pool_name,
)
from api.model.devices import Device, Pool
from driver.cli.options import backend_option, option
from driver.cli.output import OutputFormat, format_table, output_option, print_document
from driver.kubeletplugin.backends.base import Backend
from driver.kubeletplugin.backends.registry import BackendChoice, load_backends
from driver.partitions.geometry import Card, DeviceKind
from driver.partitions.pool_compiler import compile_pool
from driver.partitions.slice_limits import SliceLayout

_HEADER = ("POOL", "DEVICE", "CUT", "PLACEMENT", "MEMORY", "COMPUTE", "SLOTS")


@click.command(short_help="Show what this node's backends see and what would be published.")
@backend_option
@option("--node-name", default="this-node", help="Name of the node, as in pools and attributes.")
@output_option
def command(backends: tuple[BackendChoice, ...], node_name: str, output: OutputFormat) -> None:
    """Show the cards that the backends see, and every device that would be published, in publish order."""
    cards = _discover(load_backends(backends))
    pools = list(_pools(node_name, cards))
    if output != "text":
        print_document({"cards": cards, "pools": pools}, output)
        return
    rows = [_row(pool.name, device) for pool in pools for slice_ in pool.slices for device in slice_.devices]
    click.echo(format_table(_HEADER, rows))
    click.echo(f"\n{len(cards)} cards, {len(rows)} devices in {sum(len(pool.slices) for pool in pools)} slices")


def _discover(backends: Sequence[Backend]) -> list[Card]:
    return [card for backend in backends for card in backend.discover()]


def _pools(node_name: str, cards: Sequence[Card]) -> Iterator[Pool]:
    for kind in DeviceKind:
        of_kind = [card for card in cards if card.kind is kind]
        if of_kind:
            yield compile_pool(pool_name(node_name, kind), node_name, of_kind, layout=SliceLayout.SPLIT).pool


def _row(pool: str, device: Device) -> tuple[object, ...]:
    attributes = {name: attribute.value for name, attribute in device.attributes.items()}
    start, size = attributes[ATTRIBUTE_START], attributes[ATTRIBUTE_SIZE]
    return (
        pool,
        device.name,
        attributes[ATTRIBUTE_PROFILE] or attributes[ATTRIBUTE_FUNCTION] or "-",
        f"{start}:{size}",
        device.capacity[CAPACITY_MEMORY].value,
        device.capacity[CAPACITY_COMPUTE_SLICES].value,
        device.capacity[CAPACITY_SLOTS].value,
    )
