"""A device and one that was cut from it are one hardware, whoever publishes them: ``kerf why`` and ``kerf check``."""

from dataclasses import replace as change
from typing import Final

import pytest

from kerf_dra.api.model.allocations import (
    AllocationResult,
    DeviceAllocationResult,
    DeviceRequestAllocationResult,
    ResourceClaimConsumerReference,
    ResourceClaimStatus,
)
from kerf_dra.api.model.claims import ResourceClaim
from kerf_dra.api.model.devices import Attribute, Device, ResourcePool, ResourceSlice, ResourceSliceSpec
from kerf_dra.api.model.metadata import ObjectMeta
from kerf_dra.api.model.names import ObjectRef
from kerf_dra.driver.diagnostics.cluster_index import ClusterIndex
from kerf_dra.driver.diagnostics.cluster_state import ClusterState
from kerf_dra.driver.diagnostics.explain.report import Verdict
from kerf_dra.driver.diagnostics.explain.why import explain_claim, explain_pod
from kerf_dra.driver.diagnostics.preflight.cluster import check_cluster
from kerf_dra.driver.diagnostics.preflight.results import CheckLevel
from tests.diagnostics.preflight.facts import CLUSTER
from tests.fakes.cluster_states import claim, node, placed_pod, replace, state

NVIDIA: Final = "gpu.nvidia.com"


def device(name: str, **attributes: str) -> Device:
    return Device(name=name, attributes={key: Attribute.of(value) for key, value in attributes.items()})


def published(on: str, *devices: Device, driver: str = NVIDIA) -> ResourceSlice:
    return ResourceSlice(
        metadata=ObjectMeta(name=f"{on}-{driver}"),
        spec=ResourceSliceSpec(
            driver=driver,
            node_name=on,
            pool=ResourcePool(name=on, generation=1, resource_slice_count=1),
            devices=devices,
        ),
    )


def node_with_cards(on: str) -> ResourceSlice:
    """Return a node with two cards, of which each has two static partitions."""
    cards = [device(f"gpu-{number}", uuid=f"GPU-{number}") for number in range(2)]
    parts = [
        device(f"gpu-{card}-mig-{number}", uuid=f"MIG-{card}-{number}", parentUUID=f"GPU-{card}")
        for card in range(2)
        for number in range(2)
    ]
    return published(on, *cards, *parts)


def given(
    name: str, *devices: str, on: str = "node-1", driver: str = NVIDIA, admin: bool | None = None
) -> ResourceClaim:
    """Return a claim of the pod of its name that has these devices."""
    results = tuple(
        DeviceRequestAllocationResult(request="r0", driver=driver, pool=on, device=each, admin_access=admin)
        for each in devices
    )
    user = ResourceClaimConsumerReference(resource="pods", name=name, uid=f"uid-{name}")
    allocation = AllocationResult(devices=DeviceAllocationResult(results=results))
    return replace(claim(name, "any"), status=ResourceClaimStatus(allocation=allocation, reserved_for=(user,)))


def cluster(*claims: ResourceClaim, more: tuple[ResourceSlice, ...] = ()) -> ClusterState:
    pods = [placed_pod(each.metadata.name, each.metadata.name, phase="Running") for each in claims]
    slices = [node_with_cards("node-1"), node_with_cards("node-2"), *more]
    return state(node("node-1"), node("node-2"), published=slices, claims=claims, pods=pods)


def conflicts(now: ClusterState, name: str) -> list[str]:
    causes = explain_pod(ClusterIndex(now), ObjectRef("default", name)).causes
    return [cause.message for cause in causes if cause.code == "double-allocation"]


def checked(now: ClusterState) -> list[str]:
    facts = change(CLUSTER, claims=now.claims, slices=tuple(now.slices))
    return [
        each.message
        for each in check_cluster(facts).results
        if each.check == "double-allocation" and each.level is CheckLevel.PROBLEM
    ]


def test_a_card_and_parts_of_it_are_one_hardware_given_twice() -> None:
    """Of two running pods, one with the cards and one with all partitions of them, both were all well."""
    now = cluster(given("cards", "gpu-0", "gpu-1"), given("parts", "gpu-0-mig-0", "gpu-0-mig-1", "gpu-1-mig-0"))
    for name in ("cards", "parts"):
        answer = explain_pod(ClusterIndex(now), ObjectRef("default", name))
        assert answer.verdict is Verdict.DEVICES_FAILED
        [cause] = answer.causes
        assert cause.code == "double-allocation"
        assert "gpu-0-mig-0 is a part of device gpu.nvidia.com/node-1/gpu-0 (parentUUID)" in cause.message
        assert {"claim default/cards", "claim default/parts"} <= set(cause.objects)
        assert "have classes select either cards or parts" in cause.next_step
    [message] = checked(now)
    assert message.startswith("claim default/cards has device gpu.nvidia.com/node-1/gpu-0, and claim default/parts has")
    assert explain_claim(ClusterIndex(now), ObjectRef("default", "parts")).verdict is Verdict.DEVICES_FAILED


SEPARATE: dict[str, tuple[ResourceClaim, ...]] = {
    "parts of one card": (given("a", "gpu-0-mig-0"), given("b", "gpu-0-mig-1")),
    "a card and parts of another": (given("a", "gpu-0"), given("b", "gpu-1-mig-0")),
    "a card and the parts of a card with its UUID on another node": (
        given("a", "gpu-0"),
        given("b", "gpu-0-mig-0", on="node-2"),
    ),
    "admin access to the card": (given("a", "gpu-0", admin=True), given("b", "gpu-0-mig-0")),
    "admin access to the part": (given("a", "gpu-0"), given("b", "gpu-0-mig-0", admin=True)),
}


@pytest.mark.parametrize("claims", SEPARATE.values(), ids=SEPARATE.keys())
def test_what_is_not_one_hardware_is_in_order(claims: tuple[ResourceClaim, ...]) -> None:
    now = cluster(*claims)
    assert conflicts(now, "a") == conflicts(now, "b") == checked(now) == []


def test_the_card_of_one_driver_and_the_part_of_another_are_one_hardware() -> None:
    other = published("node-1", device("slice-0", **{"other.dev/parentUUID": "GPU-1"}), driver="other.dev")
    now = cluster(given("a", "gpu-1"), given("b", "slice-0", driver="other.dev"), more=(other,))
    assert len(conflicts(now, "a")) == len(conflicts(now, "b")) == len(checked(now)) == 1


def test_a_partition_of_kerf_has_its_cards_uuid_and_is_a_part_of_it() -> None:
    parts = [device(f"part-{number}", uuid="GPU-1", cut="partition") for number in range(2)]
    kerf = published("node-1", *parts, driver="gpu.kerf.dev")
    both = given("b", "part-0", driver="gpu.kerf.dev"), given("c", "part-1", driver="gpu.kerf.dev")
    assert checked(cluster(*both, more=(kerf,))) == []
    assert len(checked(cluster(given("a", "gpu-1"), *both, more=(kerf,)))) == 2


def test_one_claim_with_a_card_and_a_part_of_it_is_told_to_ask_for_one() -> None:
    now = cluster(given("a", "gpu-0", "gpu-0-mig-1"), given("b", "gpu-1"))
    [message] = conflicts(now, "a")
    assert message.startswith("claim default/a has the same hardware twice: device gpu.nvidia.com/node-1/gpu-0-mig-1")
    assert conflicts(now, "b") == []
    assert len(checked(now)) == 1
