"""``kerf fpga``: the registered shells and images, the slots of the cluster, and checks of documents and files."""

import hashlib
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import click

from kerf_dra.api.errors import InvalidDocumentError, KerfError, Problem
from kerf_dra.api.kerf.fpga_objects import (
    FPGA_IMAGES,
    FPGA_SHELLS,
    FpgaImage,
    FpgaImageObject,
    FpgaShellObject,
    FpgaStatus,
)
from kerf_dra.api.model.base import JsonObject
from kerf_dra.api.model.devices import Attribute, Device
from kerf_dra.api.wire import Kind
from kerf_dra.driver.cli import event_loop
from kerf_dra.driver.cli.options import DIRECTORY, FILE, FILE_OR_DIRECTORY, backend_option, option
from kerf_dra.driver.cli.options.cluster import (
    access_options,
    cluster_options,
    read_state,
    require_scheduler_allocation,
    with_exit_codes,
)
from kerf_dra.driver.cli.output import (
    EXIT_FAILED,
    OutputFormat,
    format_table,
    output_formats,
    print_document,
    print_text,
)
from kerf_dra.driver.diagnostics.cluster_state import ClusterState
from kerf_dra.driver.families.fpga import FPGA
from kerf_dra.driver.families.fpga.descriptions import (
    Description,
    ImageReference,
    build_descriptions,
    list_blank_references,
    list_references,
)
from kerf_dra.driver.families.fpga.refused_images import ImageRefusal
from kerf_dra.driver.kubeletplugin.backends.fpga.images.header import ImageHeader, ReadAt
from kerf_dra.driver.kubeletplugin.backends.registry import BackendChoice

_ABSENT: Final = Attribute()


@click.group(short_help="Show FPGA shells, images and slots, and check documents and image files.")
def command() -> None:
    """Show the FPGA shells and images of the cluster and its slots, and check documents and image files.

    Exit code 0: done, and nothing is wrong; 1: something is; 2: bad input; 3: the cluster cannot be read.
    """


@command.command(short_help="List the FpgaImages, and on how many nodes each is available.")
@access_options
@output_formats("text", "json", "yaml", "name")
@with_exit_codes
def images(kubeconfig: Path | None, context: str | None, output: OutputFormat) -> int:
    """List the FpgaImages of the cluster, and on how many of the nodes with such cards each is available."""
    found = event_loop.run(_list, FPGA_IMAGES, kubeconfig, context)
    rows = [
        (
            held.metadata.name,
            held.spec.get("function", ""),
            held.spec.get("version", ""),
            *_count_nodes(held.status),
            _describe(held.status),
        )
        for held in found
    ]
    return _print(found, FPGA_IMAGES, ("NAME", "FUNCTION", "VERSION", "FETCHED", "NODES", "STATE"), rows, output)


@command.command(short_help="List the FpgaShells, and on how many nodes each is.")
@access_options
@output_formats("text", "json", "yaml", "name")
@with_exit_codes
def shells(kubeconfig: Path | None, context: str | None, output: OutputFormat) -> int:
    """List the FpgaShells of the cluster, and on how many nodes there are cards with each."""
    found = event_loop.run(_list, FPGA_SHELLS, kubeconfig, context)
    rows = [
        (
            held.metadata.name,
            held.spec.get("interfaceUUID", ""),
            len(held.spec.get("slots") or ()),
            _count_nodes(held.status)[1],
            _describe(held.status),
        )
        for held in found
    ]
    return _print(found, FPGA_SHELLS, ("NAME", "INTERFACE", "SLOTS", "NODES", "STATE"), rows, output)


@command.command(short_help="List the slots of all FPGAs, what is loaded in them and which claim has them.")
@cluster_options
@output_formats("text", "json", "yaml")
@with_exit_codes
def slots(kubeconfig: Path | None, context: str | None, dump: Path | None, output: OutputFormat) -> int:
    """List the slots of all FPGAs of the cluster: what is loaded in each, and which claim has it."""
    source = read_state(kubeconfig, context, dump)
    require_scheduler_allocation(source, "fpga slots")
    found = list(_find_slots(source.state))
    if output != "text":
        print_document({"slots": found}, output)
    elif found:
        print_text(format_table([name.upper() for name in found[0]], [[*row.values()] for row in found]))
    else:
        print_text("no slot is published")
    return 0


