"""The Backend protocol over DFL cards."""

import logging
import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from api.kerf.v1alpha1 import DeviceConfigBase
from api.model.base import JsonObject
from api.model.devices import Attribute
from cdi import ContainerEdits
from driver.families.fpga.descriptions import DescribedShell, Description, ImageReference, build_descriptions
from driver.families.fpga.geometry import fpga_geometry
from driver.families.fpga.refused_images import BLANK, ImageRefusal, format_refusals
from driver.kubeletplugin.backends.base import (
    AllocatedDevice,
    CardAbsentError,
    CardChange,
    CardSurvey,
    DiscoveryChange,
    FoundPartition,
    Handle,
    HardwareBusyError,
    HealthChange,
    Journal,
)
from driver.kubeletplugin.backends.dfl.card import DflCard
from driver.kubeletplugin.backends.dfl.config import DflConfig
from driver.kubeletplugin.backends.dfl.driver_calls import DflDriver, LinuxSystemCalls, SystemCalls
from driver.kubeletplugin.backends.dfl.handles import build_edits, from_json, to_json
from driver.kubeletplugin.backends.dfl.health import judge_condition
from driver.kubeletplugin.backends.dfl.images import MAX_BYTES, ImageFiles
from driver.kubeletplugin.backends.dfl.sysfs import CardFiles, DflCardReading
from driver.kubeletplugin.backends.documents import read_config
from driver.kubeletplugin.backends.fpga_descriptions import read_description_files
from driver.kubeletplugin.backends.fpga_images.cache import ImageCache
from driver.kubeletplugin.backends.fpga_images.fetcher import FetchLimits, ImageFetcher
from driver.kubeletplugin.backends.fpga_images.signatures import KeyRing
from driver.kubeletplugin.backends.health_watcher import HealthWatcher, Snapshot
from driver.partitions.geometry import Card

_log = logging.getLogger(__name__)


