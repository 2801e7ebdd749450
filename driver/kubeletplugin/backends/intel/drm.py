"""The one question to a card's driver: how much memory of its own the card has.

Numbers and structures are those of Linux ``include/uapi/drm/xe_drm.h`` and ``i915_drm.h``. The card's node answers, its
render node may not. The query has no side effects.
"""

import ctypes
import fcntl
import os
import struct
from pathlib import Path
from typing import Final, Protocol

XE_DEVICE_QUERY: Final = 0xC0286440
"""DRM_IOCTL_XE_DEVICE_QUERY, with a pointer to struct drm_xe_device_query."""
I915_QUERY: Final = 0xC0106479
"""DRM_IOCTL_I915_QUERY, with a pointer to struct drm_i915_query."""

_XE_QUERY: Final = struct.Struct("=QIIQ16x")
"""struct drm_xe_device_query: extensions, query, size, data."""
_XE_MEMORY_REGIONS: Final = 1
"""DRM_XE_DEVICE_QUERY_MEM_REGIONS."""
_XE_HEAD: Final = struct.Struct("=II")
"""struct drm_xe_query_mem_regions: num_mem_regions, pad; the regions follow."""
_XE_REGION: Final = struct.Struct("=HHIQ72x")
"""struct drm_xe_mem_region: mem_class, instance, min_page_size, total_size, and what is not needed here."""

_I915_QUERY: Final = struct.Struct("=IIQ")
"""struct drm_i915_query: num_items, flags, items_ptr."""
_I915_ITEM: Final = struct.Struct("=QiIQ")
"""struct drm_i915_query_item: query_id, length, flags, data_ptr."""
_I915_MEMORY_REGIONS: Final = 4
"""DRM_I915_QUERY_MEMORY_REGIONS."""
_I915_HEAD: Final = struct.Struct("=I12x")
"""struct drm_i915_query_memory_regions: num_regions, rsvd; the regions follow."""
_I915_REGION: Final = struct.Struct("=HHIQ72x")
"""struct drm_i915_memory_region_info: class, instance, rsvd0, probed_size, and what is not needed here."""

_LOCAL: Final = 1
"""DRM_XE_MEM_REGION_CLASS_VRAM and I915_MEMORY_CLASS_DEVICE: the card's own memory."""
_MOST_BYTES: Final = 1 << 20
"""More than any driver's answer: a card has a few regions of 88 bytes each."""


class UnknownMemoryError(Exception):
    """A card's driver does not say how much memory it has; the message says why."""


class DrmCalls(Protocol):
    """The system call with which a card's driver is asked."""

    def ioctl(self, node: Path, request: int, argument: bytearray) -> None:
        """Make a request to the driver of a device node, which may change ``argument``. Raises OSError."""
        ...


class LinuxDrmCalls:
    """The system call itself."""

    def ioctl(self, node: Path, request: int, argument: bytearray) -> None:
        descriptor = os.open(node, os.O_RDWR | os.O_CLOEXEC)
        try:
            fcntl.ioctl(descriptor, request, argument)
        finally:
            os.close(descriptor)


def read_memory(calls: DrmCalls, node: Path, driver: str) -> int:
    """Return the bytes of a card's own memory, by its node; 0: it uses the machine's. Raises UnknownMemoryError."""
    try:
        if driver == "xe":
            answer, head, region = _ask_xe(calls, node), _XE_HEAD, _XE_REGION
        else:
            answer, head, region = _ask_i915(calls, node), _I915_HEAD, _I915_REGION
    except OSError as error:
        raise UnknownMemoryError(f"{node} cannot be asked: {error.strerror}") from error
    if len(answer) < head.size:
        raise UnknownMemoryError(f"{node} answers with {len(answer)} bytes")
    regions = head.unpack_from(answer)[0]
    if head.size + regions * region.size > len(answer):
        raise UnknownMemoryError(f"{node} announces {regions} regions in {len(answer)} bytes")
    found = (region.unpack_from(answer, head.size + number * region.size) for number in range(regions))
    return sum(size for class_, _, _, size in found if class_ == _LOCAL)


def _ask_xe(calls: DrmCalls, node: Path) -> bytes:
    """Ask for the size of the answer, then for the answer (``xe_drm.h``, "DRM_IOCTL_XE_DEVICE_QUERY")."""
    query = bytearray(_XE_QUERY.pack(0, _XE_MEMORY_REGIONS, 0, 0))
    calls.ioctl(node, XE_DEVICE_QUERY, query)
    answer = _make_buffer(_XE_QUERY.unpack(query)[2], node)
    query = bytearray(_XE_QUERY.pack(0, _XE_MEMORY_REGIONS, len(answer), ctypes.addressof(answer)))
    calls.ioctl(node, XE_DEVICE_QUERY, query)
    return bytes(answer)


def _ask_i915(calls: DrmCalls, node: Path) -> bytes:
    """Ask for the size of the answer, then for the answer (``i915_drm.h``, "struct drm_i915_query_item")."""
    item = ctypes.create_string_buffer(_I915_ITEM.pack(_I915_MEMORY_REGIONS, 0, 0, 0), _I915_ITEM.size)
    query = bytearray(_I915_QUERY.pack(1, 0, ctypes.addressof(item)))
    calls.ioctl(node, I915_QUERY, query)
    answer = _make_buffer(_I915_ITEM.unpack(item.raw)[1], node)
    item.raw = _I915_ITEM.pack(_I915_MEMORY_REGIONS, len(answer), 0, ctypes.addressof(answer))
    calls.ioctl(node, I915_QUERY, query)
    return bytes(answer)


def _make_buffer(size: int, node: Path) -> "ctypes.Array[ctypes.c_char]":
    if not 0 < size <= _MOST_BYTES:
        raise UnknownMemoryError(f"{node} announces an answer of {size} bytes")
    return ctypes.create_string_buffer(size)
