"""The Backend protocol over the FPGA cards of one kind: what is the same for every kind.

Nothing is remembered but what hardware and files say each time: cards, descriptions, images. ``FpgaBackend`` has the
calls for single cards, discovery with its problems, and events; ``CatalogBackend`` what backends need besides that read
image files themselves (``images.catalog``) and find their cards in ``/sys``.
"""

import logging
from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar, Final, Generic, Protocol, TypeVar

from kerf_dra.api.kerf.v1alpha1 import DeviceConfigBase
from kerf_dra.api.model.base import JsonObject
from kerf_dra.api.model.devices import Attribute
from kerf_dra.driver.families.fpga.descriptions import DescribedShell
from kerf_dra.driver.families.fpga.geometry import fpga_geometry
from kerf_dra.driver.families.fpga.shell import Shell
from kerf_dra.driver.kubeletplugin.backends.base import (
    AllocatedDevice,
    CardChange,
    CardSurvey,
    DiscoveryChange,
    FoundPartition,
    Handle,
    HealthChange,
    Journal,
    UnlistedCard,
)
from kerf_dra.driver.kubeletplugin.backends.fpga.image_card import FoundFpga
from kerf_dra.driver.kubeletplugin.backends.fpga.images.catalog import ImageCatalog
from kerf_dra.driver.kubeletplugin.backends.handle_codec import CardHandle, HandleCodec
from kerf_dra.driver.kubeletplugin.backends.kernel_files import (
    CardNumbers,
    CardSource,
    KnownCards,
    read_driver_version,
)
from kerf_dra.driver.kubeletplugin.backends.pci_devices import PciCardKind, list_unlisted_cards
from kerf_dra.driver.kubeletplugin.backends.polled_backend import PolledBackend
from kerf_dra.driver.partitions.geometry import Card, Placement
from kerf_dra.driver.runtime.problem_log import ProblemLog

_log = logging.getLogger(__name__)


HandleT = TypeVar("HandleT", bound=CardHandle)


class FpgaCard(Protocol[HandleT]):
    """One card for one call; the methods have the contracts of Backend's."""

    def survey(self) -> CardSurvey: ...

    def prepare(
        self, device: AllocatedDevice, config: DeviceConfigBase | None, journal: Journal, found: FoundPartition | None
    ) -> HandleT: ...

    def unprepare(self, handle: HandleT) -> None: ...

    def abandon(self, device: AllocatedDevice, journal: Journal) -> None: ...

    def renumber(self, handle: HandleT) -> HandleT: ...


class FpgaBackend(PolledBackend, Generic[HandleT]):
    """The Backend of one kind of FPGA cards."""

    def __init__(self, handles: HandleCodec[HandleT], *, poll_s: float) -> None:
        super().__init__(poll_s)
        self._handles: Final = handles
        self._problems = ProblemLog(_log)

    def discover(self) -> Sequence[Card]:
        """Return the cards that are described, with the functions whose images are as they were described.

        What keeps a card or a function from being offered is logged once.
        """
        problems: list[str] = []
        found = self._find_cards(problems)
        self._problems.replace(problems)
        return found

    def survey(self, card_uuid: str) -> CardSurvey:
        return self._find_card(card_uuid, None).survey()

    def prepare(
        self, device: AllocatedDevice, config: DeviceConfigBase | None, journal: Journal, found: FoundPartition | None
    ) -> Handle:
        card = self._find_card(device.partition.card_uuid, None)
        return self._handles.encode(card.prepare(device, config, journal, found))

    def unprepare(self, handle: Handle) -> None:
        known = self._handles.decode(handle)
        self._find_card(known.card, known).unprepare(known)

    def abandon(self, device: AllocatedDevice, journal: Journal, found: FoundPartition | None) -> None:
        del found  # slots are no objects: what an interrupted load left in them is loaded over
        self._find_card(device.partition.card_uuid, None).abandon(device, journal)

    def renumber(self, handle: Handle) -> Handle:
        known = self._handles.decode(handle)
        return self._handles.encode(self._find_card(known.card, known).renumber(known))

    @abstractmethod
    def _find_cards(self, problems: list[str]) -> Sequence[Card]:
        """Return the cards that can be offered; what keeps others from it goes into ``problems``."""

    @abstractmethod
    def _find_card(self, card_uuid: str, handle: HandleT | None) -> FpgaCard[HandleT]:
        """Return a card, for ``handle`` also where it is described no more. Raises CardAbsentError."""


