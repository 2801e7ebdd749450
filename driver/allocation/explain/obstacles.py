"""Obstacles: for each request the first reason why it cannot be served on a node.

Obstacles are computed only after a search has failed, from the problem and its bounds. An alternative's obstacle is
the first filter that leaves it too few devices. If each request can be served alone, the obstacle is a constraint that
cannot hold, or else the combination of requests.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import Final

from kerf_dra.driver.allocation.explain.amounts import find_short_names
from kerf_dra.driver.allocation.explain.supply import (
    describe_card_limit,
    describe_joint_limit,
    describe_values,
    matching,
)
from kerf_dra.driver.allocation.search.assignment import PartialAssignment
from kerf_dra.driver.allocation.search.bounds import Bounds
from kerf_dra.driver.allocation.search.problem import AllocationProblem, Request, RequestAlternative
from kerf_dra.driver.allocation.semantics.bitset import iter_bits
from kerf_dra.driver.allocation.semantics.matching import selector_expressions
from kerf_dra.driver.allocation.semantics.outcomes import Obstacle, Reason

COUNTERS_TAKEN: Final = "is taken"
"""The end of the message about exhausted counters, unless it is known that no claim has taken from them."""
_NAMED = 3
"""The number of devices, claims or taints that a message lists before "and others": more make it hard to read."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One obstacle; ``message`` names no device and no claim, so that equal nodes have equal findings."""

    claim: int
    """The index of the claim."""
    request: str
    alternatives: tuple[RequestAlternative, ...]
    """The alternatives that cannot be served; several if the obstacle is their combination."""
    obstacle: Obstacle
    message: str
    devices: int = 0
    """The bitset of devices that could be allocated without the obstacle."""
    names: str = ""
    """The names of blocking claims or counters, to be appended to the message."""


def explain_failure(problem: AllocationProblem) -> tuple[Reason, ...]:
    """The reasons in the order of the requests; never empty for a problem without a solution."""
    return tuple(
        Reason(
            claim=str(problem.claims[finding.claim].ref),
            request=finding.request,
            obstacle=finding.obstacle,
            message=finding.message + finding.names,
        )
        for finding in find_obstacles(problem)
    )


def find_obstacles(problem: AllocationProblem) -> tuple[Finding, ...]:
    """Return the obstacles in the order of the requests; never empty for a problem without a solution."""
    bounds = Bounds(problem)
    found = tuple(finding for request in problem.requests for finding in _of_request(problem, bounds, request))
    return found or tuple(_of_combination(problem, bounds))


def _of_request(problem: AllocationProblem, bounds: Bounds, request: Request) -> Iterable[Finding]:
    """Return the obstacles of a request taken alone; none if one of its alternatives can be served."""
    found = [_first_obstacle(problem, bounds, alternative) for alternative in request.alternatives]
    obstacles = [finding for finding in found if finding is not None]
    return obstacles if len(obstacles) == len(found) else ()


def _of_combination(problem: AllocationProblem, bounds: Bounds) -> Iterator[Finding]:
    empty = PartialAssignment(problem)
    for position, constraints in enumerate(problem.constraints):
        failing = [
            index
            for index in range(len(constraints))
            if not bounds.constraint_can_hold(empty, problem.requests, position, index)
        ]
        for index in failing:
            constraint = constraints[index]
            bound = [each for each in problem.requests if each.claim == position and constraint.applies_to(each.name)]
            over = ", ".join(each.name for each in bound) or ", ".join(sorted(constraint.requests))
            alternatives = tuple(alternative for each in bound for alternative in each.alternatives)
            needed = sum(each.fewest for each in bound)
            values = describe_values(problem, alternatives, index, constraint, needed)
            message = f"{constraint} cannot hold over the devices that are free{values}"
            yield Finding(position, over, alternatives, Obstacle.CONSTRAINT, message, _matching(problem, alternatives))
        if failing:
            return
    for request in problem.requests:
        devices = _matching(problem, request.alternatives)
        limit = describe_joint_limit(problem, bounds, devices, request.usable)
        message = f"can be served alone, but not together with the other requests of the pod{limit}"
        yield Finding(request.claim, request.name, request.alternatives, Obstacle.COMBINATION, message, devices)


