"""Runs rows on a driver, one after the other, after what an earlier run has left is gone."""

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Final

import anyio

from kerf_dra.api.errors import InvalidDocumentError, KerfError, Problem
from kerf_dra.driver.sanity import (
    call_order_rows,
    call_rows,
    cdi_rows,
    health_rows,
    registration_rows,
    restart_rows,
    slice_rows,
)
from kerf_dra.driver.sanity.allocated_claims import NoDeviceError
from kerf_dra.driver.sanity.driver_under_test import DriverUnderTest
from kerf_dra.driver.sanity.rows import NotTriedError, Outcome, Row, RowResult

ROWS: Final[tuple[Row, ...]] = (
    *registration_rows.ROWS,
    *slice_rows.ROWS,
    *call_rows.ROWS,
    *call_order_rows.ROWS,
    *cdi_rows.ROWS,
    *health_rows.ROWS,
    *restart_rows.ROWS,
    *registration_rows.INSTANCE_ROWS,
)
"""All rows, in the order in which they are run."""
_END_S: Final = 0.5
"""Seconds after a failure in which a process ends that has closed its connections before."""
ROW_S: Final = 240.0
"""The longest time for one row: a start, an end, two calls with the kubelet's deadline, and what the cluster takes."""


def select_rows(ids: Collection[str]) -> Sequence[Row]:
    """Return the rows with these ids, or all if there are none. Raises InvalidDocumentError for an unknown id."""
    _check_ids("--row", ids)
    return [row for row in ROWS if not ids or row.id in ids]


def read_waivers(texts: Sequence[str]) -> Mapping[str, str]:
    """Return the reasons of waivers ``ID=REASON`` by id. Raises InvalidDocumentError for one without a reason, or with
    an unknown id.
    """
    pairs = [text.partition("=")[::2] for text in texts]
    if problems := [Problem("", f"{id_} has no reason: ID=REASON") for id_, reason in pairs if not reason.strip()]:
        raise InvalidDocumentError("--waive", problems)
    _check_ids("--waive", [id_ for id_, _ in pairs])
    return {id_: reason.strip() for id_, reason in pairs}


def waive(result: RowResult, waivers: Mapping[str, str]) -> RowResult:
    """Return a row's result with the reason why the user has waived it; one that failed is then waived."""
    reason = waivers.get(result.row.id, "")
    outcome = Outcome.WAIVED if reason and result.outcome is Outcome.FAILED else result.outcome
    return replace(result, outcome=outcome, waiver=reason)


def _check_ids(option: str, ids: Collection[str]) -> None:
    known = {row.id for row in ROWS}
    unknown = [id_ for id_ in ids if id_ not in known]
    if unknown:
        problems = [Problem("", f"there is no row {id_}; rows are {', '.join(sorted(known))}") for id_ in unknown]
        raise InvalidDocumentError(option, problems)


async def run_rows(driver: DriverUnderTest, rows: Sequence[Row]) -> AsyncIterator[RowResult]:
    """Run ``rows``, and yield the result of each. Raises ApiError when the cluster cannot be written to, and
    ProcessError when a driver with a command does not start.
    """
    try:
        if driver.process is not None:
            await driver.start()
            await driver.wait_published()
        await remove_left(driver)
        await driver.claims.create_class()
        for row in rows:
            yield await _run_row(driver, row)
            if driver.process is not None and driver.process.exit_code is not None:
                await driver.start()  # or its end would fail all rows that follow
    finally:
        with anyio.CancelScope(shield=True):
            await remove_left(driver)
            await driver.claims.delete_class()
            if driver.process is not None:
                await driver.process.kill()


async def remove_left(driver: DriverUnderTest) -> None:
    """Unprepare and delete the claims that an earlier run, which was killed, has left. Raises ApiError."""
    for claim in await driver.claims.list_left():
        try:
            await driver.unprepare(claim)
        except KerfError:
            pass  # rows say what is wrong with its calls
        await driver.claims.delete(claim)


async def _run_row(driver: DriverUnderTest, row: Row) -> RowResult:
    try:
        with anyio.fail_after(ROW_S):
            seen = await row.check(driver)
    except (NotTriedError, NoDeviceError) as error:
        return RowResult(row, Outcome.SKIPPED, str(error))
    except TimeoutError:
        return RowResult(row, Outcome.FAILED, f"no result within {ROW_S:g} s")
    except KerfError as error:
        return RowResult(row, Outcome.FAILED, f"{error}{await _describe_end(driver)}")
    except BaseExceptionGroup as group:
        failed, rest = group.split(KerfError)
        if rest is not None or failed is None:
            raise
        return RowResult(row, Outcome.FAILED, "; ".join(str(error) for error in failed.exceptions))
    return RowResult(row, Outcome.FAILED if seen else Outcome.PASSED, seen)


async def _describe_end(driver: DriverUnderTest) -> str:
    """Return what a failure has to add where the driver's process has ended, or does so now."""
    if driver.process is None or not await driver.process.wait_end(_END_S):
        return ""
    return f"; the driver has ended with exit code {driver.process.exit_code}"
