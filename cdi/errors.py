"""What can go wrong, and what was found wrong in a document.

::

    CDIError                    every error of this package
    ├── InvalidNameError        a text is no kind or no qualified device name (also a ValueError)
    ├── InvalidSpecError        a document or a value cannot be used as a spec; carries every finding
    ├── UnresolvedError         requested devices that no directory defines; says why for each
    ├── HostDeviceError         a device node cannot be completed from the host
    ├── InvalidOCISpecError     an OCI spec has the wrong shape where edits go
    └── StoreError              a file could not be written, listed or removed; names the path and what to do
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

Severity: TypeAlias = Literal["error", "warning"]


class CDIError(Exception):
    """An error with a message for people."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that is wrong, or doubtful, in a document."""

    code: str
    """A stable word for programs; ``cdi.document.validation.CODES`` and ``cdi.document.decoder.CODES`` list them
    all."""
    path: str
    """Where, as ``devices[0].containerEdits.mounts[1].options``; empty: the whole document."""
    message: str
    severity: Severity = "error"
    """An error makes the document unusable; with a warning it is used."""
    line: int | None = None
    """The line in the file, from 1; None when the value did not come from a file."""

    def __str__(self) -> str:
        where = ", ".join(part for part in (f"line {self.line}" if self.line else "", self.path) if part)
        text = f"{self.severity}: {f'{where}: ' if where else ''}{self.message} [{self.code}]"
        # Keys come from files: what would move a terminal's cursor is shown escaped.
        return "".join(character if character.isprintable() else repr(character)[1:-1] for character in text)


class InvalidNameError(CDIError, ValueError):
    """A text is no kind or no qualified device name. ``code`` is the finding's code for the same mistake."""

    def __init__(self, text: str, code: str, reason: str) -> None:
        self.text = text
        self.code = code
        super().__init__(f"{text!r}: {reason}")


class InvalidSpecError(CDIError):
    """Cannot be used as a spec. ``findings`` holds all that was found, warnings too; at least one is an error."""

    def __init__(self, subject: str, findings: Iterable[Finding]) -> None:
        self.subject = subject
        self.findings: Sequence[Finding] = tuple(findings)
        errors = [str(finding) for finding in self.findings if finding.severity == "error"]
        super().__init__(f"{subject}: " + "; ".join(errors))


class UnresolvedError(CDIError):
    """Some requested devices are not there. ``reasons`` says why, by the name that was asked for."""

    def __init__(self, reasons: Mapping[str, str]) -> None:
        self.reasons = dict(reasons)
        super().__init__("unresolvable CDI devices: " + "; ".join(f"{n}: {why}" for n, why in self.reasons.items()))


class HostDeviceError(CDIError):
    """A device node leaves something to the host, and the host's node is missing or of another type.

    ``code`` is host-missing, host-not-device or host-type-mismatch.
    """

    def __init__(self, path: str, code: str, reason: str) -> None:
        self.path = path
        self.code = code
        super().__init__(f"device node {path!r}: {reason}")


class InvalidOCISpecError(CDIError):
    """An OCI spec has something of the wrong type where edits go. ``path`` says where."""

    def __init__(self, path: str, needed: str) -> None:
        self.path = path
        super().__init__(f"OCI spec: {path} is not {needed}")


class StoreError(CDIError):
    """A spec file could not be written, listed or removed. Nothing half-written is visible to readers."""

    def __init__(self, path: Path, problem: str, remedy: str) -> None:
        self.path = path
        super().__init__(f"{path}: {problem}; {remedy}")
