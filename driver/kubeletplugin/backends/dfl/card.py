"""One DFL card: survey, loading of functions into its slots, and their release.

Nothing on the card says for whom a function was loaded, and one that no process has open may be replaced: so only open
ports occupy slots. While Kerf works on a slot it has the port open exclusively, as the kernel allows.

The order of a prepare is that of ``fpga.slot_loader``. Besides, errors of a slot's last user are cleared before it is
made what it is to be, and its port is reset after it.

Nothing is loaded into a port that the driver keeps in reset: no load ends that (``driver_calls``). Its slot is released
as it is: nothing reaches what is in it, and once it can be used again, the prepare of the next claim clears it.
"""

import logging
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from msgspec import structs

from kerf_dra.api.kerf.v1alpha1 import DeviceConfigBase
from kerf_dra.driver.families.fpga.descriptions import DescribedShell, ImageReference
from kerf_dra.driver.kubeletplugin.backends.base import (
    AllocatedDevice,
    CardAbsentError,
    CardSurvey,
    FoundPartition,
    HardwareBusyError,
    HardwareConflictError,
    HardwareHeldError,
    Journal,
)
from kerf_dra.driver.kubeletplugin.backends.dfl.driver_calls import (
    BIND_AGAIN,
    DflDriver,
    PortInResetError,
    PortInUseError,
)
from kerf_dra.driver.kubeletplugin.backends.dfl.handles import HANDLES, DflHandle, FunctionHandle, SlotHandle
from kerf_dra.driver.kubeletplugin.backends.dfl.sysfs import CardFiles, DflCardReading, PortReading
from kerf_dra.driver.kubeletplugin.backends.dfl.virtual_functions import VirtualFunctions
from kerf_dra.driver.kubeletplugin.backends.fpga.image_card import CardResources, ImageCard
from kerf_dra.driver.kubeletplugin.backends.fpga.images.files import ImageBits
from kerf_dra.driver.kubeletplugin.backends.fpga.parameters import find_fpga_config
from kerf_dra.driver.kubeletplugin.backends.fpga.slot_loader import SlotPlan, SlotSelection, has_begun
from kerf_dra.driver.kubeletplugin.backends.kernel_files import describe_processes, find_openers, read_process_name
from kerf_dra.driver.partitions.geometry import Placement

_log = logging.getLogger(__name__)