def _matching(problem: AllocationProblem, alternatives: Iterable[RequestAlternative]) -> int:
    return reduce(or_, (matching(problem, each) for each in alternatives), 0)


def _first_obstacle(problem: AllocationProblem, bounds: Bounds, alternative: RequestAlternative) -> Finding | None:
    """The first obstacle of an alternative taken alone, in the order of the filters; None: there is no obstacle."""
    steps = (_no_pool, _nothing_selected, _not_here, _never_enough, _in_use, _insufficient, _tainted, _exhausted)
    found = next((found for step in steps if (found := step(problem, alternative)) is not None), None)
    return found or _too_few(problem, bounds, alternative)


def _found(
    alternative: RequestAlternative, obstacle: Obstacle, message: str, devices: int = 0, names: str = ""
) -> Finding:
    return Finding(alternative.claim, alternative.name, (alternative,), obstacle, message, devices, names)


def _no_pool(problem: AllocationProblem, alternative: RequestAlternative) -> Finding | None:
    views = problem.node_devices.views
    if not views:
        return _found(alternative, Obstacle.NO_POOL, "no driver publishes devices for this node")
    fault = next((view.fault for view in views if view.fault), None)
    if fault is None or alternative.filtered.selected:
        return None
    obstacle = Obstacle.POOL_INCOMPLETE if fault.kind == "incomplete" else Obstacle.POOL_INVALID
    return _found(alternative, obstacle, fault.message)


def _nothing_selected(problem: AllocationProblem, alternative: RequestAlternative) -> Finding | None:
    if alternative.filtered.selected & problem.node_devices.recognized:
        return None
    name, total = alternative.spec.device_class_name, problem.node_devices.count
    found = problem.node_devices.select(selector_expressions(alternative.class_.spec.selectors)).selected
    if not found:
        return _found(alternative, Obstacle.CLASS, f"none of the {total} devices for this node is of class {name}")
    of_class = f"{found.bit_count()} devices of class {name}"
    for position, expression in enumerate(selector_expressions(alternative.spec.selectors)):
        tried = selector_expressions(alternative.class_.spec.selectors, alternative.spec.selectors[: position + 1])
        if not problem.node_devices.select(tried).selected:
            message = f"none of the {of_class} matches selector {position}: {expression}"
            return _found(alternative, Obstacle.SELECTOR, message, found)
    return _found(alternative, Obstacle.SELECTOR, f"the {of_class} need a feature that is disabled", found)


def _not_here(problem: AllocationProblem, alternative: RequestAlternative) -> Finding | None:
    selected = alternative.filtered.selected
    if selected & problem.node_devices.on_node:
        return None
    return _found(alternative, Obstacle.NODE, f"{_match(selected)}, but can be used on other nodes only", selected)


def _never_enough(problem: AllocationProblem, alternative: RequestAlternative) -> Finding | None:
    """Whether the node has too few devices even if no claim held any."""
    devices = matching(problem, alternative)
    if alternative.count <= devices.bit_count() or devices & problem.node_devices.shareable:
        return None
    limit = describe_card_limit(Bounds(problem), devices)
    message = f"{alternative.count} devices requested, but only {_match(devices)}{limit}"
    return _found(alternative, Obstacle.TOO_FEW, message)


def _in_use(problem: AllocationProblem, alternative: RequestAlternative) -> Finding | None:
    devices = matching(problem, alternative)
    held = 0 if alternative.is_admin else devices & problem.node_devices.held
    if not held or (devices & ~held and not alternative.is_all):
        return None
    holders = problem.node_devices.allocated.holders
    ids = (problem.node_devices.device(index).id for index in iter_bits(held))
    claims = _list_some(str(holders[id_]) for id_ in ids if id_ in holders)
    by = f" by {claims}" if claims else ""
    if alternative.is_all and devices & ~held:
        message = f"all are requested of {_devices(devices)} that match, but {held.bit_count()} {_are(held)} in use"
        return _found(alternative, Obstacle.IN_USE, message, held, by)
    return _found(alternative, Obstacle.IN_USE, f"{_match(held)}, but {_are(held)} in use", held, by)


