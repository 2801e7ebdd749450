"""The API server's limits on pools and slices, checked before publishing, so that an error names card and device.

Source: ``k8s.io/api/resource/v1/types.go`` and its validation, Kubernetes 1.33 to 1.37. The API server rejects a slice
that exceeds one; a name that occurs twice makes the scheduler ignore the whole pool (KEP-4381).
"""

import re
from collections.abc import Collection, Sequence
from enum import Enum
from functools import lru_cache
from typing import Final

from kerf_dra.api.errors import PermanentError
from kerf_dra.api.model.devices import Attribute, CounterSet, Device, Pool, SliceContent
from kerf_dra.api.model.names import is_dns_label, is_dns_subdomain
from kerf_dra.api.model.semver import parse_version

MAX_DEVICES: Final = 64
"""The most devices in a slice whose devices have taints or consume counters."""
MAX_PROPERTIES: Final = 32
"""The most attributes and capacities of a device, together."""
MAX_NAME: Final = 32
"""The most characters of an attribute's or capacity's name, without its domain."""
MAX_DOMAIN: Final = 63
"""The most characters of the domain of a qualified name."""
MAX_VALUE: Final = 64
"""The most bytes of a string or version attribute."""
MAX_VALUES: Final = 48
"""The most values of a device's attributes together, where some are lists (KEP-5491)."""
MAX_SETS: Final = 8
"""The most counter sets in a slice (1.35 and later)."""
MAX_COUNTERS: Final = 32
"""The most counters of a set, and of one device's consumption from a set; before 1.35 also of a slice's sets."""
MAX_CONSUMED: Final = 1024
"""The most counters that all devices of a slice consume, together (before 1.35)."""
MAX_TAINTS: Final = 16
"""The most taints of a device from 1.35 on."""
MAX_TAINTS_COMBINED: Final = 4
"""The most taints of a device before 1.35."""
MAX_POOL_NAME: Final = 253

_IDENTIFIER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class SliceLayout(Enum):
    """The slices that hold the shared counters, which changed in Kubernetes 1.35."""

    SPLIT = "split"
    """The layout of 1.35 and later: counters are in slices of their own, apart from the devices that consume them."""
    COMBINED = "combined"
    """The layout of 1.33 and 1.34: counters are in the slice of the devices that consume them."""


class CompileError(PermanentError):
    """Cards cannot be published: the message names the card, the device and the exceeded limit."""

    def __init__(self, *, card: str = "", device: str = "", reason: str) -> None:
        self.card = card
        self.device = device
        named = [f"{kind} {name}" for kind, name in (("card", card), ("device", device)) if name]
        super().__init__(f"cannot publish {', '.join(named) or 'the pool'}: {reason}")


def check_pool(pool: Pool, layout: SliceLayout) -> None:
    """Check ``pool``, each device of which has passed ``check_device``, against limits of API server and scheduler.

    Raises CompileError for the first violation.
    """
    parts = pool.name.split("/")
    if len(pool.name) > MAX_POOL_NAME or not all(is_dns_subdomain(part) for part in parts):
        raise CompileError(
            reason=f"pool name {pool.name!r}: must be DNS subdomains joined by /, {MAX_POOL_NAME} characters in all"
        )
    _check_unique([device.name for content in pool.slices for device in content.devices])
    sets = [counters.name for content in pool.slices for counters in content.shared_counters]
    _check_unique(sets)
    for content in pool.slices:
        _check_slice(content, layout, sets)


