"""A CEL selector taken apart into the conditions that must all hold, so that one can say which of them does not.

Only the outermost ``&&`` are taken apart: where something that binds more loosely stands outside (``||``, ``?``), the
expression is one condition. What a condition reads of a device is found by ``reading``.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from driver.cel.attribute_references import Read, read_expression

_TOKEN: Final = re.compile(
    r"""(?P<string>[bBrR]{0,2}(?:'{3}(?:[^\\]|\\.)*?'{3}|"{3}(?:[^\\]|\\.)*?"{3}|'(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*"))
    |(?P<comment>//[^\n]*)
    |(?P<operator>&&|\|\||[()\[\]{}?])""",
    re.DOTALL | re.VERBOSE,
)
_LOOSER: Final = frozenset({"||", "?"})
_EXPRESSIONS: Final = 1024
"""Expressions kept: classes and claims of a cluster share few distinct ones."""


@dataclass(frozen=True, slots=True)
class Condition:
    """One of the conditions of a selector."""

    expression: str
    reads: tuple[Read, ...]


@lru_cache(maxsize=_EXPRESSIONS)
def conditions(expression: str) -> tuple[Condition, ...]:
    """The conditions that ``expression`` is the conjunction of, in its order; itself when it cannot be taken apart.

    >>> [condition.expression for condition in conditions('a == "x && y" && (b || c)')]
    ['a == "x && y"', 'b || c']
    """
    return tuple(Condition(part, read_expression(part).reads) for part in _parts(expression))


def _parts(expression: str) -> Iterator[str]:
    expression = _bare(expression)
    cuts = [0]
    for operator, start, end in _outermost(expression):
        if operator in _LOOSER:
            yield expression
            return
        if operator == "&&":
            cuts += [start, end]
    if len(cuts) == 1:
        yield expression
        return
    cuts.append(len(expression))
    for start, end in zip(cuts[::2], cuts[1::2], strict=True):
        yield from _parts(expression[start:end])


def _bare(expression: str) -> str:
    """Without space around it and without parentheses around all of it."""
    expression = expression.strip()
    while expression.startswith("(") and expression.endswith(")"):
        inside = expression[1:-1]
        if not _is_balanced(inside):
            break
        expression = inside.strip()
    return expression


def _is_balanced(text: str) -> bool:
    depth = 0
    for match in _TOKEN.finditer(text):
        depth += _step(match["operator"])
        if depth < 0:
            return False
    return depth == 0


def _outermost(expression: str) -> Iterator[tuple[str, int, int]]:
    """The operators outside of all brackets, and where they stand."""
    depth = 0
    for match in _TOKEN.finditer(expression):
        depth += _step(match["operator"])
        if depth == 0 and match["operator"]:
            yield match["operator"], match.start(), match.end()


def _step(operator: str | None) -> int:
    return {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}.get(operator or "", 0)
