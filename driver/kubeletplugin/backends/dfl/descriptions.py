"""What an administrator says of the FPGAs of a node: the shells of its cards, and the images that may be loaded.

Each file ``*.yaml`` of a folder has one document. A shell is the static design of a card, which the card names by its
interface UUID; an image is one function for one such interface, with a file for each slot or for several:

.. code-block:: yaml

    kind: Shell
    name: n6001-base
    interfaceUUID: 1d0b24b2-6a5f-5c0e-9b0e-6a0e7a1f3c55
    family: agilex
    slots: [{lut: 400000, ff: 800000, bram: 3000, dsp: 1800}]
    blank:
      afuID: 8a1c3f60-6f0d-5b0a-8a43-0c9b5d5e2f10
      files: [{file: blank.gbs, sha256: <64 hexadecimal digits>, slots: [0]}]

.. code-block:: yaml

    kind: Image
    function: aes-gcm
    version: 1.2.0
    interfaceUUID: 1d0b24b2-6a5f-5c0e-9b0e-6a0e7a1f3c55
    afuID: 9c1d7a30-51b4-5f0e-8d5e-2f64a1c0b701
    loadSeconds: 0.4
    parameters: {LANES: "8"}
    files: [{file: aes-gcm.gbs, sha256: <64 hexadecimal digits>, slots: [0]}]

A file that is wrong is left out, and said: the others count.
"""

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Final, TypeAlias

import msgspec

from api.errors import InvalidDocumentError, Problem
from api.kerf.scalar_types import DNS_LABEL, IDENTIFIER, DeviceWord
from api.kerf.v1alpha1 import Strict
from driver.families.fpga.shell import Function, Logic, Shell
from driver.partitions.geometry import Placement
from driver.runtime.yaml_file import NotYamlError, parse_yaml

_PATTERN: Final = "*.yaml"
_MAX_FILES: Final = 1024
_MAX_BYTES: Final = 64 * 1024
"""Far more descriptions than a node has, and far longer ones: what is there by mistake must not fill the memory."""
MAX_SLOTS: Final = 8
"""A port's id has three bits (FME_PR_CTRL, Linux ``drivers/fpga/dfl-fme-mgr.c``)."""

_Uuid: TypeAlias = Annotated[str, msgspec.Meta(pattern=r"^[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}$")]
_Slot: TypeAlias = Annotated[int, msgspec.Meta(ge=0, lt=MAX_SLOTS)]
_Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
_LoadSeconds: TypeAlias = Annotated[float, msgspec.Meta(ge=0, le=3600)]
"""At most the time that a FpgaConfig may allow for a load."""
FunctionName: TypeAlias = Annotated[str, msgspec.Meta(pattern=DNS_LABEL, max_length=40)]
"""A part of device names, which have 63 characters with that of the card and the number of the slot."""
_FilePath: TypeAlias = Annotated[
    str, msgspec.Meta(pattern=r"^[A-Za-z0-9_][A-Za-z0-9._+-]*(/[A-Za-z0-9_][A-Za-z0-9._+-]*)*$", max_length=255)
]
"""A path below the folder of images: no part begins with a dot, so none leads up."""
_Value: TypeAlias = Annotated[str, msgspec.Meta(pattern=r"^[ -~]*$", max_length=256)]
_Variable: TypeAlias = Annotated[str, msgspec.Meta(pattern=IDENTIFIER, max_length=64)]


class _File(Strict):
    file: _FilePath
    sha256: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]
    slots: Annotated[tuple[_Slot, ...], msgspec.Meta(min_length=1, max_length=MAX_SLOTS)]


class _Blank(Strict):
    afu_id: _Uuid = msgspec.field(name="afuID")
    files: Annotated[tuple[_File, ...], msgspec.Meta(min_length=1, max_length=MAX_SLOTS)]
    load_seconds: _LoadSeconds = 0.0


class _Slots(Strict):
    lut: _Count = 0
    ff: _Count = 0
    bram: _Count = 0
    dsp: _Count = 0


