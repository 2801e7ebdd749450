"""One card of eight falls ill: its pods move, it is reset and back, and 20 pods' others notice nothing.

The cards are stand-ins for NVIDIA's, the reclaimer is in mode Act. A card that has fallen off the bus stays withheld,
and its maintenance says what to do.
"""

from collections.abc import Mapping
from typing import Final

from kerf_dra.driver.testing.nvml import NvidiaMachine
from tests.e2e import pods
from tests.e2e.card_drains import KERF, Cards, deployment
from tests.e2e.hardware import ON_NVIDIA
from tests.e2e.namespace import Namespace
from tests.e2e.wait import eventually
from tools.realcluster.api import Api, Document
from tools.realcluster.kerf import Hardware

HARDWARE = Hardware(cards=[{"kind": "gpu", "model": "h100-80gb-sxm", "count": 8}], options={})

RECLAIM_MODE = "Act"

pytestmark = ON_NVIDIA

ILL: Final = "gpu-0"
"""The first card in publish order: the first pods are on it."""
MEMBERS: Final = {"web": 10, "limits": 6, "shared": 4}
"""20 pods, by claims, by ``limits`` and in shares: they need three cards."""
RESET: Final = 1
BOOT: Final = 2
"""NVML_GPU_RECOVERY_ACTION_GPU_RESET and _NODE_REBOOT, which the driver wants after these Xids."""


async def run_pods(namespace: Namespace, cards: Cards) -> Mapping[str, tuple[str, int]]:
    """Have 20 pods run; returns their names and restarts by UID."""
    resource = f"example.com/{namespace.name}"
    small = await namespace.resource_class("small", device="gpu", profile="1g.10gb")
    limited = await namespace.resource_class("limited", device="gpu", profile="1g.10gb", extendedResourceName=resource)
    shared = await namespace.resource_class("shared", device="gpu", profile="1g.10gb", allocation="Shared")
    assert limited
    await namespace.template("small", pods.exactly("gpu", small))
    share = {"requests": {"memory": "4Gi"}}
    await namespace.template("shared", pods.exactly("gpu", shared, capacity=share))
    by_claim = pods.pod("any", {"devices": pods.by_template("small")})
    by_share = pods.pod("any", {"devices": pods.by_template("shared")})
    await namespace.apply(deployment("web", MEMBERS["web"], by_claim))
    await namespace.apply(deployment("limits", MEMBERS["limits"], pods.pod("any", limits={resource: "1"})))
    await namespace.apply(deployment("shared", MEMBERS["shared"], by_share))
    return await cards.until_running(sum(MEMBERS.values()))


async def find_automatic(api: Api) -> Document | None:
    found = await api.list(KERF, "CardMaintenance")
    assert len(found) <= 1, "one card is ill"
    return found[0] if found else None


def staying(
    before: Mapping[str, tuple[str, int]], after: Mapping[str, tuple[str, int]], leaving: set[str]
) -> tuple[Mapping[str, tuple[str, int]], Mapping[str, tuple[str, int]]]:
    """Return the pods of the other cards, as they were and as they are."""
    kept = {uid: one for uid, one in before.items() if uid not in leaving}
    return kept, {uid: after[uid] for uid in kept if uid in after}


async def test_an_uncontained_memory_error_has_one_card_drained_and_reset_and_no_pod_of_the_others_restarts(
    api: Api, namespace: Namespace, cards: Cards, machine: NvidiaMachine
) -> None:
    before = await run_pods(namespace, cards)
    leaving = await cards.list_holders(ILL)
    assert 0 < len(leaving) < len(before), "the card and others are in use"
    uuid = await cards.find_uuid(ILL)
    machine.set_recovery_action(0, RESET)
    machine.report_xid(0, 95)

    found = await eventually("the reclaimer drains the card", lambda: find_automatic(api))
    assert (found["spec"]["card"], found["spec"]["then"]) == (uuid, "Reset")
    assert found["metadata"]["labels"]["kerf.dev/automatic"] == "true"
    await cards.until_phase(found["metadata"]["name"], "Returned")

    async def is_well() -> bool:
        return not await cards.list_taints(ILL)

    await eventually("the card has no taint", is_well, but=lambda: cards.list_taints(ILL))
    after = await cards.until_running(sum(MEMBERS.values()))
    assert before.keys() - after.keys() == leaving
    was, is_now = staying(before, after, leaving)
    assert is_now == was, "the others have their containers, and none has restarted"
    events = await api.list("v1", "Event", "default")
    assert any(one["reason"] == "CardNeedsRepair" and uuid in one["message"] for one in events)


async def test_a_card_that_has_fallen_off_the_bus_is_drained_stays_withheld_and_says_what_to_do(
    api: Api, namespace: Namespace, cards: Cards, machine: NvidiaMachine
) -> None:
    before = await run_pods(namespace, cards)
    leaving = await cards.list_holders(ILL)
    machine.set_recovery_action(0, BOOT)
    machine.report_xid(0, 79)

    found = await eventually("the reclaimer drains the card", lambda: find_automatic(api))
    assert found["spec"]["then"] == "None"
    assert found["spec"]["reason"].endswith("; boot the node, then the card gets claims again")
    await cards.until_phase(found["metadata"]["name"], "Free")
    after = await cards.until_running(sum(MEMBERS.values()))
    was, is_now = staying(before, after, leaving)
    assert is_now == was
    found_taints = await cards.list_taints(ILL)
    assert "gpu.kerf.dev/maintenance=idle" in found_taints
    assert any(one.startswith("gpu.kerf.dev/repair=boot.") for one in found_taints)

    machine.set_recovery_action(0, 0)  # after a boot the driver wants nothing

    async def is_given_back() -> bool:
        return await find_automatic(api) is None and not await cards.list_taints(ILL)

    await eventually("the card gets claims again", is_given_back, but=lambda: cards.list_taints(ILL))
