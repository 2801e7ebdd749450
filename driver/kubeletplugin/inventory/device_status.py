"""The plugin's entries in a claim's ``status.devices`` (KEP-4817): what the claim got, and binding conditions. Pure.

Each write replaces all entries of the driver. So a writer composes all of them: what is new, and of what the
claim has the part that stays.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, TypeAlias

import msgspec
from msgspec.structs import replace

from kerf_dra.api.kerf.device_status import MAX_DATA_BYTES, DeviceStatus
from kerf_dra.api.model.allocations import AllocatedDeviceStatus, ResourceClaimStatus
from kerf_dra.api.model.base import JsonObject
from kerf_dra.api.model.metadata import Condition
from kerf_dra.api.model.times import format_unix_time
from kerf_dra.api.wire import to_builtins
from kerf_dra.driver.kubeletplugin.inventory.binding_conditions import BindingConditions, device_key

READY: Final = "Ready"
"""The type that KEP-4817 recommends for a device that is configured as class and claim say."""

SIMULATED: Final = "Simulated"
"""The type of the condition that only devices of simulated hardware have."""

DeviceKey: TypeAlias = tuple[str, str, str, str | None]


def encode_data(status: DeviceStatus) -> JsonObject:
    """Return ``status`` as ``data``; what would be too long for the API server goes without paths and CDI names."""
    encoded = msgspec.json.encode(status)
    if len(encoded) > MAX_DATA_BYTES:
        status = replace(status, device_nodes=(), cdi_devices=())
    data: JsonObject = to_builtins(status)
    return data


def compose_device_statuses(
    status: ResourceClaimStatus,
    conditions: BindingConditions,
    *,
    driver: str,
    prepared: Mapping[DeviceKey, JsonObject],
    awaited: Iterable[AllocatedDeviceStatus] = (),
    now: float,
) -> tuple[AllocatedDeviceStatus, ...]:
    """Return all entries that ``driver`` should have in a claim's ``status``, in the order of the allocation.

    A device in ``prepared`` is ready and has its data; another one has neither. Binding conditions are those of
    ``awaited``, else those that the claim has. A condition keeps the time of its last transition; ``now`` is Unix time
    in seconds.
    """
    reported = {device_key(entry): entry for entry in select_reported(status, driver)}
    new = {device_key(entry): entry for entry in awaited}
    entries = []
    for result in status.allocation.devices.results if status.allocation is not None else ():
        if result.driver != driver:
            continue
        key = device_key(result)
        had = reported[key].conditions if key in reported else ()
        binding = new[key].conditions if key in new else tuple(each for each in had if each.type in conditions.types)
        ready = (_build_ready(now),) if key in prepared else ()
        simulated = (_build_simulated(now),) if prepared.get(key, {}).get("simulated") else ()
        entry = AllocatedDeviceStatus(
            driver=result.driver,
            pool=result.pool,
            device=result.device,
            share_id=result.share_id,
            conditions=tuple(_keep_time(each, had) for each in (*binding, *ready, *simulated)),
            data=prepared.get(key),
        )
        if entry.conditions:
            entries.append(entry)
    return tuple(entries)


def select_reported(status: ResourceClaimStatus, driver: str) -> tuple[AllocatedDeviceStatus, ...]:
    """Return the entries of ``driver`` that a claim has."""
    return tuple(entry for entry in status.devices if entry.driver == driver)


def are_same(one: Sequence[AllocatedDeviceStatus], other: Sequence[AllocatedDeviceStatus]) -> bool:
    """Whether both have the same entries, in whatever order."""
    return {device_key(entry): _unordered(entry) for entry in one} == {
        device_key(entry): _unordered(entry) for entry in other
    }


def _build_ready(now: float) -> Condition:
    return Condition(
        type=READY,
        status="True",
        reason="Prepared",
        message="the device is ready for containers",
        last_transition_time=format_unix_time(now),
    )


def _build_simulated(now: float) -> Condition:
    return Condition(
        type=SIMULATED,
        status="True",
        reason="SimulatedHardware",
        message="the hardware is simulated: nothing computes on the device",
        last_transition_time=format_unix_time(now),
    )


def _keep_time(condition: Condition, had: Iterable[Condition]) -> Condition:
    for before in had:
        if (before.type, before.status) == (condition.type, condition.status):
            return replace(condition, last_transition_time=before.last_transition_time)
    return condition


def _unordered(entry: AllocatedDeviceStatus) -> tuple[frozenset[Condition], JsonObject | None]:
    return frozenset(entry.conditions), entry.data
