"""What the claims of a pod ask for on one node, in the form that the search works on.

A request is a row of wants, one for each alternative (KEP-4816). Masks of devices are those of the offer.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from typing import Final, NamedTuple, TypeAlias

from api.errors import PermanentError
from api.model.claims import DerivedAttribute, DeviceClass, DeviceSubRequest, ExactDeviceRequest, ResourceClaim
from driver.allocation.constraining import Constraint, Values
from driver.allocation.expressions import (
    ExpressionCompileError,
    ExpressionRuntimeError,
    UnsupportedExpressionError,
)
from driver.allocation.masks import bits
from driver.allocation.offering import Offer
from driver.allocation.rounding import Demand

MAX_RESULTS: Final = 32
"""Devices that one claim can get (``resource.k8s.io/v1`` AllocationResultsMaxSize)."""

Ask: TypeAlias = ExactDeviceRequest | DeviceSubRequest


class UnanswerableError(PermanentError):
    """The claims ask for what no node can decide, or for what a switched-off feature would have to give."""


@dataclass(frozen=True, slots=True)
class Funnel:
    """Which devices are left after each step, for messages."""

    selected: int
    on_node: int
    sufficient: int
    """With the capacities asked for."""
    tolerated: int
    joinable: int
    """As the counters stand."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Want:
    """One alternative of a request, on one node."""

    claim: int
    """Position of the claim."""
    name: str
    """``request``, or ``request/subrequest``."""
    ask: Ask
    class_: DeviceClass
    count: int
    is_all: bool
    is_admin: bool
    candidates: int
    """Devices that it may take, as far as other choices do not matter. Of ``All``: every one of its devices."""
    usable: int
    """Of ``All``: those of its devices that it could take now; else the candidates."""
    failing: Mapping[int, str]
    """Devices at which trying fails for good, with the message, unless they are in use."""
    failing_mask: int
    demands: Mapping[int, Demand]
    """What is taken of each device that is shared."""
    constraints: tuple[int, ...]
    """Positions of the claim's constraints that apply."""
    funnel: Funnel


@dataclass(frozen=True)
class Request:
    """A request of a claim: its wants in order of preference, one of which is to be served."""

    claim: int
    name: str
    wants: tuple[Want, ...]

    @cached_property
    def fewest(self) -> int:
        """The fewest devices that serve it."""
        return min(want.count for want in self.wants)


class _Compared(NamedTuple):
    """What a constraint looks at."""

    claim: int
    constraint: int
    device: int
    derived: tuple[DerivedAttribute, ...]


@dataclass(frozen=True)
class Question:
    """All claims of a pod, on one node."""

    claims: Sequence[ResourceClaim]
    offer: Offer
    requests: tuple[Request, ...]
    constraints: tuple[tuple[Constraint, ...], ...]
    """For each claim."""
    _values: dict[_Compared, Values | str | None] = field(default_factory=dict, repr=False)
    supplies: dict[tuple[int, int, int], int] = field(default_factory=dict, repr=False)
    """Kept for bounds: at most how many of some devices (the last number) a counter set (the first) can give when the
    second is left of it."""

    def values(self, want: Want, constraint: int, device: int) -> Values | None:
        """What a constraint of the want's claim compares of a device. Raises UnanswerableError."""
        derived = want.ask.derived_attributes
        key = _Compared(want.claim, constraint, device, derived)
        if key not in self._values:
            published = self.offer.devices[device]
            try:
                self._values[key] = self.constraints[want.claim][constraint].values(published, derived)
            except (ExpressionCompileError, ExpressionRuntimeError, UnsupportedExpressionError) as error:
                self._values[key] = f"claim {self.claims[want.claim].ref}, request {want.name}, {published.id}: {error}"
        values = self._values[key]
        if isinstance(values, str):
            raise UnanswerableError(values)
        return values

    @cached_property
    def members(self) -> Mapping[int, int]:
        """The usable devices whose first counters come from each set."""
        members: dict[int, int] = defaultdict(int)
        for device in bits(self._usable):
            uses = self.offer.uses(device)
            if uses and uses[0].amount is not None:
                members[uses[0].set] |= 1 << device
        return members

    @cached_property
    def unlimited(self) -> int:
        """The other usable devices."""
        unlimited = self._usable
        for members in self.members.values():
            unlimited &= ~members
        return unlimited

    @property
    def _usable(self) -> int:
        usable = 0
        for want in chain.from_iterable(request.wants for request in self.requests):
            usable |= want.usable
        return usable

    @cached_property
    def parts(self) -> list[tuple[Request, ...]]:
        """The requests that constraints bind together, apart from the others."""
        parts: list[tuple[set[tuple[int, int]], list[Request]]] = []
        for request in self.requests:
            bound = {(request.claim, index) for want in request.wants for index in want.constraints}
            joined = [part for part in parts if part[0] & bound]
            parts = [part for part in parts if not part[0] & bound]
            constraints = bound.union(*(part[0] for part in joined))
            parts.append((constraints, [*(each for part in joined for each in part[1]), request]))
        return [tuple(requests) for constraints, requests in parts if constraints]

    @cached_property
    def may_fail(self) -> bool:
        """Whether trying some device fails for good: then only trying them in order gives the right answer."""
        return any(self._may_fail(want) for request in self.requests for want in request.wants)

    def _may_fail(self, want: Want) -> bool:
        if want.failing or (want.is_all and want.constraints):
            return True
        try:
            for constraint in want.constraints if want.ask.derived_attributes else ():
                for device in bits(want.candidates):
                    self.values(want, constraint, device)
        except UnanswerableError:
            return True
        return False
