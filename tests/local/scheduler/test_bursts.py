"""Pods that come at once to one node with empty cards, before the plugin publishes anything anew, share few cards."""

from collections.abc import Sequence
from typing import Final

import msgspec
import pytest

from kerf_dra.api.core.v1 import Container, Node, NodeStatus, Pod, PodSpec, ResourceRequirements
from kerf_dra.api.model.allocations import ResourceClaimStatus
from kerf_dra.api.model.claims import (
    CelSelector,
    DeviceClaim,
    DeviceClass,
    DeviceClassSpec,
    DeviceRequest,
    DeviceSelector,
    ExactDeviceRequest,
    ResourceClaim,
    ResourceClaimSpec,
)
from kerf_dra.api.model.devices import ResourcePool, ResourceSlice, ResourceSliceSpec
from kerf_dra.api.model.metadata import Condition, ObjectMeta
from kerf_dra.api.model.quantity import Quantity
from kerf_dra.driver.allocation import Budget, ClusterAllocator, Features, PoolIndex
from kerf_dra.driver.families.gpu import GPU
from kerf_dra.driver.local.scheduler.structured import Placed, Snapshot, decide
from kerf_dra.driver.partitions.pool_compiler import compile_pool
from kerf_dra.driver.partitions.slice_limits import SliceLayout
from kerf_dra.driver.scheduling.extended_resources import build_claim, build_requests, classes_by_resource
from kerf_dra.driver.scheduling.node_filter import node_view
from tests.partitions.cards import gpus

DRIVER: Final = "gpu.kerf.dev"
RESOURCE: Final = "example.com/gpu-10gb"
LAYOUTS: Final = list(SliceLayout)


def device_class(profile: str) -> DeviceClass:
    expression = f'device.driver == "{DRIVER}" && device.attributes["{DRIVER}"].profile == "{profile}"'
    return DeviceClass(
        metadata=ObjectMeta(name=profile),
        spec=DeviceClassSpec(
            selectors=(DeviceSelector(cel=CelSelector(expression=expression)),),
            extended_resource_name=RESOURCE if profile == "1g.10gb" else "",
        ),
    )


CLASSES: Final = {profile: device_class(profile) for profile in ("1g.10gb", "3g.40gb")}


def slices(layout: SliceLayout) -> list[ResourceSlice]:
    """What the plugin of a node with eight empty H100 publishes."""
    compiled = compile_pool("n/gpu", "n", gpus(8), vocabulary=GPU.vocabulary, layout=layout)
    contents = compiled.pool.slices
    pool = ResourcePool(name="n/gpu", generation=1, resource_slice_count=len(contents))
    return [
        ResourceSlice(
            metadata=ObjectMeta(name=f"slice-{number:02}"),
            spec=ResourceSliceSpec(
                driver=DRIVER,
                pool=pool,
                node_name="n",
                devices=content.devices,
                shared_counters=content.shared_counters,
            ),
        )
        for number, content in enumerate(contents)
    ]


def claim(name: str, *counts: tuple[str, int]) -> ResourceClaim:
    """A claim with a request for each profile and count."""
    requests = tuple(
        DeviceRequest(name=f"r{number}", exactly=ExactDeviceRequest(device_class_name=profile, count=count))
        for number, (profile, count) in enumerate(counts)
    )
    spec = ResourceClaimSpec(devices=DeviceClaim(requests=requests))
    return ResourceClaim(metadata=ObjectMeta(name=name, namespace="ns", uid=name), spec=spec)


def cards_of(claims: Sequence[ResourceClaim], layout: SliceLayout = SliceLayout.SPLIT) -> dict[str, int]:
    """How many devices of each card the claims get, in this order, of the slices of the empty node."""
    published = slices(layout)
    node = Node(metadata=ObjectMeta(name="n"), status=NodeStatus(conditions=(Condition(type="Ready", status="True"),)))
    found: dict[str, int] = {}
    held: list[ResourceClaim] = []
    for asked in claims:
        allocator = ClusterAllocator(Features(), PoolIndex.build(published), nodes=[node_view(node)], claims=held)
        snapshot = Snapshot(nodes=[node], classes=CLASSES, allocator=allocator)
        decision = decide(Pod(), [asked], snapshot, share_id=lambda: "share", budget=Budget())
        assert isinstance(decision, Placed)
        for given, allocation in decision.allocations:
            held.append(msgspec.structs.replace(given, status=ResourceClaimStatus(allocation=allocation)))
            for result in allocation.devices.results:
                card = "-".join(result.device.split("-")[:2])
                found[card] = found.get(card, 0) + 1
    return found


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("pods", "cards"), [(7, {"gpu-0": 7}), (8, {"gpu-0": 7, "gpu-1": 1})])
def test_pods_at_once_fill_one_card_before_the_next(layout: SliceLayout, pods: int, cards: dict[str, int]) -> None:
    assert cards_of([claim(f"c{number}", ("1g.10gb", 1)) for number in range(pods)], layout) == cards


@pytest.mark.parametrize("layout", LAYOUTS)
def test_devices_of_one_request_share_a_card(layout: SliceLayout) -> None:
    assert cards_of([claim("c", ("1g.10gb", 2))], layout) == {"gpu-0": 2}
    assert cards_of([claim("c", ("3g.40gb", 4))], layout) == {"gpu-0": 2, "gpu-1": 2}


def test_several_requests_of_a_claim_share_a_card() -> None:
    assert cards_of([claim("c", ("1g.10gb", 1), ("3g.40gb", 1), ("1g.10gb", 1))]) == {"gpu-0": 3}


def test_an_extended_resource_in_limits_is_met_on_one_card() -> None:
    limits = {RESOURCE: Quantity(3)}
    pod = Pod(
        metadata=ObjectMeta(name="p", namespace="ns", uid="p"),
        spec=PodSpec(containers=(Container(name="main", resources=ResourceRequirements(limits=limits)),)),
    )
    requests, _ = build_requests(pod, classes_by_resource(CLASSES.values()))
    assert cards_of([build_claim(pod, requests)]) == {"gpu-0": 3}
