"""Times of API objects, compared with the time of the snapshot."""

from datetime import UTC, datetime


def seconds_between(earlier: str | None, later: str | None) -> float | None:
    """Return the seconds from one time in RFC 3339 to another; None when one of them is absent or no such time."""
    first, last = _parse(earlier), _parse(later)
    return None if first is None or last is None else (last - first).total_seconds()


def format_seconds(seconds: float) -> str:
    """Return a duration as people write it: ``30 s``, ``5 min``, ``3 h``."""
    for unit, factor, most in (("s", 1, 120), ("min", 60, 7200), ("h", 3600, 172800)):
        if seconds < most:
            return f"{seconds / factor:.0f} {unit}"
    return f"{seconds / 86400:.0f} d"


def _parse(time: str | None) -> datetime | None:
    try:
        parsed = datetime.fromisoformat(time or "")
    except ValueError:
        return None
    return parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)
