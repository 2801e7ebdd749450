"""Why claims do not fit on a node: for each request the first obstacle, in words.

Worked out only after a search has failed, from what asking and searching know already. A request that no single
obstacle stops is reported when all are like that: then it is the combination that cannot be had.
"""

from collections.abc import Iterable, Iterator

from driver.allocation.decisions import Obstacle, Reason
from driver.allocation.forecasting import Forecaster
from driver.allocation.pools import bits
from driver.allocation.questions import Question, Request, Want
from driver.allocation.tallying import Tally

_NAMED = 3
"""How many devices, claims or taints a message lists before it says "and others"."""


def explain(question: Question) -> tuple[Reason, ...]:
    """The reasons, in the order of the requests. Never empty for a question without an answer."""
    reasons = tuple(reason for request in question.requests for reason in _of_request(question, request))
    return reasons or tuple(_of_combination(question))


def _of_request(question: Question, request: Request) -> Iterable[Reason]:
    """Why a request cannot be served even alone: nothing if one of its wants can."""
    obstacles = [_first_obstacle(question, want) for want in request.wants]
    if all(obstacle is not None for obstacle in obstacles):
        for want, obstacle in zip(request.wants, obstacles, strict=True):
            if obstacle is not None:
                yield _reason(question, want.claim, want.name, *obstacle)


def _of_combination(question: Question) -> Iterator[Reason]:
    for position, constraints in enumerate(question.constraints):
        failing = [index for index in range(len(constraints)) if not _can_hold(question, position, index)]
        for index in failing:
            constraint = constraints[index]
            names = [each.name for each in question.requests if each.claim == position]
            over = ", ".join(name for name in names if constraint.applies_to(name)) or ", ".join(
                sorted(constraint.requests)
            )
            yield _reason(
                question,
                position,
                over,
                Obstacle.CONSTRAINT,
                f"{constraint} cannot hold over the devices that are free",
            )
        if failing:
            return
    for request in question.requests:
        message = "can be served alone, but not together with the other requests of the pod"
        yield _reason(question, request.claim, request.name, Obstacle.COMBINATION, message)


def _can_hold(question: Question, claim: int, constraint: int) -> bool:
    return Forecaster(question).constraint_can_hold(Tally(question), question.requests, claim, constraint)


def _reason(question: Question, claim: int, request: str, obstacle: Obstacle, message: str) -> Reason:
    return Reason(claim=str(question.claims[claim].ref), request=request, obstacle=obstacle, message=message)


def _first_obstacle(question: Question, want: Want) -> tuple[Obstacle, str] | None:
    """What stops a want taken alone, in the order in which devices drop out; None: nothing."""
    steps = (_no_pool, _nothing_selected, _not_here, _in_use, _insufficient, _tainted, _exhausted, _too_few)
    return next((found for step in steps if (found := step(question, want)) is not None), None)


def _no_pool(question: Question, _want: Want) -> tuple[Obstacle, str] | None:
    views = question.offer.views
    if not views:
        return Obstacle.NO_POOL, "no driver publishes devices for this node"
    problem = next((view.problem for view in views if view.problem), None)
    if problem is None or question.offer.devices:
        return None
    return (Obstacle.POOL_INCOMPLETE if problem.kind == "incomplete" else Obstacle.POOL_INVALID), problem.message


def _nothing_selected(question: Question, want: Want) -> tuple[Obstacle, str] | None:
    if want.funnel.selected & question.offer.recognized:
        return None
    name, total = want.ask.device_class_name, len(question.offer.devices)
    found = question.offer.select(want.class_, ()).selected.bit_count()
    if not found:
        return Obstacle.CLASS, f"none of the {total} devices for this node is of class {name}"
    selectors = [selector.cel.expression for selector in want.ask.selectors if selector.cel]
    for position in range(len(selectors)):
        if not question.offer.select(want.class_, tuple(selectors[: position + 1])).selected:
            message = f"none of the {found} devices of class {name} matches selector {position}: {selectors[position]}"
            return Obstacle.SELECTOR, message
    return Obstacle.SELECTOR, f"the {found} devices of class {name} need a feature that is switched off"


