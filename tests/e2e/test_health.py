"""Unhealthy cards get no new pods; running pods report it, and are evicted where an administrator demands it."""

from collections.abc import Awaitable, Callable

import pytest

from tests.e2e import pods
from tests.e2e.conftest import NODE
from tests.e2e.device_health import ENDS, LOSS, REASON, STATES, TAINT, CardState, health, taints, wait_taints
from tests.e2e.hardware import BOTH_BACKENDS
from tests.e2e.namespace import Namespace
from tests.e2e.wait import eventually
from tools.realcluster.api import Document
from tools.realcluster.environment import chosen_version
from tools.realcluster.kerf import Hardware, Kerf

HARDWARE = Hardware(cards=[{"kind": "gpu", "model": "h100-80gb-sxm"}], options={})
RULES = f"resource.k8s.io/{chosen_version().taint_rule_version}"


async def small_pods(namespace: Namespace, *names: str) -> None:
    small = await namespace.resource_class("small", device="gpu", profile="1g.10gb")
    await namespace.template("small", pods.exactly("gpu", small))
    await namespace.create_pods("small", *names)


@BOTH_BACKENDS
async def test_an_ill_card_gets_no_new_pods_until_it_is_well_and_running_ones_are_told(namespace: Namespace) -> None:
    await small_pods(namespace, "before")
    before = await namespace.wait_running("before")

    async def is_healthy() -> bool:
        return [state for state, _ in await health(namespace, "before")] == ["Healthy"]

    await eventually("the pod's device is healthy", is_healthy, but=lambda: health(namespace, "before"))
    reason = namespace.node.hardware.make_unhealthy("gpu-0", REASON)

    async def is_ill() -> bool:
        return await health(namespace, "before") == [("Unhealthy", reason)]

    await eventually("the pod's device is ill", is_ill, but=lambda: health(namespace, "before"))
    await wait_taints(namespace, (TAINT, "degraded", "NoSchedule"))
    await namespace.create_pods("small", "after")
    await namespace.wait_event("after", "FailedScheduling")
    assert (await namespace.wait_running("before")).starts == before.starts, "NoSchedule does not end what runs"

    namespace.node.hardware.repair()
    await namespace.wait_running("after")
    await eventually("the pod's device is healthy again", is_healthy, but=lambda: health(namespace, "before"))
    await wait_taints(namespace)


async def test_a_claim_that_tolerates_the_taint_gets_an_ill_card(namespace: Namespace) -> None:
    small = await namespace.resource_class("small", device="gpu", profile="1g.10gb")
    tolerations = [{"key": TAINT, "operator": "Exists"}]
    await namespace.template("brave", pods.exactly("gpu", small, tolerations=tolerations))
    partition = next(name for name in await namespace.published_devices() if "-1g-10gb-at-" in name)
    namespace.node.hardware.make_unhealthy(partition, "ECC errors")
    await eventually("the devices are tainted", lambda: taints(namespace))
    await namespace.create_pods("brave", "p")
    await namespace.wait_running("p")


@BOTH_BACKENDS
async def test_pods_leave_a_lost_card_and_come_back_to_it_when_it_is_well(namespace: Namespace) -> None:
    await small_pods(namespace, "before")
    await namespace.wait_running("before")
    namespace.node.hardware.lose("gpu-0", LOSS)
    await namespace.wait_gone("v1", "Pod", "before")
    await wait_taints(namespace, (TAINT, "lost", "NoExecute"))
    await namespace.wait_clean()
    await namespace.create_pods("small", "after")
    await namespace.wait_event("after", "FailedScheduling")
    namespace.node.hardware.repair()
    await namespace.wait_running("after")


@BOTH_BACKENDS
@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS.keys())
@pytest.mark.parametrize("state", STATES.values(), ids=STATES.keys())
async def test_what_befalls_a_card_while_no_plugin_runs_follows_when_one_does(
    namespace: Namespace, kerf: Kerf, state: CardState, end: Callable[[Kerf, str], Awaitable[None]]
) -> None:
    """The device of a card that was gone by then was withdrawn, and its pod stayed."""
    await small_pods(namespace, "before")
    before = await namespace.wait_running("before")
    await end(kerf, NODE)
    state.begin(namespace.node.hardware)
    await kerf.start_plugin(NODE)
    if state.evicts:
        await namespace.wait_gone("v1", "Pod", "before")
    else:
        await wait_taints(namespace, *state.taints)
        assert (await namespace.wait_running("before")).starts == before.starts
    namespace.node.hardware.repair()
    await namespace.create_pods("small", "after")
    await namespace.wait_running("after")
    await wait_taints(namespace)


async def test_an_administrators_rule_evicts_pods_from_a_card(namespace: Namespace) -> None:
    await small_pods(namespace, "p")
    await namespace.wait_running("p")
    (result,) = await namespace.allocation_results("p")
    rule: Document = {
        "apiVersion": RULES,
        "kind": "DeviceTaintRule",
        "metadata": {"name": namespace.name},
        "spec": {
            "deviceSelector": {key: result[key] for key in ("driver", "pool", "device")},
            "taint": {"key": "example.com/maintenance", "effect": "NoExecute"},
        },
    }
    await namespace.api.create(rule)
    try:
        await namespace.wait_gone("v1", "Pod", "p")
        await namespace.wait_clean()
    finally:
        await namespace.api.delete(RULES, "DeviceTaintRule", namespace.name)
