"""The rules of the protocol ``SampledBackend`` as tests: a part of the contract suite, for backends that have it."""

import pytest

from kerf_dra.driver.kubeletplugin.backends.base import CardAbsentError, CardSample, DeviceSample, SampledBackend
from kerf_dra.driver.kubeletplugin.backends.sample_validation import sample_card
from kerf_dra.driver.testing.partition_samples import side_by_side, smallest_partition
from kerf_dra.driver.testing.plugin import DeviceRecord, PluginStandIn


class SampleContract:
    """The rules for samples; ``BackendContract`` has the fixture and all other rules."""

    def test_a_sample_has_a_device_for_each_handle_in_their_order(self, plugin: PluginStandIn) -> None:
        records = [
            plugin.allocate(one, f"user-{number}") for number, one in enumerate(side_by_side(plugin, plugin.cards[0]))
        ]
        for record in records:
            plugin.prepare(record)
        for held in (records, records[::-1], records[:1], []):
            assert len(_sample(plugin, *held).devices) == len(held)

    def test_a_sample_changes_nothing(self, plugin: PluginStandIn) -> None:
        record = plugin.allocate(smallest_partition(plugin), "user")
        plugin.prepare(record)
        before = plugin.contents()
        for _ in range(3):
            _sample(plugin, record)
        plugin.restart()
        _sample(plugin, record)
        assert plugin.contents() == before
        plugin.release(record)
        assert plugin.is_empty

    def test_a_sample_says_nothing_of_a_device_that_is_gone(self, plugin: PluginStandIn) -> None:
        if not plugin.machine.lists_idle:
            pytest.skip("what no process uses may be replaced on this hardware, and is not gone then")
        record = plugin.allocate(smallest_partition(plugin), "user")
        handle = plugin.prepare(record)
        first = plugin.contents()
        plugin.release(record)
        if plugin.contents() == first:
            pytest.skip("a partition is not gone when it is released")
        record.handle = handle
        assert _sample(plugin, record).devices == (DeviceSample(),)

    def test_the_energy_of_a_card_never_falls_while_its_driver_is_loaded(self, plugin: PluginStandIn) -> None:
        record = plugin.allocate(smallest_partition(plugin), "user")
        first = _sample(plugin).energy_mj
        plugin.prepare(record)
        second = _sample(plugin, record).energy_mj
        plugin.release(record)
        third = _sample(plugin).energy_mj
        assert (first is None) == (second is None) == (third is None)
        assert (first or 0) <= (second or 0) <= (third or 0)

    def test_a_card_that_is_away_cannot_be_sampled(self, plugin: PluginStandIn) -> None:
        record = plugin.allocate(smallest_partition(plugin), "user")
        plugin.prepare(record)
        _sample(plugin, record)
        plugin.machine.take_away(record.partition.card_uuid)
        with pytest.raises(CardAbsentError):
            _sample(plugin, record)
        plugin.machine.bring_back(record.partition.card_uuid)
        plugin.backend.discover()
        assert len(_sample(plugin, record).devices) == 1


def _sample(plugin: PluginStandIn, *records: DeviceRecord) -> CardSample:
    """Return a valid sample of the first card, with the devices of ``records`` on it."""
    if not isinstance(plugin.backend, SampledBackend):
        pytest.skip(f"{type(plugin.backend).__name__} is no SampledBackend")
    card_uuid = records[0].partition.card_uuid if records else plugin.cards[0].uuid
    return sample_card(plugin.backend, card_uuid, [record.handle or {} for record in records])
