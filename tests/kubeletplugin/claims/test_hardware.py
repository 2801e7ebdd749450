"""Hardware work: cards at the same time, a card one device after the other, one failure hides no other."""

import threading
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import pytest

from kerf_dra.api.errors import PermanentError
from kerf_dra.api.model.names import ClaimRef
from kerf_dra.api.model.prepared import ClaimState, PreparedClaim, PreparedDevice
from kerf_dra.cdi import ContainerEdits, DeviceNode
from kerf_dra.driver.kubeletplugin.backends.base import (
    CardAbsentError,
    CardSurvey,
    FoundPartition,
    Handle,
    HardwareBusyError,
)
from kerf_dra.driver.kubeletplugin.backends.card_executor import CardExecutor
from kerf_dra.driver.kubeletplugin.backends.ownership import BEFORE
from kerf_dra.driver.kubeletplugin.claims.checkpoint.checkpoint import Checkpoint, open_checkpoint
from kerf_dra.driver.kubeletplugin.claims.hardware import DevicesFailedError, HardwareExecutor
from kerf_dra.driver.partitions.geometry import Placement
from kerf_dra.driver.partitions.records import from_card_part
from kerf_dra.driver.runtime.metrics import REGISTRY
from tests.fakes.cards import gpu
from tests.fakes.claims import CONFIGURATIONS, DRIVER, claim, ref
from tests.fakes.hardware import FakeBackend
from tests.kubeletplugin.backends.test_card_executor import be_patient
from tests.kubeletplugin.harness import LONGEST_S
from tests.kubeletplugin.records import BOOT, device, record

CLAIM, OTHER = ref(claim("training")), ref(claim("other"))
FIRST, SECOND = device("gpu-0-1g-1gb-at-0"), device("gpu-0-1g-1gb-at-1", start=1)
ELSEWHERE = device("gpu-1-1g-1gb-at-0", card="GPU-1")
WHOLE = device("gpu-0", start=None, size=None)


@dataclass
class Node:
    """The hardware work of a node, with the records that claims have by then."""

    backend: FakeBackend
    checkpoint: Checkpoint
    card_executor: CardExecutor
    boot_id: str = BOOT

    @property
    def hardware(self) -> HardwareExecutor:
        return HardwareExecutor(self.card_executor, CONFIGURATIONS, self.checkpoint, boot_id=self.boot_id)

    async def prepare(self, devices: list[PreparedDevice], held: ClaimRef = CLAIM) -> tuple[PreparedDevice, ...]:
        self.start(devices, held)
        return await self.hardware.prepare_devices(held, devices)

    def start(self, devices: list[PreparedDevice], held: ClaimRef = CLAIM) -> None:
        self.checkpoint.put(record(held.name, *devices, state=ClaimState.STARTED, boot_id=self.boot_id))

    async def release(self, devices: tuple[PreparedDevice, ...], held: ClaimRef = CLAIM) -> PreparedClaim:
        releasing = record(held.name, *devices, state=ClaimState.RELEASING, boot_id=self.boot_id)
        self.checkpoint.put(releasing)
        await self.hardware.release_devices(releasing)
        return releasing

    def notes(self, of: PreparedDevice, held: ClaimRef = CLAIM) -> Any:
        return self.checkpoint.journal(held.uid, of.share, self.boot_id).notes


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    yield from open_node(tmp_path, 60)


@pytest.fixture
def impatient(tmp_path: Path) -> Iterator[Node]:
    yield from open_node(tmp_path, 0.5)


def open_node(root: Path, timeout_s: float) -> Iterator[Node]:
    backend = FakeBackend([gpu(0), gpu(1)])
    executor = CardExecutor({"fake": backend}, call_timeout_s=timeout_s, discovery_timeout_s=timeout_s)
    with ExitStack() as stack:
        checkpoint = stack.enter_context(open_checkpoint(root, boot_id=BOOT))
        stack.callback(executor.close)
        yield Node(backend, checkpoint, executor)


def handles(devices: tuple[PreparedDevice, ...]) -> list[Any]:
    return [device.handle for device in devices]


