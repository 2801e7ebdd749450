"""Rows about what the driver publishes: ResourceSlices (KEP-4381)."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

import anyio

from kerf_dra.api.model.devices import ResourceSlice
from kerf_dra.driver.sanity.driver_under_test import DriverUnderTest, are_complete
from kerf_dra.driver.sanity.rows import Level, NotTriedError, Row

_TYPES: Final = "resource.k8s.io/v1 types.go"
_BACK_S: Final = 60.0
"""The longest time until deleted slices are back: drivers look at what was deleted at once, or in intervals."""
_POLL_S: Final = 0.1
"""Seconds between two looks at the slices."""
_MOST_COUNTER_SETS: Final = 8
"""Counter sets in one slice (ResourceSliceMaxCounterSets of 1.36 and later)."""


async def _list(driver: DriverUnderTest) -> dict[str, list[ResourceSlice]]:
    """Return the driver's slices of the newest generation, by pool. Raises NotTriedError when there is none."""
    pools: dict[str, list[ResourceSlice]] = {}
    for one in await driver.claims.list_slices():
        pools.setdefault(one.spec.pool.name, []).append(one)
    if not pools:
        raise NotTriedError("it has no slices that this node can use")
    newest = {name: max(one.spec.pool.generation for one in slices) for name, slices in pools.items()}
    return {name: [one for one in slices if one.spec.pool.generation == newest[name]] for name, slices in pools.items()}


async def _check_published(driver: DriverUnderTest) -> str:
    try:
        pools = await _list(driver)
    except NotTriedError:
        return f"there is no ResourceSlice of driver {driver.claims.driver} for node {driver.claims.node}"
    return "" if any(one.spec.devices for slices in pools.values() for one in slices) else "no slice has a device"


async def _check_complete(driver: DriverUnderTest) -> str:
    for name, slices in (await _list(driver)).items():
        said = {one.spec.pool.resource_slice_count for one in slices}
        if said != {len(slices)}:
            return f"pool {name}: {len(slices)} slices of its newest generation, which say {sorted(said)}"
    return ""


async def _check_names(driver: DriverUnderTest) -> str:
    for name, slices in (await _list(driver)).items():
        counts = Counter(device.name for one in slices for device in one.spec.devices)
        if repeated := [device for device, count in counts.items() if count > 1]:
            return f"pool {name} has {', '.join(sorted(repeated))} more than once"
    return ""


async def _check_counters(driver: DriverUnderTest) -> str:
    for name, slices in (await _list(driver)).items():
        known = {set_.name: set_.counters for one in slices for set_ in one.spec.shared_counters}
        for one in slices:
            if len(one.spec.shared_counters) > _MOST_COUNTER_SETS:
                return f"pool {name}: slice {one.metadata.name} has more than {_MOST_COUNTER_SETS} counter sets"
            for device in one.spec.devices:
                for use in device.consumes_counters:
                    missing = use.counters.keys() - known.get(use.counter_set, {}).keys()
                    if missing:
                        return (
                            f"pool {name}: device {device.name} consumes {', '.join(sorted(missing))} of "
                            f"{use.counter_set}, which no slice of the pool has"
                        )
    return ""


async def _check_owner(driver: DriverUnderTest) -> str:
    for slices in (await _list(driver)).values():
        for one in slices:
            owners = [(owner.kind, owner.name) for owner in one.metadata.owner_references]
            if one.spec.node_name and ("Node", one.spec.node_name) not in owners:
                return f"slice {one.metadata.name} of node {one.spec.node_name} is owned by {owners or 'nothing'}"
    return ""


async def _check_back(driver: DriverUnderTest) -> str:
    before = _name_devices(await _list(driver))
    await driver.claims.delete_slices()
    with anyio.move_on_after(_BACK_S):
        while not are_complete(await driver.claims.list_slices()):  # noqa: ASYNC110  (the API server is asked)
            await anyio.sleep(_POLL_S)
    try:
        after = _name_devices(await _list(driver))
    except NotTriedError:
        after = set()
    missing = sorted(before - after)
    if missing and driver.process is not None:
        await driver.restart()  # or rows that follow had no device
        await driver.wait_published()
    if not after:
        return f"no slice is back {_BACK_S:g} s after a kubelet deleted them"
    return (
        f"devices are not back {_BACK_S:g} s after a kubelet deleted the slices: {', '.join(missing)}"
        if missing
        else ""
    )


def _name_devices(pools: Mapping[str, Sequence[ResourceSlice]]) -> set[str]:
    return {f"{name}/{device.name}" for name, slices in pools.items() for one in slices for device in one.spec.devices}


ROWS: Final = (
    Row(
        id="SLICE-1",
        level=Level.MUST,
        tries="the slices of the driver",
        source="KEP-4381: drivers publish ResourceSlices",
        remedy="publish the devices of the node in ResourceSlices",
        check=_check_published,
    ),
    Row(
        id="SLICE-2",
        level=Level.MUST,
        tries="the slices of each pool's newest generation",
        source=f"{_TYPES}: ResourcePool.resourceSliceCount",
        remedy="say in each slice how many the pool has; schedulers use nothing of an incomplete pool",
        check=_check_complete,
    ),
    Row(
        id="SLICE-3",
        level=Level.MUST,
        tries="the names of each pool's devices",
        source=f"{_TYPES}: Device.name is unique in its pool",
        remedy="name each device of a pool once; schedulers take the pool for invalid",
        check=_check_names,
    ),
    Row(
        id="SLICE-4",
        level=Level.MUST,
        tries="the counters that devices consume",
        source="KEP-4815; structured allocator: pools with unknown counters are invalid",
        remedy="publish each counter set in a slice of the same pool and generation, at most 8 in a slice",
        check=_check_counters,
    ),
    Row(
        id="SLICE-5",
        level=Level.SHOULD,
        tries="the owners of node-local slices",
        source="k8s.io/dynamic-resource-allocation resourceslice: Owner",
        remedy="have the Node own them, so that they go when it does",
        check=_check_owner,
    ),
    Row(
        id="SLICE-6",
        level=Level.MUST,
        tries="the slices after a kubelet has deleted them, as each does at its start",
        source="pkg/kubelet/cm/dra/plugin/dra_plugin_manager.go: wipeResourceSlices",
        remedy="watch the driver's own slices, and write those again that are missing",
        check=_check_back,
    ),
)
