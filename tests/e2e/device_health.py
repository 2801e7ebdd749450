"""What a cluster says of the health of devices: in the status of pods, and by taints."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Final, NamedTuple

from tests.e2e import pods
from tests.e2e.hardware import NodeHardware
from tests.e2e.namespace import SETTLED_S, Namespace
from tests.e2e.wait import eventually
from tools.realcluster.kerf import Kerf

TAINT: Final = "gpu.kerf.dev/unhealthy"
REASON: Final = "Xid 63: row remapping is due"
LOSS: Final = "Xid 79: the GPU has fallen off the bus"


class CardState(NamedTuple):
    """What may befall a card, and what follows for its devices."""

    begin: Callable[[NodeHardware], object]
    taints: frozenset[tuple[str, str, str]]
    evicts: bool


STATES: Final = {
    "degraded": CardState(
        lambda hardware: hardware.make_unhealthy("gpu-0", REASON),
        frozenset({(TAINT, "degraded", "NoSchedule")}),
        evicts=False,
    ),
    "lost": CardState(
        lambda hardware: hardware.lose("gpu-0", LOSS), frozenset({(TAINT, "lost", "NoExecute")}), evicts=True
    ),
    "gone": CardState(
        lambda hardware: hardware.take_away("gpu-0"),
        frozenset({(TAINT, "lost", "NoExecute"), ("gpu.kerf.dev/quarantined", "", "NoSchedule")}),
        evicts=True,
    ),
}
ENDS: Final[dict[str, Callable[[Kerf, str], Awaitable[None]]]] = {
    "stopped": lambda kerf, node: kerf.stop_plugin(node),
    "killed": lambda kerf, node: kerf.crash_plugin(node),
}
"""The ways in which a plugin ends, by the node's name."""


async def health(namespace: Namespace, pod: str) -> Sequence[tuple[str, str]]:
    """Return the health and message of each device in the pod's status."""
    statuses = (await namespace.pod(pod))["status"].get("containerStatuses", ())
    resources = [one for status in statuses for one in status.get("allocatedResourcesStatus", ())]
    return [(one["health"], one.get("message", "")) for resource in resources for one in resource["resources"]]


async def taints(namespace: Namespace) -> set[tuple[str, str, str]]:
    """Return key, value and effect of all device taints."""
    return {taint for taint, _ in await tainted_devices(namespace)}


async def wait_taints(namespace: Namespace, *wanted: tuple[str, str, str]) -> None:
    """Wait until these are all device taints: each slice is written for itself."""

    async def are_there() -> bool:
        return await taints(namespace) == set(wanted)

    await eventually(f"the taints {wanted}", are_there, within_s=SETTLED_S, but=lambda: tainted_devices(namespace))


async def tainted_devices(namespace: Namespace) -> Sequence[tuple[tuple[str, str, str], str]]:
    """Return each taint with the name of its device; what repairs a card is in tests/e2e/test_automatic_repairs.py."""
    slices = await namespace.api.list(pods.RESOURCE, "ResourceSlice")
    return [
        ((taint["key"], taint.get("value", ""), taint["effect"]), device["name"])
        for one in slices
        for device in one["spec"].get("devices", ())
        for taint in device.get("taints", ())
        if not taint["key"].endswith("/repair")
    ]
