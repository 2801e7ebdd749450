"""Mutations of CDI spec documents: typing errors and corrupted bytes in raw text."""

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import TypeAlias

from kerf_dra.cdi.document.fields import FIELDS
from tests.oracle.cdi.documents import generate_document

DATA = Path(__file__).parents[2] / "data" / "cdi"

_TOKEN = re.compile(r""" "(?:[^"\\\n]|\\.)*" | '(?:[^'\n]|'')*' | [^\s{}\[\],:#"']+ | \n\ * | [\s\S] """, re.VERBOSE)
_KEYS = tuple(row.key for rows in FIELDS.values() for row in rows)

_TEXT_MUTATIONS = json.loads((DATA / "slips.json").read_text(encoding="utf-8"))
_SCALARS: Sequence[str] = _TEXT_MUTATIONS["scalars"]
"""What a scalar can be mistaken for. One that spans lines is indented as deep as most places need."""
_INSERTIONS: Sequence[str] = _TEXT_MUTATIONS["insertions"]
_MARGINS: Sequence[str] = _TEXT_MUTATIONS["margins"]
"""Line breaks and what may follow them."""

_Tokens: TypeAlias = list[str]
_Mutation: TypeAlias = Callable[[Random, _Tokens], None]


def _corpus() -> Sequence[str]:
    records = (json.loads(line) for line in (DATA / "go-verdicts.jsonl").read_text(encoding="utf-8").splitlines())
    files = (
        file.read_text(encoding="utf-8") for folder in ("good", "bad") for file in sorted((DATA / folder).iterdir())
    )
    return (*(record["text"] for record in records if "text" in record), *files)


_CORPUS = _corpus()


def generate_mutated_document(seed: int) -> bytes:
    """Return a document with zero to five mutations."""
    random = Random(seed)
    text = random.choice(_CORPUS) if random.random() < 0.5 else generate_document(seed)
    tokens = _TOKEN.findall(text)
    for _ in range(random.choice((0, 1, 1, 1, 2, 2, 3, 5))):
        random.choice(_MUTATIONS)(random, tokens)
    return _encoded(random, "".join(tokens))


def _replace_scalar(random: Random, tokens: _Tokens) -> None:
    _replace(random, tokens, lambda token: token.strip() not in {*"{}[],:", ""}, lambda _: random.choice(_SCALARS))


def _respell_key(random: Random, tokens: _Tokens) -> None:
    def respelled(token: str) -> str:
        folded = token.replace("s", "\u017f").replace("k", "\u212a")
        return random.choice((token.upper(), token.title(), token.swapcase(), folded, random.choice(_KEYS)))

    _replace(random, tokens, lambda token: token.strip("\"'") in _KEYS, respelled)


def _indent(random: Random, tokens: _Tokens) -> None:
    _replace(random, tokens, lambda token: token.startswith("\n"), lambda _: random.choice(_MARGINS))


def _replace(random: Random, tokens: _Tokens, is_one: Callable[[str], bool], new: Callable[[str], str]) -> None:
    places = [place for place, token in enumerate(tokens) if is_one(token)]
    if places:
        place = random.choice(places)
        tokens[place] = new(tokens[place])


def _insert(random: Random, tokens: _Tokens) -> None:
    tokens.insert(random.randint(0, len(tokens)), random.choice(_INSERTIONS))


def _delete(random: Random, tokens: _Tokens) -> None:
    start = random.randint(0, len(tokens))
    del tokens[start : start + random.choice((1, 1, 2, 4))]


def _repeat(random: Random, tokens: _Tokens) -> None:
    start = random.randint(0, len(tokens))
    tokens[start:start] = tokens[start : start + random.choice((1, 2, 3, 6, 12, 30))]


def _move_line(random: Random, tokens: _Tokens) -> None:
    lines = "".join(tokens).split("\n")
    line = lines.pop(random.randrange(len(lines)))
    lines.insert(random.randint(0, len(lines)), " " * random.randrange(3) + line)
    tokens[:] = _TOKEN.findall("\n".join(lines))


_MUTATIONS: Sequence[_Mutation] = (
    *(_replace_scalar, _replace_scalar, _replace_scalar, _insert, _insert),
    *(_respell_key, _indent, _delete, _repeat, _move_line),
)


def _encoded(random: Random, text: str) -> bytes:
    """Mostly UTF-8; now and then something else, or with a byte of it wrong."""
    way = random.random()
    if way > 0.05:
        return text.encode(errors="replace")
    if way > 0.02:
        data = bytearray(text.encode(errors="replace") or b"-")
        data[random.randrange(len(data))] = random.randrange(256)
        return bytes(data)
    return text.encode(random.choice(("utf-8-sig", "utf-16", "utf-16-le", "utf-32", "latin-1")), errors="replace")
