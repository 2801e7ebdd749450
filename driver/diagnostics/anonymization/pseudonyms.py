"""Pseudonyms of the words and names of one snapshot.

A pseudonym is a number, the rank of the word among the sorted words of its kind, after letters that say of which kind:
``node-xz07`` for a node, ``name-xz31`` for any other object, ``xz52`` for a word. No two words have one pseudonym, so a
text can be compared with another after as before; nodes, and objects of one kind, keep their order. Letters in upper
case stay so (``A100``, ``XZ52``), and numbers of more than three digits become others in the same order.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Final

from kerf_dra.driver.cel.lexer import Token, tokenize
from kerf_dra.driver.diagnostics.anonymization.public_words import PUBLIC_FORMS, SEPARATE, public_words

_NAME: Final = re.compile(rf"\\.|{SEPARATE.pattern}(?:[-._]+{SEPARATE.pattern})*", re.DOTALL)
"""What may be the name of an object, or an escape in CEL."""
_ADDRESS: Final = r"(?<![0-9A-Za-z])\d{1,3}(?:[.-]\d{1,3}){3}(?![0-9A-Za-z])"
"""An address of IPv4, also as names of nodes have it: its numbers are small, and yet may identify a person."""
_WORD: Final = re.compile(rf"{_ADDRESS}|{SEPARATE.pattern}")
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)")
"""A time of RFC 3339."""
_STRING: Final = re.compile(r"""([bBrR]{0,2})('{3}|"{3}|'|")(.*)\2""", re.DOTALL)
_QUANTITY: Final = re.compile(r"[+-]?[0-9.]+(?:[eE][+-]?[0-9]+|[KMGTPE]i?|[numk])?")
_FIRST_NUMBER: Final = 1000
"""The first pseudonym of a number: shorter ones stay."""


@dataclass(frozen=True, slots=True)
class SnapshotWords:
    """What a first walk over a snapshot has found."""

    kept: frozenset[str]
    """Drivers' names, and the names of attributes and capacities."""
    nodes: frozenset[str]
    names: frozenset[str]
    """The names and namespaces of other objects, and the names of pools."""
    derived: frozenset[tuple[str, str]]
    """Names that end in a dash and a text of another field, as those of a Deployment's ReplicaSets: before and after
    the dash."""
    texts: frozenset[str]
    """Every text, names too."""


class Pseudonyms:
    """The pseudonym of every word and name of one snapshot."""

    def __init__(self, found: SnapshotWords) -> None:
        nodes = sorted(found.nodes - found.kept)
        bases = {base for base, _ in found.derived}
        whole = {f"{base}-{end}" for base, end in found.derived}
        names = sorted(
            name for name in (found.names | bases) - whole - found.nodes - found.kept if not _is_public_name(name)
        )
        words = {_base(word) for text in found.texts for word in _split(text) if not is_public(word)}
        numbers = sorted((word for word in words if _is_number(word)), key=lambda word: (int(word), word))
        others = sorted(words - set(numbers))
        width = len(str(len(others) + len(nodes) + len(names)))
        ranks = iter(f"xz{rank:0{width}}" for rank in range(len(others) + len(nodes) + len(names)))
        self._words: Mapping[str, str] = {
            **{word: next(ranks) for word in others},
            **{word: str(_FIRST_NUMBER + rank) for rank, word in enumerate(numbers)},
        }
        self._table: dict[str, str] = {name: name for name in found.kept}
        self._table |= {name: f"node-{next(ranks)}" for name in nodes}
        self._table |= {name: f"name-{next(ranks)}" for name in names}
        self._table |= {f"{base}-{end}": f"{self._name(base)}-{self._name(end)}" for base, end in found.derived}
        self.replace = cache(self._replace)
        """Returns a text with pseudonyms in place of names and words."""
        self.replace_cel = cache(self._replace_cel)
        """Returns a CEL expression with pseudonyms in its strings and names, and without its comments."""

    @property
    def meanings(self) -> Mapping[str, str]:
        """What each pseudonym stands for, words in lower case."""
        known = (*self._table.items(), *self._words.items())
        return {pseudonym: text for text, pseudonym in known if text != pseudonym}

    def _replace(self, text: str) -> str:
        return text if _TIME.fullmatch(text) else _NAME.sub(lambda match: self._name(match[0]), text)

    def _name(self, text: str) -> str:
        if text.startswith("\\"):
            return text
        known = self._table.get(text)
        return known if known is not None else _WORD.sub(lambda match: self._word(match[0]), text)

    def _word(self, word: str) -> str:
        if is_public(word):
            return word
        pseudonym = self._words[_base(word)]
        if word.isupper():
            return pseudonym.upper()
        return pseudonym.capitalize() if word != _base(word) else pseudonym

    def _replace_cel(self, expression: str) -> str:
        tokens = tokenize(expression)
        return "".join(
            ("".join(filter(str.isspace, token.lead)) and " ") + self._token(token, tokens[max(0, at - 2) : at])
            for at, token in enumerate(tokens)
        )

    def _token(self, token: Token, before: Collection[Token]) -> str:
        if token.kind == "name":
            return self._name(token.text)
        if token.kind != "string":
            return token.text if token.text.isascii() else "?"
        prefix, quote, text = _take_apart(token)
        is_quantity = [each.text for each in before] == ["quantity", "("] and _QUANTITY.fullmatch(text)
        return token.text if is_quantity else f"{prefix}{quote}{self._replace(text)}{quote}"


def split_cel(expression: str) -> Iterator[str]:
    """Yield the texts in a CEL expression that may be replaced."""
    for token in tokenize(expression):
        if token.kind == "string":
            yield _take_apart(token)[2]
        elif token.kind == "name":
            yield token.text


def _take_apart(token: Token) -> tuple[str, str, str]:
    """Return the prefix, the quotation mark and the text of a string."""
    match = _STRING.fullmatch(token.text)
    assert match is not None
    return match[1], match[2], match[3]


def _split(text: str) -> Iterator[str]:
    """Yield the words of a text, as ``Pseudonyms.replace`` sees them."""
    for name in _NAME.findall(text):
        if not name.startswith("\\"):
            yield from _WORD.findall(name)


def is_public(word: str) -> bool:
    """Whether a word stays."""
    return bool(PUBLIC_FORMS.fullmatch(word)) or word.lower() in public_words()


def _is_public_name(name: str) -> bool:
    return all(map(is_public, _WORD.findall(name)))


def _is_number(word: str) -> bool:
    return word.isascii() and word.isdecimal()


def _base(word: str) -> str:
    """Return the spelling whose pseudonym a word has: that in lower case, unless capitals are anywhere in it."""
    lower = word.lower()
    return lower if word in (lower, lower.upper(), lower.capitalize()) else word
