"""Shells with the images for them, from the FpgaShells and FpgaImages that administrators describe. Pure.

A description is one document, an object of the cluster or a file of a node. One that is wrong, or contradicts another
that came before it, is left out with its fault: the others count.
"""

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

import msgspec

from kerf_dra.api.errors import InvalidDocumentError
from kerf_dra.api.kerf.decoder import decode_fpga_object
from kerf_dra.api.kerf.fpga_objects import FpgaFile, FpgaImage, FpgaImageSpec, FpgaLayout, FpgaShell, FpgaShellSpec
from kerf_dra.api.model.names import MAX_LABEL
from kerf_dra.driver.families.fpga.shell import Function, Logic, Shell, ShellLayout
from kerf_dra.driver.partitions.device_names import name_part
from kerf_dra.driver.partitions.geometry import Placement
from kerf_dra.driver.partitions.slice_limits import MAX_COUNTERS

_LAST_CARD: Final = 99
"""A node has fewer FPGAs than a hundred."""
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
    """All described shells, and what is wrong with documents that were left out."""

    shells: Mapping[str, DescribedShell]
    """Each layout of each shell by its interface UUID, as a shell of its own that has no other: what a backend needs
    that loads no layouts."""
    cards: tuple[Shell, ...] = ()
    """The shells with all their layouts."""
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
    designs: dict[str, _Design] = {}
    images: list[tuple[str, FpgaImage]] = []
    for source, document in found:
        try:
            decoded = decode_fpga_object(document)
        except InvalidDocumentError as error:
            faults[source] = error.listed
            continue
        if isinstance(decoded, FpgaImage):
            images.append((source, decoded))
        elif fault := _find_shell_fault(decoded, designs):
            faults[source] = fault
        else:
            designs |= {design.interface_uuid: design for design in _list_designs(source, decoded)}
    accepted: dict[str, list[FpgaImageSpec]] = {interface: [] for interface in designs}
    for source, image in images:
        interface = normalize_uuid(image.spec.interface_uuid)
        known = accepted.get(interface, [])
        if fault := _find_image_fault(image.spec, designs.get(interface), known):
            faults[source] = fault
        else:
            known.append(image.spec)
    described = {interface: _describe(design, accepted[interface]) for interface, design in designs.items()}
    return Descriptions(shells=described, cards=_join_layouts(designs, accepted), faults=faults)


def select_layouts(card: Shell, layouts: Mapping[str, DescribedShell]) -> Shell:
    """Return a shell with those of its layouts alone that a card can have, by name, and their functions.

    The first, which has no name, is one of them.
    """
    functions = (
        replace(function, placements=tuple(one._replace(layout=name) for one in function.placements))
        for name, described in layouts.items()
        for function in described.shell.functions
    )
    further = tuple(layout for layout in card.further_layouts if layout.name in layouts)
    return replace(card, functions=tuple(functions), further_layouts=further)


def list_references(spec: FpgaImageSpec) -> list[ImageReference]:
    """Return the files of an image, each once."""
    return [_refer(spec, file) for file in spec.files]


def list_blank_references(spec: FpgaShellSpec) -> list[ImageReference]:
    """Return the files of the blank images of a shell's layouts, each once."""
    layouts: tuple[FpgaShellSpec | FpgaLayout, ...] = (spec, *spec.layouts)
    return [_refer(one, file) for one in layouts if one.blank is not None for file in one.blank.files]


