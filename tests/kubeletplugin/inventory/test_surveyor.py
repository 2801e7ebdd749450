"""Cards are surveyed before they are published, when something changes and at an interval; each for itself."""

import dataclasses
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import anyio
import pytest

from kerf_dra.api.errors import TransientError
from kerf_dra.api.model.names import DeviceId
from kerf_dra.api.model.prepared import ClaimState, PreparedClaim
from kerf_dra.driver.families.gpu import GPU
from kerf_dra.driver.kubeletplugin.backends.base import CardAbsentError, CardSurvey, FoundPartition, HardwareBusyError
from kerf_dra.driver.kubeletplugin.backends.card_executor import CardExecutor
from kerf_dra.driver.kubeletplugin.inventory.state.health import HeldCard
from kerf_dra.driver.kubeletplugin.inventory.surveyor import HardwareSurveyor
from kerf_dra.driver.kubeletplugin.settings import Settings
from kerf_dra.driver.partitions.geometry import Card, Partition, Placement
from kerf_dra.driver.runtime import metrics
from kerf_dra.driver.runtime.worker_threads import Work
from tests.fakes.cards import gpu
from tests.fakes.claims import DRIVER, NODE
from tests.fakes.hardware import FakeBackend
from tests.kubeletplugin.observed_state import ObservedState, ReportedEvents
from tests.kubeletplugin.records import BOOT, LATER, device, record
from tests.runtime.virtual_time import VIRTUAL_TIME

INTERVAL_S = 10.0
CALL_TIMEOUT_S = 5.0
SETTINGS = Settings(node_name=NODE, family=GPU, backends=(), survey_interval_s=INTERVAL_S)
HAND_CUT = FoundPartition(id="gi-1", profile="2g.2gb", placement=Placement(0, 2))
OVERLAPPED = DeviceId(DRIVER, f"{NODE}/gpu", "gpu-0-2g-2gb-at-0")


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, object]]:
    return VIRTUAL_TIME


class ScriptedBackend(FakeBackend):
    """Cards on which a test puts partitions, or whose survey it lets fail."""

    def __init__(self, cards: Sequence[Card]) -> None:
        super().__init__(cards)
        self.found: dict[str, tuple[FoundPartition, ...]] = {}
        self.survey_errors: dict[str, Exception] = {}
        self.surveyed: list[str] = []

    def survey(self, card_uuid: str) -> CardSurvey:
        self.surveyed.append(card_uuid)
        if error := self.survey_errors.get(card_uuid):
            raise error
        return CardSurvey(card_uuid=card_uuid, partitions=self.found.get(card_uuid, ()))


class AllocatedList:
    """What claims have of the node's devices; a list of it takes a while, or fails."""

    def __init__(self) -> None:
        self.devices: list[DeviceId] = []
        self.error: Exception | None = None
        self.takes_s = 0.0
        self.lists = 0
        """How often it was asked for."""

    async def list_allocated(self) -> list[DeviceId]:
        self.lists += 1
        await anyio.sleep(self.takes_s)
        if self.error is not None:
            raise self.error
        return self.devices


class Node:
    """A node with two cards, and what its surveyor tells others."""

    def __init__(self) -> None:
        self.backend = ScriptedBackend([gpu(0), gpu(1)])
        self.records: dict[str, PreparedClaim] = {}
        self.hanging: list[Work] | None = None
        """Where it is a list, calls hang there."""
        self.executor = CardExecutor(
            {"fake": self.backend},
            call_timeout_s=CALL_TIMEOUT_S,
            discovery_timeout_s=60,
            start=self._start,
        )
        self.state = ObservedState(self.records)
        self.restrictions = self.state.restrictions
        self.allocated = AllocatedList()
        self.told = ReportedEvents()
        self.surveyor = HardwareSurveyor(
            card_executor=self.executor,
            state=self.state,
            boot_id=BOOT,
            notes=LATER,
            settings=SETTINGS,
            allocated=self.allocated,
            events=self.told,
        )

    @property
    def changes(self) -> int:
        return self.state.noted["surveys"]

    @property
    def lists(self) -> int:
        return self.allocated.lists

    @property
    def finished(self) -> list[str]:
        return self.state.surveyed_cards

    @property
    def foreign(self) -> list[str]:
        return [str(found) for card in self.restrictions.surveys.cards.values() for found in card.foreign]

    @property
    def reasons(self) -> list[str]:
        return [reason for _, reason, _ in self.told]

    async def meet(self) -> None:
        await self.surveyor.meet({"fake": await self.executor.discover("fake")})

    def _start(self, work: Work) -> None:
        if self.hanging is None:
            work()()
        else:
            self.hanging.append(work)


