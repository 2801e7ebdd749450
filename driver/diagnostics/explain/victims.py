"""Which running claims would have to end for something to fit: the smallest set that is found, and none too many.

Whether a set is enough is never reasoned about but tried: the caller allocates again without it.
"""

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Final, Generic, TypeVar

T = TypeVar("T", bound=Hashable)

DEFAULT_TRIALS: Final = 1000
"""Trials for one node: every set of the claims of eight cards with seven each."""


@dataclass(slots=True)
class Trials(Generic[T]):
    """Counts how often ``suffices`` is asked: each answer costs an allocation."""

    suffices: Callable[[frozenset[T]], bool]
    left: int = DEFAULT_TRIALS

    def __call__(self, ended: Iterable[T]) -> bool:
        """Whether ending these is enough; False when no trial is left."""
        if self.left <= 0:
            return False
        self.left -= 1
        return self.suffices(frozenset(ended))


def smallest_release(areas: Sequence[Sequence[T]], trials: Trials[T]) -> tuple[T, ...] | None:
    """A set of which none could stay: the smallest within any one area, else a small one; None: none is known.

    ``areas`` group what competes for the same hardware, such as the claims of one card; something may be in several.
    Inside an area those stand first whose end should be asked for last. Empty when it fits as things are.
    """
    everything = list(dict.fromkeys(each for area in areas for each in area))
    if trials(()):
        return ()
    if not trials(everything):
        return None
    for each in everything:
        if trials([each]):
            return (each,)
    enough = [area for area in areas if len(area) > 1 and trials(area)]
    found = [_reduced(area, trials) for area in enough or [everything]]
    best = min(found, key=len)
    return (_smaller(enough, len(best), trials) or best) if trials.left else None


def _smaller(areas: Iterable[Sequence[T]], size: int, trials: Trials[T]) -> tuple[T, ...] | None:
    """The smallest set inside an area that is enough and has fewer than ``size``; single ones have been tried."""
    sets = (ended for few in range(2, size) for area in areas for ended in combinations(reversed(area), few))
    return next((ended for ended in sets if trials(ended)), None)


def _reduced(ended: Sequence[T], trials: Trials[T]) -> tuple[T, ...]:
    """Without those that may stay, given that ending all of ``ended`` is enough."""
    needed = list(ended)
    for each in ended:
        others = [other for other in needed if other != each]
        if trials(others):
            needed = others
    return tuple(needed)