def _not_here(question: Question, want: Want) -> tuple[Obstacle, str] | None:
    if want.funnel.selected & question.offer.on_node:
        return None
    return Obstacle.NODE, f"{_devices(want.funnel.selected)} match, but can be used on other nodes only"


def _in_use(question: Question, want: Want) -> tuple[Obstacle, str] | None:
    matching = want.funnel.selected & question.offer.on_node
    held = 0 if want.is_admin else matching & question.offer.held
    if not held or (matching & ~held and not want.is_all):
        return None
    holders = question.offer.allocated.holders
    ids = (question.offer.devices[index].id for index in bits(held))
    claims = _some(str(holders[id_]) for id_ in ids if id_ in holders)
    by = f" by {claims}" if claims else ""
    if want.is_all and matching & ~held:
        wanted, taken = _devices(matching), held.bit_count()
        return Obstacle.IN_USE, f"all are wanted of {wanted} that match, but {taken} are in use{by}"
    return Obstacle.IN_USE, f"{_devices(held)} match, but are in use{by}"


def _insufficient(question: Question, want: Want) -> tuple[Obstacle, str] | None:
    offer = question.offer
    if not want.funnel.sufficient:
        asked = want.ask.capacity.requests if want.ask.capacity else {}
        amounts = ", ".join(f"{name} {amount}" for name, amount in asked.items())
        what = f"the capacity asked for ({amounts})" if amounts else "capacity left"
        return Obstacle.CAPACITY, f"{_devices(want.funnel.on_node)} match, but none has {what}"
    used_up = [
        index
        for index, demand in want.demands.items()
        if not demand.fits(offer.devices[index].device.capacity, offer.consumed.get(index, {}))
    ]
    if not used_up:
        return None
    wanted = _devices(want.funnel.sufficient)
    return Obstacle.CAPACITY, f"all are wanted of {wanted} that match, but {len(used_up)} have too little capacity left"


def _tainted(question: Question, want: Want) -> tuple[Obstacle, str] | None:
    tainted = want.funnel.sufficient & ~want.funnel.tolerated
    if not tainted or (want.funnel.tolerated and not want.is_all):
        return None
    taints = (taint for index in bits(tainted) for taint in question.offer.devices[index].taints)
    names = _some(f"{taint.key}={taint.value}:{taint.effect}" for taint in taints)
    return Obstacle.TAINTED, f"{_devices(tainted)} match, but are tainted: {names}"


def _exhausted(question: Question, want: Want) -> tuple[Obstacle, str] | None:
    blocked = want.funnel.tolerated & ~want.funnel.joinable
    if not blocked or (want.funnel.joinable and not want.is_all):
        return None
    counters = _some(question.offer.obstacle(index) for index in bits(blocked))
    return Obstacle.COUNTERS, f"{_devices(blocked)} match, but what they need is taken: {counters}"


def _too_few(question: Question, want: Want) -> tuple[Obstacle, str] | None:
    free = want.usable.bit_count()
    supply = Forecaster(question).supply(Tally(question), want.usable)
    if want.count <= supply:
        return None
    if supply < free:
        return Obstacle.COUNTERS, f"{want.count} devices are wanted, but what they need allows {supply:.0f} at once"
    return Obstacle.TOO_FEW, f"{want.count} devices are wanted, but {free} are free that match"


def _devices(mask: int) -> str:
    count = mask.bit_count()
    return f"{count} device" if count == 1 else f"{count} devices"


def _some(names: Iterable[str]) -> str:
    """The first few different names; the rest is not even worked out."""
    listed: list[str] = []
    for name in names:
        if name in listed:
            continue
        if len(listed) == _NAMED:
            return f"{', '.join(listed)} and others"
        listed.append(name)
    return ", ".join(listed)
