"""``kerf devices``: the cards that this node's backends see, what is on them, and what would be published.

Who holds what is on a card, the records of this node's plugin say, where there are any.
"""

import re
import shutil
import textwrap
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

import click

from kerf_dra.api.checkpoint.v1 import CheckpointError
from kerf_dra.api.errors import KerfError
from kerf_dra.api.model.base import JsonObject
from kerf_dra.api.model.device_attributes import pool_name
from kerf_dra.api.model.devices import Device, Pool
from kerf_dra.api.wire import to_builtins
from kerf_dra.driver.cli.node.checkpoint import state_folder
from kerf_dra.driver.cli.node.survey_pictures import RESOURCE, build_survey_picture
from kerf_dra.driver.cli.options import backend_option, card_options, family_option, option, state_options
from kerf_dra.driver.cli.output import (
    EXIT_FAILED,
    OutputFormat,
    describe_error,
    format_table,
    output_formats,
    print_document,
    print_text,
)
from kerf_dra.driver.cli.terminal_pictures import draw_in_terminal
from kerf_dra.driver.families.base import Family
from kerf_dra.driver.kubeletplugin.backends.base import (
    Backend,
    BusReader,
    CardSurvey,
    FoundPartition,
    HealthChange,
    InstallingBackend,
    UnlistedCard,
)
from kerf_dra.driver.kubeletplugin.backends.card_selection import CardEntry, mark_kept_out
from kerf_dra.driver.kubeletplugin.backends.ownership import came_later
from kerf_dra.driver.kubeletplugin.backends.registry import (
    BackendChoice,
    FamilyChoice,
    choose_families,
    load_backends,
    select_cards,
)
from kerf_dra.driver.kubeletplugin.backends.survey_validation import survey_card
from kerf_dra.driver.kubeletplugin.checkpoint_copy import has_checkpoint, open_copy
from kerf_dra.driver.kubeletplugin.maintenance.work_file import FILE_NAME, WorkFileError, WorkRecord, read_records
from kerf_dra.driver.partitions.device_names import card_name
from kerf_dra.driver.partitions.geometry import Card, Partition
from kerf_dra.driver.partitions.pool_compiler import compile_pool
from kerf_dra.driver.partitions.records import from_card_part
from kerf_dra.driver.partitions.slice_limits import SliceLayout
from kerf_dra.driver.runtime.boot import read_boot_id

_UNIT: Final = re.compile(r".+-(\d+)")
"""A counter of one unit of a card, such as ``memory-slice-3``."""
_NAMES: Final = ("profile", "function", "cut")
"""The attributes of which the first that is not empty names a device's part of the card."""
_INDENT: Final = "  "
"""The indentation of the further lines of a long one."""


class _Made(NamedTuple):
    """What the records say of one device."""

    holder: str
    """The claim, or the extended resource."""
    partition: Partition
    notes: Mapping[str, Any]
    """Those of its prepare."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptOutCard:
    """A card that is not to be published."""

    card: Card
    reason: str
    holders: tuple[str, ...]
    """The claims and extended resources that have some of it, until they end."""

    def __str__(self) -> str:
        place = f", {self.card.pci_bus_id}" if self.card.pci_bus_id else ""
        held = f"; in use until it ends: {', '.join(self.holders)}" if self.holders else ""
        return f"{card_name(self.card)} ({self.card.uuid}{place}): {self.reason}{held}"


@dataclass(frozen=True, slots=True, kw_only=True)
class FamilyDevices:
    """The cards of one family, what is on them, and the pool that would be published."""

    family: Family
    cards: tuple[Card, ...]
    surveys: tuple[CardSurvey, ...]
    """What is on each card now, whatever made it; a card whose survey failed has none."""
    unhealthy: tuple[HealthChange, ...]
    """What is wrong with cards and partitions."""
    holders: Mapping[str, Mapping[str, str]] | None
    """The claims, or the extended resource, by card and by id of what is on it, where the records say that it was made
    for them; None: there are no records."""
    whole_holders: Mapping[str, str]
    """The claims, or the extended resource, that have whole cards, by card: hardware does not show it."""
    problems: tuple[str, ...]
    """The surveys that failed, and records that cannot be read."""
    pool: Pool | None
    """None: there is no card."""
    unlisted: tuple[UnlistedCard, ...] = ()
    """The cards on the machine's bus that no backend lists."""
    kept_out: tuple[KeptOutCard, ...] = ()
    unknown: tuple[str, ...] = ()
    """The cards that are included or excluded and not there, as ``BACKEND=CARD``."""
    maintenances: Mapping[str, str] = field(default_factory=dict)
    """What the node does, or has done last, with cards in maintenance, by UUID."""

    @property
    def devices(self) -> list[Device]:
        return [device for slice_ in self.pool.slices for device in slice_.devices] if self.pool else []


