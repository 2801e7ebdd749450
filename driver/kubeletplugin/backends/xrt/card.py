"""One Alveo card: survey, loading of functions, and its release. A card has one region, which is its only slot.

Nothing on the card says for whom a function was loaded, and one that no process has open may be replaced: so a card is
occupied while a process has its render node open, or one of its compute units. The driver refuses a load while a
compute unit is open, so that no load disturbs a program that came after the survey.

The order of a prepare is that of ``fpga.slot_loader``.
"""

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from msgspec import structs

from kerf_dra.api.kerf.v1alpha1 import DeviceConfigBase
from kerf_dra.driver.kubeletplugin.backends.base import (
    AllocatedDevice,
    CardSurvey,
    FoundPartition,
    HardwareConflictError,
    HardwareHeldError,
    Journal,
)
from kerf_dra.driver.kubeletplugin.backends.fpga.image_card import CardResources, ImageCard
from kerf_dra.driver.kubeletplugin.backends.fpga.images.files import ImageBits
from kerf_dra.driver.kubeletplugin.backends.fpga.parameters import find_compute_unit_percent
from kerf_dra.driver.kubeletplugin.backends.fpga.slot_loader import SlotPlan, SlotSelection, has_begun
from kerf_dra.driver.kubeletplugin.backends.kernel_files import describe_processes, find_openers, read_process_name
from kerf_dra.driver.kubeletplugin.backends.xrt.handles import XrtHandle
from kerf_dra.driver.kubeletplugin.backends.xrt.library import Loader
from kerf_dra.driver.kubeletplugin.backends.xrt.sysfs import XrtCardReading, XrtFiles
from kerf_dra.driver.partitions.geometry import Placement

REGION: Final = Placement(0, 1)
"""The only slot of a card: programs configure all of what is not its shell at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class XrtResources(CardResources):
    """What all cards of the backend are read and loaded with."""

    files: XrtFiles
    loader: Loader


class XrtCard(ImageCard[XrtCardReading, XrtResources]):
    """One card for one call; its methods have the contracts of Backend's."""

    nothing = "no image"
    interfaces_are = "interfaces are"

    def list_slots(self) -> Sequence[int]:
        return REGION.units

    def survey(self) -> CardSurvey:
        """Say whether a process uses the card, and why it cannot be allocated: its blank image is wrong, or libxrt is
        absent.

        What is loaded in a card that no process uses gives way to the next load.
        """
        users = self._find_users()
        found = [FoundPartition(id="region", profile=None, placement=REGION, in_use=True)] if users else []
        fault = (self._described.fault if self._described is not None else "") or self._resources.loader.find_fault()
        return CardSurvey(
            card_uuid=self.reading.uuid, partitions=tuple(found), no_whole=fault, no_partitions=fault, no_static=fault
        )

    def prepare(
        self, device: AllocatedDevice, config: DeviceConfigBase | None, journal: Journal, found: FoundPartition | None
    ) -> XrtHandle:
        plan = self.load_slots(device, config, journal, found)
        return XrtHandle(
            card=self.reading.uuid,
            device=device.share.id.device,
            pci_address=self.reading.pci_address,
            nodes=self._nodes,
            function=plan.function,
            version=plan.version,
            afu_id=plan.find_id(REGION.start),
            parameters=dict(plan.parameters),
            blank=plan.blanks.get(REGION.start),
            release=plan.config.release,
            compute_unit_percent=find_compute_unit_percent(device),
            is_admin=device.admin_access,
            is_stand_in=self._resources.is_stand_in,
        )

    def unprepare(self, handle: XrtHandle) -> None:
        """Clear the card, or leave the function in it. Another's function that is there by now stays."""
        if handle.is_admin:
            return
        self._check_unused()
        is_kept = handle.release == "Keep" and bool(handle.function)
        self.release_slot(REGION.start, handle.afu_id, handle.blank, is_kept=is_kept)

    def abandon(self, device: AllocatedDevice, journal: Journal) -> None:
        """Clear the card if a change of it has begun."""
        del device
        if has_begun(journal):
            self._check_unused()
            self.fill_slot(REGION.start, self.shell.blanks.get(REGION.start), None)

    def renumber(self, handle: XrtHandle) -> XrtHandle:
        return structs.replace(handle, nodes=self._nodes)

    # What the loader asks for

    def select_slots(self, device: AllocatedDevice, function: str) -> SlotSelection:
        del function
        return SlotSelection(slots=REGION, shell=None if device.admin_access else self.shell, place=self._name)

    @contextmanager
    def hold_slots(self, plan: SlotPlan) -> Iterator[None]:
        """The driver refuses a load while a compute unit is open: no process need be kept away here."""
        # Where something is found, the users are those of claims that share the function.
        if plan.found is None and (users := self._find_users()):
            raise HardwareConflictError(f"in use outside of Kerf: {self._describe_use(users)}")
        yield

    def read_slot(self, slot: int) -> Collection[str]:
        del slot
        return self._resources.files.read_loaded(self.reading)

    def program_slot(self, slot: int, bits: ImageBits, limit_s: float | None) -> None:
        del slot
        self._resources.loader.load(self._name, bits, limit_s)

    def name_slot(self, slot: int) -> str:
        del slot
        return self._name

    # Processes

    @property
    def _node(self) -> str:
        return f"/dev/dri/renderD{self.reading.render}"

    @property
    def _nodes(self) -> tuple[str, ...]:
        return (self._node, *self.reading.queues)

    def _find_users(self) -> dict[int, str]:
        """Return the processes that use the card, by id, each with its name where it can be seen."""
        proc = self._resources.files.root / "proc"
        found = {pid for pids in find_openers(proc, {*self._nodes}).values() for pid in pids}
        return {
            pid: read_process_name(proc, pid) for pid in sorted(found | self._resources.files.read_users(self.reading))
        }

    def _check_unused(self) -> None:
        if users := self._find_users():
            raise HardwareHeldError(self._describe_use(users))

    def _describe_use(self, users: dict[int, str]) -> str:
        return f"card {self._name} is in use: {describe_processes(users)} has {self._node} open"