_GIVEN: Final = "given"
"""The note that slots are being given to virtual functions; in the end with the handle."""
_ONLY_WHOLE: Final = "this node gives cards as virtual functions, all ports at once"
_ONE_SLOT: Final = "this node gives cards as virtual functions: ask for the card's one slot"
"""Why not every device of a card can be allocated. A card with one slot is given by that, so that functions can be
asked for.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class DflResources(CardResources):
    """What all cards of the backend are read, loaded and given with."""

    files: CardFiles
    driver: DflDriver
    functions: VirtualFunctions
    gives_functions: bool
    """Whether containers get virtual functions, and each card is given as a whole."""


class DflCard(ImageCard[DflCardReading, DflResources]):
    """One card for one call; its methods have the contracts of Backend's."""

    def __init__(self, reading: DflCardReading, described: DescribedShell | None, resources: DflResources) -> None:
        super().__init__(reading, described, resources)
        self._held: dict[int, int] = {}
        """The descriptors of the ports that no other process can open, by slot."""

    def list_slots(self) -> Sequence[int]:
        return [port.slot for port in self.reading.ports]

    def survey(self) -> CardSurvey:
        """List the slots whose ports a process has open, or that belong to a virtual function.

        What is loaded in a slot that no process uses gives way to the next load. Slots that could not be cleared after
        their use cannot be allocated.
        """
        nodes = {f"/dev/dfl-port.{port.number}": port for port in self.reading.ports}
        used = {nodes[node].slot for node in find_openers(self._proc, nodes.keys())}
        there = {*self.list_slots(), *self.reading.undriven_slots}
        away = [slot for slot in range(self.reading.slots) if slot not in there]
        found = [_found(f"port-{slot}", slot) for slot in sorted(used)]
        fault = "" if self._described is None else self._described.fault
        no_whole = no_partitions = fault
        if not self._resources.gives_functions:
            found += [_found(f"port-{slot}-of-a-vf", slot) for slot in away]
        else:
            if self.reading.released or self._resources.functions.list_functions(self.reading):
                found = [self._find_given()]
            if self.reading.slots == 1:
                no_whole = fault or _ONE_SLOT
            else:
                no_partitions = fault or _ONLY_WHOLE
        return CardSurvey(
            card_uuid=self.reading.uuid,
            partitions=tuple(found),
            no_whole=no_whole,
            no_partitions=no_partitions,
            no_static=fault,
        )

    def prepare(
        self, device: AllocatedDevice, config: DeviceConfigBase | None, journal: Journal, found: FoundPartition | None
    ) -> DflHandle:
        gives_functions = self._resources.gives_functions and not device.admin_access
        if gives_functions:
            find_fpga_config(device, config)
            if (made := self._find_made(journal)) is not None:
                return made
            if _GIVEN in journal.notes:
                self._take_back()
        plan = self.load_slots(device, config, journal, found)
        ports = filter(None, map(self.reading.find_port, plan.slots.units))  # for an administrator those that are there
        handle = DflHandle(
            card=self.reading.uuid,
            device=device.share.id.device,
            slots=tuple(
                SlotHandle(
                    slot=port.slot, port=port.number, afu_id=plan.find_id(port.slot), blank=plan.blanks.get(port.slot)
                )
                for port in ports
            ),
            function=plan.function,
            function_slot=plan.function_slot,
            version=plan.version,
            parameters=dict(plan.parameters),
            release=plan.config.release,
            is_admin=device.admin_access,
            is_stand_in=self._resources.is_stand_in,
        )
        return self._give(handle, journal) if gives_functions else handle

    def unprepare(self, handle: DflHandle) -> None:
        """Clear the slots, or leave the function in them. Another's function that is there by now stays."""
        if handle.is_admin:
            return
        if handle.functions:
            self._take_back()
        kept_slot = handle.function_slot if handle.release == "Keep" else None
        with self._hold([one.slot for one in handle.slots], HardwareHeldError, ""):
            for one in handle.slots:
                if one.slot in self._held:
                    with self._leave_in_reset(one.slot):
                        self.release_slot(one.slot, one.afu_id, one.blank, is_kept=one.slot == kept_slot)

    def abandon(self, device: AllocatedDevice, journal: Journal) -> None:
        """Clear the slots if a change of them has begun."""
        if not has_begun(journal):
            return
        if _GIVEN in journal.notes:
            self._take_back()
        blanks = self.shell.blanks
        with self._hold(self._list_slots(device).units, HardwareHeldError, ""):
            for slot in self._held:
                with self._leave_in_reset(slot):
                    self.fill_slot(slot, blanks.get(slot), None)

    def renumber(self, handle: DflHandle) -> DflHandle:
        """Return the handle with the ports and IOMMU groups of now. A port that a virtual function has shows none."""
        ports = {port.slot: port.number for port in self.reading.ports}
        groups = {one.address: one.group for one in self._resources.functions.list_functions(self.reading)}
        return structs.replace(
            handle,
            slots=tuple(structs.replace(one, port=ports.get(one.slot, one.port)) for one in handle.slots),
            functions=tuple(
                structs.replace(one, group=groups.get(one.address) or one.group) for one in handle.functions
            ),
        )

    # What the loader asks for

    def select_slots(self, device: AllocatedDevice, function: str) -> SlotSelection:
        del function  # a card has one layout
        slots = self._list_slots(device)
        for slot in () if device.admin_access else slots.units:
            if slot in self.reading.undriven_slots:
                raise HardwareBusyError(describe_undriven(self.reading, slot))
            if self.reading.find_port(slot) is None:
                raise HardwareConflictError(f"in use outside of Kerf: slot {slot} of {self._name} is not on its PF")
        return SlotSelection(slots=slots, shell=None if device.admin_access else self.shell, place=self._name)

    def hold_slots(self, plan: SlotPlan) -> AbstractContextManager[None]:
        return self._hold(plan.slots.units, HardwareConflictError, "in use outside of Kerf: ")

    @contextmanager
    def use_slot(self, slot: int) -> Iterator[None]:
        """Clear the errors that the last user has left in the port, and reset it afterwards."""
        port = self._get_port(slot)
        if errors := self._resources.files.read_port_errors(self.reading, port):
            _log.info("errors %#x of the last user of %s are cleared", errors, self.name_slot(slot))
            self._resources.driver.clear_port_errors(self.reading, port, errors)
        yield
        self._resources.driver.reset_port(self.reading, port, self._held[slot])

    def read_slot(self, slot: int) -> Collection[str]:
        return {*filter(None, [self._resources.driver.read_afu_id(self.reading, self._get_port(slot))])}

    def load_slot(self, slot: int, image: ImageReference, limit_s: float | None) -> None:
        super().load_slot(slot, image, limit_s)
        if errors := self._resources.files.read_port_errors(self.reading, self._get_port(slot)):
            raise HardwareBusyError(f"{self.name_slot(slot)} reports the errors {errors:#x} after its load")

    def program_slot(self, slot: int, bits: ImageBits, limit_s: float | None) -> None:
        """The kernel ends a load that hangs; one that has taken too long is refused afterwards."""
        del limit_s
        self._resources.driver.program(self.reading, self._get_port(slot), bits)

    def name_slot(self, slot: int) -> str:
        return f"slot {slot} of {self._name}"

    @property
    def _proc(self) -> Path:
        return self._resources.files.root / "proc"

    # Virtual functions

    def _give(self, handle: DflHandle, journal: Journal) -> DflHandle:
        """Give the loaded slots to virtual functions. The handle is noted, as ports that are away say nothing."""
        journal.write(**{_GIVEN: None})
        made = self._resources.functions.make(self.reading, [slot.slot for slot in handle.slots])
        functions = tuple(FunctionHandle(address=one.address, group=one.group) for one in made)
        given = structs.replace(handle, functions=functions)
        journal.write(**{_GIVEN: HANDLES.encode(given)})
        return given

    def _find_made(self, journal: Journal) -> DflHandle | None:
        """Return the noted handle if all of its virtual functions are there; None: not all is done."""
        if (noted := journal.notes.get(_GIVEN)) is None:
            return None
        handle = HANDLES.decode(noted)
        there = {(one.address, one.group, one.driver) for one in self._resources.functions.list_functions(self.reading)}
        wanted = {(one.address, one.group, "vfio-pci") for one in handle.functions}
        return handle if wanted == there else None

    def _find_given(self) -> FoundPartition:
        """Return what is on the card whose ports are away: for a card with one slot in its place."""
        nodes = {one.node for one in self._resources.functions.list_functions(self.reading)}
        used = find_openers(self._proc, nodes)
        place = Placement(0, 1) if self.reading.slots == 1 else None
        return FoundPartition(id="virtual-functions", profile=None, placement=place, in_use=True if used else None)

    def _take_back(self) -> None:
        """Remove the card's virtual functions. Raises HardwareHeldError: a process uses one."""
        nodes = {one.node for one in self._resources.functions.list_functions(self.reading)}
        for node, pids in find_openers(self._proc, nodes).items():
            names = {pid: read_process_name(self._proc, pid) for pid in pids}
            raise HardwareHeldError(f"card {self._name} is in use: {describe_processes(names)} has {node} open")
        if self._resources.functions.undo(self.reading):
            now = self._resources.files.read_again(self.reading)
            if now is None:
                raise CardAbsentError(f"card {self._name} is not there any more")
            self.reading = now
            if now.released:
                raise HardwareBusyError(f"card {self._name} has not got all of its ports back")

    # Ports

    def _list_slots(self, device: AllocatedDevice) -> Placement:
        return device.partition.placement or Placement(0, self.reading.slots)

    def _get_port(self, slot: int) -> PortReading:
        port = self.reading.find_port(slot)
        assert port is not None  # it was when the slot was held
        return port

    @contextmanager
    def _leave_in_reset(self, slot: int) -> Iterator[None]:
        """Leave a slot as it is where its port is kept in reset."""
        try:
            yield
        except PortInResetError:
            _log.info("%s is in reset: it is released as it is, and cleared for the next claim", self.name_slot(slot))

    @contextmanager
    def _hold(
        self, slots: Iterable[int], kind: type[HardwareConflictError | HardwareHeldError], prefix: str
    ) -> Iterator[None]:
        """Take the ports of ``slots`` that are there, all or none. Raises ``kind`` where a process has one open."""
        with ExitStack() as stack:
            stack.callback(self._held.clear)
            for port in filter(None, map(self.reading.find_port, slots)):
                try:
                    self._held[port.slot] = stack.enter_context(self._resources.driver.hold_port(self.reading, port))
                except PortInUseError as error:
                    raise kind(f"{prefix}{self._describe_use(port)}") from error
            yield

    def _describe_use(self, port: PortReading) -> str:
        proc, node = self._proc, f"/dev/dfl-port.{port.number}"
        names = {pid: read_process_name(proc, pid) for pid in find_openers(proc, {node}).get(node, ())}
        by = describe_processes(names) if names else "a process that cannot be seen from here"
        return f"{self.name_slot(port.slot)} is in use: {by} has {node} open"


def describe_undriven(card: DflCardReading, slot: int) -> str:
    """Return why one of ``undriven_slots`` cannot be used."""
    return f"slot {slot} of {card.pci_address} has no port with a driver: load dfl-afu; if it is loaded, {BIND_AGAIN}"


def _found(id_: str, slot: int) -> FoundPartition:
    return FoundPartition(id=id_, profile=None, placement=Placement(slot, 1), in_use=True)
