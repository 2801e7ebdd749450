"""YAML events to plain values, for ``cdi.skimming``: only what every reader understands alike."""

from collections.abc import Callable
from typing import NoReturn, TypeAlias

import yaml
from yaml import (
    CollectionStartEvent,
    DocumentStartEvent,
    Event,
    MappingEndEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
    StreamEndEvent,
)

from cdi.nodes import MAX_DEPTH
from cdi.scalars import resolve

Plain: TypeAlias = "str | int | bool | list[Plain] | dict[str, Plain]"

_Next: TypeAlias = Callable[[], Event]

# Without libyaml nothing is gained: then every document goes the long way.
_Loader = getattr(yaml, "CSafeLoader", None)


def plain_value(data: bytes) -> Plain:
    """The one document in ``data``. Errors: ValueError when there is anything doubtful about it."""
    if _Loader is None:
        raise ValueError
    next_event: _Next = _Loader(data).get_event
    try:
        _, start = next_event(), next_event()
        value = _value(next_event(), next_event, 0)
        _, end = next_event(), next_event()
    except yaml.YAMLError as error:
        raise ValueError from error
    is_plain = isinstance(start, DocumentStartEvent) and start.version is None and isinstance(end, StreamEndEvent)
    return value if is_plain else _doubt()


def _doubt() -> NoReturn:
    raise ValueError


def _value(event: Event, next_event: _Next, depth: int) -> Plain:
    if isinstance(event, ScalarEvent):
        return _scalar(event)
    if not isinstance(event, CollectionStartEvent) or event.anchor is not None or event.tag is not None:
        raise ValueError
    if depth > MAX_DEPTH:
        raise ValueError
    read = _list if isinstance(event, SequenceStartEvent) else _mapping
    return read(next_event, depth + 1)


def _list(next_event: _Next, depth: int) -> Plain:
    items = []
    while not isinstance(event := next_event(), SequenceEndEvent):
        items.append(_value(event, next_event, depth))
    return items


def _mapping(next_event: _Next, depth: int) -> Plain:
    entries: dict[str, Plain] = {}
    while not isinstance(event := next_event(), MappingEndEvent):
        key = _value(event, next_event, depth)
        if not isinstance(key, str) or key in entries or key == "<<":
            raise ValueError
        entries[key] = _value(next_event(), next_event, depth)
    return entries


def _scalar(event: ScalarEvent) -> Plain:
    if event.anchor is not None or event.tag is not None:
        raise ValueError
    text = event.value
    if event.style:
        return text
    value = resolve(text)
    # A question mark ends a bare text in some places, to some parsers.
    if isinstance(value, str) and "?" not in text:
        return value
    if isinstance(value, int) and text in (str(value), str(value).lower()):
        return value
    raise ValueError
