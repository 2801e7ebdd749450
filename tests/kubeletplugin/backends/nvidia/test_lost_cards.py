"""NVIDIA cards that go, or whose driver goes, while the plugin runs or while it does not: both look the same."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import anyio
import pytest

from kerf_dra.driver.runtime import metrics
from tests.fakes.claims import DRIVER, claim
from tests.fakes.kubelet import FakeKubelet
from tests.fakes.nvml import NEEDS_COMPILER
from tests.kubeletplugin.backends.nvidia.node import H100, NvidiaNode
from tests.kubeletplugin.backends.nvidia.test_boots import serving
from tests.kubeletplugin.harness import short_directory
from tests.kubeletplugin.wait import until

pytestmark = NEEDS_COMPILER

FIRST, SECOND = "gpu-0-1g-20gb-at-0", "gpu-1"
"""What the two claims have: a partition of one card, and the other card."""
EVICTING = (f"{DRIVER}/unhealthy", "lost", "NoExecute")
UNKNOWN = (f"{DRIVER}/quarantined", "", "NoSchedule")
GONE = frozenset({EVICTING, UNKNOWN})
HEALTHY, UNHEALTHY = 1, 2


class Facts(NamedTuple):
    """What others see of the devices that claims have."""

    taints: dict[str, frozenset[tuple[str, str, str]]]
    """By device; all published ones."""
    health: dict[str, int]
    events: frozenset[str]
    """The reasons of the warnings about the node."""
    unhealthy: float | None
    """What the metric counts."""


def taints(node: NvidiaNode) -> dict[str, frozenset[tuple[str, str, str]]]:
    """Return the taints but what repairs a card: an Xid is reported once, and a plugin that starts then knows none."""
    return {
        device.name: frozenset(
            (taint.key, taint.value, taint.effect) for taint in device.taints if not taint.key.endswith("/repair")
        )
        for device in node.published_devices()
    }


async def read_facts(node: NvidiaNode, kubelet: FakeKubelet) -> Facts:
    async with kubelet.watching_health() as report:
        health = {one.device.device_name: one.health for one in (await report()).devices}
    reasons = frozenset(reason for about, _, reason, _ in node.cluster.reported if about == "Node")
    unhealthy = metrics.REGISTRY.get_sample_value("kerf_unhealthy_devices", {"driver": DRIVER})
    return Facts(taints(node), health, reasons - {"CardFree", "CardsDiscovered"}, unhealthy)


@asynccontextmanager
async def starting(node: NvidiaNode, root: Path) -> AsyncIterator[FakeKubelet]:
    """A new plugin, of which nothing was published or reported yet."""
    node.cluster.published.clear()
    node.cluster.reported.clear()
    async with serving(node, root) as (kubelet, _):
        await until(lambda: bool(node.cluster.published))
        yield kubelet


async def prepare(node: NvidiaNode, kubelet: FakeKubelet) -> None:
    await kubelet.prepare(node.cluster.add(claim("first", FIRST)))
    await kubelet.prepare(node.cluster.add(claim("second", SECOND)))


def drop(node: NvidiaNode) -> None:
    node.machine.drop_card(0)


def drop_all(node: NvidiaNode) -> None:
    node.machine.drop_card(0)
    node.machine.drop_card(1)


def unload(node: NvidiaNode) -> None:
    node.machine.unload_driver()


def restore(node: NvidiaNode) -> None:
    for card in range(2):
        node.machine.restore_card(card)


def reload(node: NvidiaNode) -> None:
    node.machine.reload_driver()


@pytest.mark.parametrize(
    ("fault", "lost", "repair"),
    [(drop, {FIRST}, restore), (drop_all, {FIRST, SECOND}, restore), (unload, {FIRST, SECOND}, reload)],
    ids=["a card fell off the bus", "all cards fell off the bus", "no driver is loaded"],
)
async def test_what_befalls_cards_while_no_plugin_runs_is_shown_as_if_one_had_run(
    fault: Callable[[NvidiaNode], None], lost: set[str], repair: Callable[[NvidiaNode], None]
) -> None:
    """The devices were withdrawn without a taint, and reported to the kubelet as healthy."""

    def is_shown() -> bool:
        found = taints(node)
        return {name for name in (FIRST, SECOND) if found.get(name) == GONE} == lost

    with short_directory() as root:
        node = NvidiaNode(root, H100, H100)
        async with starting(node, root) as kubelet:
            await prepare(node, kubelet)
            fault(node)
            await until(is_shown)
            while_running = await read_facts(node, kubelet)
        assert while_running.health == {name: UNHEALTHY if name in lost else HEALTHY for name in (FIRST, SECOND)}
        for _ in range(3):
            async with starting(node, root) as kubelet:
                await until(is_shown)
                assert await read_facts(node, kubelet) == while_running
        async with starting(node, root) as kubelet:
            repair(node)
            await until(lambda: FIRST in taints(node) and not any(taints(node).values()))
            # A driver that is loaded again has lost all partitions, until the plugin has made them again.
            while (facts := await read_facts(node, kubelet)).health[FIRST] != HEALTHY:  # noqa: ASYNC110  (as `until`)
                await anyio.sleep(0.01)
            assert (facts.health, facts.unhealthy) == ({FIRST: HEALTHY, SECOND: HEALTHY}, 0)


async def test_without_the_drivers_library_at_the_start_held_cards_are_lost() -> None:
    with short_directory() as root:
        node = NvidiaNode(root, H100, H100)
        async with starting(node, root) as kubelet:
            await prepare(node, kubelet)
        (library,) = node.machine.driver_root.rglob("libnvidia-ml.so.1")
        library.rename(aside := library.with_name("aside"))
        async with starting(node, root) as kubelet:
            await until(lambda: taints(node).get(FIRST) == taints(node).get(SECOND) == GONE)
            assert (await read_facts(node, kubelet)).health == {FIRST: UNHEALTHY, SECOND: UNHEALTHY}
            aside.rename(library)
            await until(lambda: FIRST in taints(node) and not any(taints(node).values()))
