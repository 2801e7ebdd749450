"""The reclaimer: what it evicts and writes, in which order, and what it makes of refusals and failures."""

from itertools import pairwise
from typing import Any

import pytest
from msgspec.structs import replace

from kerf_dra.api.model.names import ObjectRef
from kerf_dra.driver.controller.reclaim.settings import ReclaimSettings
from kerf_dra.driver.families.shared.node_labels import NODE_LABEL
from kerf_dra.driver.kube.http.errors import ForbiddenError, ServerError, UnreachableError
from kerf_dra.driver.reclaim.automatic_repairs import ReclaimMode, RepairLimits
from kerf_dra.driver.runtime.metrics import REGISTRY

from .cluster import BUDGET, Cluster, KilledError, uuid


def writes(cluster: Cluster) -> list[tuple[str, str]]:
    return [call for call in cluster.calls if call[0] not in ("list", "find")]


async def drained() -> tuple[Cluster, str]:
    """Return a cluster whose second card is tainted and held by the pod ``web``, the first one by ``other``."""
    cluster = Cluster()
    cluster.run_pod("other", "gpu-0")
    cluster.run_pod("web", "gpu-1")
    name = cluster.drain("gpu-1", reason="fan is loud")
    await cluster.reconcile()
    cluster.follow_maintenances()
    return cluster, name


async def test_a_card_is_free_after_its_pods_have_ended_and_pods_of_the_other_card_stay() -> None:
    cluster, name = await drained()
    assert (cluster.status(name).phase, cluster.evicted) == ("Pending", [])
    assert await cluster.reconcile(), "it looks again soon"
    assert (cluster.status(name).phase, [uid[:7] for uid in cluster.evicted]) == ("Evicting", ["uid-web"])
    await cluster.reconcile()
    assert [each.verdict for each in cluster.status(name).holders] == ["Ending"]
    cluster.end_deleted_pods()
    assert not await cluster.reconcile(), "nothing changes by itself any more"
    assert (cluster.status(name).phase, cluster.status(name).holders) == ("Free", ())
    assert [ref.name for ref in cluster.pods] == ["other"]


async def test_the_pod_has_an_event_that_says_why() -> None:
    cluster, _ = await drained()
    await cluster.reconcile()
    assert cluster.events == [("web", "the pod is evicted: card gpu-1 of node node-1 is in maintenance: fan is loud")]


async def test_a_status_is_written_when_it_differs_and_not_again() -> None:
    cluster, name = await drained()
    await cluster.reconcile()
    await cluster.reconcile()
    before = writes(cluster)
    for _ in range(3):
        await cluster.reconcile()
    assert writes(cluster) == before
    assert before == [
        ("patch object", name),
        ("patch status", name),
        ("evict", "default/web"),
        ("patch status", name),
        ("patch status", name),
    ]


async def test_an_object_without_the_label_of_its_node_gets_it() -> None:
    cluster, name = await drained()
    assert cluster.maintenances[name]["metadata"]["labels"] == {NODE_LABEL: "node-1"}


async def test_a_pod_that_a_disruption_budget_protects_is_tried_again_with_back_off_and_evicted_then() -> None:
    cluster, name = await drained()
    [uid] = [one.metadata.uid for one in cluster.pods.values() if one.metadata.name == "web"]
    cluster.protected = {uid}
    tries: list[float] = []
    for _ in range(400):
        before = len(cluster.calls)
        await cluster.reconcile()
        tries += [cluster.seconds for call in cluster.calls[before:] if call[0] == "evict"]
        cluster.seconds += 1
    assert 5 < len(tries) < 15
    gaps = [later - earlier for earlier, later in pairwise(tries)]
    assert gaps == sorted(gaps[:4]) + gaps[4:], "longer each time at first"
    assert max(gaps) <= 74, "a minute, with its jitter"
    assert cluster.status(name).holders[0].message == f"its eviction waits: {BUDGET}"
    assert cluster.status(name).phase == "Evicting"
    cluster.protected = set()
    cluster.seconds += 100
    await cluster.reconcile()
    assert cluster.evicted == [uid]


async def test_a_refused_eviction_does_not_keep_the_other_pods_of_the_card() -> None:
    cluster, _ = await drained()
    cluster.run_pod("web-2", "gpu-1")
    cluster.protected = {one.metadata.uid for one in cluster.pods.values() if one.metadata.name == "web"}
    await cluster.reconcile()
    assert [uid[:9] for uid in cluster.evicted] == ["uid-web-2"]


