"""Rows about a driver that ends and starts again: what was prepared stays, and is known."""

import signal
from contextlib import suppress
from typing import Final

import anyio
import anyio.lowlevel

from kerf_dra.api.model.names import ClaimRef
from kerf_dra.api.model.prepared import PrepareOutcome
from kerf_dra.driver.sanity.allocated_claims import format_devices, list_devices
from kerf_dra.driver.sanity.driver_process import GRACE_S, DriverProcess, ProcessError
from kerf_dra.driver.sanity.driver_under_test import CallError, DriverUnderTest
from kerf_dra.driver.sanity.rows import Level, NotTriedError, Row

_REST_S: Final = 2.0
"""Seconds from the registration to a signal: a driver's start goes on after it, with lists of objects for example."""
_CYCLES: Final = 1000
"""Prepares with their unprepares, of which each may leave a descriptor: those of a node's day."""
_CYCLES_S: Final = 60.0
"""The time for them at most: a leak in each shows after a few."""
_ENDS_AFTER_S: Final = (0.0, 0.002, 0.01, 0.03)
"""Times into a prepare at which the driver gets a signal, beside the moment of its first change of a CDI folder."""
_LEFT: Final = 10
"""Descriptors that a driver may have more afterwards: connections that it keeps."""


def _process_of(driver: DriverUnderTest) -> DriverProcess:
    if driver.process is None:
        raise NotTriedError("the test has not started the driver: give its command after --")
    return driver.process


async def _restart(driver: DriverUnderTest) -> None:
    _process_of(driver)
    await driver.restart()


async def _check_prepare_again(driver: DriverUnderTest) -> str:
    _process_of(driver)
    async with driver.claims.allocated() as [claim], driver.prepared(claim) as before:
        defined = driver.list_defined(before)
        await _restart(driver)
        after = await driver.prepare_one(claim)
        if sorted(map(str, before.devices)) != sorted(map(str, after.devices)):
            return f"before the restart {before.devices}, after it {after.devices}"
        missing = sorted(defined - driver.list_defined(after))
    return f"after the restart no file defines {', '.join(missing)}" if missing else ""


async def _check_unprepare(driver: DriverUnderTest) -> str:
    _process_of(driver)
    leaves = await driver.leaves_files()
    async with driver.claims.allocated() as [claim]:
        outcome = await driver.prepare_one(claim)
        await _restart(driver)
        error = await driver.unprepare_one(claim)
        left = driver.list_own(outcome, claim)
    if error:
        return f"unprepare of a claim that was prepared before the restart failed: {error}"
    return f"{', '.join(sorted(left))} is defined after the unprepare" if left and not leaves else ""


async def _check_deleted_meanwhile(driver: DriverUnderTest) -> str:
    process = _process_of(driver)
    async with driver.claims.allocated() as [claim]:
        await driver.prepare_one(claim)
        await process.kill()
        await driver.claims.delete(claim)
        await driver.start()
        error = await driver.unprepare_one(claim)
    if not error:
        return ""
    with suppress(CallError):  # what it still has of the claim may prevent a prepare
        if failure := await driver.unprepare_deleted():  # another row reports it
            raise NotTriedError(f"unprepare of a deleted claim fails without a restart, too: {failure}")
    return f"unprepare of a claim that was deleted while the driver was away failed: {error}"


async def _check_files_back(driver: DriverUnderTest) -> str:
    process, files = _process_of(driver), driver.read_cdi_files()
    async with driver.claims.allocated() as [claim], driver.prepared(claim) as before:
        defined = driver.list_defined(before)
        written = [path for path, data in driver.read_cdi_files().items() if files.get(path) != data]
        if not written:
            raise NotTriedError("it writes no CDI file for a claim")
        await process.kill()
        for path in written:
            path.unlink()
        await driver.start()
        await driver.prepare_one(claim)
        missing = sorted(defined - driver.load_cdi_catalog().devices.keys())
    return f"prepare succeeds, and no file defines {', '.join(missing)}" if missing else ""


async def _check_names(driver: DriverUnderTest) -> str:
    before = await _list_names(driver)
    await _restart(driver)
    await driver.wait_published()
    after = await _list_names(driver)
    changed = sorted(before ^ after)
    return f"these devices came or went with a restart: {', '.join(changed)}" if changed else ""


async def _list_names(driver: DriverUnderTest) -> set[str]:
    slices = await driver.claims.list_slices()
    return {f"{one.spec.pool.name}/{device.name}" for one in slices for device in one.spec.devices}


async def _check_end(driver: DriverUnderTest) -> str:
    process = _process_of(driver)
    await anyio.sleep(_REST_S)
    try:
        await process.end(signal.SIGTERM, GRACE_S)
        return ""
    except ProcessError as error:
        return str(error)
    finally:
        await _restart(driver)


