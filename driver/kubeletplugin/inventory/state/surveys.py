"""What is on each card, whose it is, and which devices it keeps from claims. Pure.

No mark on the hardware says who made a partition. What a survey finds is ours when a record of this boot has it (card,
profile and placement) and a note says that it was not there before; everything else is *foreign*: never destroyed,
never handed out, and reported. A card whose survey contradicts itself or never returns is in *quarantine*: it gets no
claims until a later survey is plausible.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol, TypeAlias

from kerf_dra.api.model.base import JsonObject
from kerf_dra.api.model.devices import DeviceTaint
from kerf_dra.api.model.names import ShareId
from kerf_dra.api.model.prepared import PreparedClaim, PreparedDevice
from kerf_dra.driver.kubeletplugin.backends.base import CardSurvey, FoundPartition
from kerf_dra.driver.partitions.device_names import card_name
from kerf_dra.driver.partitions.geometry import Card, Partition, Placement
from kerf_dra.driver.partitions.records import from_card_part
from kerf_dra.driver.partitions.unit_map import get_unit_map


class PreparationNotes(Protocol):
    """What was noted before claims had their devices prepared."""

    def came_later(self, claim_uid: str, share: ShareId, found_id: str) -> bool:
        """Whether a partition, by its id on the card, was not there before a claim's device was prepared.

        Without a note the hardware was not touched for that device.
        """
        ...


_MAX_VALUE: Final = 63
"""Characters of a taint's value, which has the form of a label's (core/v1 validation)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SurveyedCard:
    """A card's latest survey, compared with the records of that moment."""

    survey: CardSurvey
    foreign: tuple[FoundPartition, ...]
    """What no record of this boot has."""
    taken: tuple[Partition, ...]
    """The same as partitions."""
    blocked: Mapping[Partition, FoundPartition]
    """The partitions that overlap a foreign one or lack the engines that it has, with one that blocks each."""
    missing: tuple[tuple[str, ShareId], ...] = ()
    """What prepared claims (by UID) have and the card does not: it was reset, or another program has removed them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CardReplacement:
    """Another card than before at one PCI address."""

    pci_bus_id: str
    old_uuid: str
    new_uuid: str

    def __str__(self) -> str:
        return (
            f"the card at {self.pci_bus_id} was {self.old_uuid} and is {self.new_uuid} now: claims on the old one can "
            "be released only when it is back, or after a reboot"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class MadePartition:
    """What the first survey after a prepare has found for a device: the same place may have another one later."""

    handle: JsonObject | None
    """The handle of that prepare; a later prepare has another one."""
    id: str
    uuid: str


Made: TypeAlias = Mapping[tuple[str, ShareId], MadePartition]
"""By claim UID and share."""


class SurveyTracker:
    """The latest survey of each card of a node."""

    def __init__(self, *, driver: str) -> None:
        self._driver = driver
        self._made: dict[str, Made] = {}
        """By card UUID."""
        self._cards: dict[str, SurveyedCard] = {}
        self._quarantine: dict[str, str] = {}
        self._absent: dict[str, str] = {}

    @property
    def cards(self) -> Mapping[str, SurveyedCard]:
        """The surveyed cards by UUID; one in quarantine has its last survey before, if there was one."""
        return self._cards

    @property
    def quarantine(self) -> Mapping[str, str]:
        """Why cards get no claims, by UUID: it is unknown what is on them."""
        return self._quarantine

    @property
    def absent(self) -> Mapping[str, str]:
        """The cards of which a survey has found that they are not there, by UUID, with the reason."""
        return self._absent

    @property
    def has_held(self) -> bool:
        """Whether any device may be in use outside of Kerf, or be impossible in its card's present mode."""
        return any(card.foreign or card.survey.no_whole or card.survey.no_partitions for card in self._cards.values())

    def update(
        self,
        card: Card,
        survey: CardSurvey,
        records: Collection[PreparedClaim],
        boot_id: str,
        notes: PreparationNotes,
    ) -> bool:
        """Apply a survey of ``card``; returns whether it says anything new about the devices.

        ``records`` are those of the moment of the survey: no call may have changed the card since.
        """
        before = self._summarize(card.uuid)
        foreign = find_foreign(survey, records, boot_id, notes)
        taken = tuple(
            Partition(kind=card.kind, card_uuid=card.uuid, profile=found.profile, placement=found.placement)
            for found in foreign
        )
        self._cards[card.uuid] = SurveyedCard(
            survey=survey,
            foreign=foreign,
            taken=taken,
            blocked=_find_blocked(card, foreign, taken),
            missing=find_missing(survey, records, boot_id, self._made.get(card.uuid, {})),
        )
        self._made[card.uuid] = find_made(survey, records, boot_id, self._made.get(card.uuid, {}))
        self._quarantine.pop(card.uuid, None)
        self._absent.pop(card.uuid, None)
        return before != self._summarize(card.uuid)

    def fail(self, card_uuid: str, reason: str, *, is_doubtful: bool, is_absent: bool = False) -> bool:
        """Apply that a survey failed; returns whether that changes anything about the devices.

        The card is in quarantine if nothing is known of it, or if what is known is doubtful because the survey
        contradicted itself, a call hangs, or the card is not there (``is_absent``), which then counts until a survey
        succeeds. Otherwise the survey before it counts: one may fail for many reasons.
        """
        if is_absent:
            self._absent[card_uuid] = reason
        if card_uuid in self._cards and not (is_doubtful or is_absent):
            return False
        known = self._quarantine.get(card_uuid)
        self._quarantine[card_uuid] = reason
        return known != reason

    def keep_only(self, card_uuids: Collection[str]) -> bool:
        """Forget all other cards; returns whether there were any."""
        gone = (self._cards.keys() | self._quarantine.keys()) - set(card_uuids)
        for card_uuid in gone:
            self._cards.pop(card_uuid, None)
            self._made.pop(card_uuid, None)
            self._quarantine.pop(card_uuid, None)
            self._absent.pop(card_uuid, None)
        return bool(gone)

    def list_foreign(self) -> list[Partition]:
        """List what others hold, as partitions that are taken."""
        return [partition for card in self._cards.values() for partition in card.taken]

    def find_held(self, partition: Partition) -> str | None:
        """Return why ``partition`` cannot be allocated now; None: neither others nor its card's mode keep it."""
        card = self._cards.get(partition.card_uuid)
        if card is None:
            return None
        if found := card.blocked.get(_as_exclusive(partition)):
            return f"in use outside of Kerf: {found}"
        return card.survey.find_restriction(_as_exclusive(partition)) or None

    def is_missing(self, claim_uid: str, device: PreparedDevice) -> bool:
        """Whether the partition that a prepared claim has was not there at its card's latest survey."""
        card = self._cards.get(device.part.card_uuid)
        return card is not None and (claim_uid, device.share) in card.missing

    def is_in_use(self, partition: Partition) -> bool:
        """Whether a process used ``partition`` at its card's latest survey; hardware that does not report it says
        no.
        """
        card = self._cards.get(partition.card_uuid)
        return card is not None and any(
            found.in_use is True and found.matches(partition) for found in card.survey.partitions
        )

    def describe(self, card: Card) -> Mapping[str, str]:
        """Return what keeps devices of ``card`` from claims, for people: messages by the reason of their event."""
        name = f"card {card_name(card)} ({card.uuid})"
        found: dict[str, str] = {}
        if reason := self._quarantine.get(card.uuid):
            found["CardInQuarantine"] = f"{name} gets no claims: {reason}"
        if surveyed := self._cards.get(card.uuid):
            if surveyed.foreign:
                foreign = ", ".join(map(str, surveyed.foreign))
                found["InUseOutsideKerf"] = (
                    f"{name} is partly in use outside of Kerf: {foreign}; the devices there get no claims until the "
                    "partition is removed or the process ends"
                )
            if surveyed.missing:
                missing = ", ".join(sorted({share.id.device for _, share in surveyed.missing}))
                found["PartitionGone"] = (
                    f"{name} has lost {missing}: it was reset, or another program removed that or cut the card; it is "
                    "made again if its place is free"
                )
            modes = {"whole": surveyed.survey.no_whole, "in partitions": surveyed.survey.no_partitions}
            if len({*modes.values()}) == 1:
                modes = {"whole or in partitions": surveyed.survey.no_whole}
            impossible = [f"{how}: {why}" for how, why in modes.items() if why]
            if impossible:
                found["CardModeUnavailable"] = f"{name} is not available {'; nor '.join(impossible)}"
        return found

    def build_taints(self, partition: Partition) -> tuple[DeviceTaint, ...]:
        """Return the taints of the device of ``partition`` where it stays published while it cannot be allocated."""
        taints = []
        card = self._cards.get(partition.card_uuid)
        if card is not None and self.find_held(partition):
            found = card.blocked.get(_as_exclusive(partition))
            value = str(found) if found else "mode"
            taints.append(DeviceTaint(key=f"{self._driver}/held", value=_to_taint_value(value), effect="NoSchedule"))
        if partition.card_uuid in self._quarantine:
            taints.append(DeviceTaint(key=f"{self._driver}/quarantined", effect="NoSchedule"))
        return tuple(taints)

    def _summarize(self, card_uuid: str) -> object:
        """Return what of a card's state concerns its devices; ids and processes come and go."""
        quarantine = self._quarantine.get(card_uuid)
        card = self._cards.get(card_uuid)
        if card is None:
            return quarantine
        foreign = frozenset((found.profile, found.placement) for found in card.foreign)
        static = frozenset((found.profile, found.placement) for found in card.survey.partitions if found.is_static)
        return (foreign, static, card.missing, card.survey.no_whole, card.survey.no_partitions, quarantine)