async def test_a_pod_that_was_created_again_under_its_name_is_not_evicted_by_a_late_cache() -> None:
    """A StatefulSet's pod has the name of the one before: the UID is a precondition of the eviction."""
    cluster, _ = await drained()
    cluster.deliver()
    [old] = [one for one in cluster.pods.values() if one.metadata.name == "web"]
    cluster.fail = lambda verb, _: _replace_pod(cluster, old.ref) if verb == "evict" else None
    await cluster.reclaimer.reconcile()
    assert cluster.evicted == []
    assert cluster.pods[old.ref].metadata.uid != old.metadata.uid


def _replace_pod(cluster: Cluster, ref: ObjectRef) -> None:
    cluster.end_pod(ref)
    cluster.run_pod(ref.name, "gpu-0")


async def test_a_maintenance_that_has_been_ended_has_no_pod_evicted_by_a_late_cache() -> None:
    for change in ("deleted", "created again", "for another card"):
        cluster, name = await drained()
        cluster.deliver()
        if change == "deleted":
            del cluster.maintenances[name]
        elif change == "created again":
            cluster.drain("gpu-1", name=name)
        else:
            cluster.maintenances[name]["spec"]["card"] = uuid("gpu-0")
        await cluster.reclaimer.reconcile()
        assert cluster.evicted == [], change


@pytest.mark.parametrize(
    "fields",
    [
        {"owner": None},
        {"namespace": "kube-system"},
        {"annotations": {"kerf.dev/do-not-evict": "true"}},
    ],
)
async def test_what_is_never_evicted_leaves_the_card_stuck_with_a_name(fields: dict[str, Any]) -> None:
    cluster = Cluster()
    cluster.run_pod("keep", "gpu-1", **fields)
    name = cluster.drain("gpu-1")
    cluster.follow_maintenances()
    assert not await cluster.reconcile()
    assert (cluster.status(name).phase, cluster.evicted) == ("Stuck", [])
    assert cluster.status(name).holders[0].pod.endswith("/keep")


async def test_bare_pods_are_evicted_where_the_maintenance_allows_it() -> None:
    cluster = Cluster(may_evict_bare=True)
    uid = cluster.run_pod("bare", "gpu-1", owner=None)
    cluster.drain("gpu-1", evictBarePods=True)
    cluster.follow_maintenances()
    await cluster.reconcile()
    assert cluster.evicted == [uid]


async def test_only_so_many_cards_are_drained_at_a_time() -> None:
    cluster = Cluster(settings=ReclaimSettings(limits=RepairLimits(cards=1, node_cards=1)))
    for card in ("gpu-0", "gpu-1"):
        cluster.run_pod(f"on-{card}", card)
    first, second = cluster.drain("gpu-1"), cluster.drain("gpu-0")
    cluster.follow_maintenances()
    await cluster.reconcile()
    assert (cluster.status(first).phase, cluster.status(second).phase) == ("Evicting", "Withheld")
    assert len(cluster.evicted) == 1
    cluster.end_deleted_pods()
    await cluster.reconcile()
    assert (cluster.status(first).phase, cluster.status(second).phase) == ("Free", "Evicting")
    assert len(cluster.evicted) == 2


async def test_a_limit_of_zero_cards_lets_none_be_drained_and_the_status_says_which_limit() -> None:
    for limits, said in (
        (RepairLimits(cards=0, node_cards=1), "0 cards of the cluster are drained at a time (--reclaim-cards)"),
        (RepairLimits(cards=1, node_cards=0), "0 cards of a node are drained at a time (--reclaim-node-cards)"),
    ):
        cluster = Cluster(settings=ReclaimSettings(limits=limits))
        cluster.run_pod("web", "gpu-1")
        name = cluster.drain("gpu-1")
        cluster.follow_maintenances()
        await cluster.reconcile()
        assert (cluster.status(name).phase, cluster.evicted) == ("Withheld", [])
        assert said in cluster.status(name).message


