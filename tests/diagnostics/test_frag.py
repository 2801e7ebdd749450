"""The fragmentation of cards, and advice that has been tried."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kerf_dra.api.model.allocations import ResourceClaimStatus
from kerf_dra.api.model.claims import ResourceClaim
from kerf_dra.driver.allocation import Fits
from kerf_dra.driver.diagnostics.cluster_index import ClusterIndex
from kerf_dra.driver.diagnostics.cluster_state import ClusterState
from kerf_dra.driver.diagnostics.defragmentation import Advice
from kerf_dra.driver.diagnostics.errors import QueryError
from kerf_dra.driver.diagnostics.frag import measure_fragmentation
from tests.conftest import COSTLY
from tests.fakes.cluster_states import (
    ATTRIBUTES,
    allocate_claims,
    claim,
    device_class,
    gpu_cluster,
    node,
    pod,
    replace,
    request,
)


def claim_at(name: str, profile: str, start: int) -> ResourceClaim:
    """Return a claim for the partition that begins at ``start``."""
    return claim(name, request("gpu", profile, f"{ATTRIBUTES}.start == {start}"))


def free_sizes(now: ClusterState) -> dict[str, int]:
    return {each.size: each.free for each in measure_fragmentation(ClusterIndex(now)).sizes}


def test_an_idle_card_has_everything_once_over() -> None:
    assert free_sizes(gpu_cluster()) == {
        "1g.10gb": 7,
        "1g.10gb+me": 1,
        "1g.20gb": 4,
        "2g.20gb": 3,
        "3g.40gb": 2,
        "4g.40gb": 1,
        "7g.80gb": 1,
        "whole": 1,
    }


def test_sizes_are_added_up_over_cards_and_compared_with_what_is_possible() -> None:
    now = allocate_claims(gpu_cluster(2, 2), claim_at("a", "1g-10gb", 1), claim_at("b", "1g-10gb", 5), on="node-1")
    answer = measure_fragmentation(ClusterIndex(now))
    large = next(each for each in answer.sizes if each.size == "3g.40gb")
    assert (large.free, large.possible) == (6, 8)
    [used, *_] = answer.cards
    assert (used.node, used.card, used.claims, used.units) == ("node-1", "gpu-0", 2, 8)
    assert (used.free_units, used.largest_free_run, used.stranded_units) == (6, 3, 0)


def test_only_the_nodes_that_are_asked_for_count() -> None:
    assert {each.node for each in measure_fragmentation(ClusterIndex(gpu_cluster(3)), nodes=["node-2"]).cards} == {
        "node-2"
    }


def test_the_cheapest_claims_to_recreate_are_told_with_the_room_they_find() -> None:
    now = allocate_claims(gpu_cluster(2), claim("a", "1g-10gb"), on="node-1")
    now = allocate_claims(now, claim("b", "1g-10gb"), claim("c", "1g-20gb"), on="node-2")
    [advice] = measure_fragmentation(ClusterIndex(now), size="7g.80gb").advice
    assert (advice.node, advice.device) == ("node-1", "gpu-0-7g-80gb-at-0")
    [move] = advice.moves
    assert (move.claim, move.pods) == ("default/a", ("default/a",))
    assert all(device.startswith("gpu.kerf.dev/node-2/gpu/") for device in move.room_at)


def test_what_is_free_needs_no_recreating() -> None:
    [advice] = measure_fragmentation(ClusterIndex(gpu_cluster()), size="3g.40gb").advice
    assert advice.moves == ()


def test_by_default_advice_is_for_sizes_of_which_none_is_free_the_largest_first() -> None:
    now = allocate_claims(gpu_cluster(2), claim("a", "1g-10gb"), on="node-1")
    now = allocate_claims(now, claim("b", "1g-10gb"), on="node-2")
    assert [each.size for each in measure_fragmentation(ClusterIndex(now)).advice] == ["whole", "7g.80gb"]


def test_no_advice_is_told_where_what_is_in_the_way_finds_no_room() -> None:
    now = allocate_claims(gpu_cluster(2), claim("a", "3g-40gb"), claim("b", "3g-40gb"), on="node-1")
    now = allocate_claims(now, claim("c", "3g-40gb"), on="node-2")
    answer = measure_fragmentation(ClusterIndex(now), size="whole")
    assert answer.advice == ()
    assert [each.size for each in answer.no_advice] == ["whole"]


def test_claims_of_one_pod_go_together() -> None:
    now = allocate_claims(gpu_cluster(2, 2), claim_at("a", "1g-10gb", 0), claim_at("b", "1g-10gb", 3), on="node-1")
    now = allocate_claims(now, claim("x", "7g-80gb"), claim("y", "1g-10gb"), on="node-2")
    users = tuple(
        replace(each, status=replace(each.status, reserved_for=(replace(each.status.reserved_for[0], name="p"),)))
        if each.metadata.name in {"a", "b"}
        else each
        for each in now.claims
    )
    now = replace(now, claims=users, pods=(replace(pod("p", "a", "b")),))
    [advice] = measure_fragmentation(ClusterIndex(now), size="whole").advice
    if any(move.claim == "default/a" for move in advice.moves):
        assert {move.claim for move in advice.moves} == {"default/a", "default/b"}
    assert frees_partition(now, advice)


def test_a_claim_is_only_sent_where_its_pod_may_run() -> None:
    now = replace(gpu_cluster(2), nodes=(node("node-1", labels={"disk": "ssd"}), node("node-2")))
    now = allocate_claims(now, claim("a", "1g-10gb"), on="node-1")
    now = allocate_claims(now, claim("b", "3g-40gb"), claim("c", "3g-40gb"), on="node-2")
    now = replace(now, pods=(pod("a", "a", node_selector={"disk": "ssd"}),))
    assert measure_fragmentation(ClusterIndex(now), size="whole", nodes=["node-1"]).advice == ()


def test_a_size_that_no_card_has_is_a_bad_question() -> None:
    with pytest.raises(QueryError, match=r"no card has partitions of size '5g'; sizes: 1g.10gb, "):
        measure_fragmentation(ClusterIndex(gpu_cluster()), size="5g")


def frees_partition(now: ClusterState, advice: Advice) -> bool:
    """Whether the advice works out when it is followed: everything is recreated in its order, and the partition is had.

    The order matters: small claims that come first may take what a larger one needs.
    """
    moving = {move.claim for move in advice.moves}
    staying = tuple(each for each in now.claims if str(each.ref) not in moving)
    wanted = claim("wanted", request("gpu", "any-gpu", _is(advice.device)))
    taken = allocate_claims(
        replace(now, claims=staying, classes=(*now.classes, device_class("any-gpu"))), wanted, on=advice.node
    )
    claims = {str(each.ref): each for each in now.claims}
    for move in advice.moves:
        fresh = replace(claims[move.claim], status=ResourceClaimStatus())
        cluster = ClusterIndex(taken)
        if not any(isinstance(cluster.attempt([fresh], one), Fits) for one in cluster.nodes):
            return False
        taken = allocate_claims(taken, fresh)
    return True


def _is(device: str) -> str:
    """Return a selector for a device by the profile and start in its name."""
    if "-at-" not in device:
        return f'{ATTRIBUTES}.cut == "whole"'
    body, _, start = device.rpartition("-at-")
    compute, memory = body.split("-")[2:4]
    return f'{ATTRIBUTES}.profile == "{compute}.{memory}" && {ATTRIBUTES}.start == {start}'


PROFILES = st.sampled_from(["1g-10gb", "1g-20gb", "2g-20gb", "3g-40gb"])


ORDER_MATTERS = [("1g-10gb", "node-1")] * 2 + [("1g-20gb", "node-1")] * 2 + [("2g-20gb", "node-2")]
"""Made anew in the order of their names instead of the advice's, the small claims took the room of the larger."""


@example(ORDER_MATTERS)
@COSTLY
@given(st.lists(st.tuples(PROFILES, st.sampled_from(["node-1", "node-2"])), min_size=2, max_size=6))
def test_whoever_follows_the_advice_gets_the_partition(running: list[tuple[str, str]]) -> None:
    now = gpu_cluster(2, 1)
    for number, (profile, node_name) in enumerate(running):
        try:
            now = allocate_claims(now, claim(f"c{number}", profile), on=node_name)
        except StopIteration:
            continue
    told = measure_fragmentation(ClusterIndex(now)).advice
    assert told or running != ORDER_MATTERS
    for advice in told:
        assert frees_partition(now, advice), advice