def find_foreign(
    survey: CardSurvey, records: Iterable[PreparedClaim], boot_id: str, notes: PreparationNotes
) -> tuple[FoundPartition, ...]:
    """Return what no record of this boot has: not ours.

    A partition is ours if it has exactly the place of a record's device and was not there before the device's prepare;
    a use by a process, also of a static partition, if a device of its place, or with its place inside, is handed out.
    Static partitions that no process uses are for all claims. Admin access has nothing (KEP-5018): what a monitor's
    process keeps from claims is held as by any other process.
    """
    ours = [
        (record, device)
        for record in records
        if record.boot_id == boot_id
        for device in record.devices
        if device.part.card_uuid == survey.card_uuid and not device.admin_access
    ]
    return tuple(
        found
        for found in survey.partitions
        if not (found.is_static and not found.in_use) and not any(_is_ours(found, *owner, notes) for owner in ours)
    )


def find_missing(
    survey: CardSurvey, records: Iterable[PreparedClaim], boot_id: str, made: Made
) -> tuple[tuple[str, ShareId], ...]:
    """Return what prepared claims of this boot have and the card does not, as claim UID and share.

    It is missing, too, when its place has another partition than the one that was ``made``: the card was reset and cut
    again; and a whole card when it was cut. Only partitions with a profile are missing when they are not listed: what
    else is handed out shows in no survey while no process uses it.
    """
    is_cut = any(found.profile is not None for found in survey.partitions)
    missing: list[tuple[str, ShareId]] = []
    for key, device, partition in _find_ready(survey, records, boot_id):
        if partition.is_whole:
            is_missing = is_cut
        else:
            is_missing = partition.profile is not None and not _is_same(device, survey.find(partition), made.get(key))
        if is_missing:
            missing.append(key)
    return tuple(missing)


