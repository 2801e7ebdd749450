"""The shells and functions that are described to a node, without those whose image files are not as described."""

import ssl
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from kerf_dra.api.model.base import JsonObject
from kerf_dra.driver.families.fpga.descriptions import DescribedShell, ImageReference
from kerf_dra.driver.families.fpga.refused_images import ImageRefusal
from kerf_dra.driver.kubeletplugin.backends.fpga.config import FpgaImagesConfig
from kerf_dra.driver.kubeletplugin.backends.fpga.descriptions import (
    DescriptionReader,
    leave_out_images,
    summarize_refusals,
)
from kerf_dra.driver.kubeletplugin.backends.fpga.images.cache import ImageCache
from kerf_dra.driver.kubeletplugin.backends.fpga.images.fetcher import FetchLimits, ImageFetcher
from kerf_dra.driver.kubeletplugin.backends.fpga.images.files import MAX_BYTES, ImageFiles
from kerf_dra.driver.kubeletplugin.backends.fpga.images.header import ImageFormat
from kerf_dra.driver.kubeletplugin.backends.fpga.images.signatures import KeyRing
from kerf_dra.driver.partitions.geometry import Placement


class ImageCatalog:
    """What one node may load into its cards: descriptions of files and of the cluster, with the images for them."""

    def __init__(
        self,
        config: FpgaImagesConfig,
        read_header: ImageFormat,
        *,
        only_single: str = "",
    ) -> None:
        """``only_single`` is why the hardware takes no image for several slots at once; empty: it does.

        Raises InvalidKeyError.
        """
        self._config = config
        self.description_folder = config.description_folder
        self._only_single = only_single
        self._cache = ImageCache(Path(config.cache_folder), config.cache_bytes)
        self.files = ImageFiles(Path(config.image_folder), self._cache, KeyRing(config.keys), read_header)
        self._fetcher = ImageFetcher(
            self._cache,
            FetchLimits(max_bytes=MAX_BYTES, timeout_s=config.fetch_timeout_seconds),
            check=self.files.check,
            make_context=lambda: ssl.create_default_context(cafile=config.ca_file or None),
            now=time.monotonic,
        )
        self._reader = DescriptionReader(Path(config.description_folder))
        self._is_described = False
        """Whether this process is a plugin, which fetches: others, such as ``kerf devices``, only look."""
        self.shells: Mapping[str, DescribedShell] = {}
        """The shells by their interface UUIDs, each with the functions that can be loaded."""
        self._refused: dict[str, str] = {}

    def describe(self, documents: Sequence[JsonObject]) -> None:
        """Take the shells and images of the cluster; what files of this node say counts first."""
        self._reader.describe(documents)
        self._is_described = True

    def refresh(self) -> list[str]:
        """Judge all descriptions and image files again, and return what is wrong with them, for people."""
        descriptions, problems = self._reader.read()
        shells: dict[str, DescribedShell] = {}
        for interface, described in descriptions.shells.items():
            refused = self._find_refused(described)
            problems += dict.fromkeys(refusal.message for refusal in refused.values())
            self._refused[interface] = summarize_refusals(refused)
            shells[interface] = leave_out_images(described, refused)
        self.shells = shells
        self._fetcher.want(image for image in descriptions.list_images() if image.url)
        return problems

    def format_refused(self, interface: str) -> str:
        """Return what is published of the refused images for an interface (``refused_images``)."""
        return self._refused.get(interface, "")

    def start_fetching(self) -> None:
        """Begin to fetch what is described, if this node fetches."""
        if self._is_described and self._config.cache_bytes:
            self._fetcher.start()

    def stop_fetching(self) -> None:
        """End soon: a download ends with its next bytes."""
        self._fetcher.stop()

    def take_news(self) -> bool:
        """Return whether a file has come or failed in another way since the last call."""
        return self._fetcher.take_news()

    def _find_refused(self, described: DescribedShell) -> dict[ImageReference, ImageRefusal]:
        """Return the images that cannot be loaded, with the reasons."""
        refused = {}
        for (function, slots), image in described.images.items():
            units = described.specs[function].compute_units if function in described.specs else 0
            fault = self._find_misfit(slots, image) or self._find_fault(image) or self._find_missing_units(image, units)
            if fault is not None:
                refused[image] = fault
        for image in described.blanks.values():
            if (fault := self._find_fault(image)) is not None:
                refused[image] = fault
        return refused

    def _find_misfit(self, slots: Placement, image: ImageReference) -> ImageRefusal | None:
        if slots.size == 1 or not self._only_single:
            return None
        return ImageRefusal("SeveralSlots", f"image {image.name} is for several slots at once: {self._only_single}")

    def _find_missing_units(self, image: ImageReference, described: int) -> ImageRefusal | None:
        """Return the refusal of an image with fewer compute units than are ``described``: claims would share what is
        not there. A format that knows no compute units is believed.
        """
        header = self.files.find_header(image)
        if header is None or not 0 < header.compute_units < described:
            return None
        return ImageRefusal(
            "ComputeUnits",
            f"image {image.name} has {header.compute_units} compute units, but computeUnits says {described}",
        )

    def _find_fault(self, image: ImageReference) -> ImageRefusal | None:
        """Return why an image cannot be loaded. A fetched file that is another one is fetched again."""
        fault = self.files.find_fault(image)
        if fault is None or image.file:
            return fault
        if fault.reason == "WrongDigest":
            self._cache.remove(image.sha256)
        elif fault.reason != "NotFetched":
            return fault
        if not self._config.cache_bytes:
            return ImageRefusal("NotFetched", f"image {image.name} is not fetched: this node fetches none")
        return self._fetcher.find_state(image)
