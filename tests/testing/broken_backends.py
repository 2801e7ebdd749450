"""Backends that break one rule each, with the contract suite on them: ``test_contract_suite`` runs it.

Each class says which test must fail. They are variants of the example backend (``docs/examples/npu``).
"""

import threading
import uuid
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

from acme_npu import NPU, AcmeBackend
from test_acme_npu import AcmeMachine, DyingPath

from kerf_dra.cdi import ContainerEdits, DeviceNode
from kerf_dra.driver.kubeletplugin.backends.base import (
    AllocatedDevice,
    CardChange,
    CardSample,
    CardSurvey,
    DeviceSample,
    FoundPartition,
    Handle,
    HardwareRefusedError,
    HealthChange,
    Journal,
)
from kerf_dra.driver.partitions.geometry import Card
from kerf_dra.driver.testing import BackendContract


class ForgetfulSurvey(AcmeBackend):
    """Surveys what this process has made, not what is there."""

    made: set[str]

    def open(self) -> None:
        super().open()
        self.made = set()

    def prepare(self, device: AllocatedDevice, *rest: Any) -> Handle:
        handle = super().prepare(device, *rest)
        self.made.add(handle["file"])
        return handle

    def survey(self, card_uuid: str) -> CardSurvey:
        found = tuple(one for one in super().survey(card_uuid).partitions if one.id in self.made)
        return CardSurvey(card_uuid=card_uuid, partitions=found)


class IgnoresFound(AcmeBackend):
    """Makes another partition in place of the one that an interrupted prepare has left."""

    def prepare(self, device: AllocatedDevice, config: Any, journal: Journal, found: FoundPartition | None) -> Handle:
        return super().prepare(device, config, journal, None)


class DestroysByPlace(AcmeBackend):
    """Removes whatever is at the place of the handle."""

    def unprepare(self, handle: Handle) -> None:
        beginning = handle["file"].rsplit("-", 5)[0]
        for file in self._folder(handle["card"]).glob(f"{beginning}-*"):
            file.unlink()


class AbandonsByPlace(AcmeBackend):
    """Takes what is at the device's place for its own."""

    def abandon(self, device: AllocatedDevice, journal: Journal, found: FoundPartition | None) -> None:
        place = device.partition.placement
        if place is not None:
            for file in self._folder(device.partition.card_uuid).glob(f"{device.partition.profile}-{place.start}-*"):
                file.unlink()


class NeverLooks(AcmeBackend):
    """Makes a partition over those of others."""

    def survey(self, card_uuid: str) -> CardSurvey:
        return super().survey(card_uuid)

    def prepare(self, device: AllocatedDevice, config: Any, journal: Journal, found: FoundPartition | None) -> Handle:
        place = device.partition.placement
        if found is None and place is not None and not device.admin_access:
            file = self._folder(device.partition.card_uuid) / f"{device.partition.profile}-{place.start}-{uuid.uuid4()}"
            file.touch()
            found = FoundPartition(id=file.name, profile=device.partition.profile, placement=place)
        return super().prepare(device, config, journal, found)


class LeavesHalfMade(AcmeBackend):
    """Makes a partition in two steps, and forgets the first one when it is killed between them."""

    def prepare(self, device: AllocatedDevice, config: Any, journal: Journal, found: FoundPartition | None) -> Handle:
        folder = self._folder(device.partition.card_uuid)
        if found is None and device.partition.placement is not None and not device.admin_access:
            reserved = folder.parent / f"reserved-{folder.name}"
            reserved.touch(exist_ok=False)
            handle = super().prepare(device, config, journal, found)
            reserved.unlink()
            return handle
        return super().prepare(device, config, journal, found)


class AnswersAnything(AcmeBackend):
    """Gives each prepare another handle."""

    def prepare(self, device: AllocatedDevice, *rest: Any) -> Handle:
        return {**super().prepare(device, *rest), "serial": str(uuid.uuid4())}


class HandlesObjects(AcmeBackend):
    """Puts into its handles what JSON cannot say."""

    def prepare(self, device: AllocatedDevice, *rest: Any) -> Handle:
        handle = super().prepare(device, *rest)
        return {**handle, "nodes": tuple(handle["nodes"])}


class NamesTheCard(AcmeBackend):
    """Gives the UUID of the card for that of a partition."""

    def prepare(self, device: AllocatedDevice, *rest: Any) -> Handle:
        return {**super().prepare(device, *rest), "uuid": device.partition.card_uuid}


