"""The metrics and labels that a PromQL expression names, as far as alerts and dashboards need."""

import re
from typing import Final, NamedTuple

_STRING: Final = re.compile(r'"(?:[^"\\]|\\.)*"')
_SELECTOR: Final = re.compile(r"([a-zA-Z_:][\w:]*)\s*\{([^}]*)\}")
_LABELS: Final = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\(([^)]*)\)")
_MADE: Final = re.compile(r'label_replace\([^"]*?"(\w+)"|,\s*"(\w+)",\s*"\$1"')
_RANGE: Final = re.compile(r"\[[^\]]*\]")
_NAME: Final = re.compile(r"(?<![\w.$])[a-zA-Z_:][\w:]*")
_CALL: Final = re.compile(r"\b([a-z_0-9]+)\s*\(")
_KEYWORDS: Final = frozenset(
    {"and", "or", "unless", "by", "on", "without", "ignoring", "group_left", "group_right", "bool"}
)


class Expression(NamedTuple):
    """What an expression names."""

    selectors: tuple[tuple[str, frozenset[str]], ...]
    """Each metric with the labels of its matchers."""
    grouped: frozenset[str]
    """The labels by which it groups and joins."""
    made: frozenset[str]
    """The labels that it makes itself."""

    @property
    def metrics(self) -> frozenset[str]:
        return frozenset(name for name, _ in self.selectors)


def parse(text: str) -> Expression:
    """Read an expression; it must be valid, which promtool says."""
    made = frozenset(name for pair in _MADE.findall(text) for name in pair if name)
    bare = _STRING.sub('""', text)
    grouped = frozenset(
        label.strip() for labels in _LABELS.findall(bare) for label in labels.split(",") if label.strip()
    )
    selectors = [
        (name, frozenset(part.strip() for part in re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", matchers)))
        for name, matchers in _SELECTOR.findall(bare)
    ]
    rest = _RANGE.sub(" ", _LABELS.sub(" ", _SELECTOR.sub(" ", bare)))
    functions = set(_CALL.findall(rest))
    names = set(_NAME.findall(_STRING.sub(" ", rest))) - functions - _KEYWORDS
    return Expression((*selectors, *((name, frozenset[str]()) for name in sorted(names))), grouped, made)
