"""A partition that another program destroys under a pod is made again at its place, or the pod starts elsewhere."""

from pathlib import Path

import anyio
import pytest

from kerf_dra.api.model.prepared import ClaimState
from kerf_dra.driver.kube.http.errors import UnreachableError
from kerf_dra.driver.kubeletplugin.backends.base import CardAbsentError, CardSurvey, Handle, HardwareBusyError
from kerf_dra.driver.kubeletplugin.claims.repair.repair_decision import TRIES
from kerf_dra.driver.kubeletplugin.cluster.claim_end import ANSWERS_ALONE
from kerf_dra.driver.partitions.geometry import Partition, Placement
from tests.fakes.cards import fpga, gpu
from tests.fakes.claims import DRIVER, result
from tests.fakes.hardware import FakeBackend
from tests.kubeletplugin.claims.repair.node import FIRST, SECOND, SURVEYS_S, Node
from tests.runtime.virtual_time import VIRTUAL_TIME

UNUSABLE = (f"{DRIVER}/unusable", "gone", "NoExecute")
LONG_S = 20 * SURVEYS_S
PROOF_S = 2 * ANSWERS_ALONE * 60
"""Longer than the end of a claim takes to be proven, where the kubelet lists no claims."""


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, object]]:
    return VIRTUAL_TIME


class Hardware(FakeBackend):
    """Cards whose surveys a test lets fail, or lack what is there, once."""

    def __init__(self) -> None:
        super().__init__([gpu(0), gpu(1), fpga(0)])
        self.survey_error: Exception | None = None
        self.empty_surveys = 0

    def survey(self, card_uuid: str) -> CardSurvey:
        if self.survey_error is not None:
            raise self.survey_error
        if self.empty_surveys and card_uuid == "GPU-0":
            self.empty_surveys -= 1
            return CardSurvey(card_uuid=card_uuid)
        return super().survey(card_uuid)


class RestoringHardware(Hardware):
    """Cards whose devices need something besides, which a test may remove."""

    def __init__(self) -> None:
        super().__init__()
        self.is_set_up: dict[str, bool] = {}
        self.error: Exception | None = None

    def restore(self, handle: Handle) -> bool:
        if self.error is not None:
            raise self.error
        was_gone = not self.is_set_up.get(handle["device"], True)
        self.is_set_up[handle["device"]] = True
        return was_gone


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path, backend=Hardware())


def destroy(node: Node, device: str = FIRST) -> None:
    made = node.made(device)
    assert made is not None
    node.backend.remove_by_hand(made.serial)


async def prepare_both(node: Node) -> None:
    for name, device in (("first", FIRST), ("second", SECOND)):
        await node.prepare(name, device)
    await anyio.sleep(2 * SURVEYS_S)


async def test_a_destroyed_partition_is_made_again_and_record_and_file_name_the_new_one(node: Node) -> None:
    """The container restarted for ever on nodes that were gone, until a person deleted its pod."""
    async with node.running():
        await prepare_both(node)
        second, file = node.record("second"), node.cdi_file("second").read_bytes()
        destroy(node)
        await anyio.sleep(3 * SURVEYS_S)
        made, record = node.made(FIRST), node.record("first")
        assert made is not None
        assert record is not None
        assert (record.state, (record.devices[0].handle or {})["serial"]) == (ClaimState.PREPARED, made.serial)
        assert f'={made.serial}"' in node.cdi_file("first").read_text()
        assert "number 1" in node.events("PartitionMadeAgain")[0]
        assert node.taints(FIRST) == []
        assert (node.record("second"), node.cdi_file("second").read_bytes()) == (second, file)
        assert [call for call in node.backend.calls if call[1] == SECOND] == [("prepare", SECOND)]


async def test_it_is_released_with_its_claim_as_if_it_had_been_made_once(node: Node) -> None:
    async with node.running() as plugin:
        await prepare_both(node)
        destroy(node)
        await anyio.sleep(3 * SURVEYS_S)
        record = node.record("first")
        assert record is not None
        await plugin.preparer.unprepare_claim(record.claim)
        assert (node.made(FIRST), node.record("first"), node.made(SECOND) is None) == (None, None, False)


