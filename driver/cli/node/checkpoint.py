"""``kerf checkpoint``: what a node's kubelet plugin has recorded of its claims, read from a copy of its files."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import click

from kerf_dra.api.checkpoint import v1
from kerf_dra.api.errors import KerfError
from kerf_dra.api.model.names import ShareId
from kerf_dra.api.model.prepared import DeviceNotes, PreparedClaim
from kerf_dra.driver.cli.options import DIRECTORY, option, state_options
from kerf_dra.driver.cli.output import (
    EXIT_FAILED,
    OutputFormat,
    describe_error,
    format_table,
    output_option,
    print_document,
    print_text,
)
from kerf_dra.driver.families.base import Family
from kerf_dra.driver.families.registry import find_families, installed_families
from kerf_dra.driver.kubeletplugin.checkpoint_copy import copy_checkpoint, has_checkpoint, open_copy
from kerf_dra.driver.kubeletplugin.settings import Settings
from kerf_dra.driver.runtime.boot import read_boot_id

_FAMILIES: Final = option(
    "--family", "families", multiple=True, help="A family. Repeatable. [default: all that have a checkpoint]"
)
_NONE: Final = "-"


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointReport:
    """The content of one family's checkpoint."""

    driver: str
    folder: Path
    boot_id: str
    """The ID of the present boot."""
    claims: tuple[PreparedClaim, ...]
    notes: dict[str, tuple[DeviceNotes, ...]]
    """The notes by claim UID."""

    @property
    def outdated(self) -> int:
        """How many claims were recorded in an earlier boot."""
        return sum(claim.boot_id != self.boot_id for claim in self.claims)


@click.group(short_help="Show or copy what a node's plugin has recorded.")
def command() -> None:
    """Show or copy what this node's kubelet plugin has recorded of its claims, one checkpoint for each family.

    The files are copied first, so that a plugin that runs is not disturbed, and nothing of it is changed.
    """


@command.command(short_help="Print the recorded claims and their devices.")
@_FAMILIES
@state_options
@output_option
def show(families: tuple[str, ...], kubelet_root: Path, state_dir: Path | None, output: OutputFormat) -> int:
    """Print the recorded claims and their devices.

    NOTES are what a prepare has noted before it changed hardware; they go when the device is released. JSON and YAML
    have all fields: UUIDs, handles, configuration.

    Exit code 1: a checkpoint cannot be read.
    """
    boot_id = read_boot_id()
    reports: list[CheckpointReport] = []
    problems: list[str] = []
    for family, folder in _find_folders(families, kubelet_root, state_dir):
        try:
            reports.append(_read(family, folder, boot_id))
        except (KerfError, OSError) as error:
            problems.append(describe_error(error))
    if output != "text":
        print_document({"checkpoints": [_document(report) for report in reports]}, output)
    elif reports:
        print_text("\n\n".join("\n".join(_lines(report)) for report in reports))
    for problem in problems:
        print_text(f"kerf: {problem}", err=True)
    return EXIT_FAILED if problems else 0


@command.command(short_help="Write a consistent copy.")
@click.argument("target", type=DIRECTORY)
@_FAMILIES
@state_options
def export(target: Path, families: tuple[str, ...], kubelet_root: Path, state_dir: Path | None) -> int:
    """Write a consistent copy of each checkpoint to a folder of its own in TARGET, also beside a running plugin.

    Unlike a copy of checkpoint.db it has what is still in the log. It can be sent with a report, opened with sqlite3,
    and put back: both files, while the plugin is stopped, before anything else was prepared or unprepared.

    Exit code 1: a checkpoint cannot be read, or there is a copy in TARGET already; the others are written.
    """
    boot_id = read_boot_id()
    problems: list[str] = []
    for family, folder in _find_folders(families, kubelet_root, state_dir):
        try:
            written = _export(folder, target.absolute() / family.driver, boot_id)
        except (KerfError, OSError) as error:
            problems.append(describe_error(error))
        else:
            print_text(f"{family.driver}: {written}")
    for problem in problems:
        print_text(f"kerf: {problem}", err=True)
    return EXIT_FAILED if problems else 0