class EditsFromTheCard(AcmeBackend):
    """Reads the hardware for the edits."""

    def edits(self, handle: Handle) -> ContainerEdits:
        count = len(list(self._folder(handle["card"]).iterdir()))
        return super().edits(handle) + ContainerEdits(env=(f"PARTITIONS={count}",))


class RenumbersWhatStays(AcmeBackend):
    """Finds other device nodes than the card has."""

    def renumber(self, handle: Handle) -> Handle:
        return {**handle, "nodes": []}


class GivesTheManagement(AcmeBackend):
    """Lets containers partition the card."""

    def edits(self, handle: Handle) -> ContainerEdits:
        node = DeviceNode(path="/dev/dfl-fme.0", host_path="/dev/null", type="c", major=1, minor=3)
        return super().edits(handle) + ContainerEdits(device_nodes=(node,))


class InvalidEdits(AcmeBackend):
    """Gives edits that no runtime takes."""

    def edits(self, handle: Handle) -> ContainerEdits:
        return super().edits(handle) + ContainerEdits(env=("NO_VALUE",))


class OneVariable(AcmeBackend):
    """Gives all devices of a container one variable."""

    def edits(self, handle: Handle) -> ContainerEdits:
        return super().edits(handle) + ContainerEdits(env=(f"ACME={handle['device']}",))


class AdminTakes(AcmeBackend):
    """Takes an administrator's look for a use."""

    def unprepare(self, handle: Handle) -> None:
        if handle["file"] == "none":
            for file in self._folder(handle["card"]).iterdir():
                file.unlink()
        super().unprepare(handle)


class NeedsConfiguration(AcmeBackend):
    """Prepares nothing for a claim that has no parameters."""

    def prepare(self, device: AllocatedDevice, config: Any, journal: Journal, found: FoundPartition | None) -> Handle:
        if config is None:
            raise HardwareRefusedError("which precision?")
        return super().prepare(device, config, journal, found)


class CardsMove(AcmeBackend):
    """Finds the cards in another order each time."""

    turn: ClassVar[int] = 0

    def discover(self) -> list[Card]:
        CardsMove.turn += 1
        return super().discover()[:: 1 if CardsMove.turn % 2 else -1]


class AbsentIsEmpty(AcmeBackend):
    """Takes a card that is away for an empty one."""

    def survey(self, card_uuid: str) -> CardSurvey:
        if card_uuid not in {card.uuid for card in self.discover()}:
            return CardSurvey(card_uuid=card_uuid)
        return super().survey(card_uuid)


class ErrorIsGone(AcmeBackend):
    """Takes an error of the hardware for a partition that is gone."""

    def unprepare(self, handle: Handle) -> None:
        with suppress(OSError):
            super().unprepare(handle)


class ErrorIsEmpty(AcmeBackend):
    """Takes a card that cannot be read for an empty one."""

    def survey(self, card_uuid: str) -> CardSurvey:
        try:
            return super().survey(card_uuid)
        except OSError:
            return CardSurvey(card_uuid=card_uuid)


class ForeignEvents(AcmeBackend):
    """Reports cards that are not there."""

    def wait_for_events(self, timeout_s: float) -> Sequence[HealthChange | CardChange]:
        return [CardChange(card_uuid="NPU-of-another-node")]


class OneThread(AcmeBackend):
    """Can be called only by the thread that has opened it."""

    def open(self) -> None:
        super().open()
        self.thread = threading.get_ident()

    def prepare(self, device: AllocatedDevice, *rest: Any) -> Handle:
        assert threading.get_ident() == self.thread
        return super().prepare(device, *rest)


class NeverWakes(AcmeBackend):
    """Waits for events until the time is over, whatever happens."""

    def wait_for_events(self, timeout_s: float) -> Sequence[HealthChange | CardChange]:
        threading.Event().wait(timeout_s)
        return ()


class ShortSample(AcmeBackend):
    """Leaves devices out of a sample."""

    def sample(self, card_uuid: str, handles: Sequence[Handle]) -> CardSample:
        self._folder(card_uuid)
        return CardSample(devices=tuple(DeviceSample() for _ in handles[1:]))


class ReleasesWhatItSamples(AcmeBackend):
    """Removes what it samples."""

    def sample(self, card_uuid: str, handles: Sequence[Handle]) -> CardSample:
        self._folder(card_uuid)
        for handle in handles:
            self.unprepare(handle)
        return CardSample(devices=tuple(DeviceSample() for _ in handles))