@command.command(short_help="Check documents of shells and images, and image files.")
@click.argument("files", nargs=-1, required=True, type=FILE_OR_DIRECTORY, metavar="FILE...")
@option("--images", "folder", type=DIRECTORY, help="Folder of images: the files that documents name are checked.")
@option("--key", "keys", type=FILE, multiple=True, help="An ed25519 public key in PEM that signs. Repeatable.")
@with_exit_codes
def verify(files: tuple[Path, ...], folder: Path | None, keys: tuple[Path, ...]) -> int:
    """Check documents of FpgaShells and FpgaImages, image files (GBS, xclbin), dfx-mgr's directories, as a node does.

    Documents that are given together are judged together: an image needs the shell with its interface. With --images
    the files that they name are checked, with --key their signatures.
    """
    odd = [file for file in files if not (file.is_file() or file.is_dir())]
    if odd:
        raise InvalidDocumentError(str(odd[0]), [Problem("", "is neither a regular file nor a folder")])
    folders = [file for file in files if file.is_dir()]
    images = [file for file in files if file not in folders and _is_image(file)]
    problems = [*_verify_documents([file for file in files if file not in (*folders, *images)], folder, keys)]
    for file in images:
        problems += _verify_image(file)
    for one in folders:
        problems += _verify_folder(one)
    for problem in problems:
        print_text(f"kerf: {problem}", err=True)
    return EXIT_FAILED if problems else 0


@command.command(short_help="Say what a load of a device's function would do on this node.")
@click.argument("device")
@backend_option
@option("--dry-run", is_flag=True, required=True, help="Change nothing. Functions are loaded for claims alone.")
@with_exit_codes
def load(device: str, backends: tuple[BackendChoice, ...], dry_run: bool) -> int:
    """Say what a load for DEVICE, such as fpga-0-aes-gcm-at-1, would do on this node. Nothing is changed.

    Exit code 1: it would be refused now.
    """
    del dry_run  # there is no other way
    if problem := _try_load(device, backends):
        print_text(f"kerf: {problem}", err=True)
        return EXIT_FAILED
    return 0


async def _list(kind: Kind[Any], kubeconfig: Path | None, context: str | None) -> Sequence[Any]:
    from kerf_dra.driver.kube.http.client import Client  # aiohttp is of no use to checks of files
    from kerf_dra.driver.kube.http.config import load_access

    access = await load_access(kubeconfig, context)
    async with Client(access, user_agent="kerf-fpga") as client:
        found: Sequence[Any] = (await client.list(kind)).items
    return sorted(found, key=lambda held: str(held.metadata.name))


def _print(
    found: Sequence[FpgaShellObject | FpgaImageObject],
    kind: Kind[Any],
    header: Sequence[str],
    rows: Iterable[Sequence[object]],
    output: OutputFormat,
) -> int:
    if output == "name":
        print_text("\n".join(f"{kind.kind.lower()}/{held.metadata.name}" for held in found))
    elif output != "text":
        print_document({kind.plural: [kind.encode(held) for held in found]}, output)
    elif found:
        print_text(format_table(header, rows))
    else:
        print_text(f"there is no {kind.kind}")
    return 0


def _count_nodes(status: FpgaStatus) -> tuple[object, object]:
    return ("-", "-") if status.nodes is None else (status.nodes.fetched, status.nodes.total)


def _describe(status: FpgaStatus) -> str:
    """Return what is wrong with an object, in words of its conditions; else that nothing is."""
    found = {condition.type: condition for condition in status.conditions}
    if not found:
        return "not seen by the controller yet"
    if found["Verified"].status != "True":
        return found["Verified"].message
    if "Refused" in found and found["Refused"].status == "True":
        return found["Refused"].message
    return found["Fetched"].message if "Fetched" in found else "ok"


def _find_slots(state: ClusterState) -> Iterator[dict[str, object]]:
    """Yield a row for each bare slot of the FPGA driver's devices."""
    published: dict[tuple[str, str], tuple[str, Device]] = {}
    for one in state.slices:
        if one.spec.driver == FPGA.driver:
            for device in one.spec.devices:
                published[one.spec.pool.name, device.name] = (one.spec.node_name or "", device)
    holders: dict[tuple[str, str, str], str] = {}
    for claim in state.claims:
        results = claim.status.allocation.devices.results if claim.status.allocation is not None else ()
        for result in results:
            held = published.get((result.pool, result.device)) if result.driver == FPGA.driver else None
            if held is not None and not result.admin_access:
                holders.update(dict.fromkeys(_list_units(result.pool, held[1]), str(claim.ref)))
    for (pool, _), (node, device) in sorted(published.items()):
        units = _list_units(pool, device)
        if len(units) == 1 and not _word(device, "function") and _word(device, "cut") == "partition":
            capacity = {name: int(amount.value) for name, amount in device.capacity.items()}
            yield {
                "node": node,
                "device": device.name,
                "shell": _word(device, "model"),
                "lut": capacity.get("lut", 0),
                "dsp": capacity.get("dsp", 0),
                "loaded": _word(device, "loadedFunction") or "-",
                "claim": holders.get(units[0], "-"),
            }


