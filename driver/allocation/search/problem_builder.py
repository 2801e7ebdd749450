"""Making ready for the search what the claims of a pod ask for.

All that does not depend on other choices of the search is decided here: which devices a want may take, what it would
take of them, and where trying must fail.
"""

from collections.abc import Mapping, Sequence

from api.model.claims import DeviceClass, DeviceRequest, ExactDeviceRequest, ResourceClaim
from driver.allocation.pools.node_devices import Offer
from driver.allocation.search.constraints import Constraint
from driver.allocation.search.problem import MAX_RESULTS, Ask, Funnel, Question, Request, UnanswerableError, Want
from driver.allocation.semantics.bitset import bits
from driver.allocation.semantics.capacity import CapacityRequestError, Demand, demand
from driver.allocation.semantics.matching import is_tainted
from driver.allocation.semantics.outcomes import Features


def ask(offer: Offer, claims: Sequence[ResourceClaim], classes: Mapping[str, DeviceClass]) -> Question:
    """What ``claims`` ask for of ``offer``. Raises UnanswerableError."""
    requests: list[Request] = []
    constraints: list[tuple[Constraint, ...]] = []
    for position, claim in enumerate(claims):
        of_claim = _constraints(claim, offer.features)
        asker = _Asker(offer, classes, position, claim, of_claim)
        prepared = [asker.request(request) for request in claim.spec.devices.requests]
        fewest = sum(request.fewest for request in prepared)
        if fewest > MAX_RESULTS:
            raise UnanswerableError(f"claim {claim.ref}: {fewest} devices are more than the {MAX_RESULTS} of a claim")
        requests += prepared
        constraints.append(of_claim)
    return Question(claims=claims, offer=offer, requests=tuple(requests), constraints=tuple(constraints))


def _constraints(claim: ResourceClaim, features: Features) -> tuple[Constraint, ...]:
    constraints: list[Constraint] = []
    for index, constraint in enumerate(claim.spec.devices.constraints):
        known = Constraint.of(constraint, with_lists=features.list_type_attributes)
        if known is None:
            raise UnanswerableError(f"claim {claim.ref}, constraint #{index}: empty, or of a kind that is not known")
        constraints.append(known)
    return tuple(constraints)


