"""Devices that several claims share: created with the first share, removed with the last (KEP-5075)."""

from dataclasses import replace
from pathlib import Path

import anyio
import pytest

from kerf_dra.api.kerf.v1alpha1 import ResourceClassObject
from kerf_dra.api.model.base import JsonObject
from kerf_dra.api.model.claims import ResourceClaim
from kerf_dra.api.model.metadata import ObjectMeta
from kerf_dra.api.model.names import ClaimRef, DeviceId
from kerf_dra.driver.families.gpu import GPU
from kerf_dra.driver.kubeletplugin.backends.base import HardwareBusyError
from kerf_dra.driver.kubeletplugin.claims.allocated_devices import DeviceInUseError
from kerf_dra.driver.kubeletplugin.claims.hardware import DevicesFailedError
from kerf_dra.driver.kubeletplugin.inventory.devices import DeviceSet, build_device_set
from kerf_dra.driver.kubeletplugin.inventory.optional_devices import OptionalDevices, find_optional_devices
from kerf_dra.driver.kubeletplugin.inventory.state.health import DeviceHealthTracker
from kerf_dra.driver.partitions.geometry import Partition, Placement
from kerf_dra.driver.partitions.slice_limits import SliceLayout
from tests.fakes.cards import gpu
from tests.fakes.claims import DRIVER, claim, ref, result, share_id
from tests.fakes.cluster import FakeCluster
from tests.kubeletplugin.claim_fixture import PluginCore, plugin_core

DEVICE = "gpu-0-1g-1gb-at-0-shared"
PLACE = DEVICE.removesuffix("-shared")
ELSEWHERE = "gpu-0-1g-1gb-at-1"
TARGET = FakeCluster().target
HEALTHY = DeviceHealthTracker(driver=DRIVER, now=lambda: 0)


def share(name: str, *others: str) -> ResourceClaim:
    """A claim with a share of DEVICE."""
    return claim(name, result(DEVICE, share=f"share-of-{name}"), *others)


FIRST, SECOND = share("first"), share("second")


def cluster_of(*claims: ResourceClaim) -> FakeCluster:
    cluster = FakeCluster()
    for each in claims:
        cluster.add(each)
    return cluster


def made(core: PluginCore) -> list[str]:
    return list(core.backend.made)


async def test_the_first_share_cuts_and_the_last_takes_back(tmp_path: Path) -> None:
    async with plugin_core(tmp_path, cluster_of(FIRST, SECOND)) as core:
        one = await core.preparer.prepare_claim(ref(FIRST))
        other = await core.preparer.prepare_claim(ref(SECOND))
        assert one.devices[0].handle == other.devices[0].handle, "the same partition"
        assert one.devices[0].cdi_ids != other.devices[0].cdi_ids
        assert one.devices[0].cdi_ids == (
            f"k8s.gpu.kerf.dev/claim=claim-{ref(FIRST).uid}-{DEVICE}-{share_id('share-of-first')}",
        )
        assert made(core) == [PLACE]
        await core.preparer.unprepare_claim(ref(FIRST))
        assert made(core) == [PLACE]
        await core.preparer.unprepare_claim(ref(SECOND))
        assert made(core) == []
        assert dict(core.checkpoint.records) == {}


async def test_two_last_shares_that_end_at_once_leave_nothing(tmp_path: Path) -> None:
    async with plugin_core(tmp_path, cluster_of(FIRST, SECOND)) as core:
        for each in (FIRST, SECOND):
            await core.preparer.prepare_claim(ref(each))
        gate = core.backend.gate("unprepare", DEVICE)
        async with anyio.create_task_group() as group:
            for each in (FIRST, SECOND):
                group.start_soon(core.preparer.unprepare_claim, ref(each))
            await gate.reached.wait()
            gate.opened.set()
        assert (made(core), dict(core.checkpoint.records)) == ([], {})


async def test_a_share_that_begins_while_the_last_one_ends_has_its_partition(tmp_path: Path) -> None:
    async with plugin_core(tmp_path, cluster_of(FIRST, SECOND)) as core:
        before = await core.preparer.prepare_claim(ref(FIRST))
        gate = core.backend.gate("unprepare", DEVICE)
        async with anyio.create_task_group() as group:
            group.start_soon(core.preparer.unprepare_claim, ref(FIRST))
            await gate.reached.wait()
            group.start_soon(core.preparer.prepare_claim, ref(SECOND))
            await anyio.wait_all_tasks_blocked()
            gate.opened.set()
        after = core.checkpoint.get(ref(SECOND).uid)
        assert after is not None
        assert made(core) == [PLACE]
        assert after.devices[0].handle != before.devices[0].handle, "cut anew"


async def test_a_share_that_begins_before_the_last_one_looks_keeps_the_partition(tmp_path: Path) -> None:
    async with plugin_core(tmp_path, cluster_of(FIRST, SECOND)) as core:
        before = await core.preparer.prepare_claim(ref(FIRST))
        gate = core.backend.gate("prepare", DEVICE)
        async with anyio.create_task_group() as group:
            group.start_soon(core.preparer.prepare_claim, ref(SECOND))
            await gate.reached.wait()
            group.start_soon(core.preparer.unprepare_claim, ref(FIRST))
            await anyio.wait_all_tasks_blocked()
            gate.opened.set()
        after = core.checkpoint.get(ref(SECOND).uid)
        assert after is not None
        assert after.devices[0].handle == before.devices[0].handle


