"""A hook of the node runs once for a free card of two, and what it is told is the card; one that cannot be run, or that
fails, keeps the card from pods until ``kerf undrain``. The pods of the other card notice nothing.
"""

import os
import signal
import sys
from pathlib import Path
from typing import Final, NamedTuple

import anyio
import pytest

from tests.e2e import pods
from tests.e2e.card_drains import Cards, Hooks, deployment
from tests.e2e.hardware import BOTH_BACKENDS
from tests.e2e.namespace import Namespace
from tests.e2e.wait import eventually
from tools.realcluster.api import Api
from tools.realcluster.cluster import Cluster
from tools.realcluster.kerf import Hardware, Kerf

HARDWARE = Hardware(cards=[{"kind": "gpu", "model": "h100-80gb-sxm", "count": 2}], options={})

pytestmark = BOTH_BACKENDS

DRAINED: Final = "gpu-0"
MEMBERS: Final = 3
"""As many pods as need two cards, which have two partitions each."""
HALF: Final = {"device": "gpu", "profile": "3g.40gb"}
WITHHELD: Final = {"gpu.kerf.dev/maintenance=idle"}
WHAT_TO_DO: Final = "the card stays withheld: look at it, then end this maintenance (kerf undrain)"
TIMEOUT: Final = "--timeout=300"
"""Longer than any drain here takes, so that what ends a wait is the card."""


class Answer(NamedTuple):
    """What a command has answered."""

    code: int
    text: str
    """Its output, as one line."""


@pytest.fixture
def hooks(kerf: Kerf, namespace: Namespace) -> Hooks:
    return Hooks(kerf.hooks_folder(namespace.node.name))


async def run_kerf(cluster: Cluster, *arguments: str) -> Answer:
    command = [sys.executable, "-m", "kerf_dra.driver.cli", *arguments, f"--kubeconfig={cluster.kubeconfig}"]
    done = await anyio.run_process(command, check=False)
    return Answer(done.returncode, " ".join(done.stdout.decode().split()) + done.stderr.decode())


async def until_returned(cards: Cards) -> None:
    async def is_untainted() -> bool:
        return not await cards.list_taints(DRAINED)

    await eventually(f"{DRAINED} is not tainted", is_untainted, but=lambda: cards.list_taints(DRAINED))


async def list_events(api: Api, reason: str) -> list[str]:
    events = await api.list("v1", "Event", "default")
    return [one["message"] for one in events if one["reason"] == reason]