class _Asker:
    """Prepares the requests of one claim."""

    def __init__(
        self,
        offer: Offer,
        classes: Mapping[str, DeviceClass],
        position: int,
        claim: ResourceClaim,
        constraints: Sequence[Constraint],
    ) -> None:
        self._offer = offer
        self._features = offer.features
        self._classes = classes
        self._position = position
        self._claim = claim
        self._constraints = constraints

    def request(self, request: DeviceRequest) -> Request:
        if request.first_available and not self._features.prioritized_list:
            raise self._unanswerable(request.name, "has subrequests, but the feature DRAPrioritizedList is off")
        if request.exactly is None and not request.first_available:
            raise self._unanswerable(request.name, "empty, or of a kind that is not known")
        asks: list[tuple[str, Ask]] = [(f"{request.name}/{ask.name}", ask) for ask in request.first_available]
        if request.exactly is not None and not asks:
            asks = [(request.name, request.exactly)]
        return Request(
            claim=self._position,
            name=request.name,
            wants=tuple(self._want(name, ask) for name, ask in asks),
        )

    def _want(self, name: str, ask: Ask) -> Want:
        self._check(name, ask)
        class_ = self._classes.get(ask.device_class_name)
        if class_ is None:
            raise self._unanswerable(name, f"device class {ask.device_class_name or '(none)'} does not exist")
        is_all = ask.allocation_mode == "All"
        selectors = tuple(selector.cel.expression for selector in ask.selectors if selector.cel)
        selection = self._offer.select(class_, selectors)
        is_admin = isinstance(ask, ExactDeviceRequest) and bool(ask.admin_access)
        visible = self._offer.recognized
        if not is_all and not is_admin:
            visible &= ~self._offer.held
        on_node = selection.selected & visible & self._offer.on_node
        failing = {index: message for index, message in selection.errors.items() if visible >> index & 1}
        consumed = {} if is_all else self._offer.consumed
        sufficient, demands = self._measure(ask, on_node, consumed, failing)
        failing = {
            index: f"claim {self._claim.ref}, request {name}, device {self._offer.devices[index].id}: {message}"
            for index, message in failing.items()
        }
        if is_all:
            self._check_all(name, failing)
        tolerated = self._tolerated(ask, sufficient)
        joinable = tolerated & self._offer.joinable
        taken = 0 if is_admin else self._offer.held
        return Want(
            claim=self._position,
            name=name,
            ask=ask,
            class_=class_,
            count=sufficient.bit_count() if is_all else 1 if ask.count is None else ask.count,
            is_all=is_all,
            is_admin=is_admin,
            candidates=sufficient if is_all else joinable,
            usable=joinable & ~taken,
            failing=failing,
            failing_mask=sum(1 << index for index in failing),
            demands=demands,
            constraints=tuple(
                index for index, constraint in enumerate(self._constraints) if constraint.applies_to(name)
            ),
            funnel=Funnel(
                selected=selection.selected,
                on_node=on_node,
                sufficient=sufficient,
                tolerated=tolerated,
                joinable=joinable,
            ),
        )

    def _check(self, name: str, ask: Ask) -> None:
        """Refuse what a switched-off feature would have to understand, and what nobody understands."""
        if ask.capacity is not None and not self._features.consumable_capacity:
            raise self._unanswerable(name, "has capacity requests, but the feature DRAConsumableCapacity is off")
        for index, selector in enumerate(ask.selectors):
            if selector.cel is None:
                raise self._unanswerable(name, f"selector #{index} is empty, or of a kind that is not known")
        if isinstance(ask, ExactDeviceRequest) and ask.admin_access is not None and not self._features.admin_access:
            raise self._unanswerable(name, "admin access is requested, but the feature DRAAdminAccess is off")
        if ask.derived_attributes and not self._features.derived_attributes:
            raise self._unanswerable(name, "has derived attributes, but the feature DRADerivedAttributes is off")
        if ask.count is not None and ask.count < 0:
            raise self._unanswerable(name, f"a count of {ask.count} devices")
        if ask.allocation_mode not in ("ExactCount", "All"):
            raise self._unanswerable(name, f"unknown allocation mode {ask.allocation_mode}")

    def _check_all(self, name: str, failing: Mapping[int, str]) -> None:
        """``All`` is well defined only while every pool is whole and every device can be judged."""
        for view in self._offer.views:
            if view.problem is not None:
                raise self._unanswerable(name, f"asks for all devices, but {view.problem.message}")
        for message in failing.values():
            raise UnanswerableError(message)

    def _measure(
        self, ask: Ask, devices: int, consumed: Mapping[int, Mapping[str, int]], failing: dict[int, str]
    ) -> tuple[int, dict[int, Demand]]:
        """Of ``devices`` those with enough capacity beside ``consumed``, and what is taken of them.

        ``All`` wants every device that could be enough: one that is used up makes it fail, as one in use does.
        Adds to ``failing``.
        """
        demands: dict[int, Demand] = {}
        if not self._features.consumable_capacity:
            return devices, demands
        requests = ask.capacity.requests if ask.capacity else {}
        sufficient = devices
        for index in bits(devices if requests else devices & self._offer.measured):
            published = self._offer.devices[index]
            capacity = published.device.capacity
            try:
                wanted = demand(
                    published.id.driver, capacity, requests, fractional=self._features.fractional_capacity_range
                )
            except CapacityRequestError as error:
                failing[index] = str(error)
                wanted = None
            if wanted is None or not wanted.fits(capacity, consumed.get(index, {})):
                sufficient &= ~(1 << index)
            elif self._offer.shareable >> index & 1:
                demands[index] = wanted
        return sufficient, demands

    def _tolerated(self, ask: Ask, devices: int) -> int:
        if not self._features.device_taints:
            return devices
        for index in bits(devices & self._offer.tainted):
            if is_tainted(self._offer.devices[index].taints, ask.tolerations):
                devices &= ~(1 << index)
        return devices

    def _unanswerable(self, request: str, message: str) -> UnanswerableError:
        return UnanswerableError(f"claim {self._claim.ref}, request {request}: {message}")
