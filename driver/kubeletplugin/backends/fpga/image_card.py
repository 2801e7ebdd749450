"""Cards in ``/sys`` whose slots are programmed with the bits of image files that the plugin reads itself."""

import logging
from abc import abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import ClassVar, Generic, Protocol, TypeVar

from kerf_dra.driver.families.fpga.descriptions import DescribedShell, ImageReference
from kerf_dra.driver.families.fpga.refused_images import ImageRefusal
from kerf_dra.driver.kubeletplugin.backends.base import CardAbsentError, HardwareBusyError, HardwareRefusedError
from kerf_dra.driver.kubeletplugin.backends.fpga.images.files import ImageBits, ImageFiles
from kerf_dra.driver.kubeletplugin.backends.fpga.slot_loader import LOADS, SlotLoader, choose_release
from kerf_dra.driver.kubeletplugin.backends.kernel_files import FoundCard
from kerf_dra.driver.partitions.geometry import Placement

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class CardResources:
    """What all cards of a backend are loaded with."""

    images: ImageFiles
    now: Callable[[], float]
    """A clock, in seconds."""
    is_stand_in: bool
    """Whether the cards are a stand-in's."""


class FoundFpga(FoundCard, Protocol):
    """What the files of an FPGA card say of it."""

    @property
    def interfaces(self) -> Sequence[str]:
        """The interface UUIDs that images may be built for; none: it takes no images."""
        ...


ReadingT = TypeVar("ReadingT", bound=FoundFpga)
ResourcesT = TypeVar("ResourcesT", bound=CardResources)


class ImageCard(SlotLoader, Generic[ReadingT, ResourcesT]):
    """One such card for one call."""

    nothing: ClassVar[str] = "no function"
    """What errors call the content of a slot that reports no id."""
    interfaces_are: ClassVar[str] = "interface is"

    def __init__(self, reading: ReadingT, described: DescribedShell | None, resources: ResourcesT) -> None:
        """``described`` is None where no description has an interface of the card: then it can only be released."""
        self.reading = reading
        self._described = described
        self._resources = resources

    @property
    def shell(self) -> DescribedShell:
        """The card's shell. Raises HardwareBusyError while none is described."""
        if self._described is None:
            interfaces = " and ".join(self.reading.interfaces) or "none"
            raise HardwareBusyError(
                f"no shell is described for card {self._name}, whose {self.interfaces_are} {interfaces}"
            )
        return self._described

    def find_loaded(self) -> dict[Placement, str]:
        """Return the functions that are loaded now, by their slots."""
        found: dict[Placement, str] = {}
        for slot in self.list_slots():
            with suppress(HardwareBusyError, CardAbsentError):  # a load into the slot goes on, or the card goes
                functions = (self.shell.find_function(slot, afu_id) for afu_id in self.read_slot(slot))
                found |= {Placement(slot, 1): function.name for function in functions if function is not None}
        return found

    @abstractmethod
    def list_slots(self) -> Sequence[int]:
        """Return the slots that are there."""

    @abstractmethod
    def program_slot(self, slot: int, bits: ImageBits, limit_s: float | None) -> None:
        """Have a slot programmed, and return when it is; a card that can ends it after ``limit_s`` seconds."""

    @abstractmethod
    def name_slot(self, slot: int) -> str:
        """Return what messages call a slot, such as ``slot 1 of 0000:3b:00.0``."""

    def find_fault(self, image: ImageReference, slot: Placement) -> ImageRefusal | None:
        del slot
        return self._resources.images.find_fault(image)

    def load_slot(self, slot: int, image: ImageReference, limit_s: float | None) -> None:
        place = self.name_slot(slot)
        with self._resources.images.open_bits(image) as bits:
            began = self._resources.now()
            self.program_slot(slot, bits, limit_s)
        took_s = self._resources.now() - began
        LOADS.inc()
        _log.info("%s was loaded into %s in %.2f s", image.name, place, took_s)
        if limit_s is not None and took_s > limit_s:
            raise HardwareRefusedError(
                f"the load of {image.name} into {place} took {took_s:.1f} s; at most {limit_s:g} s are allowed "
                "(timeoutSeconds of the FpgaConfig, loadSeconds of the image)"
            )
        reported = self.read_slot(slot)
        if image.afu_id not in reported:
            what = " and ".join(sorted(reported)) or self.nothing
            raise HardwareRefusedError(
                f"{place} reports {what} after the load of {image.name}, which is {image.afu_id}"
            )

    def release_slot(self, slot: int, own: str, blank: ImageReference | None, *, is_kept: bool) -> None:
        """Clear a held slot, or leave the function in it. Another's function that is there by now stays.

        ``own`` is the AFU id that the prepare has left in it; empty: whatever was there, because there is no ``blank``
        image. One for another shell than the card has by now is not loaded: what it would replace is gone.
        """
        action = choose_release(self.read_slot(slot), own or None, blank, is_kept=is_kept)
        if action != "Leave":
            is_for_card = blank is not None and blank.interface_uuid in self.reading.interfaces
            self.fill_slot(slot, blank if action == "Blank" and is_for_card else None, None)

    @property
    def _name(self) -> str:
        return self.reading.pci_address
