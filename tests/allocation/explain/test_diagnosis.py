"""Full explanations are true: once the obstacles that they name are removed, the pod fits."""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from kerf_dra.api.model.claims import DeviceClass, DeviceRequest, ExactDeviceRequest, ResourceClaim
from kerf_dra.api.model.devices import CounterSet, Device, DeviceTaint, DeviceToleration, ResourceSlice
from kerf_dra.api.model.names import ObjectRef
from kerf_dra.api.model.quantity import Quantity
from kerf_dra.driver.allocation import Budget, DoesNotFit, Fits, Obstacle, Outcome, PoolIndex, allocate
from kerf_dra.driver.allocation.explain.diagnosis import RELEASABLE, Diagnosis, diagnose
from kerf_dra.driver.allocation.explain.holders import HolderIndex
from kerf_dra.driver.cel.conjuncts import split_conjuncts
from tests.allocation.builders import (
    ALL_FEATURES,
    DRIVER,
    NODE,
    claim,
    class_,
    counters,
    device,
    distinct,
    partitioned,
    request,
    same,
    selecting,
    share_ids,
    slice_,
)
from tests.allocation.explain.test_holders import holder

set_fields = msgspec.structs.replace
ATTRIBUTE: Final = f'device.attributes["{DRIVER}"]'
ROUNDS: Final = 30
"""More than there are things in a generated case that can stand in the way."""


@dataclass(frozen=True)
class Case:
    """A claim, and all its possible obstacles."""

    slices: Sequence[ResourceSlice]
    claim: ResourceClaim
    holders: tuple[ResourceClaim, ...] = ()
    classes: tuple[DeviceClass, ...] = (class_(),)

    @property
    def holdings(self) -> HolderIndex:
        return HolderIndex(self.slices, self.holders)

    def outcome(self) -> Outcome:
        return allocate(
            PoolIndex.build(self.slices),
            [self.claim],
            NODE,
            {each.metadata.name: each for each in self.classes},
            self.holdings.allocated,
            ALL_FEATURES,
            share_id=share_ids(),
            budget=Budget(),
        )

    def diagnoses(self) -> tuple[Diagnosis, ...]:
        classes = {each.metadata.name: each for each in self.classes}
        return diagnose(PoolIndex.build(self.slices), [self.claim], NODE, classes, self.holdings, ALL_FEATURES)


# --- removing obstacles -----------------------------------------------------------------------------------------------


def without(case: Case, diagnosis: Diagnosis) -> Case:
    """``case`` without the one obstacle; what is not named is not touched."""
    return _REMOVALS[diagnosis.obstacle](case, diagnosis)


def _meet(case: Case, diagnosis: Diagnosis) -> Case:
    """Give up the conditions that the nearest device does not meet."""
    nearest = diagnosis.misses[0]
    unmet = {(one.source, one.condition) for one in nearest.unmet}
    asked = _request(case, diagnosis)
    assert asked.exactly is not None
    selectors = [each.cel.expression for each in asked.exactly.selectors if each.cel]
    changed = _change(
        case, asked.name, selectors=selecting(*_kept("selector {}", selectors, unmet, range(len(selectors))))
    )
    classes = tuple(
        class_(
            name := each.metadata.name,
            *_kept(f"class {name}", [one.cel.expression for one in each.spec.selectors if one.cel], unmet),
        )
        for each in case.classes
    )
    return replace(changed, classes=classes)


def _kept(source: str, selectors: Sequence[str], unmet: set[tuple[str, str]], numbers: Iterable[int] = ()) -> list[str]:
    kept = []
    for number, selector in zip(numbers or range(len(selectors)), selectors, strict=True):
        parts = [part.expression for part in split_conjuncts(selector)]
        kept.append(" && ".join(part for part in parts if (source.format(number), part) not in unmet) or "true")
    return kept