async def test_devices_come_back_in_order_with_their_handles(node: Node) -> None:
    prepared = await node.prepare([FIRST, ELSEWHERE, SECOND])
    assert [device.share for device in prepared] == [FIRST.share, ELSEWHERE.share, SECOND.share]
    assert all(device.handle is not None for device in prepared)
    assert len(node.backend.made) == 3


async def test_cards_work_in_parallel_and_each_card_serially(node: Node) -> None:
    gates = [node.backend.gate("prepare", device.share.id.device) for device in (FIRST, SECOND, ELSEWHERE)]
    async with anyio.create_task_group() as group:
        group.start_soon(node.prepare, [FIRST, SECOND, ELSEWHERE])
        await gates[0].reached.wait()
        await gates[2].reached.wait()
        await anyio.wait_all_tasks_blocked()
        assert not gates[1].reached.is_set()
        for gate in gates:
            gate.opened.set()
    assert node.backend.most_busy == 2


async def test_a_failure_names_the_device_and_leaves_the_others_done(node: Node) -> None:
    node.backend.fail("prepare", SECOND.share.id.device, HardwareBusyError("in use by another client"))
    with pytest.raises(DevicesFailedError, match=r"^gpu-0-1g-1gb-at-1: in use by another client$") as raised:
        await node.prepare([FIRST, SECOND, ELSEWHERE])
    assert [handle is not None for handle in handles(raised.value.devices)] == [True, False, True]
    await node.release(raised.value.devices)
    assert node.backend.made == {}
    assert sorted(node.backend.calls[3:]) == [
        ("abandon", "gpu-0-1g-1gb-at-1"),
        ("unprepare", "gpu-0-1g-1gb-at-0"),
        ("unprepare", "gpu-1-1g-1gb-at-0"),
    ]


async def test_every_failure_is_told(node: Node) -> None:
    node.backend.fail("prepare", FIRST.share.id.device, PermanentError("broken"))
    node.backend.fail("prepare", ELSEWHERE.share.id.device, ZeroDivisionError("oops"))
    with pytest.raises(DevicesFailedError, match=r"gpu-0-1g-1gb-at-0: broken; gpu-1-1g-1gb-at-0: oops"):
        await node.prepare([FIRST, SECOND, ELSEWHERE])


CIRCLE: dict[str, Any] = {}
CIRCLE["itself"] = CIRCLE


@pytest.mark.parametrize("made", [{"name": "\ud800"}, CIRCLE, {"card": object()}], ids=["text", "circle", "object"])
async def test_a_handle_that_is_no_json_fails_its_device(node: Node, made: dict[str, Any]) -> None:
    """Half a surrogate pair, or a circle, was an error of the whole claim: what was made was not taken back."""
    prepare = node.backend.prepare
    node.backend.prepare = lambda *args: prepare(*args) and made  # type: ignore[method-assign]
    with pytest.raises(DevicesFailedError, match="backend fake: prepare returned no JSON object") as raised:
        await node.prepare([FIRST])
    await node.release(raised.value.devices)
    assert (node.backend.made, node.notes(FIRST)) == ({}, {})


async def test_a_backend_that_hangs_is_given_up_and_only_its_card_waits_for_it(impatient: Node) -> None:
    node = impatient
    gate = node.backend.gate("prepare", FIRST.share.id.device)
    with pytest.raises(DevicesFailedError, match=r"card GPU-0: prepare of gpu-0-1g-1gb-at-0 gave no answer") as raised:
        await node.prepare([FIRST])
    with pytest.raises(DevicesFailedError, match=r"prepare of gpu-0-1g-1gb-at-0, begun at .* has not returned"):
        await node.release(raised.value.devices)
    be_patient(node.card_executor)
    await node.prepare([ELSEWHERE], OTHER)
    gate.opened.set()
    while node.card_executor.stuck:
        await anyio.lowlevel.checkpoint()
    assert len(node.backend.made) == 2, "it has made its partition after all"
    await node.release(raised.value.devices)
    assert [made.card_uuid for made in node.backend.made.values()] == ["GPU-1"]