def _list_units(pool: str, device: Device) -> list[tuple[str, str, str]]:
    """Return the slots that a device covers, by their counters: of those of other layouts it consumes a part."""
    names = [(used.counter_set, name) for used in device.consumes_counters for name in used.counters]
    if _word(device, "cut") == "partition":
        stem = "-".join(filter(None, (_word(device, "layout"), "slot")))
        names = [(counter_set, name) for counter_set, name in names if name.rpartition("-")[0] == stem]
    return [(pool, counter_set, name) for counter_set, name in names]


def _word(device: Device, name: str) -> str:
    return device.attributes.get(name, _ABSENT).string or ""


def _is_image(file: Path) -> bool:
    from kerf_dra.driver.kubeletplugin.backends.dfl.gbs import MAGIC as GBS
    from kerf_dra.driver.kubeletplugin.backends.xrt.xclbin import MAGIC as XCLBIN

    with file.open("rb") as stream:
        return stream.read(len(GBS)).startswith((GBS, XCLBIN))


def _read_header(read_at: ReadAt, size: int) -> ImageHeader:
    """Read the header of an image of any format (``ImageFormat``). Raises KerfError."""
    from kerf_dra.driver.kubeletplugin.backends.dfl.gbs import read_gbs_header
    from kerf_dra.driver.kubeletplugin.backends.xrt.xclbin import MAGIC, read_xclbin_header

    is_xclbin = read_at(0, len(MAGIC)) == MAGIC
    return read_xclbin_header(read_at, size) if is_xclbin else read_gbs_header(read_at, size)


def _verify_documents(files: Sequence[Path], folder: Path | None, keys: Sequence[Path]) -> Iterator[str]:
    from kerf_dra.driver.kubeletplugin.backends.fpga.descriptions import read_description_file
    from kerf_dra.driver.runtime.documents.input_file import describe_read_error
    from kerf_dra.driver.runtime.documents.yaml_file import NotYamlError

    found: list[Description] = []
    for file in files:
        try:
            found.append(Description(str(file), read_description_file(file)))
        except (OSError, NotYamlError) as error:
            raise InvalidDocumentError(str(file), [Problem("", describe_read_error(error))]) from error
    descriptions = build_descriptions(found)
    yield from descriptions.problems
    for source, document in found:
        if source not in descriptions.faults:
            assert isinstance(document, dict)  # it was decoded
            print_text(f"{source}: {document['kind']} {document['metadata']['name']} is valid")
            yield from (f"{source}: {problem}" for problem in _verify_files(document, folder, keys))


def _verify_files(document: JsonObject, folder: Path | None, keys: Sequence[Path]) -> Iterator[str]:
    """Check the files that a document names, and their signatures."""
    from kerf_dra.api.kerf.decoder import decode_fpga_object
    from kerf_dra.driver.kubeletplugin.backends.fpga.images.cache import ImageCache
    from kerf_dra.driver.kubeletplugin.backends.fpga.images.files import ImageFiles
    from kerf_dra.driver.kubeletplugin.backends.fpga.images.signatures import KeyRing

    ring = KeyRing({key.name: _read_key(key) for key in keys})
    decoded = decode_fpga_object(document)
    references: list[ImageReference] = (
        list_references(decoded.spec) if isinstance(decoded, FpgaImage) else list_blank_references(decoded.spec)
    )
    for reference in references:
        if (fault := ring.find_fault(reference)) is not None:
            yield fault.message
        elif folder is not None and reference.file:
            if (folder / reference.file).is_dir():
                fault = _find_folder_fault(folder / reference.file, reference)
            else:
                fault = ImageFiles(folder, ImageCache(folder, 0), ring, _read_header).find_fault(reference)
            if fault is not None:
                yield fault.message
            else:
                print_text(f"  {reference.file}: as described")
        else:
            what = "its signature is right; its bytes were not looked at" if keys else "it was not looked at"
            print_text(f"  {reference.name}: {what}")


def _read_key(file: Path) -> str:
    from kerf_dra.driver.runtime.documents.input_file import describe_read_error, read_file

    try:
        return read_file(file).decode("utf-8", "replace")
    except OSError as error:
        raise InvalidDocumentError(str(file), [Problem("", describe_read_error(error))]) from error


def _verify_image(file: Path) -> Iterator[str]:
    with file.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
        try:
            header = _read_header(lambda offset, length: os.pread(stream.fileno(), length, offset), file.stat().st_size)
        except KerfError as error:
            yield f"{file}: {error}"
            return
    print_text(f"{file}: an image {_describe_image(header)}")
    print_text(f"  interfaceUUID: {header.interface_uuid}\n  afuID: {header.afu_id}\n  sha256: {digest}")


