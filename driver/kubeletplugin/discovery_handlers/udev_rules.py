"""The match keys of udev rules, parsed and evaluated (udev(7)).

A rule is a list of terms, of which all must hold::

    SUBSYSTEM=="video4linux", ATTRS{idVendor}=="046d", ENV{ID_V4L_CAPABILITIES}!="", KERNEL=="video*|vbi*"

The keys are those of Akri's udev handler; rules with others, and with assignments, are refused. What they mean is what
udev(7) says, and what ``udevadm test`` shows:

- values are patterns of fnmatch(3) without classes, or several with ``|`` between; a backslash takes the next character
  as it is;
- the keys of the plural (``KERNELS``, ``SUBSYSTEMS``, ``DRIVERS``, ``ATTRS``, ``TAGS``) look at the device and at those
  that it is behind, and all of a rule must hold for the same one of them;
- a device without an attribute does not match ``==``, and matches ``!=``; a property, a driver and a subsystem that
  there are not are empty.

Akri evaluates the plural keys and ``!=`` as regular expressions, and each plural key by itself.

A pattern is matched in the product of both lengths (greedy, with one point to go back to): who writes rules must not
keep the plugin busy.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal, Protocol, TypeAlias

from kerf_dra.api.errors import PermanentError

MAX_RULE: Final = 1024
"""The most characters of a rule: more than any line of systemd's own rules has."""

_Own: TypeAlias = Literal["ATTR", "DEVPATH", "DRIVER", "ENV", "KERNEL", "SUBSYSTEM", "TAG"]
_Plural: TypeAlias = Literal["ATTRS", "DRIVERS", "KERNELS", "SUBSYSTEMS", "TAGS"]
Key: TypeAlias = _Own | _Plural

_NAMED: Final = frozenset({"ATTR", "ATTRS", "ENV"})
"""Keys with a name in braces."""
_PLURAL: Final = {"ATTRS": "ATTR", "DRIVERS": "DRIVER", "KERNELS": "KERNEL", "SUBSYSTEMS": "SUBSYSTEM", "TAGS": "TAG"}
"""Keys that look at parents, too, with those that look at one device."""
_KEYS: Final = frozenset({*_PLURAL, *_PLURAL.values(), "DEVPATH", "ENV"})
_UNSUPPORTED: Final = frozenset(
    {
        *("ACTION", "CONST", "GOTO", "GROUP", "IMPORT", "LABEL", "MODE", "NAME", "OPTIONS", "OWNER"),
        *("PROGRAM", "RESULT", "RUN", "SECLABEL", "SYMLINK", "SYSCTL", "TEST", "WAIT_FOR"),
    }
)
"""Keys of udev that say nothing about what a device is, or that change something."""
_ASSIGNMENTS: Final = (":=", "+=", "-=", "=")


class UdevRuleError(PermanentError):
    """A text is no udev rule that discovery can use; the message has the text's place."""

    def __init__(self, rule: str, place: int, reason: str) -> None:
        """``place`` is the index of the character at which it ends to be one."""
        self.place = place
        super().__init__(f"udev rule {rule[:MAX_RULE]!r}, character {place + 1}: {reason}")


class UdevDevice(Protocol):
    """What rules look at; reading it may raise OSError, which counts as not being there."""

    @property
    def devpath(self) -> str: ...

    @property
    def name(self) -> str: ...

    @property
    def subsystem(self) -> str: ...

    @property
    def driver(self) -> str: ...

    @property
    def tags(self) -> frozenset[str]: ...

    @property
    def parent(self) -> "UdevDevice | None": ...

    def get_property(self, name: str) -> str: ...

    def read_attribute(self, name: str) -> str | None: ...


@dataclass(frozen=True, slots=True)
class _Element:
    """What one character of a text must be: one of ``ranges``, or none of them; no ``ranges``: any."""

    ranges: tuple[tuple[str, str], ...] = ()
    is_negated: bool = False

    def matches(self, character: str) -> bool:
        if not self.ranges:
            return True
        return any(first <= character <= last for first, last in self.ranges) != self.is_negated


_Pattern: TypeAlias = tuple[_Element | None, ...]
"""The elements in their order; None is a star, any number of any characters."""


