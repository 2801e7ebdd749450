"""Bitsets and bounded caches.

A set of devices is an integer throughout the allocator: bit *i* is set for the *i*-th device in search order.
"""

from collections.abc import Iterator
from typing import Final, TypeVar

_MAX_CACHED: Final = 4096
"""The most entries of one cache: the pool of a node with eight GPUs has some hundreds of usages in practice."""

KeyT = TypeVar("KeyT")
ValueT = TypeVar("ValueT")


def iter_bits(bitset: int) -> Iterator[int]:
    """The members of a bitset, ascending."""
    while bitset:
        lowest = bitset & -bitset
        yield lowest.bit_length() - 1
        bitset ^= lowest


def store_bounded(cache: dict[KeyT, ValueT], key: KeyT, value: ValueT) -> ValueT:
    """Store ``value`` in a cache, which is emptied first if it is full, and return it."""
    if len(cache) >= _MAX_CACHED:
        cache.clear()
    cache[key] = value
    return value
