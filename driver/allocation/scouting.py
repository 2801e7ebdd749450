"""A look ahead: whether what is left of a search can be served at all, in whatever order finds out soonest.

The search proper must take requests and devices as they come, because its first solution is the answer. A scout only
says whether there is any, so it may begin with what has the fewest devices to choose from and skip what is as good as
what failed. Its "no" is certain; its "yes" comes with a solution, and while the search follows that one, no more
looking is needed. It gives up after a number of looks: then it does not know.
"""

from collections import Counter, defaultdict
from collections.abc import Hashable, Mapping, Sequence
from math import inf
from operator import gt, sub
from typing import Final

from driver.allocation.filling import Filling
from driver.allocation.ground import Ground
from driver.allocation.likeness import Likeness
from driver.allocation.search.assignment import Tally
from driver.allocation.search.constraints import Value, Values
from driver.allocation.search.nogoods import Situation
from driver.allocation.search.problem import Question, Want
from driver.allocation.semantics.bitset import bits
from driver.allocation.semantics.counters import Use, admitted
from driver.allocation.terrain import ConstraintId, Rule, Terrain

FEW_LOOKS: Final = 40
"""Enough where one thing follows from another: a millisecond."""
MANY_LOOKS: Final = 400
"""Some ten milliseconds."""
_ALL_LOOKS: Final = 40_000
"""For all questions of one search: about a second."""
_LOOKS_WITHOUT_MEMORY: Final = 24
"""Short ways to an answer are faster than what would be worth remembering of them."""
_DEEPEST: Final = 256
"""Devices that are wanted at most: each takes a frame or two of Python's stack."""


class _TiredError(Exception):
    """The scout has looked as far as it may."""


