"""The placements that this node keeps for extended resources, apart from what it publishes for claims. Pure.

The scheduler counts what the kubelet lists of an extended resource before it chooses a node, and allocates claims from
slices: a placement that were in both would be given twice. So a placement goes through states, in this order, and back:

| state | in the slices | listed to the kubelet |
|---|---|---|
| published | yes | no |
| kept: chosen here, and left out of the slices | until they are written | no |
| listed: the slices were seen without it and all that excludes it, then no claim had any of it | no | yes |

What containers have is kept whatever else happens, until it is released. A placement that is free is given up at once
where a claim turns out to have a part of it (the scheduler may decide by slices that it has not seen change), where its
class wants fewer, or no longer selects it; then it is listed no more, and published again.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from kerf_dra.api.model.prepared import PreparedClaim
from kerf_dra.driver.kubeletplugin.inventory.plugin_resources import PluginResource
from kerf_dra.driver.partitions.geometry import Card, Partition
from kerf_dra.driver.partitions.publish_order import publish_order
from kerf_dra.driver.partitions.records import from_card_part
from kerf_dra.driver.partitions.unit_map import get_unit_map
from kerf_dra.driver.runtime.notifier import Notifier

Placements: TypeAlias = Mapping[str, tuple[Partition, ...]]
"""Partitions by extended resource, in the order in which they were chosen."""


class PlacementRules(Protocol):
    """What single placements are fit for."""

    def selects(self, resource: PluginResource, card: Card, partition: Partition) -> bool:
        """Whether the class of a resource selects a partition."""
        ...

    def is_healthy(self, partition: Partition) -> bool:
        """Whether a container may get a partition now."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ReservationContext:
    """What a choice of placements depends on."""

    cards: Sequence[Card]
    in_use: Placements
    """What containers have by extended resources."""
    taken: Collection[Partition]
    """What cannot be allocated: by claims of this node or of the API server, or by another program."""
    can_grow: bool
    """Whether placements may be chosen that are not kept yet: it is known what claims have."""
    rules: PlacementRules


def choose_placements(resources: Iterable[PluginResource], kept: Placements, state: ReservationContext) -> Placements:
    """Return what is kept for each resource, given what was ``kept`` before.

    What is in use stays. Free placements stay as long as their class wants them and no claim has a part of them; where
    there are too many, those chosen last go. New ones are the best by the publish order, as if a claim took them.
    """
    wanted = {resource.name: resource for resource in resources}
    used = {partition for partitions in state.in_use.values() for partition in partitions}
    chosen: dict[str, list[Partition]] = {}
    for name in sorted({*wanted, *state.in_use}):
        own = state.in_use.get(name, ())
        before = [partition for partition in kept.get(name, ()) if partition in own]
        chosen[name] = [*before, *(partition for partition in own if partition not in before)]
    by_uuid = {card.uuid: card for card in state.cards}
    taken = {*state.taken, *used}
    for name, resource in sorted(wanted.items()):
        for partition in kept.get(name, ()):
            card = by_uuid.get(partition.card_uuid)
            if card is None or partition in used or len(chosen[name]) >= resource.per_node:
                continue
            if fits(card, partition, taken) and state.rules.selects(resource, card, partition):
                chosen[name].append(partition)
                taken.add(partition)
    if state.can_grow:
        for name, resource in sorted(wanted.items()):
            for partition in _find_free(resource, resource.per_node - len(chosen[name]), taken, by_uuid, state):
                chosen[name].append(partition)
                taken.add(partition)
    return {name: tuple(partitions) for name, partitions in chosen.items()}


def _find_free(
    resource: PluginResource,
    count: int,
    taken: Collection[Partition],
    cards: Mapping[str, Card],
    state: ReservationContext,
) -> list[Partition]:
    found: list[Partition] = []
    if count <= 0:
        return found
    order = publish_order(state.cards, taken)
    for partition in order.partitions:
        if len(found) >= count:
            break
        card = cards[partition.card_uuid]
        if (
            partition in order.available
            and state.rules.selects(resource, card, partition)
            and state.rules.is_healthy(partition)
            and fits(card, partition, (*taken, *found))
        ):
            found.append(partition)
    return found


def fits(card: Card, partition: Partition, taken: Iterable[Partition]) -> bool:
    """Whether ``card`` has room for ``partition`` beside those of ``taken`` that are on it."""
    unit_map = get_unit_map(card)
    spec = unit_map.find(partition)
    free = unit_map.free(each for each in taken if each.card_uuid == card.uuid)
    return spec is not None and unit_map.fits(spec, free)


def list_excluded(card: Card, kept: Collection[Partition]) -> list[Partition]:
    """List the partitions of ``card`` that cannot be allocated beside what is ``kept`` of it, those themselves
    included.
    """
    own = [partition for partition in kept if partition.card_uuid == card.uuid]
    unit_map = get_unit_map(card)
    free = unit_map.free(own)
    return [spec.of(card.uuid) for spec in unit_map.specs if not unit_map.fits(spec, free)]