async def test_so_many_pods_are_evicted_in_an_hour_and_the_status_says_what_the_others_wait_for() -> None:
    cluster = Cluster(settings=ReclaimSettings(evictions=3, namespace_evictions=2))
    for name in ("a", "b", "c"):
        cluster.run_pod(name, "gpu-1")
    cluster.run_pod("d", "gpu-1", namespace="other")
    gone = cluster.run_pod("e", "gpu-1", namespace="other")
    cluster.protected = {gone}
    name = cluster.drain("gpu-1")
    cluster.follow_maintenances()
    await cluster.reconcile()
    assert [uid.split("-")[1] for uid in cluster.evicted] == ["a", "b", "d"]
    assert cluster.status(name).phase == "Evicting"
    messages = {each.pod: each.message for each in cluster.status(name).holders}
    assert "at most 2 pods of namespace default are evicted in an hour" in messages["default/c"]
    assert "at most 3 pods of the cluster are evicted in an hour" in messages["other/e"]
    cluster.protected = set()
    cluster.seconds += 3599
    await cluster.reconcile()
    assert len(cluster.evicted) == 3
    cluster.seconds += 1
    await cluster.reconcile()
    assert [uid.split("-")[1] for uid in cluster.evicted] == ["a", "b", "d", "c", "e"]


async def test_refused_evictions_are_none_of_the_hour_and_those_without_an_answer_are() -> None:
    cluster = Cluster(settings=ReclaimSettings(evictions=2))
    for name in ("a", "b", "c"):
        cluster.run_pod(name, "gpu-1")
    uids = {ref.name: one.metadata.uid for ref, one in cluster.pods.items()}
    cluster.drain("gpu-1")
    cluster.follow_maintenances()
    cluster.protected = {uids["a"]}
    cluster.fail = lambda verb, name: UnreachableError("POST", "reset") if (verb, name[-1]) == ("evict", "b") else None
    await cluster.reconcile()
    assert cluster.evicted == [uids["c"]]
    cluster.protected, cluster.fail = set(), lambda _verb, _name: None
    cluster.seconds += 100
    await cluster.reconcile()
    assert cluster.evicted == [uids["c"]], "b's may have happened"


async def test_what_the_node_has_done_is_not_written_back_from_a_late_cache() -> None:
    cluster, name = await drained()
    await cluster.reconcile()
    cluster.end_deleted_pods()
    cluster.maintenances[name]["status"]["work"] = {"state": "Acting", "observedGeneration": 1}
    cluster.deliver()
    cluster.maintenances[name]["status"]["work"] = {"state": "Verifying", "observedGeneration": 1}
    await cluster.reclaimer.reconcile()
    assert cluster.status(name).phase == "Acting"
    assert cluster.maintenances[name]["status"]["work"]["state"] == "Verifying"


async def test_in_mode_off_nothing_is_evicted_and_nothing_is_written() -> None:
    cluster = Cluster(settings=ReclaimSettings(mode=ReclaimMode.OFF))
    cluster.run_pod("web", "gpu-1")
    cluster.drain("gpu-1")
    cluster.follow_maintenances()
    assert not await cluster.reconcile()
    assert (cluster.evicted, writes(cluster)) == ([], [])


async def test_a_second_maintenance_of_a_card_waits_for_the_first_and_goes_on_when_that_is_deleted() -> None:
    cluster, first = await drained()
    second = cluster.drain("gpu-1", name="another")
    cluster.protected = {one.metadata.uid for one in cluster.pods.values()}
    await cluster.reconcile()
    assert (cluster.status(first).phase, cluster.status(second).phase) == ("Evicting", "Withheld")
    del cluster.maintenances[first]
    cluster.protected = set()
    cluster.seconds += 100
    await cluster.reconcile()
    assert cluster.status(second).phase == "Evicting"
    assert len(cluster.evicted) == 1


async def test_an_invalid_maintenance_evicts_nothing_says_why_and_keeps_no_other_from_its_work() -> None:
    cluster, name = await drained()
    broken = cluster.drain("gpu-0", name="broken", then="Explode", color="red")
    await cluster.reconcile()
    assert cluster.status(name).phase == "Evicting"
    assert cluster.status(broken).phase == "Pending"
    [accepted] = cluster.status(broken).conditions
    assert (accepted.status, accepted.reason) == ("False", "Invalid")
    assert "spec.then" in accepted.message
    assert "spec.color" in accepted.message
    assert all(cluster.cards[uid] == "gpu-1" for uid in cluster.evicted)