@asynccontextmanager
async def running(node: Node) -> AsyncIterator[None]:
    async with anyio.create_task_group() as group:
        group.start_soon(node.surveyor.run)
        group.start_soon(node.surveyor.follow_stuck)
        await anyio.wait_all_tasks_blocked()
        yield
        group.cancel_scope.cancel()


async def test_what_others_hold_is_known_before_the_cards_are_published() -> None:
    node = Node()
    node.backend.found["GPU-0"] = (HAND_CUT,)
    node.allocated.devices = [OVERLAPPED]
    await node.meet()
    assert (node.foreign, node.lists) == (["2g.2gb at 0"], 1)
    assert node.restrictions.allocated.has(OVERLAPPED)
    assert not node.restrictions.allocated.has(OVERLAPPED._replace(device="gpu-0"))
    await node.meet()
    assert node.backend.surveyed == ["GPU-0", "GPU-1"], "only new cards are surveyed at once"


async def test_a_hand_cut_is_seen_at_the_interval_told_once_and_forgotten_when_it_is_gone() -> None:
    node = Node()
    await node.meet()
    async with running(node):
        node.backend.found["GPU-0"] = (HAND_CUT,)
        await anyio.sleep(3 * INTERVAL_S + 1)
        assert node.foreign == ["2g.2gb at 0"]
        ((type_, reason, message),) = node.told
        assert (type_, reason) == ("Warning", "InUseOutsideKerf")
        assert message.startswith("card gpu-0 (GPU-0) is partly in use outside of Kerf: 2g.2gb at 0; ")
        assert node.changes == 1
        assert node.lists == 3, "once when it is first seen, then at most once for each interval"
        node.backend.found.clear()
        await anyio.sleep(INTERVAL_S)
        assert (node.foreign, node.reasons, node.changes) == ([], ["InUseOutsideKerf", "CardFree"], 2)
        listed = node.lists
        await anyio.sleep(5 * INTERVAL_S)
        assert node.lists == listed, "while nobody holds anything, claims are not listed"


async def test_a_placement_that_was_refused_is_published_again_when_a_survey_finds_it_free() -> None:
    node = Node()
    await node.meet()
    partitions = {name: Partition(kind="gpu", card_uuid=f"GPU-{name[4]}") for name in ("gpu-0", "gpu-1")}
    for name, partition in partitions.items():
        id_ = DeviceId(DRIVER, f"{NODE}/gpu", name)
        node.restrictions.refusals.taint(id_, partition, "in use", evicts=False, was_held=True)
    node.backend.found["GPU-1"] = (HAND_CUT,)
    async with running(node):
        node.surveyor.request("GPU-0")
        await anyio.wait_all_tasks_blocked()
        assert {device.device for device in node.restrictions.refusals.placements} == {"gpu-1"}
        assert node.changes == 1
        node.surveyor.request("GPU-0")
        node.surveyor.request("GPU-1")
        await anyio.wait_all_tasks_blocked()
        assert {device.device for device in node.restrictions.refusals.placements} == {"gpu-1"}, "it is still held"


async def test_a_request_is_answered_at_once_for_that_card_alone() -> None:
    node = Node()
    await node.meet()
    async with running(node):
        node.backend.surveyed.clear()
        node.surveyor.request("GPU-1")
        await anyio.wait_all_tasks_blocked()
        assert node.backend.surveyed == ["GPU-1"]


def quarantined() -> float | None:
    return metrics.REGISTRY.get_sample_value("kerf_quarantined_cards", {"driver": DRIVER})