def normalize_uuid(text: str) -> str:
    """Return a UUID with dashes and in lower case."""
    return str(uuid.UUID(text))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Design:
    """One layout of a described shell."""

    source: str
    shell: FpgaShell
    layout: str
    """The layout's name; empty: it is the first."""
    field: str
    """The path of the layout in the document."""
    said: FpgaShellSpec | FpgaLayout
    """What is said of it."""

    @property
    def interface_uuid(self) -> str:
        return normalize_uuid(self.said.interface_uuid)

    @property
    def units(self) -> int:
        return len(self.said.slots) or 1

    def build(self, name: str) -> ShellLayout:
        """Build the layout under this name."""
        logic = self.said.slots or ((self.said.resources,) if self.said.resources is not None else ())
        return ShellLayout(
            name=name,
            uuid=self.interface_uuid,
            slots=tuple(Logic(lut=one.lut, ff=one.ff, bram=one.bram, dsp=one.dsp) for one in logic),
            load_s=self.said.load_seconds,
            is_undivided=not self.said.slots,
        )


def _list_designs(source: str, shell: FpgaShell) -> list[_Design]:
    first = _Design(source=source, shell=shell, layout="", field="spec", said=shell.spec)
    further = (
        _Design(source=source, shell=shell, layout=said.name, field=f"spec.layouts[{number}]", said=said)
        for number, said in enumerate(shell.spec.layouts)
    )
    return [first, *further]


def _find_shell_fault(shell: FpgaShell, others: Mapping[str, _Design]) -> str:
    if len(shell.metadata.name) > _MAX_MODEL:
        return f"metadata.name: has more than {_MAX_MODEL} characters, and is an attribute of devices"
    seen = dict(others)
    layouts: set[str] = set()
    designs = _list_designs("this shell itself", shell)
    for design in designs:
        if other := seen.get(design.interface_uuid):
            return f"{design.field}.interfaceUUID: {other.source} describes the same interface; remove one of the two"
        if design.layout in layouts:
            return f"{design.field}.name: another layout is named {design.layout}; each needs its own"
        seen[design.interface_uuid] = design
        layouts.add(design.layout)
        if fault := _find_blank_fault(design):
            return fault
    for known in others.values():
        if known.shell.metadata.name == shell.metadata.name:
            return f"metadata.name: {known.source} describes a shell of the same name; each needs its own"
    units = sum(design.units for design in designs)
    if units > MAX_COUNTERS:
        return f"spec.layouts: they have {units} slots together; cards can be published with {MAX_COUNTERS}"
    return ""


def _find_blank_fault(design: _Design) -> str:
    blank = design.said.blank
    if blank is None:
        return ""
    if any(len(slots) > 1 for file in blank.files for slots in file.slots):
        return f"{design.field}.blank.files: a blank image is for one slot: write [[0], [1]] for two of them"
    return _find_file_fault(f"{design.field}.blank.files", blank.files, len(design.said.slots))


def _find_image_fault(image: FpgaImageSpec, design: _Design | None, others: Iterable[FpgaImageSpec]) -> str:
    if design is None:
        return f"spec.interfaceUUID: no shell is described that has the interface {image.interface_uuid}"
    blank = design.said.blank
    if blank is not None and normalize_uuid(blank.afu_id) == normalize_uuid(image.afu_id):
        return "spec.afuID: the shell's blank image has the same: a card could not distinguish the two"
    for other in others:
        if other.function == image.function:
            return f"spec.function: another image is described of {image.function} for the same interface"
        if normalize_uuid(other.afu_id) == normalize_uuid(image.afu_id):
            return f"spec.afuID: {other.function} has the same: a card could not distinguish the two"
    return _find_file_fault("spec.files", image.files, len(design.said.slots)) or _find_name_fault(image, design)


def _find_file_fault(path: str, files: Iterable[FpgaFile], slots: int) -> str:
    seen: set[tuple[int, ...]] = set()
    for number, file in enumerate(files):
        where = f"{path}[{number}].slots"
        if not slots:
            if file.slots or number:
                return f"{where}: the shell has no slots: leave the field out, and describe one file"
        elif not file.slots:
            return f"{where}: is required: the shell's slots are 0 to {slots - 1}"
        for chosen in file.slots:
            ordered = tuple(sorted(chosen))
            if ordered[-1] >= slots:
                return f"{where}: the shell has no slot {ordered[-1]}; its slots are 0 to {slots - 1}"
            if len({*ordered}) < len(ordered):
                return f"{where}: {_list_slots(chosen)} has a slot twice"
            if ordered in seen:
                return f"{where}: {_list_slots(chosen)} is named twice; one file is loaded into it"
            seen.add(ordered)
    return ""