def find_made(survey: CardSurvey, records: Iterable[PreparedClaim], boot_id: str, known: Made) -> Made:
    """Return which partitions the prepared claims of this boot were given: the ``known`` ones, or those found now."""
    made: dict[tuple[str, ShareId], MadePartition] = {}
    for key, device, partition in _find_ready(survey, records, boot_id):
        before = known.get(key)
        if before is not None and before.handle == device.handle:
            made[key] = before
        elif partition.profile is not None and (found := survey.find(partition)) and _is_same(device, found, None):
            made[key] = MadePartition(handle=device.handle, id=found.id, uuid=found.uuid)
    return made


def _find_ready(
    survey: CardSurvey, records: Iterable[PreparedClaim], boot_id: str
) -> Iterator[tuple[tuple[str, ShareId], PreparedDevice, Partition]]:
    """Yield what claims have ready on the card."""
    for record in records:
        for device in record.ready_devices if record.boot_id == boot_id else ():
            partition = from_card_part(device.part)
            if partition.card_uuid == survey.card_uuid and not device.admin_access:
                yield (record.claim.uid, device.share), device, partition


def _is_same(device: PreparedDevice, found: FoundPartition | None, made: MadePartition | None) -> bool:
    if found is None:
        return False
    if made is None or made.handle != device.handle:  # the first survey since it was prepared, or of this process
        uuid = (device.handle or {}).get("uuid")  # it may have been cut again while no plugin ran
        return not uuid or not found.uuid or uuid == found.uuid
    return (found.id, found.uuid) == (made.id, made.uuid)


def find_replacements(old: Iterable[Card], new: Iterable[Card]) -> tuple[CardReplacement, ...]:
    """Return the PCI addresses at which ``new`` has another card than ``old``."""
    before = {card.pci_bus_id: card.uuid for card in old}
    return tuple(
        CardReplacement(pci_bus_id=card.pci_bus_id, old_uuid=uuid, new_uuid=card.uuid)
        for card in new
        if card.pci_bus_id and (uuid := before.get(card.pci_bus_id, card.uuid)) != card.uuid
    )


def _is_ours(found: FoundPartition, record: PreparedClaim, device: PreparedDevice, notes: PreparationNotes) -> bool:
    partition = from_card_part(device.part)
    if found.is_use:
        return device.handle is not None and _is_within(found.placement, partition.placement)
    if not found.matches(partition):
        return False
    if found.is_static:
        return device.handle is not None
    return notes.came_later(record.claim.uid, device.share, found.id)


def _is_within(part: Placement | None, whole: Placement | None) -> bool:
    """Whether one placement is inside of another; None: the whole card."""
    return whole is None or (part is not None and {*part.units} <= {*whole.units})


def _find_blocked(
    card: Card, foreign: Sequence[FoundPartition], taken: Sequence[Partition]
) -> dict[Partition, FoundPartition]:
    """Return the partitions of ``card`` for which the ``foreign`` ones leave too few units or engines."""
    unit_map = get_unit_map(card)
    blocked: dict[Partition, FoundPartition] = {}
    for count, found in enumerate(foreign, start=1):
        free = unit_map.free(taken[:count])
        for spec in unit_map.specs:
            if not unit_map.fits(spec, free):
                blocked.setdefault(spec.of(card.uuid), found)
    return blocked


def _as_exclusive(partition: Partition) -> Partition:
    return replace(partition, shared=False) if partition.shared else partition


def _to_taint_value(text: str) -> str:
    legal = re.sub(r"[^-A-Za-z0-9_.]+", "-", text)[:_MAX_VALUE]
    return legal.strip("-_.")
