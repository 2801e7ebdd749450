"""Kerf's exceptions.

::

    KerfError                       every error that a caller may want to show to a person
    ├── InvalidDocumentError        a document of the user breaks rules; carries every problem found
    ├── InvalidQuantityError        a string is not a Kubernetes quantity
    ├── UnsupportedError            the cluster or the hardware lacks a requested feature
    ├── TransientError              may succeed later by itself: retry
    └── PermanentError              fails until an object or setting is changed: report, do not retry in a loop

Libraries' errors are wrapped where they arise, with their cause chained. Subsystems add subclasses, each of which says
what the caller can do.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

_MAX_LISTED: Final = 16
"""Problems that an error's text lists: a person corrects these first, and a log line stays short."""

_BYTES: Final = re.compile(r"(?P<number>[0-9]{1,9}(\.[0-9]{1,9})?) ?(?P<unit>[mgtpMGTP])i?[bB]?")
"""Bytes as people write them elsewhere, such as 20GB or 20 g."""


class KerfError(Exception):
    """An error with a message for people: what is wrong, where, and how to correct it."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One error in a document.

    ``path`` is the field path as Kubernetes prints it (``spec.devices.requests[0].name``; empty: the whole document).
    """

    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


class InvalidDocumentError(KerfError):
    """A document breaks rules.

    ``problems`` holds all of them, at least one, in document order; ``listed`` is the text of the first of them.
    """

    def __init__(self, subject: str, problems: Iterable[Problem]) -> None:
        self.subject = subject
        self.problems: Sequence[Problem] = tuple(problems)
        more = len(self.problems) - _MAX_LISTED
        self.listed = "; ".join(map(str, self.problems[:_MAX_LISTED])) + (f"; and {more} more" if more > 0 else "")
        super().__init__(f"{subject}: {self.listed}")


class InvalidQuantityError(KerfError, ValueError):
    """A string is not a Kubernetes quantity."""

    def __init__(self, text: object) -> None:
        self.text = text
        match = _BYTES.fullmatch(str(text)) if isinstance(text, str) else None
        meant = f"{match['number']}{match['unit'].upper()}" if match else ""
        super().__init__(
            f"{text!r} is not a quantity: write a number with an optional suffix such as 500m, 16, 20Gi or 1e3"
            + (f"; did you mean {meant} or {meant}i?" if meant else "")
        )


class UnsupportedError(KerfError):
    """The cluster, the kubelet or the hardware lacks a requested feature."""


class TransientError(KerfError):
    """The operation may succeed later without intervention: retry with back-off."""


class PermanentError(KerfError):
    """The operation fails again until an object or setting is changed: report it and wait for a change."""
