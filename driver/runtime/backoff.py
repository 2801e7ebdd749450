"""Exponential back-off with jitter: how long to wait before the next try."""

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Final

_JITTER: Final = Random()  # noqa: S311  (no secret)
"""Seeded by the operating system, so that two processes differ."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """The delays ``first_s``, then each ``factor`` times the one before, at most ``limit_s``; all in seconds.

    ``jitter`` is the largest part of a delay that is added to it at random (0.5: up to half as much again), so that
    many clients of one failed server do not come back at the same time.
    """

    first_s: float
    factor: float
    limit_s: float
    jitter: float

    def __post_init__(self) -> None:
        if not (0 < self.first_s <= self.limit_s and self.factor >= 1 and self.jitter >= 0):
            raise ValueError(f"{self} does not back off")

    def delays(self, random: Random = _JITTER) -> Iterator[float]:
        """Yield delays without end. After a success, take a new iterator."""
        delay = self.first_s
        while True:
            yield delay * (1 + self.jitter * random.random())
            delay = min(delay * self.factor, self.limit_s)
