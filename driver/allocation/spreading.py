"""Whether devices that must differ can: at most how many have no value in common, by all ``distinctAttribute`` at once.

A bound like those of ``bounds.py``: a "no" is certain.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from driver.allocation.packing import most
from driver.allocation.search.constraints import Value
from driver.allocation.search.problem import Question, Request, UnanswerableError, Want
from driver.allocation.semantics.bitset import bits

NOT_ANY: Final[Value] = ("", "")
"""Stands for no value at all: such a device can come first, but only one."""


class Spread:
    """Bounds for one question."""

    def __init__(self, question: Question) -> None:
        self._question = question
        self._values: dict[tuple[int, tuple[int, ...], int], tuple[int, ...]] = {}
        self._numbers: dict[tuple[int, Value], int] = {}
        self._most: dict[tuple[int, tuple[int, ...], int], int] = {}

    def suffices(self, requests: Sequence[Request], open_: Mapping[Want, int], allowed: int) -> bool:
        """Whether no distinction speaks against serving ``requests`` with ``allowed`` devices."""
        for claim in {request.claim for request in requests}:
            for index, constraint in enumerate(self._question.constraints[claim]):
                bound = bound_by(requests, claim, index) if constraint.kind == "distinct" else []
                if bound and not self.can_differ(bound, open_, index, allowed):
                    return False
        return True

    def can_differ(
        self, bound: Sequence[Request], open_: Mapping[Want, int], constraint: int, allowed: int = -1
    ) -> bool:
        """The same of one constraint, which holds for ``bound``, requests of one claim."""
        wants = [want for request in bound for want in request.wants]
        needed = sum(request.fewest for request in bound)
        if needed < 2 or any(want.ask.derived_attributes for want in wants):
            return True
        devices = 0
        for want in wants:
            devices |= open_[want] & allowed
        others = (each for each in set.intersection(*(set(want.constraints) for want in wants)) if each != constraint)
        constraints = self._question.constraints[bound[0].claim]
        together = (constraint, *sorted(each for each in others if constraints[each].kind == "distinct"))
        key = bound[0].claim, together, devices
        if key not in self._most:
            self._most[key] = most([self._resources(wants[0], together, device) for device in bits(devices)], {})
        return needed <= self._most[key]

    def _resources(self, want: Want, constraints: tuple[int, ...], device: int) -> tuple[int, ...]:
        """The values of a device, each with a number of its own."""
        key = want.claim, constraints, device
        if key not in self._values:
            values = [(index, value) for index in constraints for value in self._compared(want, index, device)]
            self._values[key] = tuple([self._numbers.setdefault(each, len(self._numbers)) for each in values])
        return self._values[key]

    def _compared(self, want: Want, constraint: int, device: int) -> Iterable[Value]:
        try:
            return self._question.values(want, constraint, device) or (NOT_ANY,)
        except UnanswerableError:  # the search will meet it
            return ()


def bound_by(requests: Iterable[Request], claim: int, constraint: int) -> list[Request]:
    """The requests of a claim for which a constraint holds whatever is chosen for them."""
    return [
        request
        for request in requests
        if request.claim == claim and request.fewest and all(constraint in want.constraints for want in request.wants)
    ]
