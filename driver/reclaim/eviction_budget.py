"""The most evictions in an hour, of the cluster and of each namespace: a sliding window (rate limiting by a log).

What is counted is kept in memory: a reclaimer that starts again begins a new hour. A place is taken before an eviction
is tried, and given back if the API server has refused it: an eviction whose answer was lost counts.
"""

from collections import Counter, deque
from dataclasses import dataclass, field
from typing import Final

WINDOW_S: Final = 3600.0
"""The length of the window in seconds: the hour of which the options speak."""


@dataclass(slots=True)
class EvictionBudget:
    """The evictions of the last hour; times are monotonic seconds."""

    limit: int
    """The most of the cluster."""
    namespace_limit: int
    """The most of one namespace."""
    _evicted: deque[tuple[float, str]] = field(default_factory=deque)
    """The time and namespace of each, the oldest first."""
    _of_namespace: Counter[str] = field(default_factory=Counter)

    def take(self, namespace: str, now: float) -> str:
        """Take a place for the eviction of a pod in ``namespace``; returns why there is none, empty: it is taken."""
        while self._evicted and self._evicted[0][0] <= now - WINDOW_S:
            self._forget(self._evicted.popleft()[1])
        if len(self._evicted) >= self.limit:
            return f"at most {self.limit} pods of the cluster are evicted in an hour (--reclaim-evictions)"
        if self._of_namespace[namespace] >= self.namespace_limit:
            return (
                f"at most {self.namespace_limit} pods of namespace {namespace} are evicted in an hour "
                "(--reclaim-namespace-evictions)"
            )
        self._evicted.append((now, namespace))
        self._of_namespace[namespace] += 1
        return ""

    def give_back(self) -> None:
        """Give back the place that was taken last."""
        self._forget(self._evicted.pop()[1])

    def _forget(self, namespace: str) -> None:
        self._of_namespace[namespace] -= 1
        if not self._of_namespace[namespace]:
            del self._of_namespace[namespace]
