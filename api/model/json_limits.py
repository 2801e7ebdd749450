"""What a JSON document may be so that every part of Kerf can read it, and how to make it so.

Users may put any JSON object into free-form fields such as opaque parameters. The API server keeps their text as it is,
while decoders and everything that walks over a value recursively have limits: a few hundred levels, valid Unicode. So

- ``check_levels`` refuses a free-form value of more levels than MAX_LEVELS when its object is decoded, wherever the
  decoder's own limit is, which differs between versions of Python and with the depth of the stack;
- ``make_readable`` rewrites a document that was refused: values below MAX_LEVELS are replaced by CUT, and text that is
  no Unicode by U+FFFD, as by Go's ``encoding/json``, which most other clients of the API server use.

A strict decoder finds CUT where it expects nothing or something else, so no parameters of Kerf are shortened unnoticed.
"""

import re
from collections.abc import Collection, Iterable
from typing import Final

MAX_LEVELS: Final = 100
"""The levels of objects and lists of a document that are read: ten times what parameters have, and few enough for code
that needs several frames of Python's 1,000 for each."""

CUT: Final = f"(cut by kerf: nested more than {MAX_LEVELS} levels deep)"
"""The text in place of a value that was cut off."""

_TO_BRACKET: Final = re.compile(rb'(?:[^"\[\]{}]++|"(?:[^"\\]++|\\.)*+")*+[\[\]{}]', re.DOTALL)
"""Everything up to the next bracket that is in no string. Possessive: each byte is looked at once."""
_ESCAPE: Final = re.compile(
    rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(\\u[dD][89a-fA-F][0-9a-fA-F]{2})|\\.", re.DOTALL
)
"""An escape sequence; group 1: half of a surrogate pair without its other half (RFC 8259, section 8.2)."""


def check_levels(value: object) -> None:
    """Raise ValueError when ``value`` has more than MAX_LEVELS levels of objects and lists."""
    level: Collection[object] = [value]
    for _ in range(MAX_LEVELS + 1):
        inside = [inner for outer in level for inner in _items(outer) if isinstance(inner, dict | list)]
        if not inside:
            return
        level = {id(inner): inner for inner in inside}.values()  # YAML's aliases give one value many places
    raise ValueError(f"it is nested more than {MAX_LEVELS} levels deep")


def _items(value: object) -> Iterable[object]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def make_readable(data: bytes, levels: int = MAX_LEVELS) -> bytes:
    """Return the JSON document ``data`` with at most ``levels`` levels and valid Unicode.

    What is no JSON stays none: the decoder reports it. The cost is linear in the size, without recursion.
    """
    return _mend(_cut(data, levels))


def _cut(data: bytes, levels: int) -> bytes:
    parts: list[bytes] = []
    depth, kept, end = 0, 0, 0
    while found := _TO_BRACKET.match(data, end):
        end = found.end()
        if data[end - 1] in b"[{":
            depth += 1
            if depth == levels + 1:
                parts += data[kept : end - 1], f'"{CUT}"'.encode()
                kept = len(data)  # an unclosed value has no end
        else:
            if depth == levels + 1:
                kept = end
            depth -= 1
    return b"".join([*parts, data[kept:]])


def _mend(data: bytes) -> bytes:
    """Replace what is no Unicode; only strings have bytes beyond ASCII, and backslashes."""
    if b"\\u" in data:
        data = _ESCAPE.sub(lambda found: rb"\ufffd" if found[1] else found[0], data)
    return data if data.isascii() else data.decode("utf-8", "replace").encode()
