"""Rows about the health of devices, for drivers that report it (KEP-4680)."""

from typing import Final

from kerf_dra.driver.sanity.driver_under_test import DriverUnderTest
from kerf_dra.driver.sanity.rows import Level, NotTriedError, Row

_KEP: Final = "KEP-4680"


async def _check_names(driver: DriverUnderTest) -> str:
    reports = await driver.watch_health()
    if reports is None:
        raise NotTriedError("it does not offer DRAResourceHealth")
    slices = await driver.claims.list_slices()
    if not slices:
        raise NotTriedError("it has no slices that this node can use")
    published = {(one.spec.pool.name, device.name) for one in slices for device in one.spec.devices}
    unknown = sorted(f"{each.pool}/{each.device}" for each in reports if (each.pool, each.device) not in published)
    return f"health is reported of {', '.join(unknown)}, which no slice has" if unknown else ""


ROWS: Final = (
    Row(
        id="HEALTH-1",
        level=Level.MUST,
        tries="NodeWatchResources: its first answer",
        source=f"{_KEP}: DeviceIdentifier has the names of a published device",
        remedy="answer within 30 s, with the names of pools and devices as in the slices",
        check=_check_names,
    ),
)
