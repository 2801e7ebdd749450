"""Kinds and qualified device names, and the file names and annotations formed from them (SPEC.md, "Kind").

The grammar is the one that readers enforce (pkg/parser of container-device-interface). It accepts more than SPEC.md,
for example ``vendor..com``. Names are case-sensitive and never normalized.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from kerf_dra.cdi.errors import InvalidNameError

Semantics: TypeAlias = Literal["1.1", "main"]
"""The supported versions of the Go library: release 1.1.0 and before, or the main branch of August 2026."""

_PART = re.compile(r"[A-Za-z](?:[A-Za-z0-9_.-]*[A-Za-z0-9])?")
"""A vendor or a class. Letters are listed because readers accept ASCII only."""
_DEVICE = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_.:-]*[A-Za-z0-9])?")
_ANNOTATION_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_.-]*[A-Za-z0-9])?")
_ANNOTATION_NAME_MAX = 63
"""Kubernetes' limit for the name part of an annotation key, in bytes (the grammar admits only ASCII)."""

ANNOTATION_PREFIX = "cdi.k8s.io/"
"""The prefix of container annotations that request devices, as before CRI had the field ``CDIDevices``."""


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Kind:
    """The ``vendor/class`` that all devices of a spec share. Only ``parse`` and ``validate`` check it."""

    vendor: str
    class_name: str

    @classmethod
    def parse(cls, text: str, semantics: Semantics = "1.1") -> "Kind":
        """Parse ``vendor/class``.

        >>> Kind.parse("vendor.com/gpu")
        Kind(vendor='vendor.com', class_name='gpu')

        Raises InvalidNameError with code unqualified, vendor-name, class-name or one-letter-name.
        """
        kind = cls.split(text)
        if not kind.vendor:
            raise InvalidNameError(text, "unqualified", "a kind is VENDOR/CLASS, as in vendor.com/gpu")
        for code, reason in kind.find_mistakes(semantics):
            raise InvalidNameError(text, code, reason)
        return kind

    @classmethod
    def split(cls, text: str) -> "Kind":
        """Split at the first slash, unchecked; as in readers, a text without two parts is the class."""
        vendor, slash, class_name = text.partition("/")
        if slash and vendor and class_name:
            return cls(vendor=vendor, class_name=class_name)
        return cls(vendor="", class_name=text)

    def find_mistakes(self, semantics: Semantics | None = None) -> Iterable[tuple[str, str]]:
        """Yield code and reason of every mistake; ``semantics`` None: of those that any reader rejects."""
        for code, name in (("vendor-name", self.vendor), ("class-name", self.class_name)):
            noun = code.removesuffix("-name")
            if not _PART.fullmatch(name):
                yield (
                    code,
                    f"{noun} {name!r} must start with a letter, end with a letter or digit, and hold only A-Za-z0-9_.-",
                )
            elif len(name) == 1 and semantics != "main":
                yield "one-letter-name", f"{noun} {name!r} has one letter, which crashes readers up to release 1.1.0"

    def __str__(self) -> str:
        return f"{self.vendor}/{self.class_name}" if self.vendor else self.class_name


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class QualifiedName:
    """The name by which a container requests a device: ``vendor/class=device``."""

    kind: Kind
    device: str

    @classmethod
    def parse(cls, text: str, semantics: Semantics = "1.1") -> "QualifiedName":
        """Parse ``vendor/class=device``. A text that starts with a slash is a path, never a name.

        >>> str(QualifiedName.parse("vendor.com/gpu=0"))
        'vendor.com/gpu=0'

        Raises InvalidNameError with code unqualified, vendor-name, class-name, device-name or one-letter-name.
        """
        qualifier, _, device = text.partition("=")
        kind = Kind.split(qualifier)
        if not kind.vendor or not device or text.startswith("/"):
            raise InvalidNameError(text, "unqualified", "a device is VENDOR/CLASS=NAME, as in vendor.com/gpu=0")
        for code, reason in kind.find_mistakes(semantics):
            raise InvalidNameError(text, code, reason)
        mistake = device_name_mistake(device)
        if mistake:
            raise InvalidNameError(text, "device-name", mistake)
        return cls(kind=kind, device=device)

    def __str__(self) -> str:
        return f"{self.kind}={self.device}"


def device_name_mistake(name: str) -> str | None:
    """Return the mistake in a device's name within its kind; None: there is no mistake."""
    if _DEVICE.fullmatch(name):
        return None
    return f"device name {name!r} must start and end with a letter or digit and hold only A-Za-z0-9_.:-"


def spec_name(kind: Kind) -> str:
    """Return the name, without extension, of the file with all devices of ``kind``."""
    return f"{kind.vendor}-{kind.class_name}"


def transient_name(kind: Kind, identity: str) -> str:
    """Return the name, without extension, of a file that exists as long as ``identity`` (a claim, a container).

    >>> transient_name(Kind.parse("k8s.gpu.example.com/claim"), "6f4f1c52")
    'k8s.gpu.example.com-claim_6f4f1c52'
    """
    return f"{spec_name(kind)}_{identity.replace('/', '_')}"


def annotation_key(plugin: str, device_id: str) -> str:
    """Return the annotation key with which ``plugin`` requests devices for its allocation ``device_id``.

    Raises InvalidNameError with code annotation-key when the two form no annotation name of at most 63 bytes.
    """
    name = f"{plugin}_{device_id.replace('/', '_')}"
    if not plugin or not device_id or len(name) > _ANNOTATION_NAME_MAX or not _ANNOTATION_NAME.fullmatch(name):
        reason = f"must be A-Za-z0-9_.- with a letter or digit at both ends, at most {_ANNOTATION_NAME_MAX} bytes"
        raise InvalidNameError(name, "annotation-key", reason)
    return ANNOTATION_PREFIX + name


def annotation_value(names: Iterable[QualifiedName]) -> str:
    """Return the annotation value that requests ``names``."""
    return ",".join(str(name) for name in names)


def parse_annotations(
    annotations: Mapping[str, str], semantics: Semantics = "1.1"
) -> tuple[tuple[str, ...], tuple[QualifiedName, ...]]:
    """Return the keys that request devices, sorted, and the devices in that order, with repetitions.

    Raises InvalidNameError with code annotation-value when any value is empty or holds a text that is no device name.
    """
    keys = tuple(sorted(key for key in annotations if key.startswith(ANNOTATION_PREFIX)))
    names = []
    for key in keys:
        for text in annotations[key].split(","):
            try:
                names.append(QualifiedName.parse(text, semantics))
            except InvalidNameError as error:
                raise InvalidNameError(text, "annotation-value", f"in annotation {key}: {error}") from error
    return keys, tuple(names)
