"""Masks of devices, and what is kept by them.

Bits stand for devices throughout the allocator: bit *i* of a mask is the *i*-th device of a row, in search order.
"""

from collections.abc import Iterator
from typing import Final, TypeVar

_KEPT: Final = 4096
"""Standings, selections and masks kept for each layout: a node with eight GPUs stands at some hundreds in practice."""

KeyT = TypeVar("KeyT")
ValueT = TypeVar("ValueT")


def bits(mask: int) -> Iterator[int]:
    """The positions of the bits that are set, ascending."""
    while mask:
        lowest = mask & -mask
        yield lowest.bit_length() - 1
        mask ^= lowest


def keep(kept: dict[KeyT, ValueT], key: KeyT, value: ValueT) -> ValueT:
    """``value``, kept under ``key`` in what is a cache: when it is full it is emptied."""
    if len(kept) >= _KEPT:
        kept.clear()
    kept[key] = value
    return value