@pytest.mark.parametrize(
    "error",
    [
        ServerError("POST", 500, "InternalError", "found more than one disruption budget for the pod"),
        ForbiddenError("POST", 403, "Forbidden", "may not create pods/eviction"),
        UnreachableError("POST", "refused"),
    ],
)
async def test_a_failed_eviction_is_in_the_status_and_tried_again(error: Exception) -> None:
    cluster, name = await drained()
    cluster.fail = lambda verb, _: error if verb == "evict" else None
    await cluster.reconcile()
    assert cluster.status(name).holders[0].message.startswith("its eviction failed: ")
    cluster.fail = lambda _verb, _name: None
    await cluster.reconcile()
    assert cluster.evicted == [], "not at once"
    cluster.seconds += 100
    await cluster.reconcile()
    assert len(cluster.evicted) == 1


async def test_a_node_that_cannot_be_read_keeps_no_other_maintenance_from_its_work() -> None:
    cluster, name = await drained()
    lost = cluster.drain("gpu-0", name="another-node", nodeName="node-2")
    slow = [ServerError("GET", 500, "InternalError", "etcd is slow")]
    cluster.fail = lambda verb, _: slow.pop() if verb == "list" and slow else None
    assert await cluster.reconcile()
    assert cluster.status(name).phase == "Pending", "the read of its node failed"
    assert cluster.status(lost).message.startswith("node node-2 publishes no card GPU-node-1-0")
    await cluster.reconcile()
    assert cluster.status(name).phase == "Evicting"


@pytest.mark.parametrize("number", range(5))
@pytest.mark.parametrize("is_done", [True, False], ids=["after the write", "before the write"])
async def test_a_process_that_is_killed_at_any_write_is_followed_by_one_that_goes_on(
    number: int, is_done: bool
) -> None:
    """The judge in the fake asserts that no pod is evicted twice, whatever the killed process has done."""
    cluster = Cluster()
    cluster.run_pod("web", "gpu-1")
    cluster.run_pod("web-2", "gpu-1")
    name = cluster.drain("gpu-1")
    left = [number]

    def kill(verb: str, _name: str) -> Exception | None:
        is_write = verb not in ("list", "find")
        left[0] -= is_write
        return KilledError() if left[0] == -1 and is_write else None

    if is_done:
        cluster.lose_answer = kill
    else:
        cluster.fail = kill
    kills = 0
    for _ in range(12):
        try:
            await cluster.reconcile()
        except KilledError:
            kills += 1
            cluster.new_process()
        cluster.follow_maintenances()
        if len(cluster.evicted) == 2:
            cluster.end_deleted_pods()
    assert kills == 1
    assert cluster.status(name).phase == "Free"
    assert len(cluster.evicted) == 2


async def test_a_second_maintenance_of_a_card_goes_on_when_the_first_has_returned_it() -> None:
    cluster, first = await drained()
    second = cluster.drain("gpu-1", name="another")
    cluster.end_deleted_pods()
    await cluster.reconcile()
    assert (cluster.status(first).phase, cluster.status(second).phase) == ("Evicting", "Withheld")
    work = {"state": "Done", "message": "it was reset", "observedGeneration": 1}
    cluster.maintenances[first].setdefault("status", {})["work"] = work
    await cluster.reconcile()
    assert cluster.status(first).phase == "Returned"
    assert cluster.status(first).work is not None, "the reclaimer leaves what the node has written"
    assert cluster.status(second).phase in ("Evicting", "Free")


async def test_only_changes_of_claims_of_cards_in_maintenance_matter() -> None:
    cluster, _ = await drained()
    await cluster.reconcile()
    held = cluster.claims[ObjectRef("default", "web-gpu")]
    other = cluster.claims[ObjectRef("default", "other-gpu")]
    assert cluster.reclaimer.concerns(held)
    assert not cluster.reclaimer.concerns(other)
    assert not cluster.reclaimer.concerns(replace(held, status=replace(held.status, allocation=None)))


async def test_metrics_count_phases_and_evictions() -> None:
    cluster, _ = await drained()
    before = REGISTRY.get_sample_value("kerf_card_evictions_total", {"result": "accepted"}) or 0
    await cluster.reconcile()
    assert REGISTRY.get_sample_value("kerf_card_maintenances", {"phase": "Evicting"}) == 1
    assert REGISTRY.get_sample_value("kerf_card_maintenances", {"phase": "Free"}) == 0
    assert REGISTRY.get_sample_value("kerf_card_evictions_total", {"result": "accepted"}) == before + 1
    assert uuid("gpu-1") == "GPU-node-1-1"
