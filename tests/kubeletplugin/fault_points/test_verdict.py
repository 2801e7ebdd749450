"""The judge of fault points finds what it is there for: each kind of loss is made by hand, and told."""

import json
from collections.abc import Callable
from pathlib import Path

import anyio
import msgspec
import pytest

from kerf_dra.driver.kubeletplugin.claims.device_metadata import FOLDER
from tests.fakes.nvml import NEEDS_COMPILER
from tests.kubeletplugin.fault_points import mps_daemons
from tests.kubeletplugin.fault_points.cards import NvidiaCards, SimulatedCards
from tests.kubeletplugin.fault_points.node import BY_MPS, CLAIMS, SHARING, Node
from tests.kubeletplugin.fault_points.verdict import judge, judge_answers
from tests.kubeletplugin.harness import short_directory
from tests.runtime.memory_folder import memory_folder


def prepared_node(root: Path) -> Node:
    node = Node(root, SimulatedCards(root, 1), CLAIMS[3, 1])
    prepare_all(node)
    return node


def prepare_all(node: Node) -> None:
    node.restore(node.save())

    async def prepare() -> None:
        async with node.plugin() as life:
            assert await life.prepare() == []

    anyio.run(prepare)


def cdi_file(node: Node, uid: str) -> Path:
    return node.settings.cdi_dir / f"k8s.gpu.kerf.dev-claim_{uid}.json"


def clear_cards(node: Node) -> None:
    node.cards.reboot()
    (node.root / "hardware/gpu-0.json").write_text('{"instances": []}')


def give_devices_of_another(node: Node) -> None:
    text = cdi_file(node, "uid-of-b").read_text()
    (uuid,) = {uuid for place, uuid in node.cards.look().items() if place == (0, "2g.20gb", 2)}
    (other,) = {uuid for place, uuid in node.cards.look().items() if place == (0, "3g.40gb", 4)}
    cdi_file(node, "uid-of-b").write_text(text.replace(uuid, other))


def leave_metadata(node: Node) -> None:
    (node.settings.plugin_dir / FOLDER / "uid-of-nobody").mkdir()


LOSSES: dict[str, Callable[[Node], object]] = {
    "lost: (0, '3g.40gb', 4) is on no card": clear_cards,
    "missing: k8s.gpu.kerf.dev-claim_uid-of-c.json": lambda node: cdi_file(node, "uid-of-c").unlink(),
    "stale: k8s.gpu.kerf.dev-claim_uid-of-nobody.json": lambda node: cdi_file(node, "uid-of-nobody").touch(),
    "double use: ": give_devices_of_another,
    "device metadata is there of ": leave_metadata,
    "stray: x.tmp": lambda node: (node.settings.state / "x.tmp").touch(),
    "the kubelet knows ": lambda node: node.note_answer("uid-of-a", None),
}


@pytest.mark.parametrize("told", LOSSES)
def test_a_loss_is_told(told: str) -> None:
    with short_directory() as root:
        node = prepared_node(root)
        assert [*judge(node, is_prepared=True)] == []
        LOSSES[told](node)
        assert [one for one in judge(node, is_prepared=True) if one.startswith(told)]


@NEEDS_COMPILER
def test_what_is_wrong_with_a_card_that_claims_share_is_told() -> None:
    with memory_folder() as folder:
        root = Path(folder).resolve()
        with mps_daemons.answered(root):
            cards = NvidiaCards(root, 1, is_sharing=True)
            node = Node(root, cards, BY_MPS.claims, sharing=BY_MPS)
            prepare_all(node)
            assert [*judge(node, is_prepared=True)] == []
            (request,) = (root / SHARING).rglob("request.json")
            request.write_text(request.read_text().replace("50", "20"))
            cards.reboot()  # which has the administrator's compute mode
            found = [*judge(node, is_prepared=True)]
            assert [one.partition(" ")[2].partition(" ")[0] for one in found] == ["has", "limit"]
            assert any(one.startswith("it is recorded that ") for one in judge(node, is_prepared=False))


def test_what_is_left_of_claims_that_have_ended_is_told() -> None:
    with short_directory() as root:
        node = prepared_node(root)
        found = [*judge(node, is_prepared=False)]
        assert {one.partition(":")[0].partition(" ")[0] for one in found} >= {"leaked", "stale", "records", "device"}
        assert [*judge_answers(node, are_ending=False)] == []
        node.note_answer("uid-of-a", None)
        assert [*judge_answers(node, are_ending=True)] == ["uid-of-a was unprepared, and is there again"]


def test_a_claim_that_was_answered_and_is_gone_is_told() -> None:
    with short_directory() as root:
        node = prepared_node(root)
        cdi_file(node, "uid-of-b").unlink()
        (told,) = judge_answers(node, are_ending=False)
        assert told.startswith("uid-of-b was prepared, and is not there")


def test_a_simulated_card_that_was_changed_first_is_known_by_its_number(tmp_path: Path) -> None:
    """A claim on the second card was told as lost: the plugin was killed before the first card had a file."""
    cards = SimulatedCards(tmp_path, 2)
    instance = {"profile": "1g.20gb", "placement": [0, 2], "mig_uuid": "MIG-1"}
    cards.restore(msgspec.msgpack.encode({"gpu-1.json": json.dumps({"instances": [instance]}).encode()}))
    assert cards.look() == {(1, "1g.20gb", 0): "MIG-1"}
