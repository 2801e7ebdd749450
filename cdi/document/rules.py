"""The rules that a spec can break, by code, with the readers that reject a document for it.

Readers check less than they should, and differ in their checks. A spec that is to be written must break no rule that is
an error to any reader; for a file that was read, errors are the faults that one version of the Go library rejects, and
all other findings are warnings.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from kerf_dra.cdi.errors import Severity
from kerf_dra.cdi.names import Semantics


@dataclass(frozen=True, slots=True)
class Rule:
    """The consequences of breaking one rule."""

    refused_by: frozenset[Semantics]
    """The readers that reject the document."""
    written: bool
    """Whether this package writes such a document; never true for a document that a reader rejects."""


_EVERY_READER = Rule(frozenset(("1.1", "main")), written=False)
_OLD_READERS = Rule(frozenset(("1.1",)), written=False)
_NOT_WRITTEN = Rule(frozenset(), written=False)
_ADVICE = Rule(frozenset(), written=True)

READING: Mapping[str, Rule] = {
    # Documents that cannot be decoded.
    "unreadable": _EVERY_READER,
    "syntax": _EVERY_READER,
    "too-large": _EVERY_READER,  # to this package; others read until memory is exhausted
    "empty-document": _EVERY_READER,
    "duplicate-key": _EVERY_READER,
    "unknown-field": _EVERY_READER,
    "wrong-type": _EVERY_READER,
    "null-item": _EVERY_READER,  # a nil pointer is dereferenced: the whole process crashes
    # Documents that releases read differently, or not as they appear to people.
    "two-spellings": _ADVICE,  # 1.1.0 merges the two values into one, 1.1.1 knows only one of the keys
    "key-case": _ADVICE,  # 1.1.0 matches keys in any case, 1.1.1 only as they are
    "bare-scalar": _ADVICE,  # 1.1.0 rewrites apparent numbers and booleans, 1.1.1 takes the text
    "converted-number": _ADVICE,  # 1.5e1 and 0660 are read as 15 and 432
    "null-text": _ADVICE,
    "explicit-tag": _ADVICE,
    "merge-key": _ADVICE,
    "ignored-rest": _ADVICE,  # only the first document of a file counts
}
"""The rules about how a document is written."""

CONTENT: Mapping[str, Rule] = {
    "unknown-version": _EVERY_READER,
    "version-too-low": _EVERY_READER,
    "version-understated": _NOT_WRITTEN,  # also too low, but readers do not detect it
    "version-too-high": _ADVICE,  # fewer readers than possible, and the others ignore the file silently
    "vendor-name": _EVERY_READER,
    "class-name": _EVERY_READER,
    "one-letter-name": _OLD_READERS,  # an index out of range: the whole process crashes
    "vendor-not-dns": _ADVICE,  # SPEC.md requires a DNS subdomain, no reader enforces it
    "class-too-long": _ADVICE,
    "no-devices": _EVERY_READER,
    "device-name": _EVERY_READER,
    "duplicate-device": _EVERY_READER,
    "device-empty-edits": _EVERY_READER,
    "annotation-key": _NOT_WRITTEN,  # readers have the check but do not call it yet
    "annotations-too-large": _NOT_WRITTEN,
    "env-entry": _EVERY_READER,
    "env-name": _NOT_WRITTEN,
    "duplicate-env": _ADVICE,
    "device-path": _EVERY_READER,
    "device-type": _EVERY_READER,
    "device-permissions": _EVERY_READER,
    "permissions-none": _OLD_READERS,
    "duplicate-device-node": _ADVICE,
    "net-device": _EVERY_READER,
    "interface-name": _NOT_WRITTEN,
    "mount": _EVERY_READER,
    "mount-not-bind": _NOT_WRITTEN,  # runc: "no such device", whatever the type is
    "duplicate-mount": _ADVICE,
    "hook-name": _EVERY_READER,
    "hook-path": _EVERY_READER,
    "hook-deprecated": _ADVICE,
    "hook-timeout": _NOT_WRITTEN,  # OCI runtime-spec: must be greater than zero
    "closid": _EVERY_READER,
    "relative-path": _NOT_WRITTEN,
    "not-text": _NOT_WRITTEN,
    "out-of-range": _NOT_WRITTEN,
}
"""The rules about the content of a spec."""


def severity(code: str, semantics: Semantics | None) -> Severity:
    """Return whether breaking a rule is an error to the library ``semantics``; None: when a spec is written."""
    rule = CONTENT.get(code) or READING[code]
    is_error = not rule.written if semantics is None else semantics in rule.refused_by
    return "error" if is_error else "warning"
