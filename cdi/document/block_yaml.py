"""YAML as most programs write it, to plain values, for ``cdi.document.fast_decoder``: one key or item a line, and no
surprises.

What is not of that kind, a list in brackets or a text over two lines, is left to a YAML parser. So this needs none.
"""

import re
from typing import TypeAlias, TypeVar

from cdi.document.document_tree import MAX_DEPTH
from cdi.document.fields import WIRE
from cdi.document.yaml_scalars import resolve

Plain: TypeAlias = "str | int | bool | list[Plain] | dict[str, Plain]"

_Collection: TypeAlias = "list[Plain] | dict[str, Plain]"
_T = TypeVar("_T", "list[Plain]", "dict[str, Plain]")

# A text in quotes without escapes, or a bare one of characters that mean nothing to YAML, not even its colons.
_SCALAR = r"""(?:"[ !#-\[\]-~]*"|'[ -&(-~]*'|[\w/.][\w/.=+-]*(?::[\w/.=+-]+)*)"""
# Margin, dashes, key, value: a line without the last three is blank or a comment.
_LINE = re.compile(rf"^( *)(?:#[ -~]*|((?:- )*)(?:({_SCALAR}):(?: |$))?({_SCALAR})?)$", re.MULTILINE | re.ASCII)

# Most bare texts are keys, and none of these means anything else.
_KEYS = {row.key for rows in WIRE.values() for row in rows}


def plain_value(text: str) -> Plain:
    """The document ``text``. Errors: ValueError when it is not of that kind."""
    text = text.removeprefix("---\n")
    lines = _LINE.findall(text)
    if len(lines) != text.count("\n") + 1:
        raise ValueError
    blocks = _Blocks()
    for margin, dashes, key, value in lines:
        column = len(margin) + len(dashes)
        if dashes:
            blocks.add_items(len(margin), len(dashes) // 2, "" if key else value)
        if key:
            blocks.add_entry(column, key, value)
        elif value and not dashes:
            # It goes on from the line above.
            raise ValueError
    return blocks.finished()


class _Blocks:
    """Lists and objects, and where in them the next line belongs."""

    def __init__(self) -> None:
        self._root: list[Plain] = []
        # The collections that a line may go on with, each with its column, the innermost last.
        self._open: list[tuple[int, _Collection]] = [(-1, self._root)]
        # What waits for its value: a list for an item, or an object with a key.
        self._slot: tuple[_Collection, str] | None = (self._root, "")

    def add_items(self, column: int, dashes: int, value: str) -> None:
        """Put a line's dashes, and the item behind them, if there is one."""
        for _ in range(dashes):
            items = self._collection(column, list)
            self._slot = (items, "")
            column += 2
        if value:
            self._fill(_scalar(value))

    def add_entry(self, column: int, key: str, value: str) -> None:
        """Put a line, or the rest of one, that has a key. Without ``value``, lines that follow are it."""
        entries = self._collection(column, dict)
        name = key if key in _KEYS else _scalar(key)
        if type(name) is not str or name in entries:
            raise ValueError
        if value:
            entries[name] = _scalar(value)
        else:
            self._slot = (entries, name)

    def finished(self) -> Plain:
        """All of it. Errors: ValueError when something still waits."""
        if self._slot is not None:
            raise ValueError
        return self._root[0]

    def _collection(self, column: int, kind: type[_T]) -> _T:
        """The list or object at ``column``: a new one, if something waits for it."""
        if self._slot is None:
            while True:
                found_column, found = self._open[-1]
                if found_column < column:
                    raise ValueError
                if found_column == column and type(found) is kind:
                    return found
                self._open.pop()
        outer_column, _ = self._open[-1]
        # A list may start in the column of the key it belongs to.
        is_inside = column > outer_column or (column == outer_column and self._slot[1] and kind is list)
        if not is_inside or len(self._open) > MAX_DEPTH:
            raise ValueError
        new = kind()
        self._fill(new)
        self._open.append((column, new))
        return new

    def _fill(self, value: Plain) -> None:
        if self._slot is None:
            raise ValueError
        collection, key = self._slot
        if isinstance(collection, dict):
            collection[key] = value
        else:
            collection.append(value)
        self._slot = None


def _scalar(text: str) -> str | int | bool:
    if text[0] in "\"'":
        return text[1:-1]
    value = resolve(text)
    if isinstance(value, str) or (isinstance(value, int) and text in (str(value), str(value).lower())):
        return value
    raise ValueError
