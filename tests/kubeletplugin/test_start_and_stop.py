"""How the plugin starts and ends: what it refuses, what it finds from before, in which order it goes."""

import asyncio
import os
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import anyio
import grpc.aio
import pytest

from kerf_dra.api.checkpoint.v1 import CheckpointError
from kerf_dra.api.core.v1 import Node
from kerf_dra.api.errors import KerfError
from kerf_dra.api.model.devices import ResourceSlice
from kerf_dra.api.model.metadata import ObjectMeta
from kerf_dra.api.model.names import ClaimRef, DriverName
from kerf_dra.api.model.prepared import ClaimState
from kerf_dra.driver.families.gpu import GPU
from kerf_dra.driver.kube.http.client import Client
from kerf_dra.driver.kube.http.errors import ForbiddenError, NotFoundError, UnreachableError
from kerf_dra.driver.kubeletplugin.app import ClusterConnector
from kerf_dra.driver.kubeletplugin.backends.base import CardSurvey, HardwareBusyError
from kerf_dra.driver.kubeletplugin.claims.checkpoint.checkpoint import FILE_NAME, open_checkpoint
from kerf_dra.driver.kubeletplugin.claims.record_lifecycle import StoppingError
from kerf_dra.driver.kubeletplugin.grpc.server import SocketError
from kerf_dra.driver.kubeletplugin.handover import LOCK, AlreadyRunningError
from kerf_dra.driver.kubeletplugin.instance import SocketRemovedError
from kerf_dra.driver.partitions.geometry import Card
from kerf_dra.driver.partitions.slice_limits import SliceLayout
from kerf_dra.driver.runtime import metrics
from kerf_dra.driver.runtime.backoff import Backoff
from kerf_dra.driver.runtime.file_lock import is_held
from tests.fakes.claims import NODE, claim
from tests.fakes.cluster import FakeCluster
from tests.fakes.hardware import FakeBackend
from tests.fakes.kubelet import ClaimError
from tests.kubeletplugin.claim_fixture import plugin_core
from tests.kubeletplugin.harness import LONGEST_S, Machine, machine
from tests.kubeletplugin.wait import until

SLICE = "gpu-0-1g-1gb-at-0"
SECOND_SLICE = "gpu-0-1g-1gb-at-1"


async def fails_to_start(node: Machine, error: type[KerfError]) -> str:
    """Return the message with which the plugin refuses to start; it has not opened any socket."""
    with pytest.raises(ExceptionGroup) as raised:
        async with node.plugin(register=False):
            pass
    found: BaseException = raised.value
    while isinstance(found, BaseExceptionGroup):
        (found,) = found.exceptions
    assert isinstance(found, error), repr(found)
    assert node.kubelet.sockets == []
    return str(found)


async def test_a_socket_path_that_is_too_long_is_refused_with_its_length_and_the_flag_to_shorten_it() -> None:
    with machine() as node:
        root = node.root / ("x" * 80)
        node.settings = replace(node.settings, kubelet_root=root)
        path = root / "plugins/gpu.kerf.dev/dra.sock"
        message = await fails_to_start(node, SocketError)
        assert message == (
            f"socket path {path} has {len(str(path))} bytes, the limit is 107: shorten it with --kubelet-root"
        )


async def test_the_longest_path_that_is_allowed_works() -> None:
    with machine() as node:
        fill = 107 - len(str(node.root / "/plugins_registry/gpu.kerf.dev-reg.sock")) - len(str(node.root))
        node.kubelet.root = node.root / ("x" * (fill - 1))
        (node.kubelet.root / "plugins_registry").mkdir(parents=True)
        node.settings = replace(node.settings, kubelet_root=node.kubelet.root)
        assert len(str(node.settings.registration_socket)) == 107
        async with node.plugin():
            pass


async def test_a_second_instance_is_refused_and_the_first_serves_on() -> None:
    with machine() as node:
        held = node.cluster.add(claim("training", SLICE))
        async with node.plugin():
            with pytest.raises(ExceptionGroup) as raised:
                async with node.plugin(register=False):
                    pass
            assert raised.group_contains(
                AlreadyRunningError, match=f"process {os.getpid()}\\) holds .*/lock", depth=None
            )
            await node.kubelet.prepare(held)


async def test_an_unreadable_checkpoint_is_refused_with_its_path() -> None:
    with machine() as node:
        async with node.plugin():
            pass
        path = node.settings.state / FILE_NAME
        path.write_bytes(b"x" * 100)
        message = await fails_to_start(node, CheckpointError)
        assert message.startswith(f"{path}: unreadable: file is not a database; restore the file")


