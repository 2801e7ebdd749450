"""Fields that the API server dropped from an object that it was sent.

A server whose feature gate is off drops the feature's fields without an error (KEP-4381 names this for DRA), so the
answer to a write is compared with what was written. Fields that the server adds (defaults, times) are ignored.
"""

from collections.abc import Iterator
from typing import Any, TypeAlias

Json: TypeAlias = Any
"""Dicts, lists and scalars."""


def find_dropped_fields(sent: Json, kept: Json) -> tuple[str, ...]:
    """Return the paths that ``kept`` lacks or has with another value; each once, without list indexes.

    >>> find_dropped_fields({"devices": [{"name": "a", "taints": [1]}]}, {"devices": [{"name": "a", "allNodes": True}]})
    ('devices[].taints',)
    """
    return tuple(dict.fromkeys(_find_dropped(sent, kept, "")))


def _find_dropped(sent: Json, kept: Json, path: str) -> Iterator[str]:
    if isinstance(sent, dict) and isinstance(kept, dict):
        for name, value in sent.items():
            below = f"{path}.{name}" if path else name
            if name in kept:
                yield from _find_dropped(value, kept[name], below)
            elif value not in ({}, [], None):  # an empty value is the same as none
                yield below
    elif isinstance(sent, list) and isinstance(kept, list) and len(sent) == len(kept):
        for sent_item, kept_item in zip(sent, kept, strict=True):
            yield from _find_dropped(sent_item, kept_item, f"{path}[]")
    elif sent != kept:
        yield path
