"""A failed or invalid discovery is reported as a problem; it hides no other hardware, and ends with its cause."""

import dataclasses
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import pairwise

import anyio
import pytest
from msgspec import structs

from kerf_dra.api.checkpoint.v1 import CheckpointError
from kerf_dra.api.model.devices import Attribute
from kerf_dra.api.model.prepared import ClaimState, PreparedClaim
from kerf_dra.api.model.recorded_cards import CardRecord
from kerf_dra.driver.families.gpu import GPU
from kerf_dra.driver.kubeletplugin.backends.base import CardChange, HealthChange, HealthState, UnlistedCard
from kerf_dra.driver.kubeletplugin.backends.card_executor import CardExecutor
from kerf_dra.driver.kubeletplugin.backends.card_selection import CardSelection
from kerf_dra.driver.kubeletplugin.cluster.base import follow_publication
from kerf_dra.driver.kubeletplugin.inventory.publisher import BUS_S, MAX_SETTLE_S, SETTLE_S, DevicePublisher
from kerf_dra.driver.kubeletplugin.inventory.state.restrictions import KeptOutCards, KnownAllocations
from kerf_dra.driver.kubeletplugin.settings import Settings
from kerf_dra.driver.partitions.geometry import Card, Partition
from kerf_dra.driver.partitions.recorded_cards import to_card_record
from kerf_dra.driver.partitions.records import from_card_part
from kerf_dra.driver.runtime.backoff import Backoff
from tests.fakes.cards import GPU_MODEL, fpga, gpu
from tests.fakes.claims import DRIVER, NODE
from tests.fakes.cluster import FakeCluster
from tests.fakes.hardware import FakeBackend
from tests.kubeletplugin.observed_state import ObservedState, ReportedEvents
from tests.kubeletplugin.records import device, record
from tests.kubeletplugin.wait import until
from tests.runtime.virtual_time import VIRTUAL_TIME


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, object]]:
    return VIRTUAL_TIME


AT_ONCE = Backoff(first_s=0.001, factor=1, limit_s=0.001, jitter=0)


class AskedBackend(FakeBackend):
    """A backend that notes when it is asked for its cards."""

    def __init__(self, cards: Sequence[Card]) -> None:
        super().__init__(cards)
        self.asked_at: list[float] = []

    def discover(self) -> Sequence[Card]:
        self.asked_at.append(anyio.current_time())
        return super().discover()


class Node:
    """Two backends, one with a GPU and one with an FPGA."""

    def __init__(
        self, min_interval_s: float = 0.0, retry: Backoff = AT_ONCE, backend: type[AskedBackend] = AskedBackend
    ) -> None:
        self.gpus = backend([gpu(0)])
        self.fpgas = FakeBackend([fpga(0)])
        self.cluster = FakeCluster()
        self.events = ReportedEvents()
        self.records: dict[str, PreparedClaim] = {}
        self.state = ObservedState(self.records, clock=anyio.current_time)
        self.health_tracker = self.state.health
        self.publisher = DevicePublisher(
            cluster=self.cluster,
            card_executor=CardExecutor(
                {"gpus": self.gpus, "fpgas": self.fpgas},
                call_timeout_s=60,
                discovery_timeout_s=60,
                start=lambda work: work()(),
            ),
            state=self.state,
            settings=Settings(
                node_name=NODE,
                family=GPU,
                backends=(),
                discovery_interval_s=60,
                publish_min_interval_s=min_interval_s,
                survey_interval_s=10,
                retry=retry,
            ),
            events=self.events,
        )

    @property
    def whole_cards(self) -> set[str]:
        published = self.state.devices.published.values()
        return {
            id_.device for stock in published for id_, offered in stock.devices.items() if offered.partition.is_whole
        }