def list_in_use(records: Iterable[PreparedClaim]) -> Placements:
    """List what containers have by extended resources; what is being released is still kept."""
    found: dict[str, list[Partition]] = {}
    for record in records:
        if record.resource:
            found.setdefault(record.resource, []).extend(from_card_part(device.part) for device in record.devices)
    return {resource: tuple(partitions) for resource, partitions in found.items()}


@dataclass(slots=True)
class Reservations:
    """The placements that one node keeps now, and which of them may be listed."""

    resources: tuple[PluginResource, ...] = ()
    """What the node offers, as of the last ``update``."""
    kept: Placements = field(default_factory=dict)
    in_use: Placements = field(default_factory=dict)
    claimed: frozenset[Partition] | None = None
    """What claims have in their allocation, as the API server said last; None if unknown."""
    changed: Notifier = field(default_factory=Notifier)
    """Notified when what is kept or listed has changed."""
    _confirmed: set[Partition] = field(default_factory=set)

    @property
    def partitions(self) -> tuple[Partition, ...]:
        """All that is kept."""
        return tuple(partition for partitions in self.kept.values() for partition in partitions)

    @property
    def idle(self) -> tuple[Partition, ...]:
        """All that is kept and that no container has."""
        used = self._list_used()
        return tuple(each for each in self.partitions if each not in used)

    @property
    def unconfirmed(self) -> tuple[Partition, ...]:
        """What is kept and free, and not known to be out of the API server's slices."""
        return tuple(each for each in self.idle if each not in self._confirmed)

    @property
    def missing(self) -> int:
        """How many placements are wanted beyond those that are kept."""
        return sum(max(0, each.per_node - len(self.kept.get(each.name, ()))) for each in self.resources)

    @property
    def names(self) -> tuple[str, ...]:
        """The extended resources that are offered, or of which containers have something."""
        return tuple(sorted({each.name for each in self.resources} | self.in_use.keys()))

    def find_resource(self, name: str) -> PluginResource | None:
        return next((each for each in self.resources if each.name == name), None)

    def list_placements(self, name: str) -> tuple[Partition, ...]:
        """Return what may be listed of a resource: at most as many as its class wants, those in use first."""
        resource = self.find_resource(name)
        used = self._list_used()
        kept = self.kept.get(name, ())
        ready = [each for each in kept if each in used]
        ready += [each for each in kept if each not in used and each in self._confirmed]
        return tuple(ready[: resource.per_node if resource is not None else 0])

    def list_free(self, name: str) -> tuple[Partition, ...]:
        """Return what is listed of a resource and no container has."""
        used = self._list_used()
        return tuple(each for each in self.list_placements(name) if each not in used)

    def update(self, resources: tuple[PluginResource, ...], state: ReservationContext) -> None:
        """Choose again what is kept, for what is offered and in use now."""
        self._set(resources, state.in_use, choose_placements(resources, self.kept, state))

    def note_records(self, records: Collection[PreparedClaim], cards: Mapping[str, Card]) -> None:
        """Apply that records have changed, at once: what a claim has is kept no longer, and what is in use, is."""
        in_use = list_in_use(records)
        used = {partition for partitions in in_use.values() for partition in partitions}
        claims = [
            from_card_part(device.part)
            for record in records
            if not record.resource
            for device in record.devices
            if not device.admin_access
        ]

        def stays(partition: Partition) -> bool:
            card = cards.get(partition.card_uuid)
            return partition in used or card is None or fits(card, partition, claims)

        kept = {name: tuple(filter(stays, partitions)) for name, partitions in self.kept.items()}
        self._set(self.resources, in_use, kept)

    def confirm(self, partitions: Iterable[Partition]) -> None:
        """Apply that no slice and no claim has anything of ``partitions``: they may be listed."""
        confirmed = self._confirmed | {each for each in partitions if each in self.partitions}
        if confirmed != self._confirmed:
            self._confirmed = confirmed
            self.changed.notify()

    def set_claimed(self, claimed: Iterable[Partition] | None) -> bool:
        """Apply what claims have, None if unknown; returns whether that is new."""
        before = self.claimed
        self.claimed = None if claimed is None else frozenset(claimed)
        return self.claimed != before

    def _set(self, resources: tuple[PluginResource, ...], in_use: Placements, kept: Placements) -> None:
        before = (self.resources, self.in_use, self.kept)
        self.resources, self.in_use, self.kept = resources, in_use, kept
        self._confirmed &= {*self.partitions}
        self._confirmed |= self._list_used()  # nothing else has it, and it stays out of the slices when it is released
        if before != (resources, in_use, kept):
            self.changed.notify()

    def _list_used(self) -> set[Partition]:
        return {partition for partitions in self.in_use.values() for partition in partitions}
