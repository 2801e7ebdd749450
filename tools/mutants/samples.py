"""Samples of mutants: always the same for one seed, as long as their lines stay."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from tools.mutants.operators import Mutant
from tools.mutants.structural import STRUCTURAL, STRUCTURAL_ONLY


def _is_token(mutant: Mutant) -> bool:
    return mutant.operator not in STRUCTURAL_ONLY


def _is_structural(mutant: Mutant) -> bool:
    return mutant.operator in STRUCTURAL


OPERATORS: Final[Mapping[str, Callable[[Mutant], bool]]] = {"token": _is_token, "structural": _is_structural}
"""The kinds of operators: those that replace a token or one simple statement, and those that skip, swap or thin out."""


def take(mutants: Iterable[Mutant], seed: int, size: int) -> list[Mutant]:
    """Return ``size`` mutants (0: all) in the order of ``seed``."""
    return sorted(mutants, key=lambda mutant: mutant.rank(seed))[: size or None]


def take_over_groups(mutants: Mapping[str, Sequence[Mutant]], seed: int, size: int) -> dict[str, list[Mutant]]:
    """Return ``size`` mutants in all, by their group.

    They are taken in turn of each operator of each group, or a large group and an operator with many mutants, such as
    swapped arguments, would leave little room for the others.
    """
    strata: defaultdict[tuple[str, str], list[Mutant]] = defaultdict(list)
    for group, found in mutants.items():
        for mutant in take(found, seed, 0):
            strata[group, mutant.operator].append(mutant)
    ranked = (
        (index, mutant.rank(seed), group, mutant)
        for (group, _), stratum in strata.items()
        for index, mutant in enumerate(stratum)
    )
    taken: dict[str, list[Mutant]] = {group: [] for group in mutants}
    for _, _, group, mutant in sorted(ranked, key=lambda each: each[:3])[:size]:
        taken[group].append(mutant)
    return taken
