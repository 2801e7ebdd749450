"""How many devices claims of a class hold on each node, after any history of claims."""

from collections import Counter
from random import Random

import pytest
from msgspec.structs import replace

from kerf_dra.api.model.allocations import (
    AllocationResult,
    DeviceAllocationResult,
    DeviceRequestAllocationResult,
    ResourceClaimStatus,
)
from kerf_dra.api.model.claims import ResourceClaim
from kerf_dra.driver.allocation import PoolIndex
from kerf_dra.driver.placement.class_use import ClassUse
from tests.allocation.builders import DRIVER, alternative, claim, device, first_of, request, slice_

NODES = ("n1", "n2")
CLASSES = ("small", "large")


@pytest.fixture(scope="module")
def index() -> PoolIndex:
    return PoolIndex.build(
        slice_(device("d"), name=f"slice-{node}", pool=f"pool-{node}", node_name=node) for node in NODES
    )


def holding(name: str, *given: tuple[str, str], admin_access: bool = False) -> ResourceClaim:
    """A claim that holds a device for each class and node of ``given``."""
    requests = [request(f"r{number}", device_class_name=class_) for number, (class_, _) in enumerate(given)]
    results = tuple(
        DeviceRequestAllocationResult(
            request=f"r{number}", driver=DRIVER, pool=f"pool-{node}", device="d", admin_access=admin_access or None
        )
        for number, (_, node) in enumerate(given)
    )
    allocation = AllocationResult(devices=DeviceAllocationResult(results=results))
    return replace(claim(*requests, name=name), status=ResourceClaimStatus(allocation=allocation))


def test_devices_are_counted_by_the_class_of_their_request(index: PoolIndex) -> None:
    use = ClassUse([holding("a", ("small", "n1"), ("large", "n1")), holding("b", ("small", "n2"), ("small", "n2"))])
    assert use.count_by_node(["small"], index) == {"n1": 1, "n2": 2}
    assert use.count_by_node(["large"], index) == {"n1": 1}
    assert use.count_by_node(["small", "large"], index) == {"n1": 2, "n2": 2}
    assert use.count_by_node(["other"], index) == {}


def test_a_device_of_an_alternative_is_of_the_alternatives_class(index: PoolIndex) -> None:
    held = holding("a", ("small", "n1"))
    either = first_of("r", alternative("x", device_class_name="large"), alternative("y", device_class_name="small"))
    spec = replace(held.spec, devices=replace(held.spec.devices, requests=(either,)))
    assert held.status.allocation is not None
    [given] = held.status.allocation.devices.results
    allocation = AllocationResult(devices=DeviceAllocationResult(results=(replace(given, request="r/y"),)))
    use = ClassUse([replace(held, spec=spec, status=ResourceClaimStatus(allocation=allocation))])
    assert use.count_by_node(["small"], index) == {"n1": 1}
    assert use.count_by_node(["large"], index) == {}


def test_admin_access_and_pools_that_are_gone_count_for_no_node(index: PoolIndex) -> None:
    use = ClassUse([holding("a", ("small", "n1"), admin_access=True), holding("b", ("small", "gone"))])
    assert use.count_by_node(["small"], index) == {}


@pytest.mark.parametrize("seed", range(20))
def test_after_any_history_the_counts_are_those_of_the_claims_that_are_left(index: PoolIndex, seed: int) -> None:
    random, use = Random(seed), ClassUse()
    held: dict[str, ResourceClaim] = {}
    for _ in range(60):
        name = random.choice("abcde")
        if name in held and random.random() < 0.4:
            use.remove(held.pop(name).ref)
            continue
        given = [(random.choice(CLASSES), random.choice(NODES)) for _ in range(random.randrange(3))]
        held[name] = holding(name, *given)
        use.record(held[name])
    for class_ in CLASSES:
        assert use.count_by_node([class_], index) == ClassUse(held.values()).count_by_node([class_], index)
    for each in held.values():
        use.remove(each.ref)
    assert use.count_by_node(CLASSES, index) == Counter()