async def _check_socket_removed(driver: DriverUnderTest) -> str:
    process = _process_of(driver)
    await anyio.sleep(_REST_S)
    try:
        await process.end(signal.SIGTERM, GRACE_S)
        is_there = driver.has_registration_socket
    except ProcessError as error:
        raise NotTriedError(str(error)) from error
    finally:
        await _restart(driver)
    return f"{driver.registration_socket} is there after the driver's end" if is_there else ""


async def _check_descriptors(driver: DriverUnderTest) -> str:
    process = _process_of(driver)
    async with driver.claims.allocated() as [claim]:
        async with driver.prepared(claim):
            pass  # the first one opens what the driver keeps
        try:
            async with driver.prepared(claim):
                pass
        except CallError as error:
            raise NotTriedError(f"it prepares no claim again: {error}") from error
        before = process.count_descriptors()
        done, deadline = 0, anyio.current_time() + _CYCLES_S
        while done < _CYCLES and anyio.current_time() < deadline:
            async with driver.prepared(claim):
                done += 1
        more = process.count_descriptors() - before
    return f"{more} more files are open after {done} prepares" if more > _LEFT else ""


async def _check_killed_in_prepare(driver: DriverUnderTest) -> str:
    return await _check_ended_in_prepare(driver, signal.SIGKILL)


async def _check_drained(driver: DriverUnderTest) -> str:
    return await _check_ended_in_prepare(driver, signal.SIGTERM)


async def _check_ended_in_prepare(driver: DriverUnderTest, number: signal.Signals) -> str:
    """Send a signal at several moments of a prepare, each time start the driver again, and prepare the claim."""
    _process_of(driver)
    async with driver.claims.allocated() as [claim]:
        async with driver.prepared(claim) as usual:
            defined = driver.list_defined(usual)  # a first one may also write files that are of no claim
        files = {*driver.read_cdi_files()}
        for after_s in (None, *_ENDS_AFTER_S):
            was_prepared = await _end_in_prepare(driver, claim, number, after_s)
            await driver.start()
            try:
                seen = await _try_prepare(driver, claim, usual, defined)
                error = await driver.unprepare_one(claim)
            except CallError as failure:
                seen, error = str(failure), ""
            if number is signal.SIGTERM and not seen:  # a killed one leaves the file that it is writing
                left = sorted(map(str, {*driver.read_cdi_files()} - files))
                if error and not was_prepared:  # one that was prepared is the row's about a claim of before a restart
                    seen = f"unprepare failed: {error}"
                elif left and not error:
                    seen = f"{', '.join(left)} is there after the unprepare"
            if seen:
                return f"after {number.name} in a prepare, {_describe_moment(after_s)}, and a start: {seen}"
    return ""


async def _end_in_prepare(
    driver: DriverUnderTest, claim: ClaimRef, number: signal.Signals, after_s: float | None
) -> bool:
    """End the driver so long into a prepare, None: at its first CDI file; returns whether it has prepared the claim."""
    answers: dict[str, PrepareOutcome] = {}

    async def prepare() -> None:
        with suppress(CallError):
            answers.update(await driver.prepare(claim))

    if number is signal.SIGTERM:
        await anyio.sleep(_REST_S)
    async with anyio.create_task_group() as group:
        group.start_soon(prepare)
        await (_wait_file(driver) if after_s is None else anyio.sleep(after_s))
        await _process_of(driver).end_or_kill(number, GRACE_S)
    return claim.uid in answers and not answers[claim.uid].error


async def _try_prepare(driver: DriverUnderTest, claim: ClaimRef, usual: PrepareOutcome, defined: set[str]) -> str:
    """Prepare a claim; returns how the answer is not as usual, with these names defined. Raises CallError."""
    outcome = await driver.prepare_one(claim)
    wanted, given = list_devices(usual), list_devices(outcome)
    if given != wanted:
        return f"prepared before was {format_devices(wanted)}, now {format_devices(given)}"
    missing = sorted(defined - driver.load_cdi_catalog().devices.keys())
    return f"no file defines {', '.join(missing)}" if missing else ""


async def _check_killed_in_unprepare(driver: DriverUnderTest) -> str:
    process = _process_of(driver)
    async with driver.claims.allocated() as [claim]:
        if error := await driver.unprepare_one(claim):
            raise NotTriedError(f"unprepare of a claim that is not prepared fails: {error}")
    for after_s in (None, *_ENDS_AFTER_S):
        async with driver.claims.allocated() as [claim]:
            await driver.prepare_one(claim)
            async with anyio.create_task_group() as group:
                group.start_soon(_unprepare_somehow, driver, claim)
                await (_wait_file(driver) if after_s is None else anyio.sleep(after_s))
                await process.kill()
            await driver.start()
            if error := await driver.unprepare_one(claim):
                return f"after SIGKILL in an unprepare, {_describe_moment(after_s)}, and a start: {error}"
    return ""


