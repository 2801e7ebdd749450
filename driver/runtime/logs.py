"""Logging: the standard library's, one line per record on stderr, as text for people or as JSON for machines.

Fields of a whole flow (``claim``, ``request_id`` …) are set once with ``context`` and stand on every line logged
inside, also by tasks started there. Bearer tokens are removed from every line. What others have written into a message
begins no line of its own: in text only the lines of a traceback follow a record, each indented.
"""

import json
import logging
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from textwrap import indent
from typing import Final, Literal, TextIO, TypeAlias, TypedDict, Unpack

from kerf_dra.api.model.printable_text import replace_unprintable

Format: TypeAlias = Literal["text", "json"]


class Fields(TypedDict, total=False):
    """The keys that a line may carry beside time, level, logger, message and error."""

    claim: str
    claim_uid: str
    node: str
    driver: str
    pool: str
    device: str
    request_id: str


_fields: ContextVar[Fields] = ContextVar("fields", default=Fields())  # noqa: B039  (never changed, only replaced)

_SECRET: Final = re.compile(r"(?i)(?<=bearer )[\w.~+/=-]+|\beyJ[\w-]+\.[\w-]+\.[\w-]+")
"""What follows ``Bearer`` in an Authorization header, and JSON web tokens: service account tokens are such."""


@contextmanager
def context(**fields: Unpack[Fields]) -> Iterator[None]:
    """Add ``fields`` to every record logged inside, beside the fields of enclosing contexts."""
    token = _fields.set({**_fields.get(), **fields})
    try:
        yield
    finally:
        _fields.reset(token)


def configure(*, level: str, format: Format, stream: TextIO | None = None) -> None:  # noqa: A002  (its usual name)
    """Send all records of at least ``level`` (``debug``, ``info`` …) to ``stream``, stderr by default.

    Replaces any earlier configuration. Raises ValueError for an unknown level.
    """
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter() if format == "json" else TextFormatter())
    root = logging.getLogger()
    root.setLevel(level.upper())
    root.handlers[:] = [handler]
    logging.captureWarnings(True)


class JsonFormatter(logging.Formatter):
    """``{"time": …, "level": …, "logger": …, "message": …, <fields>, "error": <traceback>}``."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": _utc(record),
            "level": record.levelname.lower(),
            "logger": _logger_name(record),
            "message": _without_secrets(record.getMessage()),
            **_fields.get(),
        }
        if record.exc_info:
            line["error"] = _without_secrets(self.formatException(record.exc_info))
        # Whatever others have written, and bytes that are no UTF-8 in names of files, is printable ASCII here.
        return json.dumps(line, separators=(",", ":")).replace("\x7f", r"\u007f")


class TextFormatter(logging.Formatter):
    """``2026-11-20T08:30:00.123Z INFO    driver.kube.informer: message  claim=default/training node=n1``."""

    def format(self, record: logging.LogRecord) -> str:
        line = f"{_utc(record)} {record.levelname:<7} {_logger_name(record)}: {record.getMessage()}"
        fields = " ".join(f"{key}={value}" for key, value in _fields.get().items())
        if fields:
            line = f"{line}  {fields}"
        line = replace_unprintable(line)
        if record.exc_info:
            lines = replace_unprintable(self.formatException(record.exc_info), kept="\n")
            line = f"{line}\n{indent(lines, '  ')}"
        return _without_secrets(line)


def _logger_name(record: logging.LogRecord) -> str:
    """Return the name of the module below the import package, as queries over logs have it."""
    return record.name.removeprefix("kerf_dra.")


def _utc(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"


def _without_secrets(text: str) -> str:
    return _SECRET.sub("[secret]", text)
