"""``kerf devices``: the cards that this node's backends see, what is on them, and what would be published.

It reads no records of a plugin, so it cannot say who made what is on a card.
"""

import re
import shutil
import textwrap
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Final

import click

from api.errors import KerfError
from api.model.device_attributes import pool_name
from api.model.devices import Device, Pool
from driver.cli.options import backend_option, family_option, option
from driver.cli.output import EXIT_FAILED, OutputFormat, format_table, output_option, print_document
from driver.families.base import Family
from driver.kubeletplugin.backends.base import CardSurvey, FoundPartition
from driver.kubeletplugin.backends.registry import BackendChoice, FamilyChoice, choose_families, load_backends
from driver.kubeletplugin.backends.survey_validation import survey_card
from driver.partitions.device_names import card_name
from driver.partitions.geometry import Card
from driver.partitions.pool_compiler import compile_pool
from driver.partitions.slice_limits import SliceLayout

_UNIT: Final = re.compile(r".+-(\d+)")
"""A counter of one unit of a card, such as ``memory-slice-3``."""
_NAMES: Final = ("profile", "function", "cut")
"""The attributes of which the first that is not empty names a device's part of the card."""
_INDENT: Final = "  "
"""The indentation of the further lines of a long one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FamilyDevices:
    """The cards of one family, what is on them, and the pool that would be published."""

    family: Family
    cards: tuple[Card, ...]
    surveys: tuple[CardSurvey, ...]
    """What is on each card now, whoever made it; a card whose survey failed has none."""
    problems: tuple[str, ...]
    """The surveys that failed."""
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
    """Show the cards that the backends see, what is on them now, and every device in publish order.

    The devices are those that would be published if nothing were on the cards. What is there may be Kerf's or
    somebody else's: the events of the Node say which. Nothing is changed, also beside a running plugin.

    A family whose backend fails, and a card that cannot be surveyed, are named on standard error, and the others are
    shown. Exit code 1: one has failed.
    """
    found: list[FamilyDevices] = []
    problems: list[str] = []
    for choice in choose_families(families, backends):
        try:
            each = _find_devices(choice, node_name)
        except Exception as error:  # noqa: BLE001  (backends are third parties': the others are shown)
            problems.append(f"family {choice.family.name}: {_describe(error)}")
            continue
        found.append(each)
        problems += each.problems
    for problem in problems:
        click.echo(f"kerf: {problem}", err=True)
    if output == "text":
        click.echo("\n\n".join("\n".join(_lines(each)) for each in found))
    else:
        print_document({"families": [_document(each) for each in found]}, output)
    return EXIT_FAILED if problems else 0


def _find_devices(choice: FamilyChoice, node_name: str) -> FamilyDevices:
    cards: list[Card] = []
    surveys: list[CardSurvey] = []
    problems: list[str] = []
    with ExitStack() as opened:
        for backend in load_backends(choice.family, choice.backends):
            backend.open()
            opened.callback(backend.close)
            for card in backend.discover():
                cards.append(card)
                try:
                    surveys.append(survey_card(backend, card.uuid, card.units))
                except Exception as error:  # noqa: BLE001  (as above: the other cards are shown)
                    problems.append(f"card {card_name(card)} cannot be surveyed: {_describe(error)}")
    name = pool_name(node_name, choice.family.name)
    words = choice.family.vocabulary
    pool = compile_pool(name, node_name, cards, vocabulary=words, layout=SliceLayout.SPLIT).pool if cards else None
    return FamilyDevices(
        family=choice.family, cards=tuple(cards), surveys=tuple(surveys), problems=tuple(problems), pool=pool
    )


def _describe(error: Exception) -> str:
    return str(error) if isinstance(error, KerfError) else repr(error)


def _lines(found: FamilyDevices) -> Iterator[str]:
    """Yield a title, what is on the cards, and a table with a column for each capacity that classes may limit."""
    if found.pool is None:
        yield f"{found.family.driver}: no cards"
        return
    slices, devices = len(found.pool.slices), found.devices
    yield f"{found.family.driver}, pool {found.pool.name}"
    yield f"{_count(len(found.cards), 'card')}, {_count(len(devices), 'device')} in {_count(slices, 'slice')}"
    names = {card.uuid: card_name(card) for card in found.cards}
    for survey in found.surveys:
        for line in _survey_lines(survey):
            yield textwrap.fill(
                f"{names[survey.card_uuid]}: {line}",
                shutil.get_terminal_size().columns,
                subsequent_indent=_INDENT,
                break_on_hyphens=False,
            )
    header = ("DEVICE", "CUT", "PLACEMENT", *(name.upper() for name in found.family.minimums))
    yield format_table(header, (_row(found.family, device) for device in devices))


def _survey_lines(survey: CardSurvey) -> Iterator[str]:
    for partition in survey.partitions:
        static = ", static" if partition.is_static else ""
        yield f"on the card now: {partition}{static}{_use(partition)}"
    if survey.no_whole:
        yield f"cannot be had whole: {survey.no_whole}"
    if survey.no_partitions:
        yield f"cannot be had in partitions: {survey.no_partitions}"


def _use(partition: FoundPartition) -> str:
    if partition.in_use is None:
        return ""
    return ", in use" if partition.in_use else ", not in use"


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
    return family | {"cards": found.cards, "surveys": found.surveys, "pool": found.pool}
