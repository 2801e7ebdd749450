"""The rules of the protocol ``Backend`` for ``unprepare`` and ``abandon`` as tests: a part of the contract suite."""

from contextlib import suppress
from typing import Final

import pytest

from kerf_dra.driver.testing.partition_samples import one_of_each_size, side_by_side, smallest_partition
from kerf_dra.driver.testing.plugin import PluginStandIn

MOST_POINTS: Final = 200
"""Points of one call at which a process is killed or a call of the hardware fails, before the suite takes the hook for
one that always does."""


class ReleaseContract:
    """The rules for the release of a device; ``BackendContract`` has the fixture and all other rules."""

    def test_releasing_again_succeeds_also_in_the_next_process(self, plugin: PluginStandIn) -> None:
        record = plugin.allocate(smallest_partition(plugin), "user")
        handle = plugin.prepare(record)
        plugin.release(record)
        plugin.backend.unprepare(handle)
        plugin.restart()
        plugin.backend.unprepare(handle)
        assert plugin.is_empty

    def test_an_old_handle_leaves_what_was_made_at_its_place_since_alone(self, plugin: PluginStandIn) -> None:
        if not plugin.machine.lists_idle:
            pytest.skip("what no process uses may be replaced on this hardware")
        partition = smallest_partition(plugin)
        old = plugin.allocate(partition, "old")
        handle = plugin.prepare(old)
        first = plugin.contents()
        plugin.release(old)
        plugin.prepare(plugin.allocate(partition, "new"))
        second = plugin.contents()
        if first == second:
            pytest.skip("a partition made again has the old id and UUID: only the plugin's records distinguish them")
        plugin.backend.unprepare(handle)
        assert plugin.contents() == second

    @pytest.mark.parametrize("handle", [{}, {"madeBy": "another backend", "card": "of another node"}])
    def test_a_handle_of_another_backend_destroys_nothing(self, plugin: PluginStandIn, handle: dict[str, str]) -> None:
        plugin.prepare(plugin.allocate(smallest_partition(plugin), "user"))
        before = plugin.contents()
        with suppress(Exception):  # an error is as good as doing nothing
            plugin.backend.unprepare(handle)
        assert plugin.contents() == before

    def test_abandoning_what_was_never_begun_leaves_others_at_its_place_alone(self, plugin: PluginStandIn) -> None:
        partition = smallest_partition(plugin)
        plugin.prepare(plugin.allocate(partition, "user"))
        before = plugin.contents()
        never = plugin.allocate(partition, "never")
        for _ in range(2):
            plugin.backend.abandon(never.device, never.journal, None)
        assert plugin.contents() == before

    def test_abandoning_takes_back_a_prepare_whose_answer_was_lost(self, plugin: PluginStandIn) -> None:
        for partition in one_of_each_size(plugin, plugin.cards[0]):
            record = plugin.allocate(partition, "user")
            plugin.prepare(record)
            record.handle = None
            plugin.release(record)
            plugin.release(record)
            assert plugin.is_empty, partition

    @pytest.mark.parametrize("has_handle", [True, False], ids=["unprepare", "abandon"])
    def test_a_release_that_the_hardware_fails_at_any_call_is_repeated_and_takes_back_everything(
        self, plugin: PluginStandIn, has_handle: bool
    ) -> None:
        """An error is no proof that the partition is gone: the plugin forgets it when the call returns."""
        partition, *others = side_by_side(plugin, plugin.cards[0])
        for number, other in enumerate([*others[:1], plugin.machine.partitions(plugin.cards[-1])[0]]):
            plugin.prepare(plugin.allocate(other, f"neighbor-{number}"))
        before = plugin.contents()
        for point in range(1, MOST_POINTS):
            record = plugin.allocate(partition, "user")
            plugin.prepare(record)
            if not has_handle:
                record.handle = None
            plugin.machine.fail_at(point)
            has_failed = True
            with suppress(Exception):  # whatever the backend raises
                plugin.release(record)
                has_failed = False
            plugin.machine.fail_at(None)
            assert has_failed or plugin.contents() == before, (point, "it has succeeded, and something is left")
            plugin.release(record)
            assert plugin.contents() == before, point
            if not has_failed:
                return
        pytest.fail("fail_at() lets calls fail at every point")

    def test_a_survey_that_the_hardware_fails_at_any_call_is_true_or_an_error(self, plugin: PluginStandIn) -> None:
        """A card of which nothing could be read is not an empty one."""
        for number, card in enumerate(plugin.cards[:2]):
            plugin.prepare(plugin.allocate(plugin.machine.partitions(card)[0], f"user-{number}"))
        card_uuid = plugin.cards[0].uuid
        true = plugin.survey(card_uuid)
        for point in range(1, MOST_POINTS):
            plugin.machine.fail_at(point)
            found = None
            with suppress(Exception):
                found = plugin.survey(card_uuid)
            plugin.machine.fail_at(None)
            assert found in (None, true), point
            if found is not None:
                return
        pytest.fail("fail_at() lets calls fail at every point")