@asynccontextmanager
async def running(node: Node) -> AsyncIterator[None]:
    """Run the publisher, which has published the devices."""
    async with anyio.create_task_group() as group:
        group.start_soon(follow_publication, node.cluster, node.state)
        group.start_soon(node.publisher.run)
        await until(lambda: len(node.cluster.published) == 1)
        yield
        group.cancel_scope.cancel()


async def test_a_backend_that_cannot_be_asked_keeps_its_cards_and_hides_nobody_elses() -> None:
    node = Node()
    await node.publisher.refresh()
    assert (node.whole_cards, node.publisher.problem) == ({"gpu-0", "fpga-0"}, None)
    node.gpus.discovery_error = RuntimeError("driver not loaded")
    node.fpgas.cards = [fpga(1)]
    await node.publisher.refresh()
    assert node.whole_cards == {"gpu-0", "fpga-1"}
    assert node.publisher.problem == "backend gpus cannot discover its cards: driver not loaded"
    await node.publisher.refresh()
    assert node.events == [("Warning", "CardsNotDiscovered", node.publisher.problem)], "told once"
    node.gpus.discovery_error = None
    await node.publisher.refresh()
    assert node.events[1:] == [("Normal", "CardsDiscovered", "backend gpus has discovered its cards: 1")]
    assert node.publisher.problem is None


async def test_a_discovery_that_fails_is_tried_again_soon_and_never_later_than_cards_are_surveyed() -> None:
    """A plugin that started before its driver was loaded had its next look at the interval of discoveries."""
    node = Node(retry=Backoff(first_s=1, factor=2, limit_s=60, jitter=0))
    node.gpus.discovery_error = RuntimeError("driver not loaded")
    async with running(node):
        for _ in range(2):
            node.gpus.asked_at.clear()
            node.state.request_publication()
            await anyio.sleep(36)
            pauses = [later - earlier for earlier, later in pairwise(node.gpus.asked_at)]
            assert pauses[-5:] == pytest.approx([2, 4, 8, 10, 10])
            node.gpus.discovery_error = None
            await anyio.sleep(10)
            assert node.whole_cards == {"gpu-0", "fpga-0"}
            node.gpus.discovery_error = RuntimeError("driver unloaded")


async def test_cards_that_contradict_each_other_leave_the_last_inventory(caplog: pytest.LogCaptureFixture) -> None:
    node = Node()
    await node.publisher.refresh()
    node.fpgas.cards = [gpu(0)]
    for _ in range(3):
        await node.publisher.refresh()
    assert node.whole_cards == {"gpu-0", "fpga-0"}
    problem = node.publisher.problem
    assert problem is not None
    assert "card GPU-0 is reported by two backends, gpus and fpgas" in problem
    assert caplog.text.count("the devices cannot be published") == 1, "told once"
    node.fpgas.cards = [fpga(0)]
    await node.publisher.refresh()
    assert node.publisher.problem is None


@pytest.mark.parametrize(
    ("lost", "held", "is_published"), [(True, True, True), (True, False, False), (False, True, False)]
)
async def test_a_lost_card_of_a_claim_stays_published_with_its_taint_though_it_is_no_longer_discovered(
    lost: bool, held: bool, is_published: bool
) -> None:
    """Nobody evicts the pod of a device that is withdrawn (kubernetes/kubernetes#140802)."""
    node = Node()
    if held:
        node.records["uid"] = record("training", device(backend="gpus"))
    await node.publisher.refresh()
    node.gpus.cards = []
    if lost:
        node.health_tracker.update(
            HealthChange(card_uuid="GPU-0", partition=None, state=HealthState.LOST, reason="it fell off the bus")
        )
    await node.publisher.refresh()
    assert ("gpu-0" in node.whole_cards) == is_published
    effects = {
        taint.effect
        for pool in node.state.devices.pools
        for slice_ in pool.slices
        for device in slice_.devices
        if device.name.startswith("gpu-")
        for taint in device.taints
    }
    assert effects == ({"NoExecute"} if is_published else set())