async def test_a_state_directory_that_was_emptied_is_no_new_node_while_claims_have_cdi_files() -> None:
    with machine() as node:
        async with node.plugin():
            await node.kubelet.prepare(node.cluster.add(claim("training", SLICE)))
        for path in node.settings.state.iterdir():
            path.unlink()
        assert "it is missing though 1 claims are prepared" in await fails_to_start(node, CheckpointError)


async def test_prepared_claims_are_answered_from_the_record_after_a_restart() -> None:
    with machine() as node:
        held = node.cluster.add(claim("training", SLICE))
        async with node.plugin():
            before = await node.kubelet.prepare(held)
        calls = list(node.backend.calls)
        async with node.plugin():
            assert await node.kubelet.prepare(held) == before
            assert node.backend.calls == calls
            await node.kubelet.unprepare(held)
        assert (node.cdi_files, node.backend.made) == ([], {})


async def test_after_a_reboot_prepare_makes_everything_anew() -> None:
    with machine() as node:
        held = node.cluster.add(claim("training", SLICE))
        async with node.plugin():
            await node.kubelet.prepare(held)
        node.boot_id = "boot-2"
        node.backend.reboot()
        node.store.remove(node.cdi_files[0])
        async with node.plugin():
            await node.kubelet.prepare(held)
            assert set(node.backend.made) == {SLICE}
            assert len(node.cdi_files) == 1


async def test_after_a_reboot_a_device_still_belongs_to_its_claim() -> None:
    with machine() as node:
        held = node.cluster.add(claim("training", SLICE))
        rival = node.cluster.add(claim("rival", SLICE))
        async with node.plugin():
            await node.kubelet.prepare(held)
        node.boot_id = "boot-2"
        node.backend.reboot()
        async with node.plugin():
            with pytest.raises(ClaimError, match="two claims for one exclusive device"):
                await node.kubelet.prepare(rival)


async def begin_claim(node: Machine) -> ClaimRef:
    """Have a plugin prepare one device of two of a claim, which it can neither finish nor take back."""
    held = node.cluster.add(claim("training", SLICE, "gpu-1"))
    node.backend.fail("prepare", "gpu-1", HardwareBusyError("busy"))
    node.backend.fail("unprepare", SLICE, HardwareBusyError("busy"))
    async with node.plugin():
        with pytest.raises(ClaimError):
            await node.kubelet.prepare(held)
    return held


async def test_a_claim_begun_and_gone_is_taken_back_at_the_start() -> None:
    with machine() as node:
        held = await begin_claim(node)
        assert node.backend.made
        node.cluster.remove(held)
        async with node.plugin():
            await until(lambda: not node.backend.made)
            await until(lambda: metrics.REGISTRY.get_sample_value("kerf_claim_records", {"driver": GPU.driver}) == 0)
        with open_checkpoint(node.settings.state, boot_id=node.boot_id) as checkpoint:
            assert not checkpoint.records


async def test_a_claim_begun_and_still_there_waits_for_the_kubelet() -> None:
    with machine() as node:
        held = await begin_claim(node)
        async with node.plugin():
            await node.kubelet.prepare(held)
            assert len(node.backend.made) == 2
            assert len(node.cdi_files) == 1


async def test_a_cdi_file_without_a_record_is_kept_and_told_and_goes_when_the_kubelet_unprepares_the_claim() -> None:
    """The record was lost: it is there before the file and after it, and a pod may run with what the file names."""
    with machine() as node:
        held = node.cluster.add(claim("training", SLICE))
        async with node.plugin():
            await node.kubelet.prepare(held)
        directory = node.settings.cdi_dir
        for name in (
            "k8s.gpu.kerf.dev-claim_gone.json",
            "k8s.gpu.kerf.dev-other_gone.json",
            "k8s.nic.example.com-claim_x.json",
        ):
            (directory / name).write_text("{}")
        others = ["k8s.gpu.kerf.dev-other_gone", "k8s.nic.example.com-claim_x"]
        ours = ["k8s.gpu.kerf.dev-claim_gone", "k8s.gpu.kerf.dev-claim_uid-of-training"]
        async with node.plugin():
            assert node.cdi_files == [*ours, *others]
            [(about, reason, message)] = [
                (kind, reason, message) for kind, _, reason, message in node.cluster.reported if reason == "RecordLost"
            ]
            assert (about, reason) == ("Node", "RecordLost")
            assert "the claim with UID gone is lost: " in message
            await node.kubelet.unprepare(ClaimRef("default", "gone", "gone"))
            assert node.cdi_files == [*ours[1:], *others]


