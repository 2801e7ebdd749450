"""The DRA manager of Kubernetes' kubelet prepares and unprepares claims of Kerf's plugin, and both are disturbed.

A cycle is a claim from its allocation to its deletion. Whatever is killed and lost on the way, the manager succeeds in
the end, its devices are defined, the same at each prepare, and nothing is left of the claim.
"""

import os
import signal
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from random import Random
from typing import Final

import anyio
import pytest

from tests.oracle.kubelet_dra.node import DRIVERS, GRACE_S, STATE, ManagedNode, Pod, managed_node

CASES: Final = int(os.environ.get("KERF_ORACLE_CASES", "20"))
"""Cycles of each test; ``python -m tests.oracle kubelet-dra --cases N`` sets the number."""
SEED: Final = int(os.environ.get("KERF_ORACLE_SEED", "0"))
FAULT_EVERY: Final = max(10, CASES // 50)
"""Cycles from one fault to the next: each takes seconds, and after fifty of them cycles find more than faults."""
WARM_UP: Final = 6
"""Cycles before what is open and kept is counted: by then both drivers have had claims."""
MORE: Final = 3
"""Descriptors that may be open besides at some moment: connections to the API server."""
OF_DATABASE: Final = ("-wal", "-shm")
"""Files of SQLite that are there while a database is open."""
MOST_KEPT_BYTES: Final = 256 * 1024
"""The largest file: a checkpoint of Kerf without records, whose pages SQLite keeps."""
CYCLE_S: Final = 5.0
"""The time limit of a cycle on average."""

pytestmark = [pytest.mark.oracle, pytest.mark.timeout(max(1800, CASES * CYCLE_S))]

Fault = Callable[[ManagedNode], Awaitable[None]]


async def kill_plugin(node: ManagedNode) -> None:
    await node.restart_plugin(signal.SIGKILL)


async def end_plugin(node: ManagedNode) -> None:
    await node.restart_plugin(signal.SIGTERM)


async def kill_manager(node: ManagedNode) -> None:
    await node.manager.end(kill=True)
    await node.start_manager()


async def end_manager(node: ManagedNode) -> None:
    await node.manager.end(kill=False)
    await node.start_manager()


async def lose_registration_sockets(node: ManagedNode) -> None:
    for path in node.registry.iterdir():
        path.unlink()


async def lose_service_sockets(node: ManagedNode) -> None:
    for path in (node.root / "kubelet/plugins").rglob("*.sock"):
        path.unlink()


FAULTS: Final[Mapping[str, tuple[Fault, ...]]] = {
    "nothing": (),
    "restarts of the plugin": (kill_plugin, end_plugin),
    "restarts of the manager": (kill_manager, end_manager),
    "lost sockets": (lose_registration_sockets, lose_service_sockets),
}


async def run_cycle(node: ManagedNode, random: Random, fault: Fault | None) -> None:
    """Take a claim from its allocation to its deletion, with a fault at one of its steps, or beside one."""

    async def step(op: str, pod: Pod) -> tuple[str, ...]:
        if fault is None or op != faulty:
            return tuple(await node.succeed(op, pod))
        async with anyio.create_task_group() as group:
            if is_beside:
                group.start_soon(node.succeed, op, pod)
            await fault(node)
        return tuple(await node.succeed(op, pod))

    faulty, is_beside = random.choice(["prepare", "devices", "unprepare"]), random.random() < 0.5
    async with node.pod_of(random.choice(DRIVERS)) as pod:
        await step("prepare", pod)
        devices = await step("devices", pod)
        assert devices
        assert node.find_undefined(devices) == []
        await node.succeed("prepare", pod)  # of the next container, or by a kubelet that has started again
        assert tuple(await node.succeed("devices", pod)) == devices
        await step("unprepare", pod)
        assert node.find_undefined(devices) == list(devices)


@pytest.mark.parametrize("faults", FAULTS)
async def test_a_kubelet_prepares_and_unprepares_and_nothing_is_left(faults: str, program: Path) -> None:
    random = Random(f"{faults} {SEED}")
    async with managed_node(program) as node:
        for _ in range(WARM_UP):
            await run_cycle(node, random, None)
        files, open_before = node.list_files(), node.count_descriptors()
        for number in range(CASES):
            is_faulty = FAULTS[faults] and number % FAULT_EVERY == 0
            await run_cycle(node, random, random.choice(FAULTS[faults]) if is_faulty else None)
        for _ in range(WARM_UP):  # a process that has started again has opened all that it keeps, too
            await run_cycle(node, random, None)
        more = [after - before for before, after in zip(open_before, node.count_descriptors(), strict=True)]
        assert max(more) <= MORE, f"{more[0]} more files of the plugin are open, and {more[1]} of the manager"
        await node.plugin.end(signal.SIGTERM, GRACE_S)
        kept = node.list_files()
        assert [name for name in kept if not name.endswith(OF_DATABASE)] == [
            name for name in files if not name.endswith(OF_DATABASE)
        ]
        assert kept[STATE] == files[STATE]
        assert all(size <= MOST_KEPT_BYTES for size in kept.values()), kept
        assert node.list_partitions() == []
