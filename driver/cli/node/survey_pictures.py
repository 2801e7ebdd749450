"""Pictures of a node's cards as its backends survey them: what is on each card now, made by Kerf or not. Pure.

Slices and claims do not say what other programs hold; a survey does, and the records of the plugin say for which claim
or extended resource a partition was made.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from kerf_dra.driver.kubeletplugin.backends.base import CardSurvey, FoundPartition, HealthChange, HealthState
from kerf_dra.driver.partitions.card_pictures.card_picture import CardPicture, Unit, UnitRow, UnitState
from kerf_dra.driver.partitions.device_names import card_name
from kerf_dra.driver.partitions.geometry import Card, Layout, Placement

RESOURCE: Final = "extended resource"
"""How a holder begins that is no claim, before the name of the resource."""


def build_survey_picture(
    card: Card,
    survey: CardSurvey,
    holders: Mapping[str, str] | None,
    changes: Iterable[HealthChange] = (),
    *,
    driver: str,
    pool: str,
    whole_holder: str = "",
) -> CardPicture:
    """Return the picture of ``card``, which ``whole_holder`` has whole, unless it is empty.

    ``holders`` are the claims, or the extended resource, by the id of what is on the card; None: there are no records,
    so partitions are shown by their profiles. ``changes`` say what is wrong with the card and its partitions.
    """
    layout = _find_layout(card, survey)
    ill = [change for change in changes if change.card_uuid == card.uuid and change.state is not HealthState.HEALTHY]
    units = tuple(
        _read_unit(number, layout, survey, holders, ill)
        or _describe_rest(whole_holder, survey, [*_list_reasons(ill), *_list_reasons_of_unit(ill, number, layout)])
        for number in range(layout.units)
    )
    name = f"{layout.name}-{card.geometry.unit}" if layout.name else card.geometry.unit
    row = UnitRow(name=name, numbers=tuple(range(layout.units)), units=units)
    return CardPicture(node="", driver=driver, pool=pool, name=card_name(card), model=card.geometry.model, rows=(row,))


def _find_layout(card: Card, survey: CardSurvey) -> Layout:
    """Return the layout that partitions on the card are of, or else that with most units."""
    used = {found.placement.layout for found in survey.partitions if found.placement is not None}
    layouts = card.geometry.all_layouts
    return next((each for each in layouts if each.name in used), max(layouts, key=lambda layout: layout.units))


def _read_unit(
    number: int,
    layout: Layout,
    survey: CardSurvey,
    holders: Mapping[str, str] | None,
    ill: Sequence[HealthChange],
) -> Unit | None:
    """Return one unit; None: nothing is on it."""
    covering = [found for found in survey.partitions if _covers(found.placement, number, layout)]
    if not covering:
        return None
    found = min(covering, key=lambda each: each.placement is None)  # it says more than a use of the whole card
    own = [change for change in ill if change.partition is not None and found.matches(change.partition)]
    holder = None if holders is None else holders.get(found.id, "")
    return _describe(found, holder, [*_list_reasons(ill), *(change.reason for change in own)])


def _list_reasons(ill: Iterable[HealthChange]) -> list[str]:
    """Return what is wrong with the card as a whole."""
    return [change.reason for change in ill if change.partition is None]


def _list_reasons_of_unit(ill: Iterable[HealthChange], number: int, layout: Layout) -> list[str]:
    """Return what is wrong with the parts of the card that have this unit."""
    parts = [(change.partition, change.reason) for change in ill]
    return [reason for part, reason in parts if part is not None and _covers(part.placement, number, layout)]


def _describe_rest(holder: str, survey: CardSurvey, reasons: Sequence[str]) -> Unit:
    """Return the units on which there is nothing: hardware does not show that a claim has a whole card."""
    note = ", ".join(reasons)
    if holder.startswith(RESOURCE):
        note = ", ".join((holder.removeprefix(RESOURCE).strip(), *reasons))
        return Unit(state=UnitState.RESERVED, part="whole", note=note)
    if holder:
        names = tuple(holder.split(", "))
        state = UnitState.SHARED if len(names) > 1 else UnitState.HELD
        return Unit(state=state, holders=names, part="whole", note=note)
    if survey.no_whole and survey.no_partitions:
        return Unit(state=UnitState.WITHHELD)
    return Unit(state=UnitState.TAINTED, note=note) if reasons else Unit()


def _covers(placement: Placement | None, number: int, layout: Layout) -> bool:
    return placement is None or (placement.layout == layout.name and number in placement.units)


def _describe(found: FoundPartition, holder: str | None, reasons: Iterable[str]) -> Unit:
    """Return a unit of what is on the card. ``holder``: empty: no record has it; None: there are no records."""
    name = str(found)
    notes = [*(["static"] if found.is_static and (holder or holder is None) else []), *reasons]
    state, holders = UnitState.HELD, name if holder is None else holder
    if not holders:
        state = UnitState.STATIC if found.is_static else UnitState.FOREIGN
        notes.insert(0, name)
    elif holders.startswith(RESOURCE):
        state, holders = UnitState.RESERVED, ""
        notes.insert(0, str(holder).removeprefix(RESOURCE).strip())
    names = tuple(holders.split(", ")) if holders else ()
    return Unit(
        state=UnitState.SHARED if len(names) > 1 else state,
        holders=names,
        part=found.id,
        label=found.profile or "",
        note=", ".join(notes),
    )
