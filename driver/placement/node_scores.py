"""The scores of nodes from their placement ranks. Pure.

kube-scheduler takes scores from 0 to 10 and adds them, times the extender's weight and 10, to those of its plugins
(``MaxExtenderPriority`` in ``k8s.io/kube-scheduler/extender/v1``). So there are eleven ranks: nodes with the best rank
get 10, those with the next one 9, and from the eleventh on all get 0. Nodes without a rank get 0. Nodes with one rank
have one score, and the scheduler's own scores decide among them.
"""

from collections.abc import Iterable, Mapping
from typing import Final, TypeAlias

Rank: TypeAlias = tuple[int, int]
"""The rank of a node; the lower one is better. Ranks of one pod are of one kind."""
BEST_SCORE: Final = 10
"""The highest score that kube-scheduler takes from an extender (``MaxExtenderPriority``)."""


def score_nodes(names: Iterable[str], ranks: Mapping[str, Rank]) -> dict[str, int]:
    """Return the score of each of ``names``; ``ranks`` are those of the nodes that have one.

    >>> score_nodes(["a", "b", "c"], {"a": (2, 8), "b": (1, 8)})
    {'a': 9, 'b': 10, 'c': 0}
    """
    best_first = sorted(set(ranks.values()))
    scores = {rank: max(BEST_SCORE - position, 0) for position, rank in enumerate(best_first)}
    return {name: scores[ranks[name]] if name in ranks else 0 for name in names}