async def test_a_survey_that_answers_after_the_claim_was_released_makes_nothing(impatient: Node) -> None:
    """The record is dropped next, or once the claim's other cards are done: a partition made by then is nobody's."""
    node = impatient
    answered = threading.Event()
    survey = node.backend.survey

    def hang(card_uuid: str) -> CardSurvey:
        answered.wait()
        return survey(card_uuid)

    node.backend.survey = hang  # type: ignore[method-assign]
    with pytest.raises(DevicesFailedError, match="gave no answer") as raised:
        await node.prepare([FIRST])
    await node.release(raised.value.devices)
    answered.set()
    while node.card_executor.stuck:
        await anyio.lowlevel.checkpoint()
    assert (node.backend.made, node.notes(FIRST)) == ({}, {})


async def test_what_another_release_has_removed_meanwhile_is_not_removed_again(node: Node) -> None:
    one, other = shares("one", "other")
    [first] = await node.prepare([one])
    [second] = await node.prepare([other], OTHER)
    node.checkpoint.put(record(OTHER.name, second, state=ClaimState.RELEASING, boot_id=BOOT))
    gate = node.backend.gate("unprepare", FIRST.share.id.device)
    async with anyio.create_task_group() as group:
        group.start_soon(node.release, (first,))
        with anyio.fail_after(LONGEST_S):
            await gate.reached.wait()
        group.start_soon(node.release, (second,), OTHER)
        await anyio.wait_all_tasks_blocked()
        gate.opened.set()
    assert [call for call in node.backend.calls if call[0] == "unprepare"] == [("unprepare", FIRST.share.id.device)]


async def test_a_backend_that_is_no_longer_configured_is_named(node: Node) -> None:
    gone = device(backend="gone")
    with pytest.raises(DevicesFailedError, match=r"its backend 'gone' is not configured \(any more\); there is fake"):
        await node.prepare([gone])
    node.checkpoint.journal(CLAIM.uid, gone.share, BOOT).write(before=[])
    with pytest.raises(DevicesFailedError, match="its backend 'gone' is not configured"):
        await node.release((gone,))


async def test_hardware_is_called_in_a_worker_thread_once_for_each_device(node: Node) -> None:
    threads: list[int] = []
    survey = node.backend.survey

    def note_thread(card_uuid: str) -> CardSurvey:
        threads.append(threading.get_ident())
        return survey(card_uuid)

    node.backend.survey = note_thread  # type: ignore[method-assign]
    await node.prepare([FIRST, SECOND])
    assert len(threads) == 2
    assert threading.get_ident() not in threads


async def test_each_prepared_device_is_identified_with_all_its_nodes(node: Node) -> None:
    def edit(handle: Handle) -> ContainerEdits:
        paths = (f"/dev/{handle['device']}", f"/dev/{handle['device']}-control")
        return ContainerEdits(device_nodes=tuple(DeviceNode(path=path) for path in paths))

    node.backend.edits = edit  # type: ignore[method-assign]
    prepared = await node.prepare([FIRST, SECOND])
    assert [identity.device_nodes for identity in node.hardware.identify(prepared)] == [
        ("/dev/gpu-0-1g-1gb-at-0", "/dev/gpu-0-1g-1gb-at-0-control"),
        ("/dev/gpu-0-1g-1gb-at-1", "/dev/gpu-0-1g-1gb-at-1-control"),
    ]


async def test_each_call_for_a_device_is_measured_with_its_operation_and_outcome(node: Node) -> None:
    def count(operation: str, outcome: str) -> float:
        labels = {"driver": DRIVER, "backend": "fake", "operation": operation, "outcome": outcome}
        return REGISTRY.get_sample_value("kerf_hardware_seconds_count", labels) or 0

    calls = [(operation, outcome) for operation in ("prepare", "release") for outcome in ("done", "failed")]
    before = [count(*call) for call in calls]
    for operation in ("prepare", "unprepare"):
        node.backend.fail(operation, SECOND.share.id.device, HardwareBusyError("busy"))
    with pytest.raises(DevicesFailedError):
        await node.prepare([FIRST, SECOND])
    prepared = await node.prepare([FIRST, SECOND])
    with pytest.raises(DevicesFailedError):
        await node.release(prepared)
    counted = [count(*call) - earlier for call, earlier in zip(calls, before, strict=True)]
    assert counted == [3, 1, 1, 1]