class DiscoveryFailedError(KerfError):
    """A backend of a family does not open, or cannot discover its cards."""

    def __init__(self, reason: str, unlisted: Iterable[UnlistedCard]) -> None:
        self.unlisted = tuple(unlisted)
        """The cards on the machine's bus that its backends would list."""
        super().__init__(reason)


@click.command(short_help="Show what this node's backends see and what would be published.")
@family_option
@backend_option
@card_options
@state_options
@option("--node-name", default="this-node", help="Name of the node, as in pools and attributes.")
@output_formats("text", "json", "yaml", "name")
def command(
    families: tuple[str, ...],
    backends: tuple[BackendChoice, ...],
    include_cards: tuple[CardEntry, ...],
    exclude_cards: tuple[CardEntry, ...],
    kubelet_root: Path,
    state_dir: Path | None,
    node_name: str,
    output: OutputFormat,
) -> int:
    """Show the cards that the backends see, what is on them now, and every device in publish order.

    The devices are those that would be published if nothing were on the cards. For which claim or extended resource a
    partition was made is read from a copy of the plugin's records; without records it is not known. Nothing is changed,
    also beside a running plugin.

    A card on the machine's bus that a backend does not list, because another driver or none has it, is named with what
    to do. A family whose backend fails, a card that cannot be surveyed, and records that cannot be read are named on
    standard error, and the rest is shown. Exit code 1: one has failed.
    """
    found: list[FamilyDevices] = []
    problems: list[str] = []
    for choice in choose_families(families, select_cards(backends, include_cards, exclude_cards)):
        try:
            each = find_devices(choice, node_name, state_folder(choice.family, kubelet_root, state_dir))
        except Exception as error:  # noqa: BLE001  (backends are third parties': the others are shown)
            problems.append(f"family {choice.family.name}: {describe_error(error)}")
            unlisted = error.unlisted if isinstance(error, DiscoveryFailedError) else ()
            problems += map(_describe_unlisted, unlisted)
            continue
        found.append(each)
        problems += each.problems
    unknown = [
        f"{choice} is included or excluded, and there is no such card" for each in found for choice in each.unknown
    ]
    for problem in (*problems, *unknown):
        print_text(f"kerf: {problem}", err=True)
    if output == "text":
        if not found:
            print_text("")
        for number, each in enumerate(found):
            print_text("\n".join(([""] if number else []) + [*_lines(each)]))
            if each.pool is not None:
                for line in _draw_cards(each, each.pool):
                    click.echo(line)
                print_text(_format_devices(each))
    elif output == "name":
        print_text(
            "\n".join(f"{each.pool.name}/{device.name}" for each in found if each.pool for device in each.devices)
        )
    else:
        print_document({"families": [_document(each) for each in found]}, output)
    return EXIT_FAILED if problems else 0


def find_devices(choice: FamilyChoice, node_name: str, state: Path) -> FamilyDevices:
    """Return what the backends of ``choice`` see now; ``state`` is the folder of the family's checkpoint.

    Raises DiscoveryFailedError, and the KerfError of a backend that cannot be made.
    """
    cards: list[Card] = []
    surveys: list[CardSurvey] = []
    unhealthy: list[HealthChange] = []
    problems: list[str] = []
    unlisted: list[UnlistedCard] = []
    kept_out: list[tuple[Card, str]] = []
    unknown: list[str] = []
    with ExitStack() as opened:
        for chosen, backend in zip(choice.backends, load_backends(choice.family, choice.backends), strict=True):
            found = _open_and_discover(backend, opened)
            on_bus = _list_unlisted(backend, found, problems)
            unlisted += (mark_kept_out(card, chosen.cards) for card in on_bus)
            addresses = [card.pci_address for card in on_bus]
            unknown += (f"{chosen.name}={text}" for text in chosen.cards.list_unknown(found, addresses))
            kept_out += ((card, reason) for card in found if (reason := chosen.cards.find_reason(card)))
            for card in found:
                if chosen.cards.find_reason(card):
                    continue
                cards.append(card)
                try:
                    surveys.append(survey_card(backend, card.uuid, card.units))
                except Exception as error:  # noqa: BLE001  (as above: the other cards are shown)
                    problems.append(f"card {card_name(card)} cannot be surveyed: {describe_error(error)}")
            unhealthy += [change for change in backend.wait_for_events(0) if isinstance(change, HealthChange)]
    made = None
    try:
        made = _read_made(state)
    except (CheckpointError, OSError) as error:
        problems.append(describe_error(error))
    acts: Sequence[WorkRecord] = ()
    try:
        acts = read_records(state / FILE_NAME)
    except WorkFileError as error:
        problems.append(describe_error(error))
    name = pool_name(node_name, choice.family.name)
    words = choice.family.vocabulary
    pool = compile_pool(name, node_name, cards, vocabulary=words, layout=SliceLayout.SPLIT).pool if cards else None
    return FamilyDevices(
        family=choice.family,
        cards=tuple(cards),
        surveys=tuple(surveys),
        unhealthy=tuple(unhealthy),
        holders=None if made is None else _find_holders(surveys, made),
        whole_holders=_find_whole_holders(made or ()),
        problems=tuple(problems),
        pool=pool,
        unlisted=tuple(unlisted),
        kept_out=tuple(_describe_kept_out(card, reason, made or ()) for card, reason in kept_out),
        unknown=tuple(unknown),
        maintenances={record.card_uuid: str(record) for record in acts},
    )


