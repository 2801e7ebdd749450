"""Cards that an administrator has partitioned for claims (static MIG devices): offered, never made or destroyed."""

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Final

import pytest

from kerf_dra.driver.partitions.geometry import Placement
from tests.e2e import pods
from tests.e2e.device_health import health, tainted_devices
from tests.e2e.hardware import ON_NVIDIA
from tests.e2e.namespace import Namespace
from tests.e2e.node import NodeView
from tests.e2e.wait import eventually
from tools.realcluster.kerf import Hardware

pytestmark = ON_NVIDIA

HARDWARE = Hardware(cards=[{"kind": "gpu", "model": "h100-80gb-sxm"}], options={"migMode": "Static"})
EARLY_LOADING = True
"""The permission to list claims: without it devices are tainted, not withdrawn."""

MADE: Final = (("1g.10gb", Placement(0, 1)), ("1g.10gb", Placement(1, 1)), ("3g.40gb", Placement(4, 4)))
NAMES: Final = ["gpu-0-1g-10gb-at-0", "gpu-0-1g-10gb-at-1", "gpu-0-3g-40gb-at-4"]

_UNUSABLE: Final = "gpu.kerf.dev/unusable"


@pytest.fixture(scope="module", autouse=True)
def made(node: NodeView) -> Iterator[None]:
    """Partition the card as an administrator does, while the plugin runs."""
    with ExitStack() as stack:
        for profile, place in MADE:
            stack.enter_context(node.cut_by_hand("gpu-0", profile, start=place.start, size=place.size))
        yield


async def test_claims_get_what_an_administrator_has_made_and_leave_it_as_it_is(namespace: Namespace) -> None:
    made = namespace.node.hardware.uuids
    small = await namespace.resource_class("small", device="gpu", profile="1g.10gb")
    half = await namespace.resource_class("half", device="gpu", profile="3g.40gb")
    await namespace.template("small", pods.exactly("gpu", small))
    await namespace.template("half", pods.exactly("gpu", half))

    async def is_published() -> bool:
        return sorted(await namespace.published_devices()) == NAMES

    await eventually("what the administrator has made", is_published, but=namespace.published_devices)
    await namespace.create_pods("small", "s0", "s1")
    await namespace.create_pods("half", "h")
    given = [(await namespace.wait_running(name)).main.kerf_devices for name in ("s0", "s1", "h")]
    assert sorted(device for one in given for device in one) == NAMES
    assert sorted(uuid for one in given for uuid in one.values()) == sorted(made)

    await namespace.create_pods("small", "third")
    await namespace.wait_event("third", "FailedScheduling")
    await namespace.delete_pod("s0")
    await namespace.wait_running("third")
    for name in ("s1", "h", "third"):
        await namespace.delete_pod(name)
    assert namespace.node.hardware.uuids == made


async def test_what_an_administrator_removes_is_withdrawn_and_tainted_where_a_claim_has_it(
    namespace: Namespace,
) -> None:
    hardware = namespace.node.hardware
    half = await namespace.resource_class("half", device="gpu", profile="3g.40gb")
    stays = {"key": _UNUSABLE, "operator": "Exists"}  # else it is evicted, and what nothing has is withdrawn
    await namespace.template("half", pods.exactly("gpu", half, tolerations=[stays]))
    await namespace.create_pods("half", "h")
    before = await namespace.wait_running("h")
    hardware.destroy("gpu-0", MADE[0][1])
    hardware.destroy("gpu-0", MADE[2][1])

    async def is_gone() -> bool:
        return sorted(await namespace.published_devices()) == NAMES[1:] and set(await tainted_devices(namespace)) == {
            (("gpu.kerf.dev/held", "mode", "NoSchedule"), NAMES[2]),
            ((_UNUSABLE, "gone", "NoExecute"), NAMES[2]),
        }

    async def is_told() -> bool:
        return [state for state, _ in await health(namespace, "h")] == ["Unhealthy"]

    try:
        await eventually("one is withdrawn, one is tainted", is_gone, but=lambda: tainted_devices(namespace))
        await eventually("the pod is told", is_told, but=lambda: health(namespace, "h"))
        assert (await namespace.wait_running("h")).starts == before.starts
    finally:
        for profile, placement in (MADE[0], MADE[2]):
            hardware.cut("gpu-0", profile, placement)

    async def are_back() -> bool:
        return sorted(await namespace.published_devices()) == NAMES and not await tainted_devices(namespace)

    await eventually("both are offered again", are_back, but=lambda: tainted_devices(namespace))
