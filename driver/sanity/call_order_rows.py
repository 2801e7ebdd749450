"""Rows about calls for several claims, calls that end early, and orders of calls that kubelets make now and then."""

from collections.abc import Mapping
from contextlib import suppress
from typing import Final

import anyio

from kerf_dra import cdi
from kerf_dra.api.model.names import ClaimRef
from kerf_dra.api.model.prepared import PrepareOutcome
from kerf_dra.driver.sanity.allocated_claims import FOREIGN_DEVICE, FOREIGN_DRIVER, list_devices
from kerf_dra.driver.sanity.driver_process import holding
from kerf_dra.driver.sanity.driver_under_test import CallError, DriverUnderTest, RefusedCallError
from kerf_dra.driver.sanity.given_claims import MOST_CLAIMS
from kerf_dra.driver.sanity.rows import Level, NotTriedError, Row

_PROTO: Final = "k8s.io/kubelet dra/v1 api.proto"
_MANAGER: Final = "pkg/kubelet/cm/dra/manager.go"
_AFTER_S: Final = (0.001, 0.003, 0.01, 0.03, 0.1)
"""Times after which a call is ended, or another one made, so that one of them is in the middle of a prepare."""
_AGAIN_S: Final = 10.0
"""The time in which a driver may still be at work on a call that has ended."""
_RELEASED_S: Final = 60.0
"""The time until a device is free after the end of the program that used it: drivers look in intervals."""
DEVICE_NODES: Final = "KERF_SANITY_DEVICE_NODES"
"""The variable with the paths of a claim's device nodes on the host, between colons."""
_POLL_S: Final = 0.1
"""Seconds between two tries."""


async def _check_unknown_field(driver: DriverUnderTest) -> str:
    async with driver.claims.allocated() as [claim]:
        try:
            answers = await driver.prepare_with_unknown_field(claim)
        except RefusedCallError as refusal:
            return f"the call was refused: {refusal}"
        finally:
            await driver.unprepare(claim)
    error = answers[claim.uid].error if claim.uid in answers else "the answer has no entry for the claim"
    return f"a claim was not prepared: {error}" if error else ""


async def _check_cancelled(driver: DriverUnderTest) -> str:
    for after_s in _AFTER_S:
        for is_cancelled in (False, True):
            async with driver.claims.allocated() as [claim]:
                if is_cancelled:
                    await driver.cancel_prepare(claim, after_s)
                else:
                    with suppress(CallError):
                        await driver.prepare(claim, timeout_s=after_s)
                error = await _prepare_again(driver, claim)
                await driver.unprepare_one(claim)
            if error:
                how = "was cancelled" if is_cancelled else "had its deadline"
                return f"{_AGAIN_S:g} s after a call that {how} after {after_s * 1000:g} ms: {error}"
    return ""


async def _prepare_again(driver: DriverUnderTest, claim: ClaimRef) -> str:
    """Prepare a claim, as often as it takes, for _AGAIN_S; returns the last error."""
    error, deadline = "", anyio.current_time() + _AGAIN_S
    while not error or anyio.current_time() < deadline:
        try:
            await driver.prepare_one(claim)
        except CallError as failure:
            error = str(failure)
            await anyio.sleep(_POLL_S)
        else:
            return ""
    return error


async def _check_made_again(driver: DriverUnderTest) -> str:
    async with driver.claims.allocated() as [former]:
        await driver.prepare_one(former)
        async with driver.claims.made_again(former) as claim:
            if error := await driver.unprepare_one(former):
                return f"unprepare of the former claim failed: {error}"
            async with driver.prepared(claim) as outcome:
                before = driver.list_defined(outcome)
                await driver.unprepare_one(former)  # once more, as kubelets do
                gone = before - driver.list_defined(outcome)
    return f"the unprepare of the former claim took {', '.join(sorted(gone))} from the new one" if gone else ""


async def _check_allocated_otherwise(driver: DriverUnderTest) -> str:
    async with driver.claims.allocated(2):
        pass  # there are two free devices
    async with driver.claims.allocated() as [claim]:
        async with driver.prepared(claim):
            pass
        await driver.claims.allocate_otherwise(claim)
        wanted = sorted(each.device for each in await driver.claims.read_allocation(claim))
        try:
            async with driver.prepared(claim) as outcome:
                given = sorted(each.device for each in list_devices(outcome))
        except CallError as error:
            raise NotTriedError(f"it prepares no claim again: {error}") from error
    return f"allocated is {', '.join(wanted)} now, prepared {', '.join(given)}" if given != wanted else ""


async def _check_many(driver: DriverUnderTest) -> str:
    async with driver.claims.allocated(2, at_most=MOST_CLAIMS) as claims:
        try:
            answers = await driver.prepare(*claims)
        finally:
            left = await driver.unprepare(*claims)
    for claim in claims:
        if claim.uid not in answers or claim.uid not in left:
            return f"the answer to a call for {len(claims)} claims lacks one of them"
        if error := answers[claim.uid].error or left[claim.uid]:
            return f"one of {len(claims)} claims failed: {error}"
    return ""


async def _check_foreign(driver: DriverUnderTest) -> str:
    async with driver.claims.allocated(with_foreign=True) as [claim], driver.prepared(claim) as outcome:
        given = [each.device for each in outcome.devices]
    return f"{FOREIGN_DEVICE} of driver {FOREIGN_DRIVER} was prepared" if FOREIGN_DEVICE in given else ""