class SamplesWhatIsGone(AcmeBackend):
    """Says of devices that are gone that nothing uses them."""

    def sample(self, card_uuid: str, handles: Sequence[Handle]) -> CardSample:
        self._folder(card_uuid)
        return CardSample(devices=tuple(DeviceSample(processes=0) for _ in handles))


class EnergyOfNow(AcmeBackend):
    """Says the power of its partitions in place of a card's energy."""

    def sample(self, card_uuid: str, handles: Sequence[Handle]) -> CardSample:
        there = [*self._folder(card_uuid).iterdir()]
        return CardSample(energy_mj=len(there), devices=tuple(DeviceSample() for _ in handles))


class SamplesNoCard(AcmeBackend):
    """Says of a card that is away that nothing is known of it."""

    def sample(self, card_uuid: str, handles: Sequence[Handle]) -> CardSample:
        del card_uuid
        return CardSample(devices=tuple(DeviceSample() for _ in handles))


BROKEN = {
    ForgetfulSurvey: "test_a_survey_is_the_same_in_every_process",
    IgnoresFound: "test_preparing_again_gives_the_same_handle_also_in_the_next_process",
    DestroysByPlace: "test_an_old_handle_leaves_what_was_made_at_its_place_since_alone",
    AbandonsByPlace: "test_abandoning_what_was_never_begun_leaves_others_at_its_place_alone",
    NeverLooks: "test_what_somebody_took_after_the_survey_is_refused_and_left_alone",
    LeavesHalfMade: "test_a_prepare_killed_at_any_change_of_the_hardware_goes_on_in_the_next_process",
    AnswersAnything: "test_preparing_again_gives_the_same_handle_also_in_the_next_process",
    HandlesObjects: "test_handles_are_json_objects",
    NamesTheCard: "test_a_handle_names_the_uuid_that_the_survey_shows",
    RenumbersWhatStays: "test_device_nodes_that_the_kernel_has_not_renumbered_are_what_the_handle_has",
    EditsFromTheCard: "test_a_handle_gives_the_same_edits_at_any_time_and_in_every_process",
    GivesTheManagement: "test_edits_are_valid_cdi_and_no_container_may_manage_a_card",
    InvalidEdits: "test_edits_are_valid_cdi_and_no_container_may_manage_a_card",
    OneVariable: "test_a_container_with_all_devices_of_a_card_gets_a_variable_of_its_own_for_each",
    AdminTakes: "test_admin_access_takes_nothing_and_its_end_destroys_nothing",
    NeedsConfiguration: "test_every_device_is_prepared_without_configuration",
    CardsMove: "test_every_process_discovers_the_same_cards_in_the_same_order",
    AbsentIsEmpty: "test_a_survey_of_a_card_that_is_not_there_says_so",
    ErrorIsGone: "test_a_release_that_the_hardware_fails_at_any_call_is_repeated_and_takes_back_everything",
    ErrorIsEmpty: "test_a_survey_that_the_hardware_fails_at_any_call_is_true_or_an_error",
    ForeignEvents: "test_events_are_of_cards_that_are_there",
    OneThread: "test_cards_are_worked_on_in_threads_of_their_own",
    NeverWakes: "test_closing_ends_a_wait_for_events",
    ShortSample: "test_a_sample_has_a_device_for_each_handle_in_their_order",
    ReleasesWhatItSamples: "test_a_sample_changes_nothing",
    SamplesWhatIsGone: "test_a_sample_says_nothing_of_a_device_that_is_gone",
    EnergyOfNow: "test_the_energy_of_a_card_never_falls_while_its_driver_is_loaded",
    SamplesNoCard: "test_a_card_that_is_away_cannot_be_sampled",
}
"""The test that fails, by backend."""


def _suite(backend: type[AcmeBackend]) -> type[BackendContract]:
    """Return the suite for ``backend``, whose changes of files are points at which a process may die."""

    def folder(self: AcmeBackend, card_uuid: str) -> Path:
        return DyingPath(AcmeBackend._folder(self, card_uuid))

    dying = type(backend.__name__, (backend,), {"_folder": folder})

    class Machine(AcmeMachine):
        def open_backend(self) -> AcmeBackend:
            opened: AcmeBackend = dying(self._folder)
            return opened

    class Suite(BackendContract):
        family = NPU
        patience_s = 0.2  # one of them hangs

        def new_machine(self, folder: Path) -> AcmeMachine:
            return Machine(folder)

    return Suite


globals().update({f"Test{backend.__name__}": _suite(backend) for backend in BROKEN})
