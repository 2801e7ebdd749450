"""Choices of partitions on which the rules are tested."""

from collections.abc import Iterable, Iterator
from dataclasses import replace

import pytest

from kerf_dra.driver.partitions.geometry import Card, Partition
from kerf_dra.driver.partitions.unit_map import get_unit_map
from kerf_dra.driver.testing.plugin import PluginStandIn


def smallest_partition(plugin: PluginStandIn) -> Partition:
    """Return the smallest partition of the first card, at its first place."""
    return plugin.machine.partitions(plugin.cards[0])[0]


def one_of_each_size(plugin: PluginStandIn, card: Card) -> list[Partition]:
    """Return the first partition of each profile and function, by its number of units."""
    return _one_of_each_size(plugin.machine.partitions(card))


def one_of_each_published_size(plugin: PluginStandIn, card: Card) -> list[Partition]:
    """Return the first partition of each profile and function, by its number of units, of all that are published."""
    return _one_of_each_size(published_partitions(plugin, card))


def published_partitions(plugin: PluginStandIn, card: Card) -> list[Partition]:
    """Return the partitions that ``card`` can be allocated as now."""
    survey = plugin.survey(card.uuid)
    partitions = (spec.of(card.uuid) for spec in card.geometry.specs)
    return [one for one in partitions if not survey.find_restriction(one)]


def _one_of_each_size(partitions: Iterable[Partition]) -> list[Partition]:
    found: dict[object, Partition] = {}
    for one in partitions:
        found.setdefault((one.profile, one.function, one.placement and one.placement.size), one)
    return list(found.values())


def side_by_side(plugin: PluginStandIn, card: Card) -> list[Partition]:
    """Return partitions that fill the card, as many as there is place for; skips the test when there is only one."""
    chosen = fill_card(plugin, card)
    if len(chosen) < 2:
        pytest.skip(f"card {card.uuid} has no two partitions side by side")
    return chosen


def fill_card(plugin: PluginStandIn, card: Card) -> list[Partition]:
    """Return partitions that fill the card, as many as there is place for."""
    chosen: list[Partition] = []
    for one in plugin.machine.partitions(card):
        if not one.is_whole and fits(card, one, chosen):
            chosen.append(one)
    return chosen


def fits(card: Card, partition: Partition, taken: Iterable[Partition]) -> bool:
    """Whether ``card`` has units and engines for ``partition`` while ``taken`` are in use, some of them on it."""
    unit_map = get_unit_map(card)
    free = unit_map.free([one for one in taken if one.card_uuid == card.uuid])
    return any(unit_map.fits(spec, free) for spec in unit_map.specs if spec.of(card.uuid) == partition)


def shareable_partitions(plugin: PluginStandIn, card: Card) -> Iterator[Partition]:
    """Yield the partitions of ``card`` of which several claims may have a share."""
    unit_map = get_unit_map(card)
    found = (one for one in published_partitions(plugin, card) if one.placement and unit_map.is_divisible(one))
    yield from (replace(one, shared=True) for one in found)