async def _check_other_order(driver: DriverUnderTest) -> str:
    for order in (1, -1):
        async with driver.claims.allocated(2) as claims:
            outcomes = {claim: await driver.prepare_one(claim) for claim in claims}
            first, last = claims[::order]
            before = driver.list_defined(outcomes[last])
            errors = [await driver.unprepare_one(first)]
            gone = before - driver.list_defined(outcomes[last])
            errors.append(await driver.unprepare_one(last))
        if error := next(filter(None, errors), ""):
            return f"unprepare of one of two claims failed: {error}"
        if gone:
            return f"the unprepare of one claim took {', '.join(sorted(gone))} from the other"
    return ""


async def _check_unprepare_meanwhile(driver: DriverUnderTest) -> str:
    for after_s in _AFTER_S:
        async with driver.claims.allocated() as [claim]:
            async with anyio.create_task_group() as group:
                group.start_soon(_prepare_somehow, driver, claim)
                await anyio.sleep(after_s)
                await driver.unprepare(claim)  # an error is fine: the kubelet calls again
            if await driver.unprepare_one(claim):
                await _prepare_somehow(driver, claim)
                if error := await driver.unprepare_one(claim):
                    return f"unprepare failed after one in the middle of a prepare: {error}"
    return ""


async def _prepare_somehow(driver: DriverUnderTest, claim: ClaimRef) -> None:
    with suppress(RefusedCallError):  # the claim is unprepared meanwhile
        await driver.prepare(claim)


async def _check_held(driver: DriverUnderTest) -> str:
    if not driver.holder:
        raise NotTriedError("how one uses a device is the driver's own: give a program that does so with --holder")
    async with driver.claims.allocated() as [claim]:
        outcome = await driver.prepare_one(claim)
        variables = _describe_edits(driver, outcome)
        async with holding(driver.holder, variables):
            refusal = await driver.unprepare_one(claim)  # an error is fine: the kubelet calls again
        error, deadline = refusal, anyio.current_time() + _RELEASED_S
        while error and anyio.current_time() < deadline:
            await anyio.sleep(_POLL_S)
            error = await driver.unprepare_one(claim)
    if error:
        return f"unprepare fails {_RELEASED_S:g} s after the end of the program that used the device: {error}"
    async with driver.claims.allocated() as [following], driver.prepared(following):
        return ""


def _describe_edits(driver: DriverUnderTest, outcome: PrepareOutcome) -> Mapping[str, str]:
    """Return the variables of a container with the prepared devices, and DEVICE_NODES with their device nodes.

    Raises NotTriedError when a name of them is not defined: another row reports it.
    """
    names = [name for each in outcome.devices for name in each.cdi_ids]
    try:
        edits = cdi.requested_edits(driver.load_cdi_catalog(), names)
    except cdi.UnresolvedError as error:
        raise NotTriedError(f"what a container gets is not known: {error}") from error
    nodes = ":".join(node.host_path or node.path for node in edits.device_nodes)
    return dict(text.split("=", 1) for text in edits.env if "=" in text) | {DEVICE_NODES: nodes}


ROWS: Final = (
    Row(
        id="PREPARE-9",
        level=Level.MUST,
        tries="prepare with a field in the request that the driver does not know, as by a later kubelet",
        source="protobuf: unknown fields are kept or ignored; Kubernetes' version skew policy",
        remedy="ignore fields that are not known",
        check=_check_unknown_field,
    ),
    Row(
        id="PREPARE-10",
        level=Level.MUST,
        tries="prepare after a call for the same claim that had its deadline early, or was cancelled",
        source=f"{_MANAGER}: a call has a deadline, and a kubelet may end; the next call is for the same claim",
        remedy="finish or undo what the call has begun, and answer the next one",
        check=_check_cancelled,
    ),
    Row(
        id="PREPARE-11",
        level=Level.MUST,
        tries="prepare of a claim with the name of another one, deleted while it was prepared, and unprepare of that",
        source="KEP-4381: claims are identified by their UIDs; StatefulSets make claims of the same name again",
        remedy="keep what was prepared by the claim's UID, not by its name",
        check=_check_made_again,
    ),
    Row(
        id="PREPARE-12",
        level=Level.MUST,
        tries="prepare and unprepare of several claims in one call each",
        source=f"{_PROTO}: the answer has an entry for each claim; {_MANAGER}: all claims of a pod are in one call",
        remedy="answer for each claim",
        check=_check_many,
    ),
    Row(
        id="PREPARE-13",
        level=Level.MUST,
        tries="prepare of a claim that also has a device of another driver",
        source="resource.k8s.io/v1 types.go: DeviceRequestAllocationResult.driver",
        remedy="skip the results of other drivers",
        check=_check_foreign,
    ),
    Row(
        id="PREPARE-14",
        level=Level.MUST,
        tries="prepare of a claim that was unprepared, and allocated another device since",
        source="KEP-4381: a claim that is not in use may be deallocated and allocated again",
        remedy="forget the allocation of a claim that is unprepared",
        check=_check_allocated_otherwise,
    ),
    Row(
        id="UNPREPARE-5",
        level=Level.MUST,
        tries="unprepare of one of two prepared claims, the first and the second",
        source=f"{_MANAGER}: pods end in any order",
        remedy="release what the claim has, and nothing else",
        check=_check_other_order,
    ),
    Row(
        id="UNPREPARE-6",
        level=Level.MUST,
        tries="unprepare of a claim in the middle of its prepare, then once more",
        source=f"{_MANAGER}: a pod may be deleted after the deadline of a prepare that goes on",
        remedy="let the unprepare wait for the prepare, or refuse it, so that the next one succeeds",
        check=_check_unprepare_meanwhile,
    ),
    Row(
        id="UNPREPARE-7",
        level=Level.MUST,
        tries="unprepare while a program uses the device, and after its end",
        source=f"{_MANAGER}: a call has a deadline, and is made again until it succeeds",
        remedy="refuse the unprepare, or release the device later; succeed once the program has ended",
        check=_check_held,
    ),
)
