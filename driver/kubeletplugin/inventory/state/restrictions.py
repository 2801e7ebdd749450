"""What keeps devices of healthy cards from claims: others, modes, quarantine, refusals, orphans, losses, reservations,
and an administrator who keeps cards out or withholds them. Pure.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from kerf_dra.api.model.device_attributes import kept_out_taint_key
from kerf_dra.api.model.devices import DeviceTaint
from kerf_dra.api.model.names import DeviceId, ShareId
from kerf_dra.api.model.prepared import PreparedClaim
from kerf_dra.driver.kubeletplugin.backends.base import UnlistedCard
from kerf_dra.driver.kubeletplugin.backends.card_selection import CardSelection
from kerf_dra.driver.kubeletplugin.inventory.state.maintenances import CardMaintenances
from kerf_dra.driver.kubeletplugin.inventory.state.refusals import RefusalTracker
from kerf_dra.driver.kubeletplugin.inventory.state.reservations import Reservations
from kerf_dra.driver.kubeletplugin.inventory.state.surveys import SurveyTracker
from kerf_dra.driver.partitions.device_names import card_name, parse_device_name
from kerf_dra.driver.partitions.geometry import Card, Partition
from kerf_dra.driver.partitions.records import from_card_part


class KnownAllocations:
    """The devices that claims have in their allocation, as far as this node knows.

    They are learned from a list of all claims, and until the next one from claims that are to be prepared.
    """

    def __init__(self, records: Mapping[str, PreparedClaim]) -> None:
        """``records`` is a live view of the records of this node's claims."""
        self._records = records
        self._known: frozenset[DeviceId] | None = None

    def has(self, device: DeviceId) -> bool:
        """Whether any claim may have ``device``; while no list is known, every device may be allocated."""
        return self._known is None or self.is_held(device)

    def is_held(self, device: DeviceId) -> bool:
        """Whether a claim has ``device`` for certain: what is not known, no claim has."""
        return device in (self._known or ()) or self._has_record(device)

    def holds_any(self, card: Card) -> bool:
        """Whether a claim has any device of ``card`` for certain, as the last list says, or a record of any state."""
        if any(held.part.card_uuid == card.uuid for record in self._records.values() for held in record.devices):
            return True
        names = (parse_device_name(device.device) for device in self._known or ())
        return any(name is not None and name.card == card_name(card) for name in names)

    def replace(self, devices: Iterable[DeviceId] | None) -> bool:
        """Apply a complete list, None if unknown; returns whether that changes anything."""
        before = self._known
        self._known = None if devices is None else frozenset(devices)
        return self._known != before

    def add(self, device: DeviceId) -> bool:
        """Apply that a claim has ``device``; returns whether that was not known."""
        if self._known is None or device in self._known:
            return False
        self._known |= {device}
        return True

    def _has_record(self, device: DeviceId) -> bool:
        return any(held.share.id == device for record in self._records.values() for held in record.devices)


class OrphanedDevices:
    """The devices that are in use though the API server no longer has their claims.

    To the scheduler they are free: a taint keeps it from allocating them, and what overlaps with them.
    """

    def __init__(self, *, driver: str) -> None:
        self._driver = driver
        self._partitions: dict[str, tuple[Partition, ...]] = {}

    @property
    def claim_uids(self) -> Collection[str]:
        return self._partitions.keys()

    def add(self, record: PreparedClaim) -> bool:
        """Apply that the claim is unknown of ``record``; returns whether that is new."""
        is_new = record.claim.uid not in self._partitions
        devices = (device for device in record.devices if not device.admin_access)
        self._partitions[record.claim.uid] = tuple(from_card_part(device.part) for device in devices)
        return is_new

    def discard(self, claim_uid: str) -> bool:
        """Apply that the claim is there again, or its devices are released; returns whether that is new."""
        return self._partitions.pop(claim_uid, None) is not None

    def build_taints(self, partition: Partition) -> tuple[DeviceTaint, ...]:
        """Return the taint of a device that overlaps with one in use."""
        in_use = (held for partitions in self._partitions.values() for held in partitions)
        if any(held.overlaps(partition) for held in in_use):
            return (DeviceTaint(key=f"{self._driver}/orphaned", effect="NoSchedule"),)
        return ()