# What is ours


async def test_what_was_there_before_is_noted_before_the_hardware_changes_and_forgotten_when_all_is_released(
    node: Node,
) -> None:
    by_hand = node.backend.cut_by_hand(from_card_part(SECOND.part))
    noted: list[Any] = []
    prepare = node.backend.prepare

    def note(*args: Any) -> Any:
        noted.append(dict(node.notes(FIRST)))
        return prepare(*args)

    node.backend.prepare = note  # type: ignore[assignment,method-assign]
    devices = await node.prepare([FIRST])
    assert noted == [{BEFORE: ["gpu-0-memory-slice-1"]}]
    await node.release(devices)
    assert node.notes(FIRST) == {}
    assert list(node.backend.made.values()) == [by_hand]


@pytest.mark.parametrize("wanted", [FIRST, WHOLE, device("gpu-0-2g-2gb-at-0", size=2)], ids=["same", "whole", "larger"])
async def test_what_somebody_else_has_is_named_and_nothing_is_touched(node: Node, wanted: PreparedDevice) -> None:
    by_hand = node.backend.cut_by_hand(from_card_part(FIRST.part))
    with pytest.raises(DevicesFailedError, match="in use outside of Kerf: gpu-0-memory-slice-0 at 0") as raised:
        await node.prepare([wanted])
    await node.release(raised.value.devices)
    assert node.backend.calls == []
    assert list(node.backend.made.values()) == [by_hand]
    assert node.notes(wanted) == {}


async def test_what_an_interrupted_prepare_left_is_finished(node: Node) -> None:
    [done] = await node.prepare([FIRST])
    [again] = await node.prepare([FIRST])
    assert again.handle == done.handle
    assert len(node.backend.made) == 1


async def test_what_an_interrupted_prepare_left_is_taken_back(node: Node) -> None:
    await node.prepare([FIRST])
    await node.release((FIRST,))
    assert (node.backend.made, node.backend.calls[1:]) == ({}, [("abandon", FIRST.share.id.device)])


async def test_what_was_cut_there_before_the_first_try_is_not_ours_after_an_interruption_either(node: Node) -> None:
    by_hand = node.backend.cut_by_hand(from_card_part(FIRST.part))
    node.start([FIRST])
    node.checkpoint.journal(CLAIM.uid, FIRST.share, BOOT).write(before=["gpu-0-memory-slice-0"])
    with pytest.raises(DevicesFailedError, match="in use outside of Kerf"):
        await node.hardware.prepare_devices(CLAIM, [FIRST])
    await node.release((FIRST,))
    assert list(node.backend.made.values()) == [by_hand]


async def test_what_is_cut_between_our_survey_and_our_create_is_left_alone(node: Node) -> None:
    prepare = node.backend.prepare

    def cut_first(*args: Any) -> Any:
        node.backend.cut_by_hand(from_card_part(FIRST.part))
        return prepare(*args)

    node.backend.prepare = cut_first  # type: ignore[assignment,method-assign]
    with pytest.raises(DevicesFailedError, match="insufficient resources: gpu-0-memory-slice-0 is there") as raised:
        await node.prepare([FIRST])
    await node.release(raised.value.devices)
    assert len(node.backend.made) == 1, "the refusal says whose it is"


async def test_what_is_cut_in_our_place_after_our_release_is_left_alone_when_the_release_comes_again(
    node: Node,
) -> None:
    devices = await node.prepare([FIRST])
    await node.release(devices)
    node.backend.cut_by_hand(from_card_part(FIRST.part))
    for left in (devices, (FIRST,)):
        await node.release(left)
    assert len(node.backend.made) == 1