@dataclass(frozen=True, slots=True)
class UdevTerm:
    """One term of a rule."""

    key: Key
    name: str
    """The name in braces; empty for keys without one."""
    is_equality: bool
    value: str
    patterns: tuple[_Pattern, ...]

    @property
    def is_plural(self) -> bool:
        return self.key in _PLURAL

    def holds_for(self, device: UdevDevice) -> bool:
        """Whether the term holds for this one device, parents left aside."""
        if self.key in {"TAG", "TAGS"}:
            return any(map(self._matches, device.tags)) == self.is_equality
        text = self._read(device)
        return (text is not None and self._matches(text)) == self.is_equality

    def _read(self, device: UdevDevice) -> str | None:
        match _PLURAL.get(self.key, self.key):
            case "ATTR":
                found = device.read_attribute(self.name)
                # As udev: the kernel ends most attributes with a line's end, and some with spaces.
                return found if found is None or self.value.endswith(" ") else found.rstrip()
            case "ENV":
                return device.get_property(self.name)
            case "DEVPATH":
                return device.devpath
            case "DRIVER":
                return device.driver
            case "KERNEL":
                return device.name
            case _:
                return device.subsystem

    def _matches(self, text: str) -> bool:
        return any(match_pattern(pattern, text) for pattern in self.patterns)


@dataclass(frozen=True, slots=True)
class UdevRule:
    """A parsed rule."""

    terms: tuple[UdevTerm, ...]

    def matches(self, device: UdevDevice) -> bool:
        """Whether all terms hold. May raise OSError where the device is gone meanwhile."""
        if not all(term.holds_for(device) for term in self.terms if not term.is_plural):
            return False
        plural = [term for term in self.terms if term.is_plural]
        return not plural or any(all(term.holds_for(ancestor) for term in plural) for ancestor in _iter_lineage(device))

    @property
    def subsystems(self) -> tuple[str, ...]:
        """Subsystems of which one must be the device's; empty: any may be."""
        for term in self.terms:
            if term.key == "SUBSYSTEM" and term.is_equality and not set(term.value) & set("*?[\\"):
                return tuple(term.value.split("|"))
        return ()


def parse_udev_rule(rule: str) -> UdevRule:
    """Parse a rule. Raises UdevRuleError for one that is empty or too long, with other keys, or assigns anything."""
    if len(rule) > MAX_RULE:
        raise UdevRuleError(rule, MAX_RULE, f"is longer than {MAX_RULE} characters")
    return UdevRule(tuple(_Parser(rule).parse()))


def match_pattern(pattern: _Pattern, text: str) -> bool:
    """Whether ``pattern`` matches all of ``text``.

    The search is greedy: after a star, the shortest possible text is given to it, and only the last star may get more.
    """
    at, element, star, resume = 0, 0, -1, 0
    while at < len(text):
        expected = pattern[element] if element < len(pattern) else _END
        if expected is None:
            star, resume = element, at
            element += 1
        elif expected.matches(text[at]):
            at, element = at + 1, element + 1
        elif star >= 0:
            resume += 1
            at, element = resume, star + 1
        else:
            return False
    return all(rest is None for rest in pattern[element:])


_END: Final = _Element((("", ""),))
"""Stands behind a pattern: it matches no character."""


def _iter_lineage(device: UdevDevice) -> Iterator[UdevDevice]:
    """Yield the device and those that it is behind, nearest first."""
    each: UdevDevice | None = device
    while each is not None:
        yield each
        each = each.parent


