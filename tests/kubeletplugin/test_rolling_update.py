"""A new plugin takes over from the old one while the kubelet goes on calling (docs/rolling-update.md)."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import anyio
import grpc.aio
from anyio.abc import TaskStatus

from kerf_dra.api._generated.registration_v1 import api_pb2 as registration
from kerf_dra.api.model.names import ClaimRef
from kerf_dra.driver.kubeletplugin.claims.checkpoint.checkpoint import open_checkpoint
from kerf_dra.driver.kubeletplugin.handover import POLL_S
from tests.fakes.claims import claim
from tests.fakes.kubelet import ClaimError
from tests.kubeletplugin.harness import Machine, machine
from tests.kubeletplugin.wait import until

SLICE = "gpu-0-1g-1gb-at-0"
NEXT_SLICE = "gpu-0-1g-1gb-at-1"


def endpoint(node: Machine, name: str) -> registration.PluginInfo:
    """Where the kubelet finds the instance."""
    assert node.kubelet.info is not None
    path = node.settings.plugin_dir / f"dra-{name}.sock"
    return registration.PluginInfo(
        type="DRAPlugin",
        name=node.kubelet.info.name,
        endpoint=str(path),
        supported_versions=node.kubelet.info.supported_versions,
    )


@asynccontextmanager
async def instance(node: Machine, name: str, **settings: Any) -> AsyncIterator[Machine]:
    """The plugin of the pod ``name``, registered."""
    own = replace(node, settings=replace(node.settings, instance=name, **settings))
    async with own.plugin():
        yield own


async def test_the_kubelet_is_answered_before_during_and_after_the_hand_over() -> None:
    with machine() as node:
        held, more = node.cluster.add(claim("training", SLICE)), node.cluster.add(claim("more", NEXT_SLICE))
        async with instance(node, "old"):
            before = await node.kubelet.prepare(held)
            async with instance(node, "new"):
                assert node.kubelet.info is not None
                assert node.kubelet.info.endpoint.endswith("dra-new.sock"), "registered while the old one works"
                assert await node.kubelet.prepare(held) == before
                await node.kubelet.prepare(more)
                assert node.backend.calls == [("prepare", SLICE), ("prepare", NEXT_SLICE)]
                await node.kubelet.unprepare(held)
                await node.kubelet.unprepare(more)
        assert (node.backend.made, node.cdi_files) == ({}, [])


async def test_only_one_instance_publishes_at_a_time() -> None:
    with machine() as node:
        held = node.cluster.add(claim("training", SLICE))
        async with instance(node, "old"):
            await until(lambda: node.cluster.running == 1)
            async with instance(node, "new"):
                await node.kubelet.prepare(held)
                await until(lambda: node.cluster.runs == 2)
            assert node.cluster.most_running == 1


async def test_work_that_the_old_instance_has_begun_ends_there_and_the_new_one_finds_it() -> None:
    with machine() as node:
        held = node.cluster.add(claim("training", SLICE))
        gate = node.backend.gate("prepare", SLICE)
        answers: list[object] = []

        async def prepare() -> None:
            answers.append(await node.kubelet.prepare(held))

        async with instance(node, "old"), anyio.create_task_group() as calls:
            calls.start_soon(prepare)
            await gate.reached.wait()
            async with instance(node, "new"):
                calls.start_soon(prepare)
                await anyio.sleep(2 * POLL_S)  # two looks of those who wait for the lock
                assert answers == [], "both calls wait"
                gate.opened.set()
                await until(lambda: len(answers) == 2)
        assert answers[0] == answers[1]
        assert node.backend.calls == [("prepare", SLICE)]


async def test_when_the_new_instance_dies_the_old_one_works_again() -> None:
    with machine() as node:
        held, more = node.cluster.add(claim("training", SLICE)), node.cluster.add(claim("more", NEXT_SLICE))
        async with instance(node, "old"):
            async with instance(node, "new"):
                await node.kubelet.prepare(held)
            node.kubelet.info = endpoint(node, "old")
            await node.kubelet.prepare(more)
            await node.kubelet.unprepare(held)
        with open_checkpoint(node.settings.state, boot_id=node.boot_id) as checkpoint:
            assert set(checkpoint.records) == {more.uid}


async def test_a_call_that_waits_at_an_instance_that_ends_fails_so_that_the_kubelet_tries_the_other() -> None:
    with machine() as node:
        held = node.cluster.add(claim("training", SLICE))
        failed: list[Exception] = []

        async def prepare() -> None:
            try:
                await node.kubelet.prepare(held)
            except (ClaimError, grpc.aio.AioRpcError) as error:
                failed.append(error)

        may_end = anyio.Event()

        async def run_new(*, task_status: TaskStatus[None]) -> None:
            async with instance(node, "new"):
                task_status.started()
                await may_end.wait()

        async with anyio.create_task_group() as tasks:
            await tasks.start(run_new)
            async with instance(node, "newest"):
                await until(lambda: node.cluster.runs == 2)
                node.kubelet.info = endpoint(node, "new")
                tasks.start_soon(prepare)
                await anyio.sleep(POLL_S)
                assert not failed
                may_end.set()
                await until(lambda: bool(failed))  # before the newest ends, too: the other one would take over
        (error,) = failed
        assert "its successor" in str(error)


async def test_a_new_instance_is_ready_when_it_has_taken_over() -> None:
    with machine() as node:
        held = node.cluster.add(claim("training", SLICE))
        gate = node.backend.gate("prepare", SLICE)
        async with instance(node, "old"), anyio.create_task_group() as calls:
            calls.start_soon(node.kubelet.prepare, held)
            await gate.reached.wait()
            async with instance(node, "new") as new:
                check, cards = new.checks["handover"], new.checks["cards"]
                assert (check() or "").startswith("process ")
                assert cards() is None, "it knows of none yet"
                gate.opened.set()
                await until(lambda: check() is None)


async def test_work_in_flight_gets_the_time_of_a_hand_over_and_calls_that_come_meanwhile_wait() -> None:
    """The end of a process cuts work off after seconds; a successor waits as long as a load of an FPGA takes."""
    with machine() as node:
        held, more = node.cluster.add(claim("training", SLICE)), node.cluster.add(claim("more", NEXT_SLICE))
        gate = node.backend.gate("prepare", SLICE)
        answered: list[str] = []

        async def prepare(wanted: ClaimRef) -> None:
            await node.kubelet.prepare(wanted)
            answered.append(wanted.name)

        async with instance(node, "old", shutdown_grace_s=0.01), anyio.create_task_group() as calls:
            calls.start_soon(prepare, held)
            await gate.reached.wait()
            async with instance(node, "new", shutdown_grace_s=0.01):
                await anyio.sleep(2 * POLL_S)  # the old one has seen that another one waits, and drains its work
                node.kubelet.info = endpoint(node, "old")
                calls.start_soon(prepare, more)
                await anyio.sleep(POLL_S)
                assert answered == []
                gate.opened.set()
                await until(lambda: answered == ["training"])
                await until(lambda: node.cluster.runs == 2)
            await until(lambda: answered == ["training", "more"])
        assert node.backend.calls == [("prepare", SLICE), ("prepare", NEXT_SLICE)]
