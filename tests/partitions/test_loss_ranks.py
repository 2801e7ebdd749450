"""The attribute ``lossRank``: what later claims lose by a placement, as a rank."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kerf_dra.api.model.devices import Device
from kerf_dra.driver.families.gpu import GPU
from kerf_dra.driver.partitions.geometry import Card, Partition
from kerf_dra.driver.partitions.pool_compiler import SliceLayout, build_monitor_slices, compile_pool
from kerf_dra.driver.partitions.publish_order import needs_republish, publish_order
from kerf_dra.driver.partitions.unit_map import get_unit_map
from tests.partitions.cards import fpga, gpu, gpu_partition, gpus, vocabulary_of, whole
from tests.partitions.counters import devices


def published(cards: Sequence[Card], taken: Sequence[Partition] = ()) -> dict[Partition, Device]:
    """The device of each partition, in published order."""
    vocabulary = vocabulary_of(cards[0])
    order = publish_order(cards, taken)
    compiled = compile_pool("node-1/gpu", "node-1", cards, vocabulary=vocabulary, layout=SliceLayout.SPLIT, order=order)
    return {compiled.partitions[device.name]: device for device in devices(compiled.pool)}


def rank_of(device: Device) -> int:
    value = device.attributes["lossRank"].value
    assert isinstance(value, int)
    return value


@pytest.mark.parametrize(
    ("model", "profile", "losses"),
    [
        ("h100-80gb-sxm", "1g.10gb", (1, 2, 4, 5, 7, 11, 12, 14, 18)),
        ("h100-80gb-sxm", "1g.20gb", (2, 5, 8, 12, 15, 19)),
        ("h100-80gb-sxm", "3g.40gb", (10, 17, 24)),
        ("h100-80gb-sxm", "7g.80gb", (34,)),
        ("a30-24gb", "1g.6gb", (1, 3, 7)),
        ("a30-24gb", "4g.24gb", (12,)),
    ],
)
def test_a_profile_has_the_same_losses_wherever_it_is_placed(model: str, profile: str, losses: Sequence[int]) -> None:
    unit_map = get_unit_map(gpu(model))
    assert {unit_map.list_losses(spec) for spec in unit_map.specs if spec.profile == profile} == {tuple(losses)}


@pytest.mark.parametrize(
    ("taken", "profile", "ranks"),
    [
        ([], "1g.10gb", {0: 8, 1: 8, 2: 8, 3: 8, 4: 7, 5: 7, 6: 6}),
        ([("4g.40gb", 0)], "1g.10gb", {0: 8, 1: 8, 2: 8, 3: 8, 4: 4, 5: 4, 6: 3}),
        ([("4g.40gb", 0), ("2g.20gb", 4)], "1g.10gb", {0: 8, 1: 8, 2: 8, 3: 8, 4: 8, 5: 8, 6: 1}),
        ([], "7g.80gb", {0: 0}),
        ([("1g.10gb", 6)], "3g.40gb", {0: 1, 4: 2}),
    ],
)
def test_a_device_says_the_rank_of_its_loss_and_the_last_one_while_it_is_not_available(
    taken: Sequence[tuple[str, int]], profile: str, ranks: dict[int, int]
) -> None:
    card = gpu()
    held = [gpu_partition(card, *each) for each in taken]
    found = {
        partition.placement.start: rank_of(device)
        for partition, device in published([card, gpu(index=1)], held).items()
        if partition.profile == profile and partition.placement and partition.card_uuid == card.uuid
    }
    assert found == ranks


@given(data=st.data())
def test_the_first_available_device_of_a_profile_has_the_lowest_rank(data: st.DataObject) -> None:
    """So a node satisfies the same grade by the device that KEEP takes as by any other."""
    cards = gpus(3)
    everything = publish_order(cards, ()).partitions
    taken = data.draw(st.lists(st.sampled_from(everything), unique=True, max_size=6))
    available = publish_order(cards, taken).available
    ranks: dict[str | None, list[int]] = {}
    for partition, device in published(cards, taken).items():
        if partition in available:
            ranks.setdefault(partition.profile, []).append(rank_of(device))
    assert all(each[0] == min(each) for each in ranks.values())


def test_what_devices_say_of_their_losses_is_published_when_it_changes() -> None:
    """The order of one card's last two partitions stays when the card beside them is taken, and their losses do not."""
    card = gpu()
    kept = [gpu_partition(card, "4g.40gb", 0)]
    before, after = publish_order([card], kept), publish_order([card], [*kept, gpu_partition(card, "1g.10gb", 6)])
    assert not needs_republish(before, after)
    assert needs_republish(before, after, with_losses=True)
    assert not needs_republish(after, publish_order([card], [whole(card)]), with_losses=True), "nothing is available"


def test_a_monitor_device_and_an_fpga_have_no_rank_of_their_own() -> None:
    """A device without placement has the neutral value, and a family without the attribute does not get it."""
    card = gpu()
    monitors = [
        device
        for slice_ in build_monitor_slices([card], "node-1", vocabulary_of(card), GPU.driver)
        for device in slice_.devices
    ]
    assert [rank_of(device) for device in monitors] == [0]
    assert all("lossRank" not in device.attributes for device in published([fpga(), fpga(index=1)]).values())
