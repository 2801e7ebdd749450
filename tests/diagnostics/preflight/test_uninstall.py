"""What `kerf check uninstall` finds in the claims of a cluster."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import pytest

from kerf_dra.api.core.v1 import Container, Pod, PodSpec, PodStatus, ResourceRequirements
from kerf_dra.api.model.allocations import (
    AllocationResult,
    DeviceAllocationResult,
    DeviceRequestAllocationResult,
    ResourceClaimConsumerReference,
    ResourceClaimStatus,
)
from kerf_dra.api.model.claims import ResourceClaim
from kerf_dra.api.model.classic import ClassicAllocation, ClassicClaim, ClassicClaimSpec, ClassicClaimStatus
from kerf_dra.api.model.metadata import ObjectMeta
from kerf_dra.api.model.names import DriverName
from kerf_dra.api.model.quantity import Quantity
from kerf_dra.driver.diagnostics.preflight.results import CheckLevel, CheckResult, Unread
from kerf_dra.driver.diagnostics.preflight.uninstall import UninstallFacts, check_uninstall

GPU: Final = DriverName("gpu.kerf.dev")
OTHER: Final = DriverName("gpu.example.com")
DRIVERS: Final = frozenset({"gpu.kerf.dev", "fpga.kerf.dev"})
NOTHING: Final = UninstallFacts(claims=(), drivers=DRIVERS)


def devices(*drivers: DriverName) -> DeviceAllocationResult:
    results = (DeviceRequestAllocationResult(request="r", driver=name, pool="p", device="d") for name in drivers)
    return DeviceAllocationResult(results=tuple(results))


def users(*pods: str) -> tuple[ResourceClaimConsumerReference, ...]:
    return tuple(ResourceClaimConsumerReference(resource="pods", name=name, uid=name) for name in pods)


def claim(name: str, *drivers: DriverName, pods: Sequence[str] = (), namespace: str = "default") -> ResourceClaim:
    allocation = AllocationResult(devices=devices(*drivers)) if drivers else None
    return ResourceClaim(
        metadata=ObjectMeta(name=name, namespace=namespace),
        status=ResourceClaimStatus(allocation=allocation, reserved_for=users(*pods)),
    )


def classic(status: ClassicClaimStatus) -> ClassicClaim:
    return ClassicClaim(
        metadata=ObjectMeta(name="c", namespace="default"), spec=ClassicClaimSpec(requests=()), status=status
    )


def check(*claims: ResourceClaim | ClassicClaim) -> Sequence[CheckResult]:
    return check_uninstall(replace(NOTHING, claims=claims)).results


@pytest.mark.parametrize(
    "claims",
    [(), (claim("waits", pods=["p"]),), (claim("others", OTHER, pods=["p"]),), (classic(ClassicClaimStatus()),)],
)
def test_a_cluster_without_claims_of_kerfs_can_lose_it(claims: Sequence[ResourceClaim]) -> None:
    (found,) = check(*claims)
    assert (found.level, found.message) == (CheckLevel.OK, "no claim has devices of fpga.kerf.dev, gpu.kerf.dev")


def test_each_namespace_with_devices_is_a_problem_with_the_pods_to_delete() -> None:
    own = [claim("a", GPU, pods=["p2", "p1"]), claim("b", OTHER, GPU, pods=["p1"])]
    first, second = check(*own, claim("c", GPU, namespace="team"))
    assert {first.level, second.level} == {CheckLevel.PROBLEM}
    assert first.message == "namespace default: 2 claims have devices: a (pods p1, p2), b (pod p1)"
    assert "kubectl delete pod -n default p1 p2, " in first.next_step
    assert second.message == "namespace team: 1 claim has devices: c (no pod uses it)"
    assert "kubectl delete resourceclaim -n team c" in second.next_step


@pytest.mark.parametrize(
    "status",
    [
        ClassicClaimStatus(allocation=ClassicAllocation(devices=devices(GPU)), reserved_for=users("p")),
        ClassicClaimStatus(allocation=ClassicAllocation(drivers=(GPU,)), reserved_for=users("p")),
        ClassicClaimStatus(allocation=ClassicAllocation(), driver_name=GPU, reserved_for=users("p")),
    ],
)
def test_claims_of_classic_clusters_count_by_devices_handles_and_driver(status: ClassicClaimStatus) -> None:
    (found,) = check(classic(status))
    assert found.message == "namespace default: 1 claim has devices: c (pod p)"


def test_a_line_names_some_claims_of_many() -> None:
    (found,) = check(*(claim(f"c{number:02}", GPU, pods=[f"p{number:02}"]) for number in range(30)))
    assert "30 claims have devices: c00 (pod p00), " in found.message
    assert found.message.endswith(" and 20 more")
    assert "p10" not in found.next_step


def test_claims_that_cannot_be_read_are_a_problem_and_single_ones_a_warning() -> None:
    (found,) = check_uninstall(replace(NOTHING, claims=Unread(reason="GET /x: 403 no"))).results
    assert (found.level, found.next_step != "") == (CheckLevel.PROBLEM, True)
    assert "GET /x: 403 no" in found.message
    warned, fine = check_uninstall(replace(NOTHING, unreadable=("default/odd",))).results
    assert (warned.level, fine.level) == (CheckLevel.WARNING, CheckLevel.OK)
    assert "default/odd" in warned.message


def pod_with(resource: str, name: str = "p", *, node: str = "n", phase: str = "Running") -> Pod:
    limits = ResourceRequirements(limits={resource: Quantity(1)})
    return Pod(
        metadata=ObjectMeta(name=name, namespace="team"),
        spec=PodSpec(node_name=node, containers=(Container(name="c", resources=limits),)),
        status=PodStatus(phase=phase),
    )


SMALL: Final = frozenset({"kerf.dev/small"})


def test_pods_that_have_devices_by_their_limits_are_named_as_those_of_claims_are() -> None:
    pods = (pod_with("kerf.dev/small", "b"), pod_with("kerf.dev/small", "a"), pod_with("example.com/other", "c"))
    [_, found] = check_uninstall(replace(NOTHING, resources=SMALL, pods=pods)).results
    assert (found.level, found.message) == (
        CheckLevel.PROBLEM,
        "namespace team: 2 pods with kerf.dev/small: a, b",
    )
    assert found.next_step.startswith("kubectl delete pod -n team a b, ")


@pytest.mark.parametrize(
    "pod",
    [
        pod_with("kerf.dev/small", node=""),
        pod_with("kerf.dev/small", phase="Succeeded"),
        pod_with("example.com/other"),
    ],
    ids=["waits", "finished", "another resource"],
)
def test_other_pods_keep_nobody_from_uninstalling(pod: Pod) -> None:
    [_, found] = check_uninstall(replace(NOTHING, resources=SMALL, pods=(pod,))).results
    assert found.level is CheckLevel.OK
    assert len(check_uninstall(replace(NOTHING, pods=(pod,))).results) == 1, "no class offers anything"


def test_pods_that_cannot_be_read_are_a_problem() -> None:
    [_, found] = check_uninstall(replace(NOTHING, resources=SMALL, pods=Unread(reason="403"))).results
    assert found.level is CheckLevel.PROBLEM
    assert "pods cannot be read" in found.message
