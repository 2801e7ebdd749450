"""``cel.bind`` taken out of an expression: the value stands where the name stood.

CEL has no side effects, so nothing changes but the work. The engine needs it: after a loop that ends early it takes
what the loop's variable was for the value of a ``cel.bind`` that follows; and a domain that is looked up through a
name cannot be told from any other map.
"""

from collections.abc import Sequence
from typing import Final

from driver.cel.lexer import Token, closing, split, tokenize

_LOOPS: Final = frozenset(
    {"all", "exists", "existsOne", "exists_one", "filter", "map", "transformList", "transformMap", "transformMapEntry"}
)
"""Macros that loop: their first arguments are names."""
_MOST: Final = 4000
"""Tokens of the whole: names in names could grow beyond all bounds; such an expression stays as it is."""


def inlined(expression: str) -> str | None:
    """``expression`` without ``cel.bind``; None: that cannot be had."""
    tokens = inline(tokenize(expression))
    return None if has_bind(tokens) else "".join(token.lead + token.text for token in tokens)


def has_bind(tokens: Sequence[Token]) -> bool:
    return any(_is_bind(tokens, at) for at in range(len(tokens)))


def _is_bind(tokens: Sequence[Token], at: int) -> bool:
    return [token.text for token in tokens[at : at + 4]] == ["cel", ".", "bind", "("]


def inline(tokens: Sequence[Token]) -> list[Token]:
    """``tokens`` without ``cel.bind``, as far as that can be done without changing what names mean."""
    inlined: list[Token] = []
    at = 0
    while at < len(tokens):
        end = closing(tokens, at + 3)
        if _is_bind(tokens, at) and end < len(tokens):
            bound = _bound(tokens[at], [inline(part) for part in split(tokens[at + 4 : end], ",")])
            inlined += tokens[at : end + 1] if bound is None else bound
            at = end + 1
        else:
            inlined.append(tokens[at])
            at += 1
    return inlined if len(inlined) <= _MOST else list(tokens)


def _bound(first: Token, arguments: Sequence[Sequence[Token]]) -> list[Token] | None:
    """The result with the value in it; None: it cannot be done, or the call is none."""
    if len(arguments) != 3 or len(arguments[0]) != 1 or arguments[0][0].kind != "name":
        return None
    (name,), value, result = arguments
    free = _free(value)
    if any(free & set(_looping(result, at)) for at in range(len(result))) or len(value) * len(result) > _MOST:
        return None
    value = value if _is_path(value) else _bracketed(value, "")
    return _bracketed(_replace(result, name.text, value), first.lead)


def _bracketed(tokens: Sequence[Token], lead: str) -> list[Token]:
    return [Token("operator", "(", lead), *tokens, Token("operator", ")", "")]


def _is_path(tokens: Sequence[Token]) -> bool:
    """Whether ``tokens`` only look something up, so that looking further needs no brackets."""
    return all(token.kind in ("name", "string") or token.text in (".", "[", "]") for token in tokens) and all(
        token.text != "in" for token in tokens
    )


def _looping(tokens: Sequence[Token], at: int) -> list[str]:
    """The names of a loop's variables, when a loop's bracket opens at ``at``."""
    if tokens[at].text != "(" or at < 2 or tokens[at - 2].text != "." or tokens[at - 1].text not in _LOOPS:
        return []
    arguments = split(tokens[at + 1 : closing(tokens, at)], ",")
    return [argument[0].text for argument in arguments[:-1] if len(argument) == 1 and argument[0].kind == "name"]


def _free(tokens: Sequence[Token]) -> set[str]:
    """The names that mean something outside of ``tokens``."""
    free: set[str] = set()
    at = 0
    while at < len(tokens):
        bound = _looping(tokens, at)
        if bound:
            end = closing(tokens, at)
            free |= _free(tokens[at + 1 : end]) - set(bound)
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
        if name in _looping(tokens, at):
            end = closing(tokens, at)
            replaced += tokens[at:end]
            at = end
        elif token.kind == "name" and token.text == name and (not at or tokens[at - 1].text != "."):
            replaced += [value[0]._replace(lead=token.lead), *value[1:]]
            at += 1
        else:
            replaced.append(token)
            at += 1
    return replaced
