"""Shells with the images for them, from the FpgaShells and FpgaImages that administrators describe. Pure.

A description is one document, an object of the cluster or a file of a node. One that is wrong, or contradicts another
that came before it, is left out with its fault: the others count.
"""

import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import msgspec

from api.errors import InvalidDocumentError
from api.kerf.decoder import decode_fpga_object
from api.kerf.fpga_objects import FpgaFile, FpgaImage, FpgaImageSpec, FpgaShell, FpgaShellSpec
from driver.families.fpga.shell import Function, Logic, Shell
from driver.partitions.geometry import Placement

_MAX_MODEL: Final = 64
"""The most characters of a shell's name, which is the attribute ``model`` of devices
(DeviceAttributeMaxValueLength)."""


class Description(NamedTuple):
    """A document that describes a shell or an image, not decoded yet."""

    source: str
    """What it is for people: ``FpgaImage aes-gcm``, or the path of a file."""
    document: object
    """Its JSON values."""


class ImageReference(msgspec.Struct, frozen=True, kw_only=True):
    """An image file for some slots, and what it must be. The checkpoint keeps those of blank images."""

    file: str = ""
    """The path below the folder of images; empty: it is fetched."""
    sha256: str
    interface_uuid: str
    afu_id: str
    load_s: float
    url: str = ""
    """Where it is fetched; empty: it is a file."""
    signature: str = ""
    """The ed25519 signature in base64; empty: it has none."""
    function: str = ""
    """The function; empty: it is a blank image."""
    version: str = ""
    """The function's version."""

    @property
    def name(self) -> str:
        """What messages call it."""
        return self.file or self.url

    @property
    def statement(self) -> bytes:
        """What its signature signs: that this file is this version of this function for this interface."""
        lines = ("kerf.dev/v1alpha1", self.function, self.version, self.interface_uuid, self.sha256)
        return "".join(f"{line}\n" for line in lines).encode()


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedShell:
    """A shell with all images for it."""

    shell: Shell
    images: Mapping[tuple[str, Placement], ImageReference]
    """The images of functions, by the function's name and the slots."""
    blanks: Mapping[int, ImageReference]
    """The blank images, by the number of the slot."""
    specs: Mapping[str, FpgaImageSpec] = field(default_factory=dict)
    """What is said of each function."""
    fault: str = ""
    """Why no card with this shell can be used, such as a blank image that is wrong; empty: each can."""

    def find_function(self, slot: int, afu_id: str) -> Function | None:
        """Return the function with an image for ``slot`` that reports ``afu_id``; None: there is none."""
        for function in self.shell.functions:
            image = self.images.get((function.name, Placement(slot, 1)))
            if image is not None and image.afu_id == afu_id:
                return function
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Descriptions:
    """All described shells, by their interface UUIDs, and what is wrong with documents that were left out."""

    shells: Mapping[str, DescribedShell]
    faults: Mapping[str, str] = field(default_factory=dict)
    """The faults by the documents' sources."""

    @property
    def problems(self) -> tuple[str, ...]:
        """The faults as sentences."""
        return tuple(f"{source}: {fault}" for source, fault in self.faults.items())

    def list_images(self) -> Iterator[ImageReference]:
        """Yield all image files, blank ones first: without its own a shell's cards cannot be used."""
        for described in self.shells.values():
            yield from described.blanks.values()
        for described in self.shells.values():
            yield from described.images.values()


def build_descriptions(found: Iterable[Description]) -> Descriptions:
    """Put images and shells together; of two that contradict one another, the first counts."""
    faults: dict[str, str] = {}
    shells: dict[str, tuple[str, FpgaShell]] = {}
    images: list[tuple[str, FpgaImage]] = []
    for source, document in found:
        try:
            decoded = decode_fpga_object(document)
        except InvalidDocumentError as error:
            faults[source] = "; ".join(map(str, error.problems))
            continue
        if isinstance(decoded, FpgaImage):
            images.append((source, decoded))
        elif fault := _find_shell_fault(decoded, shells):
            faults[source] = fault
        else:
            shells[normalize_uuid(decoded.spec.interface_uuid)] = (source, decoded)
    accepted: dict[str, list[FpgaImageSpec]] = {}
    for source, image in images:
        interface = normalize_uuid(image.spec.interface_uuid)
        known = accepted.setdefault(interface, [])
        if fault := _find_image_fault(image.spec, shells.get(interface), known):
            faults[source] = fault
        else:
            known.append(image.spec)
    described = {interface: _describe(shell, accepted.get(interface, ())) for interface, (_, shell) in shells.items()}
    return Descriptions(shells=described, faults=faults)


def list_references(spec: FpgaImageSpec) -> list[ImageReference]:
    """Return the files of an image, each once."""
    return [_refer(spec, file) for file in spec.files]


def list_blank_references(spec: FpgaShellSpec) -> list[ImageReference]:
    """Return the files of a shell's blank image, each once."""
    return [_refer(spec, file) for file in spec.blank.files] if spec.blank is not None else []


