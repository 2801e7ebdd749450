"""Times as Kubernetes stores and prints them."""

import math
from datetime import datetime
from typing import Final


def parse_time(text: str) -> datetime | None:
    """Return the time that an RFC 3339 text gives; None for any other text."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment if moment.tzinfo else None


_MINUTE, _HOUR, _DAY, _YEAR = 60, 3600, 86_400, 365 * 86_400
_DURATION_FORMATS: Final = (
    (2 * _MINUTE, 1, "s", 0, ""),
    (10 * _MINUTE, _MINUTE, "m", 1, "s"),
    (3 * _HOUR, _MINUTE, "m", 0, ""),
    (8 * _HOUR, _HOUR, "h", _MINUTE, "m"),
    (2 * _DAY, _HOUR, "h", 0, ""),
    (8 * _DAY, _DAY, "d", _HOUR, "h"),
    (2 * _YEAR, _DAY, "d", 0, ""),
    (8 * _YEAR, _YEAR, "y", _DAY, "d"),
    (math.inf, _YEAR, "y", 0, ""),
)
"""The upper bound in seconds, then the unit and the unit of the rest, if any, of durations below it."""


def format_duration(seconds: int) -> str:
    """Return a duration in one or two units, as the column AGE shows it (``k8s.io/apimachinery`` ``util/duration``)."""
    if seconds < -1:
        return "<invalid>"
    seconds = max(seconds, 0)
    unit, sign, rest_unit, rest_sign = next(row[1:] for row in _DURATION_FORMATS if seconds < row[0])
    rest = seconds % unit // rest_unit if rest_unit else 0
    return f"{seconds // unit}{sign}" + (f"{rest}{rest_sign}" if rest else "")


def format_age(text: object, now: datetime) -> str:
    """Return the time since an RFC 3339 text, as ``kubectl get`` prints it."""
    moment = parse_time(text) if isinstance(text, str) else None
    return "<unknown>" if moment is None else format_duration(int((now - moment).total_seconds()))
