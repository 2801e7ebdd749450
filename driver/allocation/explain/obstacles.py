"""Why claims do not fit on a node: for each request the first obstacle, in words.

Worked out only after a search has failed, from what asking and searching know already. A request that no single
obstacle stops is reported when all are like that: then it is the combination that cannot be had.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from driver.allocation.search.assignment import Tally
from driver.allocation.search.bounds import Forecaster
from driver.allocation.search.problem import Question, Request, Want
from driver.allocation.semantics.bitset import bits
from driver.allocation.semantics.outcomes import Obstacle, Reason

TAKEN: Final = "is taken"
"""How the message about exhausted counters ends, as long as nobody has looked by whom."""
_NAMED = 3
"""How many devices, claims or taints a message lists before it says "and others"."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What stops a request: ``message`` names no device and no claim, so that equal nodes have equal findings."""

    claim: int
    """Position of the claim."""
    request: str
    wants: tuple[Want, ...]
    """Whose obstacle it is; several when it is theirs together."""
    obstacle: Obstacle
    message: str
    devices: int = 0
    """The devices that would do, were it not for the obstacle."""
    names: str = ""
    """Who or what is in the way by name, as it goes on after the message."""


@dataclass(frozen=True, slots=True)
class _Stop:
    """A finding before it is known whose it is."""

    obstacle: Obstacle
    message: str
    devices: int = 0
    names: str = ""


def explain(question: Question) -> tuple[Reason, ...]:
    """The reasons, in the order of the requests. Never empty for a question without an answer."""
    return tuple(
        Reason(
            claim=str(question.claims[finding.claim].ref),
            request=finding.request,
            obstacle=finding.obstacle,
            message=finding.message + finding.names,
        )
        for finding in findings(question)
    )


def findings(question: Question) -> tuple[Finding, ...]:
    """What stops the requests, in their order. Never empty for a question without an answer."""
    forecaster = Forecaster(question)
    found = tuple(finding for request in question.requests for finding in _of_request(question, forecaster, request))
    return found or tuple(_of_combination(question, forecaster))


def _of_request(question: Question, forecaster: Forecaster, request: Request) -> Iterable[Finding]:
    """Why a request cannot be served even alone: nothing if one of its wants can."""
    stops = [_first_stop(question, forecaster, want) for want in request.wants]
    if all(stop is not None for stop in stops):
        for want, stop in zip(request.wants, stops, strict=True):
            if stop is not None:
                yield Finding(want.claim, want.name, (want,), stop.obstacle, stop.message, stop.devices, stop.names)


def _of_combination(question: Question, forecaster: Forecaster) -> Iterator[Finding]:
    nothing_taken = Tally(question)
    for position, constraints in enumerate(question.constraints):
        failing = [
            index
            for index in range(len(constraints))
            if not forecaster.constraint_can_hold(nothing_taken, question.requests, position, index)
        ]
        for index in failing:
            constraint = constraints[index]
            bound = [each for each in question.requests if each.claim == position and constraint.applies_to(each.name)]
            over = ", ".join(each.name for each in bound) or ", ".join(sorted(constraint.requests))
            wants = tuple(want for each in bound for want in each.wants)
            message = f"{constraint} cannot hold over the devices that are free"
            yield Finding(position, over, wants, Obstacle.CONSTRAINT, message, _matching(question, wants))
        if failing:
            return
    for request in question.requests:
        message = "can be served alone, but not together with the other requests of the pod"
        devices = _matching(question, request.wants)
        yield Finding(request.claim, request.name, request.wants, Obstacle.COMBINATION, message, devices)


def _matching(question: Question, wants: Iterable[Want]) -> int:
    devices = 0
    for want in wants:
        devices |= want.funnel.selected & question.offer.on_node
    return devices


def _first_stop(question: Question, forecaster: Forecaster, want: Want) -> _Stop | None:
    """What stops a want taken alone, in the order in which devices drop out; None: nothing."""
    steps = (
        _no_pool,
        _nothing_selected,
        _not_here,
        _never_enough,
        _in_use,
        _insufficient,
        _tainted,
        _exhausted,
    )
    found = next((found for step in steps if (found := step(question, want)) is not None), None)
    return found or _too_few(question, forecaster, want)


def _no_pool(question: Question, want: Want) -> _Stop | None:
    views = question.offer.views
    if not views:
        return _Stop(Obstacle.NO_POOL, "no driver publishes devices for this node")
    problem = next((view.problem for view in views if view.problem), None)
    if problem is None or want.funnel.selected:
        return None
    return _Stop(Obstacle.POOL_INCOMPLETE if problem.kind == "incomplete" else Obstacle.POOL_INVALID, problem.message)


