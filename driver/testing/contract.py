"""The rules of the protocol ``Backend`` as tests, which a vendor inherits."""

import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import ClassVar, Final, TypeAlias

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kerf_dra.api.errors import KerfError
from kerf_dra.api.model.base import JsonObject
from kerf_dra.cdi import ContainerEdits, Device, Kind, Spec, validate
from kerf_dra.driver.families.base import Family
from kerf_dra.driver.kubeletplugin.backends.base import (
    Backend,
    CardAbsentError,
    CardChange,
    HardwareBusyError,
    HardwareConflictError,
    HealthChange,
    HealthState,
    NumberedBackend,
)
from kerf_dra.driver.partitions.device_names import card_name
from kerf_dra.driver.partitions.geometry import Card, Partition
from kerf_dra.driver.partitions.pool_compiler import compile_pool
from kerf_dra.driver.partitions.slice_limits import SliceLayout
from kerf_dra.driver.testing.journal import ProcessKilled
from kerf_dra.driver.testing.machine import MachineUnderTest
from kerf_dra.driver.testing.maintenance_contract import MaintenanceContract
from kerf_dra.driver.testing.partition_samples import (
    fill_card,
    fits,
    one_of_each_published_size,
    one_of_each_size,
    shareable_partitions,
    side_by_side,
    smallest_partition,
)
from kerf_dra.driver.testing.plugin import DeviceRecord, PluginStandIn
from kerf_dra.driver.testing.release_contract import MOST_POINTS, ReleaseContract
from kerf_dra.driver.testing.sample_contract import SampleContract

_ROUNDS: Final = 3
"""How often each thread prepares and releases everything on its card."""
_MANAGEMENT: Final = (
    *("/", "/dev", "/dev/", "/dev/mem"),
    *("/dev/nvidia-caps/nvidia-cap[12]", "/dev/dfl-fme*", "/dev/xclmgmt*"),
)
"""Paths that give a container the whole host, or the right to partition a card (nvidia-cap1: MIG configuration,
nvidia-cap2: monitoring; dfl-fme and xclmgmt: the FPGA's management)."""

Contents: TypeAlias = Mapping[str, frozenset[object]]
"""What is on each card, by its UUID."""
Arm: TypeAlias = Callable[[DeviceRecord, int], None]
"""Lets the process be killed at a point, numbered from 1, of a call for a device."""


