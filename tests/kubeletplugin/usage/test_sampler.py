"""All cards are sampled at an interval; metrics and statuses follow, also over restarts and where a card fails."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from msgspec.structs import replace

from kerf_dra.api.model.names import ClaimRef
from kerf_dra.api.model.prepared import ClaimState, PreparedClaim
from kerf_dra.driver.families.gpu import GPU
from kerf_dra.driver.kubeletplugin.backends.base import (
    CardAbsentError,
    CardSample,
    CardSurvey,
    DeviceSample,
    FoundPartition,
    HardwareBusyError,
)
from kerf_dra.driver.kubeletplugin.backends.card_executor import CardExecutor
from kerf_dra.driver.kubeletplugin.inventory.devices import DeviceSet
from kerf_dra.driver.kubeletplugin.inventory.state.usage import DeviceUsage
from kerf_dra.driver.kubeletplugin.settings import Settings
from kerf_dra.driver.kubeletplugin.usage.sampler import UsageSampler
from kerf_dra.driver.kubeletplugin.usage.usage_document import FILE_NAME
from kerf_dra.driver.partitions.geometry import Placement
from kerf_dra.driver.runtime import metrics
from kerf_dra.driver.runtime.worker_threads import Work
from tests.fakes.cards import gpu
from tests.fakes.claims import DRIVER, NODE
from tests.fakes.hardware import FakeBackend
from tests.kubeletplugin.observed_state import ObservedState
from tests.kubeletplugin.records import BOOT, LATER, device, record
from tests.kubeletplugin.usage.sampled_backend import UNUSED, SampledFakeBackend
from tests.runtime.virtual_time import VIRTUAL_TIME

INTERVAL_S = 15.0
IDLE_AFTER_S = 60.0
FIRST, SECOND = "gpu-0", "gpu-1"
FAILURE = HardwareBusyError("it is busy")


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, object]]:
    return VIRTUAL_TIME


class NotedRequests(list[str]):
    """The names of claims of which a status was requested."""

    def request(self, claim: ClaimRef) -> None:
        self.append(claim.name)


class Node:
    """A node with two cards, each of which a claim has."""

    def __init__(
        self, folder: Path, *, backend: FakeBackend | None = None, interval_s: float | None = INTERVAL_S
    ) -> None:
        self.cards = (gpu(0), gpu(1))
        self.backend = SampledFakeBackend(self.cards)
        self.records: dict[str, PreparedClaim] = {}
        self.state = ObservedState(self.records)
        self.hanging: list[Work] | None = None
        """Where it is a list, calls hang there."""
        self.executor = CardExecutor(
            {"fake": backend or self.backend},
            call_timeout_s=60,
            discovery_timeout_s=60,
            now=anyio.current_time,
            start=self._start,
        )
        self.requests = NotedRequests()
        settings = Settings(
            node_name=NODE,
            family=GPU,
            backends=(),
            state_dir=folder,
            sample_interval_s=interval_s,
            idle_after_s=IDLE_AFTER_S,
        )
        settings.state.mkdir(exist_ok=True)
        self.file = settings.state / FILE_NAME
        self.sampler = UsageSampler(
            settings=settings,
            boot_id=BOOT,
            card_executor=self.executor,
            state=self.state,
            status_writer=self.requests,
        )
        self.add("first", FIRST)
        self.add("second", SECOND)

    def _start(self, work: Work) -> None:
        if self.hanging is None:
            work()()
        else:
            self.hanging.append(work)

    def add(self, name: str, device_name: str, *, resource: str = "") -> None:
        held = device(device_name, card=device_name.upper(), start=None, size=None)
        made = record(name, replace(held, handle={"device": device_name, "uuid": device_name}))
        self.records[made.claim.uid] = replace(made, resource=resource)

    def of(self, name: str) -> DeviceUsage:
        [found] = [
            usage for used, usage in self.state.usage.devices.items() if used.claim_uid == record(name).claim.uid
        ]
        return found

    @asynccontextmanager
    async def sampling(self) -> AsyncIterator[None]:
        await self.executor.discover("fake")
        self.state.note_devices(DeviceSet(), self.cards)
        await self.sampler.restore()
        async with anyio.create_task_group() as group:
            group.start_soon(self.sampler.run)
            await anyio.sleep(0.001)
            yield
            group.cancel_scope.cancel()


def failures() -> float:
    return metrics.REGISTRY.get_sample_value("kerf_samples_failed_total", {"driver": DRIVER}) or 0.0


async def test_every_card_is_sampled_at_once_and_then_at_each_interval(tmp_path: Path) -> None:
    node = Node(tmp_path)
    async with node.sampling():
        assert node.backend.sampled == ["GPU-0", "GPU-1"]
        await anyio.sleep(INTERVAL_S * 4)
        assert len(node.backend.sampled) == 10


async def test_an_hour_of_changing_records_costs_no_more_samples(tmp_path: Path) -> None:
    node = Node(tmp_path)
    async with node.sampling():
        for _ in range(3600):
            await anyio.sleep(1)
            node.state.note_records()
        assert len(node.backend.sampled) == pytest.approx(2 * 3600 / INTERVAL_S, abs=2)


async def test_nothing_is_sampled_where_the_setting_says_so(tmp_path: Path) -> None:
    node = Node(tmp_path, interval_s=None)
    async with node.sampling():
        await anyio.sleep(3600)
    assert node.backend.sampled == []
    assert node.state.usage.devices == {}
    assert not node.file.exists()


async def test_a_backend_that_cannot_say_is_not_sampled(tmp_path: Path) -> None:
    node = Node(tmp_path, backend=FakeBackend((gpu(0), gpu(1))))
    async with node.sampling():
        await anyio.sleep(INTERVAL_S)
        assert node.of("first") == node.of("second") == DeviceUsage()
        assert node.state.usage.cards == {}


async def test_a_status_is_requested_when_a_device_becomes_idle_or_busy_and_at_no_other_time(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.backend.use[SECOND] = DeviceSample(processes=1)
    async with node.sampling():
        began = anyio.current_time()
        await anyio.sleep(600)
        assert node.requests == ["first"]
        assert node.of("first").idle_since == pytest.approx(began, abs=1)
        assert node.of("second").idle_since is None
        node.backend.use = {FIRST: DeviceSample(processes=2), SECOND: UNUSED}
        await anyio.sleep(600)
        assert node.requests[:1] == ["first"]
        assert sorted(node.requests[1:]) == ["first", "second"]


async def test_a_device_of_an_extended_resource_has_no_status(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.add("first", FIRST, resource="example.com/gpu")
    async with node.sampling():
        await anyio.sleep(600)
        assert node.requests == ["second"]
        assert node.of("first").idle_since is not None


async def test_a_card_that_fails_keeps_no_other_from_being_sampled_and_is_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    node = Node(tmp_path)
    node.backend.sample_errors["GPU-0"] = FAILURE
    before = failures()
    async with node.sampling():
        await anyio.sleep(INTERVAL_S * 10)
        assert node.of("first").sample == DeviceSample()
        assert node.of("second").sample == UNUSED
        assert failures() - before == 11
        del node.backend.sample_errors["GPU-0"]
        await anyio.sleep(INTERVAL_S)
        assert node.of("first").sample == UNUSED
    assert [one.message for one in caplog.records] == [
        "card GPU-0 cannot be sampled for what it is used for: it is busy"
    ]


@pytest.mark.parametrize("error", [CardAbsentError("it is gone"), RuntimeError("a fault of the backend")])
async def test_a_card_that_cannot_be_sampled_is_not_idle(tmp_path: Path, error: Exception) -> None:
    node = Node(tmp_path)
    async with node.sampling():
        await anyio.sleep(INTERVAL_S * 5)
        assert node.of("first").idle_since is not None
        node.backend.sample_errors["GPU-0"] = error
        await anyio.sleep(INTERVAL_S)
        assert node.of("first").idle_since is not None, "one sample is missing"
        await anyio.sleep(400)
        assert node.of("first").idle_since is None
        assert node.of("second").idle_since is not None
        assert sorted(node.requests) == ["first", "first", "second"]


async def test_where_samples_are_rare_some_of_them_may_be_missing(tmp_path: Path) -> None:
    node = Node(tmp_path, interval_s=600)
    async with node.sampling():
        await anyio.sleep(600)
        assert node.of("first").idle_since is not None
        node.backend.sample_errors["GPU-0"] = FAILURE
        await anyio.sleep(2400)
        assert node.of("first").idle_since is not None
        await anyio.sleep(600)
        assert node.of("first").idle_since is None


async def test_a_problem_is_logged_again_of_a_card_that_was_away(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    node = Node(tmp_path)
    node.backend.sample_errors["GPU-0"] = FAILURE
    async with node.sampling():
        for cards in (node.cards[1:], node.cards):
            node.state.note_devices(DeviceSet(), cards)
            await anyio.sleep(INTERVAL_S)
    assert [one.message for one in caplog.records] == [caplog.records[0].message] * 2


async def test_activity_counts_on_a_card_that_no_other_program_has_a_part_of(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.records.clear()
    for number, card in enumerate(node.cards):
        name = f"gpu-{number}-1g-1gb-at-0"
        held = replace(device(name, card=card.uuid, profile="1g.1gb"), handle={"device": name})
        made = record(f"part-{number}", held)
        node.records[made.claim.uid] = made
        node.backend.use[name] = DeviceSample(busy=0.5)
    foreign = FoundPartition(id="gi-1", profile="2g.2gb", placement=Placement(2, 2))
    for card, found in zip(node.cards, ((), (foreign,)), strict=True):
        survey = CardSurvey(card_uuid=card.uuid, partitions=found)
        node.state.restrictions.surveys.update(card, survey, node.records.values(), boot_id=BOOT, notes=LATER)
    async with node.sampling():
        node.backend.energy_mj = {"GPU-0": 400, "GPU-1": 400}
        await anyio.sleep(INTERVAL_S)
        assert (node.of("part-0").energy_mj, node.of("part-1").energy_mj) == (400, 100)


WRONG = {
    "devices are missing": CardSample(energy_mj=1, devices=()),
    "less than no energy": CardSample(energy_mj=-1, devices=(UNUSED,)),
    "more than all of the time": CardSample(devices=(DeviceSample(busy=1.01),)),
    "no number": CardSample(devices=(DeviceSample(busy=float("nan")),)),
    "less than no memory": CardSample(devices=(DeviceSample(memory_bytes=-1),)),
    "fewer than no processes": CardSample(devices=(DeviceSample(processes=-1),)),
}


@pytest.mark.parametrize("case", WRONG)
async def test_nothing_is_taken_from_a_sample_that_contradicts_itself(
    tmp_path: Path, case: str, caplog: pytest.LogCaptureFixture
) -> None:
    node = Node(tmp_path)
    node.backend.wrong = WRONG[case]
    async with node.sampling():
        assert node.state.usage.cards == {}
        assert node.of("first").sample == DeviceSample()
    assert "cannot be true" in caplog.text


async def test_a_sample_that_hangs_keeps_its_card_alone_from_being_sampled_and_ends_nothing(tmp_path: Path) -> None:
    node = Node(tmp_path)
    async with node.sampling():
        node.hanging = []
        await anyio.sleep(INTERVAL_S)
        [sample] = node.hanging
        node.hanging = None
        await anyio.sleep(INTERVAL_S)
        assert node.of("first").sample == DeviceSample()
        assert node.of("second").sample == UNUSED
        assert node.backend.sampled[-2:] == ["GPU-1", "GPU-1"]
        assert node.executor.stuck == {}
        assert not node.executor.has_hanging_calls
        assert node.executor.list_hanging(0.0) == []
        async with node.executor.lock("GPU-0") as card:
            assert (await card.call("survey", node.backend.survey, "GPU-0")).partitions == ()
        sample()()
        await anyio.sleep(INTERVAL_S)
        assert node.of("first").sample == UNUSED


async def test_a_card_on_which_a_call_hangs_is_not_sampled(tmp_path: Path) -> None:
    node = Node(tmp_path)
    async with node.sampling():
        node.hanging = []
        async with node.executor.lock("GPU-0") as card:
            with anyio.move_on_after(1):
                await card.call("prepare", node.backend.survey, "GPU-0")
        assert {*node.executor.stuck} == {"GPU-0"}
        node.hanging = None
        await anyio.sleep(INTERVAL_S * 2)
        assert "GPU-0" not in node.backend.sampled[2:]
        assert node.of("first").sample == DeviceSample()


async def test_energy_and_idleness_go_on_in_another_process(tmp_path: Path) -> None:
    node = Node(tmp_path)
    async with node.sampling():
        node.backend.energy_mj["GPU-0"] = 5000
        await anyio.sleep(120)
        assert node.of("first").energy_mj == 5000
        since = node.of("first").idle_since
        assert since is not None
    other = Node(tmp_path)
    other.backend.energy_mj = {"GPU-0": 6000, "GPU-1": 0}
    async with other.sampling():
        assert other.of("first").energy_mj == 6000
        assert other.of("first").idle_since == since
        assert other.requests == [], "no status changes"


async def test_what_is_shown_was_written_before(tmp_path: Path) -> None:
    node = Node(tmp_path)
    async with node.sampling():
        node.backend.energy_mj["GPU-0"] = 5000
        await anyio.sleep(INTERVAL_S)
        assert node.of("first").energy_mj == 5000
        assert b'"total_mj":5000' in node.file.read_bytes()


async def test_a_file_that_cannot_be_read_is_logged_and_all_begins_at_0(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    node = Node(tmp_path)
    node.file.write_text("{}}")
    node.backend.energy_mj["GPU-0"] = 700
    async with node.sampling():
        assert node.of("first").energy_mj == 0
        assert str(node.file) in caplog.text


async def test_a_file_that_cannot_be_written_is_logged_once_and_keeps_nothing_from_being_shown(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    node = Node(tmp_path)
    async with node.sampling():
        node.file.unlink()
        (node.file / "in the way").mkdir(parents=True)
        node.backend.energy_mj["GPU-0"] = 700
        await anyio.sleep(INTERVAL_S * 3)
        assert node.of("first").energy_mj == 700
    assert len([one for one in caplog.records if "cannot be written" in one.message]) == 1


@pytest.mark.parametrize("counts", [True, False])
async def test_the_file_is_written_when_there_is_something_new_to_go_on_from(counts: bool, tmp_path: Path) -> None:
    """A node whose cards cannot be sampled wrote the same file every 15 seconds for ever."""
    node = Node(tmp_path, backend=None if counts else FakeBackend((gpu(0), gpu(1))))
    async with node.sampling():
        before = node.file.stat().st_ino, node.file.read_bytes()
        kept = os.open(node.file, os.O_RDONLY)  # so that no new file gets the same number
        await anyio.sleep(INTERVAL_S * 3)
        after = node.file.stat().st_ino, node.file.read_bytes()
        os.close(kept)
    assert (after != before) is counts


async def test_a_card_that_is_not_there_any_more_shows_nothing(tmp_path: Path) -> None:
    node = Node(tmp_path)
    async with node.sampling():
        node.state.note_devices(DeviceSet(), node.cards[1:])
        await anyio.sleep(INTERVAL_S)
        assert {*node.state.usage.cards} == {"GPU-1"}
        assert node.of("first").sample == DeviceSample()


async def test_a_claim_that_ends_is_gone_at_the_next_sample(tmp_path: Path) -> None:
    node = Node(tmp_path)
    async with node.sampling():
        uid = record("first").claim.uid
        node.records[uid] = replace(node.records[uid], state=ClaimState.RELEASING)
        node.state.note_records()
        await anyio.sleep(INTERVAL_S)
        assert {used.claim_uid for used in node.state.usage.devices} == {record("second").claim.uid}