def _end(case: Case, diagnosis: Diagnosis) -> Case:
    """End the claims that are in the way; where there are none, ask for no more than is said to be there."""
    ended = {ref for blocker in diagnosis.blockers for ref in blocker.claims}
    staying = tuple(each for each in case.holders if each.ref not in ended)
    if len(staying) < len(case.holders):
        return replace(case, holders=staying)
    if diagnosis.obstacle is Obstacle.COMBINATION:
        devices = case.claim.spec.devices
        fewer = set_fields(devices, requests=devices.requests[:-1])
        return replace(case, claim=set_fields(case.claim, spec=set_fields(case.claim.spec, devices=fewer)))
    if diagnosis.obstacle is Obstacle.CONSTRAINT:
        return _unconstrain(case, diagnosis)
    if "more than there is" in diagnosis.message:
        return _provide(case, diagnosis)
    return _ask_for_fewer(case, diagnosis)


def _ask_for_fewer(case: Case, diagnosis: Diagnosis) -> Case:
    match = re.search(r"(?:but only|at most|but|allow) (\d+)", diagnosis.message)
    assert match, f"nothing is named that could be removed: {diagnosis}"
    return _change(case, diagnosis.request, count=int(match[1]))


def _shrink(case: Case, diagnosis: Diagnosis) -> Case:
    """Ask for the capacity that the nearest device has, or end who has the rest of it."""
    if not diagnosis.misses:
        return _end(case, diagnosis)
    asked = _request(case, diagnosis)
    assert asked.exactly is not None
    assert asked.exactly.capacity is not None
    has = {one.condition.partition(" ")[0]: Quantity(dict(one.has)["free"]) for one in diagnosis.misses[0].unmet}
    capacity = set_fields(asked.exactly.capacity, requests={**asked.exactly.capacity.requests, **has})
    return _change(case, asked.name, capacity=capacity)


def _tolerate(case: Case, diagnosis: Diagnosis) -> Case:
    asked = _request(case, diagnosis)
    assert asked.exactly is not None
    added = tuple(DeviceToleration(key=each.key, value=each.value, effect=each.effect) for each in diagnosis.taints)
    assert added
    return _change(case, asked.name, tolerations=asked.exactly.tolerations + added)


def _unconstrain(case: Case, diagnosis: Diagnosis) -> Case:
    devices = case.claim.spec.devices
    kept = tuple(
        each
        for each in devices.constraints
        if (each.match_attribute or each.distinct_attribute or "") not in diagnosis.message
    )
    assert len(kept) < len(devices.constraints)
    spec = set_fields(case.claim.spec, devices=set_fields(devices, constraints=kept))
    return replace(case, claim=set_fields(case.claim, spec=spec))


def _publish(case: Case, diagnosis: Diagnosis) -> Case:
    """Finish the update of pools."""
    pools = [each.spec.pool.name for each in case.slices]
    return replace(case, slices=[_counted(each, pools.count(each.spec.pool.name)) for each in case.slices])


def _counted(published: ResourceSlice, slices: int) -> ResourceSlice:
    pool = set_fields(published.spec.pool, resource_slice_count=slices)
    return set_fields(published, spec=set_fields(published.spec, pool=pool))


def _provide(case: Case, _: Diagnosis) -> Case:
    """Put more into every counter set than anybody wants."""
    slices = [
        set_fields(
            each,
            spec=set_fields(each.spec, shared_counters=(CounterSet(name="s", counters=counters({"c": 99})),)),
        )
        if each.spec.shared_counters
        else each
        for each in case.slices
    ]
    return replace(case, slices=slices)


_REMOVALS: Final[dict[Obstacle, Callable[[Case, Diagnosis], Case]]] = {
    Obstacle.POOL_INCOMPLETE: _publish,
    Obstacle.CLASS: _meet,
    Obstacle.SELECTOR: _meet,
    Obstacle.CAPACITY: _shrink,
    Obstacle.TAINTED: _tolerate,
    Obstacle.IN_USE: _end,
    Obstacle.COUNTERS: _end,
    Obstacle.TOO_FEW: _end,
    Obstacle.CONSTRAINT: _end,
    Obstacle.COMBINATION: _end,
}


def _request(case: Case, diagnosis: Diagnosis) -> DeviceRequest:
    return next(each for each in case.claim.spec.devices.requests if each.name == diagnosis.request)


