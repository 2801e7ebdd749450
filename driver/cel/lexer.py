"""The tokens of a CEL expression (``github.com/google/cel-spec``, doc/langdef.md, Syntax)."""

import re
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

_STRING: Final = r"""'{3}(?:[^\\]|\\.)*?'{3}|"{3}(?:[^\\]|\\.)*?"{3}|'(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*\""""
_TOKEN: Final = re.compile(
    rf"""(?P<lead>(?:\s|//[^\n]*)*+)
    (?:(?P<string>[bBrR]{{0,2}}(?:{_STRING}))
    |(?P<name>[A-Za-z_][A-Za-z0-9_]*)
    |(?P<number>0[xX][0-9A-Fa-f]+[uU]?|[0-9]*\.?[0-9]+(?:[eE][-+]?[0-9]+)?[uU]?)
    |(?P<operator>&&|\|\||==|!=|<=|>=|\S)
    |(?P<end>\Z))""",
    re.DOTALL | re.VERBOSE,
)
MAX_LEVELS: Final = 64
"""The most levels of brackets that are analyzed and given to the engine, which takes half of them."""
OPENING: Final = frozenset("[({")
CLOSING: Final = frozenset("])}")


class Token(NamedTuple):
    """A token of CEL."""

    kind: str
    """``string``, ``name``, ``number``, ``operator`` or ``end``."""
    text: str
    lead: str
    """The white space and comments before the token."""


def tokenize(expression: str) -> list[Token]:
    """Split ``expression`` into tokens. Trailing white space leads an empty token of kind ``end``."""
    return [
        Token(kind=match.lastgroup or "", text=match[match.lastgroup or 0], lead=match["lead"])
        for match in _TOKEN.finditer(expression)
        if match.lastgroup != "end" or match["lead"]
    ]


def count_levels(tokens: Iterable[Token]) -> int:
    """Return the most brackets that are open at once."""
    deepest = depth = 0
    for token in tokens:
        depth += (token.text in OPENING) - (token.text in CLOSING)
        deepest = max(deepest, depth)
    return deepest


def find_closing(tokens: Sequence[Token], at: int) -> int:
    """The index of the bracket that closes the one at ``at``; the number of tokens when no bracket does."""
    depth = 0
    while at < len(tokens):
        depth += (tokens[at].text in OPENING) - (tokens[at].text in CLOSING)
        if not depth:
            return at
        at += 1
    return at


def split_tokens(tokens: Sequence[Token], separator: str) -> list[list[Token]]:
    """Split ``tokens`` at separators outside brackets; a colon that belongs to a ``?`` is not a separator."""
    parts: list[list[Token]] = [[]]
    depth = conditions = 0
    before = ""
    for token in tokens:
        depth += (token.text in OPENING) - (token.text in CLOSING)
        if token.text == separator and not depth and not conditions:
            parts.append([])
            continue
        if not depth:
            is_condition = token.text == "?" and before != "."  # `.?` is the optional look-up
            conditions += is_condition - (token.text == ":" and conditions > 0)
        parts[-1].append(token)
        before = token.text
    return parts
