"""The allocation problem: the claims of a pod on one node as a constraint satisfaction problem.

Variables are the requests, each to be served by one of its alternatives (``firstAvailable``, KEP-4816) with the number
of devices that it requests. The domain of an alternative is the bitset of its candidates in ``NodeDevices``. The
constraints are those of the claims (matchAttribute, distinctAttribute), the counters and the shared capacities.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, reduce
from operator import or_
from typing import Final, NamedTuple, TypeAlias

from kerf_dra.api.errors import PermanentError
from kerf_dra.api.model.claims import DerivedAttribute, DeviceClass, DeviceSubRequest, ExactDeviceRequest, ResourceClaim
from kerf_dra.driver.allocation.pools.node_devices import NodeDevices
from kerf_dra.driver.allocation.search.constraints import Constraint, Values
from kerf_dra.driver.allocation.semantics.bitset import iter_bits
from kerf_dra.driver.allocation.semantics.capacity import CapacityDemand
from kerf_dra.driver.cel.compile import ExpressionCompileError, ExpressionRuntimeError, UnsupportedExpressionError

MAX_RESULTS: Final = 32
"""The most devices that one claim can get (``resource.k8s.io/v1`` AllocationResultsMaxSize)."""

RequestSpec: TypeAlias = ExactDeviceRequest | DeviceSubRequest
"""The spec of one alternative."""


class UnanswerableError(PermanentError):
    """The claims request something that no node can decide, or that a disabled feature would have to provide."""


@dataclass(frozen=True, slots=True)
class FilteredDevices:
    """Bitsets of the devices that are left after each filter, in the order of the filters; for messages."""

    selected: int
    """The devices that the selectors of the class and of the request select."""
    on_node: int
    """Selected devices that the node can use and that are not held exclusively (``All``, admin access: all usable)."""
    sufficient: int
    """The devices of ``on_node`` with the requested capacities."""
    tolerated: int
    """The devices of ``sufficient`` without a taint that the request does not tolerate."""
    unblocked: int
    """The devices of ``tolerated`` that the counters allow while nothing is assigned to the pod."""


@dataclass(frozen=True, kw_only=True, eq=False)
class RequestAlternative:
    """One alternative of a request, on one node."""

    claim: int
    """The index of the alternative's claim."""
    name: str
    """``request``, or ``request/subrequest``."""
    spec: RequestSpec
    class_: DeviceClass
    count: int
    """The number of devices that the alternative needs; under ``All`` the number of its candidates."""
    is_all: bool
    is_admin: bool
    candidates: int
    """The bitset of the domain before other choices are considered; under ``All`` every device that it must get."""
    usable: int
    """The bitset of candidates that can be assigned while nothing is assigned to the pod."""
    errors: Mapping[int, str]
    """The errors of devices that fail permanently when tried, unless in use; such an error fails the pod."""
    failing: int
    """The bitset of the devices in ``errors``."""
    demands: Mapping[int, CapacityDemand]
    """The amounts that the alternative takes of the capacities of each shareable device."""
    constraints: tuple[int, ...]
    """The indices of the claim's constraints that apply to the alternative."""
    filtered: FilteredDevices


@dataclass(frozen=True)
class Request:
    """A request of a claim, with its alternatives in order of preference, one of which is to be served."""

    claim: int
    """The index of the request's claim."""
    name: str
    alternatives: tuple[RequestAlternative, ...]

    @cached_property
    def fewest(self) -> int:
        """The smallest number of devices that serves it."""
        return min(alternative.count for alternative in self.alternatives)

    @cached_property
    def usable(self) -> int:
        """The bitset of devices that some alternative can use."""
        return reduce(or_, (alternative.usable for alternative in self.alternatives), 0)


class ComparedAttribute(NamedTuple):
    """The attribute that a constraint compares: equal for all claims with such a constraint."""

    attribute: str
    derived: tuple[DerivedAttribute, ...]
    """The derived attributes of the request, one of which may be the attribute (KEP-6080)."""


@dataclass(frozen=True)
class AllocationProblem:
    """All claims of a pod, on one node."""

    claims: Sequence[ResourceClaim]
    node_devices: NodeDevices
    requests: tuple[Request, ...]
    constraints: tuple[tuple[Constraint, ...], ...]
    """The constraints of each claim."""
    _values: dict[tuple[ComparedAttribute, int], Values | Exception | None] = field(default_factory=dict, repr=False)
    supplies: dict[tuple[int, int, int], int] = field(default_factory=dict, repr=False)
    """A cache of ``Bounds``: the most devices that a counter set can supply, by the set, its remaining counters and a
    bitset of devices."""

    def compared_attribute(self, alternative: RequestAlternative, constraint: int) -> ComparedAttribute:
        """The attribute that a constraint of the alternative's claim compares on the alternative's devices."""
        attribute = self.constraints[alternative.claim][constraint].attribute
        return ComparedAttribute(attribute, alternative.spec.derived_attributes)

    def values(self, alternative: RequestAlternative, constraint: int, device: int) -> Values | None:
        """The values that a constraint compares of a device; None: the device lacks the attribute.

        Raises UnanswerableError if a derived attribute cannot be evaluated on the device.
        """
        key = self.compared_attribute(alternative, constraint), device
        published = self.node_devices.device(device)
        if key not in self._values:
            try:
                of_claim = self.constraints[alternative.claim][constraint]
                self._values[key] = of_claim.values(published, alternative.spec.derived_attributes)
            except (ExpressionCompileError, ExpressionRuntimeError, UnsupportedExpressionError) as error:
                self._values[key] = error
        values = self._values[key]
        if isinstance(values, Exception):
            place = f"claim {self.claims[alternative.claim].ref}, request {alternative.name}, {published.id}"
            raise UnanswerableError(f"{place}: {values}") from values
        return values

    @cached_property
    def members(self) -> Mapping[int, int]:
        """For each counter set the bitset of usable devices of which it is the first set."""
        members: dict[int, int] = defaultdict(int)
        for device in iter_bits(self._usable):
            uses = self.node_devices.uses(device)
            if uses and uses[0].amount is not None:
                members[uses[0].set] |= 1 << device
        return members

    @cached_property
    def unlimited(self) -> int:
        """The bitset of usable devices that no counter set limits."""
        return self._usable & ~reduce(or_, self.members.values(), 0)

    @property
    def _usable(self) -> int:
        return reduce(or_, (request.usable for request in self.requests), 0)

    @cached_property
    def safe_requests(self) -> int:
        """The number of requests before the first for which trying some device may fail permanently."""
        risky = (any(self._may_fail(alternative) for alternative in request.alternatives) for request in self.requests)
        return next((index for index, is_risky in enumerate(risky) if is_risky), len(self.requests))

    @property
    def may_fail(self) -> bool:
        """Whether trying some device may fail permanently: then only trying them in order gives the right outcome."""
        return self.safe_requests < len(self.requests)

    def _may_fail(self, alternative: RequestAlternative) -> bool:
        if alternative.errors or (alternative.is_all and alternative.constraints):
            return True
        try:
            for constraint in alternative.constraints if alternative.spec.derived_attributes else ():
                for device in iter_bits(alternative.candidates):
                    self.values(alternative, constraint, device)
        except UnanswerableError:
            return True
        return False
