"""The rows for which the driver is a process that the test starts, kills and starts again."""

import json
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

import anyio
import pytest

from kerf_dra.api.core.v1 import NODES, Node
from kerf_dra.api.model.metadata import ObjectMeta
from kerf_dra.driver.kube.discovery import discover
from kerf_dra.driver.kube.http.client import Client
from kerf_dra.driver.kube.http.credentials import Access
from kerf_dra.driver.local.apiserver import ApiServer
from kerf_dra.driver.sanity import call_order_rows, driver_under_test, registration_rows, restart_rows, slice_rows
from kerf_dra.driver.sanity.allocated_claims import AllocatedClaims
from kerf_dra.driver.sanity.driver_process import INSTANCE, DriverProcess, InstanceCommand, ProcessError
from kerf_dra.driver.sanity.driver_under_test import DriverUnderTest
from kerf_dra.driver.sanity.rows import Outcome, RowResult
from kerf_dra.driver.sanity.run import ROWS, run_rows, select_rows
from tests.kubeletplugin.harness import short_directory
from tests.sanity.test_rows import COMMAND_IDS
from tests.sanity.toy_driver import DRIVER, LOCK, NODE

HOLDER = (
    *(sys.executable, "-c"),
    f"""
import fcntl, os, time
file = open(os.environ[{LOCK!r}], "w")
fcntl.flock(file, fcntl.LOCK_EX)
print("in use", flush=True)
time.sleep(600)
""",
)
"""A program that uses a device of the toy driver until it is killed."""


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
                words = [str(root) if part == "ROOT" else part for part in command]
                instances = InstanceCommand(root / f"toy{INSTANCE}-reg.sock", words)
                socket, first = instances.name_instance()
                yield DriverUnderTest(socket, [root / "cdi"], claims, DriverProcess(first), instances, HOLDER)
            group.cancel_scope.cancel()


def toy(fault: str = "") -> Sequence[str]:
    return (sys.executable, "-m", "tests.sanity.toy_process", "ROOT", fault, INSTANCE)


async def run(fault: str, rows: Sequence[str]) -> list[RowResult]:
    async with cluster_of(toy(fault)) as driver:
        return [result async for result in run_rows(driver, select_rows(rows))]


def failed(results: Sequence[RowResult]) -> list[str]:
    return [result.row.id for result in results if result.outcome is Outcome.FAILED]


async def test_a_driver_that_keeps_what_it_has_prepared_meets_every_row_that_needs_its_command() -> None:
    assert [(result.row.id, result.outcome, result.seen) for result in await run("", COMMAND_IDS)] == [
        (id_, Outcome.PASSED, "") for id_ in COMMAND_IDS
    ]


@pytest.fixture(autouse=True)
def short_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restart_rows, "_CYCLES", 50)
    monkeypatch.setattr(restart_rows, "_REST_S", 0.0)
    monkeypatch.setattr(call_order_rows, "_AGAIN_S", 1.0)
    monkeypatch.setattr(call_order_rows, "_RELEASED_S", 1.0)
    monkeypatch.setattr(slice_rows, "_BACK_S", 2.0)
    monkeypatch.setattr(driver_under_test, "PUBLISHED_S", 2.0)


def shorten_grace(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait less for a driver that does not end."""
    for module in (restart_rows, registration_rows):
        monkeypatch.setattr(module, "GRACE_S", 2.0 if fault == "RESTART-5" else 30.0)


@pytest.mark.parametrize("fault", COMMAND_IDS)
async def test_a_driver_that_fails_at_a_restart_is_caught_by_its_row(
    fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shorten_grace(fault, monkeypatch)
    assert failed(await run(fault, [fault])) == [fault]


@pytest.mark.parametrize(
    ("fault", "outcomes"),
    [
        ("SLICE-6", {"SLICE-6": Outcome.FAILED, "PREPARE-1": Outcome.PASSED, "RESTART-4": Outcome.PASSED}),
        ("UNPREPARE-4", {"UNPREPARE-4": Outcome.FAILED, "RESTART-3": Outcome.SKIPPED}),
        ("RESTART-8", {"PREPARE-3": Outcome.PASSED, "PREPARE-10": Outcome.PASSED, "RESTART-8": Outcome.FAILED}),
    ],
)
async def test_a_fault_that_shows_in_other_rows_is_reported_by_its_own(
    fault: str, outcomes: Mapping[str, Outcome]
) -> None:
    assert {result.row.id: result.outcome for result in await run(fault, [*outcomes])} == outcomes


@pytest.mark.long
@pytest.mark.parametrize("fault", [row.id for row in ROWS])
async def test_of_all_rows_only_its_own_catches_a_faulty_driver(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    shorten_grace(fault, monkeypatch)
    if fault not in {"RESTART-8", "RESTART-9", "RESTART-10"}:  # each moment is a start of the driver
        monkeypatch.setattr(restart_rows, "_ENDS_AFTER_S", ())
    assert failed(await run(fault, [])) == [fault]


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
