"""The errors of this package, and the findings about a document.

::

    CDIError                    every error of this package
    ├── InvalidNameError        a string is not a kind or qualified device name (also a ValueError)
    ├── InvalidSpecError        a document or a value cannot be used as a spec; carries every finding
    ├── UnresolvedError         requested devices are not available; has the reason for each
    ├── HostDeviceError         a device node cannot be completed from the host
    ├── InvalidOCISpecError     an OCI spec has the wrong shape where edits go
    └── StoreError              a file could not be written, listed or removed; names path and remedy
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

Severity: TypeAlias = Literal["error", "warning"]


class CDIError(Exception):
    """The base of this package's errors; the message is for people."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One error or warning about a document."""

    code: str
    """The rule's identifier, stable for programs: a key of ``READING`` or ``CONTENT`` in
    ``kerf_dra.cdi.document.rules``."""
    path: str
    """The field, as ``devices[0].containerEdits.mounts[1].options``; empty: the whole document."""
    message: str
    severity: Severity = "error"
    """An error makes the document unusable, a warning does not."""
    line: int | None = None
    """The line in the file, from 1; None: unknown, or the value is from no file."""

    def __str__(self) -> str:
        where = ", ".join(part for part in (f"line {self.line}" if self.line else "", self.path) if part)
        text = f"{self.severity}: {f'{where}: ' if where else ''}{self.message} [{self.code}]"
        # Keys come from files: control characters must not reach a terminal.
        return "".join(character if character.isprintable() else repr(character)[1:-1] for character in text)


class InvalidNameError(CDIError, ValueError):
    """A string is not a kind or qualified device name; ``code`` is that of a finding of the same mistake."""

    def __init__(self, text: str, code: str, reason: str) -> None:
        self.text = text
        self.code = code
        super().__init__(f"{text!r}: {reason}")


class InvalidSpecError(CDIError):
    """A document or value cannot be used as a spec. ``findings`` holds every error (one at least) and warning."""

    def __init__(self, subject: str, findings: Iterable[Finding]) -> None:
        self.subject = subject
        self.findings: Sequence[Finding] = tuple(findings)
        errors = [str(finding) for finding in self.findings if finding.severity == "error"]
        super().__init__(f"{subject}: " + "; ".join(errors))


class UnresolvedError(CDIError):
    """Requested devices are not available; ``reasons`` has the reason for each requested name."""

    def __init__(self, reasons: Mapping[str, str]) -> None:
        self.reasons = dict(reasons)
        super().__init__("unresolvable CDI devices: " + "; ".join(f"{n}: {why}" for n, why in self.reasons.items()))


class HostDeviceError(CDIError):
    """A device node is to be completed from the host, whose node is missing or of another type.

    ``code`` is host-missing, host-not-device or host-type-mismatch.
    """

    def __init__(self, path: str, code: str, reason: str) -> None:
        self.path = path
        self.code = code
        super().__init__(f"device node {path!r}: {reason}")


class InvalidOCISpecError(CDIError):
    """An OCI spec holds, at ``path``, a value of the wrong type for edits."""

    def __init__(self, path: str, needed: str) -> None:
        self.path = path
        super().__init__(f"OCI spec: {path} is not {needed}")


class StoreError(CDIError):
    """A spec file could not be written, listed or removed. Nothing half-written is visible to readers."""

    def __init__(self, path: Path, problem: str, remedy: str) -> None:
        self.path = path
        super().__init__(f"{path}: {problem}; {remedy}")
