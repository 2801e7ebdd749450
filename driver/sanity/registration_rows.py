"""Rows about the registration of a plugin (``k8s.io/kubelet/pkg/apis/pluginregistration/v1``)."""

import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import anyio

from kerf_dra.api.dra.registry import SUPPORTED_VERSIONS
from kerf_dra.api.registration.v1 import DRA_PLUGIN, RegistrationStatus
from kerf_dra.driver.sanity.driver_process import GRACE_S, INSTANCE, DriverProcess
from kerf_dra.driver.sanity.driver_under_test import DriverUnderTest, are_complete, is_socket
from kerf_dra.driver.sanity.rows import Level, NotTriedError, Row

_API: Final = "k8s.io/kubelet pluginregistration/v1 api.proto"
_ROLLING: Final = "kubeletplugin: RollingUpdate; kubelets of 1.33 and later call the newest of several instances"
_MOST_PATH_BYTES: Final = 107
"""The longest path of a unix socket (``sun_path`` of unix(7), with the byte 0 at its end)."""


async def _check_info(driver: DriverUnderTest) -> str:
    info = await driver.get_info()
    if info.type != DRA_PLUGIN:
        return f"type is {info.type!r}, not {DRA_PLUGIN!r}"
    if info.name != driver.claims.driver:
        return f"name is {info.name!r}; its slices are of driver {driver.claims.driver!r}"
    return ""


async def _check_endpoint(driver: DriverUnderTest) -> str:
    endpoint = Path((await driver.get_info()).endpoint)
    if not endpoint.is_absolute():
        return f"endpoint {str(endpoint)!r} is no absolute path"
    if (size := len(os.fsencode(endpoint))) > _MOST_PATH_BYTES:
        return f"endpoint {endpoint} has {size} bytes; paths of sockets have {_MOST_PATH_BYTES} at most"
    return "" if is_socket(endpoint) else f"endpoint {endpoint} is no socket"


async def _check_versions(driver: DriverUnderTest) -> str:
    offered = (await driver.get_info()).supported_versions
    if not any(version in SUPPORTED_VERSIONS and version.endswith(".DRAPlugin") for version in offered):
        return f"supported_versions are {list(offered)}: no kubelet of 1.32 or later takes one"
    repeated = {version for version in offered if offered.count(version) > 1}
    return f"supported_versions has {', '.join(sorted(repeated))} twice" if repeated else ""


async def _check_newest_first(driver: DriverUnderTest) -> str:
    known = [each for each in (await driver.get_info()).supported_versions if each in SUPPORTED_VERSIONS]
    services = [each for each in known if each.endswith(".DRAPlugin")]
    if len(services) < 2:
        raise NotTriedError(f"it offers one version of the service: {', '.join(services)}")
    best = sorted(services, key=SUPPORTED_VERSIONS.index)
    return f"{services[0]} comes before {best[0]}: kubelets take the first that they know" if services != best else ""


async def _check_status(driver: DriverUnderTest) -> str:
    """A kubelet that restarts registers the plugin once more."""
    for _ in range(2):
        await driver.notify_registration(RegistrationStatus(registered=True))
    before = await driver.get_info()
    await driver.notify_registration(RegistrationStatus(registered=True))
    after = await driver.get_info()
    return f"the registration changed from {before} to {after}" if before != after else ""


async def _check_newest_instance(driver: DriverUnderTest) -> str:
    leaves = await driver.leaves_files()
    async with _another_instance(driver) as newest:
        async with driver.claims.allocated() as [claim]:
            outcome = await driver.prepare_one(claim)
            if error := await newest.unprepare_one(claim):
                return f"unprepare by the newest instance of what the older one has prepared failed: {error}"
            left = driver.list_own(outcome, claim)
        async with driver.claims.allocated() as [following], newest.prepared(following):
            pass
    return f"{', '.join(sorted(left))} is defined after the unprepare by the newest" if left and not leaves else ""


