"""The rules of the protocol ``MaintainingBackend`` as tests: a part of the contract suite, skipped for other backends.

They are skipped, too, where an administrator has made partitions for claims, which a reset ends: the plugin resets no
card with any.
"""

import pytest

from kerf_dra.api.errors import KerfError
from kerf_dra.driver.kubeletplugin.backends.base import CardAbsentError, HardwareBusyError, MaintainingBackend
from kerf_dra.driver.testing.journal import KillableJournal, ProcessKilled
from kerf_dra.driver.testing.partition_samples import one_of_each_size, smallest_partition
from kerf_dra.driver.testing.plugin import PluginStandIn
from kerf_dra.driver.testing.release_contract import MOST_POINTS


class MaintenanceContract:
    """The rules for cards in maintenance; ``BackendContract`` has the fixture and all other rules."""

    def test_a_card_that_was_reset_is_discovered_empty_and_can_be_prepared(self, plugin: PluginStandIn) -> None:
        backend, journal = _maintaining(plugin), KillableJournal()
        card = plugin.cards[0]
        assert backend.reset_card(card.uuid, journal)
        backend.end_act(card.uuid, journal)
        assert [one.uuid for one in plugin.backend.discover()] == [one.uuid for one in plugin.cards]
        assert plugin.is_empty
        for partition in one_of_each_size(plugin, card):
            record = plugin.allocate(partition, "user")
            plugin.prepare(record)
            plugin.release(record)
        assert plugin.is_empty

    def test_a_reset_leaves_the_other_cards_as_they_are(self, plugin: PluginStandIn) -> None:
        backend, journal = _maintaining(plugin), KillableJournal()
        if len(plugin.cards) == 1:
            pytest.skip("the machine has one card")
        card = plugin.cards[-1]
        record = plugin.allocate(smallest_partition(plugin), "user")
        handle = plugin.prepare(record)
        before = plugin.contents()
        backend.reset_card(card.uuid, journal)
        backend.end_act(card.uuid, journal)
        assert plugin.contents() == before
        assert plugin.prepare(record) == handle

    def test_who_has_an_unused_card_open_can_be_asked_at_any_time(self, plugin: PluginStandIn) -> None:
        backend = _maintaining(plugin)
        for card in plugin.cards:
            assert not backend.find_card_holders(card.uuid)
        assert plugin.is_empty

    def test_a_card_that_a_process_uses_is_not_reset(self, plugin: PluginStandIn) -> None:
        backend, journal = _maintaining(plugin), KillableJournal()
        partition = smallest_partition(plugin)
        plugin.prepare(plugin.allocate(partition, "user"))
        plugin.machine.use(partition)
        before = plugin.contents()
        with pytest.raises(HardwareBusyError):
            backend.reset_card(partition.card_uuid, journal)
        backend.end_act(partition.card_uuid, journal)
        assert plugin.contents() == before

    def test_a_card_that_is_not_there_is_not_reset(self, plugin: PluginStandIn) -> None:
        backend = _maintaining(plugin)
        with pytest.raises(CardAbsentError):
            backend.reset_card("no-card-has-this-uuid", KillableJournal())
        plugin.machine.take_away(plugin.cards[0].uuid)
        with pytest.raises(CardAbsentError):
            backend.reset_card(plugin.cards[0].uuid, KillableJournal())

    def test_the_end_of_an_act_that_was_killed_at_any_note_can_come_again(self, plugin: PluginStandIn) -> None:
        journal = KillableJournal()
        for point in range(1, MOST_POINTS):
            card = plugin.cards[0]
            journal.kill_at(point, is_kept=True)
            is_killed = False
            try:
                _maintaining(plugin).reset_card(card.uuid, journal)
            except ProcessKilled:
                is_killed = True
            journal.kill_at(None)
            plugin.restart()
            for _ in range(2):
                _maintaining(plugin).end_act(card.uuid, journal)
            assert plugin.is_empty
            if not is_killed:
                break
        else:
            pytest.fail("kill_at() kills at every point")

    def test_mig_mode_is_switched_or_refused_and_never_half(self, plugin: PluginStandIn) -> None:
        backend = _maintaining(plugin)
        for card in plugin.cards:
            for is_on in (True, True, False):
                try:
                    assert backend.set_mig_mode(card.uuid, is_on)
                except KerfError:
                    continue  # hardware without such a mode
                survey = plugin.survey(card.uuid)
                assert not (survey.no_partitions and not survey.no_whole if is_on else survey.no_whole)
        assert plugin.is_empty


def _maintaining(plugin: PluginStandIn) -> MaintainingBackend:
    if not isinstance(plugin.backend, MaintainingBackend):
        pytest.skip("the backend does nothing with cards in maintenance")
    if any(found.is_static for card in plugin.cards for found in plugin.survey(card.uuid).partitions):
        pytest.skip("a reset would end what an administrator has made for claims")
    return plugin.backend