class Scout:
    """Looks ahead in one search."""

    def __init__(self, question: Question) -> None:
        self._question = question
        self._terrain = Terrain(question)
        self._filling = Filling(question.offer, self._terrain)
        self._bound: dict[ConstraintId, list[tuple[int, Rule]]] = defaultdict(list)
        """The lines of each constraint."""
        for number, line in enumerate(self._terrain.lines):
            for rule in line.rules:
                self._bound[rule.constraint].append((number, rule))
        self._likeness = Likeness(self._terrain)
        self._tired: Counter[int] = Counter()
        """How often in a row so many looks were not enough."""
        self._pauses: Counter[int] = Counter()
        """How often not to look after that: where looking does not help, little time goes into it."""
        self._least = [line.want.count or int(line.want.is_all) for line in self._terrain.lines]
        """The devices that must be open to each line: ``All`` wants at least one."""
        self._sorts = [self._sort(number) for number in range(len(self._terrain.lines))]
        self._options = [
            sorted(enumerate(lines), key=lambda each: -self._terrain.lines[each[1]].devices.bit_count())
            for lines in self._terrain.asks
        ]
        """The alternatives of each sort of requests, those with the most devices first, and their lines."""
        self._failed: set[Hashable] = set()
        self._latest: tuple[object, Ground] | None = None
        """The ground of the latest situation for which was asked what is alike."""
        self._found: Mapping[int, Counter[int]] = {}
        """The devices of each line, in the latest solution; by the offer's numbers."""
        self._way: list[tuple[int, int]] = []
        self._looks = self._most_looks = 0
        self._looks_left = _ALL_LOOKS

    def _sort(self, line: int) -> Hashable:
        """The same for lines that differ in their devices only: of two alternatives with one sort, the one whose
        devices the other has, too, is not needed.
        """
        each = self._terrain.lines[line]
        if each.amounts or each.want.ask.derived_attributes:
            return line
        return each.want.count, each.want.constraints

    def can_succeed(self, tally: Tally, situation: Situation, looks: int) -> bool | None:
        """Whether ``situation`` has a solution, found out in so many ``looks``; None: it cannot be said.

        A "no" is certain. A "yes" is not quite, because a terrain leaves some things out.
        """
        if self._terrain.is_ordered or self._looks_left <= 0:
            return None
        if self._pauses[looks]:
            self._pauses[looks] -= 1
            return None
        ground = self._ground(tally, situation)
        if sum(ground.needs) + sum(ground.pending) > _DEEPEST:
            return None
        self._looks, self._most_looks = 0, looks
        self._way.clear()
        try:
            is_found = self._pass(ground)
        except _TiredError:
            self._tired[looks] += 1
            self._pauses[looks] = 2 ** self._tired[looks] - 2
            return None
        finally:
            self._looks_left -= self._looks
        self._tired[looks] = 0
        if is_found:
            self._keep(tally)
        return is_found

    def as_good_as(self, tally: Tally, situation: Situation, device: int) -> int:
        """The devices that would fail at ``situation`` because ``device`` did, itself among them.

        That is so only when those before it in the row of devices have failed, too.
        """
        terrain = self._terrain
        number = terrain.number(device)
        if number is None or self._want(situation) not in terrain.line_of:
            return 1 << device
        taken = tuple([placement.device for placements in tally.placements for placement in placements])
        if self._latest is None or self._latest[0] != (situation, taken):
            self._latest = (situation, taken), self._ground(tally, situation)
        return sum([1 << terrain.devices[each] for each in bits(self._likeness.as_good_as(self._latest[1], number))])

    def has_way(self, tally: Tally, situation: Situation) -> bool:
        """Whether the latest solution that was found goes through ``situation``."""
        if not self._found:
            return False
        for line, devices in self._placed(tally).items():
            found = self._found.get(line)
            if found is None or not devices <= found:
                return False
        if situation.want is None or not situation.chosen:
            return situation.want is None or self._continues(tally, situation, -1)
        return self._continues(tally, situation, situation.start)

    def _continues(self, tally: Tally, situation: Situation, start: int) -> bool:
        want = self._want(situation)
        line = self._terrain.line_of.get(want)
        if line is None:
            return True
        left = self._found.get(line, Counter()) - self._placed(tally).get(line, Counter())
        return sum(device >= start for device in left) >= want.count - situation.chosen

    def _placed(self, tally: Tally) -> Mapping[int, Counter[int]]:
        placed: dict[int, Counter[int]] = defaultdict(Counter)
        for placements in tally.placements:
            for placement in placements:
                line = self._terrain.line_of.get(placement.want)
                if line is not None:
                    placed[line][placement.device] += 1
        return placed

    def _keep(self, tally: Tally) -> None:
        found = {line: devices.copy() for line, devices in self._placed(tally).items()}
        for line, device in self._way:
            found.setdefault(line, Counter())[self._terrain.devices[device]] += 1
        self._found = found

    def _want(self, situation: Situation) -> Want:
        return self._question.requests[situation.request].wants[situation.want or 0]

    # The ground at the beginning.

    def _ground(self, tally: Tally, situation: Situation) -> Ground:
        terrain, ground = self._terrain, Ground()
        self._lines = [*terrain.lines]
        self._numbers = list(range(len(self._lines)))
        ground.needs = [0] * len(self._lines)
        ground.pending = [0] * len(terrain.asks)
        ground.open = [(1 << len(lines)) - 1 for lines in terrain.asks]
        ground.devices = [line.devices for line in self._lines]
        self._ask(ground, situation)
        ground.gone = terrain.converted(tally.in_use | tally.blocked)
        ground.remaining = list(tally.remaining)
        ground.groups = list(tally.groups)
        for set_ in terrain.takers:
            ground.gone |= terrain.apart(set_, ground.groups[set_])
        ground.drawn = terrain.converted(tally.drawn)
        ground.left = {
            number: terrain.left_of(number, tally.taken[terrain.devices[number]]) for number in bits(terrain.shareable)
        }
        for number, left in ground.left.items():
            self._drop_too_small(ground, number, left)
        for constraint in self._bound:
            state = tally.states[constraint[0]][constraint[1]]
            if state.devices:
                self._restrict(ground, constraint, state.values)
        return ground

    def _ask(self, ground: Ground, situation: Situation) -> None:
        """Note what is wanted from ``situation`` on."""
        terrain = self._terrain
        for position in range(situation.request + (situation.want is not None), self._question.safe):
            ask = terrain.ask_of.get(position)
            if ask is None:
                continue
            ground.pending[ask] += 1
        for ask, lines in enumerate(terrain.asks):
            if len(lines) == 1:
                self._choose(ground, ask, 0, ground.pending[ask])
        want = self._want(situation)
        line = terrain.line_of.get(want)
        if situation.want is None or line is None:
            return
        if not situation.chosen:
            ground.needs[line] += want.count
        else:  # only devices behind the latest are left for it: a line of its own
            self._lines.append(self._lines[line])
            self._numbers.append(line)
            ahead = terrain.converted((1 << len(self._question.offer.devices)) - (1 << situation.start))
            ground.devices.append(self._lines[line].devices & ahead)
            ground.needs.append(want.count - situation.chosen)

    def _rules(self, constraint: ConstraintId) -> list[tuple[int, Rule]]:
        """The lines that a constraint binds."""
        bound = self._bound[constraint]
        if len(self._lines) == len(self._terrain.lines):
            return bound
        last = len(self._lines) - 1
        return [*bound, *((last, rule) for rule in self._lines[last].rules if rule.constraint == constraint)]

    # One look.

    def _pass(self, ground: Ground) -> bool:
        """Whether what ``ground`` wants can be had; ``_way`` has the devices then. Changes ``ground``."""
        self._looks += 1
        if self._looks > self._most_looks:
            raise _TiredError
        if not self._filling.suffices(self._needs(ground), ground.remaining, ground.left):
            return False
        key = self._likeness.key(ground, self._numbers[-1]) if self._looks > _LOOKS_WITHOUT_MEMORY else None
        if key is not None and key in self._failed:
            return False
        if self._go_on(ground):
            return True
        if key is not None:
            self._failed.add(key)
        return False

    def _needs(self, ground: Ground) -> Sequence[int]:
        """What each line of the terrain wants: the want that the search is at may stand apart."""
        if len(self._lines) == len(self._terrain.lines):
            return ground.needs
        *needs, last = ground.needs
        needs[self._numbers[-1]] += last
        return needs

    def _go_on(self, ground: Ground) -> bool:
        forced: list[tuple[int, int]] = []
        while (settled := self._settle(ground)) is not None:
            spare, line = self._tightest(ground)
            spare_of_options, ask = settled
            if min(spare, spare_of_options) < 0:
                return False
            if ask is not None and spare_of_options < spare:
                is_served = self._try_option(ground, ask)
            elif line is None:
                is_served = True
            elif not self._agree(ground, line):
                continue
            elif spare == 0:
                forced.append((self._numbers[line], self._first(ground, line)))
                self._take(ground, line, forced[-1][1])
                continue
            else:
                is_served = self._try_device(ground, line)
            if is_served:
                self._way += forced
                return True
        return False

    def _settle(self, ground: Ground) -> tuple[float, int | None] | None:
        """Close alternatives that cannot be had, or are not needed beside others; choose where one is left.

        Gives the sort of requests with the fewest devices to spare over all its alternatives, and how many these are;
        None: some requests have no alternative.
        """
        tightest: tuple[float, int | None] = (inf, None)
        for ask, pending in enumerate(ground.pending):
            if not pending:
                continue
            open_ = devices = 0
            fewest = _DEEPEST
            different: list[tuple[Hashable, int]] = []
            for option, line in self._options[ask]:
                having, sort = ground.devices[line] & ~ground.gone, self._sorts[line]
                if (
                    ground.open[ask] >> option & 1
                    and having.bit_count() >= self._least[line]
                    and not any(sort == other and not having & ~more for other, more in different)
                ):
                    different.append((sort, having))
                    open_ |= 1 << option
                    devices |= having
                    fewest = min(fewest, self._least[line])
            ground.open[ask] = open_
            if not open_:
                return None
            if open_ & (open_ - 1) == 0:
                self._choose(ground, ask, open_.bit_length() - 1, pending)
            else:
                spare = devices.bit_count() - fewest * pending
                if devices & self._terrain.shareable:
                    spare = max(spare, 1)
                if spare < tightest[0]:
                    tightest = spare, ask
        return tightest

    def _choose(self, ground: Ground, ask: int, option: int, requests: int) -> None:
        line = self._terrain.asks[ask][option]
        ground.needs[line] += requests * self._lines[line].want.count
        ground.pending[ask] -= requests

    def _tightest(self, ground: Ground) -> tuple[float, int | None]:
        """How many devices the tightest line has to spare, and which it is: of several the heaviest."""
        best: tuple[float, float] = (inf, 0.0)
        tightest = None
        for line, need in enumerate(ground.needs):
            if need:
                devices = ground.devices[line] & ~ground.gone
                spare = devices.bit_count() - (1 if devices & self._terrain.shareable else need)
                rank = spare, -self._lines[line].weight
                if rank < best:
                    best, tightest = rank, line
                    if spare < 0:
                        break
        return best[0], tightest

    def _first(self, ground: Ground, line: int) -> int:
        devices = ground.devices[line] & ~ground.gone
        return (devices & -devices).bit_length() - 1

    def _try_option(self, ground: Ground, ask: int) -> bool:
        """Choose the last alternative, the least wanted, for one request; False: it is open to none any more."""
        option = ground.open[ask].bit_length() - 1
        ahead = ground.copy()
        self._choose(ahead, ask, option, 1)
        if self._pass(ahead):
            return True
        ground.open[ask] &= ~(1 << option)
        return False

    def _try_device(self, ground: Ground, line: int) -> bool:
        """Give ``line`` one more device; False: it is closed to the line now, and what is as good with it."""
        device = self._first(ground, line)
        ahead = ground.copy()
        self._take(ahead, line, device)
        if self._pass(ahead):
            self._way.append((self._numbers[line], device))
            return True
        self._close(ground, line, device)
        return False

    def _take(self, ground: Ground, line: int, device: int) -> None:
        terrain = self._terrain
        ground.needs[line] -= 1
        if terrain.shareable >> device & 1:
            amounts = self._lines[line].amounts[device]
            left = ground.left[device] = tuple(map(sub, ground.left[device], amounts))
            self._drop_too_small(ground, device, left)
            if self._lines[line].is_single or line == len(terrain.lines):
                ground.devices[line] &= ~(1 << device)
        else:
            ground.gone |= 1 << device
            for use in terrain.uses[device]:
                self._draw(ground, use)
        for rule in self._lines[line].rules:
            values = rule.values[device]
            if rule.is_match:
                values &= ground.common.get(rule.constraint, values)
            self._restrict(ground, rule.constraint, values)

    def _draw(self, ground: Ground, use: Use) -> None:
        remaining = ground.remaining[use.set] = (ground.remaining[use.set] or 0) - (use.amount or 0)
        groups = ground.groups[use.set] = admitted(ground.groups[use.set], use.groups)
        ground.gone |= self._terrain.beyond(use.set, remaining) | self._terrain.apart(use.set, groups)

    def _drop_too_small(self, ground: Ground, device: int, left: tuple[int, ...]) -> None:
        """A device with so little left is closed to lines that want more of it."""
        for number, line in enumerate(self._lines):
            if ground.devices[number] >> device & 1 and any(map(gt, line.amounts[device], left)):
                ground.devices[number] &= ~(1 << device)

    def _restrict(self, ground: Ground, constraint: ConstraintId, values: Values) -> None:
        """What a constraint leaves open, when it has seen ``values``; for a match, have them in common."""
        for number, rule in self._rules(constraint):
            having = 0
            for value in values:
                having |= rule.by_value.get(value, 0)
            if rule.is_match:
                ground.common[constraint] = values
                ground.devices[number] &= having
            else:
                ground.devices[number] &= ~having

    def _agree(self, ground: Ground, line: int) -> bool:
        """Close what no value serves that the matches of a line could find; False: something was closed to it."""
        before = ground.devices[line]
        for rule in self._lines[line].rules:
            if rule.is_match:
                rules = self._rules(rule.constraint)
                values = ground.common.get(rule.constraint) or {value for _, each in rules for value in each.by_value}
                serving = [value for value in values if self._serves(ground, rules, value)]
                if len(serving) < len(values):
                    for number, each in rules:
                        having = 0
                        for value in serving:
                            having |= each.by_value.get(value, 0)
                        ground.devices[number] &= having
        return ground.devices[line] == before

    def _serves(self, ground: Ground, rules: Sequence[tuple[int, Rule]], value: Value) -> bool:
        """Whether there are enough devices of one value."""
        together = needed = 0
        for number, rule in rules:
            need = ground.needs[number]
            if need:
                devices = ground.devices[number] & ~ground.gone & rule.by_value.get(value, 0)
                if devices.bit_count() < (1 if devices & self._terrain.shareable else need):
                    return False
                together |= devices
                needed += need
        return needed <= together.bit_count() or bool(together & self._terrain.shareable)

    def _close(self, ground: Ground, line: int, device: int) -> None:
        """Close to a line a device that led nowhere, and what is as good; to lines that could change with it, too."""
        closed = self._likeness.as_good_as(ground, device)
        peers = self._likeness.peers(ground, line)
        ground.devices[line] &= ~closed
        for peer in peers:
            ground.devices[peer] &= ~closed