def _open_and_discover(backend: Backend, opened: ExitStack) -> Sequence[Card]:
    """Open a backend, which ``opened`` closes, and return its cards. Raises DiscoveryFailedError."""
    try:
        if isinstance(backend, InstallingBackend):
            backend.look_only()
        backend.open()
        opened.callback(backend.close)
        return backend.discover()
    except Exception as error:  # (backends are third parties')
        raise DiscoveryFailedError(describe_error(error), _list_unlisted(backend, (), [])) from error


def _list_unlisted(backend: Backend, cards: Sequence[Card], problems: list[str]) -> Sequence[UnlistedCard]:
    """Return the cards on the bus that ``backend`` does not list; why they are not known goes to ``problems``."""
    try:
        return backend.list_unlisted(cards) if isinstance(backend, BusReader) else ()
    except Exception as error:  # noqa: BLE001  (as above)
        problems.append(f"backend {backend.name} cannot say which cards are on the bus: {describe_error(error)}")
        return ()


def _read_made(state: Path) -> Sequence[_Made] | None:
    """Return what the records say was made for whom; None: there are none. Raises CheckpointError and OSError."""
    if not has_checkpoint(state):
        return None
    boot_id = read_boot_id()
    with open_copy(state, boot_id=boot_id) as checkpoint:
        return [
            _Made(
                f"{RESOURCE} {record.resource}" if record.resource else str(record.claim),
                from_card_part(device.part),
                checkpoint.journal(uid, device.share, boot_id).notes,
            )
            for uid, record in checkpoint.records.items()
            for device in record.devices
        ]


def _find_holders(surveys: Iterable[CardSurvey], made: Sequence[_Made]) -> Mapping[str, Mapping[str, str]]:
    """Return the claims, or the extended resource, for which partitions were made, by card and id."""

    def names(card_uuid: str, found: FoundPartition) -> str:
        return ", ".join(
            holder
            for holder, partition, notes in made
            if partition.card_uuid == card_uuid
            and found.matches(partition)
            and (found.is_static or came_later(notes, found.id))
        )

    return {
        survey.card_uuid: {found.id: names(survey.card_uuid, found) for found in survey.partitions}
        for survey in surveys
    }


def _find_whole_holders(made: Iterable[_Made]) -> dict[str, str]:
    """Return the claims, or the extended resource, that have whole cards or shares of them, by card."""
    holders: dict[str, dict[str, None]] = defaultdict(dict)
    for each in made:
        if each.partition.is_whole:
            holders[each.partition.card_uuid][each.holder] = None
    return {card: ", ".join(names) for card, names in holders.items()}


def _describe_kept_out(card: Card, reason: str, made: Sequence[_Made]) -> KeptOutCard:
    holders = dict.fromkeys(each.holder for each in made if each.partition.card_uuid == card.uuid)
    return KeptOutCard(card=card, reason=reason, holders=tuple(holders))


def _lines(found: FamilyDevices) -> Iterator[str]:
    """Yield a title, the cards, and what is on them."""
    if found.pool is None:
        yield f"{found.family.driver}: no cards"
        if found.family.is_network_attached:
            yield f"{_INDENT}what nodes find by discovery is in the cluster: kubectl get discovereddevices"
        yield from _list_others(found)
        return
    slices, devices = len(found.pool.slices), found.devices
    yield f"{found.family.driver}, pool {found.pool.name}"
    yield f"{_count(len(found.cards), 'card')}, {_count(len(devices), 'device')} in {_count(slices, 'slice')}"
    surveys = {survey.card_uuid: survey for survey in found.surveys}
    for card in found.cards:
        place = f", {card.pci_bus_id}" if card.pci_bus_id else ""
        lines = [f"{card.geometry.model}, {card.uuid}{place}"]
        if card.uuid in surveys:
            lines += _survey_lines(surveys[card.uuid], found)
        if card.uuid in found.maintenances:
            lines.append(f"in maintenance: {found.maintenances[card.uuid]}")
        yield from (_fill(f"{card_name(card)}: {line}") for line in lines)
    yield from _list_others(found)