async def test_whoever_destroys_it_again_and_again_is_not_fought(node: Node) -> None:
    async with node.running() as plugin:
        await prepare_both(node)
        for _ in range(TRIES + 1):
            destroy(node)
            await anyio.sleep(5 * SURVEYS_S)
        assert node.made(FIRST) is None
        assert len(node.events("PartitionMadeAgain")) == TRIES
        [message] = node.events("PartitionNotMadeAgain")
        assert f"{FIRST} of claim default/first is gone, and is not made again: it was made again 3 times" in message
        assert (node.taints(FIRST), node.taints(SECOND)) == ([UNUSABLE], [])
        prepares = node.backend.calls.count(("prepare", FIRST))
        await anyio.sleep(LONG_S)
        assert node.backend.calls.count(("prepare", FIRST)) == prepares, "it is left alone for good"
        record = node.record("first")
        assert record is not None
        await plugin.preparer.unprepare_claim(record.claim)
        await anyio.sleep(2 * SURVEYS_S)
        assert node.taints(FIRST) == [], "the next claim may have it"


async def test_a_place_that_another_partition_has_taken_is_left_to_it_and_the_pod_starts_elsewhere(node: Node) -> None:
    async with node.running():
        await prepare_both(node)
        destroy(node)
        theirs = node.backend.cut_by_hand(
            Partition(kind="gpu", card_uuid="GPU-0", profile="2g.2gb", placement=Placement(0, 2))
        )
        await anyio.sleep(5 * SURVEYS_S)
        assert node.made("gpu-0-2g-2gb-at-0") == theirs
        assert UNUSABLE in node.taints(FIRST)
        assert UNUSABLE not in node.taints(SECOND)
        assert "in use outside of Kerf: 2g.2gb at 0" in node.events("PartitionNotMadeAgain")[0]
        node.backend.remove_by_hand(theirs.serial)
        await anyio.sleep(5 * SURVEYS_S)
        assert node.made(FIRST) is not None, "the place is free, and nothing was tried there"
        assert node.taints(FIRST) == []


async def test_what_one_survey_does_not_show_is_no_loss(node: Node) -> None:
    async with node.running():
        await prepare_both(node)
        calls = list(node.backend.calls)
        node.backend.empty_surveys = 1
        await anyio.sleep(LONG_S)
        assert node.backend.calls == calls
        assert node.events("PartitionGone"), "it is reported all the same"


@pytest.mark.parametrize("error", [CardAbsentError("fell off the bus"), HardwareBusyError("EIO"), OSError("EIO")])
async def test_surveys_that_fail_prove_no_loss(error: Exception, node: Node) -> None:
    async with node.running():
        await prepare_both(node)
        destroy(node)
        calls = list(node.backend.calls)
        node.backend.survey_error = error
        await anyio.sleep(LONG_S)
        assert node.backend.calls == calls
        assert node.events("PartitionNotMadeAgain") == []
        node.backend.survey_error = None
        await anyio.sleep(5 * SURVEYS_S)
        assert node.made(FIRST) is not None


async def test_tries_that_the_hardware_refuses_end_in_a_taint_and_the_claim_keeps_record_and_file(node: Node) -> None:
    async with node.running() as plugin:
        await prepare_both(node)
        before, file = node.record("first"), node.cdi_file("first").read_bytes()
        destroy(node)
        node.backend.fail("prepare", FIRST, *[HardwareBusyError("not now")] * 99)
        await anyio.sleep(LONG_S)
        assert node.backend.calls.count(("prepare", FIRST)) == 1 + TRIES
        assert (node.record("first"), node.cdi_file("first").read_bytes()) == (before, file)
        assert node.taints(FIRST) == [UNUSABLE]
        assert before is not None
        await plugin.preparer.unprepare_claim(before.claim)
        assert node.record("first") is None


async def test_a_claim_that_is_being_unprepared_is_not_touched(node: Node) -> None:
    async with node.running() as plugin:
        await prepare_both(node)
        destroy(node)
        record = node.record("first")
        assert record is not None
        await anyio.sleep(SURVEYS_S)
        await plugin.preparer.unprepare_claim(record.claim)
        await anyio.sleep(LONG_S)
        assert (node.record("first"), node.made(FIRST)) == (None, None)


@pytest.mark.parametrize("is_running", [True, False], ids=["while the plugin runs", "while none runs"])
async def test_a_partition_that_is_lost_is_not_made_again_for_a_claim_that_has_ended(
    is_running: bool, node: Node
) -> None:
    """The next process made it for a claim that was deleted meanwhile, and removed it when that was proven."""
    async with node.running():
        await prepare_both(node)
        if is_running:
            end_first_claim(node)
            await anyio.sleep(PROOF_S)
    if not is_running:
        end_first_claim(node)
    async with node.running():
        await anyio.sleep(PROOF_S)
        assert node.record("first") is None, "its end is proven"
        assert node.backend.calls.count(("prepare", FIRST)) == 1
        assert node.made(SECOND) is not None


