"""Descriptions of FPGA shells and images in files of the node, for nodes that may not fetch: as in the cluster."""

from pathlib import Path
from typing import Final

from api.kerf.fpga_objects import (
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
from driver.families.fpga.descriptions import Description
from driver.runtime.yaml_file import NotYamlError, parse_yaml

_PATTERN: Final = "*.yaml"
_MAX_FILES: Final = 1024
"""Far more descriptions than a node has: what is there by mistake must not fill the memory."""
_STRUCTS: Final = (FpgaShell, FpgaShellSpec, FpgaLayout, FpgaSlot, FpgaBlank, FpgaImage, FpgaImageSpec, FpgaFile)


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
            problems.append(f"{file}: {error}")
    return found, problems


def read_description_file(file: Path) -> object:
    """Read the document of one file. Raises OSError and NotYamlError."""
    with file.open("rb") as stream:
        data = stream.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise NotYamlError(f"has more than {MAX_BYTES} bytes")
    return parse_yaml(data, *_STRUCTS)
