"""One Alveo card: survey, loading of functions, and its release. A card has one region, which is its only slot.

Nothing on the card says for whom a function was loaded, and one that no process has open may be replaced: so a card is
occupied while a process has its render node open, or one of its compute units. The driver refuses a load while a
compute unit is open, so that no load disturbs a program that came after the survey.

Order of a prepare: everything that can be refused is refused before the card is changed; a note goes into the journal;
the image is loaded unless the card reports it already (a warm hit), and its UUID is read back.
"""

import logging
from collections.abc import Callable
from typing import Final

from msgspec import structs

from kerf_dra.api.kerf.v1alpha1 import DeviceConfigBase
from kerf_dra.api.model.device_attributes import CAPACITY_COMPUTE_UNIT_PERCENT
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
from kerf_dra.driver.kubeletplugin.backends.fpga.images.files import ImageFiles
from kerf_dra.driver.kubeletplugin.backends.fpga.parameters import (
    check_namespace,
    find_fpga_config,
    find_function,
    find_load_limit,
)
from kerf_dra.driver.kubeletplugin.backends.fpga_loads import LOADS, WARM_HITS
from kerf_dra.driver.kubeletplugin.backends.kernel_files import describe_processes, find_openers, read_process_name
from kerf_dra.driver.kubeletplugin.backends.xrt.handles import XrtHandle
from kerf_dra.driver.kubeletplugin.backends.xrt.library import Loader
from kerf_dra.driver.kubeletplugin.backends.xrt.sysfs import XrtCardReading, XrtFiles
from kerf_dra.driver.partitions.geometry import Placement

_log = logging.getLogger(__name__)

REGION: Final = Placement(0, 1)
"""The only slot of a card: programs configure all of what is not its shell at once."""
_LOADING: Final = "loading"
"""The note that a change of the card has begun, with the function's name."""


