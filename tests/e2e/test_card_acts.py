"""One card of four is reset, or its MIG mode switched, by its node, verified and back: the others notice nothing.

The cards are stand-ins for NVIDIA's: three H100, and an A100 that resets itself for another MIG mode.
"""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pynvml
import pytest

from kerf_dra.driver.testing.nvml import NvidiaMachine
from tests.e2e import pods
from tests.e2e.card_drains import KERF, Cards, Hooks, deployment
from tests.e2e.hardware import ON_NVIDIA
from tests.e2e.namespace import Namespace
from tests.e2e.wait import eventually
from tests.fakes.nvml import open_nvml
from tools.realcluster.api import Api
from tools.realcluster.kerf import Hardware, Kerf

HARDWARE = Hardware(
    cards=[
        {"kind": "gpu", "model": "h100-80gb-sxm", "count": 3},
        {"kind": "gpu", "model": "a100-40gb"},
    ],
    options={},
)

pytestmark = ON_NVIDIA

AMPERE: Final = "gpu-3"
MEMBERS: Final = 9
"""As many pods as need two cards, which have seven partitions each."""


def count_resets(machine: NvidiaMachine) -> list[int]:
    with machine._state() as state:
        return [card.resets for card in state.cards[: state.n_cards]]


def list_persistence(machine: NvidiaMachine) -> list[int]:
    with open_nvml(machine):
        handles = map(pynvml.nvmlDeviceGetHandleByIndex, range(4))
        return [int(pynvml.nvmlDeviceGetPersistenceMode(one)) for one in handles]


@contextmanager
def hold(machine: NvidiaMachine, number: int) -> Iterator[int]:
    """Let a process have a card open, as an exporter has; yields its number."""
    program = (
        "import fcntl, sys; file = open(sys.argv[1]); fcntl.flock(file, fcntl.LOCK_SH); "
        "print('open', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", program, str(machine.folder / f"dev/nvidia{number}")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"open\n"
        yield process.pid
        process.kill()


async def test_a_sick_card_is_reset_and_back_and_pods_of_the_others_have_not_restarted(
    api: Api, namespace: Namespace, cards: Cards, machine: NvidiaMachine
) -> None:
    small = await namespace.resource_class("small", device="gpu", profile="1g.10gb")
    await namespace.template("small", pods.exactly("gpu", small))
    await namespace.apply(deployment("web", MEMBERS, pods.pod("any", {"devices": pods.by_template("small")})))
    before = await cards.until_running(MEMBERS)
    leaving = await cards.list_holders("gpu-0")
    assert 0 < len(leaving) < MEMBERS, "the card and another one are in use"
    resets = count_resets(machine)
    namespace.node.hardware.make_unhealthy("gpu-0", "rows")

    name = await cards.drain("gpu-0", reason="rows are remapped at a reset", then="Reset")
    status = await cards.until_phase(name, "Returned")
    assert status["work"]["state"] == "Done"
    assert "was successfully reset" in status["work"]["message"]
    assert [now - then for now, then in zip(count_resets(machine), resets, strict=True)] == [1, 0, 0, 0]
    assert list_persistence(machine) == [1, 1, 1, 1]
    assert [one for one in namespace.node.gpu_partitions if one[0] == "gpu-0"] == [], "the test partition is gone"

    async def is_untainted() -> bool:
        return not await cards.list_taints("gpu-0")

    await eventually("the card is not tainted, though the object is there", is_untainted)
    after = await cards.until_running(MEMBERS)
    assert before.keys() - after.keys() == leaving
    assert {uid: after[uid] for uid in before if uid in after} == {
        uid: before[uid] for uid in before if uid not in leaving
    }, "the others have their containers, and none has restarted"
    whole = await namespace.resource_class("whole", device="gpu", cut="Whole", minimum={"memory": "70Gi"})
    await namespace.template("whole", pods.exactly("gpu", whole))
    await namespace.create_pods("whole", "first")
    await namespace.wait_running("first")
    assert await cards.list_holders("gpu-0"), "the card gets claims again"
    assert (await cards.until_phase(name, "Returned"))["work"]["state"] == "Done"


@pytest.mark.parametrize(
    ("spec", "reset", "runs"),
    [({"then": "Reset"}, 1, 0), ({"then": "Hook", "hook": "fan"}, 0, 1)],
    ids=["reset", "hook"],
)
async def test_who_has_a_card_open_is_named_and_nothing_is_done_until_it_ends(
    namespace: Namespace,
    cards: Cards,
    reclaimer: Kerf,
    machine: NvidiaMachine,
    tmp_path: Path,
    spec: dict[str, str],
    reset: int,
    runs: int,
) -> None:
    resets, ran = count_resets(machine), tmp_path / "ran"
    ran.touch()
    Hooks(reclaimer.hooks_folder(namespace.node.name)).add("fan", f"echo run >> {ran}")
    with hold(machine, 1) as pid:
        name = await cards.drain("gpu-1", **spec)
        status = await cards.until_phase(name, "Stuck")
        assert f"({pid})" in status["message"]
        assert status["work"]["state"] == "Waiting"
        assert (count_resets(machine), ran.read_text()) == (resets, "")
        assert await cards.list_taints("gpu-1") == {"gpu.kerf.dev/maintenance=idle"}
    await cards.until_phase(name, "Returned")
    assert [now - then for now, then in zip(count_resets(machine), resets, strict=True)] == [0, reset, 0, 0]
    assert ran.read_text() == "run\n" * runs


async def test_the_mig_mode_of_an_ampere_card_is_switched_off_and_on(
    api: Api, namespace: Namespace, cards: Cards
) -> None:
    small = await namespace.resource_class("ampere", device="gpu", profile="1g.5gb")
    await namespace.template("ampere", pods.exactly("gpu", small))
    name = await cards.drain(AMPERE, then="MigOff")
    status = await cards.until_phase(name, "Returned")
    assert status["work"]["message"] == "MIG mode is off"
    await api.delete(KERF, "CardMaintenance", name)

    await namespace.create_pods("ampere", "first")
    name = await cards.drain(AMPERE, then="MigOn")
    status = await cards.until_phase(name, "Returned")
    assert status["work"]["message"] == "MIG mode is on"
    await namespace.wait_running("first")
    assert [one[:2] for one in namespace.node.gpu_partitions if one[0] == AMPERE] == [(AMPERE, "1g.5gb")]
