"""Depth-first search with chronological backtracking, in the order of kube-scheduler's allocator.

Problem: assign to every request of the pod's claims the number of devices that it needs, so that counters, capacities
and constraints hold. The result must be kube-scheduler's, which is the first in a fixed order: claims as
given, requests and alternatives as they stand in the claim, devices as they stand in ``NodeDevices``, ascending within
one request (``k8s.io/dynamic-resource-allocation/structured``, ``allocateOne``).

Upstream explores this order in full and takes exponential time where nothing fits. This search prunes only branches
without a solution, so the first solution stays the same: by bounds (``bounds.py``), by nogoods, which are states equal
to one that has failed (``nogoods.py``), and by skipping devices that are interchangeable with one that has failed
(``symmetry.py``). All but the cheapest bound wait for the first failure: a search that succeeds at once pays little.
If trying a device fails permanently (a CEL run-time error fails the pod), the order also decides which failure is
reported; so no request after the first such one is used to prune (``AllocationProblem.safe_requests``).

Invariant: the choice points on the stack hold exactly the assignments in ``PartialAssignment``. Budget: a step is one
attempt to assign a device; the clock is read once for each choice point.

Example: request ``a`` may take card 0 or 1, request ``b`` card 0 only. The search assigns card 0 to ``a``, finds none
for ``b``, backtracks to ``a``'s choice point and assigns card 1 there; then ``b`` gets card 0.
"""

from dataclasses import dataclass

from kerf_dra.driver.allocation.search.assignment import Assignment, PartialAssignment, Solution
from kerf_dra.driver.allocation.search.bounds import Bounds
from kerf_dra.driver.allocation.search.nogoods import NogoodStore, SearchPosition
from kerf_dra.driver.allocation.search.problem import (
    MAX_RESULTS,
    AllocationProblem,
    RequestAlternative,
    UnanswerableError,
)
from kerf_dra.driver.allocation.semantics.outcomes import Budget, Undecided


class BudgetSpentError(Exception):
    """The search has exhausted its budget; ``outcome`` names the limit."""

    def __init__(self, outcome: Undecided) -> None:
        self.outcome = outcome
        super().__init__(str(outcome))


@dataclass(slots=True)
class ChoicePoint:
    """A point of the search at which an alternative of a request, or a device for an alternative, is chosen."""

    position: SearchPosition
    alternative: RequestAlternative | None
    """The alternative for which a device is chosen; None: the choice is among alternatives."""
    options: int
    """The bitset of options not yet tried: alternatives of the request, or devices."""
    latest: int = -1
    """The option that was tried last; -1: no option was."""
    assignment: Assignment | None = None
    """The assignment that the latest option made; None: it made none, or the choice is among alternatives."""

    def take_option(self) -> int:
        """Remove the lowest remaining option and return it."""
        lowest = self.options & -self.options
        self.options ^= lowest
        self.latest = lowest.bit_length() - 1
        return self.latest