def _insufficient(problem: AllocationProblem, alternative: RequestAlternative) -> Finding | None:
    node_devices = problem.node_devices
    if not alternative.filtered.sufficient:
        devices = alternative.filtered.on_node
        short = _list_some(find_short_names(problem, alternative, devices)) or "a capacity"
        lacks = "has too little free" if devices.bit_count() == 1 else "none has enough free"
        return _found(alternative, Obstacle.CAPACITY, f"{_match(devices)}, but {lacks}: {short}", devices)
    used_up = sum(
        1 << index
        for index, demand in alternative.demands.items()
        if not demand.fits(node_devices.device(index).device.capacity, node_devices.consumed.get(index, {}))
    )
    if not used_up:
        return None
    have = "has" if used_up.bit_count() == 1 else "have"
    wanted = _devices(alternative.filtered.sufficient)
    message = f"all are requested of {wanted} that match, but {used_up.bit_count()} {have} too little capacity left"
    return _found(alternative, Obstacle.CAPACITY, message, used_up)


def _tainted(problem: AllocationProblem, alternative: RequestAlternative) -> Finding | None:
    tainted = alternative.filtered.sufficient & ~alternative.filtered.tolerated
    if not tainted or (alternative.filtered.tolerated and not alternative.is_all):
        return None
    taints = (taint for index in iter_bits(tainted) for taint in problem.node_devices.device(index).taints)
    names = _list_some(f"{taint.key}={taint.value}:{taint.effect}" for taint in taints)
    return _found(alternative, Obstacle.TAINTED, f"{_match(tainted)}, but {_are(tainted)} tainted: {names}", tainted)


def _exhausted(problem: AllocationProblem, alternative: RequestAlternative) -> Finding | None:
    blocked = alternative.filtered.tolerated & ~alternative.filtered.unblocked
    if not blocked or (alternative.filtered.unblocked and not alternative.is_all):
        return None
    it = "it needs" if blocked.bit_count() == 1 else "they need"
    counters = _list_some(problem.node_devices.describe_block(index) for index in iter_bits(blocked))
    message = f"{_match(blocked)}, but what {it} {COUNTERS_TAKEN}"
    held = 0 if alternative.is_admin else _matching(problem, [alternative]) & problem.node_devices.held
    return _found(alternative, Obstacle.COUNTERS, message, blocked | held, f": {counters}")


def _too_few(problem: AllocationProblem, bounds: Bounds, alternative: RequestAlternative) -> Finding | None:
    free = alternative.usable.bit_count()
    supply = bounds.supply(PartialAssignment(problem), alternative.usable)
    if alternative.count <= supply:
        return None
    tolerated = alternative.filtered.tolerated | _matching(problem, [alternative]) & problem.node_devices.held
    most = bounds.supply_of_empty_node(_matching(problem, [alternative]))
    if alternative.count > most:
        limit = f"the node has at most {most:.0f}{describe_card_limit(bounds, tolerated)}"
    elif supply < free:
        limit = f"their counters allow {supply:.0f} at once"
    else:
        limit = f"{free} {_are(alternative.usable)} free that match"
    obstacle = Obstacle.COUNTERS if supply < free else Obstacle.TOO_FEW
    return _found(alternative, obstacle, f"{alternative.count} devices requested, but {limit}", tolerated)


def _devices(bitset: int) -> str:
    count = bitset.bit_count()
    return f"{count} device" if count == 1 else f"{count} devices"


def _match(bitset: int) -> str:
    return f"{_devices(bitset)} {'matches' if bitset.bit_count() == 1 else 'match'}"


def _are(bitset: int) -> str:
    return "is" if bitset.bit_count() == 1 else "are"


def _list_some(names: Iterable[str]) -> str:
    listed: list[str] = []
    for name in names:
        if name in listed:
            continue
        if len(listed) == _NAMED:
            return f"{', '.join(listed)} and others"
        listed.append(name)
    return ", ".join(listed)