async def test_the_kubelet_forgets_the_plugin_before_the_plugin_stops_serving() -> None:
    with machine() as node:
        registered_at_the_end: list[bool] = []

        async def watch(*, task_status: Any) -> None:
            async with node.kubelet.watching_health() as report:
                await report()
                task_status.started()
                while await report() is not grpc.aio.EOF:
                    pass
                registered_at_the_end.append(bool(node.kubelet.sockets))

        async with anyio.create_task_group() as kubelet, node.plugin():
            await kubelet.start(watch)
        assert registered_at_the_end == [False]
        assert not node.settings.dra_socket.exists()


async def test_hardware_work_in_flight_ends_before_the_plugin_does() -> None:
    with machine(shutdown_grace_s=60) as node:
        held = node.cluster.add(claim("training", SLICE))
        gate = node.backend.gate("prepare", SLICE)
        async with anyio.create_task_group() as calls, node.plugin():
            calls.start_soon(_ignoring_errors, node.kubelet.prepare, held)
            await gate.reached.wait()
            calls.start_soon(_open_when_unregistered, node, gate)
        with open_checkpoint(node.settings.state, boot_id=node.boot_id) as checkpoint:
            assert checkpoint.records[held.uid].state is ClaimState.PREPARED
        assert len(node.cdi_files) == 1
        assert node.ended_with_lock_held == []


async def test_a_survey_in_flight_ends_before_the_plugin_does_and_costs_no_process() -> None:
    with machine(shutdown_grace_s=60, survey_interval_s=0.05) as node:
        survey, reached, answered = node.backend.survey, anyio.Event(), threading.Event()
        loop = asyncio.get_running_loop()

        def hang(card_uuid: str) -> CardSurvey:
            loop.call_soon_threadsafe(reached.set)
            answered.wait(LONGEST_S)
            return survey(card_uuid)

        def answer_later(rounds: int) -> None:
            if rounds:
                loop.call_soon(answer_later, rounds - 1)
            else:
                answered.set()

        def close() -> None:
            FakeBackend.close(node.backend)
            loop.call_soon_threadsafe(answer_later, 100)

        async with node.plugin():
            node.backend.close = close  # type: ignore[method-assign]
            node.backend.survey = hang  # type: ignore[method-assign]
            await reached.wait()
        assert node.ended_with_lock_held == []


async def test_a_plugin_that_is_stopped_while_it_looks_for_its_cards_ends() -> None:
    with machine() as node:
        discover, reached, answered = node.backend.discover, anyio.Event(), threading.Event()
        loop = asyncio.get_running_loop()

        def hang() -> Sequence[Card]:
            loop.call_soon_threadsafe(reached.set)
            answered.wait(LONGEST_S)
            return discover()

        async def run() -> None:
            async with node.plugin():
                raise AssertionError("it has started")

        node.backend.discover = hang  # type: ignore[method-assign]
        async with anyio.create_task_group() as group:
            group.start_soon(run)
            await reached.wait()
            group.cancel_scope.cancel()
            answered.set()
        assert not is_held(node.settings.state / LOCK), "another one may start"


async def test_hardware_work_that_does_not_end_in_time_is_left_to_the_next_start() -> None:
    with machine(shutdown_grace_s=0.01) as node:
        held = node.cluster.add(claim("training", SLICE))
        gate = node.backend.gate("prepare", SLICE)
        async with anyio.create_task_group() as calls, node.plugin():
            calls.start_soon(_ignoring_errors, node.kubelet.prepare, held)
            await gate.reached.wait()
        with open_checkpoint(node.settings.state, boot_id=node.boot_id) as checkpoint:
            assert checkpoint.records[held.uid].state is ClaimState.STARTED
        assert node.ended_with_lock_held == [True], "the call may yet change the card: nobody else may start before"
        gate.opened.set()
        async with node.plugin():
            await node.kubelet.prepare(held)
            assert set(node.backend.made) == {SLICE}


