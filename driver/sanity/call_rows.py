"""Rows about NodePrepareResources and NodeUnprepareResources (``k8s.io/kubelet/pkg/apis/dra/v1``)."""

from typing import Final
from uuid import uuid4

import anyio

from kerf_dra.api.model.names import ClaimRef
from kerf_dra.api.model.prepared import PrepareOutcome
from kerf_dra.driver.sanity.allocated_claims import format_devices, list_devices
from kerf_dra.driver.sanity.driver_under_test import DriverUnderTest, RefusedCallError
from kerf_dra.driver.sanity.rows import Level, Row

_PROTO: Final = "k8s.io/kubelet dra/v1 api.proto"
_MANAGER: Final = "pkg/kubelet/cm/dra/manager.go"
_AT_ONCE: Final = 4
"""Calls for one claim at the same time: kubelets make one, and another when its deadline has passed."""


async def _check_devices(driver: DriverUnderTest) -> str:
    async with driver.claims.allocated() as [claim], driver.prepared(claim) as outcome:
        wanted = await driver.claims.read_allocation(claim)
        given = list_devices(outcome)
        return f"allocated is {format_devices(wanted)}, prepared {format_devices(given)}" if given != wanted else ""


async def _check_prepare_again(driver: DriverUnderTest) -> str:
    async with driver.claims.allocated() as [claim], driver.prepared(claim) as first:
        second = await driver.prepare_one(claim)
        return f"first {_describe(first)}, then {_describe(second)}" if _sorted(first) != _sorted(second) else ""


async def _check_at_once(driver: DriverUnderTest) -> str:
    failed: list[str] = []

    async def call(claim: ClaimRef) -> None:
        answers = await driver.prepare(claim)
        failed.extend(outcome.error for outcome in answers.values() if outcome.error)

    async with driver.claims.allocated() as [claim]:
        try:
            async with anyio.create_task_group() as group:
                for _ in range(_AT_ONCE):
                    group.start_soon(call, claim)
        finally:
            await driver.unprepare(claim)
    return f"{len(failed)} of {_AT_ONCE} calls for one claim at the same time failed: {failed[0]}" if failed else ""


async def _check_unknown(driver: DriverUnderTest) -> str:
    refusal = await driver.find_refusal(driver.claims.name_unknown())
    return "" if refusal else "a claim that does not exist was prepared"


async def _check_not_allocated(driver: DriverUnderTest) -> str:
    async with driver.claims.not_allocated() as claim:
        refusal = await driver.find_refusal(claim)
    return "" if refusal else "a claim without an allocation was prepared"


async def _check_other_uid(driver: DriverUnderTest) -> str:
    async with driver.claims.allocated() as [claim]:
        former = replace_uid(claim)
        refusal = await driver.find_refusal(former)
    return "" if refusal else f"{claim} was prepared for UID {former.uid}, but its UID is {claim.uid}"


async def _check_partial_failure(driver: DriverUnderTest) -> str:
    async with driver.claims.allocated() as [claim]:
        unknown = driver.claims.name_unknown()
        try:
            answers = await driver.prepare(unknown, claim)
        except RefusedCallError as error:
            return f"the call failed, and with it the claim that exists: {error}"
        finally:
            await driver.unprepare(claim)
    if set(answers) != {claim.uid, unknown.uid}:
        return "the answer to a call for two claims has not an entry for each"
    if not answers[unknown.uid].error:
        return "a claim that does not exist was prepared"
    failure = answers[claim.uid].error
    return f"a claim failed because another one of its call does not exist: {failure}" if failure else ""


async def _check_unprepare_unknown(driver: DriverUnderTest) -> str:
    error = await driver.unprepare_one(driver.claims.name_unknown())
    return f"unprepare of a claim that the driver does not know failed: {error}" if error else ""


async def _check_unprepare_again(driver: DriverUnderTest) -> str:
    async with driver.claims.allocated() as [claim]:
        await driver.prepare_one(claim)
        first, second = [await driver.unprepare_one(claim) for _ in range(2)]
    if first:
        return f"unprepare of a prepared claim failed: {first}"
    return f"the second unprepare of a claim failed: {second}" if second else ""


async def _check_unprepare_first(driver: DriverUnderTest) -> str:
    async with driver.claims.allocated() as [claim]:
        error = await driver.unprepare_one(claim)
        await driver.prepare_one(claim)
        await driver.unprepare_one(claim)
    return f"unprepare of a claim that was not prepared failed: {error}" if error else ""