async def test_a_lost_card_goes_with_the_release_of_its_claims_and_gives_way_to_another_in_its_place() -> None:
    node = Node()
    node.records["uid"] = record("training")
    await node.publisher.refresh()
    node.health_tracker.update(HealthChange(card_uuid="GPU-0", partition=None, state=HealthState.LOST, reason="gone"))
    node.gpus.cards = [dataclasses.replace(gpu(0), uuid="GPU-new")]
    await node.publisher.refresh()
    assert node.whole_cards == {"gpu-0", "fpga-0"}
    node.gpus.cards = []
    node.records["uid"] = record("training", state=ClaimState.RELEASING)
    await node.publisher.refresh()
    assert node.whole_cards == {"fpga-0"}


async def test_of_several_lost_cards_those_stay_that_claims_have_and_no_other_card_replaces() -> None:
    node = Node()
    node.gpus.cards = [gpu(0), gpu(1), gpu(2), gpu(3)]
    node.records["both"] = record("both", device(), device("gpu-1-1g-1gb-at-0", card="GPU-1"))
    node.records["other"] = record("other", device("gpu-2-1g-1gb-at-0", card="GPU-2"))
    node.records["ends"] = record("ends", device("gpu-3", card="GPU-3"), state=ClaimState.RELEASING)
    await node.publisher.refresh()
    for uuid in ("GPU-0", "GPU-1", "GPU-2", "GPU-3"):
        node.health_tracker.update(HealthChange(card_uuid=uuid, partition=None, state=HealthState.LOST, reason="gone"))
    node.gpus.cards = [dataclasses.replace(gpu(1), uuid="GPU-new")]
    await node.publisher.refresh()
    assert node.whole_cards == {"gpu-0", "gpu-1", "gpu-2", "fpga-0"}
    uuids = {card.uuid for inputs in node.state.devices.inputs for card in inputs.cards}
    assert uuids == {"GPU-0", "GPU-new", "GPU-2", "FPGA-0"}


async def test_while_nothing_can_be_published_nobody_looks_at_the_hardware() -> None:
    node = Node(min_interval_s=60)
    async with running(node):
        node.fpgas.cards = []
        node.state.request_publication()
        await anyio.sleep(2 * SETTLE_S)
        assert node.whole_cards == {"gpu-0", "fpga-0"}


async def test_a_change_is_published_once_it_can_be() -> None:
    node = Node(min_interval_s=0.01)
    async with running(node):
        node.fpgas.cards = []
        node.state.request_publication()
        await until(lambda: len(node.cluster.published) == 2)
        assert node.whole_cards == {"gpu-0"}


async def test_a_load_failure_ends_at_its_time_though_nothing_else_changes() -> None:
    """The turn of its claim that was to end it was merged with that of the claim's own status, which came at once."""
    node = Node()
    async with running(node):
        begun = anyio.current_time()
        node.health_tracker.record_load_failure(Partition(kind="fpga", card_uuid="FPGA-0"), "busy", 5)
        node.state.request_publication()
        await until(lambda: len(node.cluster.published) == 3)
        assert not node.health_tracker.has_taints
        assert 5 <= anyio.current_time() - begun < 5 + MAX_SETTLE_S, "discoveries are 60 s apart"


async def test_changes_that_follow_each_other_are_published_when_they_pause() -> None:
    node = Node()
    async with running(node):
        node.fpgas.cards = []
        for _ in range(5):
            node.state.request_publication()
            await anyio.sleep(SETTLE_S / 2)
        assert len(node.cluster.published) == 1
        await anyio.sleep(SETTLE_S)
        assert len(node.cluster.published) == 2


async def test_changes_that_never_pause_are_published_nevertheless() -> None:
    node = Node()
    async with running(node):
        begun = anyio.current_time()
        node.fpgas.cards = []
        while len(node.cluster.published) == 1:
            node.state.request_publication()
            await anyio.sleep(SETTLE_S / 2)
            assert anyio.current_time() < begun + MAX_SETTLE_S + SETTLE_S


