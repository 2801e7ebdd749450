"""The conjuncts of a CEL selector, to report which of its conditions does not hold.

Only the outermost ``&&`` are split: where an operator that binds less tightly stands outside (``||``, ``?``), the
expression is one conjunct. ``attribute_references`` finds what a conjunct reads of a device.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from kerf_dra.driver.cel.attribute_references import Read, analyze_expression
from kerf_dra.driver.cel.lexer import CLOSING, OPENING, Token, find_closing, split_tokens, tokenize

_LOOSER: Final = frozenset({"||", "?"})
"""Operators that bind less tightly than ``&&``."""
_CACHED_EXPRESSIONS: Final = 1024
"""The most expressions kept: the classes and claims of a cluster share few distinct ones."""


@dataclass(frozen=True, slots=True)
class Conjunct:
    """One conjunct of a selector, with its reads."""

    expression: str
    reads: tuple[Read, ...]


@lru_cache(maxsize=_CACHED_EXPRESSIONS)
def split_conjuncts(expression: str) -> tuple[Conjunct, ...]:
    """Split ``expression`` into its conjuncts, in order; an expression that cannot be split is one conjunct.

    >>> [conjunct.expression for conjunct in split_conjuncts('a == "x && y" && (b || c)')]
    ['a == "x && y"', 'b || c']
    """
    tokens = [token for token in tokenize(expression) if token.kind != "end"]
    parts = ("".join(token.lead + token.text for token in part).strip() for part in _split(tokens))
    return tuple(Conjunct(part, analyze_expression(part).reads) for part in parts)


def _split(tokens: Sequence[Token]) -> Iterator[Sequence[Token]]:
    while tokens and tokens[0].text == "(" and find_closing(tokens, 0) == len(tokens) - 1:
        tokens = tokens[1:-1]
    parts = split_tokens(tokens, "&&")
    if len(parts) == 1 or _has_looser_operator(tokens):
        yield tokens
    else:
        for part in parts:
            yield from _split(part)


def _has_looser_operator(tokens: Sequence[Token]) -> bool:
    """Whether an operator of ``_LOOSER`` is outside all brackets."""
    depth = 0
    for token in tokens:
        depth += (token.text in OPENING) - (token.text in CLOSING)
        if not depth and token.text in _LOOSER:
            return True
    return False
