"""Each row is met by a driver that works, and is the only one that its faulty driver does not meet."""

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from kerf_dra.api.core.v1 import NODES, PODS, Node
from kerf_dra.api.model.metadata import ObjectMeta
from kerf_dra.api.wire import Kind
from kerf_dra.driver.kube.discovery import discover
from kerf_dra.driver.kube.http.client import Client
from kerf_dra.driver.kube.http.credentials import Access
from kerf_dra.driver.local.apiserver import ApiServer
from kerf_dra.driver.sanity import call_order_rows, registration_rows, restart_rows, slice_rows
from kerf_dra.driver.sanity.allocated_claims import LABEL, AllocatedClaims
from kerf_dra.driver.sanity.driver_under_test import DriverUnderTest
from kerf_dra.driver.sanity.rows import Outcome, RowResult
from kerf_dra.driver.sanity.run import ROWS, run_rows, select_rows
from tests.kubeletplugin.harness import short_directory
from tests.sanity.toy_driver import DRIVER, NODE, ToyDriver

COMMAND_IDS = ["UNPREPARE-7", *(row.id for row in (*restart_rows.ROWS, *registration_rows.INSTANCE_ROWS))]
"""Of the rows that are skipped without the driver's command, or that of a program that uses a device."""


@asynccontextmanager
async def toy_driver(fault: str = "") -> AsyncIterator[tuple[ToyDriver, DriverUnderTest]]:
    """A driver on a cluster of its own, and the test's view of it."""
    server = ApiServer()
    with short_directory() as root:
        async with anyio.create_task_group() as group:
            await group.start(server.serve)
            (root / "kubeconfig").write_text(json.dumps(server.kubeconfig()))
            access = Access(server=server.url)
            async with Client(access, user_agent="toy") as client:
                api = await discover(client)
                await client.create(NODES, Node(metadata=ObjectMeta(name=NODE)))
                toy = ToyDriver(root, client, api, fault)
                claims = AllocatedClaims(client, api, driver=DRIVER, node=NODE, namespace="default")
                async with toy.running():
                    yield toy, DriverUnderTest(toy.registration_socket, [toy.cdi_folder], claims)
            group.cancel_scope.cancel()


async def run(fault: str = "", rows: Sequence[str] = ()) -> list[RowResult]:
    async with toy_driver(fault) as (_, driver):
        return [result async for result in run_rows(driver, select_rows(rows))]


async def test_a_driver_that_works_meets_every_row_that_can_be_tried_without_its_command() -> None:
    command, holder = "the test has not started the driver: give its command after --", "how one uses a device "
    results = await run()
    assert [(each.row.id, each.outcome, each.seen) for each in results if each.row.id not in COMMAND_IDS] == [
        (row.id, Outcome.PASSED, "") for row in ROWS if row.id not in COMMAND_IDS
    ]
    reasons = {each.row.id: each.seen for each in results if each.outcome is Outcome.SKIPPED}
    assert reasons.keys() == {*COMMAND_IDS}
    assert reasons.pop("UNPREPARE-7").startswith(holder)
    assert {*reasons.values()} == {command}


@pytest.mark.parametrize("fault", [row.id for row in ROWS if row.id not in COMMAND_IDS])
async def test_a_faulty_driver_is_caught_by_its_row_and_by_no_other(
    fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slice_rows, "_BACK_S", 2.0)
    monkeypatch.setattr(call_order_rows, "_AGAIN_S", 1.0)
    results = await run(fault)
    assert [(result.row.id, result.seen != "") for result in results if result.outcome is Outcome.FAILED] == [
        (fault, True)
    ]


async def test_a_run_leaves_no_object_and_no_prepared_claim() -> None:
    async with toy_driver() as (toy, driver):
        results = [result async for result in run_rows(driver, ROWS)]
        assert len(results) == len(ROWS)
        assert toy.prepared == {}
        kinds: Sequence[Kind[Any]] = (toy.api.resource.resource_claims, toy.api.resource.device_classes, PODS)
        for kind in kinds:
            assert (await toy.client.list(kind)).items == ()


async def test_a_run_in_a_cluster_in_use_changes_no_object_of_others() -> None:
    async with toy_driver() as (toy, driver):
        kinds: Sequence[Kind[Any]] = (toy.api.resource.resource_claims, toy.api.resource.device_classes, PODS)
        other = AllocatedClaims(toy.client, toy.api, driver=DRIVER, node=NODE, namespace="default")
        other._labels, other._class = {"team": "a"}, "team-a"  # as another program makes them
        await other.create_class()
        async with other.allocated() as [claim]:
            await driver.prepare_one(claim)
            before = [(await toy.client.list(kind)).items for kind in kinds]
            results = [result async for result in run_rows(driver, ROWS)]
            assert Outcome.FAILED not in {result.outcome for result in results}
            assert [(await toy.client.list(kind)).items for kind in kinds] == before
            assert {*toy.prepared} == {claim.uid}


async def test_what_a_killed_run_has_left_is_unprepared_and_deleted_by_the_next_one() -> None:
    async with toy_driver() as (toy, driver):
        await driver.claims.create_class()
        async with anyio.create_task_group() as group:

            async def hold() -> None:
                async with driver.claims.allocated(2) as held:
                    for claim in held:
                        await driver.prepare_one(claim)
                    group.cancel_scope.cancel()  # its deletions are cancelled, too, as by SIGKILL
                    await anyio.sleep_forever()

            group.start_soon(hold)
        assert len(toy.prepared) == 2
        other = await toy.client.list(toy.api.resource.resource_claims, label_selector=LABEL)
        assert len(other.items) == 2
        [result] = [result async for result in run_rows(driver, select_rows(["PREPARE-1"]))]
        assert result.outcome is Outcome.PASSED
        assert (toy.prepared, (await toy.client.list(toy.api.resource.resource_claims)).items) == ({}, ())
