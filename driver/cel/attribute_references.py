"""The attributes and capacities of a device that a CEL expression reads, found from its tokens.

A selector usually reads three or four of a device's attributes, and a cluster has few distinct combinations of those:
knowing the reads turns most evaluations into a cache hit. The analysis is conservative: a few known forms
(``device.attributes["domain"].id``, ``"id" in device.capacity["domain"]`` and so on) are narrow reads; with
any other form the expression reads a whole domain, or everything.

The same pass rewrites the expression where Kubernetes' CEL environment cannot be declared as it is:

- Looking up an unknown domain returns an empty map there, while the map has no such key
  (``k8s.io/dynamic-resource-allocation/cel``, ``mapper``). So look-ups go to a second variable that has every domain.
- ``version == "text"`` is a run-time error there (``k8s.io/apiserver/pkg/cel`` Semver.Equal), so an attribute compared
  with a string is compared by a function of ``kerf_dra.driver.cel.library``.
- Some functions are called by another name, under which ``kerf_dra.driver.cel.library`` implements them, see
  ``RENAMED``.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from kerf_dra.driver.cel.inlining import has_bind, inline_tokens
from kerf_dra.driver.cel.lexer import MAX_LEVELS, Token, count_levels, find_closing, tokenize

LOOKUP_VARIABLES: Final = {"attributes": "__attributes", "capacity": "__capacity"}
"""The variables that replace ``device.<map>`` in look-ups."""
EQUALS_TEXT: Final = "__equals_text"
"""The function that replaces ``attribute == "text"``."""

RENAMED: Final = {name: f"__{name}" for name in ("indexOf", "lastIndexOf", "substring")}
"""Functions that the engine implements for strings but not for lists, or refuses for whole strings."""

_PLAIN_STRING: Final = re.compile(r"""(["'])((?:(?!\1)[^\\])*)\1""")
_LOOSER_BEFORE: Final = frozenset({"", "(", "&&", "||", "?", ":", ",", "[", "{"})
"""Tokens before an operand of ``==`` or ``in`` that bind less tightly than these."""
_LOOSER_AFTER: Final = frozenset({"", ")", "&&", "||", "?", ":", ",", "]", "}"})
"""Tokens after such an operand that bind less tightly."""

_PRESENCE: Final = 6
"""The number of tokens of ``has(device.field)``."""
_COST_ONE: Final = "(!false)"
"""An expression with the cost of ``has(device.field)``: 1 for ``device``, the test itself is free (cel-go,
PresenceTestHasCost)."""
_FIELDS: Final = frozenset({"driver", "attributes", "capacity", "allowMultipleAllocations"})

Map = Literal["attributes", "capacity"]


class Read(NamedTuple):
    """One attribute or capacity that an expression reads; ``id`` is None for a whole domain."""

    map: Map
    domain: str
    id: str | None


@dataclass(frozen=True, slots=True)
class ExpressionAnalysis:
    """The reads of an expression, and the expression to compile in its place."""

    expression: str
    reads: tuple[Read, ...]
    """The attributes and capacities that the expression reads, sorted, without repetition."""
    is_exact: bool
    """Whether ``reads`` is complete; False: the expression may read anything."""
    reads_driver: bool
    reads_sharing: bool
    """Whether it reads ``device.allowMultipleAllocations``."""
    domains: frozenset[str]
    """Every string or name in the expression that may be a domain."""
    names: frozenset[str]
    """Every name in the expression."""
    binds: bool
    """Whether a ``cel.bind`` remains that cannot be inlined."""


def analyze_expression(expression: str) -> ExpressionAnalysis:
    """Analyze and rewrite ``expression``; the function never fails, because the compiler rejects invalid CEL.

    One of too many levels, which the compiler rejects too, is not rewritten, and may read anything.
    """
    tokens = tokenize(expression)
    if count_levels(tokens) > MAX_LEVELS:
        return ExpressionAnalysis(
            expression=expression,
            reads=(),
            is_exact=False,
            reads_driver=True,
            reads_sharing=True,
            domains=frozenset(),
            names=frozenset(token.text for token in tokens if token.kind == "name"),
            binds=has_bind(tokens),
        )
    return _Analyzer(inline_tokens(tokens)).run()


def rewrite_for_cost(expression: str) -> str:
    """Rewrite only the parts of ``expression`` that the engine would not compile, at the same cost."""
    tokens = tokenize(expression)
    output: list[str] = []
    at = 0
    while at < len(tokens):
        is_presence = _is_presence_test(tokens, at)
        output.append(tokens[at].lead + (_COST_ONE if is_presence else _name(tokens, at)))
        at += _PRESENCE if is_presence else 1
    return "".join(output)


def _text(tokens: Sequence[Token], at: int) -> str:
    return tokens[at].text if 0 <= at < len(tokens) else ""


def _is_presence_test(tokens: Sequence[Token], at: int) -> bool:
    """Whether ``has(device.field)`` begins at ``at``."""
    words = tuple(_text(tokens, at + offset) for offset in range(_PRESENCE))
    return words[:4] == ("has", "(", "device", ".") and words[4] in _FIELDS and words[5] == ")"


def _name(tokens: Sequence[Token], at: int) -> str:
    """The token's text, or the replacement name of the method that is called there."""
    is_call = _text(tokens, at - 1) == "." and _text(tokens, at + 1) == "("
    text = tokens[at].text
    return RENAMED.get(text, text) if is_call else text


class _Analyzer:
    def __init__(self, tokens: list[Token]) -> None:
        self._tokens = tokens
        self._output: list[str] = []
        self._reads: set[Read] = set()
        self._is_exact = True
        self._reads_driver = False
        self._reads_sharing = False

    def run(self) -> ExpressionAnalysis:
        at = 0
        while at < len(self._tokens):
            self._output.append(self._tokens[at].lead)
            at = self._presence(at) or self._step(at)
        names = frozenset(token.text for token in self._tokens if token.kind == "name")
        strings = (token.text for token in self._tokens if token.kind == "string")
        reads = tuple(sorted(self._reads, key=lambda read: (read.map, read.domain, read.id or "")))
        return ExpressionAnalysis(
            expression="".join(self._output),
            reads=reads,
            is_exact=self._is_exact,
            reads_driver=self._reads_driver or not self._is_exact,
            reads_sharing=self._reads_sharing or not self._is_exact,
            domains=names | {plain[2] for plain in map(_PLAIN_STRING.fullmatch, strings) if plain},
            names=names,
            binds=has_bind(self._tokens),
        )

    def _text(self, at: int) -> str:
        return _text(self._tokens, at)

    def _step(self, at: int) -> int:
        """Handle the token at ``at``, or the whole look-up that begins there. Returns the next index."""
        if self._text(at) != "device" or self._text(at - 1) == ".":
            self._output.append(_name(self._tokens, at))
            return at + 1
        field = self._text(at + 2) if self._text(at + 1) == "." else ""
        if field == "attributes":
            return self._look_up("attributes", at)
        if field == "capacity":
            return self._look_up("capacity", at)
        if field == "driver":
            self._reads_driver = True
        elif field == "allowMultipleAllocations":
            self._reads_sharing = True
        else:
            self._is_exact = False
            self._output.append("device")
            return at + 1
        self._output.append(f"device.{field}")
        return at + 3

    def _presence(self, at: int) -> int | None:
        """Replace ``has(device.field)`` by true: the fields always exist, but are no messages to the engine."""
        if not _is_presence_test(self._tokens, at):
            return None
        self._output.append("true")
        return at + _PRESENCE

    def _look_up(self, map_: Map, start: int) -> int:
        """Handle ``device.<map>`` at ``start``: the bare map, a domain of it, or one value."""
        at = start + 3
        domain, at = self._key(at)
        if domain is None:
            self._is_exact = False
            if self._text(at) == "[" and self._text(at + 1) != "?":
                return self._computed(map_, at)
            is_indexed = self._text(at) in ("[", ".") and self._text(at + 2) != "("
            self._output.append(LOOKUP_VARIABLES[map_] if is_indexed else f"device.{map_}")
            return at
        id_, end = self._key(at)
        text = f"{LOOKUP_VARIABLES[map_]}[{_quoted(domain)}]"
        if id_ is None:
            present = self._presence_before(start) if self._text(end) in _LOOSER_AFTER else None
            self._reads.add(Read(map_, domain, present))
            self._output.append(text)
            return at
        self._reads.add(Read(map_, domain, id_))
        text += f"[{_quoted(id_)}]" if self._text(at) == "[" else f".{id_}"
        if map_ == "attributes":
            return self._compare(text, start, end)
        self._output.append(text)
        return end

    def _computed(self, map_: Map, at: int) -> int:
        """Handle a domain with a computed name, empty where it does not exist; its bracket opens at ``at``."""
        self._output.append(f"{LOOKUP_VARIABLES[map_]}[?")
        end = find_closing(self._tokens, at)
        self._copy(at + 1, end)
        self._output.append("].orValue({})")
        return end + 1

    def _copy(self, at: int, end: int) -> None:
        """Handle the tokens from ``at`` to before ``end``."""
        while at < end:
            self._output.append(self._tokens[at].lead)
            at = self._presence(at) or self._step(at)

    def _key(self, at: int) -> tuple[str | None, int]:
        """The constant key at ``at`` (``["key"]`` or ``.key``), None when there is none, and the index after it."""
        if self._text(at) == "[" and self._text(at + 2) == "]" and self._tokens[at + 1].kind == "string":
            plain = _PLAIN_STRING.fullmatch(self._text(at + 1))
            return (plain[2], at + 3) if plain else (None, at)
        is_field = self._text(at) == "." and at + 1 < len(self._tokens) and self._tokens[at + 1].kind == "name"
        if is_field and self._text(at + 2) != "(":
            return self._text(at + 1), at + 2
        return None, at

    def _presence_before(self, start: int) -> str | None:
        """The ``id`` when ``"id" in`` stands before the domain at ``start``."""
        if self._text(start - 1) != "in" or self._text(start - 3) not in _LOOSER_BEFORE:
            return None
        plain = _PLAIN_STRING.fullmatch(self._text(start - 2))
        return plain[2] if plain else None

    def _compare(self, attribute: str, start: int, end: int) -> int:
        """Handle ``attribute``, or its whole comparison with a string."""
        operator, operand = self._text(end), self._text(end + 1)  # `!=` is true there, as it is here
        is_comparison = (
            operator == "=="
            and end + 1 < len(self._tokens)
            and self._tokens[end + 1].kind == "string"
            and self._text(end + 2) in _LOOSER_AFTER
            and self._text(start - 1) in _LOOSER_BEFORE
        )
        if not is_comparison:
            self._output.append(attribute)
            return end
        self._output.append(f"{EQUALS_TEXT}({attribute}, {operand})")
        return end + 2


def _quoted(text: str) -> str:
    """A CEL string literal. ``text`` holds no backslash."""
    return "'" + text.replace("'", "\\'") + "'"