def normalize_uuid(text: str) -> str:
    """Return a UUID with dashes and in lower case."""
    return str(uuid.UUID(text))


def _find_shell_fault(shell: FpgaShell, others: Mapping[str, tuple[str, FpgaShell]]) -> str:
    if len(shell.metadata.name) > _MAX_MODEL:
        return f"metadata.name: has more than {_MAX_MODEL} characters, and is an attribute of devices"
    for interface, (source, other) in others.items():
        if interface == normalize_uuid(shell.spec.interface_uuid):
            return f"spec.interfaceUUID: {source} describes the same interface; remove one of the two"
        if other.metadata.name == shell.metadata.name:
            return f"metadata.name: {source} describes a shell of the same name; each needs its own"
    blank = shell.spec.blank
    if blank is None:
        return ""
    if any(len(slots) > 1 for file in blank.files for slots in file.slots):
        return "spec.blank.files: a blank image is for one slot: write [[0], [1]] for two of them"
    return _find_file_fault("spec.blank.files", blank.files, len(shell.spec.slots))


def _find_image_fault(
    image: FpgaImageSpec, shell: tuple[str, FpgaShell] | None, others: Iterable[FpgaImageSpec]
) -> str:
    if shell is None:
        return f"spec.interfaceUUID: no shell is described that has the interface {image.interface_uuid}"
    spec = shell[1].spec
    if spec.blank is not None and normalize_uuid(spec.blank.afu_id) == normalize_uuid(image.afu_id):
        return "spec.afuID: the shell's blank image has the same: a card could not tell the two"
    for other in others:
        if other.function == image.function:
            return f"spec.function: another image is described of {image.function} for the same interface"
        if normalize_uuid(other.afu_id) == normalize_uuid(image.afu_id):
            return f"spec.afuID: {other.function} has the same: a card could not tell the two"
    return _find_file_fault("spec.files", image.files, len(spec.slots))


def _find_file_fault(path: str, files: Iterable[FpgaFile], slots: int) -> str:
    seen: set[tuple[int, ...]] = set()
    for number, file in enumerate(files):
        for chosen in file.slots:
            where, ordered = f"{path}[{number}].slots", tuple(sorted(chosen))
            if ordered[-1] >= slots:
                return f"{where}: the shell has no slot {ordered[-1]}; its slots are 0 to {slots - 1}"
            if ordered != tuple(range(ordered[0], ordered[0] + len(ordered))):
                return f"{where}: {_list_slots(chosen)} are no neighbours: an image covers slots in a row"
            if ordered in seen:
                return f"{where}: {_list_slots(chosen)} is named twice; one file is loaded into it"
            seen.add(ordered)
    return ""


def _list_slots(slots: Iterable[int]) -> str:
    return f"[{', '.join(map(str, slots))}]"


def _describe(document: FpgaShell, images: Iterable[FpgaImageSpec]) -> DescribedShell:
    spec = document.spec
    images = tuple(images)
    described = {
        (image.function, placement): reference for image in images for placement, reference in _list_files(image)
    }
    shell = Shell(
        name=document.metadata.name,
        uuid=normalize_uuid(spec.interface_uuid),
        family=spec.family,
        slots=tuple(Logic(lut=one.lut, ff=one.ff, bram=one.bram, dsp=one.dsp) for one in spec.slots),
        functions=tuple(_build_function(image) for image in images),
    )
    blanks = {placement.start: reference for placement, reference in _list_files(spec)}
    return DescribedShell(
        shell=shell, images=described, blanks=blanks, specs={image.function: image for image in images}
    )


def _build_function(image: FpgaImageSpec) -> Function:
    found = sorted((placement, reference.sha256) for placement, reference in _list_files(image))
    return Function(
        name=image.function,
        version=image.version,
        afu_id=normalize_uuid(image.afu_id),
        placements=tuple(placement for placement, _ in found),
        load_s=image.load_seconds,
        digests=tuple(digest for _, digest in found),
    )


def _list_files(spec: FpgaImageSpec | FpgaShellSpec) -> Iterator[tuple[Placement, ImageReference]]:
    """Yield the placements of a function's image, or of a shell's blank one."""
    source = spec if isinstance(spec, FpgaImageSpec) else spec.blank
    for file in source.files if source is not None else ():
        reference = _refer(spec, file)
        for slots in file.slots:
            yield Placement(min(slots), len(slots)), reference


def _refer(spec: FpgaImageSpec | FpgaShellSpec, file: FpgaFile) -> ImageReference:
    image = spec if isinstance(spec, FpgaImageSpec) else spec.blank
    assert image is not None  # the file is one of its
    return ImageReference(
        file=file.file or "",
        url=file.url or "",
        signature=file.signature or "",
        sha256=file.sha256,
        interface_uuid=normalize_uuid(spec.interface_uuid),
        afu_id=normalize_uuid(image.afu_id),
        load_s=image.load_seconds,
        function=spec.function if isinstance(spec, FpgaImageSpec) else "",
        version=spec.version if isinstance(spec, FpgaImageSpec) else "",
    )