class _Parser:
    """Parses one rule: ``key[{name}] operator "value"`` with commas between, spaces anywhere between these."""

    def __init__(self, rule: str) -> None:
        self._rule = rule
        self._at = 0

    def parse(self) -> Iterator[UdevTerm]:
        while True:
            yield self._parse_term()
            self._skip_spaces()
            if self._at == len(self._rule):
                return
            self._expect(",", "expected a comma or the end")

    def _parse_term(self) -> UdevTerm:
        self._skip_spaces()
        key = self._parse_key()
        name = self._parse_name(key)
        self._skip_spaces()
        is_equality = self._parse_operator()
        self._skip_spaces()
        value, began = self._parse_value()
        patterns = tuple(self._parse_pattern(began, text) for text in _split(value))
        return UdevTerm(key=key, name=name, is_equality=is_equality, value=value, patterns=patterns)

    def _parse_key(self) -> Key:
        began = self._at
        while self._at < len(self._rule) and (self._rule[self._at].isalpha() or self._rule[self._at] == "_"):
            self._at += 1
        word = self._rule[began : self._at]
        if word in _UNSUPPORTED:
            raise UdevRuleError(self._rule, began, f"{word} says nothing about what a device is")
        if word not in _KEYS:
            what = f"{word!r} is none of" if word else "expected one of"
            raise UdevRuleError(self._rule, began, f"{what} the keys {', '.join(sorted(_KEYS))}")
        return word  # type: ignore[return-value]  # it is one of them

    def _parse_name(self, key: Key) -> str:
        is_there = self._rule[self._at : self._at + 1] == "{"
        if key not in _NAMED:
            if is_there:
                raise UdevRuleError(self._rule, self._at, f"{key} has no name in braces")
            return ""
        began = self._at + 1
        self._expect("{", f"{key} needs a name in braces, such as {key}{{name}}")
        end = self._rule.find("}", began)
        name = self._rule[began:end].strip() if end >= 0 else ""
        if not name:
            raise UdevRuleError(self._rule, began, f"{key} needs a name and a closing brace")
        if key != "ENV" and (name.startswith("/") or not {*name.split("/")}.isdisjoint({"", ".", ".."})):
            raise UdevRuleError(self._rule, began, f"{name!r} is no attribute of a device")
        self._at = end + 1
        return name

    def _parse_operator(self) -> bool:
        operator = self._rule[self._at : self._at + 2]
        if operator in {"==", "!="}:
            self._at += 2
            return operator == "=="
        if operator.startswith(_ASSIGNMENTS):
            raise UdevRuleError(self._rule, self._at, "rules of discovery compare (==, !=) and assign nothing")
        raise UdevRuleError(self._rule, self._at, "expected == or !=")

    def _parse_value(self) -> tuple[str, int]:
        self._expect('"', "expected a value in double quotes")
        began = self._at
        end = self._rule.find('"', began)
        if end < 0:
            raise UdevRuleError(self._rule, began, "the value has no closing quote")
        self._at = end + 1
        value = self._rule[began:end]
        if not value.isprintable():
            raise UdevRuleError(self._rule, began, "the value has a character that is no text")
        return value, began

    def _parse_pattern(self, began: int, text: str) -> _Pattern:
        elements: list[_Element | None] = []
        at = 0
        while at < len(text):
            match text[at]:
                case "*":
                    if elements[-1:] != [None]:
                        elements.append(None)
                case "?":
                    elements.append(_Element())
                case "[":
                    element, at = self._parse_set(began, text, at)
                    elements.append(element)
                case "\\":
                    at += 1
                    if at == len(text):
                        raise UdevRuleError(self._rule, began, "a pattern ends with a backslash")
                    elements.append(_Element(((text[at], text[at]),)))
                case character:
                    elements.append(_Element(((character, character),)))
            at += 1
        return tuple(elements)

    def _parse_set(self, began: int, text: str, at: int) -> tuple[_Element, int]:
        """Parse ``[...]`` from ``at``; returns it with the index of its last character."""
        inner = at + 1
        is_negated = text[inner : inner + 1] in {"!", "^"}
        inner += is_negated
        end = text.find("]", inner + 1)  # a bracket that comes first is one of the characters
        if end < 0:
            raise UdevRuleError(self._rule, began, "a pattern has an opening bracket without a closing one")
        characters = text[inner:end]
        if any(f"[{mark}" in characters for mark in ":.="):
            raise UdevRuleError(self._rule, began, "classes such as [:digit:] are not supported: write [0-9]")
        ranges: list[tuple[str, str]] = []
        index = 0
        while index < len(characters):
            if characters[index + 1 : index + 2] == "-" and index + 2 < len(characters):
                ranges.append((characters[index], characters[index + 2]))
                index += 3
            else:
                ranges.append((characters[index], characters[index]))
                index += 1
        return _Element(tuple(ranges), is_negated), end

    def _skip_spaces(self) -> None:
        while self._rule[self._at : self._at + 1].isspace():
            self._at += 1

    def _expect(self, character: str, reason: str) -> None:
        if self._rule[self._at : self._at + 1] != character:
            raise UdevRuleError(self._rule, self._at, reason)
        self._at += 1


def _split(value: str) -> Sequence[str]:
    """Split alternatives at ``|``, as udev does: before it looks at anything else of the patterns."""
    return value.split("|")