def _check_unique(names: Sequence[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise CompileError(device=name, reason="the name appears twice in the pool; do two cards have one index?")
        seen.add(name)


def _check_slice(content: SliceContent, layout: SliceLayout, sets: Collection[str]) -> None:
    _check_sets(content, layout)
    card = _card(content.devices[0]) if content.devices else ""
    if len(content.devices) > MAX_DEVICES:
        raise CompileError(
            card=card,
            reason=f"{len(content.devices)} devices in a slice, at most {MAX_DEVICES}; before Kubernetes 1.35 all "
            "devices of a card must stand in one",
        )
    if layout is SliceLayout.COMBINED:
        sets = [counters.name for counters in content.shared_counters]
        consumed = sum(len(taken.counters) for device in content.devices for taken in device.consumes_counters)
        if consumed > MAX_CONSUMED:
            raise CompileError(card=card, reason=f"{consumed} consumed counters in a slice, at most {MAX_CONSUMED}")
    for device in content.devices:
        _check_use(device, layout, sets)


def _check_sets(content: SliceContent, layout: SliceLayout) -> None:
    if layout is SliceLayout.SPLIT:
        if content.devices and content.shared_counters:
            raise CompileError(card=content.shared_counters[0].name, reason="devices and counters in one slice")
        if len(content.shared_counters) > MAX_SETS:
            reason = f"{len(content.shared_counters)} counter sets in a slice, at most {MAX_SETS}"
            raise CompileError(card=content.shared_counters[0].name, reason=reason)
    else:
        total = sum(len(counters.counters) for counters in content.shared_counters)
        if total > MAX_COUNTERS:
            reason = f"{total} counters in a slice, at most {MAX_COUNTERS} before Kubernetes 1.35"
            raise CompileError(card=content.shared_counters[0].name, reason=reason)
    for counters in content.shared_counters:
        _check_set(counters)


def _check_set(counters: CounterSet) -> None:
    if len(counters.counters) > MAX_COUNTERS:
        reason = f"{len(counters.counters)} counters in its set, at most {MAX_COUNTERS}"
        raise CompileError(card=counters.name, reason=reason)
    for name in (counters.name, *counters.counters):
        if not is_dns_label(name):
            raise CompileError(card=counters.name, reason=f"{name!r} is no DNS label, as counter names must be")


def check_device(device: Device) -> None:
    """Check what one device says against the limits, wherever it is published. Raises CompileError."""
    if not is_dns_label(device.name):
        raise _fail(device, "the name is no DNS label (lower-case letters, digits and -, at most 63 characters)")
    properties = len(device.attributes) + len(device.capacity)
    if properties > MAX_PROPERTIES:
        raise _fail(device, f"{properties} attributes and capacities together, at most {MAX_PROPERTIES}")
    for name in (*device.attributes, *device.capacity):
        if not is_qualified_name(name):
            reason = f"{name!r} is no attribute name: an identifier of {MAX_NAME} characters, with a domain or not"
            raise _fail(device, reason)
    for name, attribute in device.attributes.items():
        problem = _value_problem(attribute)
        if problem:
            raise _fail(device, f"attribute {name}: {problem}")
    values = sum(len(one.value) if isinstance(one.value, tuple) else 1 for one in device.attributes.values())
    if values > MAX_VALUES:
        raise _fail(device, f"{values} values of attributes together, at most {MAX_VALUES}")


def _check_use(device: Device, layout: SliceLayout, sets: Collection[str]) -> None:
    taints = MAX_TAINTS if layout is SliceLayout.SPLIT else MAX_TAINTS_COMBINED
    if len(device.taints) > taints:
        raise _fail(device, f"{len(device.taints)} taints, at most {taints}")
    for taken in device.consumes_counters:
        if taken.counter_set not in sets:
            raise _fail(device, f"consumes from counter set {taken.counter_set!r}, which is not there")


def _fail(device: Device, reason: str) -> CompileError:
    return CompileError(card=_card(device), device=device.name, reason=reason)


def _card(device: Device) -> str:
    """The name of the device's card: counter sets are named after their cards."""
    return device.consumes_counters[0].counter_set if device.consumes_counters else ""


@lru_cache(maxsize=256)  # the devices of a pool have the same few names, and a node has hundreds of devices
def is_qualified_name(name: str) -> bool:
    """Whether ``name`` may be an attribute's or a capacity's: an identifier, with a domain or not."""
    domain, slash, identifier = name.rpartition("/")
    if slash and not is_dns_subdomain(domain, MAX_DOMAIN):
        return False
    return len(identifier) <= MAX_NAME and _IDENTIFIER.fullmatch(identifier) is not None


def _value_problem(attribute: Attribute) -> str:
    value = attribute.value
    if value is None:
        return "no value"
    if value == ():
        return "an empty list"
    for one in value if isinstance(value, tuple) else (value,):
        if isinstance(one, str) and len(one.encode()) > MAX_VALUE:
            return f"{one!r} has more than {MAX_VALUE} bytes"
    for version in attribute.versions or (() if attribute.version is None else (attribute.version,)):
        if parse_version(version) is None:
            return f"{version!r} is no semantic version"
    return ""