def _export(folder: Path, target: Path, boot_id: str) -> Path:
    """Write the copy beside ``target`` and move it there whole. Raises KerfError and OSError."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=f".{target.name}-", dir=target.parent) as name:
        copy = Path(name) / "copy"
        copy.mkdir(mode=0o700)
        copy_checkpoint(folder, copy, boot_id=boot_id)
        if target.exists():
            raise KerfError(f"{target} is there already: name another folder")
        os.rename(copy, target)  # noqa: PTH104  (a directory in place of an empty one, whole)
    return target


def _find_folders(names: Sequence[str], kubelet_root: Path, state_dir: Path | None) -> Iterator[tuple[Family, Path]]:
    """Yield the families, and where their state is. Raises KerfError where none of all has a checkpoint."""
    installed = installed_families()
    chosen = find_families(names, installed) or [*installed.values()]
    folders = [(family, state_folder(family, kubelet_root, state_dir)) for family in chosen]
    found = folders if names else [(family, folder) for family, folder in folders if has_checkpoint(folder)]
    if not found:
        places = ", ".join(str(folder) for _, folder in folders)
        raise KerfError(f"there is no checkpoint in {places}: name the plugin's --kubelet-root or --state-dir")
    yield from found


def state_folder(family: Family, kubelet_root: Path, state_dir: Path | None) -> Path:
    """Return the folder of the family's checkpoint."""
    return Settings(
        node_name="", family=family, backends=(), kubelet_root=kubelet_root, state_dir=state_dir
    ).state.absolute()


def _read(family: Family, folder: Path, boot_id: str) -> CheckpointReport:
    with open_copy(folder, boot_id=boot_id) as checkpoint:
        notes = {uid: tuple(of_claim.values()) for uid, of_claim in checkpoint.notes.items() if of_claim}
        return CheckpointReport(
            driver=family.driver,
            folder=folder,
            boot_id=boot_id,
            claims=tuple(checkpoint.records.values()),
            notes=notes,
        )


def _document(report: CheckpointReport) -> dict[str, Any]:
    """Return the report with records and notes in the form in which they are written."""
    return {
        "driver": report.driver,
        "folder": str(report.folder),
        "bootID": report.boot_id,
        "claims": [v1.to_record(claim) for claim in report.claims],
        "notes": {uid: [v1.to_notes_record(notes) for notes in each] for uid, each in report.notes.items()},
    }


def _lines(report: CheckpointReport) -> Iterator[str]:
    others = sum(1 for claim in report.claims if claim.resource)
    number = len(report.claims) - others
    yield f"{report.driver}, {report.folder}"
    of_resources = f", {others} device{'' if others == 1 else 's'} of extended resources" if others else ""
    yield f"{number} claim{'' if number == 1 else 's'}{of_resources}"
    if report.outdated:
        yield f"{report.outdated} of an earlier boot: what it names is on no card any more"
    if report.claims:
        header = ("CLAIM", "STATE", "DEVICE", "NOTES")
        yield format_table(header, (row for claim in report.claims for row in _rows(report, claim)))


def _rows(report: CheckpointReport, claim: PreparedClaim) -> Iterator[tuple[str, ...]]:
    """Yield a row for each device; the claim, or the extended resource, is named in the first."""
    noted: dict[ShareId, DeviceNotes] = {notes.share: notes for notes in report.notes.get(claim.claim.uid, ())}
    names = (claim.resource or f"{claim.claim.namespace}/{claim.claim.name}", str(claim.state))
    for device in claim.devices or (None,):
        share = device.share if device else None
        shown = _NONE if share is None else share.id.device + (f"#{share.share}" if share.share else "")
        notes = noted.get(share) if share else None
        yield *names, shown, ", ".join(notes.notes) if notes and notes.notes else _NONE
        names = ("", "")