class DeafExecutor(CardExecutor):
    """One whose backends cannot watch their cards."""

    asked = 0

    async def wait_for_events(self, name: str) -> Sequence[HealthChange | CardChange]:
        self.asked += 1
        raise RuntimeError(f"{name} has no events")


async def test_a_backend_that_cannot_watch_its_cards_is_asked_again_with_a_back_off() -> None:
    node = Node()
    executor = DeafExecutor({"gpus": node.gpus}, call_timeout_s=60, discovery_timeout_s=60, start=lambda work: work()())
    node.publisher._card_executor = executor
    retry = Backoff(first_s=1, factor=2, limit_s=60, jitter=0)
    node.publisher._settings = dataclasses.replace(node.publisher._settings, retry=retry)
    async with anyio.create_task_group() as group:
        group.start_soon(node.publisher.watch_health, "gpus")
        await anyio.sleep(3600)
        group.cancel_scope.cancel()
    assert executor.asked == 65, "1, 2, 4, 8, 16, 32 seconds, then one a minute"


class ScriptedWatch(CardExecutor):
    """A watch of two turns that report nothing; between them it fails once ``failure`` is set."""

    def __init__(self, backend: FakeBackend) -> None:
        super().__init__({"gpus": backend}, call_timeout_s=60, discovery_timeout_s=60, start=lambda work: work()())
        self.failure = anyio.Event()
        self.turn = 0

    async def wait_for_events(self, name: str) -> Sequence[HealthChange | CardChange]:
        del name
        self.turn += 1
        if self.turn == 2:
            await self.failure.wait()
            raise RuntimeError("event set lost")
        if self.turn > 3:
            await anyio.sleep_forever()
        return ()


async def test_a_card_that_comes_before_its_backend_is_watched_is_discovered_when_it_is() -> None:
    """A card came back while its plugin started: its pod waited for the next discovery, five minutes later."""
    node = Node()
    node.publisher._card_executor = watch = ScriptedWatch(node.gpus)
    async with running(node), anyio.create_task_group() as group:
        node.gpus.cards.append(gpu(1))
        group.start_soon(node.publisher.watch_health, "gpus")
        await anyio.sleep(5)
        assert "gpu-1" in node.whole_cards
        node.gpus.cards.append(gpu(2))
        await anyio.sleep(5)
        assert "gpu-2" not in node.whole_cards, "its backend reports nothing, and the next discovery is not due"
        watch.failure.set()
        await anyio.sleep(5)
        assert "gpu-2" in node.whole_cards, "while the watch failed nothing was reported, either"
        group.cancel_scope.cancel()


class FullDisk:
    """Records that cannot be written for a while."""

    def __init__(self) -> None:
        self.cards: dict[str, CardRecord] = {}
        self.is_full = True

    def note_cards(self, cards: Mapping[str, CardRecord]) -> None:
        self.cards |= cards
        if self.is_full:
            raise CheckpointError("checkpoint.db", "cannot be written: no space left on device", "free space")


async def test_records_that_cannot_be_written_keep_no_device_from_being_published(
    caplog: pytest.LogCaptureFixture,
) -> None:
    node, disk = Node(), FullDisk()
    node.publisher._recorded_cards = disk
    for _ in range(3):
        await node.publisher.refresh()
    assert (node.whole_cards, node.publisher.problem) == ({"gpu-0", "fpga-0"}, None)
    assert disk.cards.keys() == {"GPU-0", "FPGA-0"}
    assert caplog.text.count("cards cannot be described in the records of their claims") == 1, "told once"


