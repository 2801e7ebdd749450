"""Inlines ``cel.bind``: the bound value replaces the name.

CEL has no side effects, so the result is the same. The engine needs it: after a loop that ends early it confuses the
loop's variable with the value of a ``cel.bind`` that follows. The analysis of reads needs it, too: it cannot
distinguish a domain that is looked up through a name from any other map.
"""

from collections.abc import Sequence
from typing import Final

from kerf_dra.driver.cel.lexer import Token, find_closing, split_tokens, tokenize

_LOOPS: Final = frozenset(
    {"all", "exists", "existsOne", "exists_one", "filter", "map", "transformList", "transformMap", "transformMapEntry"}
)
"""The macros that loop: their first arguments are variable names."""
_MAX_TOKENS: Final = 4000
"""The most tokens of a result, which nested names let grow exponentially; a larger expression is not inlined."""


def inline_bindings(expression: str) -> str | None:
    """``expression`` without ``cel.bind``; None: one of them cannot be inlined."""
    tokens = inline_tokens(tokenize(expression))
    return None if has_bind(tokens) else "".join(token.lead + token.text for token in tokens)


def has_bind(tokens: Sequence[Token]) -> bool:
    """Whether a call of ``cel.bind`` is among ``tokens``."""
    return any(_is_bind(tokens, at) for at in range(len(tokens)))


def _is_bind(tokens: Sequence[Token], at: int) -> bool:
    return [token.text for token in tokens[at : at + 4]] == ["cel", ".", "bind", "("]


def inline_tokens(tokens: Sequence[Token]) -> list[Token]:
    """Return ``tokens`` without each ``cel.bind`` whose inlining lets no loop capture a name."""
    inline_bindings: list[Token] = []
    at = 0
    while at < len(tokens):
        end = find_closing(tokens, at + 3) if _is_bind(tokens, at) else len(tokens)
        if end < len(tokens):
            bound = _inline_call(tokens[at], [inline_tokens(part) for part in split_tokens(tokens[at + 4 : end], ",")])
            inline_bindings += tokens[at : end + 1] if bound is None else bound
            at = end + 1
        else:
            inline_bindings.append(tokens[at])
            at += 1
    return inline_bindings if len(inline_bindings) <= _MAX_TOKENS else list(tokens)


def _inline_call(first: Token, arguments: Sequence[Sequence[Token]]) -> list[Token] | None:
    """Return the result with the value inserted; None: the call cannot be inlined, or is invalid."""
    if len(arguments) != 3 or len(arguments[0]) != 1 or arguments[0][0].kind != "name":
        return None
    (name,), value, result = arguments
    free = _free_names(value)
    if (
        any(free & set(_loop_variables(result, at)) for at in range(len(result)))
        or len(value) * len(result) > _MAX_TOKENS
    ):
        return None
    value = value if _is_path(value) else _parenthesize(value, "")
    return _parenthesize(_replace(result, name.text, value), first.lead)


def _parenthesize(tokens: Sequence[Token], lead: str) -> list[Token]:
    return [Token("operator", "(", lead), *tokens, Token("operator", ")", "")]


def _is_path(tokens: Sequence[Token]) -> bool:
    """Whether ``tokens`` are a chain of look-ups, which needs no parentheses when it is extended."""
    return all(token.kind in ("name", "string") or token.text in (".", "[", "]") for token in tokens) and all(
        token.text != "in" for token in tokens
    )


def _loop_variables(tokens: Sequence[Token], at: int) -> list[str]:
    """The variables of the loop whose parenthesis opens at ``at``; empty: no loop opens there."""
    if tokens[at].text != "(" or at < 2 or tokens[at - 2].text != "." or tokens[at - 1].text not in _LOOPS:
        return []
    arguments = split_tokens(tokens[at + 1 : find_closing(tokens, at)], ",")
    return [argument[0].text for argument in arguments[:-1] if len(argument) == 1 and argument[0].kind == "name"]


def _free_names(tokens: Sequence[Token]) -> set[str]:
    """The free names of ``tokens``: those that no loop within binds."""
    free: set[str] = set()
    at = 0
    while at < len(tokens):
        bound = _loop_variables(tokens, at)
        if bound:
            end = find_closing(tokens, at)
            free |= _free_names(tokens[at + 1 : end]) - set(bound)
            at = end
        elif tokens[at].kind == "name" and (not at or tokens[at - 1].text != "."):
            free.add(tokens[at].text)
        at += 1
    return free


def _replace(tokens: Sequence[Token], name: str, value: Sequence[Token]) -> list[Token]:
    replaced: list[Token] = []
    at = 0
    while at < len(tokens):
        token = tokens[at]
        if name in _loop_variables(tokens, at):
            end = find_closing(tokens, at)
            replaced += tokens[at:end]
            at = end
        elif token.kind == "name" and token.text == name and (not at or tokens[at - 1].text != "."):
            replaced += [value[0]._replace(lead=token.lead), *value[1:]]
            at += 1
        else:
            replaced.append(token)
            at += 1
    return replaced
