"""The identities of drivers, devices, shares, claims and requests. Each is a type of its own, not a bare string."""

import re
from collections.abc import Sequence
from typing import Final, NamedTuple, NewType

DriverName = NewType("DriverName", str)
"""A DRA driver's name: a DNS subdomain of at most 63 characters (KEP-4381)."""

_LABEL: Final = r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"
_DNS_LABEL: Final = re.compile(_LABEL)
_DNS_SUBDOMAIN: Final = re.compile(rf"{_LABEL}(?:\.{_LABEL})*")

MAX_LABEL: Final = 63
"""The most characters of a DNS label (RFC 1123): names of devices, requests and counters."""
MAX_SUBDOMAIN: Final = 253
"""The most characters of a DNS subdomain (RFC 1123): names of most objects."""


def is_dns_label(text: str) -> bool:
    return len(text) <= MAX_LABEL and _DNS_LABEL.fullmatch(text) is not None


def is_dns_subdomain(text: str, limit: int = MAX_SUBDOMAIN) -> bool:
    return len(text) <= limit and _DNS_SUBDOMAIN.fullmatch(text) is not None


def list_names(names: Sequence[str], most: int = 3) -> str:
    """Return the first ``most`` names, and the number of the others; three are enough in most sentences.

    >>> list_names(["a", "b", "c"])
    'a, b, c'
    >>> list_names(["a", "b", "c", "d", "e"])
    'a, b, c and 2 more'
    """
    listed = ", ".join(names[:most])
    return listed if len(names) <= most else f"{listed} and {len(names) - most} more"


class DeviceId(NamedTuple):
    """The identity of a published device: the three names by which an allocation refers to it."""

    driver: str
    pool: str
    device: str

    def __str__(self) -> str:
        return f"{self.driver}/{self.pool}/{self.device}"


class ShareId(NamedTuple):
    """The identity of one share of a device that allows several allocations; ``share`` None: the whole device."""

    id: DeviceId
    share: str | None

    def __str__(self) -> str:
        return str(self.id) if self.share is None else f"{self.id}#{self.share}"


class ObjectRef(NamedTuple):
    """The namespace and name of an object; ``namespace`` is empty for cluster-scoped ones."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class ClaimRef(NamedTuple):
    """A reference to a ResourceClaim: its UID is its identity, namespace and name locate it."""

    namespace: str
    name: str
    uid: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class RequestName(NamedTuple):
    """A request in an allocation result: ``request``, or ``request/subrequest`` with firstAvailable (KEP-4816).

    >>> RequestName.parse("accelerator/small").request
    'accelerator'
    """

    request: str
    subrequest: str | None

    @classmethod
    def parse(cls, text: str) -> "RequestName":
        request, slash, subrequest = text.partition("/")
        return cls(request, subrequest if slash else None)

    def __str__(self) -> str:
        return self.request if self.subrequest is None else f"{self.request}/{self.subrequest}"
