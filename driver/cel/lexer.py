"""CEL as a row of tokens (``github.com/google/cel-spec``, doc/langdef.md, Syntax)."""

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

_STRING: Final = r"""'{3}(?:[^\\]|\\.)*?'{3}|"{3}(?:[^\\]|\\.)*?"{3}|'(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*\""""
_TOKEN: Final = re.compile(
    rf"""(?P<lead>(?:\s|//[^\n]*)*)
    (?:(?P<string>[bBrR]{{0,2}}(?:{_STRING}))
    |(?P<name>[A-Za-z_][A-Za-z0-9_]*)
    |(?P<number>0[xX][0-9A-Fa-f]+[uU]?|[0-9]*\.?[0-9]+(?:[eE][-+]?[0-9]+)?[uU]?)
    |(?P<operator>&&|\|\||==|!=|<=|>=|\S))""",
    re.DOTALL | re.VERBOSE,
)
OPENING: Final = frozenset("[({")
CLOSING: Final = frozenset("])}")


class Token(NamedTuple):
    """A token of CEL."""

    kind: str
    """string, name, number or operator."""
    text: str
    lead: str
    """White space and comments before it."""


def tokenize(expression: str) -> list[Token]:
    """The tokens of ``expression``."""
    return [
        Token(kind=match.lastgroup or "", text=match[match.lastgroup or 0], lead=match["lead"])
        for match in _TOKEN.finditer(expression)
    ]


def closing(tokens: Sequence[Token], at: int) -> int:
    """Where the bracket that opens at ``at`` is closed; the number of tokens when it is not."""
    depth = 0
    while at < len(tokens):
        depth += (tokens[at].text in OPENING) - (tokens[at].text in CLOSING)
        if not depth:
            return at
        at += 1
    return at


def split(tokens: Sequence[Token], separator: str) -> list[list[Token]]:
    """The parts between separators that stand in no bracket; a colon that belongs to a ``?`` is none."""
    parts: list[list[Token]] = [[]]
    depth = conditions = 0
    before = ""
    for token in tokens:
        depth += (token.text in OPENING) - (token.text in CLOSING)
        if token.text == separator and not depth and not conditions:
            parts.append([])
            continue
        if not depth:
            is_condition = token.text == "?" and before != "."  # `.?` looks up what may not be there
            conditions += is_condition - (token.text == ":" and conditions > 0)
        parts[-1].append(token)
        before = token.text
    return parts