@pytest.mark.parametrize(
    ("change", "model"),
    [
        ({}, GPU_MODEL.id),
        ({"attributes": {"ofAnotherVersion": Attribute.of(True)}}, ""),
        ({"specs": ()}, ""),
        ({"kind": "of another family"}, ""),
        ({"index": 7}, ""),
    ],
)
async def test_a_card_that_another_version_has_described_otherwise_is_published_as_its_partitions_say(
    change: dict[str, object], model: str
) -> None:
    """One card that cannot be described must not keep the node's others from being published."""
    node, disk = Node(), FullDisk()
    node.publisher._recorded_cards = disk
    disk.cards["GPU-0"] = structs.replace(to_card_record(gpu(0)), **change)
    node.gpus.cards = []
    held = device("gpu-0-1g-1gb-at-0", profile="1g.1gb", backend="gpus")
    node.records["uid"] = record("training", held)
    lost = HealthChange(card_uuid="GPU-0", partition=None, state=HealthState.LOST, reason="it fell off the bus")
    node.health_tracker.update(lost)
    await node.publisher.refresh()
    assert (node.whole_cards, node.publisher.problem) == ({"gpu-0", "fpga-0"}, None)
    found = node.state.devices.find(held.share.id)
    assert found is not None
    assert (found.partition, found.attributes["model"].string) == (from_card_part(held.part), model)


class BusBackend(AskedBackend):
    """A backend that knows of cards on the bus that it does not list."""

    def __init__(self, cards: Sequence[Card]) -> None:
        super().__init__(cards)
        self.bus_reads = 0
        self.unlisted = [
            UnlistedCard(
                pci_address=f"0000:0{number}:00.0",
                pci_id="10de:2330",
                driver=driver,
                problem=f"{driver} has it",
                next_step="bind it",
                is_expected=is_expected,
            )
            for number, (driver, is_expected) in enumerate({"nouveau": False, "vfio-pci": True}.items(), start=1)
        ]

    def list_unlisted(self, cards: Sequence[Card]) -> Sequence[UnlistedCard]:
        assert all(card.uuid for card in cards)
        self.bus_reads += 1
        return self.unlisted


@pytest.mark.parametrize("error", [None, RuntimeError("driver not loaded")])
async def test_a_card_on_the_bus_that_the_backend_does_not_list_is_logged_once(
    error: Exception | None, caplog: pytest.LogCaptureFixture
) -> None:
    """Also where the backend fails because of it; a card for a virtual machine is as it should be."""
    node = Node(backend=BusBackend)
    node.gpus.discovery_error = error
    for _ in range(2):
        await node.publisher.refresh()
    said = [entry.getMessage() for entry in caplog.records if "no card for claims" in entry.message]
    assert said == ["no card for claims: 0000:01:00.0 (10de:2330): nouveau has it; bind it"]


def test_a_card_on_the_bus_that_is_excluded_is_neither_unknown_nor_missed() -> None:
    unlisted = BusBackend([]).unlisted
    selection = CardSelection.of(exclude=["0000:01:00.0", "0000:09:00.0"])
    kept_out = KeptOutCards(KnownAllocations({}), {"gpus": selection}, driver=DRIVER)
    kept_out.select("gpus", [gpu(0), gpu(1)])
    assert [card.driver for card in kept_out.note_unlisted("gpus", unlisted)] == ["vfio-pci"]
    assert [message.split(",")[0] for message in kept_out.unknown] == [
        f"{DRIVER}: backend gpus has no card 0000:09:00.0"
    ]


async def test_the_bus_is_read_when_cards_change_and_now_and_then() -> None:
    """It was read after each change of a claim: a file for each PCI function of the machine."""
    node = Node(backend=BusBackend)
    backend = node.gpus
    assert isinstance(backend, BusBackend)

    async def refresh(times: int) -> int:
        for _ in range(times):
            await node.publisher.refresh()
        return backend.bus_reads

    assert await refresh(3) == 1
    backend.cards = [gpu(0), gpu(1)]
    assert await refresh(3) == 2
    await anyio.sleep(BUS_S)
    assert await refresh(3) == 3
