"""The search for devices: the first solution of a fixed depth-first order, as kube-scheduler finds it.

Claims come in the order given, requests and alternatives as they stand in the claim, devices as they stand in the
offer. Within one request devices are chosen in ascending order only, so that each combination is tried once; the next
request begins with the first device again. Nothing of this may be reordered: the first solution is the answer
(``k8s.io/dynamic-resource-allocation/structured``, allocateOne).

What is cut short are failures. A situation equal to one that failed is left at once, and bounds end a search that
cannot succeed.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from api.model.claims import DeviceClass, ResourceClaim
from driver.allocation.explain.obstacles import explain
from driver.allocation.pools.index import Inventory
from driver.allocation.pools.node_devices import Offer
from driver.allocation.search.assignment import Placement, Tally
from driver.allocation.search.bounds import Forecaster
from driver.allocation.search.nogoods import Memory, Situation
from driver.allocation.search.problem import MAX_RESULTS, Question, UnanswerableError, Want
from driver.allocation.search.problem_builder import ask
from driver.allocation.search.results import conclude
from driver.allocation.semantics.allocated_state import Allocated
from driver.allocation.semantics.matching import InvalidNodeSelectorError
from driver.allocation.semantics.outcomes import (
    Budget,
    DoesNotFit,
    Failed,
    Features,
    Fits,
    NodeView,
    Outcome,
    Undecided,
)


def allocate(
    inventory: Inventory,
    claims: Sequence[ResourceClaim],
    node: NodeView,
    classes: Mapping[str, DeviceClass],
    allocated: Allocated,
    features: Features,
    *,
    share_id: Callable[[], str],
    budget: Budget,
) -> Outcome:
    """Devices on ``node`` for all ``claims`` of one pod, or why there are none.

    ``classes`` by name. ``share_id`` gives a new UUID for every share of a shared device. The same arguments give the
    same answer, but for the share ids.
    """
    try:
        offer = Offer.build(inventory, node, allocated, features)
    except InvalidNodeSelectorError as error:
        return Failed("fatal", str(error))
    answer = search(offer, claims, classes, share_id=share_id, budget=budget)
    return DoesNotFit(explain(answer)) if isinstance(answer, Question) else answer


def search(
    offer: Offer,
    claims: Sequence[ResourceClaim],
    classes: Mapping[str, DeviceClass],
    *,
    share_id: Callable[[], str],
    budget: Budget,
) -> Fits | Failed | Undecided | Question:
    """As ``allocate``, but on what a node offers; and what does not fit is given back, to be explained or not."""
    try:
        question = ask(offer, claims, classes)
        run = _Search(question, budget)
        wants = run.run()
    except (UnanswerableError, InvalidNodeSelectorError) as error:
        return Failed("fatal", str(error))
    except _BudgetSpentError as error:
        return error.outcome
    if wants is not None:
        return Fits(conclude(question, wants, run.tally.placements, share_id))
    for view in offer.views:
        if view.problem is not None and view.problem.kind == "invalid":
            return Failed("node", view.problem.message)
    return question


class _BudgetSpentError(Exception):
    """The search has taken as much as it may."""

    def __init__(self, outcome: Undecided) -> None:
        self.outcome = outcome
        super().__init__(str(outcome))


@dataclass(slots=True)
class _Choice:
    """A point of the search at which one want, or one device for a want, is to be chosen."""

    situation: Situation
    want: Want | None
    """For which a device is chosen; None: a want is chosen."""
    options: int
    """What is still to be tried: wants of the request, or devices."""
    latest: int = -1
    """The option that was tried last."""
    placed: Placement | None = None
    """What that option took."""

    def take_option(self) -> int:
        """The next option, which is then no longer to be tried."""
        lowest = self.options & -self.options
        self.options ^= lowest
        self.latest = lowest.bit_length() - 1
        return self.latest


class _Search:
    """One search. An explicit stack of choices: a pod may have more devices than Python has frames."""

    def __init__(self, question: Question, budget: Budget) -> None:
        self.tally = Tally(question)
        self._question = question
        self._forecaster = Forecaster(question)
        self._memory = Memory(question)
        self._budget = budget
        self._steps_left = budget.steps
        self._begin = budget.clock()
        self._has_failed = False

    def run(self) -> tuple[Want, ...] | None:
        """The want chosen for each request, whose devices ``tally`` holds then; None: there is no solution.

        Raises UnanswerableError and _BudgetSpentError.
        """
        choices: list[_Choice] = []
        following = self._at_request(0)
        while following is not None:
            self._check_time()
            choices.append(following)
            while not self._advance(choices[-1]):
                failed = choices.pop().situation
                if not choices or self._is_hopeless():
                    return None
                self._memory.record(self.tally, failed)
            following = self._after(choices[-1])
        alternatives = {choice.situation.request: choice.latest for choice in choices if choice.want is None}
        return tuple(
            request.wants[alternatives.get(position, 0)] for position, request in enumerate(self._question.requests)
        )

    def _is_hopeless(self) -> bool:
        """Whether it can be said, at the first failure, that there is no solution at all."""
        is_first, self._has_failed = not self._has_failed, True
        if not is_first or not self._question.safe:
            return False
        return not self._forecaster.can_succeed(Tally(self._question), position=0)

    def _advance(self, choice: _Choice) -> bool:
        """Give up the latest option and take the next that can be had; False: none can."""
        if choice.placed is not None:
            self.tally.remove(choice.placed)
            choice.placed = None
            if not self._question.may_fail and choice.options:
                choice.options &= ~self._memory.as_good_as(self.tally, choice.situation, choice.latest)
        while choice.options:
            option = choice.take_option()
            if choice.want is None:
                return True
            choice.placed = self._place(choice.want, option)
            if choice.placed is not None:
                return True
        return False

    def _place(self, want: Want, device: int) -> Placement | None:
        if device in want.failing:
            raise UnanswerableError(want.failing[device])
        if self._steps_left <= 0:
            raise _BudgetSpentError(Undecided("steps", self._budget.steps))
        self._steps_left -= 1
        return self.tally.place(want, device)

    @property
    def _seconds_left(self) -> float:
        return self._budget.seconds - (self._budget.clock() - self._begin)

    def _check_time(self) -> None:
        """Once for each choice: cheap beside the bounds that are worked out for it."""
        if self._seconds_left <= 0:
            raise _BudgetSpentError(Undecided("seconds", self._budget.seconds))

    def _after(self, choice: _Choice) -> _Choice | None:
        """What is to be chosen next; None: nothing, the search is done."""
        at = choice.situation
        if choice.want is None:
            return self._at_want(at.request, choice.latest)
        if at.chosen + 1 == choice.want.count:
            return self._at_request(at.request + 1)
        return self._choice(at._replace(chosen=at.chosen + 1, start=choice.latest + 1), choice.want)

    def _at_request(self, position: int) -> _Choice | None:
        if position == len(self._question.requests):
            return None
        wants = len(self._question.requests[position].wants)
        if wants == 1:
            return self._at_want(position, 0)
        return self._choice(Situation(request=position, want=None, chosen=0, start=0), None)

    def _at_want(self, position: int, index: int) -> _Choice | None:
        want = self._question.requests[position].wants[index]
        situation = Situation(request=position, want=index, chosen=0, start=0)
        exceeds = len(self.tally.placements[want.claim]) + want.count > MAX_RESULTS
        if position < self._question.safe:
            between = self._question.requests[position + 1 : self._question.safe]
            following = [each for each in between if each.claim == want.claim]
            exceeds = exceeds or not self._forecaster.within_limit(self.tally, following, also=want.count)
        if exceeds or (want.is_all and not want.count):
            return _Choice(situation, want, options=0)
        return self._choice(situation, want) if want.count else self._at_request(position + 1)

    def _choice(self, situation: Situation, want: Want | None) -> _Choice:
        """The choice at ``situation``; without options where it is known that nothing comes of it."""
        options = 0 if self._is_known_to_fail(situation) else self._options(situation, want)
        return _Choice(situation, want, options)

    def _is_known_to_fail(self, situation: Situation) -> bool:
        """Whether bounds or an equal situation say that nothing comes of it."""
        is_new = situation.chosen == 0
        position = situation.request + (not is_new)
        may_bound = position < self._question.safe
        if may_bound and self._forecaster.is_starved(self.tally, position):
            return True
        if not self._has_failed:
            return False
        if may_bound and self._forecaster.is_exhausted(self.tally, position):
            return True
        if self._memory.has_failed(self.tally, situation):
            return True
        return may_bound and is_new and not self._forecaster.can_succeed(self.tally, situation.request)

    def _options(self, situation: Situation, want: Want | None) -> int:
        if want is None:
            return (1 << len(self._question.requests[situation.request].wants)) - 1
        ahead = -1 << situation.start
        if not want.is_all:
            return (want.candidates & ~self.tally.blocked | want.failing_mask) & self.tally.free(want) & ahead
        following = want.candidates & ahead
        return following & -following  # every device of ``All`` is needed: there is nothing to choose
