"""One board: survey, loading of functions into its slots, and their release.

Nothing says for whom a package was loaded. A loaded package that a description names is Kerf's to replace once no
process has its devices open; anything else that is loaded is in use outside of Kerf until it is unloaded.

The order of a prepare is that of ``fpga.slot_loader``; what is in a slot is unloaded before, and that the image is
there afterwards, with its devices, is read back. The daemon chooses the slot of a load: the package has a directory for
one slot alone.

A card with several layouts has one base design at a time, and no request loads one: the daemon does it before the first
package. It also replaces a base design without slots in use by itself, but ignores whether its removal failed, and does
not remove it before a flat one (Xilinx/dfx-mgr, ``load_accelerator_core``). So Kerf never leaves it to the daemon: with
no user of any slot it unloads all of them, has the base design removed, and reads back that it is gone, before it
loads.
"""

import logging
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

from msgspec import structs

from kerf_dra.api.kerf.v1alpha1 import DeviceConfigBase, FpgaConfig
from kerf_dra.driver.families.fpga.descriptions import DescribedShell, ImageReference
from kerf_dra.driver.families.fpga.refused_images import ImageRefusal
from kerf_dra.driver.families.fpga.shell import Shell
from kerf_dra.driver.kubeletplugin.backends.base import (
    AllocatedDevice,
    CardSurvey,
    FoundPartition,
    HardwareBusyError,
    HardwareConflictError,
    HardwareHeldError,
    HardwareRefusedError,
    Journal,
)
from kerf_dra.driver.kubeletplugin.backends.fpga.parameters import find_load_limit
from kerf_dra.driver.kubeletplugin.backends.fpga.slot_loader import (
    LOADS,
    SlotLoader,
    SlotPlan,
    SlotSelection,
    choose_release,
    has_begun,
)
from kerf_dra.driver.kubeletplugin.backends.kernel_files import (
    describe_processes,
    find_openers,
    list_folder,
    read_process_name,
)
from kerf_dra.driver.kubeletplugin.backends.slots.daemon import DfxDaemon
from kerf_dra.driver.kubeletplugin.backends.slots.handles import PreparedSlot, SlotsHandle, UioDevice
from kerf_dra.driver.kubeletplugin.backends.slots.images import PackageImages
from kerf_dra.driver.kubeletplugin.backends.slots.layouts import BoardLayout
from kerf_dra.driver.kubeletplugin.backends.slots.messages import Loaded, show_base
from kerf_dra.driver.kubeletplugin.backends.slots.overlays import Overlays, read_overlays
from kerf_dra.driver.kubeletplugin.backends.slots.packages import BaseDesign, InvalidPackageError
from kerf_dra.driver.partitions.geometry import Placement

_log = logging.getLogger(__name__)