class ShellDocument(Strict, tag_field="kind", tag="Shell"):
    """The description of a shell."""

    name: DeviceWord
    interface_uuid: _Uuid = msgspec.field(name="interfaceUUID")
    slots: Annotated[tuple[_Slots, ...], msgspec.Meta(min_length=1, max_length=MAX_SLOTS)]
    family: Annotated[str, msgspec.Meta(pattern=r"^[ -~]*$", max_length=64)] = ""
    blank: _Blank | None = None


class ImageDocument(Strict, tag_field="kind", tag="Image"):
    """The description of a function's image."""

    function: FunctionName
    interface_uuid: _Uuid = msgspec.field(name="interfaceUUID")
    afu_id: _Uuid = msgspec.field(name="afuID")
    files: Annotated[tuple[_File, ...], msgspec.Meta(min_length=1, max_length=MAX_SLOTS)]
    load_seconds: _LoadSeconds
    version: DeviceWord = "0"
    parameters: Annotated[dict[_Variable, _Value], msgspec.Meta(max_length=32)] = {}


class ImageReference(msgspec.Struct, frozen=True, kw_only=True):
    """An image file for one slot, and what it must be."""

    file: str
    """The path below the folder of images."""
    sha256: str
    interface_uuid: str
    afu_id: str
    load_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedShell:
    """A shell with all images for it."""

    shell: Shell
    images: Mapping[tuple[str, int], ImageReference]
    """The images of functions, by the function's name and the number of the slot."""
    blanks: Mapping[int, ImageReference]
    """The blank images, by the number of the slot."""
    parameters: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """The parameters of each function."""
    fault: str = ""
    """Why no card with this shell can be used, such as a blank image that is wrong; empty: each can."""

    def find_function(self, slot: int, afu_id: str) -> Function | None:
        """Return the function with an image for ``slot`` that reports ``afu_id``; None: there is none."""
        for function in self.shell.functions:
            image = self.images.get((function.name, slot))
            if image is not None and image.afu_id == afu_id:
                return function
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Descriptions:
    """All shells of a folder, by their interface UUIDs, and what is wrong with files that were left out."""

    shells: Mapping[str, DescribedShell]
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Found:
    file: str
    document: ShellDocument | ImageDocument


def read_descriptions(folder: Path) -> Descriptions:
    """Read all descriptions of ``folder``; what is wrong is among the ``problems``."""
    problems: list[str] = []
    found: list[_Found] = []
    try:
        files = sorted(folder.glob(_PATTERN)) if folder.is_dir() else None
    except OSError as error:
        return Descriptions(shells={}, problems=(f"{folder} cannot be read: {error}",))
    if files is None:
        return Descriptions(shells={}, problems=(f"{folder} is not there: no shell is described",))
    if len(files) > _MAX_FILES:
        problems.append(f"{folder} has {len(files)} files; the first {_MAX_FILES} count")
    for file in files[:_MAX_FILES]:
        try:
            found.append(_Found(file.name, _read_document(file)))
        except InvalidDocumentError as error:
            problems.append(str(error))
    return build_descriptions(found, problems)


def _read_document(file: Path) -> ShellDocument | ImageDocument:
    try:
        with file.open("rb") as stream:
            data = stream.read(_MAX_BYTES + 1)
        if len(data) > _MAX_BYTES:
            raise NotYamlError(f"has more than {_MAX_BYTES} bytes")
        document = parse_yaml(data, ShellDocument, ImageDocument, _Blank, _File, _Slots)
        return msgspec.convert(document, type=ShellDocument | ImageDocument)
    except (OSError, NotYamlError, msgspec.ValidationError) as error:
        raise InvalidDocumentError(str(file), [Problem("", str(error))]) from error