def _find_name_fault(image: FpgaImageSpec, design: _Design) -> str:
    """Find what keeps the function from being published: a device's name has at most 63 characters."""
    for slots in (slots for file in image.files for slots in file.slots):
        placement = Placement.of_units(slots, design.layout)
        suffix = "-shared" if image.compute_units else ""
        name = f"fpga-{_LAST_CARD}-{name_part(placement, image.function)}{suffix}"
        if len(name) > MAX_LABEL:
            return (
                f"spec.function: for {_list_slots(slots)} a device would be named {name}, which has {len(name)} "
                f"characters, more than {MAX_LABEL}: shorten the name"
            )
    return ""


def _list_slots(slots: Iterable[int]) -> str:
    return f"[{', '.join(map(str, slots))}]"


def _join_layouts(designs: Mapping[str, _Design], accepted: Mapping[str, Iterable[FpgaImageSpec]]) -> tuple[Shell, ...]:
    """Build each shell with all its layouts and their functions."""
    by_name: dict[str, list[_Design]] = {}
    for design in designs.values():
        by_name.setdefault(design.shell.metadata.name, []).append(design)
    return tuple(
        _build_shell(
            [design.build(design.layout) for design in of_shell],
            of_shell[0].shell,
            [_build_function(image, design.layout) for design in of_shell for image in accepted[design.interface_uuid]],
        )
        for of_shell in by_name.values()
    )


def _describe(design: _Design, images: Iterable[FpgaImageSpec]) -> DescribedShell:
    """Describe a layout by itself, as cards have it whose backend can load no other: as the first."""
    images = tuple(images)
    described = {
        (image.function, placement): reference
        for image in images
        for placement, reference in _list_files(image.files, image)
    }
    shell = _build_shell([design.build("")], design.shell, [_build_function(image, "") for image in images])
    blank = design.said.blank
    blanks = _list_files(blank.files, design.said) if blank is not None else ()
    return DescribedShell(
        shell=shell,
        images=described,
        blanks={placement.start: reference for placement, reference in blanks},
        specs={image.function: image for image in images},
    )


def _build_shell(layouts: Sequence[ShellLayout], document: FpgaShell, functions: Iterable[Function]) -> Shell:
    first, *further = layouts
    return Shell(
        name=document.metadata.name,
        uuid=first.uuid,
        family=document.spec.family,
        slots=first.slots,
        functions=tuple(functions),
        load_s=first.load_s,
        is_undivided=first.is_undivided,
        further_layouts=tuple(further),
    )


def _build_function(image: FpgaImageSpec, layout: str) -> Function:
    found = sorted((placement, reference.sha256) for placement, reference in _list_files(image.files, image))
    return Function(
        name=image.function,
        version=image.version,
        afu_id=normalize_uuid(image.afu_id),
        placements=tuple(placement._replace(layout=layout) for placement, _ in found),
        load_s=image.load_seconds,
        digests=tuple(digest for _, digest in found),
        compute_units=image.compute_units,
    )


def _list_files(
    files: Iterable[FpgaFile], source: FpgaImageSpec | FpgaShellSpec | FpgaLayout
) -> Iterator[tuple[Placement, ImageReference]]:
    """Yield the placements of a function's image, or of a layout's blank one; a card without slots is one unit."""
    for file in files:
        reference = _refer(source, file)
        for slots in file.slots or ((0,),):
            yield Placement.of_units(slots), reference


def _refer(spec: FpgaImageSpec | FpgaShellSpec | FpgaLayout, file: FpgaFile) -> ImageReference:
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