_PLATFORM: Final = "sys/bus/platform/devices"
_UIO: Final = re.compile(r"uio[0-9]+")
_NOT_DESCRIBED: Final = "no shell is described for a base design of this board"
_DEFAULTS: Final = FpgaConfig(api_version="kerf.dev/v1alpha1")
"""The configuration of loads that no claim has asked for, at a release."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Occupant:
    """What is loaded in a slot."""

    loaded: Loaded
    image: ImageReference | None
    """The described image that it is; None: another program's."""
    nodes: tuple[UioDevice, ...]
    """Its devices that are there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Contents:
    """What is loaded."""

    base: str
    """The name of the base design; empty: none is."""
    layout: BoardLayout | None
    """The layout that it is; None: none is loaded, or it is of no described shell."""
    occupants: Mapping[int, _Occupant]
    """What is in slots of the layout."""
    strangers: tuple[Loaded, ...]
    """All else that is loaded."""
    forgotten: tuple[str, ...]
    """The directories of packages that are loaded, but not known to the daemon, which was started again since."""
    fault: str = ""
    """Why nothing can be loaded or released now; empty: it can."""


@dataclass(slots=True, kw_only=True)
class _Change:
    """A change of slots that goes on."""

    layout: BoardLayout
    occupants: dict[int, _Occupant]
    """What is still in slots of the layout."""
    replaced: _Contents | None = None
    """What has to be removed before, with the base design that it is in; None: nothing."""


class SlotsBoard(SlotLoader):
    """The one card of a board for one call; its methods have the contracts of Backend's."""

    def __init__(
        self,
        *,
        card_uuid: str,
        shell: Shell | None,
        layouts: Mapping[str, BoardLayout],
        root: Path,
        overlays: Path,
        images: PackageImages,
        daemon: DfxDaemon,
        is_stand_in: bool,
    ) -> None:
        """``shell`` is None where none is described: then the card can only be released, in the ``layouts`` by name.

        ``root`` is the directory with ``sys`` and ``proc``, ``overlays`` that of the device tree overlays.
        """
        self._uuid = card_uuid
        self._shell = shell
        self._layouts = layouts
        self._root = root
        self._overlays = overlays
        self._images = images
        self._daemon = daemon
        self._is_stand_in = is_stand_in
        self._change: _Change | None = None
        """What the call changes; None: nothing yet."""

    def find_loaded(self) -> tuple[str, dict[Placement, str]]:
        """Return the name of the layout that is loaded now, and the functions by their slots."""
        contents = self._read_contents()
        name = "" if contents.layout is None else contents.layout.name
        return name, {
            Placement(slot, 1, layout=name): one.image.function
            for slot, one in contents.occupants.items()
            if one.image is not None and one.image.function
        }

    def survey(self) -> CardSurvey:
        """List the slots that hold what has no description, or whose devices a process has open.

        A file that was loaded by hand, or a base design in use that is no layout, holds the whole card. Slots that
        could not be cleared after their use cannot be allocated.
        """
        contents = self._read_contents()
        found = [
            FoundPartition(id=f"handle-{one.handle}", profile=None, placement=None, in_use=True)
            for one in contents.strangers
        ]
        name, units = ("", 0) if contents.layout is None else (contents.layout.name, contents.layout.base.slots)
        used = self._find_users(contents.occupants)
        found += [
            FoundPartition(
                id=f"slot-{slot}{name and f'-of-{name}'}",
                profile=None,
                placement=Placement(slot, 1, layout=name),
                in_use=True,
            )
            for slot, one in sorted(contents.occupants.items())
            if slot < units and (one.image is None or used.get(slot))
        ]
        described = (one.described for one in self._layouts.values())
        fault = contents.fault or "; ".join(filter(None, (one.fault for one in described if one is not None)))
        return CardSurvey(
            card_uuid=self._uuid, partitions=tuple(found), no_whole=fault, no_partitions=fault, no_static=fault
        )

    def prepare(
        self, device: AllocatedDevice, config: DeviceConfigBase | None, journal: Journal, found: FoundPartition | None
    ) -> SlotsHandle:
        plan = self.load_slots(device, config, journal, found)
        nodes = [node for slot, image in plan.images.items() for node in self._find_nodes(image, slot)]
        return SlotsHandle(
            card=self._uuid,
            device=device.share.id.device,
            base=self._find_layout(plan.slots.layout).base.path,
            slots=tuple(
                PreparedSlot(slot=slot, image=plan.images.get(slot), blank=plan.blanks.get(slot))
                for slot in plan.slots.units
            ),
            nodes=tuple(nodes),
            function=plan.function,
            version=plan.version,
            parameters=dict(plan.parameters),
            release=plan.config.release,
            is_admin=device.admin_access,
            is_stand_in=self._is_stand_in,
        )

    def unprepare(self, handle: SlotsHandle) -> None:
        """Clear the slots, or load the function again. What another has loaded there by now stays, as does a layout."""
        if handle.is_admin:
            return
        contents = self._read_usable_contents(handle)
        layout = contents.layout
        if layout is None or layout.base.path != handle.base:
            return  # with the base design, what was in its slots has gone
        self._check_unused(contents, [one.slot for one in handle.slots])
        self._change = _Change(layout=layout, occupants=dict(contents.occupants))
        for one in handle.slots:
            own = one.image.afu_id if one.image is not None else ""
            action = choose_release(self.read_slot(one.slot), own, one.blank, is_kept=handle.release == "Keep")
            if action != "Leave":
                self._empty_slot(one.slot, one.blank)
            place = Placement(one.slot, 1, layout=layout.name)
            if action == "Keep" and one.image is not None and self.find_fault(one.image, place) is None:
                self.load_slot(one.slot, one.image, None)  # again, so that it forgets what it was used for

    def abandon(self, device: AllocatedDevice, journal: Journal) -> None:
        """Clear the slots if a change of them has begun. What another has loaded there by now stays, as does a layout
        that the change has loaded.
        """
        if not has_begun(journal):
            return
        contents = self._read_usable_contents()
        layout = contents.layout
        if layout is None:
            return
        slots = device.partition.placement or Placement(0, layout.base.slots, layout=layout.name)
        if slots.layout != layout.name:
            return
        self._check_unused(contents, slots.units)
        self._change = _Change(layout=layout, occupants=dict(contents.occupants))
        blanks = _get_described(layout).blanks
        for slot in slots.units:
            occupant = contents.occupants.get(slot)
            if occupant is None or occupant.image is not None:
                self._empty_slot(slot, blanks.get(slot))

    def renumber(self, handle: SlotsHandle) -> SlotsHandle:
        """Return the handle with the device nodes of now, by the names of the devices: one that is gone shows none."""
        now = {one.name: one for one in handle.nodes} | {
            one.name: one for one in self._list_uio([one.name for one in handle.nodes])
        }
        return structs.replace(handle, nodes=tuple(now[one.name] for one in handle.nodes))

    # What the loader asks for

    fills_with_blanks = False

    @cached_property
    def _before(self) -> _Contents:
        """What is loaded before a prepare changes it."""
        return self._read_usable_contents()

    def select_slots(self, device: AllocatedDevice, function: str) -> SlotSelection:
        shell, place = self._find_shell(), device.partition.placement
        if device.admin_access:
            slots = place or shell.find_whole("", "")
            return SlotSelection(slots=slots, shell=None, place=self._find_layout(slots.layout).base.path)
        now = self._before.layout
        slots = place or shell.find_whole(function, "" if now is None else now.name)
        layout = self._find_layout(slots.layout)
        return SlotSelection(
            slots=slots,
            shell=_get_described(layout),
            place=layout.base.path,
            extra_s=0.0 if layout is now else self._find_layout_s(layout),
        )

    def find_fault(self, image: ImageReference, slot: Placement) -> ImageRefusal | None:
        base = self._find_layout(slot.layout).base
        if not base.slots:
            raise HardwareBusyError(f"the base design {base.path} is not there")
        return self._images.find_fault(image, base, slot.start)

    @contextmanager
    def hold_slots(self, plan: SlotPlan) -> Iterator[None]:
        """Nothing keeps other programs away: the daemon loads for all that ask it."""
        contents, layout = self._before, self._find_layout(plan.slots.layout)
        self._check_free(plan.slots, layout, contents)
        is_loaded = layout is contents.layout
        self._change = _Change(
            layout=layout,
            occupants=dict(contents.occupants) if is_loaded else {},
            replaced=None if is_loaded else contents,
        )
        yield

    @contextmanager
    def use_slot(self, slot: int) -> Iterator[None]:
        """Remove another base design before the first slot of a layout is loaded."""
        del slot
        change = self._get_change()
        if change.replaced is not None:
            self._remove_base(change.replaced)
            change.replaced = None
        yield

    def read_slot(self, slot: int) -> Collection[str]:
        """Return the AFU id of the described image that is in the slot; of another package its name."""
        occupant = self._get_change().occupants.get(slot)
        if occupant is None:
            return ()
        return (occupant.loaded.package if occupant.image is None else occupant.image.afu_id,)

    def load_slot(self, slot: int, image: ImageReference, limit_s: float | None) -> None:
        self._unload(slot)
        self._load(slot, image, limit_s)

    def clear_slot(self, slot: int) -> None:
        change = self._get_change()
        if slot in change.occupants:
            self._empty_slot(slot, _get_described(change.layout).blanks.get(slot))

    def _find_shell(self) -> Shell:
        """Return the board's shell. Raises HardwareBusyError while none is described."""
        if self._shell is None:
            raise HardwareBusyError(_NOT_DESCRIBED)
        return self._shell

    def _find_layout(self, name: str) -> BoardLayout:
        """Return a layout by its name. Raises HardwareBusyError while this board does not have it."""
        if name not in self._layouts:
            raise HardwareBusyError(f"this board has no base design of the layout {name!r}, or it is described no more")
        return self._layouts[name]

    def _find_layout_s(self, layout: BoardLayout) -> float:
        """Return the seconds that a load of the layout takes; of the only one they are not counted."""
        return self._find_shell().layout(layout.name).load_s if len(self._layouts) > 1 else 0.0

    # What is loaded

    def _read_usable_contents(self, handle: SlotsHandle | None = None) -> _Contents:
        """Read what is loaded, for a change of it. Raises HardwareBusyError where it cannot be determined."""
        contents = self._read_contents(handle)
        if contents.fault:
            raise HardwareBusyError(contents.fault)
        return contents

    def _read_contents(self, handle: SlotsHandle | None = None) -> _Contents:
        """Read what is loaded; ``handle`` adds images that are described no more."""
        overlays = self._read_overlays()
        base, fault = self._find_base(overlays)
        layout = next((one for one in self._layouts.values() if one.base.name == base), None)
        occupants: dict[int, _Occupant] = {}
        strangers: list[Loaded] = []
        for one in self._daemon.read_listing().loaded:
            if layout is None or (slot := _find_slot(one, layout.base)) is None:
                strangers.append(one)
                continue
            images = (*_list_images(layout, slot), *_list_prepared(handle, slot))
            find_package = self._images.find_package
            image = next((image for image in images if find_package(image, layout.base, slot) == one.package), None)
            nodes = () if image is None else tuple(self._list_nodes(image))
            occupants[slot] = _Occupant(loaded=one, image=image, nodes=nodes)
        there = {f"{one.loaded.package}_slot{slot}" for slot, one in occupants.items()}
        return _Contents(
            base=base,
            layout=layout,
            occupants=occupants,
            strangers=tuple(strangers),
            forgotten=tuple(one for one in overlays.packages if one not in there) if overlays is not None else (),
            fault=fault,
        )

    def _read_overlays(self) -> Overlays | None:
        return read_overlays(self._overlays, {one.base.name for one in self._layouts.values()})

    def _find_base(self, overlays: Overlays | None) -> tuple[str, str]:
        """Return the name of the base design that is loaded, and why that cannot be determined.

        Where there is one layout alone, it is this one, unless another is seen: the daemon loads it in any case.
        """
        names = [one.base.name for one in self._layouts.values()]
        if overlays is None and len(names) != 1:
            return "", f"cannot determine which base design is loaded: {self._overlays} cannot be read"
        found = overlays.bases if overlays is not None else ()
        known = [name for name in found if name in names]
        if len(known) > 1:
            return "", f"the kernel shows overlays of several base designs, {' and '.join(known)}: boot the node"
        only = names if len(names) == 1 else []
        return next(iter((*known, *found, *only)), ""), ""

    def _list_nodes(self, image: ImageReference) -> Iterator[UioDevice]:
        """Yield the devices of an image that are there now. Raises UnreadableFilesError."""
        try:
            names = self._images.list_devices(image)
        except (InvalidPackageError, OSError):  # its files are gone; what they were cannot be determined
            return
        yield from self._list_uio(names)

    def _list_uio(self, names: Iterable[str]) -> Iterator[UioDevice]:
        for name in names:
            entries = list_folder(self._root, self._root / _PLATFORM / name / "uio")
            yield from (UioDevice(name=name, node=f"/dev/{one}") for one in entries if _UIO.fullmatch(one))

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

    def _check_free(self, slots: Placement, layout: BoardLayout, contents: _Contents) -> None:
        """Raise HardwareConflictError where another program has a slot, or anything that another layout would end."""
        for stranger in contents.strangers:
            raise HardwareConflictError(f"in use outside of Kerf: {stranger.package} of base design {stranger.base}")
        wanted = dict(contents.occupants)
        if layout is contents.layout:
            wanted = {slot: wanted[slot] for slot in slots.units if slot in wanted}
        elif contents.forgotten:
            raise HardwareConflictError(
                f"in use outside of Kerf: dfx-mgrd was restarted and does not know {contents.forgotten[0]}, "
                "which is loaded; boot the node"
            )
        for slot, one in wanted.items():
            if one.image is None:
                raise HardwareConflictError(f"in use outside of Kerf: slot {slot} has the package {one.loaded.package}")
        for slot, names in self._find_users(wanted).items():
            raise HardwareConflictError(f"in use outside of Kerf: {_describe_use(slot, wanted[slot], names)}")

    def _check_unused(self, contents: _Contents, slots: Iterable[int]) -> None:
        """Raise HardwareHeldError where a process has devices of a slot open."""
        occupants = {slot: contents.occupants[slot] for slot in slots if slot in contents.occupants}
        for slot, names in self._find_users(occupants).items():
            raise HardwareHeldError(_describe_use(slot, occupants[slot], names))

    # Changes

    def _remove_base(self, contents: _Contents) -> None:
        """Have the base design that is loaded removed with all in it, for another one to be loaded.

        Raises HardwareBusyError where it is still there then.
        """
        for occupant in contents.occupants.values():
            self._daemon.unload(occupant.loaded.handle)
        if self._has_overlay(contents.base):  # a flat one has gone with its function
            self._daemon.unload_base(contents.base)
        if self._has_overlay(contents.base):
            raise HardwareBusyError(
                f"base design {contents.base} cannot be removed: dfx-mgrd says that it was, but {self._overlays} still "
                "has its overlay; boot the node"
            )

    def _has_overlay(self, base: str) -> bool:
        overlays = read_overlays(self._overlays, {base})
        if overlays is None:
            raise HardwareBusyError(f"cannot determine which base design is loaded: {self._overlays} cannot be read")
        return base in overlays.bases

    def _get_change(self) -> "_Change":
        assert self._change is not None  # the slots are held
        return self._change

    def _unload(self, slot: int) -> None:
        occupant = self._get_change().occupants.pop(slot, None)
        if occupant is not None:
            self._daemon.unload(occupant.loaded.handle)

    def _empty_slot(self, slot: int, blank: ImageReference | None) -> None:
        """Leave a slot empty, overwritten by its blank image if there is one."""
        self._unload(slot)
        if blank is not None:
            self._daemon.unload(self._load(slot, blank, None))

    def _load(self, slot: int, image: ImageReference, limit_s: float | None) -> int:
        """Load an image and check that it got where it belongs; returns the handle. ``limit_s`` is the most seconds;
        None: as many as where no claim says it.
        """
        layout = self._get_change().layout
        if (fault := self.find_fault(image, Placement(slot, 1, layout=layout.name))) is not None:
            raise HardwareRefusedError(fault.message)
        package = self._images.find_package(image, layout.base, slot)
        if (count := self._daemon.read_listing().packages.count(package)) > 1:
            raise HardwareRefusedError(f"dfx-mgrd has {count} packages of the name {package}: give each its own")
        self._daemon.load(package, find_load_limit(_DEFAULTS, image.load_s) if limit_s is None else limit_s)
        LOADS.inc()
        found = self._read_contents().occupants.get(slot)
        if found is None or found.loaded.package != package:
            raise HardwareRefusedError(
                f"dfx-mgrd has loaded the package {package}, but does not show it in slot {slot} of {layout.base.path}"
            )
        _log.info("%s was loaded into slot %d", image.name, slot)
        return found.loaded.handle


