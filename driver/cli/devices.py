"""``kerf devices``: the cards that this node's backends see, and the devices that would be published."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import click

from api.errors import KerfError
from api.model.device_attributes import pool_name
from api.model.devices import Device, Pool
from driver.cli.options import backend_option, family_option, option
from driver.cli.output import EXIT_FAILED, OutputFormat, format_table, output_option, print_document
from driver.families.base import Family
from driver.kubeletplugin.backends.base import Backend
from driver.kubeletplugin.backends.registry import BackendChoice, FamilyChoice, choose_families, load_backends
from driver.partitions.geometry import Card
from driver.partitions.pool_compiler import compile_pool
from driver.partitions.slice_limits import SliceLayout

_UNIT: Final = re.compile(r".+-(\d+)")
"""A counter of one unit of a card, such as ``memory-slice-3``."""
_NAMES: Final = ("profile", "function", "cut")
"""The attributes of which the first that is not empty names a device's part of the card."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FamilyDevices:
    """The cards of one family, and the pool that would be published."""

    family: Family
    cards: tuple[Card, ...]
    pool: Pool | None
    """None: there is no card."""

    @property
    def devices(self) -> list[Device]:
        return [device for slice_ in self.pool.slices for device in slice_.devices] if self.pool else []


@click.command(short_help="Show what this node's backends see and what would be published.")
@family_option
@backend_option
@option("--node-name", default="this-node", help="Name of the node, as in pools and attributes.")
@output_option
def command(
    families: tuple[str, ...], backends: tuple[BackendChoice, ...], node_name: str, output: OutputFormat
) -> int:
    """Show the cards that the backends see, and every device that would be published, in publish order.

    A family whose backend fails is named on standard error, and the others are shown. Exit code 1: one has failed.
    """
    found: list[FamilyDevices] = []
    failed = False
    for choice in choose_families(families, backends):
        try:
            found.append(_find_devices(choice, node_name))
        except KerfError as error:
            failed = True
            click.echo(f"kerf: family {choice.family.name}: {error}", err=True)
    if output == "text":
        click.echo("\n\n".join("\n".join(_lines(each)) for each in found))
    else:
        print_document({"families": [_document(each) for each in found]}, output)
    return EXIT_FAILED if failed else 0


def _find_devices(choice: FamilyChoice, node_name: str) -> FamilyDevices:
    cards = tuple(_discover(load_backends(choice.family, choice.backends)))
    name = pool_name(node_name, choice.family.name)
    words = choice.family.vocabulary
    pool = compile_pool(name, node_name, cards, vocabulary=words, layout=SliceLayout.SPLIT).pool if cards else None
    return FamilyDevices(family=choice.family, cards=cards, pool=pool)


def _discover(backends: Sequence[Backend]) -> list[Card]:
    return [card for backend in backends for card in backend.discover()]


def _lines(found: FamilyDevices) -> Iterator[str]:
    """Yield a title, and a table with a column for each capacity of which classes may set a minimum."""
    if found.pool is None:
        yield f"{found.family.driver}: no cards"
        return
    slices, devices = len(found.pool.slices), found.devices
    yield f"{found.family.driver}, pool {found.pool.name}"
    yield f"{_count(len(found.cards), 'card')}, {_count(len(devices), 'device')} in {_count(slices, 'slice')}"
    header = ("DEVICE", "CUT", "PLACEMENT", *(name.upper() for name in found.family.minimums))
    yield format_table(header, (_row(found.family, device) for device in devices))


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _row(family: Family, device: Device) -> tuple[object, ...]:
    amounts = (device.capacity[name].value if name in device.capacity else "-" for name in family.minimums)
    return device.name, _cut(device), _placement(device), *amounts


def _cut(device: Device) -> str:
    values = (attribute.string for name in _NAMES if (attribute := device.attributes.get(name)) is not None)
    return next((value for value in values if value), "-")


def _placement(device: Device) -> str:
    """Return first unit and number of units, such as ``4:2``; ``-``: the device takes none."""
    names = (name for consumed in device.consumes_counters for name in consumed.counters)
    units = [int(match[1]) for name in names if (match := _UNIT.fullmatch(name))]
    return f"{min(units)}:{len(units)}" if units else "-"


def _document(found: FamilyDevices) -> dict[str, Any]:
    family = {"name": found.family.name, "driver": found.family.driver}
    return family | {"cards": found.cards, "pool": found.pool}