class KeptOutCards:
    """The cards that an administrator keeps out. One of which claims have a part is *drained*: it stays published for
    these claims, with a taint and without its other devices, until they have ended. The others are not published.
    """

    def __init__(self, allocated: KnownAllocations, selections: Mapping[str, CardSelection], *, driver: str) -> None:
        """``selections`` are those of the backends, by name."""
        self._allocated = allocated
        self._selections = selections
        self._driver = driver
        self._found: dict[str, Sequence[Card]] = {}
        self._drained: dict[str, Card] = {}
        """Those that are drained, by UUID, as of the last ``select``."""
        self._on_bus: dict[str, Collection[str]] = {}
        """The PCI addresses of cards that a backend does not list."""
        self._kept: set[str] = set()
        """The UUIDs of all that are or were kept out: one may go when it is bound to another driver."""
        self._has_listed = False

    @classmethod
    def none(cls) -> "KeptOutCards":
        """Return that of a node where no card is kept out."""
        return cls(KnownAllocations({}), {}, driver="")

    @property
    def cards(self) -> Mapping[str, Sequence[Card]]:
        """The cards that are kept out and not drained, by backend."""
        kept = {name: self._list_kept(name) for name in self._found}
        return {name: [card for card in cards if card.uuid not in self._drained] for name, cards in kept.items()}

    @property
    def drained(self) -> Collection[Card]:
        """The cards that are drained."""
        return self._drained.values()

    @property
    def needs_list(self) -> bool:
        """Whether the plugin must know which devices claims have: once, and while a card is drained."""
        return bool(self._drained) or (not self._has_listed and any(map(self._list_kept, self._found)))

    @property
    def unknown(self) -> Sequence[str]:
        """The messages about entries that are no card's, as far as the backends have discovered theirs."""
        return [
            f"{self._driver}: backend {name} has no card {text}, which is included or excluded: check it, unless the "
            "card is to come later"
            for name, cards in self._found.items()
            if name in self._selections
            for text in self._selections[name].list_unknown(cards, self._on_bus.get(name, ()))
        ]

    def select(self, backend: str, found: Sequence[Card]) -> list[Card]:
        """Take note of what ``backend`` has discovered, and return what of it is to be published."""
        self._found[backend] = found
        kept = {card.uuid: card for card in self._list_kept(backend)}
        self._kept |= kept.keys()
        drained = {uuid: card for uuid, card in kept.items() if self._allocated.holds_any(card)}
        self._drained = {uuid: card for uuid, card in self._drained.items() if uuid not in kept} | drained
        return [card for card in found if card.uuid not in kept or card.uuid in drained]

    def note_unlisted(self, backend: str, cards: Sequence[UnlistedCard]) -> Sequence[UnlistedCard]:
        """Take note of the cards on the bus that ``backend`` does not list; return those that are not kept out."""
        self._on_bus[backend] = [card.pci_address for card in cards]
        selection = self._selections.get(backend, CardSelection())
        return [card for card in cards if not selection.keeps_out(card.pci_address)]

    def note_list(self) -> None:
        """Note that it was asked which devices claims have."""
        self._has_listed = True

    def is_unpublished(self, card_uuid: str) -> bool:
        """Whether a card is kept out and not drained, also one that is not there any more."""
        return card_uuid in self._kept and card_uuid not in self._drained

    def is_withheld(self, card_uuid: str, device: DeviceId) -> bool:
        """Whether a device of a card that is drained is not published: no claim has it."""
        return card_uuid in self._drained and not self._allocated.is_held(device)

    def build_taints(self, partition: Partition) -> tuple[DeviceTaint, ...]:
        """Return the taint of a device of a card that is drained."""
        if partition.card_uuid in self._drained:
            return (DeviceTaint(key=kept_out_taint_key(self._driver), effect="NoSchedule"),)
        return ()

    def describe(self) -> Mapping[str, str]:
        """Return a message about each card that is kept out, by its UUID."""
        kept = [(self._selections[name], card) for name in self._found for card in self._list_kept(name)]
        return {
            card.uuid: f"card {card_name(card)} ({card.uuid}) is kept out, because {selection.find_reason(card)}: "
            + (
                "claims keep what they have of it until they end"
                if card.uuid in self._drained
                else "nothing of it is in use by claims"
            )
            for selection, card in kept
        }

    def _list_kept(self, backend: str) -> list[Card]:
        selection = self._selections.get(backend)
        return [card for card in self._found[backend] if selection.find_reason(card)] if selection else []


