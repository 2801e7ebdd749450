"""At most how many things can be had together, when each takes a share of a few resources.

Things are devices; resources are counter sets, or values that no two devices may have in common. Only an upper bound:
what it says cannot be had cannot be had. It looks at each part by itself in which things compete, and at two resources
of each thing as the ends of an edge: then it is a matching, whose fractional optimum is a flow. A small part is tried
out instead.
"""

from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from typing import Final

from driver.allocation.semantics.bitset import bits

_TRIED: Final = 300
"""Choices tried for one part: a few milliseconds. Parts that need more have no other answer than the flow's."""


def most(things: Sequence[Sequence[int]], rooms: Mapping[int, int]) -> int:
    """A bound for ``things``, each given by its resources; ``rooms`` has those of which more than one thing may be."""
    free = sum(not resources for resources in things)
    return free + sum(_most_of_part([things[thing] for thing in part], rooms) for part in _parts(things))


def _parts(things: Sequence[Sequence[int]]) -> list[list[int]]:
    """The things that compete with each other, if not directly, then through others."""
    up: dict[int, int] = {}

    def root(resource: int) -> int:
        while (above := up.setdefault(resource, resource)) != resource:
            resource = above
        return resource

    for resources in things:
        for other in resources[1:]:
            up[root(other)] = root(resources[0])
    parts: dict[int, list[int]] = defaultdict(list)
    for thing, resources in enumerate(things):
        if resources:
            parts[root(resources[0])].append(thing)
    return list(parts.values())


def _most_of_part(things: Sequence[Sequence[int]], rooms: Mapping[int, int]) -> int:
    exact = _Trials(things, rooms).run()
    return _Flow(things, rooms).run() // 2 if exact is None else exact


class _Trials:
    """The largest set without two things that need the same resource of which only one may be."""

    def __init__(self, things: Sequence[Sequence[int]], rooms: Mapping[int, int]) -> None:
        users: dict[int, int] = defaultdict(int)
        for thing, resources in enumerate(things):
            for resource in resources:
                if rooms.get(resource, 1) < 2:
                    users[resource] |= 1 << thing
        self._with = [1 << thing for thing in range(len(things))]
        """Each thing with all that it excludes."""
        for mask in users.values():
            for thing in bits(mask):
                self._with[thing] |= mask
        self._known: dict[int, int] = {0: 0}
        self._is_exact = all(rooms.get(resource, 1) == 1 for resources in things for resource in resources)

    def run(self) -> int | None:
        """None: it takes too long to find out, or exclusion is not all that there is to it."""
        return self._most((1 << len(self._with)) - 1) if self._is_exact else None

    def _most(self, things: int) -> int | None:
        if things not in self._known:
            if len(self._known) > _TRIED:
                return None
            fewest = min(bits(things), key=lambda thing: (self._with[thing] & things).bit_count())
            best = 0
            for thing in bits(self._with[fewest] & things):  # one of these is in some largest set
                rest = self._most(things & ~self._with[thing])
                if rest is None:
                    return None
                best = max(best, 1 + rest)
            self._known[things] = best
        return self._known[things]


class _Flow:
    """Twice as many as can be had by halves: a flow from resources to resources, through every thing in both ways."""

    def __init__(self, things: Sequence[Sequence[int]], rooms: Mapping[int, int]) -> None:
        self._rooms = rooms
        self._edges: list[tuple[int, int]] = []
        for thing, resources in enumerate(things):
            one, other = resources[0], resources[1] if len(resources) > 1 else -1 - thing
            self._edges += [(one, other), (other, one)]
        self._out: dict[int, list[int]] = defaultdict(list)
        for number, (start, _) in enumerate(self._edges):
            self._out[start].append(number)
        self._into: dict[int, set[int]] = defaultdict(set)
        """The edges in use, by where they end."""
        self._used: set[int] = set()

    def run(self) -> int:
        flow = 0
        for start in list(self._out):
            for _ in range(min(self._rooms.get(start, 1), len(self._out[start]))):
                if not self._augment(start):
                    break
                flow += 1
        return flow

    def _augment(self, start: int) -> bool:
        """One more unit from ``start``, if others can give way."""
        came: dict[int, tuple[int, int]] = {}
        """By the edge on which a place was reached: the edge before, and the one that gives way for it."""
        queue = deque((edge, -1, -1) for edge in self._out[start] if edge not in self._used)
        while queue:
            edge, before, giving = queue.popleft()
            if edge in came:
                continue
            came[edge] = before, giving
            end = self._edges[edge][1]
            if len(self._into[end]) < self._rooms.get(end, 1):
                self._take(edge, came)
                return True
            for other in self._into[end]:
                queue.extend(
                    (following, edge, other)
                    for following in self._out[self._edges[other][0]]
                    if following not in self._used and following not in came
                )
        return False

    def _take(self, edge: int, came: Mapping[int, tuple[int, int]]) -> None:
        while edge >= 0:
            before, giving = came[edge]
            if giving >= 0:
                self._used.discard(giving)
                self._into[self._edges[giving][1]].discard(giving)
            self._used.add(edge)
            self._into[self._edges[edge][1]].add(edge)
            edge = before
