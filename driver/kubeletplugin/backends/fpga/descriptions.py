"""Descriptions of FPGA shells and images in files of the node, as in the cluster, and what of them a node refuses."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Final

from kerf_dra.api.kerf.fpga_objects import (
    MAX_BYTES,
    FpgaBlank,
    FpgaFile,
    FpgaImage,
    FpgaImageSpec,
    FpgaLayout,
    FpgaShell,
    FpgaShellSpec,
    FpgaSlot,
)
from kerf_dra.api.model.base import JsonObject
from kerf_dra.driver.families.fpga.descriptions import (
    DescribedShell,
    Description,
    Descriptions,
    ImageReference,
    build_descriptions,
)
from kerf_dra.driver.families.fpga.refused_images import BLANK, ImageRefusal, format_refusals, qualify_function
from kerf_dra.driver.runtime.documents.input_file import describe_read_error, read_regular_file
from kerf_dra.driver.runtime.documents.yaml_file import NotYamlError, parse_yaml

_PATTERN: Final = "*.yaml"
_MAX_FILES: Final = 1024
"""Far more descriptions than a node has: what is there by mistake must not fill the memory."""
_KEPT: Final = 64
"""As many as a node has. Backends read them at each discovery, and parsing takes most of the time of some of them."""
_STRUCTS: Final = (FpgaShell, FpgaShellSpec, FpgaLayout, FpgaSlot, FpgaBlank, FpgaImage, FpgaImageSpec, FpgaFile)


class DescriptionReader:
    """The descriptions that count on a node: those in files of the node, then those of the cluster."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._of_cluster: tuple[Description, ...] = ()

    def describe(self, documents: Sequence[JsonObject]) -> None:
        """Take the shells and images of the cluster in place of those before."""
        named = [Description(f"{one['kind']} {one['metadata']['name']}", one) for one in documents]
        self._of_cluster = tuple(sorted(named, key=lambda description: description.source))

    def read(self) -> tuple[Descriptions, list[str]]:
        """Return all shells with their images, and what is wrong with documents, for people."""
        found, problems = read_description_files(self._folder)
        descriptions = build_descriptions([*found, *self._of_cluster])
        return descriptions, [*problems, *descriptions.problems]


def read_description_files(folder: Path) -> tuple[list[Description], list[str]]:
    """Read the documents of all files ``*.yaml`` of ``folder``, one in each; with what is wrong with others."""
    try:
        files = sorted(folder.glob(_PATTERN)) if folder.is_dir() else None
    except OSError as error:
        return [], [f"{folder} cannot be read: {error}"]
    if files is None:
        return [], [f"{folder} is not there: no shell is described in files"]
    problems = [f"{folder} has {len(files)} files; the first {_MAX_FILES} count"] if len(files) > _MAX_FILES else []
    found: list[Description] = []
    for file in files[:_MAX_FILES]:
        try:
            found.append(Description(file.name, read_description_file(file)))
        except (OSError, NotYamlError) as error:
            problems.append(f"{file}: {describe_read_error(error)}")
    return found, problems


def read_description_file(file: Path) -> object:
    """Read the document of one file. Raises OSError and NotYamlError."""
    return _parse(read_regular_file(file, max_bytes=MAX_BYTES))


@lru_cache(maxsize=_KEPT)
def _parse(data: bytes) -> object:
    """Return the document, which must not be changed."""
    return parse_yaml(data, *_STRUCTS)


def leave_out_images(described: DescribedShell, refused: Mapping[ImageReference, ImageRefusal]) -> DescribedShell:
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


def summarize_refusals(
    refused: Mapping[ImageReference, ImageRefusal], layouts: Mapping[str, str] = MappingProxyType({})
) -> str:
    """Return what a node publishes of the images that it refuses; ``layouts`` are a card's layouts by interface."""
    return format_refusals(
        {
            qualify_function(image.function or BLANK, layouts.get(image.interface_uuid, "")): refusal.reason
            for image, refusal in refused.items()
        }
    )
