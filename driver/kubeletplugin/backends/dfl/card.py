"""One DFL card: survey, loading of functions into its slots, and their release.

Nothing on the card says for whom a function was loaded, and one that no process has open may be replaced: so only open
ports occupy slots. While Kerf works on a slot it has the port open exclusively, as the kernel allows.

Order of a prepare: everything that can be refused is refused before the card is changed; the ports are taken; a note
goes into the journal; then each slot is made what it is to be: errors of its last user cleared, the image loaded unless
the slot reports it already (a warm hit), the id read back, the port reset.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
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
    HardwareRefusedError,
    Journal,
)
from kerf_dra.driver.kubeletplugin.backends.dfl.driver_calls import DflDriver, PortInUseError
from kerf_dra.driver.kubeletplugin.backends.dfl.handles import HANDLES, DflHandle, FunctionHandle, SlotHandle
from kerf_dra.driver.kubeletplugin.backends.dfl.sysfs import CardFiles, DflCardReading, PortReading
from kerf_dra.driver.kubeletplugin.backends.dfl.virtual_functions import VirtualFunctions
from kerf_dra.driver.kubeletplugin.backends.fpga.images.files import ImageFiles
from kerf_dra.driver.kubeletplugin.backends.fpga.parameters import (
    check_namespace,
    find_fpga_config,
    find_function,
    find_load_limit,
)
from kerf_dra.driver.kubeletplugin.backends.fpga_loads import LOADS, WARM_HITS
from kerf_dra.driver.kubeletplugin.backends.kernel_files import describe_processes, find_openers, read_process_name
from kerf_dra.driver.partitions.geometry import Partition, Placement

_log = logging.getLogger(__name__)

_LOADING: Final = "loading"
"""The note that a change of the slots has begun, with the function's name."""
_GIVEN: Final = "given"
"""The note that slots are being given to virtual functions; in the end with the handle."""
_ONLY_WHOLE: Final = "this node gives cards as virtual functions, all ports at once"
_ONE_SLOT: Final = "this node gives cards as virtual functions: ask for the card's one slot"
"""Why not every device of a card can be had. A card with one slot is given by that, so that functions can be asked for.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class _HeldPort:
    """A port that no other process can open."""

    reading: PortReading
    descriptor: int


class DflCard:
    """One card; its methods have the contracts of Backend's."""

    def __init__(
        self,
        *,
        reading: DflCardReading,
        described: DescribedShell | None,
        files: CardFiles,
        images: ImageFiles,
        driver: DflDriver,
        functions: VirtualFunctions,
        has_functions: bool,
        now: Callable[[], float],
    ) -> None:
        """``described`` is None where no description has the card's interface: then it can only be released.

        ``has_functions``: containers get virtual functions, and the card is given as a whole.
        """
        self.reading = reading
        self._described = described
        self._files = files
        self._images = images
        self._driver = driver
        self._functions = functions
        self._has_functions = has_functions
        self._now = now

    @property
    def shell(self) -> DescribedShell:
        """The card's shell. Raises HardwareBusyError while none is described."""
        if self._described is None:
            interface = self.reading.interface_uuid or "none"
            raise HardwareBusyError(f"no shell is described for card {self._name}, whose interface is {interface}")
        return self._described

    def find_loaded(self) -> dict[Placement, str]:
        """Return the functions that are loaded now, by their slots."""
        found: dict[Placement, str] = {}
        for port in self.reading.ports:
            try:
                function = self.shell.find_function(port.slot, self._files.read_afu_id(self.reading, port))
            except (HardwareBusyError, CardAbsentError):  # a load into the slot goes on, or the card goes
                continue
            if function is not None:
                found[Placement(port.slot, 1)] = function.name
        return found

    def survey(self) -> CardSurvey:
        """List the slots whose ports a process has open, or that belong to a virtual function.

        What is loaded in a slot that nobody uses gives way to the next load. Slots that could not be cleared after
        their use cannot be had.
        """
        nodes = {f"/dev/dfl-port.{port.number}": port for port in self.reading.ports}
        used = {nodes[node].slot for node in find_openers(self._files.root / "proc", nodes.keys())}
        there = {port.slot for port in self.reading.ports}
        away = [slot for slot in range(self.reading.slots) if slot not in there]
        found = [_found(f"port-{slot}", slot) for slot in sorted(used)]
        fault = "" if self._described is None else self._described.fault
        no_whole = no_partitions = fault
        if not self._has_functions:
            found += [_found(f"port-{slot}-of-a-vf", slot) for slot in away]
        else:
            if away:
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
        self, device: AllocatedDevice, config: DeviceConfigBase | None, journal: Journal, *, is_stand_in: bool
    ) -> DflHandle:
        fpga_config = find_fpga_config(device, config)
        if self._has_functions and not device.admin_access:
            if (made := self._find_made(journal)) is not None:
                return made
            if _GIVEN in journal.notes:
                self._take_back()
        ports = self._find_ports(device.partition, is_admin=device.admin_access)
        handle = DflHandle(
            card=self.reading.uuid,
            device=device.share.id.device,
            slots=tuple(SlotHandle(slot=port.slot, port=port.number) for port in ports),
            release=fpga_config.release,
            is_admin=device.admin_access,
            is_stand_in=is_stand_in,
        )
        if device.admin_access:
            return handle
        name = find_function(device, fpga_config)
        check_namespace(self.shell.specs.get(name), device)
        wanted = self._choose_images(name, ports)
        for image in wanted.values():
            self._check_image(image)
        function_slot = next((slot for slot in wanted if wanted[slot] is self._find_image(name, slot)), None)
        with self._hold(ports, HardwareConflictError, "in use outside of Kerf: ") as held:
            if _LOADING not in journal.notes:
                journal.write(**{_LOADING: name})
            for port in held:
                slot_image = wanted.get(port.reading.slot)
                limit_s = find_load_limit(fpga_config, slot_image.load_s if slot_image else 0.0)
                self._bring(port, slot_image, limit_s)
        prepared = structs.replace(
            handle,
            slots=tuple(self._describe_slot(port, wanted.get(port.slot)) for port in ports),
            function=name,
            function_slot=function_slot,
            version=self._find_version(name),
            parameters=dict(spec.parameters) if (spec := self.shell.specs.get(name)) is not None else {},
        )
        return self._give(prepared, journal) if self._has_functions else prepared

    def unprepare(self, handle: DflHandle) -> None:
        """Clear the slots, or leave the function in them. Another's function that is there by now stays."""
        if handle.is_admin:
            return
        if handle.functions:
            self._take_back()
        found = [(slot, self.reading.find_port(slot.slot)) for slot in handle.slots]
        there = [(slot, port) for slot, port in found if port is not None]
        with self._hold([port for _, port in there], HardwareHeldError, "") as held:
            for (slot, _), port in zip(there, held, strict=True):
                self._release(handle, slot, port)

    def abandon(self, device: AllocatedDevice, journal: Journal) -> None:
        """Clear the slots if a change of them has begun."""
        if _LOADING not in journal.notes:
            return
        if _GIVEN in journal.notes:
            self._take_back()
        blanks = self.shell.blanks
        slots = self._list_slots(device.partition)
        ports = [port for slot in slots.units if (port := self.reading.find_port(slot)) is not None]
        with self._hold(ports, HardwareHeldError, "") as held:
            for one in held:
                self._bring(one, blanks.get(one.reading.slot), None)

    # Virtual functions

    def _give(self, handle: DflHandle, journal: Journal) -> DflHandle:
        """Give the loaded slots to virtual functions. The handle is noted, as ports that are away say nothing."""
        journal.write(**{_GIVEN: None})
        made = self._functions.make(self.reading, [slot.slot for slot in handle.slots])
        functions = tuple(FunctionHandle(address=one.address, group=one.group) for one in made)
        given = structs.replace(handle, functions=functions)
        journal.write(**{_GIVEN: HANDLES.encode(given)})
        return given

    def _find_made(self, journal: Journal) -> DflHandle | None:
        """Return the noted handle if all of its virtual functions are there; None: not all is done."""
        if (noted := journal.notes.get(_GIVEN)) is None:
            return None
        handle = HANDLES.decode(noted)
        there = {(one.address, one.group, one.driver) for one in self._functions.list_functions(self.reading)}
        wanted = {(one.address, one.group, "vfio-pci") for one in handle.functions}
        return handle if wanted == there else None

    def _find_given(self) -> FoundPartition:
        """Return what is on the card whose ports are away: for a card with one slot in its place."""
        used = find_openers(
            self._files.root / "proc", {one.node for one in self._functions.list_functions(self.reading)}
        )
        place = Placement(0, 1) if self.reading.slots == 1 else None
        return FoundPartition(id="virtual-functions", profile=None, placement=place, in_use=True if used else None)

    def _take_back(self) -> None:
        """Remove the card's virtual functions. Raises HardwareHeldError: a process uses one."""
        nodes = {one.node for one in self._functions.list_functions(self.reading)}
        proc = self._files.root / "proc"
        for node, pids in find_openers(proc, nodes).items():
            names = {pid: read_process_name(proc, pid) for pid in pids}
            raise HardwareHeldError(f"card {self._name} is in use: {describe_processes(names)} has {node} open")
        if self._functions.undo(self.reading):
            now = self._files.read_again(self.reading)
            if now is None:
                raise CardAbsentError(f"card {self._name} is not there any more")
            self.reading = now

    # What a slot is to be

    def _choose_images(self, name: str, ports: list[PortReading]) -> dict[int, ImageReference]:
        """Return what each slot is to have: the function in the first for which it has an image, else blank ones."""
        wanted = {port.slot: blank for port in ports if (blank := self.shell.blanks.get(port.slot)) is not None}
        if not name:
            return wanted
        if self.shell.shell.function(name) is None:
            known = ", ".join(sorted(one.name for one in self.shell.shell.functions)) or "none"
            raise HardwareRefusedError(f"shell {self.shell.shell.name} has no function {name!r}; it has: {known}")
        for port in ports:
            if (image := self._find_image(name, port.slot)) is not None:
                return {**wanted, port.slot: image}
        slots = " and ".join(str(slots.start) for function, slots in sorted(self.shell.images) if function == name)
        wished = ", ".join(str(port.slot) for port in ports)
        raise HardwareRefusedError(f"{name} has no image for slot {wished} of {self._name}; it has for {slots}")

    def _find_image(self, name: str, slot: int) -> ImageReference | None:
        return self.shell.images.get((name, Placement(slot, 1)))

    def _find_version(self, name: str) -> str:
        function = self.shell.shell.function(name)
        return "" if function is None else function.version

    def _check_image(self, image: ImageReference) -> None:
        """Refuse an image that is not what was described: the card's interface chooses the descriptions."""
        if (fault := self._images.find_fault(image)) is not None:
            raise HardwareRefusedError(fault.message)

    def _describe_slot(self, port: PortReading, image: ImageReference | None) -> SlotHandle:
        return SlotHandle(
            slot=port.slot,
            port=port.number,
            afu_id=image.afu_id if image else "",
            blank=self.shell.blanks.get(port.slot),
        )

    # Changes

    def _bring(self, port: _HeldPort, image: ImageReference | None, limit_s: float | None) -> None:
        """Make a slot what it is to be, and reset its port; without an image its function stays as it is."""
        if errors := self._files.read_port_errors(self.reading, port.reading):
            _log.info("errors %#x of the last user of slot %d of %s are cleared", errors, port.reading.slot, self._name)
            self._driver.clear_port_errors(self.reading, port.reading, errors)
        if image is not None:
            if self._files.read_afu_id(self.reading, port.reading) == image.afu_id:
                WARM_HITS.inc()
            else:
                self._load(port.reading, image, limit_s)
        self._driver.reset_port(self.reading, port.reading, port.descriptor)

    def _load(self, port: PortReading, image: ImageReference, limit_s: float | None) -> None:
        """Load an image and check what came of it. The kernel ends a load that hangs; one that took too long fails."""
        with self._images.open_bits(image) as bits:
            began = self._now()
            self._driver.program(self.reading, port, bits)
        took_s = self._now() - began
        LOADS.inc()
        _log.info("%s was loaded into slot %d of %s in %.2f s", image.file, port.slot, self._name, took_s)
        if limit_s is not None and took_s > limit_s:
            raise HardwareRefusedError(
                f"the load of {image.file} into slot {port.slot} of {self._name} took {took_s:.1f} s; at most "
                f"{limit_s:g} s are allowed (timeoutSeconds of the FpgaConfig, loadSeconds of the image)"
            )
        loaded = self._files.read_afu_id(self.reading, port)
        if loaded != image.afu_id:
            raise HardwareRefusedError(
                f"slot {port.slot} of {self._name} reports {loaded or 'no function'} after the load of {image.file}, "
                f"which is {image.afu_id}"
            )
        if errors := self._files.read_port_errors(self.reading, port):
            raise HardwareBusyError(f"slot {port.slot} of {self._name} reports the errors {errors:#x} after its load")

    def _release(self, handle: DflHandle, slot: SlotHandle, port: _HeldPort) -> None:
        now = self._files.read_afu_id(self.reading, port.reading)
        blank = slot.blank
        known = {"", slot.afu_id, *({blank.afu_id} if blank is not None else ())}
        if slot.afu_id and now not in known:
            return  # loaded by somebody else since
        is_kept = handle.release == "Keep" and slot.slot == handle.function_slot and now == slot.afu_id
        if blank is not None and not is_kept and blank.interface_uuid != self.reading.interface_uuid:
            blank = None  # another shell by now: what was loaded into the old one is gone
        self._bring(port, None if is_kept else blank, None)

    # Ports

    def _list_slots(self, partition: Partition) -> Placement:
        return partition.placement or Placement(0, self.reading.slots)

    def _find_ports(self, partition: Partition, *, is_admin: bool) -> list[PortReading]:
        """Return the ports of a device, for an administrator those that are there.

        Raises HardwareConflictError for one that a virtual function has.
        """
        found = []
        for slot in self._list_slots(partition).units:
            port = self.reading.find_port(slot)
            if port is None and is_admin:
                continue
            if port is None:
                raise HardwareConflictError(f"in use outside of Kerf: slot {slot} of {self._name} is not on its PF")
            found.append(port)
        return found

    @contextmanager
    def _hold(
        self, ports: list[PortReading], kind: type[HardwareConflictError | HardwareHeldError], prefix: str
    ) -> Iterator[list[_HeldPort]]:
        """Take all ports, or none. Raises ``kind`` where a process has one of them open."""
        with ExitStack() as stack:
            held = []
            for port in ports:
                try:
                    descriptor = stack.enter_context(self._driver.hold_port(self.reading, port))
                except PortInUseError as error:
                    raise kind(f"{prefix}{self._describe_use(port)}") from error
                held.append(_HeldPort(reading=port, descriptor=descriptor))
            yield held

    def _describe_use(self, port: PortReading) -> str:
        proc, node = self._files.root / "proc", f"/dev/dfl-port.{port.number}"
        names = {pid: read_process_name(proc, pid) for pid in find_openers(proc, {node}).get(node, ())}
        by = describe_processes(names) if names else "a process that cannot be seen from here"
        return f"slot {port.slot} of {self._name} is in use: {by} has {node} open"

    @property
    def _name(self) -> str:
        return self.reading.pci_address


def _found(id_: str, slot: int) -> FoundPartition:
    return FoundPartition(id=id_, profile=None, placement=Placement(slot, 1), in_use=True)
