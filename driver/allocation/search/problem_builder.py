"""Builds the ``AllocationProblem`` of a pod's claims on one node.

Everything that does not depend on other choices of the search is decided here once: the domain of each alternative
(node consistency, in terms of constraint solvers), the amounts it would take of each device, and which devices fail
permanently. Checks and their order are those of ``k8s.io/dynamic-resource-allocation/structured`` (``Allocate``,
``validateDeviceRequest``).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kerf_dra.api.model.claims import DeviceClass, DeviceRequest, ExactDeviceRequest, ResourceClaim
from kerf_dra.driver.allocation.pools.node_devices import NodeDevices
from kerf_dra.driver.allocation.search.constraints import Constraint
from kerf_dra.driver.allocation.search.problem import (
    MAX_RESULTS,
    AllocationProblem,
    FilteredDevices,
    Request,
    RequestAlternative,
    RequestSpec,
    UnanswerableError,
)
from kerf_dra.driver.allocation.semantics.bitset import iter_bits
from kerf_dra.driver.allocation.semantics.capacity import CapacityDemand, CapacityRequestError, compute_demand
from kerf_dra.driver.allocation.semantics.matching import is_tainted, selector_expressions
from kerf_dra.driver.allocation.semantics.outcomes import Features


def build_problem(
    node_devices: NodeDevices, claims: Sequence[ResourceClaim], classes: Mapping[str, DeviceClass]
) -> AllocationProblem:
    """Build the problem of serving ``claims`` with ``node_devices``; ``classes`` are by name.

    Raises UnanswerableError if a claim requests what no node can decide (a missing class, an unknown kind of request
    or constraint, more devices than a claim can get), needs a disabled feature, or requests all devices while some
    pool or device cannot be evaluated, and InvalidNodeSelectorError if a published node selector is invalid.
    """
    requests: list[Request] = []
    constraints: list[tuple[Constraint, ...]] = []
    for index, claim in enumerate(claims):
        of_claim = _constraints(claim, node_devices.features)
        builder = _RequestBuilder(node_devices, classes, index, claim, of_claim)
        built = [builder.build(request) for request in claim.spec.devices.requests]
        fewest = sum(request.fewest for request in built)
        if fewest > MAX_RESULTS:
            raise UnanswerableError(f"claim {claim.ref}: {fewest} devices are more than the {MAX_RESULTS} of a claim")
        requests += built
        constraints.append(of_claim)
    return AllocationProblem(
        claims=claims, node_devices=node_devices, requests=tuple(requests), constraints=tuple(constraints)
    )


def _constraints(claim: ResourceClaim, features: Features) -> tuple[Constraint, ...]:
    constraints: list[Constraint] = []
    for index, constraint in enumerate(claim.spec.devices.constraints):
        known = Constraint.of(constraint, with_lists=features.list_type_attributes)
        if known is None:
            raise UnanswerableError(f"claim {claim.ref}, constraint #{index}: empty, or of a kind that is not known")
        constraints.append(known)
    return tuple(constraints)


@dataclass(frozen=True, slots=True)
class _RequestBuilder:
    """A builder of the requests of one claim, which is the ``_index``-th."""

    _node_devices: NodeDevices
    _classes: Mapping[str, DeviceClass]
    _index: int
    _claim: ResourceClaim
    _constraints: Sequence[Constraint]

    def build(self, request: DeviceRequest) -> Request:
        if request.first_available and not self._node_devices.features.prioritized_list:
            raise self._unanswerable(request.name, "has subrequests, but the feature DRAPrioritizedList is off")
        if request.exactly is None and not request.first_available:
            raise self._unanswerable(request.name, "empty, or of a kind that is not known")
        specs: list[tuple[str, RequestSpec]]
        specs = [(f"{request.name}/{spec.name}", spec) for spec in request.first_available]
        if request.exactly is not None and not specs:
            specs = [(request.name, request.exactly)]
        return Request(
            claim=self._index,
            name=request.name,
            alternatives=tuple(self._alternative(name, spec) for name, spec in specs),
        )

    def _alternative(self, name: str, spec: RequestSpec) -> RequestAlternative:
        self._validate(name, spec)
        class_ = self._classes.get(spec.device_class_name)
        if class_ is None:
            raise self._unanswerable(name, f"device class {spec.device_class_name or '(none)'} does not exist")
        is_all = spec.allocation_mode == "All"
        selection = self._node_devices.select(selector_expressions(class_.spec.selectors, spec.selectors))
        is_admin = isinstance(spec, ExactDeviceRequest) and bool(spec.admin_access)
        visible = self._node_devices.recognized
        if not is_all and not is_admin:
            visible &= ~self._node_devices.held
        on_node = selection.selected & visible & self._node_devices.on_node
        errors = {index: message for index, message in selection.errors.items() if visible >> index & 1}
        consumed = {} if is_all else self._node_devices.consumed
        sufficient, demands = self._with_capacity(spec, on_node, consumed, errors)
        for index, message in errors.items():
            device = self._node_devices.device(index).id
            errors[index] = f"claim {self._claim.ref}, request {name}, device {device}: {message}"
        if is_all:
            self._validate_all(name, errors)
        tolerated = self._without_taints(spec, sufficient)
        unblocked = tolerated & self._node_devices.unblocked
        taken = 0 if is_admin else self._node_devices.held
        return RequestAlternative(
            claim=self._index,
            name=name,
            spec=spec,
            class_=class_,
            count=sufficient.bit_count() if is_all else 1 if spec.count is None else spec.count,
            is_all=is_all,
            is_admin=is_admin,
            candidates=sufficient if is_all else unblocked,
            usable=unblocked & ~taken,
            errors=errors,
            failing=sum(1 << index for index in errors),
            demands=demands,
            constraints=tuple(
                index for index, constraint in enumerate(self._constraints) if constraint.applies_to(name)
            ),
            filtered=FilteredDevices(
                selected=selection.selected,
                on_node=on_node,
                sufficient=sufficient,
                tolerated=tolerated,
                unblocked=unblocked,
            ),
        )

    def _validate(self, name: str, spec: RequestSpec) -> None:
        features = self._node_devices.features
        if spec.capacity is not None and not features.consumable_capacity:
            raise self._unanswerable(name, "has capacity requests, but the feature DRAConsumableCapacity is off")
        for index, selector in enumerate(spec.selectors):
            if selector.cel is None:
                raise self._unanswerable(name, f"selector #{index} is empty, or of a kind that is not known")
        if isinstance(spec, ExactDeviceRequest) and spec.admin_access is not None and not features.admin_access:
            raise self._unanswerable(name, "admin access is requested, but the feature DRAAdminAccess is off")
        if spec.derived_attributes and not features.derived_attributes:
            raise self._unanswerable(name, "has derived attributes, but the feature DRADerivedAttributes is off")
        if spec.count is not None and spec.count < 0:
            raise self._unanswerable(name, f"a count of {spec.count} devices")
        if spec.allocation_mode not in ("ExactCount", "All"):
            raise self._unanswerable(name, f"unknown allocation mode {spec.allocation_mode}")

    def _validate_all(self, name: str, errors: Mapping[int, str]) -> None:
        """Raises UnanswerableError unless every pool is complete and every device can be evaluated."""
        for view in self._node_devices.views:
            if view.fault is not None:
                raise self._unanswerable(name, f"asks for all devices, but {view.fault.message}")
        for message in errors.values():
            raise UnanswerableError(message)

    def _with_capacity(
        self, spec: RequestSpec, devices: int, consumed: Mapping[int, Mapping[str, int]], errors: dict[int, str]
    ) -> tuple[int, dict[int, CapacityDemand]]:
        """Return the ``devices`` with enough capacity beside ``consumed``, and the demand on each that is shareable.

        ``All`` needs every device that could have enough, so ``consumed`` is empty then: an exhausted device makes the
        request fail, as one in use does. Invalid capacity requests are added to ``errors``.
        """
        demands: dict[int, CapacityDemand] = {}
        if not self._node_devices.features.consumable_capacity:
            return devices, demands
        fractional = self._node_devices.features.fractional_capacity_range
        requests = spec.capacity.requests if spec.capacity else {}
        sufficient = devices
        for index in iter_bits(devices if requests else devices & self._node_devices.measured):
            published = self._node_devices.device(index)
            capacity = published.capacity
            try:
                demand = compute_demand(published.id.driver, capacity, requests, fractional=fractional)
            except CapacityRequestError as error:
                errors[index] = str(error)
                demand = None
            if demand is None or not demand.fits(capacity, consumed.get(index, {})):
                sufficient &= ~(1 << index)
            elif self._node_devices.shareable >> index & 1:
                demands[index] = demand
        return sufficient, demands

    def _without_taints(self, spec: RequestSpec, devices: int) -> int:
        if not self._node_devices.features.device_taints:
            return devices
        for index in iter_bits(devices & self._node_devices.tainted):
            if is_tainted(self._node_devices.device(index).taints, spec.tolerations):
                devices &= ~(1 << index)
        return devices

    def _unanswerable(self, request: str, message: str) -> UnanswerableError:
        return UnanswerableError(f"claim {self._claim.ref}, request {request}: {message}")
