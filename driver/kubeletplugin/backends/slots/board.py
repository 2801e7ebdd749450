"""One board: survey, loading of functions into its slots, and their release.

Nothing says for whom a package was loaded. A loaded package that a description names is Kerf's to replace once no
process has its devices open; anything else that is loaded is in use outside of Kerf until it is unloaded.

Order of a prepare: everything that can be refused is refused before the card is changed; a note goes into the journal;
then each slot is made what it is to be: what is in it is unloaded, the image loaded unless it is there already (a warm
hit), and that it is there, with its devices, is read back. The daemon chooses the slot of a load: the package has a
directory for one slot alone.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from msgspec import structs

from api.kerf.v1alpha1 import DeviceConfigBase, FpgaConfig
from driver.families.fpga.descriptions import DescribedShell, ImageReference
from driver.kubeletplugin.backends.base import (
    AllocatedDevice,
    CardSurvey,
    FoundPartition,
    HardwareBusyError,
    HardwareConflictError,
    HardwareHeldError,
    HardwareRefusedError,
    Journal,
)
from driver.kubeletplugin.backends.fpga_loads import LOADS, WARM_HITS
from driver.kubeletplugin.backends.fpga_parameters import (
    check_namespace,
    find_fpga_config,
    find_function,
    find_load_limit,
)
from driver.kubeletplugin.backends.kernel_files import describe_processes, find_openers, read_process_name
from driver.kubeletplugin.backends.slots.daemon import DfxDaemon
from driver.kubeletplugin.backends.slots.handles import PreparedSlot, SlotsHandle, UioDevice
from driver.kubeletplugin.backends.slots.images import PackageImages
from driver.kubeletplugin.backends.slots.messages import Loaded, show_base
from driver.kubeletplugin.backends.slots.packages import BaseDesign, InvalidPackageError
from driver.partitions.geometry import Partition, Placement

_log = logging.getLogger(__name__)

_LOADING: Final = "loading"
"""The note that a change of the slots has begun, with the function's name."""
_PLATFORM: Final = "sys/bus/platform/devices"
_DEFAULTS: Final = FpgaConfig(api_version="kerf.dev/v1alpha1")
"""The configuration of loads that no claim has asked for, at a release."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Occupant:
    """What is loaded in a slot."""

    loaded: Loaded
    image: ImageReference | None
    """The described image that it is; None: somebody else's."""
    nodes: tuple[UioDevice, ...]
    """Its devices that are there."""