class BackendContract(ReleaseContract, SampleContract, MaintenanceContract):
    """The rules for every backend; a subclass says ``family`` and ``new_machine``."""

    family: ClassVar[Family]
    """The family whose cards the backend drives."""
    management_nodes: ClassVar[Sequence[str]] = ()
    """More paths, with wildcards, that no container may get."""
    patience_s: ClassVar[float] = 60.0
    """Seconds after which a call that should have ended counts as hanging: far above what hardware takes."""

    def new_machine(self, folder: Path) -> MachineUnderTest:
        """Return a machine whose cards no process uses; ``folder`` is empty and its own."""
        raise NotImplementedError

    @pytest.fixture
    def machine(self, tmp_path: Path) -> MachineUnderTest:
        folder = tmp_path / "machine"
        folder.mkdir()
        return self.new_machine(folder)

    @pytest.fixture
    def plugin(self, machine: MachineUnderTest) -> Iterator[PluginStandIn]:
        plugin = PluginStandIn(machine, self.family)
        yield plugin
        plugin.close()

    # Discovery

    def test_every_process_discovers_the_same_cards_in_the_same_order(self, plugin: PluginStandIn) -> None:
        first = list(plugin.cards)
        assert first, "the machine has no cards"
        assert list(plugin.backend.discover()) == first
        plugin.prepare(plugin.allocate(smallest_partition(plugin), "user"))
        plugin.restart()
        assert [(card.uuid, card.index, card.geometry) for card in plugin.cards] == [
            (card.uuid, card.index, card.geometry) for card in first
        ]

    def test_cards_are_of_the_family_and_no_two_have_one_uuid_or_one_name(self, plugin: PluginStandIn) -> None:
        assert {card.kind for card in plugin.cards} == {self.family.name}
        assert len({card.uuid for card in plugin.cards}) == len(plugin.cards)
        assert len({card_name(card) for card in plugin.cards}) == len(plugin.cards)

    def test_every_device_that_would_be_published_has_exactly_the_vocabulary_of_the_family(
        self, plugin: PluginStandIn
    ) -> None:
        vocabulary, layout = self.family.vocabulary, SliceLayout.SPLIT
        compiled = compile_pool("node-1", "node-1", plugin.cards, vocabulary=vocabulary, layout=layout)
        devices = [device for slice_ in compiled.pool.slices for device in slice_.devices]
        assert devices
        for device in devices:
            assert {*device.attributes} == {*self.family.attributes}, device.name
            assert {*device.capacity} == {*self.family.capacities}, device.name
            for name, attribute in device.attributes.items():
                neutral = self.family.attributes[name].neutral
                assert type(attribute.value) is type(neutral.value), f"{device.name}: {name}"

    # Surveys

    def test_nothing_is_on_cards_that_nobody_has_used(self, plugin: PluginStandIn) -> None:
        assert plugin.is_empty

    def test_a_survey_of_a_card_that_is_not_there_says_so(self, plugin: PluginStandIn) -> None:
        with pytest.raises(CardAbsentError):
            plugin.backend.survey("no-card-has-this-uuid")

    def test_each_partition_is_surveyed_from_its_prepare_to_its_release(self, plugin: PluginStandIn) -> None:
        empty = plugin.contents()
        for card in plugin.cards:
            for partition in one_of_each_size(plugin, card):
                record = plugin.allocate(partition, "user")
                plugin.prepare(record)
                self._check_shown(plugin, partition)
                plugin.release(record)
                assert plugin.contents() == empty, partition

    def test_a_survey_is_the_same_in_every_process(self, plugin: PluginStandIn) -> None:
        plugin.prepare(plugin.allocate(smallest_partition(plugin), "user"))
        before = plugin.contents()
        plugin.restart()
        assert plugin.contents() == before

    def test_what_others_cut_is_surveyed_until_it_is_gone_and_never_destroyed(self, plugin: PluginStandIn) -> None:
        card = plugin.cards[0]
        foreign, *own = side_by_side(plugin, card)
        plugin.machine.cut_by_hand(foreign)
        cut = plugin.contents()
        assert plugin.is_there(foreign)
        for partition in own:
            record = plugin.allocate(partition, "user")
            plugin.prepare(record)
            plugin.release(record)
        whole = plugin.allocate(plugin.machine.partitions(card)[-1], "whole")
        with pytest.raises(HardwareConflictError):
            plugin.prepare(whole)
        plugin.release(whole)
        assert plugin.contents() == cut
        plugin.machine.remove_by_hand(foreign)
        assert not plugin.is_there(foreign)

    def test_what_a_process_uses_is_said_to_be_in_use_and_is_not_destroyed(self, plugin: PluginStandIn) -> None:
        partition = smallest_partition(plugin)
        record = plugin.allocate(partition, "user")
        plugin.prepare(record)
        plugin.machine.use(partition)
        surveyed = plugin.survey(partition.card_uuid).partitions
        assert [found.in_use for found in surveyed if found.matches(partition)] == [True]
        with pytest.raises(HardwareBusyError):
            plugin.release(record)
        assert plugin.is_there(partition)
        plugin.machine.stop_using(partition)
        plugin.release(record)
        assert plugin.is_empty

    # Prepare

    def test_preparing_again_gives_the_same_handle_also_in_the_next_process(self, plugin: PluginStandIn) -> None:
        for partition in one_of_each_size(plugin, plugin.cards[0]):
            record = plugin.allocate(partition, "user")
            handle = plugin.prepare(record)
            before = plugin.contents()
            assert plugin.prepare(record) == handle
            plugin.restart()
            assert plugin.prepare(record) == handle
            assert plugin.contents() == before
            plugin.release(record)

    def test_every_device_is_prepared_without_configuration(self, plugin: PluginStandIn) -> None:
        """A user's DeviceClass may select any device of the driver, for claims that have no parameters."""
        for partition in one_of_each_published_size(plugin, plugin.cards[0]):
            record = replace(plugin.allocate(partition, "user"), config=None)
            plugin.prepare(record)
            plugin.release(record)
            assert plugin.is_empty, partition

    def test_partitions_side_by_side_do_not_disturb_one_another(self, plugin: PluginStandIn) -> None:
        for card in plugin.cards:
            records = [
                plugin.allocate(partition, f"claim-{number}")
                for number, partition in enumerate(side_by_side(plugin, card))
            ]
            for record in records:
                plugin.prepare(record)
            while records:
                for record in records:
                    self._check_shown(plugin, record.partition)
                plugin.release(records.pop(0))
            assert plugin.is_empty

    def test_what_somebody_took_after_the_survey_is_refused_and_left_alone(self, plugin: PluginStandIn) -> None:
        if not plugin.machine.lists_idle:
            pytest.skip("what no process uses may be replaced on this hardware")
        card = plugin.cards[0]
        taken = smallest_partition(plugin)
        plugin.prepare(plugin.allocate(taken, "first"))
        before = plugin.contents()
        for partition in one_of_each_size(plugin, card):
            if not partition.overlaps(taken):
                continue
            late = plugin.allocate(partition, "late")
            with pytest.raises(KerfError):
                plugin.backend.prepare(late.device, late.config, late.journal, None)
            plugin.backend.abandon(late.device, late.journal, None)
            assert plugin.contents() == before, partition

    def test_admin_access_takes_nothing_and_its_end_destroys_nothing(self, plugin: PluginStandIn) -> None:
        partition = smallest_partition(plugin)
        plugin.prepare(plugin.allocate(partition, "user"))
        before = plugin.contents()
        admin = plugin.allocate(partition, "admin", admin_access=True)
        plugin.prepare(admin)
        assert plugin.contents() == before
        plugin.release(admin)
        plugin.backend.abandon(admin.device, admin.journal, None)
        assert plugin.contents() == before

    def test_claims_that_share_a_partition_find_it_and_the_last_one_takes_it_back(self, plugin: PluginStandIn) -> None:
        partition = next((one for card in plugin.cards for one in shareable_partitions(plugin, card)), None)
        if partition is None:
            pytest.skip("the cards have no partition that can be shared")
        records = [plugin.allocate(partition, name, share=f"share-{name}") for name in ("one", "two")]
        plugin.prepare(records[0])
        made = plugin.contents()
        plugin.prepare(records[1])
        assert plugin.contents() == made
        plugin.release(records[0])
        assert plugin.contents() == made
        plugin.release(records[1])
        assert plugin.is_empty

    # Death of the process

    @pytest.mark.parametrize("is_finished", [True, False], ids=["finished", "taken-back"])
    @pytest.mark.parametrize("is_kept", [False, True], ids=["before-the-note-is-kept", "after-it"])
    def test_a_prepare_killed_at_any_note_goes_on_in_the_next_process(
        self, plugin: PluginStandIn, is_kept: bool, is_finished: bool
    ) -> None:
        self._kill_everywhere(
            plugin, lambda record, point: record.journal.kill_at(point, is_kept=is_kept), is_finished=is_finished
        )

    @pytest.mark.parametrize("is_finished", [True, False], ids=["finished", "taken-back"])
    def test_a_prepare_killed_at_any_change_of_the_hardware_goes_on_in_the_next_process(
        self, plugin: PluginStandIn, is_finished: bool
    ) -> None:
        self._kill_everywhere(plugin, lambda _, point: plugin.machine.kill_at(point), is_finished=is_finished)

    @pytest.mark.parametrize("has_handle", [True, False], ids=["unprepare", "abandon"])
    def test_a_release_killed_at_any_change_of_the_hardware_goes_on_in_the_next_process(
        self, plugin: PluginStandIn, has_handle: bool
    ) -> None:
        for partition in one_of_each_size(plugin, plugin.cards[0]):
            for point in range(1, MOST_POINTS):
                record = plugin.allocate(partition, "user")
                plugin.prepare(record)
                if not has_handle:
                    record.handle = None
                plugin.machine.kill_at(point)
                is_killed = _is_killed(plugin.release, record)
                plugin.restart()
                plugin.release(record)
                assert plugin.is_empty, (partition, point)
                if not is_killed:
                    break
            else:
                pytest.fail("kill_at() kills at every point")

    # Containers

    def test_handles_are_json_objects(self, plugin: PluginStandIn) -> None:
        for partition in one_of_each_size(plugin, plugin.cards[0]):
            record = plugin.allocate(partition, "user")
            handle = plugin.prepare(record)
            assert isinstance(handle, dict)
            record.handle = json.loads(json.dumps(handle))
            assert record.handle == handle
            plugin.release(record)
            assert plugin.is_empty, partition

    def test_a_handle_names_the_uuid_that_the_survey_shows(self, plugin: PluginStandIn) -> None:
        for partition in one_of_each_size(plugin, plugin.cards[0]):
            record = plugin.allocate(partition, "user")
            handle = plugin.prepare(record)
            surveyed = plugin.backend.survey(partition.card_uuid).partitions
            others = {found.id for found in surveyed if found.is_static and not found.matches(partition)}
            shown = {found.uuid for found in surveyed if found.uuid and found.id not in others}
            if partition.is_whole:
                assert handle.get("uuid", "") in {"", partition.card_uuid, *shown}
            else:
                assert {handle["uuid"]} == shown if shown else not handle.get("uuid"), "claims show it"
            plugin.release(record)

    def test_a_handle_gives_the_same_edits_at_any_time_and_in_every_process(self, plugin: PluginStandIn) -> None:
        for partition in one_of_each_size(plugin, plugin.cards[0]):
            record = plugin.allocate(partition, "user")
            handle = plugin.prepare(record)
            edits = plugin.backend.edits(handle)
            assert edits != ContainerEdits(), "a container gets something"
            plugin.restart()
            assert plugin.backend.edits(handle) == edits
            plugin.release(record)
            assert plugin.backend.edits(handle) == edits

    def test_device_nodes_that_the_kernel_has_not_renumbered_are_what_the_handle_has(
        self, plugin: PluginStandIn
    ) -> None:
        if not isinstance(plugin.backend, NumberedBackend):
            return
        for partition in one_of_each_size(plugin, plugin.cards[0]):
            record = plugin.allocate(partition, "user")
            handle = json.loads(json.dumps(plugin.prepare(record)))
            assert plugin.backend.renumber(handle) == handle
            plugin.restart()
            assert isinstance(plugin.backend, NumberedBackend)
            assert plugin.backend.renumber(handle) == handle
            plugin.release(record)

    def test_edits_are_valid_cdi_and_no_container_may_manage_a_card(self, plugin: PluginStandIn) -> None:
        for card in plugin.cards:
            for partition in one_of_each_size(plugin, card):
                record = plugin.allocate(partition, "user")
                edits = plugin.backend.edits(plugin.prepare(record))
                device = Device(name="device", container_edits=edits)
                spec = Spec(kind=Kind(vendor=f"k8s.{self.family.driver}", class_name="claim"), devices=(device,))
                assert not validate(spec)
                forbidden = [path for path in _host_paths(edits) for one in self._forbidden() if fnmatchcase(path, one)]
                assert not forbidden
                plugin.release(record)

    def test_a_container_with_all_devices_of_a_card_gets_a_variable_of_its_own_for_each(
        self, plugin: PluginStandIn
    ) -> None:
        found: dict[str, str] = {}
        for number, partition in enumerate(side_by_side(plugin, plugin.cards[0])):
            edits = plugin.backend.edits(plugin.prepare(plugin.allocate(partition, f"claim-{number}")))
            for name, _, value in (variable.partition("=") for variable in edits.env):
                assert found.setdefault(name, value) == value, f"two devices set {name} to different values"

    # Threads, events and the end

    def test_cards_are_worked_on_in_threads_of_their_own(self, plugin: PluginStandIn) -> None:
        errors: list[BaseException] = []

        def work(card: Card) -> None:
            try:
                for number in range(_ROUNDS):
                    partitions = fill_card(plugin, card)
                    records = [plugin.allocate(one, f"{number}-{place}") for place, one in enumerate(partitions)]
                    for record in records:
                        plugin.backend.edits(plugin.prepare(record))
                    for record in records:
                        plugin.release(record)
            except BaseException as error:  # noqa: BLE001  (the test reports it)
                errors.append(error)

        threads = [threading.Thread(target=work, args=(card,), daemon=True) for card in plugin.cards]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            plugin.backend.wait_for_events(0.01)
            assert [card.uuid for card in plugin.backend.discover()] == [card.uuid for card in plugin.cards]
        assert not errors, errors
        assert plugin.is_empty

    def test_closing_ends_a_wait_for_events(self, machine: MachineUnderTest) -> None:
        backend = machine.open_backend()
        backend.open()
        waiter = threading.Thread(target=_wait_quietly, args=(backend, self.patience_s * 60), daemon=True)
        waiter.start()
        backend.close()
        backend.close()
        waiter.join(self.patience_s)
        assert not waiter.is_alive(), "wait_for_events goes on after close"

    def test_events_are_of_cards_that_are_there(self, plugin: PluginStandIn) -> None:
        plugin.prepare(plugin.allocate(smallest_partition(plugin), "user"))
        for _ in range(2):
            for event in plugin.backend.wait_for_events(0.01):
                assert isinstance(event, HealthChange | CardChange)
                assert event.card_uuid in {card.uuid for card in plugin.cards}

    def test_the_first_wait_of_every_process_reports_what_is_unhealthy(self, plugin: PluginStandIn) -> None:
        card = plugin.cards[0].uuid
        plugin.machine.make_unhealthy(card)
        for _ in range(2):
            plugin.restart()
            events = plugin.backend.wait_for_events(self.patience_s)
            changes = [event for event in events if isinstance(event, HealthChange) and event.card_uuid == card]
            assert [change.state != HealthState.HEALTHY for change in changes] == [True]
            assert changes[0].reason
        plugin.close()

    # Cards that go away

    def test_a_card_that_is_away_is_not_discovered_and_nothing_is_proven_about_it(self, plugin: PluginStandIn) -> None:
        partition = smallest_partition(plugin)
        record = plugin.allocate(partition, "user")
        handle = plugin.prepare(record)
        plugin.machine.take_away(partition.card_uuid)
        _check_absent(plugin.backend, partition.card_uuid, handle)
        plugin.machine.bring_back(partition.card_uuid)
        plugin.restart()
        plugin.release(record)
        assert plugin.is_empty

    def test_a_card_that_went_while_no_process_ran_is_absent_to_the_next_one(self, plugin: PluginStandIn) -> None:
        """Only then the plugin publishes what claims have of it as lost, and their pods are evicted."""
        partition = smallest_partition(plugin)
        record = plugin.allocate(partition, "user")
        handle = plugin.prepare(record)
        plugin.machine.take_away(partition.card_uuid)
        plugin.restart()
        _check_absent(plugin.backend, partition.card_uuid, handle)
        plugin.machine.bring_back(partition.card_uuid)
        plugin.restart()
        plugin.release(record)
        assert plugin.is_empty

    # Any history

    @settings(
        max_examples=25,  # a few seconds with hardware that takes no time
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=[HealthCheck.differing_executors, HealthCheck.too_slow],
    )
    @given(
        st.lists(
            st.tuples(st.sampled_from(("prepare", "release", "restart")), st.integers(0, 63), st.integers(0, 4)),
            max_size=12,
        )
    )
    def test_no_history_of_calls_and_deaths_leaves_anything_behind(self, history: list[tuple[str, int, int]]) -> None:
        with TemporaryDirectory() as folder:
            plugin = PluginStandIn(self.new_machine(Path(folder)), self.family)
            held: list[DeviceRecord] = []
            for number, (operation, choice, kill) in enumerate(history):
                card = plugin.cards[choice % len(plugin.cards)]
                partitions = plugin.machine.partitions(card)
                partition = partitions[choice % len(partitions)]
                if operation == "restart":
                    plugin.restart()
                elif operation == "release" and held:
                    self._call(plugin, plugin.release, held.pop(choice % len(held)), kill)
                elif operation == "prepare" and fits(card, partition, [one.partition for one in held]):
                    held.append(plugin.allocate(partition, f"claim-{number}"))
                    self._call(plugin, plugin.prepare, held[-1], kill)
                for record in held:
                    self._check_shown(plugin, record.partition)
            for record in held:
                plugin.release(record)
            assert plugin.is_empty
            plugin.close()

    # Parts of the above

    def _kill_everywhere(self, plugin: PluginStandIn, arm: Arm, *, is_finished: bool) -> None:
        """Kill the prepare of each size at each point, once and twice, beside what others have on the card.

        Where it has no place for three, no other claim has anything on it.
        """
        card = plugin.cards[0]
        filled = fill_card(plugin, card)
        beside = filled[-2:] if len(filled) > 2 else []
        if beside:
            foreign, neighbor = beside
            plugin.prepare(plugin.allocate(neighbor, "neighbor"))
            if plugin.machine.has("cut_by_hand"):
                plugin.machine.cut_by_hand(foreign)
        others = plugin.contents()
        for partition in one_of_each_size(plugin, card):
            if any(map(partition.overlaps, beside)):
                continue
            for deaths in (1, 2):
                self._kill_at_each_point(plugin, partition, arm, deaths=deaths, is_finished=is_finished, others=others)

    def _kill_at_each_point(
        self,
        plugin: PluginStandIn,
        partition: Partition,
        arm: Arm,
        *,
        deaths: int,
        is_finished: bool,
        others: Contents,
    ) -> None:
        """Let ``deaths`` processes die at one point, the next one finish or take back, for each point in turn."""
        for point in range(1, MOST_POINTS):
            record = plugin.allocate(partition, "killed")
            killed = []
            for _ in range(deaths):
                arm(record, point)
                killed.append(_is_killed(plugin.prepare, record))
                plugin.restart()
            if is_finished:
                plugin.prepare(record)
                self._check_shown(plugin, partition)
            plugin.release(record)
            assert plugin.contents() == others, (partition, point)
            if not any(killed):
                return
        pytest.fail("kill_at() kills at every point")

    def _call(
        self, plugin: PluginStandIn, call: Callable[[DeviceRecord], object], record: DeviceRecord, kill: int
    ) -> None:
        """Make a call until it is done, the first time in a process that is killed at ``kill`` (0: it is not)."""
        if kill and plugin.machine.has("kill_at"):
            plugin.machine.kill_at(kill)
        elif kill:
            record.journal.kill_at(kill, is_kept=kill % 2 == 0)
        while _is_killed(call, record):
            plugin.restart()
        plugin.disarm()

    def _check_shown(self, plugin: PluginStandIn, partition: Partition) -> None:
        """Check that the survey shows a prepared partition, where it lists those that no process uses."""
        if plugin.machine.lists_idle and not partition.is_whole:
            assert plugin.is_there(partition), partition

    def _forbidden(self) -> tuple[str, ...]:
        return (*_MANAGEMENT, *self.management_nodes)


def _check_absent(backend: Backend, card_uuid: str, handle: JsonObject) -> None:
    """Check that a card is not discovered, and that neither a survey nor a release says anything of it."""
    assert card_uuid not in {card.uuid for card in backend.discover()}
    for call in (lambda: backend.survey(card_uuid), lambda: backend.unprepare(handle)):
        with pytest.raises(CardAbsentError):
            call()


def _is_killed(call: Callable[[DeviceRecord], object], record: DeviceRecord) -> bool:
    """Call, and return whether the process was killed by it."""
    try:
        call(record)
    except ProcessKilled:
        return True
    return False


def _wait_quietly(backend: Backend, timeout_s: float) -> None:
    with suppress(KerfError):  # a backend may refuse to wait once it is closed
        backend.wait_for_events(timeout_s)


def _host_paths(edits: ContainerEdits) -> Iterator[str]:
    """Yield the host's paths that a container gets."""
    for node in edits.device_nodes:
        yield from (node.path, node.host_path or node.path)
    yield from (mount.host_path for mount in edits.mounts)