class DepthFirstSearch:
    """One search. Its stack is explicit because a pod may have more devices than Python has frames."""

    def __init__(self, problem: AllocationProblem, budget: Budget) -> None:
        self._problem = problem
        self._partial = PartialAssignment(problem)
        self._bounds = Bounds(problem)
        self._nogoods = NogoodStore(problem)
        self._budget = budget
        self._steps_left = budget.steps
        self._begin = budget.clock()
        self._has_failed = False

    def run(self) -> Solution | None:
        """Return the first solution; None: the problem has no solution.

        Raises UnanswerableError if a device must be tried that fails permanently or that violates a constraint under
        ``All``, and BudgetSpentError if the budget does not suffice.
        """
        stack: list[ChoicePoint] = []
        following = self._at_request(0)
        while following is not None:
            self._check_time()
            stack.append(following)
            while not self._advance(stack[-1]):
                failed = stack.pop().position
                if not stack or self._is_hopeless():
                    return None
                self._nogoods.record(self._partial, failed)
            following = self._after(stack[-1])
        chosen = {choice.position.request: choice.latest for choice in stack if choice.alternative is None}
        requests = enumerate(self._problem.requests)
        alternatives = tuple(request.alternatives[chosen.get(index, 0)] for index, request in requests)
        return Solution(alternatives, self._partial.assignments)

    def _is_hopeless(self) -> bool:
        """Whether the bounds prove, at the first failure, that there is no solution at all."""
        is_first, self._has_failed = not self._has_failed, True
        if not is_first or not self._problem.safe_requests:
            return False
        return not self._bounds.can_succeed(PartialAssignment(self._problem), request=0)

    def _advance(self, choice: ChoicePoint) -> bool:
        """Undo the latest option and take the next that is possible; False: no option is."""
        if choice.assignment is not None:
            self._partial.undo(choice.assignment)
            choice.assignment = None
            if not self._problem.may_fail and choice.options:
                choice.options &= ~self._nogoods.interchangeable_with(self._partial, choice.position, choice.latest)
        while choice.options:
            option = choice.take_option()
            if choice.alternative is None:
                return True
            choice.assignment = self._assign(choice.alternative, option)
            if choice.assignment is not None:
                return True
        return False

    def _assign(self, alternative: RequestAlternative, device: int) -> Assignment | None:
        if device in alternative.errors:
            raise UnanswerableError(alternative.errors[device])
        if self._steps_left <= 0:
            raise BudgetSpentError(Undecided("steps", self._budget.steps))
        self._steps_left -= 1
        return self._partial.assign(alternative, device)

    def _check_time(self) -> None:
        if self._budget.clock() - self._begin >= self._budget.seconds:
            raise BudgetSpentError(Undecided("seconds", self._budget.seconds))

    def _after(self, choice: ChoicePoint) -> ChoicePoint | None:
        """The choice point after ``choice``; None: every request has its devices."""
        at = choice.position
        if choice.alternative is None:
            return self._at_alternative(at.request, choice.latest)
        if at.chosen + 1 == choice.alternative.count:
            return self._at_request(at.request + 1)
        return self._choice(at._replace(chosen=at.chosen + 1, start=choice.latest + 1), choice.alternative)

    def _at_request(self, request: int) -> ChoicePoint | None:
        if request == len(self._problem.requests):
            return None
        if len(self._problem.requests[request].alternatives) == 1:
            return self._at_alternative(request, 0)
        return self._choice(SearchPosition(request=request, alternative=None, chosen=0, start=0), None)

    def _at_alternative(self, request: int, index: int) -> ChoicePoint | None:
        alternative = self._problem.requests[request].alternatives[index]
        position = SearchPosition(request=request, alternative=index, chosen=0, start=0)
        exceeds = len(self._partial.assignments[alternative.claim]) + alternative.count > MAX_RESULTS
        if request < self._problem.safe_requests:
            behind = self._problem.requests[request + 1 : self._problem.safe_requests]
            of_claim = [each for each in behind if each.claim == alternative.claim]
            exceeds = exceeds or not self._bounds.within_limit(self._partial, of_claim, also=alternative.count)
        if exceeds or (alternative.is_all and not alternative.count):
            return ChoicePoint(position, alternative, options=0)
        return self._choice(position, alternative) if alternative.count else self._at_request(request + 1)

    def _choice(self, position: SearchPosition, alternative: RequestAlternative | None) -> ChoicePoint:
        """The choice point at ``position``, without options if the search from there is known to fail."""
        options = 0 if self._is_known_to_fail(position) else self._options(position, alternative)
        return ChoicePoint(position, alternative, options)

    def _is_known_to_fail(self, position: SearchPosition) -> bool:
        """Whether bounds or a nogood prove that no solution extends ``position``; the cheapest check first."""
        is_new = position.chosen == 0
        request = position.request + (not is_new)
        may_bound = request < self._problem.safe_requests
        if may_bound and self._bounds.has_empty_domain(self._partial, request):
            return True
        if not self._has_failed:
            return False
        if may_bound and self._bounds.has_empty_filtered_domain(self._partial, request):
            return True
        if self._nogoods.is_nogood(self._partial, position):
            return True
        return may_bound and is_new and not self._bounds.can_succeed(self._partial, position.request)

    def _options(self, position: SearchPosition, alternative: RequestAlternative | None) -> int:
        if alternative is None:
            return (1 << len(self._problem.requests[position.request].alternatives)) - 1
        ahead = -1 << position.start
        if not alternative.is_all:
            unblocked = alternative.candidates & ~self._partial.blocked | alternative.failing
            return unblocked & self._partial.free(alternative) & ahead
        following = alternative.candidates & ahead
        return following & -following  # every device of ``All`` is needed: there is nothing to choose
