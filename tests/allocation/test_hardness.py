"""Problems that are exponential for a depth-first search are decided correctly in few steps, in whatever order."""

from collections.abc import Sequence
from random import Random
from typing import TypeVar

import pytest
from msgspec.structs import replace

from kerf_dra.api.model.claims import ResourceClaim
from kerf_dra.api.model.devices import ResourceSlice
from kerf_dra.driver.allocation import AllocatedState, Budget, DoesNotFit, Fits
from tests.allocation.builders import decide
from tests.allocation.hard_cases.crossed import CROSSED
from tests.allocation.hard_cases.families import FAMILIES
from tests.allocation.hard_cases.linked import LINKED
from tests.allocation.result_check import faults

ALL = {**FAMILIES, **LINKED, **CROSSED}
FEW = Budget(steps=3000)
"""Some tenths of a second. Each of these would take a plain search far more than a lifetime at size 32."""

MORE = Budget(steps=100_000)
"""For problems in an order for which nobody has chosen the bounds."""
ElementT = TypeVar("ElementT")


@pytest.mark.parametrize("size", [4, 8, 16, 32])
@pytest.mark.parametrize("name", ALL)
def test_hard_questions_are_decided_in_few_steps(name: str, size: int) -> None:
    case = ALL[name](size)
    outcome = decide(case.slices, *case.claims, budget=FEW)
    assert isinstance(outcome, Fits if case.fits else DoesNotFit), outcome
    if isinstance(outcome, Fits):
        assert not faults(case.slices, case.claims, outcome.results, AllocatedState())


IN_ORDER = {
    "a_selector_that_is_never_evaluated": "a selector that fails ends the search, if the search comes to it",
    "all_that_is_never_reached": "all devices that do not agree end the search, if the search comes to them",
}
"""Families whose answer depends on the order of requests, by the rules of Kubernetes, and why."""


def shuffled(
    random: Random, slices: Sequence[ResourceSlice], claims: Sequence[ResourceClaim]
) -> tuple[list[ResourceSlice], list[ResourceClaim]]:
    """The same devices and requests, in another order: what fits in one fits in the other."""
    mixed_slices = [
        replace(each, spec=replace(each.spec, devices=tuple(_shuffled(random, each.spec.devices)))) for each in slices
    ]
    mixed_claims = []
    for claim in _shuffled(random, claims):
        devices = claim.spec.devices
        requests = tuple(_shuffled(random, devices.requests))
        mixed_claims.append(replace(claim, spec=replace(claim.spec, devices=replace(devices, requests=requests))))
    return mixed_slices, mixed_claims


def _shuffled(random: Random, of: Sequence[ElementT]) -> list[ElementT]:
    return random.sample(of, len(of))


def judge_shuffled(name: str, size: int, seed: int) -> None:
    case = ALL[name](size)
    slices, claims = shuffled(Random(f"{name} {size} {seed}"), case.slices, case.claims)
    outcome = decide(slices, *claims, budget=MORE)
    assert isinstance(outcome, Fits if case.fits else DoesNotFit), outcome
    if isinstance(outcome, Fits):
        assert not faults(slices, claims, outcome.results, AllocatedState())


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("name", sorted(ALL.keys() - IN_ORDER.keys()))
def test_the_order_of_devices_and_requests_changes_no_answer(name: str, seed: int) -> None:
    judge_shuffled(name, 6, seed)


@pytest.mark.long
@pytest.mark.parametrize("size", [4, 8])
@pytest.mark.parametrize("name", sorted(ALL.keys() - IN_ORDER.keys()))
def test_no_order_of_devices_and_requests_changes_an_answer(name: str, size: int) -> None:
    for seed in range(25):
        judge_shuffled(name, size, seed)