class DflBackend:
    """A Backend of the FPGA cards of this machine that the kernel's DFL driver drives.

    Nothing is remembered but what the files say each time: cards, descriptions, images.
    """

    name = "dfl"

    def __init__(
        self,
        config: DflConfig,
        *,
        calls: SystemCalls | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """Tests give ``calls`` and ``now``. Raises InvalidKeyError."""
        self._config = config
        self._files = CardFiles(Path(config.system_root))
        self._cache = ImageCache(Path(config.cache_folder), config.cache_bytes)
        self._images = ImageFiles(Path(config.image_folder), self._cache, KeyRing(config.keys))
        self._fetcher = ImageFetcher(
            self._cache,
            FetchLimits(max_bytes=MAX_BYTES, timeout_s=config.fetch_timeout_seconds),
            check=self._images.check,
            make_context=lambda: ssl.create_default_context(cafile=config.ca_file or None),
            now=time.monotonic,
        )
        self._driver = DflDriver(self._files, calls or LinuxSystemCalls())
        self._now = now
        self._descriptions: tuple[Description, ...] = ()
        self._is_described = False
        """Whether this process is a plugin, which fetches: others, such as ``kerf devices``, only look."""
        self._shells: Mapping[str, DescribedShell] = {}
        self._refused: dict[str, str] = {}
        """What is published of refused images, by interface."""
        self._seen: dict[str, DflCardReading] = {}
        self._indexes: dict[str, int] = {}
        self._said: frozenset[str] = frozenset()
        self._watcher = self._make_watcher()

    def open(self) -> None:
        """Begin anew: the first wait for events reports everything that is not healthy."""
        self._watcher = self._make_watcher()

    def close(self) -> None:
        self._fetcher.stop()
        self._watcher.close()

    def discover(self) -> Sequence[Card]:
        """Return the cards with a described shell, with the functions whose images are as they were described.

        What keeps a card or a function from being offered is logged once.
        """
        found_files, problems = read_description_files(Path(self._config.description_folder))
        descriptions = build_descriptions([*found_files, *self._descriptions])
        problems += descriptions.problems
        shells: dict[str, DescribedShell] = {}
        for interface, described in descriptions.shells.items():
            refused = self._find_refused(described)
            problems += dict.fromkeys(refusal.message for refusal in refused.values())
            self._refused[interface] = _summarize(refused)
            shells[interface] = _leave_out(described, refused)
        self._shells = shells
        self._fetcher.want(image for image in descriptions.list_images() if image.url)
        found: list[Card] = []
        for reading in self._files.list_cards():
            self._seen[reading.uuid] = reading
            if problem := self._find_problem(reading):
                problems.append(problem)
            else:
                found.append(self._build_card(reading))
        for problem in problems:
            if problem not in self._said:
                _log.warning("%s", problem)
        self._said = frozenset(problems)
        return found

    def survey(self, card_uuid: str) -> CardSurvey:
        return self._find_card(card_uuid).survey()

    def prepare(
        self, device: AllocatedDevice, config: DeviceConfigBase | None, journal: Journal, found: FoundPartition | None
    ) -> Handle:
        del found  # slots are no objects: what an interrupted load left in them is loaded over
        card = self._find_card(device.partition.card_uuid)
        return to_json(card.prepare(device, config, journal, is_stand_in=self._config.is_for_stand_in))

    def unprepare(self, handle: Handle) -> None:
        known = from_json(handle)
        self._find_card(known.card).unprepare(known)

    def abandon(self, device: AllocatedDevice, journal: Journal, found: FoundPartition | None) -> None:
        del found
        self._find_card(device.partition.card_uuid).abandon(device, journal)

    def edits(self, handle: Handle) -> ContainerEdits:
        return build_edits(from_json(handle))

    def wait_for_events(self, timeout_s: float) -> Sequence[HealthChange | CardChange | DiscoveryChange]:
        if self._is_described and self._config.cache_bytes:
            self._fetcher.start()
        return self._watcher.wait(timeout_s)

    def describe(self, documents: Sequence[JsonObject]) -> None:
        """Take the shells and images of the cluster; what files of this node say counts first."""
        named = [Description(f"{one['kind']} {one['metadata']['name']}", one) for one in documents]
        self._descriptions = tuple(sorted(named, key=lambda description: description.source))
        self._is_described = True

    def _make_watcher(self) -> HealthWatcher:
        return HealthWatcher(
            list_cards=self._list_seen,
            read=self._read_snapshot,
            poll_s=self._config.health_poll_seconds,
            has_news=self._fetcher.take_news,
        )

    def _list_seen(self) -> list[str]:
        """Return the UUIDs of all cards that are there or were."""
        for reading in self._files.list_cards():
            self._seen[reading.uuid] = reading
        return sorted(self._seen)

    def _read_snapshot(self, card_uuid: str) -> Snapshot:
        """Return the card's health, and what is loaded in its slots. Raises CardAbsentError."""
        reading = self._find_reading(card_uuid)
        loaded: list[tuple[int, str | None]] = []
        for port in reading.ports:
            try:
                loaded.append((port.slot, self._files.read_afu_id(reading, port)))
            except HardwareBusyError:  # a load goes on
                loaded.append((port.slot, None))
        return judge_condition(card_uuid, self._files.read_condition(reading)), tuple(loaded)

    def _find_reading(self, card_uuid: str) -> DflCardReading:
        known = self._seen.get(card_uuid)
        if known is not None and (reading := self._files.read_again(known)) is not None:
            return reading
        for reading in self._files.list_cards():
            if reading.uuid == card_uuid:
                return reading
        where = f" at {known.pci_address}" if known is not None else ""
        raise CardAbsentError(f"there is no card {card_uuid}{where} on this node, or its driver is not loaded")

    def _find_card(self, card_uuid: str) -> DflCard:
        if not self._shells:
            self.discover()
        reading = self._find_reading(card_uuid)
        return self._make_card(reading)

    def _make_card(self, reading: DflCardReading) -> DflCard:
        return DflCard(
            reading=reading,
            described=self._shells.get(reading.interface_uuid),
            files=self._files,
            images=self._images,
            driver=self._driver,
            now=self._now,
        )

    def _find_refused(self, described: DescribedShell) -> dict[ImageReference, ImageRefusal]:
        """Return the images that cannot be loaded, with the reasons."""
        refused = {}
        for (_, slots), image in described.images.items():
            fault = self._find_fault(image) if slots.size == 1 else _refuse_wide(image)
            if fault is not None:
                refused[image] = fault
        for image in described.blanks.values():
            if (fault := self._find_fault(image)) is not None:
                refused[image] = fault
        return refused

    def _find_fault(self, image: ImageReference) -> ImageRefusal | None:
        """Return why an image cannot be loaded. A fetched file that is another one is fetched again."""
        fault = self._images.find_fault(image)
        if fault is None or image.file:
            return fault
        if fault.reason == "WrongDigest":
            self._cache.remove(image.sha256)
        elif fault.reason != "NotFetched":
            return fault
        if not self._config.cache_bytes:
            return ImageRefusal("NotFetched", f"image {image.name} is not fetched: this node fetches none")
        return self._fetcher.find_state(image)

    def _find_problem(self, reading: DflCardReading) -> str:
        """Return why a card cannot be offered; empty: it can."""
        name = f"card {reading.pci_address}"
        if not reading.interface_uuid:
            return f"{name} cannot be reconfigured in parts: the kernel shows no compat_id of it"
        described = self._shells.get(reading.interface_uuid)
        if described is None:
            folder = self._config.description_folder
            return (
                f"{name} has the interface {reading.interface_uuid}, of which neither {folder} nor a FpgaShell of the "
                "cluster has a shell"
            )
        slots = len(described.shell.slots)
        if reading.slots != slots:
            return f"{name} has {reading.slots} ports, but its shell {described.shell.name} is described with {slots}"
        return ""

    def _build_card(self, reading: DflCardReading) -> Card:
        # The number of the management engine may change when a driver is bound anew; the names of devices do not.
        index = self._indexes.setdefault(reading.uuid, reading.fme)
        return Card(
            uuid=reading.uuid,
            index=index,
            geometry=fpga_geometry(self._shells[reading.interface_uuid].shell),
            pci_bus_id=reading.pci_address,
            pcie_root=reading.pcie_root,
            numa_node=reading.numa_node,
            driver_version=self._files.read_driver_version(),
            loaded=self._make_card(reading).find_loaded(),
            attributes={"refusedImages": Attribute.of(self._refused.get(reading.interface_uuid, ""))},
        )


def _refuse_wide(image: ImageReference) -> ImageRefusal:
    message = f"image {image.name} is for several slots at once: a port of a DFL card takes an image for one"
    return ImageRefusal("SeveralSlots", message)


def _leave_out(described: DescribedShell, refused: Mapping[ImageReference, ImageRefusal]) -> DescribedShell:
    """Return the shell without the images that are refused, and the functions that have no other."""
    images = {place: image for place, image in described.images.items() if image not in refused}
    functions = []
    for function in described.shell.functions:
        usable = tuple(one for one in function.placements if (function.name, one) in images)
        if usable:
            digests = tuple(map(function.digest, usable))
            functions.append(replace(function, placements=usable, digests=digests))
    faults = dict.fromkeys(refused[image].message for image in described.blanks.values() if image in refused)
    shell = replace(described.shell, functions=tuple(functions))
    return replace(described, images=images, shell=shell, fault="; ".join(faults))


def _summarize(refused: Mapping[ImageReference, ImageRefusal]) -> str:
    return format_refusals({image.function or BLANK: refusal.reason for image, refusal in refused.items()})


def open_backend(config: Path | None) -> DflBackend:
    """Make a backend of this machine's DFL cards, as the YAML document ``config`` says; None: the defaults.

    Raises InvalidDocumentError when the document is invalid.
    """
    return DflBackend(read_config(config, DflConfig))