def _nothing_selected(question: Question, want: Want) -> _Stop | None:
    if want.funnel.selected & question.offer.recognized:
        return None
    name, total = want.ask.device_class_name, len(question.offer.devices)
    found = question.offer.select(want.class_, ()).selected
    if not found:
        return _Stop(Obstacle.CLASS, f"none of the {total} devices for this node is of class {name}")
    of_class = f"{found.bit_count()} devices of class {name}"
    selectors = [selector.cel.expression for selector in want.ask.selectors if selector.cel]
    for position in range(len(selectors)):
        if not question.offer.select(want.class_, tuple(selectors[: position + 1])).selected:
            message = f"none of the {of_class} matches selector {position}: {selectors[position]}"
            return _Stop(Obstacle.SELECTOR, message, found)
    return _Stop(Obstacle.SELECTOR, f"the {of_class} need a feature that is switched off", found)


def _not_here(question: Question, want: Want) -> _Stop | None:
    matching = want.funnel.selected
    if matching & question.offer.on_node:
        return None
    return _Stop(Obstacle.NODE, f"{_match(matching)}, but can be used on other nodes only", matching)


def _never_enough(question: Question, want: Want) -> _Stop | None:
    """Whether the node would not have enough of them even if nobody else had any."""
    matching = _matching(question, [want])
    if want.count <= matching.bit_count() or matching & question.offer.shareable:
        return None
    return _Stop(Obstacle.TOO_FEW, f"{want.count} devices are wanted, but only {_match(matching)}")


def _in_use(question: Question, want: Want) -> _Stop | None:
    matching = want.funnel.selected & question.offer.on_node
    held = 0 if want.is_admin else matching & question.offer.held
    if not held or (matching & ~held and not want.is_all):
        return None
    holders = question.offer.allocated.holders
    ids = (question.offer.devices[index].id for index in bits(held))
    claims = _some(str(holders[id_]) for id_ in ids if id_ in holders)
    by = f" by {claims}" if claims else ""
    if want.is_all and matching & ~held:
        message = f"all are wanted of {_devices(matching)} that match, but {held.bit_count()} {_are(held)} in use"
        return _Stop(Obstacle.IN_USE, message, held, by)
    return _Stop(Obstacle.IN_USE, f"{_match(held)}, but {_are(held)} in use", held, by)


def _insufficient(question: Question, want: Want) -> _Stop | None:
    offer = question.offer
    if not want.funnel.sufficient:
        asked = want.ask.capacity.requests if want.ask.capacity else {}
        amounts = ", ".join(f"{name} {amount}" for name, amount in asked.items())
        what = f"the capacity asked for ({amounts})" if amounts else "capacity left"
        devices = want.funnel.on_node
        return _Stop(Obstacle.CAPACITY, f"{_match(devices)}, but none has {what}", devices)
    used_up = sum(
        1 << index
        for index, demand in want.demands.items()
        if not demand.fits(offer.devices[index].device.capacity, offer.consumed.get(index, {}))
    )
    if not used_up:
        return None
    have = "has" if used_up.bit_count() == 1 else "have"
    wanted = _devices(want.funnel.sufficient)
    message = f"all are wanted of {wanted} that match, but {used_up.bit_count()} {have} too little capacity left"
    return _Stop(Obstacle.CAPACITY, message, used_up)


def _tainted(question: Question, want: Want) -> _Stop | None:
    tainted = want.funnel.sufficient & ~want.funnel.tolerated
    if not tainted or (want.funnel.tolerated and not want.is_all):
        return None
    taints = (taint for index in bits(tainted) for taint in question.offer.devices[index].taints)
    names = _some(f"{taint.key}={taint.value}:{taint.effect}" for taint in taints)
    return _Stop(Obstacle.TAINTED, f"{_match(tainted)}, but {_are(tainted)} tainted: {names}", tainted)


def _exhausted(question: Question, want: Want) -> _Stop | None:
    blocked = want.funnel.tolerated & ~want.funnel.joinable
    if not blocked or (want.funnel.joinable and not want.is_all):
        return None
    it = "it needs" if blocked.bit_count() == 1 else "they need"
    counters = _some(question.offer.obstacle(index) for index in bits(blocked))
    message = f"{_match(blocked)}, but what {it} {TAKEN}"
    held = 0 if want.is_admin else _matching(question, [want]) & question.offer.held
    return _Stop(Obstacle.COUNTERS, message, blocked | held, f": {counters}")


def _too_few(question: Question, forecaster: Forecaster, want: Want) -> _Stop | None:
    free = want.usable.bit_count()
    supply = forecaster.supply(Tally(question), want.usable)
    if want.count <= supply:
        return None
    matching = want.funnel.tolerated | _matching(question, [want]) & question.offer.held
    if supply < free:
        message = f"{want.count} devices are wanted, but what they need allows {supply:.0f} at once"
        return _Stop(Obstacle.COUNTERS, message, matching)
    message = f"{want.count} devices are wanted, but {free} {_are(want.usable)} free that match"
    return _Stop(Obstacle.TOO_FEW, message, matching)


def _devices(mask: int) -> str:
    count = mask.bit_count()
    return f"{count} device" if count == 1 else f"{count} devices"


def _match(mask: int) -> str:
    return f"{_devices(mask)} {'matches' if mask.bit_count() == 1 else 'match'}"


def _are(mask: int) -> str:
    return "is" if mask.bit_count() == 1 else "are"


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
