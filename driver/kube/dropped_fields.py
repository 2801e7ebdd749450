"""What the API server did not keep of what it was sent.

A server whose feature gate is off drops the feature's fields without a word (KEP-4381 names this for DRA), so the
answer to a write is compared with what was written. What the server adds (defaults, times) is no loss.
"""

from collections.abc import Iterator
from typing import Any, TypeAlias

Json: TypeAlias = Any
"""Dicts, lists and scalars."""


def lost_fields(sent: Json, kept: Json) -> tuple[str, ...]:
    """Paths of what ``kept`` lacks, or has differently; each once, list indexes left out.

    >>> lost_fields({"devices": [{"name": "a", "taints": [1]}]}, {"devices": [{"name": "a", "allNodes": True}]})
    ('devices[].taints',)
    """
    return tuple(dict.fromkeys(_lost(sent, kept, "")))


def _lost(sent: Json, kept: Json, path: str) -> Iterator[str]:
    if isinstance(sent, dict) and isinstance(kept, dict):
        for name, value in sent.items():
            below = f"{path}.{name}" if path else name
            if name in kept:
                yield from _lost(value, kept[name], below)
            elif value not in ({}, [], None):  # nothing of it was lost
                yield below
    elif isinstance(sent, list) and isinstance(kept, list) and len(sent) == len(kept):
        for sent_item, kept_item in zip(sent, kept, strict=True):
            yield from _lost(sent_item, kept_item, f"{path}[]")
    elif sent != kept:
        yield path
