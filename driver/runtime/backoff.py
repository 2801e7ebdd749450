"""How long to wait before the next try."""

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random


@dataclass(frozen=True, slots=True)
class Backoff:
    """Exponential delays with jitter, in seconds: ``first_s``, then ``factor`` times longer each, at most ``limit_s``.

    ``jitter`` is the largest part of a delay that is added to it at random (0.5: up to half as much again), so that
    many clients of one failed server do not come back in step.
    """

    first_s: float
    factor: float
    limit_s: float
    jitter: float

    def __post_init__(self) -> None:
        if not (0 < self.first_s <= self.limit_s and self.factor >= 1 and self.jitter >= 0):
            raise ValueError(f"{self} does not back off")

    def delays(self, random: Random) -> Iterator[float]:
        """Endless. Take a new iterator after a success."""
        delay = self.first_s
        while True:
            yield delay * (1 + self.jitter * random.random())
            delay = min(delay * self.factor, self.limit_s)