class XrtCard:
    """One card; its methods have the contracts of Backend's."""

    def __init__(
        self,
        *,
        reading: XrtCardReading,
        described: DescribedShell | None,
        files: XrtFiles,
        images: ImageFiles,
        loader: Loader,
        now: Callable[[], float],
    ) -> None:
        """``described`` is None where no description has an interface of the card: then it can only be released."""
        self.reading = reading
        self._described = described
        self._files = files
        self._images = images
        self._loader = loader
        self._now = now

    @property
    def shell(self) -> DescribedShell:
        """The card's shell. Raises HardwareBusyError while none is described."""
        if self._described is None:
            interfaces = " and ".join(self.reading.interfaces) or "none"
            raise HardwareBusyError(f"no shell is described for card {self._name}, whose interfaces are {interfaces}")
        return self._described

    def find_loaded(self) -> dict[Placement, str]:
        """Return the function that is loaded now, by its slot."""
        try:
            loaded = self._files.read_loaded(self.reading)
        except CardAbsentError:  # it goes at this moment
            return {}
        found = (self.shell.find_function(REGION.start, afu_id) for afu_id in loaded)
        function = next(filter(None, found), None)
        return {} if function is None else {REGION: function.name}

    def survey(self) -> CardSurvey:
        """Say whether a process uses the card, and why it cannot be had: its blank image is wrong, or libxrt is absent.

        What is loaded in a card that nobody uses gives way to the next load.
        """
        users = self._find_users()
        found = [FoundPartition(id="region", profile=None, placement=REGION, in_use=True)] if users else []
        fault = (self._described.fault if self._described is not None else "") or self._loader.find_fault()
        return CardSurvey(
            card_uuid=self.reading.uuid, partitions=tuple(found), no_whole=fault, no_partitions=fault, no_static=fault
        )

    def prepare(
        self,
        device: AllocatedDevice,
        config: DeviceConfigBase | None,
        journal: Journal,
        found: FoundPartition | None,
        *,
        is_stand_in: bool,
    ) -> XrtHandle:
        fpga_config = find_fpga_config(device, config)
        handle = XrtHandle(
            card=self.reading.uuid,
            device=device.share.id.device,
            pci_address=self.reading.pci_address,
            nodes=(self._node, *self.reading.queues),
            release=fpga_config.release,
            compute_unit_percent=_find_percent(device),
            is_admin=device.admin_access,
            is_stand_in=is_stand_in,
        )
        if device.admin_access:
            return handle
        name = find_function(device, fpga_config)
        check_namespace(self.shell.specs.get(name), device)
        image = self._choose_image(name)
        if image is not None and (fault := self._images.find_fault(image)) is not None:
            raise HardwareRefusedError(fault.message)
        if found is None and (users := self._find_users()):  # else they are those of claims that share the function
            raise HardwareConflictError(f"in use outside of Kerf: {self._describe_use(users)}")
        if _LOADING not in journal.notes:
            journal.write(**{_LOADING: name})
        self._bring(image, find_load_limit(fpga_config, image.load_s if image is not None else 0.0))
        function = self.shell.shell.function(name)
        spec = self.shell.specs.get(name)
        return structs.replace(
            handle,
            function=name,
            version="" if function is None else function.version,
            afu_id="" if image is None else image.afu_id,
            parameters={} if spec is None else dict(spec.parameters),
            blank=self._blank,
        )

    def unprepare(self, handle: XrtHandle) -> None:
        """Clear the card, or leave the function in it. Another's function that is there by now stays."""
        if handle.is_admin:
            return
        self._check_unused()
        loaded, blank = self._files.read_loaded(self.reading), handle.blank
        known = {handle.afu_id, *((blank.afu_id,) if blank is not None else ())}
        if handle.afu_id and loaded - known:
            return  # loaded by somebody else since
        is_kept = handle.release == "Keep" and bool(handle.function) and handle.afu_id in loaded
        if blank is not None and not is_kept and blank.interface_uuid in self.reading.interfaces:
            self._bring(blank, None)

    def abandon(self, device: AllocatedDevice, journal: Journal) -> None:
        """Clear the card if a change of it has begun."""
        del device
        if _LOADING not in journal.notes:
            return
        self._check_unused()
        if self._blank is not None:
            self._bring(self._blank, None)

    # What the card is to be

    @property
    def _blank(self) -> ImageReference | None:
        return self.shell.blanks.get(REGION.start)

    def _choose_image(self, name: str) -> ImageReference | None:
        """Return the image of a function, without a function the blank one; None: the card stays as it is."""
        if not name:
            return self._blank
        image = self.shell.images.get((name, REGION))
        if image is None:
            known = ", ".join(sorted(one.name for one in self.shell.shell.functions)) or "none"
            raise HardwareRefusedError(f"shell {self.shell.shell.name} has no function {name!r}; it has: {known}")
        return image

    def _bring(self, image: ImageReference | None, limit_s: float | None) -> None:
        """Make the card what it is to be."""
        if image is None:
            return
        if image.afu_id in self._files.read_loaded(self.reading):
            WARM_HITS.inc()
        else:
            self._load(image, limit_s)

    def _load(self, image: ImageReference, limit_s: float | None) -> None:
        """Load an image and check what came of it. A load that takes too long fails."""
        with self._images.open_bits(image) as bits:
            began = self._now()
            self._loader.load(self.reading.pci_address, bits, limit_s)
        took_s = self._now() - began
        LOADS.inc()
        _log.info("%s was loaded into %s in %.2f s", image.name, self._name, took_s)
        if limit_s is not None and took_s > limit_s:
            raise HardwareRefusedError(
                f"the load of {image.name} into {self._name} took {took_s:.1f} s; at most {limit_s:g} s are allowed "
                "(timeoutSeconds of the FpgaConfig, loadSeconds of the image)"
            )
        loaded = self._files.read_loaded(self.reading)
        if image.afu_id not in loaded:
            what = " and ".join(sorted(loaded)) or "no image"
            raise HardwareRefusedError(
                f"{self._name} reports {what} after the load of {image.name}, which is {image.afu_id}"
            )

    # Processes

    @property
    def _node(self) -> str:
        return f"/dev/dri/renderD{self.reading.render}"

    def _find_users(self) -> dict[int, str]:
        """Return the processes that use the card, by id, each with its name where it can be seen."""
        proc = self._files.root / "proc"
        nodes = {self._node, *self.reading.queues}
        found = {pid for pids in find_openers(proc, nodes).values() for pid in pids}
        return {pid: read_process_name(proc, pid) for pid in sorted(found | self._files.read_users(self.reading))}

    def _check_unused(self) -> None:
        if users := self._find_users():
            raise HardwareHeldError(self._describe_use(users))

    def _describe_use(self, users: dict[int, str]) -> str:
        return f"card {self._name} is in use: {describe_processes(users)} has {self._node} open"

    @property
    def _name(self) -> str:
        return self.reading.pci_address


def _find_percent(device: AllocatedDevice) -> int | None:
    """Return the hundredths of compute units that a share has; None: all of them."""
    amount = device.consumed(CAPACITY_COMPUTE_UNIT_PERCENT) if device.partition.shared else None
    return None if amount is None else int(amount)
