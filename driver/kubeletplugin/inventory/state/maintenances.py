"""The cards that an administrator has withheld by CardMaintenances: their devices get no new claims. Pure.

Their devices stay published with a taint, so that the scheduler keeps counting what claims have of them. Its value says
whether anything of the card is in use: only the node knows what is prepared, and what containers and processes have
outside of claims. A card on which the node has done what a CardMaintenance wants is *returned*: that one withholds it
no longer, though the object is still there.
"""

import logging
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

import msgspec

from kerf_dra.api.errors import InvalidDocumentError
from kerf_dra.api.kerf.card_maintenance import (
    CardMaintenanceObject,
    CardMaintenanceStatus,
    FollowingAct,
    find_work,
    is_named_card,
)
from kerf_dra.api.kerf.decoder import decode_card_maintenance
from kerf_dra.api.model.base import JsonObject
from kerf_dra.api.model.device_attributes import MAINTENANCE_IDLE, MAINTENANCE_IN_USE, maintenance_taint_key
from kerf_dra.api.model.devices import DeviceTaint
from kerf_dra.api.model.metadata import ObjectMeta
from kerf_dra.driver.partitions.device_names import card_name
from kerf_dra.driver.partitions.geometry import Card

_log: Final = logging.getLogger(__name__)


class NamedCard(NamedTuple):
    """The card that a CardMaintenance names."""

    maintenance: str
    """The name of the object."""
    card: str
    """The card's UUID or PCI address, as the object has it."""
    reason: str
    uid: str = ""
    generation: int = 0
    """The generation of the spec: what was done for another one does not count."""
    then: FollowingAct = "None"
    hook: str = ""
    """The program that ``Hook`` runs."""
    status: CardMaintenanceStatus = CardMaintenanceStatus()

    @property
    def key(self) -> tuple[str, int]:
        """What an act is done for: once, whatever happens."""
        return self.uid, self.generation


class CardMaintenances:
    """The CardMaintenances of one node, and which of its cards they withhold."""

    def __init__(self, *, driver: str, node: str) -> None:
        self._driver = driver
        self._node = node
        self._named: tuple[NamedCard, ...] = ()
        self._returned: set[tuple[str, int]] = set()
        """By UID and generation: those that the node has done."""
        self.is_known = False
        """Whether the CardMaintenances have been read once: until then, one that is not known may be there."""

    @property
    def named(self) -> Sequence[NamedCard]:
        """All of them, sorted by name."""
        return self._named

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self._named)

    def replace(self, documents: Iterable[JsonObject]) -> bool:
        """Replace all CardMaintenances, which are manifests; returns whether that changes anything.

        Those of other nodes and invalid ones withhold nothing: the status of an invalid one says why.
        """
        self.is_known = True
        before, self._named = self._named, tuple(sorted(self._read(documents), key=lambda each: each.maintenance))
        self._returned &= {each.key for each in self._named}
        return before != self._named

    def note_returned(self, uid: str, generation: int) -> bool:
        """Note that the node has done what this generation of a CardMaintenance wants; returns whether that is new."""
        is_new = (uid, generation) not in self._returned
        self._returned.add((uid, generation))
        return is_new

    def is_returned(self, held: NamedCard) -> bool:
        """Whether the node has done what ``held`` wants, by its own account or that of the status."""
        work = find_work(held.generation, held.status)
        return held.key in self._returned or (work is not None and work.state == "Done")

    def is_withheld(self, card: Card) -> bool:
        """Whether a card is withheld."""
        return any(True for _ in self._find(card))

    def build_taints(self, card: Card, in_use: Collection[str]) -> tuple[DeviceTaint, ...]:
        """Return the taint of each device of ``card``; ``in_use`` are the UUIDs of cards of which something is."""
        if not self.is_withheld(card):
            return ()
        value = MAINTENANCE_IN_USE if card.uuid in in_use else MAINTENANCE_IDLE
        return (DeviceTaint(key=maintenance_taint_key(self._driver), value=value, effect="NoSchedule"),)

    def describe(self, cards: Sequence[Card]) -> dict[str, str]:
        """Return a message about each of ``cards`` that is withheld, by its UUID."""
        return {
            card.uuid: f"card {card_name(card)} ({card.uuid}) gets no new claims: CardMaintenance {each.maintenance}"
            + (f", {each.reason}" if each.reason else "")
            for card in cards
            for each in self._find(card)
        }

    def _find(self, card: Card) -> Iterator[NamedCard]:
        """Yield those that withhold ``card``."""
        for each in self._named:
            if is_named_card(each.card, card.uuid, card.pci_bus_id) and not self.is_returned(each):
                yield each

    def _read(self, documents: Iterable[JsonObject]) -> Iterable[NamedCard]:
        for document in documents:
            metadata = document["metadata"]
            name = metadata["name"]
            held = CardMaintenanceObject(metadata=ObjectMeta(name=name), spec=document.get("spec", {}))
            try:
                spec = decode_card_maintenance(held).spec
                status = msgspec.convert(document.get("status", {}), CardMaintenanceStatus)
            except (InvalidDocumentError, msgspec.ValidationError) as error:
                _log.warning("it withholds no card: %s", error)
                continue
            if spec.node_name == self._node:
                yield NamedCard(
                    maintenance=name,
                    card=spec.card,
                    reason=spec.reason,
                    uid=metadata.get("uid", ""),
                    generation=metadata.get("generation", 0),
                    then=spec.then,
                    hook=spec.hook or "",
                    status=status,
                )
