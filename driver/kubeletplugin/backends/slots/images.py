"""The images of slots: which of the described packages are what their descriptions say.

The daemon reads a package's files itself. So what is checked, when its description is read and once more right before
it is loaded, is what lies in the firmware folder then; only root may write there.
"""

from pathlib import Path
from typing import Final

from kerf_dra.driver.families.fpga.descriptions import ImageReference
from kerf_dra.driver.families.fpga.refused_images import ImageRefusal
from kerf_dra.driver.kubeletplugin.backends.fpga.images.signatures import KeyRing
from kerf_dra.driver.kubeletplugin.backends.slots.packages import (
    BaseDesign,
    FolderVersion,
    InvalidPackageError,
    compute_digest,
    list_slot_folders,
    read_accelerator,
    read_base,
    read_version,
    split_slot_folder,
)

_KINDS: Final = frozenset({"XRT_PL_DFX", "SIHA_PL_DFX"})
"""The types of packages for slots of programmable logic; daemons before 2026 know the second, too."""


class PackageImages:
    """The packages of a firmware folder, as images."""

    def __init__(self, root: Path, keys: KeyRing) -> None:
        self._root = root
        self._keys = keys
        self._digests: dict[Path, tuple[FolderVersion, str]] = {}
        self._bases: dict[Path, tuple[FolderVersion, BaseDesign]] = {}

    def read_base(self, folder: Path) -> BaseDesign:
        """Read a base design, unchanged files once. Raises InvalidPackageError and OSError."""
        version = read_version(folder)
        known = self._bases.get(folder)
        if known is None or known[0] != version:
            known = self._bases[folder] = (version, read_base(self._root, folder))
        return known[1]

    def find_package(self, image: ImageReference, base: BaseDesign, slot: int) -> str:
        """Return the name of the package that is loaded for an image; empty: it is none for ``slot``."""
        if base.is_flat:
            return base.name if image.file == base.path else ""
        found = split_slot_folder(image.file)
        return found[1] if found is not None and found[2] == slot else ""

    def find_fault(self, image: ImageReference, base: BaseDesign, slot: int) -> ImageRefusal | None:
        """Return why an image cannot be loaded into ``slot``; None: it is as described."""
        if (fault := self._keys.find_fault(image)) is not None:
            return fault
        if not image.file:
            message = f"image {image.name} has a URL: dfx-mgrd loads directories of its firmware folder"
            return ImageRefusal("NoFile", message)
        if not self._is_in_place(image, base, slot):
            what, form = f"a package for slot {slot}", f"{base.path}/NAME/NAME_slot{slot}"
            if base.is_flat:
                what, form = "the flat base design itself", base.path
            message = f"image {image.name} is not the directory of {what}: {form}"
            return ImageRefusal("WrongPlace", message)
        folder = self._root / image.file
        try:
            return self._find_fault(image, base, folder)
        except InvalidPackageError as error:
            return ImageRefusal("WrongFormat", f"image {image.name}: {error}")
        except OSError as error:
            message = f"image {image.name} cannot be read in {self._root}: {error.strerror or error}"
            return ImageRefusal("Missing" if isinstance(error, FileNotFoundError) else "Unreadable", message)

    def list_devices(self, image: ImageReference) -> tuple[str, ...]:
        """Return the platform devices of an image's function. Raises InvalidPackageError and OSError."""
        return read_accelerator(self._root / image.file).devices

    @staticmethod
    def _is_in_place(image: ImageReference, base: BaseDesign, slot: int) -> bool:
        if base.is_flat:
            return image.file == base.path
        found = split_slot_folder(image.file)
        return found is not None and (found[0], found[2]) == (base.path, slot)

    def _find_fault(self, image: ImageReference, base: BaseDesign, folder: Path) -> ImageRefusal | None:
        if not folder.resolve(strict=True).is_relative_to(self._root.resolve(strict=True)):
            return ImageRefusal("Outside", f"image {image.name} is a link that leads out of {self._root}")
        if not base.is_flat and len(others := list_slot_folders(folder.parent)) != 1:
            message = (
                f"the package of image {image.name} has directories for slots {', '.join(map(str, others))}: dfx-mgrd "
                "would choose one; make a package for each slot"
            )
            return ImageRefusal("SeveralSlots", message)
        if (digest := self._compute_digest(folder)) != image.sha256:
            message = (
                f"image {image.name} has other files than those that were described: their SHA-256 is {digest}, not "
                f"{image.sha256}"
            )
            return ImageRefusal("WrongDigest", message)
        found = read_accelerator(folder)
        if found.kind not in _KINDS and not base.is_flat:  # the daemon reads no accel.json of a flat one
            message = f"image {image.name}: accel_type is {found.kind!r}; possible are {', '.join(sorted(_KINDS))}"
            return ImageRefusal("WrongFormat", message)
        if not base.is_flat and found.parent and base.uid and found.parent != base.uid:
            message = f"image {image.name} was built for the base design {found.parent:#x}, not for {base.uid:#x}"
            return ImageRefusal("WrongInterface", message)
        if image.function and not found.devices:
            message = f"image {image.name} names no accel_devices: a container would get nothing of it"
            return ImageRefusal("NoDevices", message)
        return None

    def _compute_digest(self, folder: Path) -> str:
        version = read_version(folder)
        known = self._digests.get(folder)
        if known is None or known[0] != version:
            known = self._digests[folder] = (version, compute_digest(folder))
        return known[1]
