"""One card of eight is drained and comes back: its pods move, and those of the other seven cards notice nothing.

Pods hold the cards by claims, by a shared claim and by ``limits``. A disruption budget delays evictions, marks forbid
others, and the reclaimer is killed in between.
"""

from typing import Final

from tests.e2e import pods
from tests.e2e.card_drains import Cards, deployment
from tests.e2e.hardware import BOTH_BACKENDS
from tests.e2e.namespace import Namespace
from tests.e2e.wait import eventually
from tools.realcluster.api import Api
from tools.realcluster.kerf import Hardware, Kerf

HARDWARE = Hardware(cards=[{"kind": "gpu", "model": "h100-80gb-sxm", "count": 8}], options={})

pytestmark = BOTH_BACKENDS

DRAINED: Final = "gpu-0"
"""The first card in publish order: the first pods are on it."""
SMALL = {"device": "gpu", "profile": "1g.10gb"}
MEMBERS: Final = 12
"""As many pods as need two cards, which have seven partitions each."""


async def test_the_pods_of_one_card_move_and_those_of_the_others_notice_nothing(
    api: Api, namespace: Namespace, cards: Cards, reclaimer: Kerf
) -> None:
    small = await namespace.resource_class("small", **SMALL)
    await namespace.template("small", pods.exactly("gpu", small))
    by_claim = pods.pod("any", {"devices": pods.by_template("small")})
    await namespace.apply(deployment("web", MEMBERS, by_claim))
    before = await cards.until_running(MEMBERS)
    leaving = await cards.list_holders(DRAINED)
    assert 0 < len(leaving) < MEMBERS, "the drained card and another one are in use"

    budget = {"minAvailable": MEMBERS, "selector": {"matchLabels": {"app": "web"}}}
    await namespace.apply(
        {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "web"}, "spec": budget}
    )

    async def forbids() -> bool:
        found = await api.get("policy/v1", "PodDisruptionBudget", "web", namespace.name)
        return bool(found.get("status", {}).get("currentHealthy") == MEMBERS)

    await eventually("the budget counts its pods", forbids)
    name = await cards.drain(DRAINED, reason="fan is loud")
    status = await cards.until_phase(name, "Evicting")

    async def is_refused() -> bool:
        seen = await cards.until_phase(name, "Evicting")
        return any("disruption budget" in one.get("message", "") for one in seen["holders"])

    await eventually("the budget refuses evictions", is_refused, but=lambda: cards.until_phase(name, "Evicting"))
    assert {one["podUID"] for one in status["holders"]} == leaving
    assert (await cards.list_running()).keys() == before.keys(), "no pod has been evicted"
    assert await cards.list_taints(DRAINED) == {"gpu.kerf.dev/maintenance=in-use"}

    await reclaimer.crash_reclaimer()
    await api.delete("policy/v1", "PodDisruptionBudget", "web", namespace.name)
    await reclaimer.start_reclaimer()
    await cards.until_phase(name, "Free")
    after = await cards.until_running(MEMBERS)
    assert before.keys() - after.keys() == leaving
    assert {uid: after[uid] for uid in before if uid in after} == {
        uid: before[uid] for uid in before if uid not in leaving
    }, "the others have their containers, and none has restarted"
    assert await cards.list_holders(DRAINED) == set()
    assert await cards.list_taints(DRAINED) == {"gpu.kerf.dev/maintenance=idle"}
    assert [one for one in namespace.node.gpu_partitions if one[0] == DRAINED] == [], "nothing is cut on the card"

    await cards.return_card(name, DRAINED)
    await namespace.create_pods("small", "first")
    await namespace.wait_running("first")


async def test_pods_by_limits_are_evicted_and_those_that_must_not_be_are_named(
    api: Api, namespace: Namespace, cards: Cards
) -> None:
    resource = f"example.com/{namespace.name}"
    small = await namespace.resource_class("small", extendedResourceName=resource, **SMALL)
    await namespace.template("small", pods.exactly("gpu", small))
    await namespace.claim("together", pods.exactly("gpu", small))
    await namespace.apply(deployment("small", 2, pods.pod("any", limits={resource: "1"})))
    await namespace.apply(deployment("web", 2, pods.pod("any", {"devices": pods.by_name("together")})))
    marked = pods.pod("marked", {"devices": pods.by_template("small")})
    marked["metadata"]["annotations"] = {"kerf.dev/do-not-evict": "true"}
    await namespace.apply(marked)
    await namespace.create_pods("small", "bare")
    before = await cards.until_running(6)
    assert await cards.list_holders(DRAINED) == before.keys()

    name = await cards.drain(DRAINED)
    status = await cards.until_phase(name, "Stuck")
    found = {one["pod"].partition("/")[2]: one["verdict"] for one in status["holders"]}
    assert (found.pop("marked"), found.pop("bare")) == ("Protected", "Bare")
    assert [pod.startswith("web-") for pod in found] == [True, True]
    assert set(found.values()) == {"SharedClaim"}
    after = await cards.until_running(6)
    gone = {pod.partition("-")[0] for uid, (pod, _) in before.items() if uid not in after}
    assert gone == {"small"}, "those by limits have moved, and no other one"

    await api.delete("apps/v1", "Deployment", "web", namespace.name)
    for pod in ("marked", "bare"):
        await api.delete("v1", "Pod", pod, namespace.name)
    await cards.until_phase(name, "Free")
    await cards.return_card(name, DRAINED)