def _change(case: Case, name: str, **fields: Any) -> Case:
    """One request with other fields."""

    def changed(each: DeviceRequest) -> DeviceRequest:
        if each.name != name:
            return each
        assert isinstance(each.exactly, ExactDeviceRequest)
        return set_fields(each, exactly=set_fields(each.exactly, **fields))

    devices = case.claim.spec.devices
    spec = set_fields(case.claim.spec, devices=set_fields(devices, requests=tuple(map(changed, devices.requests))))
    return replace(case, claim=set_fields(case.claim, spec=spec))


# --- generated cases --------------------------------------------------------------------------------------------------

TAINTS = [DeviceTaint(key=key, value="v", effect="NoSchedule") for key in ("repair", "ill")]
SELECTORS = [f"{ATTRIBUTE}.kind == {kind} && {ATTRIBUTE}.size >= {size}" for kind in (0, 1) for size in (0, 5)]


@st.composite
def devices(draw: st.DrawFn, name: str) -> Device:
    attributes: dict[str, object] = {"kind": draw(st.integers(0, 2)), "size": draw(st.integers(1, 9))}
    if draw(st.booleans()):
        attributes["root"] = draw(st.sampled_from(["a", "b"]))
    return device(
        name,
        attributes=attributes,
        capacity={"memory": str(draw(st.integers(1, 4)))},
        uses={"s": {"c": draw(st.integers(1, 2))}} if draw(st.booleans()) else {},
        taints=tuple(draw(st.lists(st.sampled_from(TAINTS), max_size=1))) if draw(st.integers(0, 3)) == 0 else (),
    )


@st.composite
def cases(draw: st.DrawFn) -> Case:
    slices: list[ResourceSlice] = []
    for pool in ["pool", "other"][: draw(st.integers(1, 2))]:
        listed = [draw(devices(f"d{index}")) for index in range(draw(st.integers(1, 4)))]
        slices += partitioned(*listed, pool=pool, sets={"s": {"c": draw(st.integers(1, 4))}})
    if draw(st.integers(0, 9)) == 0:
        slices = [_counted(each, 3) for each in slices]
    asked = [
        request(
            name,
            *draw(st.lists(st.sampled_from(SELECTORS), max_size=1)),
            count=draw(st.integers(1, 3)),
            capacity={"memory": str(draw(st.integers(1, 6)))} if draw(st.booleans()) else None,
        )
        for name in ("r0", "r1")[: draw(st.integers(1, 2))]
    ]
    rules = draw(st.lists(st.sampled_from([same(f"{DRIVER}/root"), distinct(f"{DRIVER}/root")]), max_size=1))
    published = [each.name for one in slices if one.spec.pool.name == "pool" for each in one.spec.devices]
    held = draw(st.lists(st.sampled_from(published), unique=True, max_size=3)) if published else []
    return Case(
        slices=slices,
        claim=claim(*asked, constraints=rules),
        holders=tuple(holder(f"h-{name}", name) for name in held),
        classes=(class_("any", *draw(st.lists(st.just(f"{ATTRIBUTE}.kind < 2"), max_size=1))),),
    )


@settings(max_examples=4 * settings().max_examples)
@given(cases())
def test_it_fits_once_all_that_is_named_is_out_of_the_way(case: Case) -> None:
    for number in range(ROUNDS):
        outcome = case.outcome()
        if isinstance(outcome, Fits):
            event(f"{number} rounds")
            return
        assert isinstance(outcome, DoesNotFit), outcome
        diagnoses = case.diagnoses()
        assert [(str(each.claim), each.request, each.obstacle) for each in diagnoses] == [
            (reason.claim, reason.request, reason.obstacle) for reason in outcome.reasons
        ]
        event(f"obstacle {diagnoses[0].obstacle}")
        changed = without(case, diagnoses[0])
        assert changed != case, f"removing {diagnoses[0]} changes nothing"
        case = changed
    raise AssertionError(f"still {case.outcome()}")


# --- details ----------------------------------------------------------------------------------------------------------

CARD = partitioned(
    *(device(f"part-{index}", attributes={"profile": "1g"}, uses={"card-0": {f"m{index}": 1}}) for index in range(4)),
    device("whole", attributes={"profile": "4g"}, uses={"card-0": {f"m{index}": 1 for index in range(4)}}),
    sets={"card-0": {f"m{index}": 1 for index in range(4)}},
)