def _describe_image(header: ImageHeader) -> str:
    from kerf_dra.driver.kubeletplugin.backends.dfl.gbs import GbsHeader
    from kerf_dra.driver.kubeletplugin.backends.xrt.xclbin import XclbinHeader

    if isinstance(header, GbsHeader):
        return f"of {header.name or 'no name'}"
    assert isinstance(header, XclbinHeader)  # there are two formats
    signed = "with" if header.signature_bytes else "without"
    units, gibibytes = header.compute_units, header.memory_bytes / 2**30
    return f"for {header.platform}, with {units} compute units and {gibibytes:g} GiB, {signed} AMD's signature"


def _verify_folder(folder: Path) -> Iterator[str]:
    """Check a directory of a base design, or of a package for a slot, and print what to write into its document."""
    from kerf_dra.driver.kubeletplugin.backends.slots.packages import (
        InvalidPackageError,
        compute_digest,
        read_accelerator,
        read_base,
        split_slot_folder,
    )

    try:
        if (folder / "shell.json").is_file():
            base = read_base(folder.parent, folder)
            what = "a flat base design, which is the package of its function" if base.is_flat else "a base design"
            print_text(f"{folder}: {what}{'' if base.is_flat else f' with {base.slots} slots'}")
            print_text(f"  interfaceUUID: {base.interface_uuid}")
            if base.is_flat:
                print_text(f"  sha256: {compute_digest(folder)}")
            return
        found = split_slot_folder("/".join(folder.resolve().parts[-3:]))
        if found is None:
            yield f"{folder}: it is neither a base design (shell.json) nor the directory NAME/NAME_slotN of a package"
            return
        devices = " ".join(read_accelerator(folder).devices) or "none"
        print_text(f"{folder}: the package {found[1]} for slot {found[2]}, with the devices: {devices}")
        print_text(f"  sha256: {compute_digest(folder)}")
    except (InvalidPackageError, OSError) as error:
        yield f"{folder}: {error}"


def _find_folder_fault(folder: Path, reference: ImageReference) -> ImageRefusal | None:
    """Return why a directory is not what an image is described as."""
    from kerf_dra.driver.kubeletplugin.backends.slots.packages import InvalidPackageError, compute_digest

    try:
        digest = compute_digest(folder)
    except (InvalidPackageError, OSError) as error:
        return ImageRefusal("Unreadable", str(error))
    if digest != reference.sha256:
        return ImageRefusal("WrongDigest", f"image {reference.file} has other files: their SHA-256 is {digest}")
    return None


def _try_load(device: str, backends: Sequence[BackendChoice]) -> str:
    """Print what a load would do; returns why it would be refused, empty: it would not."""
    from kerf_dra.driver.kubeletplugin.backends.registry import choose_families, load_backends
    from kerf_dra.driver.kubeletplugin.backends.survey_validation import survey_card
    from kerf_dra.driver.partitions.device_names import device_name

    refused: list[str] = []
    with ExitStack() as opened:
        for choice in choose_families((FPGA.name,), backends):
            for backend in load_backends(choice.family, choice.backends):
                backend.open()
                opened.callback(backend.close)
                for card in backend.discover():
                    refused.append(card.attributes.get("refusedImages", _ABSENT).string or "")
                    specs = {device_name(card, spec.of(card.uuid)): spec for spec in card.geometry.specs}
                    spec = specs.get(device)
                    if spec is None:
                        continue
                    survey = survey_card(backend, card.uuid, card.units)
                    partition = spec.of(card.uuid)
                    if reason := survey.find_restriction(partition):
                        return f"{device}: {reason}"
                    for found in survey.partitions:
                        if found.overlaps(partition):
                            return f"{device}: {found} is in use outside of Kerf"
                    digest = dict(spec.attributes).get("imageDigest", _ABSENT).string
                    is_warm = spec.placement is not None and card.loaded.get(spec.placement) == spec.function
                    what = spec.function or "nothing, or what the claim's FpgaConfig names"
                    print_text(f"{device}: card {card.pci_bus_id or card.uuid}, function: {what}")
                    print_text(f"  sha256 of its image: {digest or 'none'}")
                    print_text(f"  it is loaded already: {'yes' if is_warm else 'no'}; a load takes {spec.load_s:g} s")
                    if spec.placement is not None and spec.placement.layout != card.layout:
                        now = f"layout {card.layout}" if card.layout else "first layout"
                        print_text(f"  the card has its {now} now, which is replaced with all that is loaded in it")
                    return ""
    published = " ".join(filter(None, refused))
    return f"there is no device {device} here{f'; refused images: {published}' if published else ''}"
