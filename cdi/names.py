"""Kinds and qualified device names, and the names of files and annotations made from them (SPEC.md, "Kind").

The grammar is the one that readers enforce (pkg/parser of container-device-interface), which is wider than SPEC.md:
``vendor..com`` passes. Names are case-sensitive; nothing is normalised.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from cdi.errors import InvalidNameError

Semantics: TypeAlias = Literal["1.1", "main"]
"""Which Go library is followed where they differ: release 1.1.0 and before, or upstream's main of August 2026."""

# ASCII by intent: \w and str.isalnum know more letters than readers do.
_PART = re.compile(r"[A-Za-z](?:[A-Za-z0-9_.-]*[A-Za-z0-9])?")
_DEVICE = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_.:-]*[A-Za-z0-9])?")
_ANNOTATION_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_.-]*[A-Za-z0-9])?")

# Kubernetes' limit for the name part of an annotation key, in bytes (the grammar admits only ASCII).
_ANNOTATION_NAME_MAX = 63

ANNOTATION_PREFIX = "cdi.k8s.io/"
"""Container annotations that request devices start so: the channel that CRI had before ``CDIDevices``."""


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Kind:
    """The ``vendor/class`` that all devices of a spec share. Built freely; ``parse`` and ``validate`` check it."""

    vendor: str
    class_name: str

    @classmethod
    def parse(cls, text: str, semantics: Semantics = "1.1") -> "Kind":
        """The kind that ``text`` names.

        >>> Kind.parse("vendor.com/gpu")
        Kind(vendor='vendor.com', class_name='gpu')

        Errors: InvalidNameError, with code unqualified, vendor-name, class-name or one-letter-name.
        """
        kind = cls.split(text)
        if not kind.vendor:
            raise InvalidNameError(text, "unqualified", "a kind is VENDOR/CLASS, as in vendor.com/gpu")
        for code, reason in kind.find_mistakes(semantics):
            raise InvalidNameError(text, code, reason)
        return kind

    @classmethod
    def split(cls, text: str) -> "Kind":
        """Cut at the first slash, unchecked; without two parts everything is the class, as readers see it."""
        vendor, slash, class_name = text.partition("/")
        return cls(vendor=vendor, class_name=class_name) if slash and vendor and class_name else cls.unqualified(text)

    @classmethod
    def unqualified(cls, text: str) -> "Kind":
        """What a reader makes of a text that is no kind: no vendor, and the text as class."""
        return cls(vendor="", class_name=text)

    def find_mistakes(self, semantics: Semantics | None = None) -> Iterable[tuple[str, str]]:
        """The code and reason of everything wrong; ``semantics`` None: for any reader."""
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
    """``vendor/class=device``: how one device is requested."""

    kind: Kind
    device: str

    @classmethod
    def parse(cls, text: str, semantics: Semantics = "1.1") -> "QualifiedName":
        """The device that ``text`` names. A text that starts with a slash is a path, never a name.

        >>> str(QualifiedName.parse("vendor.com/gpu=0"))
        'vendor.com/gpu=0'

        Errors: InvalidNameError, with code unqualified, vendor-name, class-name, device-name or one-letter-name.
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
    """What is wrong with a device's name within its kind, or None."""
    if _DEVICE.fullmatch(name):
        return None
    return f"device name {name!r} must start and end with a letter or digit and hold only A-Za-z0-9_.:-"


def spec_name(kind: Kind) -> str:
    """The name, without extension, of the file that holds all devices of ``kind``."""
    return f"{kind.vendor}-{kind.class_name}"


def transient_name(kind: Kind, identity: str) -> str:
    """The name, without extension, of a file that lives as long as ``identity`` does (a claim, a container).

    >>> transient_name(Kind.parse("k8s.gpu.example.com/claim"), "6f4f1c52")
    'k8s.gpu.example.com-claim_6f4f1c52'
    """
    return f"{spec_name(kind)}_{identity.replace('/', '_')}"


def annotation_key(plugin: str, device_id: str) -> str:
    """The key under which ``plugin`` requests devices for its allocation ``device_id``.

    Errors: InvalidNameError (code annotation-key) when the two make no annotation name of at most 63 bytes.
    """
    name = f"{plugin}_{device_id.replace('/', '_')}"
    if not plugin or not device_id or len(name) > _ANNOTATION_NAME_MAX or not _ANNOTATION_NAME.fullmatch(name):
        reason = f"must be A-Za-z0-9_.- with a letter or digit at both ends, at most {_ANNOTATION_NAME_MAX} bytes"
        raise InvalidNameError(name, "annotation-key", reason)
    return ANNOTATION_PREFIX + name


def annotation_value(names: Iterable[QualifiedName]) -> str:
    """The value that requests ``names``."""
    return ",".join(str(name) for name in names)


def parse_annotations(
    annotations: Mapping[str, str], semantics: Semantics = "1.1"
) -> tuple[tuple[str, ...], tuple[QualifiedName, ...]]:
    """The keys that request devices, sorted, and the devices in that order, repeats kept.

    Errors: InvalidNameError (code annotation-value) when any name in any of them is none; an empty value is one.
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