ReadingT = TypeVar("ReadingT", bound=FoundFpga)


class LoadedCard(FpgaCard[HandleT], Protocol):
    """A card that reports which described functions its slots have."""

    def find_loaded(self) -> dict[Placement, str]:
        """Return the functions that are loaded now, by their slots."""
        ...


class CatalogBackend(FpgaBackend[HandleT], Generic[HandleT, ReadingT]):
    """The Backend of cards in ``/sys`` whose image files it reads itself."""

    kernel_driver: ClassVar[str]
    """The name of the driver's kernel module."""
    pci_cards: ClassVar[PciCardKind]
    """The PCI devices that are cards of this kind, whichever driver has them."""
    interfaces_noun: ClassVar[str] = "interface"

    def __init__(
        self, files: CardSource[ReadingT], catalog: ImageCatalog, handles: HandleCodec[HandleT], *, poll_s: float
    ) -> None:
        self._catalog: Final = catalog
        self._cards: Final = KnownCards(files)
        self._numbers = CardNumbers()
        self._root = files.root
        super().__init__(handles, poll_s=poll_s)

    def close(self) -> None:
        self._catalog.stop_fetching()
        super().close()

    def wait_for_events(self, timeout_s: float) -> Sequence[HealthChange | CardChange | DiscoveryChange]:
        self._catalog.start_fetching()
        return super().wait_for_events(timeout_s)

    def list_unlisted(self, cards: Sequence[Card]) -> Sequence[UnlistedCard]:
        problems = (*self._problems.messages, *self._cards.problems)
        return list_unlisted_cards(self._root, self.pci_cards, [card.pci_bus_id for card in cards], problems)

    def describe(self, documents: Sequence[JsonObject]) -> None:
        """Take the shells and images of the cluster; what files of this node say counts first."""
        self._catalog.describe(documents)

    @abstractmethod
    def _find_problem(self, reading: ReadingT, shell: Shell | None) -> str:
        """Return why a card cannot be offered, besides that no shell is described (None); empty: it can."""

    @abstractmethod
    def _make_card(self, reading: ReadingT, described: DescribedShell | None) -> LoadedCard[HandleT]:
        """Return a card; with ``described`` None it can only be released."""

    def _find_shell(self, reading: ReadingT) -> DescribedShell | None:
        """Return the described shell of the first of the card's interfaces that has one: of a shell with several stages
        an administrator describes the last one, for which images are, and not those below it.
        """
        shells = self._catalog.shells
        return next((shells[interface] for interface in reading.interfaces if interface in shells), None)

    def _find_cards(self, problems: list[str]) -> Sequence[Card]:
        problems += self._catalog.refresh()
        found: list[Card] = []
        for reading in self._cards.list_present():
            described = self._find_shell(reading)
            if problem := self._find_problem(reading, None if described is None else described.shell):
                problems.append(f"card {reading.pci_address} {problem}")
            elif described is None:
                problems.append(
                    f"card {reading.pci_address} has the {self.interfaces_noun} {' and '.join(reading.interfaces)}, "
                    f"but neither {self._catalog.description_folder} nor a FpgaShell of the cluster describes its shell"
                )
            else:
                found.append(self._build_card(reading, described))
        return found

    def _find_card(self, card_uuid: str, handle: HandleT | None) -> FpgaCard[HandleT]:
        del handle  # it has all that a release needs
        if not self._catalog.shells:
            self.discover()
        reading = self._cards.find(card_uuid)
        return self._make_card(reading, self._find_shell(reading))

    def _list_seen(self) -> Sequence[str]:
        return self._cards.list_seen()

    def _take_news(self) -> bool:
        return self._catalog.take_news()

    def _build_card(self, reading: ReadingT, described: DescribedShell) -> Card:
        return Card(
            uuid=reading.uuid,
            index=self._numbers.find(reading.uuid, reading.number),
            geometry=fpga_geometry(described.shell),
            pci_bus_id=reading.pci_address,
            pcie_root=reading.pcie_root,
            numa_node=reading.numa_node,
            driver_version=read_driver_version(self._root, self.kernel_driver),
            loaded=self._make_card(reading, described).find_loaded(),
            attributes={"refusedImages": Attribute.of(self._catalog.format_refused(described.shell.uuid))},
        )