class SlotsBoard:
    """The one card of a board; its methods have the contracts of Backend's."""

    def __init__(
        self,
        *,
        card_uuid: str,
        base: BaseDesign | None,
        described: DescribedShell | None,
        root: Path,
        images: PackageImages,
        daemon: DfxDaemon,
    ) -> None:
        """``base`` and ``described`` are None where none is described: then the card can only be released.

        ``root`` is the directory with ``sys`` and ``proc``.
        """
        self._uuid = card_uuid
        self._base = base
        self._described = described
        self._root = root
        self._images = images
        self._daemon = daemon

    @property
    def shell(self) -> DescribedShell:
        """The board's shell. Raises HardwareBusyError while none is described."""
        if self._described is None:
            raise HardwareBusyError("no shell is described for a base design of this board")
        return self._described

    @property
    def base(self) -> BaseDesign:
        """The base design. Raises HardwareBusyError while none is described."""
        if self._base is None:
            raise HardwareBusyError("no shell is described for a base design of this board")
        return self._base

    def find_loaded(self) -> dict[Placement, str]:
        """Return the functions that are loaded now, by their slots."""
        return {
            Placement(slot, 1): one.image.function
            for slot, one in self._read_slots().items()
            if one.image is not None and one.image.function
        }

    def survey(self) -> CardSurvey:
        """List the slots that hold what nobody has described, or whose devices a process has open.

        A loaded file of somebody, or another base design in use, holds the whole card. Slots that could not be cleared
        after their use cannot be had.
        """
        listing = self._daemon.read_listing()
        name, units = ("", 0) if self._base is None else (show_base(self._base.name), self._base.slots)
        found = [
            FoundPartition(id=f"handle-{one.handle}", profile=None, placement=None, in_use=True)
            for one in listing.loaded
            if one.slot is None or one.base != name
        ]
        occupants = self._find_occupants(listing.loaded, name)
        used = self._find_users(occupants)
        found += [
            FoundPartition(id=f"slot-{slot}", profile=None, placement=Placement(slot, 1), in_use=True)
            for slot, one in sorted(occupants.items())
            if slot < units and (one.image is None or used.get(slot))
        ]
        fault = "" if self._described is None else self._described.fault
        return CardSurvey(
            card_uuid=self._uuid, partitions=tuple(found), no_whole=fault, no_partitions=fault, no_static=fault
        )

    def prepare(
        self, device: AllocatedDevice, config: DeviceConfigBase | None, journal: Journal, *, is_stand_in: bool
    ) -> SlotsHandle:
        fpga_config = find_fpga_config(device, config)
        slots = self._list_slots(device.partition)
        handle = SlotsHandle(
            card=self._uuid,
            device=device.share.id.device,
            base=self.base.path,
            slots=tuple(PreparedSlot(slot=slot) for slot in slots.units),
            release=fpga_config.release,
            is_admin=device.admin_access,
            is_stand_in=is_stand_in,
        )
        if device.admin_access:
            return handle
        name = find_function(device, fpga_config)
        spec = self.shell.specs.get(name)
        check_namespace(spec, device)
        wanted = self._choose_images(name, slots)
        for slot, image in wanted.items():
            self._check_image(image, slot)
        occupants = self._read_slots()
        self._check_free(slots, occupants)
        if _LOADING not in journal.notes:
            journal.write(**{_LOADING: name})
        for slot in slots.units:
            slot_image = wanted.get(slot)
            if slot_image is not None:
                self._bring(slot, slot_image, occupants.get(slot), find_load_limit(fpga_config, slot_image.load_s))
            elif slot in occupants:
                self._clear(slot, occupants[slot], self.shell.blanks.get(slot))
        prepared = tuple(
            PreparedSlot(slot=slot, image=wanted.get(slot), blank=self.shell.blanks.get(slot)) for slot in slots.units
        )
        nodes = [node for slot, image in wanted.items() for node in self._find_nodes(image, slot)]
        function = self.shell.shell.function(name)
        return structs.replace(
            handle,
            slots=prepared,
            nodes=tuple(nodes),
            function=name,
            version="" if function is None else function.version,
            parameters=dict(spec.parameters) if spec is not None else {},
        )

    def unprepare(self, handle: SlotsHandle) -> None:
        """Clear the slots, or load the function anew. What another has loaded there by now stays."""
        if handle.is_admin:
            return
        occupants = self._find_occupants(
            self._daemon.read_listing().loaded, show_base(handle.base.rpartition("/")[2]), handle
        )
        ours = {slot.slot: occupants.get(slot.slot) for slot in handle.slots}
        self._check_unused({slot: one for slot, one in ours.items() if one is not None})
        for slot in handle.slots:
            occupant = ours[slot.slot]
            if occupant is not None and occupant.image not in (slot.image, slot.blank):
                continue  # loaded by somebody else since
            self._clear(slot.slot, occupant, slot.blank)
            if slot.image is not None and occupant is not None and handle.release == "Keep":
                limit_s = find_load_limit(_DEFAULTS, slot.image.load_s)
                self._load(slot.slot, slot.image, limit_s)  # anew, so that it forgets what it was used for

    def abandon(self, device: AllocatedDevice, journal: Journal) -> None:
        """Clear the slots if a change of them has begun. What another has loaded there by now stays."""
        if _LOADING not in journal.notes:
            return
        slots = self._list_slots(device.partition)
        occupants = self._read_slots()
        self._check_unused({slot: occupants[slot] for slot in slots.units if slot in occupants})
        for slot in slots.units:
            occupant = occupants.get(slot)
            if occupant is None or occupant.image is not None:
                self._clear(slot, occupant, self.shell.blanks.get(slot))

    # What a slot is to be

    def _list_slots(self, partition: Partition) -> Placement:
        return partition.placement or Placement(0, self.base.slots)

    def _choose_images(self, name: str, slots: Placement) -> dict[int, ImageReference]:
        """Return the image of a function and its slot, the first that has one; nothing for no function."""
        if not name:
            return {}
        if self.shell.shell.function(name) is None:
            known = ", ".join(sorted(one.name for one in self.shell.shell.functions)) or "none"
            raise HardwareRefusedError(f"shell {self.shell.shell.name} has no function {name!r}; it has: {known}")
        for slot in slots.units:
            if (image := self.shell.images.get((name, Placement(slot, 1)))) is not None:
                return {slot: image}
        there = " and ".join(str(one.start) for function, one in sorted(self.shell.images) if function == name)
        wished = ", ".join(map(str, slots.units))
        raise HardwareRefusedError(f"{name} has no image for slot {wished} of {self.base.path}; it has for {there}")

    def _check_image(self, image: ImageReference, slot: int) -> None:
        """Refuse an image that is not what was described."""
        if (fault := self._images.find_fault(image, self.base, slot)) is not None:
            raise HardwareRefusedError(fault.message)

    # What is in slots

    def _read_slots(self) -> dict[int, _Occupant]:
        return self._find_occupants(self._daemon.read_listing().loaded, show_base(self.base.name))

    def _find_occupants(
        self, loaded: Sequence[Loaded], base: str, handle: SlotsHandle | None = None
    ) -> dict[int, _Occupant]:
        """Return what is loaded into slots of a base, by slot. ``handle`` adds images that are described no more."""
        found: dict[int, _Occupant] = {}
        for one in loaded:
            if one.slot is None or one.base != base:
                continue
            known = (*self._list_images(one.slot), *_list_prepared(handle, one.slot))
            image = next((image for image in known if self._images.find_package(image, one.slot) == one.package), None)
            nodes = () if image is None else tuple(self._list_nodes(image))
            found[one.slot] = _Occupant(loaded=one, image=image, nodes=nodes)
        return found

    def _list_images(self, slot: int) -> Iterator[ImageReference]:
        """Yield the images that are described for a slot."""
        if self._described is None:
            return
        for (_, placement), image in self._described.images.items():
            if placement == Placement(slot, 1):
                yield image
        if (blank := self._described.blanks.get(slot)) is not None:
            yield blank

    def _list_nodes(self, image: ImageReference) -> Iterator[UioDevice]:
        """Yield the devices of an image that are there now."""
        try:
            names = self._images.list_devices(image)
        except (InvalidPackageError, OSError):  # its files are gone; what they were cannot be told
            return
        for name in names:
            for entry in sorted((self._root / _PLATFORM / name / "uio").glob("uio[0-9]*")):
                yield UioDevice(name=name, node=f"/dev/{entry.name}")

    def _find_nodes(self, image: ImageReference, slot: int) -> list[UioDevice]:
        """Return the devices of a loaded function. Raises HardwareRefusedError: one of them is not there."""
        found = list(self._list_nodes(image))
        if missing := {*self._images.list_devices(image)} - {one.name for one in found}:
            raise HardwareRefusedError(
                f"slot {slot} has no device node of {', '.join(sorted(missing))} after the load of {image.name}: the "
                "kernel needs uio_pdrv_genirq, and the package's overlay must name the device"
            )
        return found

    def _find_users(self, occupants: Mapping[int, _Occupant]) -> dict[int, dict[int, str]]:
        """Return the processes that use what is in slots, by slot and id, with their names; the daemon is none."""
        nodes = {node.node: slot for slot, one in occupants.items() for node in one.nodes}
        if not nodes:
            return {}
        proc, daemon = self._root / "proc", self._daemon.find_pid()
        found: dict[int, dict[int, str]] = {}
        for node, pids in find_openers(proc, nodes.keys()).items():
            for pid in pids:
                if pid != daemon:
                    found.setdefault(nodes[node], {})[pid] = read_process_name(proc, pid)
        return found

    def _check_free(self, slots: Placement, occupants: Mapping[int, _Occupant]) -> None:
        """Raise HardwareConflictError where somebody else has a slot."""
        wanted = {slot: occupants[slot] for slot in slots.units if slot in occupants}
        for slot, one in wanted.items():
            if one.image is None:
                raise HardwareConflictError(f"in use outside of Kerf: slot {slot} has the package {one.loaded.package}")
        for slot, names in self._find_users(wanted).items():
            raise HardwareConflictError(f"in use outside of Kerf: {_describe_use(slot, wanted[slot], names)}")

    def _check_unused(self, occupants: Mapping[int, _Occupant]) -> None:
        """Raise HardwareHeldError where a process has devices of a slot open."""
        for slot, names in self._find_users(occupants).items():
            raise HardwareHeldError(_describe_use(slot, occupants[slot], names))

    # Changes

    def _bring(self, slot: int, image: ImageReference, occupant: _Occupant | None, limit_s: float) -> None:
        """Have a slot run an image, in place of what is in it."""
        if occupant is not None and occupant.image == image:
            WARM_HITS.inc()
            return
        if occupant is not None:
            self._daemon.unload(occupant.loaded.handle)
        self._load(slot, image, limit_s)

    def _clear(self, slot: int, occupant: _Occupant | None, blank: ImageReference | None) -> None:
        """Leave a slot empty, overwritten by its blank image if there is one."""
        if occupant is not None:
            self._daemon.unload(occupant.loaded.handle)
        if blank is not None:
            handle = self._load(slot, blank, find_load_limit(_DEFAULTS, blank.load_s))
            self._daemon.unload(handle)

    def _load(self, slot: int, image: ImageReference, limit_s: float) -> int:
        """Load an image and check that it got where it belongs; returns the handle."""
        self._check_image(image, slot)
        package = self._images.find_package(image, slot)
        if (count := self._daemon.read_listing().packages.count(package)) > 1:
            raise HardwareRefusedError(f"dfx-mgrd has {count} packages of the name {package}: give each its own")
        handle = self._daemon.load(package, limit_s)
        LOADS.inc()
        found = self._read_slots().get(slot)
        if found is None or found.loaded.package != package:
            raise HardwareRefusedError(
                f"dfx-mgrd has loaded the package {package} with handle {handle}, but does not show it in slot {slot}"
            )
        _log.info("%s was loaded into slot %d", image.name, slot)
        return handle


def _describe_use(slot: int, occupant: _Occupant, names: Mapping[int, str]) -> str:
    nodes = " or ".join(node.node for node in occupant.nodes)
    return f"slot {slot} is in use: {describe_processes(names)} has {nodes} open"


def _list_prepared(handle: SlotsHandle | None, slot: int) -> Iterator[ImageReference]:
    for one in handle.slots if handle is not None else ():
        if one.slot == slot:
            yield from (image for image in (one.image, one.blank) if image is not None)
