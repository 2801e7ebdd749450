"""What the claims of a pod ask for on one node, in the form that the search works on.

A request is a row of wants, one for each alternative (KEP-4816). Masks of devices are those of the offer.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, NamedTuple, TypeAlias

from api.errors import PermanentError
from api.model.claims import DerivedAttribute, DeviceClass, DeviceSubRequest, ExactDeviceRequest, ResourceClaim
from driver.allocation.pools.node_devices import Offer
from driver.allocation.search.constraints import Constraint, Values
from driver.allocation.semantics.bitset import bits
from driver.allocation.semantics.capacity import Demand
from driver.cel.compile import ExpressionCompileError, ExpressionRuntimeError, UnsupportedExpressionError

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

    @cached_property
    def usable(self) -> int:
        """The devices of all its alternatives."""
        devices = 0
        for want in self.wants:
            devices |= want.usable
        return devices


class Comparison(NamedTuple):
    """What constraints compare of devices: the same for all claims that have such a constraint."""

    attribute: str
    derived: tuple[DerivedAttribute, ...]


@dataclass(frozen=True)
class Question:
    """All claims of a pod, on one node."""

    claims: Sequence[ResourceClaim]
    offer: Offer
    requests: tuple[Request, ...]
    constraints: tuple[tuple[Constraint, ...], ...]
    """For each claim."""
    _values: dict[tuple[Comparison, int], Values | Exception | None] = field(default_factory=dict, repr=False)
    supplies: dict[tuple[int, int, int], int] = field(default_factory=dict, repr=False)
    """Kept for bounds: at most how many of some devices (the last number) a counter set (the first) can give when the
    second is left of it."""

    def comparison(self, want: Want, constraint: int) -> Comparison:
        """What a constraint of the want's claim compares of the devices that the want takes."""
        return Comparison(self.constraints[want.claim][constraint].attribute, want.ask.derived_attributes)

    def values(self, want: Want, constraint: int, device: int) -> Values | None:
        """What it compares of a device. Raises UnanswerableError."""
        key = self.comparison(want, constraint), device
        if key not in self._values:
            try:
                of_claim = self.constraints[want.claim][constraint]
                self._values[key] = of_claim.values(self.offer.devices[device], want.ask.derived_attributes)
            except (ExpressionCompileError, ExpressionRuntimeError, UnsupportedExpressionError) as error:
                self._values[key] = error
        values = self._values[key]
        if isinstance(values, Exception):
            place = f"claim {self.claims[want.claim].ref}, request {want.name}, {self.offer.devices[device].id}"
            raise UnanswerableError(f"{place}: {values}") from values
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
        for request in self.requests:
            usable |= request.usable
        return usable

    @cached_property
    def safe(self) -> int:
        """So many requests come before the first for which trying some device may fail for good."""
        risky = (any(self._may_fail(want) for want in request.wants) for request in self.requests)
        return next((position for position, is_risky in enumerate(risky) if is_risky), len(self.requests))

    @property
    def may_fail(self) -> bool:
        """Whether trying some device may fail for good: then only trying them in order gives the right answer."""
        return self.safe < len(self.requests)

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