async def _check_end_of_older(driver: DriverUnderTest) -> str:
    async with _another_instance(driver) as newest, driver.claims.allocated() as [claim]:
        outcome = await driver.prepare_one(claim)
        defined, was_complete = driver.list_defined(outcome), are_complete(await driver.claims.list_slices())
        await _process_of(driver).end_or_kill(signal.SIGTERM, GRACE_S)
        if not newest.has_registration_socket:
            return f"{newest.registration_socket} of the newest instance is gone with the end of the older one"
        if gone := sorted(defined - driver.load_cdi_catalog().devices.keys()):
            return f"no file defines {', '.join(gone)} after the end of the older instance"
        if was_complete:
            await newest.wait_published()
            if not are_complete(await newest.claims.list_slices()):
                return "the slices are gone with the end of the older instance"
        error = await newest.unprepare_one(claim)
    return f"unprepare by the newest instance after the end of the older one failed: {error}" if error else ""


@asynccontextmanager
async def _another_instance(driver: DriverUnderTest) -> AsyncIterator[DriverUnderTest]:
    """Another instance runs inside, beside the driver, which runs alone afterwards.

    Raises NotTriedError, and ProcessError when an instance does not serve.
    """
    first = _process_of(driver)
    if driver.instances is None:
        raise NotTriedError(
            f"its instances have the same sockets: write {INSTANCE} in --registration-socket and in an option of the "
            "command, such as that for the pod's UID"
        )
    newest = driver.create_instance()
    try:
        await newest.start()
        yield newest
    finally:
        with anyio.CancelScope(shield=True):
            await _process_of(newest).end_or_kill(signal.SIGTERM, GRACE_S)
            if first.exit_code is not None:
                await driver.start()


def _process_of(driver: DriverUnderTest) -> DriverProcess:
    if driver.process is None:
        raise NotTriedError("the test has not started the driver: give its command after --")
    return driver.process


ROWS: Final = (
    Row(
        id="REG-1",
        level=Level.MUST,
        tries="GetInfo",
        source=f"{_API}: PluginInfo",
        remedy="answer with type DRAPlugin and the name of the driver in the slices",
        check=_check_info,
    ),
    Row(
        id="REG-2",
        level=Level.MUST,
        tries="GetInfo: the endpoint",
        source=f"{_API}: PluginInfo.endpoint",
        remedy="give the absolute path of the socket of the DRA service, and serve it before the registration",
        check=_check_endpoint,
    ),
    Row(
        id="REG-3",
        level=Level.MUST,
        tries="GetInfo: the versions",
        source="pkg/kubelet/cm/dra/plugin/registration.go: validateSupportedServices",
        remedy="offer v1.DRAPlugin (1.34 and later) or v1beta1.DRAPlugin, each once",
        check=_check_versions,
    ),
    Row(
        id="REG-4",
        level=Level.SHOULD,
        tries="GetInfo: the order of the versions",
        source="pkg/kubelet/cm/dra/plugin/registration.go: the first known version is taken",
        remedy="put the newest version first",
        check=_check_newest_first,
    ),
    Row(
        id="REG-5",
        level=Level.MUST,
        tries="NotifyRegistrationStatus, repeated, as by a kubelet that restarts",
        source=f"{_API}: NotifyRegistrationStatus",
        remedy="answer each NotifyRegistrationStatus, and go on",
        check=_check_status,
    ),
)
INSTANCE_ROWS: Final = (
    Row(
        id="REG-6",
        level=Level.MUST,
        tries="two instances at once: unprepare by the newest one of what the older one has prepared",
        source=_ROLLING,
        remedy="keep what is prepared where each instance reads it at each call, or hand it over",
        check=_check_newest_instance,
    ),
    Row(
        id="REG-7",
        level=Level.MUST,
        tries="two instances at once: the end of the older one, while a claim is prepared",
        source=_ROLLING,
        remedy="remove at the end the sockets of this instance alone, and no file of a prepared claim and no slice",
        check=_check_end_of_older,
    ),
)
"""Those for which two instances of the driver run at the same time, as in a rolling update."""