async def _unprepare_somehow(driver: DriverUnderTest, claim: ClaimRef) -> None:
    with suppress(CallError):  # the driver is killed meanwhile
        await driver.unprepare(claim)


def _describe_moment(after_s: float | None) -> str:
    return "at its first change of a CDI folder" if after_s is None else f"{after_s * 1000:g} ms after its begin"


async def _wait_file(driver: DriverUnderTest) -> None:
    """Wait for the first change of a CDI folder, for a second at most."""
    before = driver.read_cdi_files()
    with anyio.move_on_after(1.0):
        while driver.read_cdi_files() == before:
            await anyio.lowlevel.checkpoint()


ROWS: Final = (
    Row(
        id="RESTART-1",
        level=Level.MUST,
        tries="prepare of a claim that was prepared before the driver was killed and started again",
        source="KEP-4381: a driver restarts under running pods; a kubelet calls again for a pod's next container",
        remedy="keep what was prepared in a file, and answer from it",
        check=_check_prepare_again,
    ),
    Row(
        id="RESTART-2",
        level=Level.MUST,
        tries="unprepare of a claim that was prepared before the driver was killed and started again",
        source="KEP-4381: devices are released by whichever process runs then",
        remedy="keep what was prepared in a file, and release by it",
        check=_check_unprepare,
    ),
    Row(
        id="RESTART-3",
        level=Level.MUST,
        tries="unprepare of a claim that was deleted while the driver was away",
        source="KEP-4381: a kubelet unprepares by UID; the object may be gone",
        remedy="forget no claim at a start because the API server does not have it",
        check=_check_deleted_meanwhile,
    ),
    Row(
        id="RESTART-4",
        level=Level.MUST,
        tries="the names of pools and devices after a restart",
        source="resource.k8s.io/v1 types.go: allocations name devices by pool and name",
        remedy="derive names from what does not change, such as an index or a UUID",
        check=_check_names,
    ),
    Row(
        id="RESTART-5",
        level=Level.SHOULD,
        tries="SIGTERM",
        source="terminationGracePeriodSeconds: 30 s, then a pod is killed",
        remedy="end within 30 s",
        check=_check_end,
    ),
    Row(
        id="RESTART-6",
        level=Level.SHOULD,
        tries="the registration socket after SIGTERM",
        source="pkg/kubelet/pluginmanager: a socket is a registered plugin for as long as it is there",
        remedy="remove the socket at the end; a kubelet calls it otherwise, and fails",
        check=_check_socket_removed,
    ),
    Row(
        id="RESTART-7",
        level=Level.SHOULD,
        tries=f"the driver's open files after {_CYCLES:,} prepares, or those of {_CYCLES_S:g} s, with their unprepares",
        source="getrlimit(2) RLIMIT_NOFILE",
        remedy="close what is opened for a claim",
        check=_check_descriptors,
    ),
    Row(
        id="RESTART-8",
        level=Level.MUST,
        tries="prepare of a claim in whose prepare the driver was killed, at several moments",
        source="KEP-4381: a kubelet calls again until it succeeds",
        remedy="finish or undo at the start what was begun, and expect files that are there already",
        check=_check_killed_in_prepare,
    ),
    Row(
        id="RESTART-9",
        level=Level.MUST,
        tries="prepare of a claim in whose prepare the driver got SIGTERM, at several moments, and was started again",
        source="KEP-4381: a kubelet calls again until it succeeds; a rolling update ends drivers by SIGTERM",
        remedy="answer calls in flight before the end, or fail them, and keep nothing that is half done",
        check=_check_drained,
    ),
    Row(
        id="RESTART-10",
        level=Level.MUST,
        tries="unprepare of a claim in whose unprepare the driver was killed, at several moments",
        source="KEP-4381: a kubelet calls again until it succeeds",
        remedy="expect that some of it is done, and do the rest",
        check=_check_killed_in_unprepare,
    ),
    Row(
        id="RESTART-11",
        level=Level.MAY,
        tries="prepare of a prepared claim whose CDI files are lost, by the driver after a restart",
        source="/var/run is a tmpfs: a node that starts again has lost it, while the kubelet's folders stay",
        remedy="write the files of a claim at each prepare, also when it is answered from what was kept",
        check=_check_files_back,
    ),
)