@pytest.mark.parametrize(
    ("error", "is_known_before"), [(RuntimeError("driver not loaded"), False), (CardAbsentError("gone"), True)]
)
async def test_a_card_that_cannot_be_surveyed_gets_no_claims_and_keeps_no_other_from_it(
    error: Exception, is_known_before: bool
) -> None:
    node = Node()
    if is_known_before:
        await node.meet()
    node.backend.survey_errors["GPU-0"] = error
    node.backend.found["GPU-1"] = (HAND_CUT,)
    await node.meet()
    async with running(node):
        await anyio.sleep(2 * INTERVAL_S + 1)
        assert set(node.restrictions.surveys.quarantine) == {"GPU-0"}
        assert quarantined() == 1
        assert node.foreign == ["2g.2gb at 0"]
        assert sorted(node.reasons) == ["CardInQuarantine", "InUseOutsideKerf", "SurveyFailed"], "told once"
        node.backend.survey_errors.clear()
        await anyio.sleep(INTERVAL_S)
        assert not node.restrictions.surveys.quarantine
        assert quarantined() == 0
        assert node.finished[-2:] == ["GPU-0", "GPU-1"]


@pytest.mark.parametrize(
    ("error", "changes"),
    [(CardAbsentError("gone"), 3), (TransientError("busy"), 0)],
    ids=["it is gone", "it does not answer"],
)
async def test_cards_are_discovered_again_for_as_long_as_one_is_gone(error: Exception, changes: int) -> None:
    node = Node()
    await node.meet()
    async with running(node):
        node.backend.survey_errors["GPU-0"] = error
        await anyio.sleep(3 * INTERVAL_S + 1)
        assert node.changes == changes


async def test_a_card_that_is_busy_at_its_first_survey_keeps_no_other_from_being_published() -> None:
    node = Node()
    node.backend.found["GPU-1"] = (HAND_CUT,)
    begun = anyio.current_time()
    async with node.executor.lock("GPU-0"):
        await node.meet()
    assert anyio.current_time() - begun == SETTINGS.discovery_timeout_s
    assert dict(node.restrictions.surveys.quarantine) == {"GPU-0": "it has not been surveyed yet"}
    assert node.foreign == ["2g.2gb at 0"]


async def test_a_list_that_hangs_keeps_no_card_from_being_published() -> None:
    node = Node()
    node.backend.found["GPU-0"] = (HAND_CUT,)
    node.allocated.takes_s = 3600
    begun = anyio.current_time()
    await node.meet()
    assert anyio.current_time() - begun == SETTINGS.claims_sync_timeout_s
    assert node.foreign == ["2g.2gb at 0"]


async def test_a_survey_that_fails_once_changes_nothing() -> None:
    node = Node()
    await node.meet()
    async with running(node):
        failed = metrics.REGISTRY.get_sample_value("kerf_surveys_failed_total", {"driver": DRIVER}) or 0
        node.backend.survey_errors["GPU-0"] = TransientError("busy")
        await anyio.sleep(INTERVAL_S + 1)
        assert not node.restrictions.surveys.quarantine
        assert metrics.REGISTRY.get_sample_value("kerf_surveys_failed_total", {"driver": DRIVER}) == failed + 1


async def test_a_survey_that_contradicts_itself_is_not_believed() -> None:
    node = Node()
    await node.meet()
    async with running(node):
        other = FoundPartition(id="gi-2", profile="1g.1gb", placement=Placement(1, 1))
        node.backend.found["GPU-0"] = (HAND_CUT, other)
        await anyio.sleep(INTERVAL_S + 1)
        assert "gi-1 and gi-2 overlap" in node.restrictions.surveys.quarantine["GPU-0"]
        assert (node.foreign, node.changes) == ([], 1)


async def test_a_list_that_fails_leaves_the_last_one(caplog: pytest.LogCaptureFixture) -> None:
    node = Node()
    node.backend.found["GPU-0"] = (HAND_CUT,)
    node.allocated.error = TransientError("connection refused")
    await node.meet()
    assert node.restrictions.allocated.has(OVERLAPPED), "nobody knows"
    async with running(node):
        await anyio.sleep(3 * INTERVAL_S + 1)
        assert caplog.text.count("cannot list which devices claims have") == 1
        node.allocated.error = None
        await anyio.sleep(INTERVAL_S)
        assert not node.restrictions.allocated.has(OVERLAPPED)
        assert node.changes == 1


async def test_a_card_that_holds_what_is_to_be_released_is_looked_for_while_it_is_away() -> None:
    node = Node()
    releasing = record("training", state=ClaimState.RELEASING)
    node.records[releasing.claim.uid] = releasing
    node.backend.cards = [gpu(1)]
    node.backend.survey_errors["GPU-0"] = CardAbsentError("there is no card GPU-0")
    await node.meet()
    async with running(node):
        await anyio.sleep(INTERVAL_S + 1)
        assert (node.backend.surveyed.count("GPU-0"), node.changes) == (1, 0)
        node.backend.survey_errors.clear()
        node.backend.cards = [gpu(0), gpu(1)]
        await anyio.sleep(INTERVAL_S)
        assert node.changes == 1, "it is to be discovered"
        await node.meet()
        assert "GPU-0" in node.finished