def _describe_use(slot: int, occupant: _Occupant, names: Mapping[int, str]) -> str:
    nodes = " or ".join(node.node for node in occupant.nodes)
    return f"slot {slot} is in use: {describe_processes(names)} has {nodes} open"


def _get_described(layout: BoardLayout) -> DescribedShell:
    """Return what is said of a layout. Raises HardwareBusyError while nothing is."""
    if layout.described is None:
        raise HardwareBusyError(_NOT_DESCRIBED)
    return layout.described


def _find_slot(loaded: Loaded, base: BaseDesign) -> int | None:
    """Return the slot of ``base`` that something is in; None: it is in none."""
    if loaded.base != show_base(base.name):
        return None
    if base.is_flat:
        return 0 if loaded.package == base.name else None
    return loaded.slot


def _list_images(layout: BoardLayout, slot: int) -> Iterator[ImageReference]:
    """Yield the images that are described for a slot."""
    if layout.described is None:
        return
    for (_, placement), image in layout.described.images.items():
        if placement == Placement(slot, 1):
            yield image
    if (blank := layout.described.blanks.get(slot)) is not None:
        yield blank


def _list_prepared(handle: SlotsHandle | None, slot: int) -> Iterator[ImageReference]:
    for one in handle.slots if handle is not None else ():
        if one.slot == slot:
            yield from (image for image in (one.image, one.blank) if image is not None)
