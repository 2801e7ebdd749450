"""Which cards of a backend may be published: an administrator keeps the others out, for other uses. Pure.

Cards are named by their UUID or PCI address. An index is no identity: the index of a card changes when another one is
added, removed or fails.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from kerf_dra.api.errors import PermanentError
from kerf_dra.driver.kubeletplugin.backends.base import UnlistedCard
from kerf_dra.driver.kubeletplugin.backends.pci_devices import normalize_pci_address
from kerf_dra.driver.partitions.geometry import Card

_INDEX: Final = re.compile(r"\d+|(gpu|gpu-intel|fpga|card|renderd|nvidia|dfl-fme)[-.:]?\d{1,4}", re.IGNORECASE)
"""What names a card by a number: an index of nvidia-smi, the name of a device or of a device node."""
_PARTITION: Final = re.compile(r"mig-.+", re.IGNORECASE)
_UUID: Final = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,126}[A-Za-z0-9])?")
"""UUIDs of cards are those of vendors' libraries, with a prefix such as ``GPU-``, and need not have RFC 9562's form."""


class InvalidCardIdError(PermanentError):
    """A text names no card."""

    def __init__(self, text: str, reason: str) -> None:
        super().__init__(
            f"{text!r:.80} names no card: {reason}; write its UUID or its PCI address, such as 0000:3b:00.0"
        )


def normalize_card_id(text: str) -> str:
    """Return the UUID or PCI address in the form in which two of one card are equal. Raises InvalidCardIdError.

    >>> normalize_card_id("GPU-0A"), normalize_card_id("00000000:3B:00.0")
    ('gpu-0a', '0000:3b:00.0')
    """
    if address := normalize_pci_address(text):
        return address
    if ":" in text:
        raise InvalidCardIdError(text, "it is no PCI address with domain, bus, device and function")
    if _INDEX.fullmatch(text):
        raise InvalidCardIdError(text, "an index is no identity, another card may have it after the next boot")
    if _PARTITION.fullmatch(text):
        raise InvalidCardIdError(text, "it is the UUID of a MIG device, and only whole cards are kept out")
    if not _UUID.fullmatch(text):
        raise InvalidCardIdError(text, "it is neither a UUID nor a PCI address")
    return text.casefold()


class CardEntry(NamedTuple):
    """A card of a backend, as an option names it."""

    backend: str
    id: str

    def __str__(self) -> str:
        return f"{self.backend}={self.id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CardSelection:
    """The cards of one backend that are included and excluded."""

    include: Mapping[str, str] = field(default_factory=dict)
    """What was written of each card, by its normalized identity; without one all cards are included."""
    exclude: Mapping[str, str] = field(default_factory=dict)
    """The same for those that are kept out."""

    @classmethod
    def of(cls, include: Iterable[str] = (), exclude: Iterable[str] = ()) -> "CardSelection":
        """Return the selection of these UUIDs and PCI addresses.

        Raises InvalidCardIdError for an entry that names no card, and for one that is both included and excluded.
        """
        made = cls(
            include={normalize_card_id(text): text for text in include},
            exclude={normalize_card_id(text): text for text in exclude},
        )
        for both in made.include.keys() & made.exclude.keys():
            raise InvalidCardIdError(made.exclude[both], "it is both included and excluded")
        return made

    def __bool__(self) -> bool:
        return bool(self.include or self.exclude)

    def find_reason(self, card: Card) -> str:
        """Return why ``card`` is kept out; empty: it is not. What is excluded is kept out also if it is included."""
        ids = _list_ids(card)
        excluded = next((self.exclude[each] for each in ids if each in self.exclude), None)
        if excluded is not None:
            return f"{excluded} is excluded"
        if self.include and not any(each in self.include for each in ids):
            return "only other cards are included"
        return ""

    def keeps_out(self, address: str) -> bool:
        """Whether a card is kept out of which only the PCI address is known, as the kernel writes it: it is not where a
        UUID is included, which may be the card's.
        """
        is_other = bool(self.include) and address not in self.include and all(map(normalize_pci_address, self.include))
        return address in self.exclude or is_other

    def list_unknown(self, cards: Iterable[Card], on_bus: Collection[str] = ()) -> Sequence[str]:
        """Return the entries that are none of ``cards``, as they were written, with a card that may be meant.

        ``on_bus`` are the PCI addresses of cards that the backend does not list: they are there.
        """
        known = [each for card in cards for each in _list_ids(card) if each]
        return [
            f"{text} ({near} is one)" if (near := _find_near(id_, known)) else text
            for entries in (self.include, self.exclude)
            for id_, text in entries.items()
            if id_ not in known and id_ not in on_bus
        ]


def mark_kept_out(card: UnlistedCard, selection: CardSelection) -> UnlistedCard:
    """Return ``card`` as one that is as it should be, where it is kept out anyway."""
    if not selection.keeps_out(card.pci_address):
        return card
    return replace(card, is_expected=True, next_step="nothing need be done, as the card is kept out")


def _list_ids(card: Card) -> tuple[str, ...]:
    return (card.uuid.casefold(), normalize_pci_address(card.pci_bus_id) or card.pci_bus_id)


def _find_near(id_: str, known: Iterable[str]) -> str:
    """Return the identity of a card of which ``id_`` is another function, or the beginning of the UUID; empty: none."""
    begin = id_[: -len("0")] if normalize_pci_address(id_) else id_
    return next((each for each in known if each.startswith(begin)), "")
