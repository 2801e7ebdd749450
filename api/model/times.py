"""Times as Kubernetes writes them."""

from datetime import UTC, datetime


def format_time(moment: datetime) -> str:
    """Return a ``metav1.Time``: RFC 3339 in whole seconds, UTC."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def format_unix_time(seconds: float) -> str:
    """Return Unix time in seconds as a ``metav1.Time``."""
    return format_time(datetime.fromtimestamp(seconds, UTC))