def build_descriptions(found: Iterable[_Found], problems: Sequence[str] = ()) -> Descriptions:
    """Put images and shells together; documents that contradict others or themselves are left out."""
    said = list(problems)
    shells: dict[str, tuple[str, ShellDocument]] = {}
    images: dict[str, list[ImageDocument]] = {}
    found = tuple(found)
    for one in found:
        if isinstance(one.document, ShellDocument):
            fault = _find_shell_fault(one.document, shells)
            if fault:
                said.append(f"{one.file}: {fault}")
            else:
                shells[_uuid(one.document.interface_uuid)] = (one.file, one.document)
    for one in found:
        if isinstance(one.document, ImageDocument):
            interface = _uuid(one.document.interface_uuid)
            known = images.setdefault(interface, [])
            fault = _find_image_fault(one.document, shells.get(interface), known)
            if fault:
                said.append(f"{one.file}: {fault}")
            else:
                known.append(one.document)
    return Descriptions(
        shells={interface: _describe(shell, images.get(interface, [])) for interface, (_, shell) in shells.items()},
        problems=tuple(said),
    )


def _find_shell_fault(shell: ShellDocument, others: Mapping[str, tuple[str, ShellDocument]]) -> str:
    for interface, (file, other) in others.items():
        if interface == _uuid(shell.interface_uuid):
            return f"interfaceUUID: {file} describes the same interface; remove one of the two"
        if other.name == shell.name:
            return f"name: {file} describes a shell of the same name; each needs its own"
    return "" if shell.blank is None else _find_file_fault("blank.files", shell.blank.files, len(shell.slots))


def _find_image_fault(
    image: ImageDocument, shell: tuple[str, ShellDocument] | None, others: Iterable[ImageDocument]
) -> str:
    if shell is None:
        return f"interfaceUUID: no shell is described that has the interface {image.interface_uuid}"
    blank = shell[1].blank
    if blank is not None and _uuid(blank.afu_id) == _uuid(image.afu_id):
        return "afuID: the shell's blank image has the same: a card could not tell the two"
    for other in others:
        if other.function == image.function:
            return f"function: another file describes {image.function} for the same interface"
        if _uuid(other.afu_id) == _uuid(image.afu_id):
            return f"afuID: {other.function} has the same: a card could not tell the two"
    return _find_file_fault("files", image.files, len(shell[1].slots))


def _find_file_fault(path: str, files: Iterable[_File], slots: int) -> str:
    seen: set[int] = set()
    for number, file in enumerate(files):
        for slot in file.slots:
            if slot >= slots:
                return f"{path}[{number}].slots: the shell has no slot {slot}; its slots are 0 to {slots - 1}"
            if slot in seen:
                return f"{path}[{number}].slots: slot {slot} is named twice; one file is loaded into it"
            seen.add(slot)
    return ""


def _describe(document: ShellDocument, images: Sequence[ImageDocument]) -> DescribedShell:
    interface = _uuid(document.interface_uuid)
    blank = document.blank
    described = {
        (image.function, slot): reference
        for image in images
        for slot, reference in _list_files(interface, image.afu_id, image.load_seconds, image.files)
    }
    shell = Shell(
        name=document.name,
        uuid=interface,
        family=document.family,
        slots=tuple(Logic(lut=one.lut, ff=one.ff, bram=one.bram, dsp=one.dsp) for one in document.slots),
        functions=tuple(_build_function(image, described) for image in images),
    )
    blanks = {} if blank is None else dict(_list_files(interface, blank.afu_id, blank.load_seconds, blank.files))
    parameters = {image.function: image.parameters for image in images}
    return DescribedShell(shell=shell, images=described, blanks=blanks, parameters=parameters)


def _build_function(image: ImageDocument, described: Mapping[tuple[str, int], ImageReference]) -> Function:
    slots = sorted(slot for function, slot in described if function == image.function)
    return Function(
        name=image.function,
        version=image.version,
        afu_id=_uuid(image.afu_id),
        placements=tuple(Placement(slot, 1) for slot in slots),
        load_s=image.load_seconds,
    )


def _list_files(
    interface: str, afu_id: str, load_s: float, files: Iterable[_File]
) -> Iterator[tuple[int, ImageReference]]:
    for file in files:
        for slot in file.slots:
            yield (
                slot,
                ImageReference(
                    file=file.file,
                    sha256=file.sha256,
                    interface_uuid=interface,
                    afu_id=_uuid(afu_id),
                    load_s=load_s,
                ),
            )


def _uuid(text: str) -> str:
    return str(uuid.UUID(text))