async def _check_unprepare_deleted(driver: DriverUnderTest) -> str:
    error = await driver.unprepare_deleted()
    return f"unprepare of a claim that has been deleted failed: {error}" if error else ""


async def _check_prepared_after_unprepare(driver: DriverUnderTest) -> str:
    async with driver.claims.allocated() as [claim]:
        for _ in range(3):
            await driver.prepare_one(claim)
            if error := await driver.unprepare_one(claim):
                return f"unprepare of a prepared claim failed: {error}"
    return ""


def replace_uid(claim: ClaimRef) -> ClaimRef:
    """Return the claim that had the name of ``claim`` before it was deleted and made again."""
    return claim._replace(uid=str(uuid4()))


def _sorted(outcome: PrepareOutcome) -> list[str]:
    return sorted(map(str, outcome.devices))


def _describe(outcome: PrepareOutcome) -> str:
    return ", ".join(f"{each.pool}/{each.device} {list(each.cdi_ids)}" for each in outcome.devices) or "no device"


ROWS: Final = (
    Row(
        id="PREPARE-1",
        level=Level.MUST,
        tries="prepare of an allocated claim: its devices",
        source=f"{_PROTO}: Device.request_names, pool_name, device_name",
        remedy="answer with each allocated device of the driver, its pool and its requests, under the claim's UID",
        check=_check_devices,
    ),
    Row(
        id="PREPARE-2",
        level=Level.MUST,
        tries="prepare, again: a kubelet that restarts calls once more",
        source=f"{_PROTO}: NodePrepareResources must be idempotent",
        remedy="answer from what was prepared",
        check=_check_prepare_again,
    ),
    Row(
        id="PREPARE-3",
        level=Level.SHOULD,
        tries="prepare of one claim by several calls at the same time",
        source="kubeletplugin: Serialize; a kubelet calls again after its deadline, while the first call goes on",
        remedy="let later calls wait for the first one, and give them its answer",
        check=_check_at_once,
    ),
    Row(
        id="PREPARE-4",
        level=Level.MUST,
        tries="prepare of a claim that does not exist",
        source="KEP-4381: devices are those of the claim's allocation",
        remedy="answer with an error",
        check=_check_unknown,
    ),
    Row(
        id="PREPARE-5",
        level=Level.MUST,
        tries="prepare of a claim without an allocation",
        source="KEP-4381: devices are those of the allocation",
        remedy="answer with an error",
        check=_check_not_allocated,
    ),
    Row(
        id="PREPARE-6",
        level=Level.MUST,
        tries="prepare of a claim that was deleted and made again: its UID is another",
        source="kubeletplugin: the UID is compared; NodePrepareResources has namespace, name and UID",
        remedy="compare the UID of the claim that was read with that of the call",
        check=_check_other_uid,
    ),
    Row(
        id="PREPARE-7",
        level=Level.MAY,
        tries="prepare of two claims in one call, of which one does not exist",
        source=f"{_PROTO}: an entry with its error for each claim; the helper library fails the call",
        remedy="answer for each claim by itself: a pod must not wait for the claim of another",
        check=_check_partial_failure,
    ),
    Row(
        id="PREPARE-8",
        level=Level.MUST,
        tries="prepare and unprepare of one claim, three times",
        source=f"{_MANAGER}: a claim may be used by one pod after another",
        remedy="forget all of a claim that is unprepared",
        check=_check_prepared_after_unprepare,
    ),
    Row(
        id="UNPREPARE-1",
        level=Level.MUST,
        tries="unprepare of a claim that the driver does not know",
        source=f"{_PROTO}: NodeUnprepareResources must be idempotent",
        remedy="answer with success: nothing is to be done",
        check=_check_unprepare_unknown,
    ),
    Row(
        id="UNPREPARE-2",
        level=Level.MUST,
        tries="unprepare, twice",
        source=f"{_PROTO}: NodeUnprepareResources must be idempotent",
        remedy="answer with success each time",
        check=_check_unprepare_again,
    ),
    Row(
        id="UNPREPARE-3",
        level=Level.MUST,
        tries="unprepare of an allocated claim that was not prepared, then prepare",
        source=f"{_MANAGER}: a pod may end before its claims are prepared",
        remedy="answer with success, and prepare the claim when asked to",
        check=_check_unprepare_first,
    ),
    Row(
        id="UNPREPARE-4",
        level=Level.MUST,
        tries="unprepare of a prepared claim that has been deleted, as by a forced deletion",
        source="KEP-4381: a kubelet unprepares by UID; the object may be gone",
        remedy="unprepare by what the driver itself has kept of the claim",
        check=_check_unprepare_deleted,
    ),
)
