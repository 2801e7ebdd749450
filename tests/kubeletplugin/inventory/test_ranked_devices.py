"""Ranks of losses: published where a class asks for packed placement; they cost writes of slices."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from kerf_dra.api.kerf.v1alpha1 import ResourceClassObject
from kerf_dra.api.model.metadata import ObjectMeta
from kerf_dra.driver.families.fpga import FPGA
from kerf_dra.driver.families.gpu import GPU
from kerf_dra.driver.kubeletplugin.inventory.devices import DeviceSet, build_device_set
from kerf_dra.driver.kubeletplugin.inventory.optional_devices import OptionalDevices, find_optional_devices
from kerf_dra.driver.kubeletplugin.inventory.state.health import DeviceHealthTracker
from kerf_dra.driver.partitions.geometry import Partition
from tests.fakes.claims import DRIVER
from tests.fakes.cluster import FakeCluster
from tests.partitions.cards import gpu, gpu_partition

HEALTHY = DeviceHealthTracker(driver=DRIVER, now=lambda: 0)
CARDS = (gpu("h100-80gb-sxm"), gpu("h100-80gb-sxm", index=1))


def resource_class(name: str, **spec: object) -> ResourceClassObject:
    return ResourceClassObject(metadata=ObjectMeta(name=name), spec={"device": "gpu", "profile": "1g.10gb", **spec})


@pytest.mark.parametrize(
    ("placements", "ranked"),
    [((), ()), (("Spread", "None"), ()), (("Spread", "Packed"), ("gpu",))],
    ids=["no class", "other placements", "one that is packed"],
)
def test_a_family_has_ranks_if_one_of_its_classes_is_packed(placements: Sequence[str], ranked: Sequence[str]) -> None:
    classes = [resource_class(each.lower(), placement=each) for each in placements]
    assert find_optional_devices([*classes, resource_class("any")], GPU).ranked == frozenset(ranked)
    assert find_optional_devices(classes, FPGA).ranked == frozenset()


def published(ranked: bool, taken: Sequence[Partition], previous: DeviceSet) -> DeviceSet:
    wanted = OptionalDevices(ranked=frozenset({"gpu"} if ranked else ()))
    target = FakeCluster().target
    target = replace(target, optional_devices=wanted, vocabularies={**target.vocabularies, "gpu": GPU.vocabulary})
    return build_device_set(target, {"one": CARDS}, taken, HEALTHY, previous)


def ranks(devices: DeviceSet) -> set[object]:
    [pool] = devices.pools
    return {device.attributes["lossRank"].value for content in pool.slices for device in content.devices}


def test_without_such_a_class_every_rank_is_0_and_no_slice_changes_for_it() -> None:
    """Slices were written four times as often, in every cluster."""
    first = gpu_partition(CARDS[0], "1g.10gb", 6)
    before = published(False, (), DeviceSet())
    after = published(False, (first,), before)
    assert ranks(before) == ranks(after) == {0}
    assert after.pools == before.pools
    with_ranks = published(True, (), DeviceSet())
    assert len(ranks(with_ranks)) > 1
    assert published(True, (first,), with_ranks).pools != with_ranks.pools
