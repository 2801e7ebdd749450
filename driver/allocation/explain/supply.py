"""How much there is at most: devices of one card, and values that a constraint compares.

The numbers are upper bounds (``search.bounds``) of a node from which nothing is allocated, so that a user sees whether
waiting may help. Example: an H100 has at most two ``3g.40gb`` at once, so three in one claim never fit on a node with
one card; one shareable device has one value of any attribute, so two requests for it never differ.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence

from kerf_dra.driver.allocation.search.bounds import Bounds
from kerf_dra.driver.allocation.search.constraints import Constraint, Value
from kerf_dra.driver.allocation.search.problem import AllocationProblem, RequestAlternative, UnanswerableError
from kerf_dra.driver.allocation.semantics.bitset import iter_bits


def describe_card_limit(bounds: Bounds, devices: int) -> str:
    """Return how many of ``devices`` one card has at most at once, as the end of a sentence; empty without cards."""
    of_cards = bounds.supplies_of_empty_sets(devices)
    return f"; a card has at most {max(of_cards)}" if of_cards else ""


def describe_joint_limit(problem: AllocationProblem, bounds: Bounds, devices: int, free: int) -> str:
    """Return how many of ``devices`` the requests that only they can serve want, and how many there are at most.

    ``free`` are those of ``devices`` that could be allocated now. It is the end of a sentence, and empty where the
    numbers do not show why the requests cannot be served together.
    """
    within = [
        request
        for request in problem.requests
        if not any(matching(problem, each) & ~devices for each in request.alternatives)
    ]
    wanted = sum(request.fewest for request in within)
    most = bounds.supply_of_empty_node(devices)
    if wanted > most:
        limit = describe_card_limit(bounds, devices)
        return f": {wanted} such devices are requested, and the node has at most {most:.0f}{limit}"
    left = bounds.supply_now(free)
    return f": {wanted} such devices are requested, and {left:.0f} are free at once" if wanted > left else ""


def describe_values(
    problem: AllocationProblem,
    alternatives: Sequence[RequestAlternative],
    index: int,
    constraint: Constraint,
    needed: int,
) -> str:
    """Return how many values of the ``index``-th constraint the devices have, as the end of a sentence.

    ``needed`` devices are to differ in the attribute, or to have one value in common.
    """
    all_values = _devices_by_value(problem, index, alternatives, free=False)
    free_values = _devices_by_value(problem, index, alternatives, free=True)
    if not all_values:
        return ": no device that matches has it"
    if constraint.kind == "distinct":
        has, free = len(all_values), len(free_values)
        what = f"{needed} devices are to differ in it, and those that match have {_count(has, 'different value')}"
    else:
        has, free = (max((len(each) for each in found.values()), default=0) for found in (all_values, free_values))
        what = f"{needed} devices are to have one value in common, and {has} of those that match have one, at most"
    if has < needed:
        return f": {what}"
    return f": {what}, of which {free} {'is' if free == 1 else 'are'} free" if free < needed else ""


def _devices_by_value(
    problem: AllocationProblem, index: int, alternatives: Iterable[RequestAlternative], *, free: bool
) -> dict[Value, set[int]]:
    """Return the devices by the value that a constraint compares: those that match, or those that are ``free``."""
    found: dict[Value, set[int]] = defaultdict(set)
    for alternative in alternatives:
        for device in iter_bits(alternative.usable if free else matching(problem, alternative)):
            try:
                values = problem.values(alternative, index, device)
            except UnanswerableError:  # the search has met it, if it matters
                continue
            for value in values or ():
                found[value].add(device)
    return found


def matching(problem: AllocationProblem, alternative: RequestAlternative) -> int:
    """Return the bitset of the devices of the node that an alternative selects, free or not."""
    return alternative.filtered.selected & problem.node_devices.on_node


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