async def test_a_release_in_another_boot_touches_nothing(node: Node) -> None:
    devices = await node.prepare([FIRST])
    earlier = record(CLAIM.name, *devices, state=ClaimState.RELEASING)
    node.backend.reboot()
    node.backend.cut_by_hand(from_card_part(FIRST.part))
    node.boot_id = "boot-2"
    await node.hardware.release_devices(earlier)
    assert len(node.backend.made) == 1
    assert node.backend.calls == [("prepare", FIRST.share.id.device)]


async def test_admin_access_surveys_nothing_and_leaves_nothing_to_release(node: Node) -> None:
    await node.prepare([FIRST], OTHER)
    watching = device(FIRST.share.id.device, admin=True)
    devices = await node.prepare([watching])
    assert devices[0].handle is not None
    await node.release(devices)
    assert node.backend.calls[1:] == [("prepare", FIRST.share.id.device)]
    assert len(node.backend.made) == 1


async def test_a_card_that_is_away_cannot_be_released(node: Node) -> None:
    devices = await node.prepare([FIRST])
    node.backend.fail("unprepare", FIRST.share.id.device, CardAbsentError("GPU-0 has fallen off the bus"))
    with pytest.raises(DevicesFailedError) as raised:
        await node.release(devices)
    assert [type(failure) for failure in raised.value.failures] == [CardAbsentError]
    assert node.notes(FIRST), "it is not over"


async def test_a_card_that_cannot_be_cut_now_says_why(node: Node) -> None:
    node.backend.survey = lambda card_uuid: CardSurvey(  # type: ignore[method-assign]
        card_uuid=card_uuid, no_partitions="MIG mode is pending a reset", no_whole="MIG mode is on"
    )
    for wanted, reason in (
        (FIRST, "is not available in partitions now: MIG mode is pending a reset"),
        (WHOLE, "is not available whole now: MIG mode is on"),
    ):
        with pytest.raises(DevicesFailedError, match=reason):
            await node.prepare([wanted])
    assert node.backend.calls == []


