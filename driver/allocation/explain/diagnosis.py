"""The full answer to "why does it not fit on this node": obstacles with the nearest misses and with who is in the way.

``explaining`` finds the obstacles; here each gets what a person needs to do something about it. That costs more than
allocating, so it is asked for only when somebody wants to know.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from api.model.claims import DeviceClass, ResourceClaim
from api.model.devices import DeviceTaint
from api.model.names import DeviceId, ObjectRef
from api.model.quantity import Quantity
from driver.allocation.explain.holders import Blocker, Holdings
from driver.allocation.explain.near_misses import SHOWN, Miss, Sourced, Unmet, near_misses, shown
from driver.allocation.explain.obstacles import TAKEN, Finding, findings
from driver.allocation.pools.index import Inventory
from driver.allocation.pools.node_devices import Offer
from driver.allocation.search.problem import Question, Want
from driver.allocation.search.problem_builder import ask
from driver.allocation.semantics.bitset import bits
from driver.allocation.semantics.capacity import unqualified
from driver.allocation.semantics.outcomes import Features, NodeView, Obstacle

RELEASABLE: Final = frozenset(
    {
        Obstacle.IN_USE,
        Obstacle.COUNTERS,
        Obstacle.CAPACITY,
        Obstacle.TOO_FEW,
        Obstacle.CONSTRAINT,
        Obstacle.COMBINATION,
    }
)
"""Obstacles that the end of other claims may remove."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """One obstacle of one request on one node. Equal nodes have the same but for ``blockers`` and devices' names."""

    claim: ObjectRef
    request: str
    """As in ``Reason``; several, with commas, where a constraint holds over them."""
    obstacle: Obstacle
    message: str
    """For people, without names of devices and claims."""
    misses: tuple[Miss, ...] = ()
    """For CLASS, SELECTOR and CAPACITY: the devices that come nearest."""
    blockers: tuple[Blocker, ...] = ()
    """For RELEASABLE obstacles: what is in the way, and whose it is."""
    taints: tuple[DeviceTaint, ...] = ()
    """For TAINTED: those that the request does not tolerate."""


def diagnose(
    inventory: Inventory,
    claims: Sequence[ResourceClaim],
    node: NodeView,
    classes: Mapping[str, DeviceClass],
    holdings: Holdings,
    features: Features,
) -> tuple[Diagnosis, ...]:
    """Why ``claims`` do not fit on ``node``, given that ``allocate`` says ``DoesNotFit``. Never empty.

    ``holdings`` are of at least all pools that the node can use. Raises UnanswerableError and InvalidNodeSelectorError,
    which ``allocate`` would have told as ``Failed``.
    """
    question = ask(Offer.build(inventory, node, holdings.allocated, features), claims, classes)
    return tuple(_diagnosis(question, holdings, finding) for finding in findings(question))


def _diagnosis(question: Question, holdings: Holdings, finding: Finding) -> Diagnosis:
    is_releasable = finding.obstacle in RELEASABLE
    blockers = holdings.blockers(_ids(question, finding.devices)) if is_releasable else ()
    is_hopeless = blockers and not any(blocker.claims for blocker in blockers)
    return Diagnosis(
        claim=question.claims[finding.claim].ref,
        request=finding.request,
        obstacle=finding.obstacle,
        message=finding.message.replace(TAKEN, "is more than there is") if is_hopeless else finding.message,
        misses=tuple(_misses(question, finding)),
        blockers=blockers,
        taints=_taints(question, finding) if finding.obstacle is Obstacle.TAINTED else (),
    )


def _ids(question: Question, devices: int) -> Iterator[DeviceId]:
    return (question.offer.devices[index].id for index in bits(devices))


def _taints(question: Question, finding: Finding) -> tuple[DeviceTaint, ...]:
    tolerations = finding.wants[0].ask.tolerations
    taints = (taint for index in bits(finding.devices) for taint in question.offer.devices[index].taints)
    strong = (taint for taint in taints if taint.effect in {"NoSchedule", "NoExecute"})
    return tuple(dict.fromkeys(taint for taint in strong if not any(each.tolerates(taint) for each in tolerations)))


def _misses(question: Question, finding: Finding) -> Sequence[Miss]:
    want = finding.wants[0] if finding.wants else None
    if want is None:
        return ()
    if finding.obstacle in {Obstacle.CLASS, Obstacle.SELECTOR}:
        devices = bits(finding.devices) if finding.devices else range(len(question.offer.devices))
        published = (question.offer.devices[index] for index in devices)
        return near_misses(_selectors(want), ((each.id, each.device) for each in published))
    if finding.obstacle is Obstacle.CAPACITY and want.ask.capacity is not None:
        return _too_small(question, want, finding.devices)
    return ()


def _selectors(want: Want) -> list[Sourced]:
    """Those of the class, then those of the request."""
    of_class = [each.cel.expression for each in want.class_.spec.selectors if each.cel]
    of_request = [each.cel.expression for each in want.ask.selectors if each.cel]
    return [
        *(Sourced(f"class {want.class_.metadata.name}", expression) for expression in of_class),
        *(Sourced(f"selector {position}", expression) for position, expression in enumerate(of_request)),
    ]


def _too_small(question: Question, want: Want, devices: int) -> tuple[Miss, ...]:
    """The devices by what they have of the capacities that the request asks for, the largest first."""
    requests = want.ask.capacity.requests if want.ask.capacity else {}
    groups: dict[tuple[tuple[str, Quantity | None], ...], list[DeviceId]] = {}
    for index in bits(devices):
        published = question.offer.devices[index]
        driver = published.id.driver
        values = {unqualified(driver, name): capacity.value for name, capacity in published.device.capacity.items()}
        have = {name: values.get(unqualified(driver, name)) for name in requests}
        lacking = tuple((name, value) for name, value in have.items() if value is None or value < requests[name])
        if lacking:
            groups.setdefault(lacking, []).append(published.id)
    nearest = sorted(groups, key=lambda lacking: (len(lacking), -sum(value.nano for _, value in lacking if value)))
    return tuple(
        Miss(
            device=groups[lacking][0],
            devices=len(groups[lacking]),
            unmet=tuple(
                Unmet("capacity", f"{name} >= {requests[name]}", ((name, shown(value)),)) for name, value in lacking
            ),
        )
        for lacking in nearest[:SHOWN]
    )