async def test_a_hook_runs_once_with_the_card_as_its_environment_and_pods_of_the_other_card_have_not_restarted(
    api: Api, cluster: Cluster, namespace: Namespace, cards: Cards, hooks: Hooks, tmp_path: Path
) -> None:
    half = await namespace.resource_class("half", **HALF)
    await namespace.template("half", pods.exactly("gpu", half))
    await namespace.apply(deployment("web", MEMBERS, pods.pod("any", {"devices": pods.by_template("half")})))
    before = await cards.until_running(MEMBERS)
    leaving = await cards.list_holders(DRAINED)
    assert 0 < len(leaving) < MEMBERS, "the card and the other one are in use"
    [device, *_] = await cards.list_devices(DRAINED)
    uuid = device["attributes"]["uuid"]["string"]
    address = device["attributes"]["resource.kubernetes.io/pciBusID"]["string"]
    seen = tmp_path / "seen"
    describe_itself = 'echo "$# $(id -u) $PWD"; tr "\\0" "\\n" < /proc/$$/environ | sort'
    hooks.add("update-vbios", f'{{ {describe_itself}; }} >> {seen}; echo begun; echo "$KERF_CARD done"')

    node = namespace.node.name
    said = await run_kerf(cluster, "drain", f"{node}/{DRAINED}", "--then=hook=update-vbios", "--wait", TIMEOUT)
    assert said.code == 0, said.text
    assert "Its node does hook update-vbios then, verifies the card and gives it back" in said.text
    message = "hook update-vbios: ended with exit code 0: begun | gpu-0 done"
    assert f"Returned: {message}" in said.text
    assert seen.read_text().splitlines() == [
        f"0 {os.getuid()} /",
        f"KERF_CARD={DRAINED}",
        f"KERF_CARD_PCI_ADDRESS={address}",
        f"KERF_CARD_UUID={uuid}",
        f"KERF_NODE={node}",
        "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    ], "it has run once, and knows nothing else"
    await until_returned(cards)
    assert any(message in one for one in await list_events(api, "CardReturned"))
    after = await cards.until_running(MEMBERS)
    assert before.keys() - after.keys() == leaving
    assert {uid: after[uid] for uid in before if uid in after} == {
        uid: before[uid] for uid in before if uid not in leaving
    }, "the others have their containers, and none has restarted"
    assert await cards.list_holders(DRAINED), "the card gets claims again"
    assert len(seen.read_text().splitlines()) == 6, "the object is still there, and the hook does not run again"


async def test_a_hook_that_fails_keeps_the_card_withheld_and_says_why_and_what_to_do(
    api: Api, cluster: Cluster, namespace: Namespace, cards: Cards, hooks: Hooks, tmp_path: Path
) -> None:
    half = await namespace.resource_class("half", **HALF)
    await namespace.template("half", pods.exactly("gpu", half))
    runs = tmp_path / "runs"
    hooks.add("broken", f"echo run >> {runs}; echo looking; echo no firmware for this board >&2; exit 1")
    place = f"{namespace.node.name}/{DRAINED}"

    said = await run_kerf(cluster, "drain", place, "--then=hook=broken", "--wait", TIMEOUT)
    reason = f"hook broken: ended with exit code 1: looking | no firmware for this board; {WHAT_TO_DO}"
    assert said.code == 1
    assert f"Stuck: {reason}" in said.text
    assert any(reason in one for one in await list_events(api, "CardMaintenanceFailed"))
    assert await cards.list_taints(DRAINED) == WITHHELD
    await namespace.create_pods("half", "other")
    await namespace.wait_running("other")
    assert await cards.list_holders(DRAINED) == set(), "the other card serves pods, this one does not"
    assert runs.read_text() == "run\n"

    assert (await run_kerf(cluster, "undrain", place)).code == 0
    await until_returned(cards)


@pytest.mark.parametrize("ending", ["stop_plugin", "crash_plugin"])
async def test_a_hook_that_was_interrupted_does_not_run_again(
    cluster: Cluster, namespace: Namespace, cards: Cards, hooks: Hooks, kerf: Kerf, tmp_path: Path, ending: str
) -> None:
    runs, node = tmp_path / "runs", namespace.node.name
    hooks.add("slow", f"echo $$ >> {runs}; exec sleep 1000000")
    name = await cards.drain(DRAINED, then="Hook", hook="slow")
    await cards.until_phase(name, "Acting")

    async def has_begun() -> bool:
        return runs.exists() and bool(runs.read_text())

    await eventually("the hook has begun", has_begun)
    await getattr(kerf, ending)(node)
    [process] = map(int, runs.read_text().split())
    os.kill(process, signal.SIGKILL)  # as a container's end does
    kerf.start_plugin_again(node)
    await kerf.wait_plugin_ready(node)
    status = await cards.until_phase(name, "Stuck")
    assert status["message"] == (
        f"the plugin was ended in the middle, and does not begin again: see what was done; {WHAT_TO_DO}"
    )
    assert await cards.list_taints(DRAINED) == WITHHELD
    assert len(runs.read_text().split()) == 1
    assert (await run_kerf(cluster, "undrain", f"{node}/{DRAINED}")).code == 0
    await until_returned(cards)


@pytest.mark.parametrize(
    ("mode", "said"),
    [
        (None, "there is no hook {path}: put it there, with root as its owner"),
        (0o644, "hook {path} is no executable file: chmod 0755, and no link"),
        (0o757, "others than root may write hook {path}: chown root, chmod go-w"),
    ],
    ids=["missing", "not executable", "writable by others"],
)
async def test_a_hook_that_cannot_be_run_is_named_with_what_to_do_and_runs_once_that_is_done(
    cluster: Cluster,
    namespace: Namespace,
    cards: Cards,
    hooks: Hooks,
    tmp_path: Path,
    mode: int | None,
    said: str,
) -> None:
    runs = tmp_path / "runs"
    script = f"echo run >> {runs}"
    path = hooks.add("flash", script, mode or 0o755)
    if mode is None:
        path.unlink()
    place = f"{namespace.node.name}/{DRAINED}"
    answer = await run_kerf(cluster, "drain", place, "--then=hook=flash", "--wait", TIMEOUT)
    assert answer.code == 1
    assert f"Stuck: {said.format(path=path)}" in answer.text
    assert await cards.list_taints(DRAINED) == WITHHELD
    assert not runs.exists()

    hooks.add("flash", script)
    await until_returned(cards)
    assert runs.read_text() == "run\n"
    assert (await run_kerf(cluster, "undrain", place)).code == 0