async def test_a_prepare_that_finds_its_card_back_has_it_discovered() -> None:
    """Until then claims that have lost a partition of the card cannot be prepared: nobody knows its geometry."""
    node = Node()
    node.records["uid"] = record("training", device("gpu-0-2g-2gb-at-0", profile="2g.2gb", size=2))
    node.backend.cards = [gpu(1)]
    node.backend.survey_errors["GPU-0"] = CardAbsentError("there is no card GPU-0")
    await node.meet()
    with pytest.raises(HardwareBusyError, match="there is no card GPU-0"):
        await node.surveyor.survey_now({"GPU-0"})
    assert node.changes == 0
    node.backend.survey_errors.clear()
    node.backend.cards = [gpu(0), gpu(1)]
    with pytest.raises(HardwareBusyError, match="card GPU-0 has lost partitions and is not discovered yet"):
        await node.surveyor.survey_now({"GPU-0"})
    assert node.changes == 1, "it is to be discovered"
    await node.meet()
    await node.surveyor.survey_now({"GPU-0"})


async def test_an_event_about_an_unknown_card_has_cards_discovered() -> None:
    node = Node()
    await node.meet()
    async with running(node):
        node.surveyor.request("GPU-9")
        await anyio.wait_all_tasks_blocked()
        assert node.changes == 1


async def test_a_card_that_changes_its_uuid_is_reported() -> None:
    node = Node()
    await node.meet()
    node.backend.cards = [gpu(0), _at(gpu(2), gpu(1))]
    await node.meet()
    assert node.reasons == ["CardReplaced"]


async def test_a_card_that_is_busy_keeps_no_other_from_being_surveyed() -> None:
    node = Node()
    await node.meet()
    async with running(node):
        async with node.executor.lock("GPU-0"):
            node.surveyor.request("GPU-0")
            node.surveyor.request("GPU-1")
            await anyio.wait_all_tasks_blocked()
            assert node.backend.surveyed.count("GPU-1") == 2
        await anyio.wait_all_tasks_blocked()
        assert node.backend.surveyed.count("GPU-0") == 2


async def test_a_card_on_which_a_call_hangs_gets_no_claims_until_it_answers() -> None:
    node = Node()
    await node.meet()
    async with running(node):
        node.hanging = []
        node.surveyor.request("GPU-0")
        await anyio.sleep(CALL_TIMEOUT_S)
        hanging, node.hanging = node.hanging, None
        await anyio.wait_all_tasks_blocked()
        assert "survey, begun at " in node.restrictions.surveys.quarantine["GPU-0"]
        assert "CardInQuarantine" in node.reasons
        for work in hanging:
            work()()
        await anyio.wait_all_tasks_blocked()
        assert not node.restrictions.surveys.quarantine
        assert node.reasons[-1] == "CardFree"


async def test_cards_that_discovery_misses_are_surveyed_with_the_others_unless_another_card_is_in_their_place() -> None:
    node = Node()
    missed = [
        HeldCard(gpu(2), "fake", frozenset()),
        HeldCard(gpu(3), "fake", frozenset(), replaced_by="GPU-1"),
    ]
    await node.surveyor.meet({"fake": await node.executor.discover("fake")}, missed)
    assert node.backend.surveyed == ["GPU-0", "GPU-1", "GPU-2"]


def _at(card: Card, other: Card) -> Card:
    return dataclasses.replace(card, pci_bus_id=other.pci_bus_id)


async def test_a_card_whose_first_survey_hangs_gets_no_claims() -> None:
    node = Node()
    cards = {"fake": await node.executor.discover("fake")}
    node.hanging = []
    async with anyio.create_task_group() as group:
        group.start_soon(node.surveyor.meet, cards)
        await anyio.wait_all_tasks_blocked()
        assert set(node.restrictions.surveys.quarantine.values()) == {"it has not been surveyed yet"}
        await anyio.sleep(CALL_TIMEOUT_S)
        for work in node.hanging:
            work()()