class UnusableDevices:
    """What prepared claims have and their containers can no longer use: their pods are to start elsewhere.

    The same place may be unusable for one claim of several that share it: then it is for all, as the hardware is.
    """

    def __init__(self, *, driver: str) -> None:
        self._driver = driver
        self._partitions: dict[tuple[str, ShareId, str], Partition] = {}
        """By claim UID, share and reason."""

    def __bool__(self) -> bool:
        return bool(self._partitions)

    def add(self, claim_uid: str, share: ShareId, reason: str, partition: Partition) -> bool:
        """Apply that a claim cannot use its device, for a ``reason`` in one word; returns whether that is new."""
        is_new = (claim_uid, share, reason) not in self._partitions
        self._partitions[claim_uid, share, reason] = replace(partition, shared=False)
        return is_new

    def discard(self, claim_uid: str, share: ShareId, reason: str) -> bool:
        """Apply that the reason is gone; returns whether it was known."""
        return self._partitions.pop((claim_uid, share, reason), None) is not None

    def keep_only(self, claim_uids: Collection[str]) -> bool:
        """Forget all other claims, because they are released; returns whether there were any."""
        gone = [key for key in self._partitions if key[0] not in claim_uids]
        for key in gone:
            del self._partitions[key]
        return bool(gone)

    def build_taints(self, partition: Partition) -> tuple[DeviceTaint, ...]:
        """Return the taint of a device, exclusive or shared: new pods are kept away, and those that have it evicted."""
        place = replace(partition, shared=False)
        reasons = sorted(reason for (_, _, reason), unusable in self._partitions.items() if unusable == place)
        return tuple(
            DeviceTaint(key=f"{self._driver}/unusable", value=reason, effect="NoExecute") for reason in reasons[:1]
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceRestrictions:
    """Everything that restricts the devices of one node, as of now."""

    surveys: SurveyTracker
    refusals: RefusalTracker
    allocated: KnownAllocations
    orphaned: OrphanedDevices
    unusable: UnusableDevices
    reservations: Reservations = field(default_factory=Reservations)
    kept_out: KeptOutCards = field(default_factory=KeptOutCards.none)
    maintenances: CardMaintenances = field(default_factory=lambda: CardMaintenances(driver="", node=""))

    @property
    def has_taints(self) -> bool:
        return bool(
            self.surveys.has_held
            or self.surveys.quarantine
            or self.refusals.placements
            or self.orphaned.claim_uids
            or self.kept_out.drained
            or self.unusable
            or self.maintenances
        )

    def build_taints(self, partition: Partition) -> tuple[DeviceTaint, ...]:
        """Return the taints with which the device of ``partition`` is published, if it is."""
        return (
            *self.surveys.build_taints(partition),
            *self.refusals.build_taints(partition),
            *self.orphaned.build_taints(partition),
            *self.kept_out.build_taints(partition),
            *self.unusable.build_taints(partition),
        )
