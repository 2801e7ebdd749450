"""A parsed module, and replacements of the bytes of its nodes."""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Edit:
    """A replacement of the bytes from ``start`` to ``end``."""

    operator: str
    start: int
    end: int
    text: str


class Source:
    """The bytes of a module and its syntax tree."""

    def __init__(self, source: bytes) -> None:
        self._source = source
        self.tree = ast.parse(source)
        self._lines = source.decode().split("\n")
        self._starts = [0]
        for line in self._lines:
            self._starts.append(self._starts[-1] + len(line.encode()) + 1)

    def replace(self, operator: str, node: ast.AST, text: str) -> Edit:
        return Edit(operator, *self.span(node), text)

    def replace_between(self, operator: str, one: ast.AST, other: ast.AST, old: str, new: str) -> Iterator[Edit]:
        """Replace what stands between two operands, which may be in parentheses."""
        start, end = self.span(one)[1], self.span(other)[0]
        between = self._source[start:end].decode()
        if "#" not in between and (found := re.search(old, between)):
            yield Edit(operator, start + found.start(), start + found.end(), new)

    def span(self, node: ast.AST) -> tuple[int, int]:
        assert isinstance(node, ast.expr | ast.stmt | ast.keyword | ast.pattern)
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return (
            self._starts[node.lineno - 1] + node.col_offset,
            self._starts[node.end_lineno - 1] + node.end_col_offset,
        )

    def text(self, node: ast.AST) -> str:
        return self.text_of(*self.span(node))

    def text_of(self, start: int, end: int) -> str:
        return self._source[start:end].decode()

    def text_from(self, offset: int) -> bytes:
        return self._source[offset:]

    def find_last(self, text: bytes, end: int) -> int:
        """Return where ``text`` begins for the last time before ``end``."""
        return self._source.rindex(text, 0, end)

    def line_of(self, offset: int) -> int:
        return self._source.count(b"\n", 0, offset) + 1

    def changed_lines(self, edit: Edit) -> tuple[range, str, str]:
        """Return the numbers of the lines that an edit changes, and their text before and after it, in one line."""
        first, last = self.line_of(edit.start), self.line_of(edit.end)
        before = "\n".join(self._lines[first - 1 : last]).encode()
        offset = self._starts[first - 1]
        after = before[: edit.start - offset] + edit.text.encode() + before[edit.end - offset :]
        return range(first, last + 1), _in_one_line(before.decode()), _in_one_line(after.decode())


def _in_one_line(text: str) -> str:
    return " ".join(text.split())