def end_first_claim(node: Node) -> None:
    del node.cluster.claims["default", "first"]
    destroy(node)


async def test_a_partition_is_made_again_also_while_the_api_server_does_not_answer(node: Node) -> None:
    async with node.running():
        await prepare_both(node)
        destroy(node)
        node.cluster.errors["first"] = UnreachableError("GET claim", "connection refused")
        await anyio.sleep(3 * SURVEYS_S)
        assert node.made(FIRST) is not None


@pytest.mark.parametrize("is_made", [False, True], ids=["before it was made", "after it was made"])
async def test_a_repair_that_the_end_of_the_process_interrupts_is_finished_by_the_next_one(
    is_made: bool, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with node.running() as plugin:
        await prepare_both(node)
        destroy(node)
        owner, name = (plugin._executor, "_write_cdi") if is_made else (plugin._hardware, "prepare_devices")
        monkeypatch.setattr(owner, name, lambda *_: anyio.sleep_forever())
        await anyio.sleep(3 * SURVEYS_S)
        await plugin.drain(0)
        started = node.record("first")
        assert started is not None
        assert started.state is ClaimState.STARTED
        assert (node.made(FIRST) is not None) is is_made
    async with node.running():
        await anyio.sleep(5 * SURVEYS_S)
        record, made = node.record("first"), node.made(FIRST)
        assert record is not None
        assert made is not None
        assert (record.state, (record.devices[0].handle or {})["serial"]) == (ClaimState.PREPARED, made.serial)
        assert f'={made.serial}"' in node.cdi_file("first").read_text()


async def test_what_a_device_needs_besides_is_set_up_again_for_claims_that_are_prepared(tmp_path: Path) -> None:
    node = Node(tmp_path, backend=RestoringHardware())
    async with node.running() as plugin:
        await prepare_both(node)
        node.backend.is_set_up = {FIRST: False, SECOND: True}
        await anyio.sleep(2 * SURVEYS_S)
        assert node.backend.is_set_up == {FIRST: True, SECOND: True}
        record = node.record("first")
        assert record is not None
        await plugin.preparer.unprepare_claim(record.claim)
        node.backend.is_set_up = {FIRST: False}
        await anyio.sleep(2 * SURVEYS_S)
        assert node.backend.is_set_up == {FIRST: False, SECOND: True}, "no claim needs it any more"


async def test_what_cannot_be_set_up_again_is_logged_once_and_keeps_nothing_else_from_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    node = Node(tmp_path, backend=RestoringHardware())
    async with node.running():
        await prepare_both(node)
        node.backend.error = OSError("EIO")
        destroy(node, SECOND)
        await anyio.sleep(LONG_S)
        assert len([one for one in caplog.messages if "cannot be set up again: EIO" in one]) == 2, "one for each claim"
        assert node.made(SECOND) is not None


async def test_shares_of_a_destroyed_partition_get_one_partition_again(node: Node) -> None:
    async with node.running():
        for name in ("first", "second"):
            await node.prepare(name, result("gpu-0-1g-1gb-at-0-shared", share=name))
        await anyio.sleep(2 * SURVEYS_S)
        destroy(node)
        await anyio.sleep(6 * SURVEYS_S)
        made = node.made(FIRST)
        assert made is not None
        for name in ("first", "second"):
            assert f'={made.serial}"' in node.cdi_file(name).read_text()


async def test_a_partition_that_was_cut_again_while_no_plugin_ran_is_not_what_the_claim_was_given(node: Node) -> None:
    """The first survey of a process took what it found in the place for what the claim had: its file named a UUID that
    no longer existed.
    """
    async with node.running():
        await prepare_both(node)
    destroy(node)
    place = Partition(kind="gpu", card_uuid="GPU-0", profile="1g.1gb", placement=Placement(0, 1))
    theirs = node.backend.cut_by_hand(place)
    async with node.running():
        await anyio.sleep(5 * SURVEYS_S)
        assert f'={theirs.serial}"' in node.cdi_file("first").read_text()
        assert node.events("PartitionGone")