async def test_a_share_whose_prepare_fails_takes_back_its_own_and_leaves_the_others(tmp_path: Path) -> None:
    failing = share("second", ELSEWHERE)
    async with plugin_core(tmp_path, cluster_of(FIRST, failing)) as core:
        for expected, holder in (([], None), ([PLACE], FIRST)):
            if holder is not None:
                await core.preparer.prepare_claim(ref(holder))
            core.backend.fail("prepare", ELSEWHERE, HardwareBusyError("busy"))
            with pytest.raises(DevicesFailedError, match="busy"):
                await core.preparer.prepare_claim(ref(failing))
            assert made(core) == expected


async def test_two_prepares_that_both_fail_leave_nothing(tmp_path: Path) -> None:
    """While one is undone, the other must not look as if it kept its share."""
    claims = share("first", ELSEWHERE), share("second", "gpu-0-1g-1gb-at-2")
    async with plugin_core(tmp_path, cluster_of(*claims)) as core:
        core.backend.fail("prepare", ELSEWHERE, HardwareBusyError("busy"))
        core.backend.fail("prepare", "gpu-0-1g-1gb-at-2", HardwareBusyError("busy"))

        async def fails(held: ClaimRef) -> None:
            with pytest.raises(DevicesFailedError):
                await core.preparer.prepare_claim(held)

        async with anyio.create_task_group() as group:
            for each in claims:
                group.start_soon(fails, ref(each))
        assert (made(core), dict(core.checkpoint.records)) == ([], {})


async def test_the_whole_partition_and_its_shares_exclude_each_other(tmp_path: Path) -> None:
    whole = claim("whole", "gpu-0-1g-1gb-at-0")
    async with plugin_core(tmp_path, cluster_of(FIRST, whole)) as core:
        await core.preparer.prepare_claim(ref(FIRST))
        with pytest.raises(DeviceInUseError, match="two claims for one exclusive device"):
            await core.preparer.prepare_claim(ref(whole))


def offer(**spec: object) -> ResourceClassObject:
    document: JsonObject = {"device": "gpu", "allocation": "Shared", **spec}
    return ResourceClassObject(metadata=ObjectMeta(name="offer"), spec=document)


def test_what_classes_offer_in_shares() -> None:
    classes = [
        offer(profile="1g.10gb"),
        offer(profile="2g.20gb", allocation="Exclusive"),
        offer(cut="Whole"),
        offer(profile="3g.40gb", misspelt=True),
        offer(minimum={"memory": "18Gi"}),
    ]
    assert find_optional_devices(classes, GPU) == OptionalDevices(shareable=frozenset({"1g.10gb", None}))


def names(inventory: DeviceSet) -> list[str]:
    return [device.name for pool in inventory.pools for content in pool.slices for device in content.devices]


def test_shares_are_published_while_a_class_offers_them_or_a_claim_has_one() -> None:
    offering = replace(TARGET, optional_devices=OptionalDevices(shareable=frozenset({"2g.2gb"})))
    cards = {"one": [gpu(0)]}
    plain = build_device_set(TARGET, cards, (), HEALTHY, DeviceSet())
    assert not [name for name in names(plain) if name.endswith("-shared")]
    both = build_device_set(offering, cards, (), HEALTHY, plain)
    assert names(both) == [*names(plain), "gpu-0-2g-2gb-at-0-shared", "gpu-0-2g-2gb-at-2-shared"]
    placement = Placement(2, 2)
    held = Partition(kind="gpu", card_uuid="GPU-0", profile="2g.2gb", placement=placement, shared=True)
    kept = build_device_set(TARGET, cards, [held], HEALTHY, both)
    assert [name for name in names(kept) if name.endswith("-shared")] == ["gpu-0-2g-2gb-at-2-shared"]
    assert not [name for name in names(build_device_set(TARGET, cards, (), HEALTHY, kept)) if name.endswith("-shared")]


@pytest.mark.parametrize(
    "lacking", [{"keeps_shares": False}, {"keeps_counters": False}, {"layout": SliceLayout.COMBINED}]
)
def test_where_shares_cannot_be_published_there_are_none(lacking: dict[str, object]) -> None:
    place = replace(TARGET, optional_devices=OptionalDevices(shareable=frozenset({"2g.2gb"})), **lacking)  # type: ignore[arg-type]
    assert not [
        name for name in names(build_device_set(place, {"one": [gpu(0)]}, (), HEALTHY, DeviceSet())) if "shared" in name
    ]


def test_a_share_that_was_allocated_can_be_prepared_though_its_class_has_gone() -> None:
    stock = build_device_set(TARGET, {"one": [gpu(0)]}, (), HEALTHY, DeviceSet())
    offered = stock.find(DeviceId(DRIVER, "node-1/gpu", "gpu-0-2g-2gb-at-2-shared"))
    assert offered is not None
    assert offered.partition.shared
    assert offered.attributes["shared"].value is True
    assert stock.find(DeviceId(DRIVER, "node-1/gpu", "gpu-9-shared")) is None
