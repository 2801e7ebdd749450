"""What the demo draws of cards that are published."""

from collections.abc import Sequence

from msgspec.structs import replace

from kerf_dra.api.kerf.discovery_objects import DiscoveredDeviceObject
from kerf_dra.api.model.allocations import (
    AllocationResult,
    DeviceAllocationResult,
    DeviceRequestAllocationResult,
    ResourceClaimStatus,
)
from kerf_dra.api.model.claims import ResourceClaim
from kerf_dra.api.model.devices import Capacity, Device, ResourcePool, ResourceSlice, ResourceSliceSpec
from kerf_dra.api.model.metadata import ObjectMeta
from kerf_dra.api.model.quantity import Quantity
from kerf_dra.driver.demo.observation import (
    CardState,
    build_card_states,
    build_claim_report,
    build_discovered_devices,
    describe_part,
    list_published_devices,
)
from kerf_dra.driver.demo.report import ClaimReport, DeviceReport, DiscoveredDeviceReport, PodReport
from kerf_dra.driver.partitions.pool_compiler import SliceLayout, compile_pool
from tests.partitions.cards import fpga, vocabulary_of
from tests.partitions.layouts import divided

CARD = fpga(divided(4, 2))
"""A card of quarters or halves."""


def publish(generation: int = 1) -> list[ResourceSlice]:
    pool = compile_pool("n/fpga", "n", [CARD], vocabulary=vocabulary_of(CARD), layout=SliceLayout.SPLIT).pool
    return [
        ResourceSlice(
            metadata=ObjectMeta(name=f"{number}"),
            spec=ResourceSliceSpec(
                driver="fpga.kerf.dev",
                pool=ResourcePool(name="n/fpga", generation=generation, resource_slice_count=len(pool.slices)),
                node_name="n",
                devices=content.devices,
                shared_counters=content.shared_counters,
            ),
        )
        for number, content in enumerate(pool.slices)
    ]


def draw(*held: str, slices: Sequence[ResourceSlice] = ()) -> CardState:
    """The card, of which one pod holds these devices."""
    devices = tuple(
        DeviceReport(
            request="r",
            driver="fpga.kerf.dev",
            pool="n/fpga",
            device=name,
            profile=None,
            memory_bytes=None,
            card=CARD.uuid,
        )
        for name in held
    )
    pod = PodReport(
        namespace="default",
        name="p",
        node="n",
        phase="Running",
        claims=(ClaimReport(name="c", uid="u", devices=devices, cdi_ids=()),),
    )
    [state] = build_card_states(slices or publish(), [pod])
    return state


def test_a_card_is_drawn_with_the_layout_in_use_or_else_with_the_largest() -> None:
    quarter, half = "n/fpga/fpga-0-slot-2", "n/fpga/fpga-0-slot-1-of-halves"
    assert (draw().unit, draw().units) == ("slot", ("", "", "", ""))
    assert (draw("fpga-0-slot-2").unit, draw("fpga-0-slot-2").units) == ("slot", ("", "", quarter, ""))
    state = draw("fpga-0-slot-1-of-halves")
    assert (state.unit, state.units) == ("halves slot", ("", half))


def test_while_slices_are_replaced_one_after_the_other_no_device_is_missing() -> None:
    """On a busy machine ``kerf demo`` compared devices of a pod with what half of a pool said of them, and failed."""
    old, new = publish(), publish(generation=2)
    assert len(new) > 1
    for written in range(len(new) + 1):
        slices = [*new[:written], *old[written:]]
        assert list_published_devices(slices) == list_published_devices(old)
        assert draw("fpga-0-slot-2", slices=slices) == draw("fpga-0-slot-2")
    gone = replace(
        new[0], spec=replace(new[0].spec, pool=ResourcePool(name="n/fpga", generation=2, resource_slice_count=1))
    )
    assert list_published_devices([*old, gone]).keys() == {*list_published_devices([gone])}


def discovered(name: str, *nodes: str) -> DiscoveredDeviceObject:
    return DiscoveredDeviceObject(metadata=ObjectMeta(name=name), spec={"nodes": list(nodes)})


def shared_slice(name: str, users: int) -> ResourceSlice:
    device = Device(name=name, capacity={"users": Capacity(value=Quantity(users))})
    pool = ResourcePool(name=name, generation=1, resource_slice_count=1)
    return ResourceSlice(
        metadata=ObjectMeta(name=name),
        spec=ResourceSliceSpec(driver="shared.kerf.dev", pool=pool, devices=(device,)),
    )


def user(name: str, *devices: str, driver: str = "shared.kerf.dev") -> PodReport:
    held = tuple(
        DeviceReport(request="r", driver=driver, pool=each, device=each, profile=None, memory_bytes=None, card="")
        for each in devices
    )
    claim = ClaimReport(name=name, uid=name, devices=held, cdi_ids=())
    return PodReport(namespace="default", name=name, node="n1", phase="Running", claims=(claim,))


def test_discovered_devices_are_reported_with_the_nodes_that_see_them_and_the_pods_that_have_them() -> None:
    held = [discovered("cam-b", "n2", "n1"), discovered("cam-a", "n1"), discovered("cam-c", "n1")]
    slices = [shared_slice("cam-a", 2), shared_slice("cam-b", 3)]
    pods = [user("two", "cam-b", "cam-b"), user("one", "cam-b", "cam-a"), user("other", "cam-a", driver="x.example")]
    assert build_discovered_devices(held, slices, pods) == (
        DiscoveredDeviceReport(name="cam-a", nodes=("n1",), capacity=2, users=("default/one",)),
        DiscoveredDeviceReport(
            name="cam-b", nodes=("n1", "n2"), capacity=3, users=("default/one", "default/two", "default/two")
        ),
    )


def test_a_share_is_reported_with_its_own_part_of_the_memory() -> None:
    result = DeviceRequestAllocationResult(
        request="gpu",
        driver="gpu.kerf.dev",
        pool="n1/gpu",
        device="gpu-0-shared",
        consumed_capacity={"memory": Quantity("4Gi")},
        share_id="s",
    )
    whole = replace(result, device="gpu-1", consumed_capacity={}, share_id=None)
    allocation = AllocationResult(devices=DeviceAllocationResult(results=(result, whole)))
    claim = ResourceClaim(metadata=ObjectMeta(name="c", uid="u"), status=ResourceClaimStatus(allocation=allocation))
    published = {
        each.id: Device(name=each.device, capacity={"memory": Capacity(value=Quantity("80Gi"))})
        for each in (result, whole)
    }
    devices = build_claim_report(claim, (), published).devices
    assert [describe_part(device) for device in devices] == [
        "a share of the whole card, 4.0 GiB",
        "the whole card, 80.0 GiB",
    ]
