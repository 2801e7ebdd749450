"""Checks of literals that Kubernetes makes when it compiles an expression, and the engine does not make.

They are three checks of Kubernetes' CEL environment (``k8s.io/apiserver/pkg/cel/environment``: homogeneous aggregate
literals, regular expression, duration and timestamp literals) and its constant folding: the elements of a list or map
literal are of one type; a literal that is given to a conversion or used as a pattern must be a valid one.
"""

from collections.abc import Callable, Sequence
from typing import Final

from kerf_dra.driver.cel.lexer import CLOSING, Token, find_closing, split_tokens, tokenize

TypeOf = Callable[[str], str | None]
"""Returns the static type of an expression; None: it uses a name that a macro binds, so it has no type alone."""
Fails = Callable[[str], bool]
"""Returns whether an expression without variables fails when it is evaluated."""

_CONVERSIONS: Final = frozenset({"bool", "double", "duration", "int", "timestamp", "uint"})
_PATTERNS: Final = frozenset({"find", "findAll", "matches"})
_OPAQUE: Final = ("TYPE", "optional_type")
"""Types that are not compared, because their parameters may be unknown."""


def find_literal_fault(expression: str, type_of: TypeOf, fails: Fails) -> str | None:
    """Why Kubernetes would reject a literal in ``expression``, which must be valid CEL; None: it accepts all."""
    tokens = tokenize(expression)
    for at, token in enumerate(tokens):
        if token.text in ("[", "{") and not _is_operand(tokens, at - 1) and _text(tokens, at - 2) != "format":
            fault = _aggregate_fault(tokens, at, type_of)
        elif token.kind == "name" and _text(tokens, at + 1) == "(":
            fault = _call_fault(tokens, at, fails)
        else:
            fault = None
        if fault is not None:
            return fault
    return None


def _text(tokens: Sequence[Token], at: int) -> str:
    return tokens[at].text if 0 <= at < len(tokens) else ""


def _is_operand(tokens: Sequence[Token], at: int) -> bool:
    """Whether an operand ends at ``at``, so that a bracket after it is an index and no literal."""
    if at < 0:
        return False
    token = tokens[at]
    return token.text in CLOSING or (token.kind in ("name", "string") and token.text != "in")


def _aggregate_fault(tokens: Sequence[Token], start: int, type_of: TypeOf) -> str | None:
    columns: list[list[str]] = [[], []]
    for element in _elements(tokens, start):
        parts = split_tokens(element, ":") if tokens[start].text == "{" else [element]
        for column, part in zip(columns, parts, strict=False):
            text = "".join(token.lead + token.text for token in part)
            type_ = None if text.lstrip().startswith("?") else type_of(text)
            if type_ is not None and not type_.startswith(_OPAQUE):
                column.append(type_.partition("<")[0])  # element types may be unknown
    for column in columns:
        other = next((type_ for type_ in column if type_ != column[0]), None)
        if other is not None:
            return f"expected type {column[0].lower()} but found {other.lower()} in a list or map"
    return None


def _elements(tokens: Sequence[Token], start: int) -> list[list[Token]]:
    """The elements of the literal, or the arguments of the call, that opens at ``start``."""
    return [element for element in split_tokens(tokens[start + 1 : find_closing(tokens, start)], ",") if element]


def _call_fault(tokens: Sequence[Token], at: int, fails: Fails) -> str | None:
    name, is_method = tokens[at].text, _text(tokens, at - 1) == "."
    arguments = _elements(tokens, at + 1)
    if name in _CONVERSIONS and not is_method and len(arguments) == 1:
        call = f"{name}({_literal(arguments[0])})"
        return f"{call} is no {name}" if _literal(arguments[0]) and fails(call) else None
    if name in _PATTERNS and len(arguments) > (not is_method):
        pattern = _literal(arguments[not is_method])
        is_wrong = bool(pattern) and fails(f"''.matches({pattern})")
        return f"{pattern} is no regular expression" if is_wrong else None
    return None


def _literal(argument: Sequence[Token]) -> str:
    """The text of an argument that is one literal; empty: it is not a literal."""
    texts = [token.text for token in argument]
    is_literal = argument[-1].kind in ("string", "number") and texts[:-1] in ([], ["-"])
    return "".join(texts) if is_literal else ""
