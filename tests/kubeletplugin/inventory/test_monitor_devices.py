"""Monitor devices: published where a class needs them, only for admin access (KEP-5018)."""

from dataclasses import replace

import pytest

from kerf_dra.api.kerf.v1alpha1 import ResourceClassObject
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
from kerf_dra.api.model.devices import (
    Device,
    DeviceTaint,
    DeviceToleration,
    Pool,
    ResourcePool,
    ResourceSlice,
    ResourceSliceSpec,
)
from kerf_dra.api.model.metadata import ObjectMeta
from kerf_dra.api.model.names import DeviceId
from kerf_dra.driver.allocation import AllocatedState, Budget, Features, Fits, NodeView, PoolIndex, allocate
from kerf_dra.driver.families.fpga import FPGA
from kerf_dra.driver.kubeletplugin.claims.allocated_devices import MonitorDeviceError, resolve_devices
from kerf_dra.driver.kubeletplugin.inventory.devices import DeviceSet, build_device_set
from kerf_dra.driver.kubeletplugin.inventory.optional_devices import OptionalDevices, find_optional_devices
from kerf_dra.driver.kubeletplugin.inventory.state.health import DeviceHealthTracker
from kerf_dra.driver.partitions.slice_limits import SliceLayout, check_pool
from tests.fakes.cards import fpga, gpu
from tests.fakes.claims import CONFIGURATIONS, DRIVER, NODE, claim, result
from tests.fakes.cluster import FakeCluster
from tests.kubeletplugin.harness import machine

TARGET = replace(FakeCluster().target, optional_devices=OptionalDevices(monitors=frozenset({"gpu"})))
HEALTHY = DeviceHealthTracker(driver=DRIVER, now=lambda: 0)
MONITOR = "gpu-0-monitor"


def stock(layout: SliceLayout = SliceLayout.SPLIT) -> DeviceSet:
    return build_device_set(
        replace(TARGET, layout=layout), {"one": [gpu(0), gpu(1), fpga(0)]}, (), HEALTHY, DeviceSet()
    )


def devices(pool: Pool) -> dict[str, Device]:
    return {device.name: device for content in pool.slices for device in content.devices}


@pytest.mark.parametrize("layout", SliceLayout)
def test_every_card_of_the_kind_is_published_once_more_as_a_device_that_takes_nothing(layout: SliceLayout) -> None:
    gpus, fpgas = stock(layout).pools
    check_pool(gpus, layout)
    assert {name for name in devices(gpus) if name.endswith("-monitor")} == {MONITOR, "gpu-1-monitor"}
    assert not [name for name in devices(fpgas) if name.endswith("-monitor")]
    monitor, whole = devices(gpus)[MONITOR], devices(gpus)["gpu-0"]
    assert monitor.consumes_counters == ()
    assert monitor.taints == (DeviceTaint(key=f"{DRIVER}/monitor", effect="NoSchedule"),)
    assert (monitor.attributes.keys(), monitor.capacity.keys()) == (whole.attributes.keys(), whole.capacity.keys())
    assert {int(capacity.value) for capacity in monitor.capacity.values()} == {0}
    own = {name: monitor.attributes[name].value for name in ("cut", "profile", "shared")}
    assert own == {"cut": "monitor", "profile": "", "shared": False}
    assert monitor.attributes["uuid"] == whole.attributes["uuid"]


def test_classes_ask_for_them_family_by_family() -> None:
    classes = [
        ResourceClassObject(metadata=ObjectMeta(name="m"), spec={"device": "fpga", "cut": "Monitor"}),
        ResourceClassObject(metadata=ObjectMeta(name="p"), spec={"device": "gpu", "cut": "Partition"}),
    ]
    assert find_optional_devices(classes, FPGA) == OptionalDevices(monitors=frozenset({"fpga"}))


def test_who_asks_without_admin_access_is_told_what_the_claim_lacks() -> None:
    inventory = stock()
    offered = inventory.find(DeviceId(DRIVER, f"{NODE}/gpu", MONITOR))
    assert offered is not None
    assert offered.attributes["cut"].value == "monitor"
    with pytest.raises(MonitorDeviceError, match="needs adminAccess: true"):
        resolve_devices(claim("nosy", MONITOR), DRIVER, CONFIGURATIONS, inventory)
    (device,) = resolve_devices(claim("admin", result(MONITOR, admin=True)), DRIVER, CONFIGURATIONS, inventory)
    assert device.admin_access


async def test_a_card_in_use_is_looked_at_without_touching_it() -> None:
    with machine() as node:
        user = node.cluster.add(claim("training", "gpu-0-1g-1gb-at-0"))
        admin = node.cluster.add(claim("admin", result(MONITOR, admin=True)))
        async with node.plugin():
            before = await node.kubelet.prepare(user)
            (device,) = await node.kubelet.prepare(admin)
            assert device.device_name == MONITOR
            await node.kubelet.unprepare(admin)
            assert await node.kubelet.prepare(user) == before
            await node.kubelet.unprepare(user)
        assert node.backend.made == {}


def request(device_class: str, *, admin: bool | None = None, tolerates: bool = False) -> ResourceClaim:
    tolerations = (DeviceToleration(key=f"{DRIVER}/monitor", operator="Exists"),) if tolerates else ()
    exactly = ExactDeviceRequest(device_class_name=device_class, admin_access=admin, tolerations=tolerations)
    return ResourceClaim(
        metadata=ObjectMeta(name=device_class, namespace="default", uid=device_class),
        spec=ResourceClaimSpec(devices=DeviceClaim(requests=(DeviceRequest(name="gpu", exactly=exactly),))),
    )


def test_the_scheduler_gives_a_look_at_a_card_that_is_taken_whole() -> None:
    """The whole card itself it would not give: its counters are used up."""
    gpus = stock().pools[0]
    pool = ResourcePool(name=gpus.name, generation=1, resource_slice_count=len(gpus.slices))
    published = PoolIndex.build(
        ResourceSlice(
            metadata=ObjectMeta(name=f"{index}-{NODE}"),
            spec=ResourceSliceSpec(
                driver=DRIVER,
                pool=pool,
                node_name=NODE,
                devices=content.devices,
                shared_counters=content.shared_counters,
            ),
        )
        for index, content in enumerate(gpus.slices)
    )
    classes = {
        name: DeviceClass(
            metadata=ObjectMeta(name=name),
            spec=DeviceClassSpec(selectors=(DeviceSelector(cel=CelSelector(expression=condition)),)),
        )
        for name, condition in (
            ("whole", f'device.attributes["{DRIVER}"].cut == "whole"'),
            ("monitor", f'device.attributes["{DRIVER}"].cut == "monitor"'),
            ("plain", f'device.driver == "{DRIVER}"'),
        )
    }
    taken = [claim(f"user-{index}", f"gpu-{index}") for index in range(2)]

    def fits(asking: ResourceClaim) -> bool:
        outcome = allocate(
            published,
            [asking],
            NodeView(NODE, {}),
            classes,
            AllocatedState.from_claims(taken),
            Features(),
            share_id=lambda: "share",
            budget=Budget(),
        )
        return isinstance(outcome, Fits)

    assert fits(request("monitor", admin=True, tolerates=True))
    assert not fits(request("monitor", admin=True)), "the taint is for everybody who does not tolerate it"
    assert not fits(request("plain")), "a class of any device of the driver does not hand out what only monitors"
    assert not fits(request("whole", admin=True))
    assert not fits(request("whole"))