async def test_a_claim_that_comes_when_the_plugin_stops_is_left_to_its_successor(tmp_path: Path) -> None:
    async with plugin_core(tmp_path, FakeCluster()) as core:
        await core.lifecycle.drain(0)
        with pytest.raises(StoppingError, match="the kubelet's next try will find its successor"):
            await core.preparer.prepare_claim(core.cluster.add(claim("training", SLICE)))
        assert core.checkpoint.records == {}


async def test_a_plugin_whose_dra_socket_was_removed_ends_so_that_it_is_started_again() -> None:
    with machine() as node:

        async def lose_socket() -> None:
            async with node.plugin():
                node.settings.dra_socket.unlink()
                await anyio.sleep_forever()

        with pytest.raises(ExceptionGroup) as raised:
            await lose_socket()
        assert raised.group_contains(SocketRemovedError, match=r"dra\.sock was removed", depth=None)


async def test_a_backend_that_cannot_discover_does_not_keep_the_plugin_from_unpreparing() -> None:
    with machine() as node:
        held = node.cluster.add(claim("training", SLICE))
        async with node.plugin():
            await node.kubelet.prepare(held)
        node.backend.discovery_error = RuntimeError("no driver loaded")
        async with node.plugin():
            await node.kubelet.prepare(held)
            with pytest.raises(ClaimError, match="this node does not have it"):
                await node.kubelet.prepare(node.cluster.add(claim("other", SECOND_SLICE)))
            await node.kubelet.unprepare(held)
        assert node.backend.made == {}


class LateServer:
    """A client of an API server that answers from the third call on."""

    def __init__(self) -> None:
        self.calls = 0

    async def get_json(self, path: str, *, has: str = "") -> dict[str, Any]:
        self.calls += 1
        if self.calls <= 2:
            raise UnreachableError(f"GET {path}", "connection refused")
        versions = [{"version": "v1"}]
        return {"major": "1", "minor": "34", "versions": versions, "resources": []}

    async def find(self, kind: Any, name: str) -> Node:
        return Node(metadata=ObjectMeta(name=name, uid="uid-of-node"))

    async def list(self, kind: Any) -> Any:
        raise NotFoundError(f"GET {kind.plural}", 404, "NotFound", "no such kind")

    async def create(self, kind: Any, value: ResourceSlice, *, dry_run: bool) -> ResourceSlice:
        assert dry_run, "nothing is stored yet"
        raise ForbiddenError(f"POST {kind.plural}", 403, "Forbidden", "a webhook does not support dry run")


async def test_the_plugin_waits_for_an_api_server_that_is_not_there_yet(caplog: pytest.LogCaptureFixture) -> None:
    backoff = Backoff(first_s=0.001, factor=1, limit_s=0.001, jitter=0)
    with machine(retry=backoff) as node:
        cluster = await ClusterConnector(cast("Client", LateServer()), NODE).connect(node.settings)
    assert "no shared devices are published until ResourceClasses can be watched" in caplog.text
    assert "cannot find out which fields of slices the API server keeps" in caplog.text
    assert cluster.target.keeps_counters, "until a loss is seen"
    assert cluster.target.layout is SliceLayout.COMBINED
    assert caplog.text.count("cannot reach the API server yet") == 2


async def test_two_drivers_share_a_node() -> None:
    with machine() as node:
        other = replace(node.settings, family=replace(GPU, driver=DriverName("other.kerf.dev")))
        assert {other.dra_socket, other.registration_socket, other.state}.isdisjoint(
            {node.settings.dra_socket, node.settings.registration_socket, node.settings.state}
        )


def test_instances_of_a_rolling_update_have_sockets_of_their_own() -> None:
    with machine(instance="1b9d6bcd") as node:
        assert node.settings.dra_socket.name == "dra-1b9d6bcd.sock"
        assert node.settings.registration_socket.name == "gpu.kerf.dev-1b9d6bcd-reg.sock"


async def _ignoring_errors(call: Any, *arguments: Any) -> None:
    try:
        await call(*arguments)
    except Exception:
        return


async def _open_when_unregistered(node: Machine, gate: Any) -> None:
    await until(lambda: not node.kubelet.sockets)
    gate.opened.set()


async def test_files_that_were_removed_while_no_plugin_ran_are_there_before_it_registers() -> None:
    with machine() as node:
        held = node.cluster.add(claim("training", SLICE))
        async with node.plugin():
            await node.kubelet.prepare(held)
            written = node.cdi_spec(held.uid)
        for name in node.cdi_files:
            node.store.remove(name)
        async with node.plugin(register=False):
            assert node.cdi_spec(held.uid) == written
