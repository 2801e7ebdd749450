"""Where the kernel gives the node of a claim's device to another device, record and file follow, and the pod moves."""

from pathlib import Path

import anyio
import pytest

from kerf_dra.api.model.prepared import ClaimState
from kerf_dra.cdi import ContainerEdits, DeviceNode
from kerf_dra.driver.kubeletplugin.backends.base import CardAbsentError, Handle, HardwareBusyError
from tests.fakes.cards import fpga, gpu
from tests.fakes.claims import DRIVER
from tests.fakes.hardware import FakeBackend
from tests.kubeletplugin.claims.repair.node import FIRST, SECOND, SURVEYS_S, Node
from tests.runtime.virtual_time import VIRTUAL_TIME

UNUSABLE = (f"{DRIVER}/unusable", "renumbered", "NoExecute")


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, object]]:
    return VIRTUAL_TIME


class Hardware(FakeBackend):
    """Cards whose device nodes have numbers, by the name of the device; others have 0."""

    def __init__(self) -> None:
        super().__init__([gpu(0), gpu(1), fpga(0)])
        self.numbers = {FIRST: 1, SECOND: 2}
        self.answers: list[Handle | Exception] = []
        """What the next readings are answered by, in place of the truth."""

    def renumber(self, handle: Handle) -> Handle:
        if self.answers:
            answer = self.answers.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return {**handle, **answer}
        return {**handle, "number": self.numbers.get(handle["device"], 0)}

    def prepare(self, *arguments: object) -> Handle:
        return self.renumber(super().prepare(*arguments))  # type: ignore[arg-type]

    def edits(self, handle: Handle) -> ContainerEdits:
        return ContainerEdits(device_nodes=(DeviceNode(path=f"/dev/dri/card{handle['number']}"),))


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path, backend=Hardware())


async def prepare_both(node: Node) -> None:
    for name, device in (("first", FIRST), ("second", SECOND)):
        await node.prepare(name, device)
    await anyio.sleep(2 * SURVEYS_S)


def numbers(node: Node) -> list[object]:
    """What the records of both claims say."""
    records = [node.record(name) for name in ("first", "second")]
    return [(one.devices[0].handle or {})["number"] for one in records if one is not None]


def has_node(node: Node, name: str, number: int) -> bool:
    return f'"/dev/dri/card{number}"' in node.cdi_file(name).read_text()


async def test_after_a_swap_each_claim_names_its_own_card_and_running_pods_move(node: Node) -> None:
    """Two claims' containers named one node, without an event and without a taint."""
    async with node.running():
        await prepare_both(node)
        node.backend.numbers = {FIRST: 2, SECOND: 1}
        await anyio.sleep(2 * SURVEYS_S)
        assert numbers(node) == [2, 1]
        assert (has_node(node, "first", 2), has_node(node, "second", 1)) == (True, True)
        assert (node.taints(FIRST), node.taints(SECOND)) == ([UNUSABLE], [UNUSABLE])
        first, second = sorted(node.events("DeviceNodesRenumbered"))
        assert f"the device nodes of {FIRST}, which claim default/first has" in first
        assert SECOND in second
        await anyio.sleep(9 * SURVEYS_S)
        assert len(node.events("DeviceNodesRenumbered")) == 2, "once for each"


async def test_a_claim_whose_numbers_are_the_same_is_not_touched(node: Node) -> None:
    async with node.running():
        await prepare_both(node)
        before, file = node.record("second"), node.cdi_file("second").lstat()
        node.backend.numbers[FIRST] = 3
        await anyio.sleep(5 * SURVEYS_S)
        assert numbers(node) == [3, 2]
        assert node.record("second") is before
        assert node.cdi_file("second").lstat() == file
        assert node.taints(SECOND) == []


async def test_the_record_has_the_numbers_before_the_file_and_a_file_that_fails_is_written_later(node: Node) -> None:
    async with node.running():
        await prepare_both(node)
        node.cdi_file("first").unlink()
        (node.cdi_file("first") / "theirs").mkdir(parents=True)
        node.backend.numbers[FIRST] = 3
        await anyio.sleep(2 * SURVEYS_S)
        assert numbers(node) == [3, 2]
        assert node.taints(FIRST) == [UNUSABLE]
        (node.cdi_file("first") / "theirs").rmdir()
        await anyio.sleep(40 * SURVEYS_S)
        assert has_node(node, "first", 3)


async def test_the_taint_outlives_the_process_and_ends_with_the_claim(node: Node) -> None:
    async with node.running():
        await prepare_both(node)
        node.backend.numbers[FIRST] = 3
        await anyio.sleep(2 * SURVEYS_S)
    async with node.running() as plugin:
        await anyio.sleep(2 * SURVEYS_S)
        assert (node.taints(FIRST), node.taints(SECOND)) == ([UNUSABLE], [])
        record = node.record("first")
        assert record is not None
        assert record.state is ClaimState.PREPARED
        await plugin.preparer.unprepare_claim(record.claim)
        await anyio.sleep(2 * SURVEYS_S)
        assert node.taints(FIRST) == []


async def test_a_handle_that_another_version_would_write_otherwise_is_not_touched(node: Node) -> None:
    """All pods of a node would have been evicted after an update of Kerf."""
    async with node.running():
        await prepare_both(node)
        before = [node.record(name) for name in ("first", "second")]
        node.backend.answers = [{"number": number, "later": 7} for number in (1, 2)] * 9
        await anyio.sleep(5 * SURVEYS_S)
        assert [node.record(name) for name in ("first", "second")] == before
        assert (node.taints(FIRST), node.events("DeviceNodesRenumbered")) == ([], [])


@pytest.mark.parametrize(
    "answer", [{"number": 9}, CardAbsentError("it is away"), HardwareBusyError("EIO"), OSError("EIO")], ids=repr
)
async def test_one_reading_that_is_wrong_or_fails_changes_nothing(answer: Handle | Exception, node: Node) -> None:
    async with node.running():
        await prepare_both(node)
        before = [node.record(name) for name in ("first", "second")]
        node.backend.answers = [answer]
        await anyio.sleep(5 * SURVEYS_S)
        assert node.backend.answers == []
        assert [node.record(name) for name in ("first", "second")] == before
        assert (node.taints(FIRST), node.events("DeviceNodesRenumbered")) == ([], [])


async def test_a_claim_without_a_container_gets_the_numbers_and_no_taint(node: Node) -> None:
    async with node.running() as plugin:
        await prepare_both(node)
        record = node.record("first")
        assert record is not None
        await plugin.preparer.unprepare_claim(record.claim)
        await plugin.preparer.prepare_early(record.claim)
        node.backend.numbers[FIRST] = 3
        await anyio.sleep(2 * SURVEYS_S)
        assert (numbers(node)[0], has_node(node, "first", 3)) == (3, True)
        early = node.record("first")
        assert early is not None
        assert (early.awaits_pod, node.taints(FIRST), node.events("DeviceNodesRenumbered")) == (True, [], [])
