"""Exact values of the best policies of a small loss system, by a Markov decision process.

Requests for each profile arrive at a rate (Poisson) and hold what they get for an exponential time of mean 1. So what
is in use is a Markov chain in continuous time, and whoever chooses among places controls it: a Markov decision process.
A ``Chain`` says which choices there are; a policy is a chain with one.

For any values h of its states let (Bh)(s) be what happens in s per unit of time: over the profiles, arrival rate times
the best choice's reward + h(there) − h(s); over those who leave, rate times h(there) − h(s). No policy earns more in
the long run than the maximum of Bh, and the one that takes the best choices earns no less than its minimum (Puterman,
Markov Decision Processes, 1994, section 8.5 on relative value iteration, 11.5 on continuous time). So an answer is
checked by itself, however its h was found.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from itertools import zip_longest
from typing import Final, NamedTuple, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

S = TypeVar("S", bound=Hashable)

States: TypeAlias = NDArray[np.int32]
Values: TypeAlias = NDArray[np.float64]

SLOWEST: Final = 2.0
"""Guessed rate at which a loss system forgets: 1 without losses, more with them. A wrong guess costs sweeps only."""
SWEEPS: Final = 10_000
"""Some hundreds are usual."""


class Chain(NamedTuple):
    """States are numbers, 0 is where nothing is in use."""

    choices: tuple[States, ...]
    """For each profile, a column per state: where accepting may lead, -1 for nowhere (else)."""
    leaving: States
    """A column per state: where it leads when a partition in use ends."""
    rates: Values
    """How often each of ``leaving`` happens."""


class Range(NamedTuple):
    """Bounds of the share of the offered load that the best policy accepts, in percent."""

    low: float
    high: float


def explore(
    start: S, profiles: Sequence[str], choices: Callable[[S, str], Iterable[S]], leaving: Callable[[S], Mapping[S, int]]
) -> Chain:
    """Explore all reachable states; ``leaving``: the number of partitions whose end leads to each next state."""
    numbers, states = {start: 0}, [start]

    def number(state: S) -> int:
        if state not in numbers:
            numbers[state] = len(states)
            states.append(state)
        return numbers[state]

    accepted: list[list[list[int]]] = [[] for _ in profiles]
    ended: list[list[int]] = []
    rates: list[list[int]] = []
    for state in states:  # which grows meanwhile
        for profile, rows in zip(profiles, accepted, strict=True):
            rows.append([number(each) for each in choices(state, profile)])
        leads = leaving(state)
        ended.append([number(each) for each in leads])
        rates.append(list(leads.values()))
    tables = tuple(np.array(_columns(rows, -1), dtype=np.int32) for rows in accepted)
    return Chain(tables, np.array(_columns(ended, 0), dtype=np.int32), np.array(_columns(rates, 0), dtype=np.float64))


def _columns(rows: Sequence[Sequence[int]], nothing: int) -> list[tuple[int, ...]]:
    return list(zip_longest(*rows, fillvalue=nothing)) or [(nothing,) * len(rows)]


def solve_best_policy(
    chain: Chain, arrivals: Sequence[float], rewards: Sequence[float], *, may_refuse: bool, within: float = 0.01
) -> Range:
    """What the best policy accepts of the offered rewards; ``arrivals`` and ``rewards`` by profile.

    Who may not ``may_refuse`` takes whatever has a choice. The answer's ends are at most ``within`` percent apart.
    """
    offered = sum(rate * reward for rate, reward in zip(arrivals, rewards, strict=True))
    values = before = np.zeros(chain.leaving.shape[1])
    step, momentum = _choose_step_sizes(sum(arrivals) + chain.rates.sum(axis=0).max())
    for _ in range(SWEEPS):
        change = _change(chain, values, arrivals, rewards, may_refuse)
        answer = Range(100 * float(change.min()) / offered, 100 * float(change.max()) / offered)
        if answer.high - answer.low <= within:
            return answer
        values, before = values + step * (change - change[0]) + momentum * (values - before), values
    raise ArithmeticError(f"{SWEEPS} sweeps were not enough for an answer within {within} percent")


def _choose_step_sizes(busiest: float) -> tuple[float, float]:
    """Step and momentum of the heavy-ball method (Polyak, 1964).

    They suit a linear system whose eigenvalues lie from ``SLOWEST`` to twice the highest rate at which a state is
    left, beyond which by Gershgorin none can lie.
    """
    fast, slow = (2 * busiest) ** 0.5, min(SLOWEST, 2 * busiest) ** 0.5
    return 4 / (fast + slow) ** 2, ((fast - slow) / (fast + slow)) ** 2


def _change(
    chain: Chain, values: Values, arrivals: Sequence[float], rewards: Sequence[float], may_refuse: bool
) -> Values:
    """Bh of ``values``."""
    change: Values = (chain.rates * (values[chain.leaving] - values)).sum(axis=0)
    there = np.append(values, -np.inf)  # which -1 finds
    for rate, reward, table in zip(arrivals, rewards, chain.choices, strict=True):
        gain = there[table].max(axis=0) + reward - values
        change += rate * (np.maximum(gain, 0) if may_refuse else np.where(table[0] < 0, 0, gain))
    return change