def only(case: Case) -> Diagnosis:
    assert isinstance(case.outcome(), DoesNotFit)
    [diagnosis] = case.diagnoses()
    return diagnosis


def test_exhausted_counters_are_told_with_card_and_holders() -> None:
    wanted = claim(request("gpu", f'{ATTRIBUTE}.profile == "4g"'))
    diagnosis = only(Case(CARD, wanted, (holder("a", "part-1"), holder("b", "part-3"))))
    assert (diagnosis.obstacle, diagnosis.message) == (
        Obstacle.COUNTERS,
        "1 device matches, but what it needs is taken",
    )
    [blocker] = diagnosis.blockers
    assert (blocker.card, blocker.counters) == ("card-0", ("m1", "m3"))
    assert blocker.claims == (ObjectRef("default", "a"), ObjectRef("default", "b"))


def test_counters_that_never_suffice_are_told_so() -> None:
    slices = partitioned(device("wide", uses={"card-0": {"m": 2}}), sets={"card-0": {"m": 1}})
    diagnosis = only(Case(slices, claim(request("gpu"))))
    assert diagnosis.message == "1 device matches, but what it needs is more than there is"


def test_who_holds_the_matching_devices_is_told_beside_who_holds_their_counters() -> None:
    both = [*CARD, *partitioned(device("whole", attributes={"profile": "4g"}), pool="other", sets={})]
    wanted = claim(request("gpu", f'{ATTRIBUTE}.profile == "4g"'))
    held = holder("x", "part-0")
    other = holder("y", "whole")
    allocation = other.status.allocation
    assert allocation is not None
    results = tuple(set_fields(each, pool="other") for each in allocation.devices.results)
    moved = set_fields(allocation, devices=set_fields(allocation.devices, results=results))
    diagnosis = only(Case(both, wanted, (held, set_fields(other, status=set_fields(other.status, allocation=moved)))))
    assert [(blocker.pool, blocker.claims[0].name) for blocker in diagnosis.blockers] == [
        (f"{DRIVER}/other", "y"),
        (f"{DRIVER}/pool", "x"),
    ]


def test_selectors_of_class_and_request_are_told_apart() -> None:
    classes = (class_("any", f'{ATTRIBUTE}.profile == "1g"'),)
    wanted = claim(request("gpu", f'{ATTRIBUTE}.profile != "2g"', f'{ATTRIBUTE}.profile == "4g"'))
    diagnosis = only(Case(CARD, wanted, classes=classes))
    [miss] = diagnosis.misses
    assert (miss.device.device, miss.devices, [one.source for one in miss.unmet]) == ("part-0", 4, ["selector 1"])


def test_too_little_capacity_is_told_with_the_most_there_is() -> None:
    slices = [slice_(device("small", capacity={"memory": "10Gi"}), device("large", capacity={"memory": "40Gi"}))]
    diagnosis = only(Case(slices, claim(request("gpu", capacity={"memory": "80Gi"}))))
    assert diagnosis.obstacle is Obstacle.CAPACITY
    assert [(miss.device.device, miss.unmet[0].condition, miss.unmet[0].has) for miss in diagnosis.misses] == [
        ("large", "memory >= 80Gi (as requested)", (("free", "40Gi"), ("total", "40Gi"))),
        ("small", "memory >= 80Gi (as requested)", (("free", "10Gi"), ("total", "10Gi"))),
    ]


def test_only_taints_that_are_not_tolerated_are_told() -> None:
    mild = DeviceTaint(key="note", value="v", effect="None")
    slices = [slice_(device("ill", taints=(*TAINTS, mild)))]
    tolerations = (DeviceToleration(key="repair", operator="Exists"),)
    diagnosis = only(Case(slices, claim(request("gpu", tolerations=tolerations))))
    assert [taint.key for taint in diagnosis.taints] == ["ill"]


@pytest.mark.parametrize("obstacle", sorted(set(Obstacle) - RELEASABLE - _REMOVALS.keys()))
def test_every_obstacle_is_removed_above_or_cannot_come_up_there(obstacle: Obstacle) -> None:
    assert obstacle in {Obstacle.NO_POOL, Obstacle.POOL_INVALID, Obstacle.NODE}
