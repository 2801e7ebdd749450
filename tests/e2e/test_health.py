"""Cards that fall ill: new pods stay away, running ones are told, evicted where an administrator says so."""

from collections.abc import Sequence

from tests.e2e import pods
from tests.e2e.namespace import Space
from tests.e2e.wait import eventually
from tests.realcluster.api import Document
from tests.realcluster.environment import chosen_version
from tests.realcluster.kerf import Hardware

HARDWARE = Hardware(cards=[{"kind": "gpu", "model": "h100-80gb-sxm"}], options={})
REASON = "Xid 63: row remapping is due"
LOSS = "Xid 79: the GPU has fallen off the bus"
TAINT = "kerf.dev/unhealthy"
RULES = f"resource.k8s.io/{chosen_version().taint_rule_version}"


async def small_pods(space: Space, *names: str) -> None:
    small = await space.resource_class("small", device="gpu", profile="1g.10gb")
    await space.template("small", pods.exactly("gpu", small))
    await space.pods_of("small", *names)


async def health(space: Space, pod: str) -> Sequence[tuple[str, str]]:
    """What the pod's status says of its devices: health and message."""
    statuses = (await space.pod(pod))["status"].get("containerStatuses", ())
    resources = [one for status in statuses for one in status.get("allocatedResourcesStatus", ())]
    return [(one["health"], one.get("message", "")) for resource in resources for one in resource["resources"]]


async def taints(space: Space) -> set[tuple[str, str, str]]:
    """Key, value and effect of all that there are."""
    slices = await space.api.list("resource.k8s.io/v1", "ResourceSlice")
    devices = [device for one in slices for device in one["spec"].get("devices", ())]
    found = [taint for device in devices for taint in device.get("taints", ())]
    return {(taint["key"], taint.get("value", ""), taint["effect"]) for taint in found}


async def test_an_ill_card_gets_no_new_pods_until_it_is_well_and_running_ones_are_told(space: Space) -> None:
    await small_pods(space, "before")
    before = await space.running("before")

    async def is_healthy() -> bool:
        return [state for state, _ in await health(space, "before")] == ["Healthy"]

    await eventually("the pod's device is healthy", is_healthy, but=lambda: health(space, "before"))
    space.node.make_ill("gpu-0", REASON)

    async def is_ill() -> bool:
        return await health(space, "before") == [("Unhealthy", REASON)]

    await eventually("the pod's device is ill", is_ill, but=lambda: health(space, "before"))
    await eventually("the devices are tainted", lambda: taints(space))
    assert await taints(space) == {(TAINT, "ill", "NoSchedule")}
    await space.pods_of("small", "after")
    await space.waits("after", "FailedScheduling")
    assert (await space.running("before")).starts == before.starts, "NoSchedule does not end what runs"

    space.node.repair()
    await space.running("after")
    await eventually("the pod's device is healthy again", is_healthy, but=lambda: health(space, "before"))
    assert await taints(space) == set()


async def test_a_claim_that_tolerates_the_taint_gets_an_ill_card(space: Space) -> None:
    small = await space.resource_class("small", device="gpu", profile="1g.10gb")
    tolerations = [{"key": TAINT, "operator": "Exists"}]
    await space.template("brave", pods.exactly("gpu", small, tolerations=tolerations))
    partition = next(name for name in await space.published() if "-1g-10gb-at-" in name)
    space.node.make_ill(partition, "ECC errors")
    await eventually("the devices are tainted", lambda: taints(space))
    await space.pods_of("brave", "p")
    await space.running("p")


async def test_pods_leave_a_lost_card_and_come_back_to_it_when_it_is_well(space: Space) -> None:
    await small_pods(space, "before")
    await space.running("before")
    space.node.lose("gpu-0", LOSS)
    await space.gone("v1", "Pod", "before")
    assert await taints(space) == {(TAINT, "lost", "NoExecute")}
    await space.nothing_left()
    await space.pods_of("small", "after")
    await space.waits("after", "FailedScheduling")
    space.node.repair()
    await space.running("after")


async def test_an_administrators_rule_evicts_pods_from_a_card(space: Space) -> None:
    await small_pods(space, "p")
    await space.running("p")
    (result,) = await space.allocated("p")
    rule: Document = {
        "apiVersion": RULES,
        "kind": "DeviceTaintRule",
        "metadata": {"name": space.name},
        "spec": {
            "deviceSelector": {key: result[key] for key in ("driver", "pool", "device")},
            "taint": {"key": "example.com/maintenance", "effect": "NoExecute"},
        },
    }
    await space.api.create(rule)
    try:
        await space.gone("v1", "Pod", "p")
        await space.nothing_left()
    finally:
        await space.api.delete(RULES, "DeviceTaintRule", space.name)