@pytest.mark.parametrize("handle", [None, ["gi-1"], "gi-1", {"made": {1, 2}, "by": object()}])
async def test_a_handle_that_no_record_can_keep_fails_its_device_which_is_taken_back(
    node: Node, handle: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare = node.backend.prepare

    def prepare_badly(*args: Any) -> Any:
        prepare(*args)
        return handle

    monkeypatch.setattr(node.backend, "prepare", prepare_badly)
    with pytest.raises(DevicesFailedError, match=r"backend fake: prepare returned no JSON object: ") as failed:
        await node.prepare([FIRST])
    assert node.backend.made
    await node.release(failed.value.devices)
    assert not node.backend.made


async def test_a_survey_that_contradicts_itself_fails_the_device_by_name(node: Node) -> None:
    twice = FoundPartition(id="gi-1", profile="1g.1gb", placement=Placement(3, 1))
    node.backend.survey = lambda card_uuid: CardSurvey(  # type: ignore[method-assign]
        card_uuid=card_uuid, partitions=(twice, twice)
    )
    with pytest.raises(DevicesFailedError, match="the survey of card GPU-0 cannot be true: two partitions have the id"):
        await node.prepare([FIRST])
    assert node.backend.calls == []


# Shares


def shares(*names: str) -> list[PreparedDevice]:
    return [device(FIRST.share.id.device, share=name) for name in names]


async def test_a_device_that_others_share_is_left_to_them_with_the_knowledge_that_it_is_ours(node: Node) -> None:
    one, other = shares("one", "other")
    devices = await node.prepare([one, SECOND])
    node.start([other], OTHER)
    await node.release(devices)
    assert [made.start for made in node.backend.made.values()] == [0]
    node.checkpoint.drop(CLAIM.uid)
    [again] = await node.hardware.prepare_devices(OTHER, [other])
    assert again.handle == devices[0].handle
    await node.release((again,), OTHER)
    assert node.backend.made == {}


async def test_a_share_finds_the_partition_of_another(node: Node) -> None:
    one, other = shares("one", "other")
    [first] = await node.prepare([one])
    [second] = await node.prepare([other], OTHER)
    assert first.handle == second.handle
    await node.release((first,))
    await node.release((second,), OTHER)
    assert node.backend.made == {}


async def test_two_shares_of_one_claim_have_one_partition(node: Node) -> None:
    """The second one was refused for ever: the partition of the first was taken for one of another program."""
    first, second = await node.prepare(shares("one", "other"))
    assert first.handle == second.handle
    assert len(node.backend.made) == 1
    await node.release((first, second))
    assert (node.backend.made, node.notes(first), node.notes(second)) == ({}, {}, {})


async def test_a_share_that_was_ready_keeps_the_partition_when_another_of_its_claim_is_undone(node: Node) -> None:
    one, other = shares("one", "other")
    [ready] = await node.prepare([one])
    node.start([ready, other])
    _, made = await node.hardware.prepare_devices(CLAIM, [ready, other])
    await node.hardware.release_devices(record(CLAIM.name, made))
    assert len(node.backend.made) == 1
    assert (BEFORE in node.notes(one), node.notes(other)) == (True, {})
    await node.release((ready,))
    assert node.backend.made == {}


async def test_a_partition_that_another_share_did_not_make_is_not_taken_for_shared(node: Node) -> None:
    one, other = shares("one", "other")
    node.backend.cut_by_hand(from_card_part(FIRST.part))
    for wanted, held in ((one, CLAIM), (other, OTHER)):
        with pytest.raises(DevicesFailedError, match="in use outside of Kerf"):
            await node.prepare([wanted], held)
    assert len(node.backend.made) == 1


async def test_a_share_that_an_earlier_boot_knows_keeps_nothing(node: Node) -> None:
    one, other = shares("one", "other")
    node.checkpoint.put(record(OTHER.name, other, boot_id="boot-0"))
    devices = await node.prepare([one])
    await node.release(devices)
    assert node.backend.made == {}


async def test_a_claim_that_only_watches_a_shared_device_does_not_keep_it(node: Node) -> None:
    """It would never unprepare the partition, which stayed for ever."""
    (one,) = shares("one")
    devices = await node.prepare([one])
    node.start([device(FIRST.share.id.device, admin=True)], OTHER)
    await node.release(devices)
    assert (node.backend.made, node.notes(one)) == ({}, {})


async def test_who_keeps_a_shared_device_keeps_the_notes_of_its_own(node: Node) -> None:
    one, other = shares("one", "other")
    devices = await node.prepare([one])
    node.backend.cut_by_hand(from_card_part(SECOND.part))
    await node.prepare([other], OTHER)
    noted = dict(node.notes(other, OTHER))
    assert noted != dict(node.notes(one)), "what was there before is another thing for each"
    await node.release(devices)
    assert dict(node.notes(other, OTHER)) == noted
    assert node.notes(one) == {}, "nothing of the share that is released is left to release"


async def test_a_claim_that_shares_another_device_keeps_nothing_of_this_one(node: Node) -> None:
    (one,) = shares("one")
    devices = await node.prepare([one])
    await node.prepare([device(SECOND.share.id.device, start=1, share="other")], OTHER)
    await node.release(devices)
    assert [made.start for made in node.backend.made.values()] == [1]


async def test_what_a_process_of_a_stranger_uses_is_no_work_of_an_interrupted_prepare(node: Node) -> None:
    """The notes of the claim itself say nothing of processes: none of its own can run yet."""
    whole = device("gpu-0", start=None, size=None, share="one")
    node.start([whole])
    node.checkpoint.journal(CLAIM.uid, whole.share, BOOT).write(before=[])
    used = FoundPartition(id="process-4711", profile=None, placement=None, in_use=True)
    node.backend.survey = lambda card_uuid: CardSurvey(card_uuid=card_uuid, partitions=(used,))  # type: ignore[method-assign]
    with pytest.raises(DevicesFailedError, match="in use outside of Kerf: process-4711"):
        await node.hardware.prepare_devices(CLAIM, [whole])
