"""The rows for which the driver is a process that the test starts, kills and starts again."""

import json
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import anyio
import pytest

from kerf_dra.api.core.v1 import NODES, Node
from kerf_dra.api.model.metadata import ObjectMeta
from kerf_dra.driver.kube.discovery import discover
from kerf_dra.driver.kube.http.client import Client
from kerf_dra.driver.kube.http.credentials import Access
from kerf_dra.driver.local.apiserver import ApiServer
from kerf_dra.driver.sanity import restart_rows
from kerf_dra.driver.sanity.allocated_claims import AllocatedClaims
from kerf_dra.driver.sanity.driver_process import DriverProcess, ProcessError
from kerf_dra.driver.sanity.driver_under_test import DriverUnderTest
from kerf_dra.driver.sanity.rows import Outcome, RowResult
from kerf_dra.driver.sanity.run import run_rows, select_rows
from tests.kubeletplugin.harness import short_directory
from tests.sanity.toy_driver import DRIVER, NODE

IDS = [row.id for row in restart_rows.ROWS]


@asynccontextmanager
async def cluster_of(command: Sequence[str]) -> AsyncIterator[DriverUnderTest]:
    """A driver on a cluster of its own, which ``command`` starts; ``ROOT`` in it is its folder."""
    server = ApiServer()
    with short_directory() as root:
        async with anyio.create_task_group() as group:
            await group.start(server.serve)
            (root / "kubeconfig").write_text(json.dumps(server.kubeconfig()))
            async with Client(Access(server=server.url), user_agent="test") as client:
                await client.create(NODES, Node(metadata=ObjectMeta(name=NODE)))
                claims = AllocatedClaims(client, await discover(client), driver=DRIVER, node=NODE, namespace="default")
                process = DriverProcess([str(root) if part == "ROOT" else part for part in command])
                yield DriverUnderTest(root / "toy-reg.sock", [root / "cdi"], claims, process)
            group.cancel_scope.cancel()


def toy(fault: str = "") -> Sequence[str]:
    return (sys.executable, "-m", "tests.sanity.toy_process", "ROOT", fault)


async def run(fault: str, rows: Sequence[str]) -> list[RowResult]:
    async with cluster_of(toy(fault)) as driver:
        return [result async for result in run_rows(driver, select_rows(rows))]


def failed(results: Sequence[RowResult]) -> list[str]:
    return [result.row.id for result in results if result.outcome is Outcome.FAILED]


async def test_a_driver_that_keeps_what_it_has_prepared_meets_every_row_about_restarts() -> None:
    assert [(result.row.id, result.outcome, result.seen) for result in await run("", IDS)] == [
        (id_, Outcome.PASSED, "") for id_ in IDS
    ]


@pytest.fixture(autouse=True)
def short_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restart_rows, "_CYCLES", 50)
    monkeypatch.setattr(restart_rows, "_REST_S", 0.0)


@pytest.mark.parametrize("fault", IDS)
async def test_a_driver_that_fails_at_a_restart_is_caught_by_its_row(
    fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(restart_rows, "_GRACE_S", 2.0 if fault == "RESTART-5" else 30.0)
    assert failed(await run(fault, [fault])) == [fault]


@pytest.mark.long
@pytest.mark.parametrize("fault", IDS)
async def test_no_other_row_catches_it(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restart_rows, "_GRACE_S", 2.0 if fault == "RESTART-5" else 30.0)
    assert failed(await run(fault, IDS)) == [fault]


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (["/nowhere/driver"], "/nowhere/driver cannot be started: No such file"),
        ([sys.executable, "-c", "raise SystemExit(3)"], "the driver has ended with exit code 3"),
    ],
)
async def test_a_command_that_starts_no_driver_ends_the_run_with_the_reason(
    command: Sequence[str], message: str
) -> None:
    async with cluster_of(command) as driver:
        with pytest.raises(ProcessError, match=message):
            [result async for result in run_rows(driver, select_rows(["RESTART-1"]))]


async def test_a_driver_that_ends_fails_the_row_and_is_started_again_for_the_next() -> None:
    results = await run("EXIT", ["REG-1", "PREPARE-1", "PREPARE-2", "RESTART-4"])
    assert [result.outcome for result in results] == [
        Outcome.PASSED,
        Outcome.FAILED,
        Outcome.FAILED,
        Outcome.PASSED,
    ]
    assert results[1].seen.endswith("; the driver has ended with exit code 7")