def _draw_cards(found: FamilyDevices, pool: Pool) -> list[str]:
    """Draw what is on the cards that could be surveyed."""
    surveys = {survey.card_uuid: survey for survey in found.surveys}
    return draw_in_terminal(
        build_survey_picture(
            card,
            surveys[card.uuid],
            None if found.holders is None else found.holders[card.uuid],
            found.unhealthy,
            driver=found.family.driver,
            pool=pool.name,
            whole_holder=found.whole_holders.get(card.uuid, ""),
        )
        for card in found.cards
        if card.uuid in surveys
    )


def _format_devices(found: FamilyDevices) -> str:
    """Return a table with a column for each capacity that classes may limit."""
    header = ("DEVICE", "CUT", "PLACEMENT", *(name.upper() for name in found.family.minimums))
    return format_table(header, (_row(found.family, device) for device in found.devices))


def _list_others(found: FamilyDevices) -> Iterator[str]:
    yield from (_fill(f"kept out: {card}") for card in found.kept_out)
    yield from (_fill(f"not listed: {_describe_unlisted(card)}") for card in found.unlisted)


def _fill(line: str) -> str:
    width = shutil.get_terminal_size().columns
    return textwrap.fill(line, width, subsequent_indent=_INDENT, break_on_hyphens=False)


def _describe_unlisted(card: UnlistedCard) -> str:
    return f"{card}; {card.next_step}"


def _survey_lines(survey: CardSurvey, devices: FamilyDevices) -> Iterator[str]:
    for change in devices.unhealthy:
        if change.card_uuid == survey.card_uuid:
            part = change.partition
            what = f"{part.profile} " if part and part.profile else ""
            where = f" ({what}at {part.placement.start})" if part and part.placement else ""
            yield f"{change.state}{where}: {change.reason}"
    for found in survey.partitions:
        static = ", static" if found.is_static else ""
        yield f"on the card now: {found}{static}{_use(found)}{_holder(found, survey, devices)}"
    if survey.no_whole:
        yield f"not available whole: {survey.no_whole}"
    if survey.no_partitions:
        yield f"not available in partitions: {survey.no_partitions}"


def _use(partition: FoundPartition) -> str:
    if partition.in_use is None:
        return ""
    return ", in use" if partition.in_use else ", not in use"


def _holder(found: FoundPartition, survey: CardSurvey, devices: FamilyDevices) -> str:
    if devices.holders is None:
        return ""
    holder = devices.holders[survey.card_uuid][found.id]
    if holder:
        return f", of {holder}" if holder.startswith(RESOURCE) else f", of claim {holder}"
    return "" if found.is_static else ", in use outside of Kerf"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _row(family: Family, device: Device) -> tuple[object, ...]:
    amounts = (device.capacity[name].value if name in device.capacity else "-" for name in family.minimums)
    return device.name, _cut(device), _placement(device), *amounts


def _cut(device: Device) -> str:
    values = (attribute.string for name in _NAMES if (attribute := device.attributes.get(name)) is not None)
    return next((value for value in values if value), "-")


def _placement(device: Device) -> str:
    """Return first unit and number of units, such as ``4:2``, or units with gaps, such as ``0,2``; ``-``: the device
    takes none.
    """
    names = (name for consumed in device.consumes_counters for name in consumed.counters)
    units = [int(match[1]) for name in names if (match := _UNIT.fullmatch(name))]
    if not units:
        return "-"
    has_gaps = len(units) <= max(units) - min(units)
    return ",".join(map(str, sorted(units))) if has_gaps else f"{min(units)}:{len(units)}"


def _survey_document(survey: CardSurvey) -> JsonObject:
    """Return the survey with the units of each partition, whatever a placement is inside of Kerf."""
    document: JsonObject = to_builtins(survey)
    for found, written in zip(survey.partitions, document["partitions"], strict=True):
        if (placement := found.placement) is not None:
            written["placement"] = {"units": [*placement.units], "layout": placement.layout}
    return document


def _document(found: FamilyDevices) -> dict[str, Any]:
    family = {"name": found.family.name, "driver": found.family.driver}
    return family | {
        "cards": found.cards,
        "surveys": [_survey_document(survey) for survey in found.surveys],
        "unhealthy": found.unhealthy,
        "holders": found.holders,
        "pool": found.pool,
        "unlisted": found.unlisted,
        "maintenances": {**found.maintenances},
        "kept_out": [
            {
                "uuid": each.card.uuid,
                "pci_address": each.card.pci_bus_id,
                "reason": each.reason,
                "holders": each.holders,
            }
            for each in found.kept_out
        ],
    }
