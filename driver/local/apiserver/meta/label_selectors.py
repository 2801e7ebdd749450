"""Label and field selectors: parsed once for a request, matched against many objects.

Grammar: ``k8s.io/apimachinery`` ``labels`` (``a=b,c!=d,e in (f,g),h notin (i),j,!k,l>1``) and ``fields``
(``a=b,c!=d``, commas and backslashes escaped by a backslash).
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from kerf_dra.api.model.base import JsonObject
from kerf_dra.api.model.metadata import LabelSelectorRequirement as Requirement
from kerf_dra.driver.local.apiserver.meta.status_errors import ApiStatusError, bad_request, quoted
from kerf_dra.driver.scheduling.label_selector import match_labels

_TOKEN: Final = re.compile(r"\s*(!=|==|=|!|<|>|\(|\)|,|[^\s=!<>(),]+)")
_KEY: Final = re.compile(r"(?:[a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?")
_VALUE: Final = re.compile(r"(?:[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?)?")
_MAX_PART: Final = 63
"""Longest label value, and longest name part of a key (``k8s.io/apimachinery`` ``util/validation``)."""


@dataclass(frozen=True, slots=True)
class Selector:
    """Requirements that must all hold; none: everything matches."""

    requirements: tuple[Requirement, ...] = ()

    def matches(self, values: Mapping[str, str]) -> bool:
        return match_labels(self.requirements, values)


def parse_labels(text: str) -> Selector:
    """Parse a label selector. Raises ApiStatusError (400) when ``text`` is none."""
    return Selector(tuple(_LabelParser(text).requirements()))


class _LabelParser:
    def __init__(self, text: str) -> None:
        self._tokens = [match.group(1) for match in _TOKEN.finditer(text)]
        self._at = 0
        if "".join(self._tokens) != re.sub(r"\s+", "", text):
            raise self._refused(text, "selector")

    def requirements(self) -> Iterable[Requirement]:
        if not self._tokens:
            return
        while True:
            yield self._requirement()
            if self._peek() == "":
                return
            self._expect(",")

    def _requirement(self) -> Requirement:
        if self._peek() == "!":
            self._next()
            return Requirement(key=self._key(), operator="DoesNotExist")
        key = self._key()
        match self._peek():
            case "" | ",":
                return Requirement(key=key, operator="Exists")
            case "=" | "==" | "!=":
                operator = "NotIn" if self._next() == "!=" else "In"
                return Requirement(key=key, operator=operator, values=(self._value(),))
            case "in" | "notin":
                operator = "NotIn" if self._next() == "notin" else "In"
                return Requirement(key=key, operator=operator, values=self._values())
            case "<" | ">":
                operator = "Lt" if self._next() == "<" else "Gt"
                return Requirement(key=key, operator=operator, values=(self._number(),))
            case other:
                raise self._refused(other, "in, notin, =, ==, !=, gt, lt")

    def _key(self) -> str:
        key = self._next()
        if not _KEY.fullmatch(key) or len(key.rpartition("/")[2]) > _MAX_PART:
            raise self._refused(key, "identifier")
        return key

    def _value(self) -> str:
        if self._peek() in {"", ","}:
            return ""
        value = self._next()
        if not _VALUE.fullmatch(value) or len(value) > _MAX_PART:
            raise self._refused(value, "identifier")
        return value

    def _number(self) -> str:
        value = self._value()
        if not re.fullmatch(r"\d+", value):
            raise self._refused(value, "integer")
        return value

    def _values(self) -> tuple[str, ...]:
        self._expect("(")
        values = [self._item()]
        while self._peek() == ",":
            self._next()
            values.append(self._item())
        self._expect(")")
        return tuple(values)

    def _item(self) -> str:
        return "" if self._peek() in {",", ")"} else self._value()

    def _peek(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def _next(self) -> str:
        token = self._peek()
        self._at += 1
        return token

    def _expect(self, token: str) -> None:
        found = self._next()
        if found != token:
            raise self._refused(found, f"'{token}'")

    @staticmethod
    def _refused(found: str, expected: str) -> ApiStatusError:
        return bad_request(f"unable to parse requirement: found '{found}', expected: {expected}")


def parse_fields(text: str) -> Selector:
    """Parse a field selector. Raises ApiStatusError (400) when ``text`` is none."""
    return Selector(tuple(map(_field_requirement, filter(None, _split_unescaped(text)))))


def _split_unescaped(text: str) -> list[str]:
    return re.findall(r"((?:\\.|[^\\,])*)(?:,|$)", text)


def _field_requirement(term: str) -> Requirement:
    match = re.fullmatch(r"((?:\\.|[^\\=!])+)(!=|==|=)((?:\\.|[^\\=])*)", term)
    if match is None:
        raise bad_request(f"invalid selector: {quoted(term)}; can't understand {quoted(term)}")
    key, operator, value = match.groups()
    values = (re.sub(r"\\(.)", r"\1", value),)
    return Requirement(key=key, operator="NotIn" if operator == "!=" else "In", values=values)


FieldReader = Callable[[JsonObject], str]
"""Reads one selectable field; an unset one reads as the empty text."""


@dataclass(frozen=True, slots=True)
class ObjectSelector:
    """The labels and fields by which a list or watch selects objects."""

    labels: Selector
    fields: Selector
    readers: Mapping[str, FieldReader]

    def matches(self, body: JsonObject) -> bool:
        if self.labels.requirements and not self.labels.matches(body["metadata"].get("labels") or {}):
            return False
        return not self.fields.requirements or self.fields.matches(
            {requirement.key: self.readers[requirement.key](body) for requirement in self.fields.requirements}
        )


def selector_of(
    label_text: str, field_text: str, readers: Mapping[str, FieldReader], *, unsupported: str
) -> ObjectSelector:
    """Parse both selectors. Raises ApiStatusError (400) for a bad one, or a field that the kind cannot be selected by.

    ``unsupported``: the message about such a field, with ``{}`` for its name.
    """
    fields = parse_fields(field_text)
    for requirement in fields.requirements:
        if requirement.key not in readers:
            raise bad_request(unsupported.format(requirement.key))
    return ObjectSelector(parse_labels(label_text), fields, readers)
