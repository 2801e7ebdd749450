"""Rows about the registration of a plugin (``k8s.io/kubelet/pkg/apis/pluginregistration/v1``)."""

from pathlib import Path
from typing import Final

from kerf_dra.api.dra.registry import SUPPORTED_VERSIONS
from kerf_dra.api.registration.v1 import DRA_PLUGIN, RegistrationStatus
from kerf_dra.driver.sanity.driver_under_test import DriverUnderTest, is_socket
from kerf_dra.driver.sanity.rows import Level, NotTriedError, Row

_API: Final = "k8s.io/kubelet pluginregistration/v1 api.proto"


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
