"""How decisions of kube-scheduler are compared with the model's, and what is counted meanwhile."""

import itertools
from collections import Counter

import pytest

from kerf_dra.driver.controller.structured.placement.scheduler_extender import RequestOutcome, count_request
from kerf_dra.driver.placement.placement_value import NodeRank
from tests.bench.node_choice import (
    Candidate,
    Nodes,
    with_best_grade,
    with_best_rank,
    with_least_held,
    with_most_held,
)
from tests.bench.node_decisions import (
    CARD_SLICES,
    DEFAULT,
    NODE_CPUS,
    SCORES,
    ApiRequest,
    Comparison,
    Layout,
    Replay,
    count_calls,
    parse_requests,
    request_rows,
    rows,
)
from tests.bench.placement_cluster import Course, Decision

LOW = Candidate(0, 1, NodeRank(2, 7), alternative=2)
HIGH, FULL = (Candidate(number, 4, NodeRank(loss, 4), alternative=1) for number, loss in ((1, 1), (2, 4)))


def comparison(*decisions: Decision, refused: int = 0) -> Comparison:
    course = Course()
    course.decisions = list(decisions)
    course.answers = [("1g.10gb", True)] * len(decisions) + [("7g.80gb", False)] * refused
    return Comparison(Layout(Nodes(3, 1)), DEFAULT, course)


@pytest.mark.parametrize(("cpus_of_slice", "graded"), [(4, [HIGH, FULL]), (1, [LOW])])
def test_each_node_score_has_the_set_of_nodes_that_are_equal_for_the_scheduler(
    cpus_of_slice: int, graded: list[Candidate]
) -> None:
    candidates = [LOW, HIGH, FULL]
    best = {score.name: score.find_best(candidates, cpus_of_slice) for score in SCORES}
    assert best == {"LeastAllocated": [LOW], "MostAllocated": [HIGH, FULL], "graded": graded, "extender": [HIGH]}


def test_a_decision_equals_the_models_only_on_one_of_the_best_nodes_with_its_device() -> None:
    candidates = [LOW, HIGH, FULL]
    found = comparison(
        Decision(candidates, LOW),
        Decision(candidates, HIGH),
        Decision(candidates, LOW, expected=False),
        Decision([HIGH, FULL], FULL),
        refused=1,
    )
    assert (found.compared, found.equal) == (5, 3)
    assert [found.is_equal(each) for each in found.contested] == [True, False, False]
    assert found.by_chance == pytest.approx(100 / 3)


def test_the_table_says_what_was_compared_and_counted() -> None:
    found = comparison(Decision([LOW, HIGH], LOW, seconds=0.05), Decision([LOW, HIGH], HIGH, seconds=0.07), refused=1)
    requests = Counter({ApiRequest("pods", "POST"): 6, ApiRequest("resourceslices", "PUT"): 3})
    replay = Replay([found], requests, Counter({RequestOutcome.SCORED: 2}))
    (row,) = rows([replay])
    assert row == ("3 x 1 H100, CPU plentiful", "LeastAllocated", "3", "66.7 %", "1", "2", "1", "50 %", "60")
    assert list(request_rows([replay])) == [
        ("POST pods", "2.00"),
        ("PUT resourceslices", "1.00"),
        ("all requests to the API server", "3.00"),
        ("requests to the extender: scored", "0.67"),
    ]


def test_requests_of_which_pods_are_the_cause_are_found_in_the_api_servers_metrics() -> None:
    metrics = """\
# HELP apiserver_request_total [STABLE] Counter of apiserver requests
apiserver_request_total{code="201",resource="pods",subresource="",verb="POST"} 7
apiserver_request_total{code="201",resource="pods",subresource="binding",verb="POST"} 5
apiserver_request_total{code="409",resource="resourceclaims",subresource="status",verb="PUT"} 1
apiserver_request_total{code="200",resource="resourceclaims",subresource="status",verb="PUT"} 6
apiserver_request_total{code="200",resource="pods",subresource="",verb="WATCH"} 3
apiserver_request_total{code="200",resource="pods",subresource="",verb="GET"} 2
apiserver_request_total{code="200",resource="leases",subresource="",verb="PUT"} 40
apiserver_request_duration_seconds_count{resource="pods",subresource="",verb="POST"} 7
"""
    assert parse_requests(metrics) == {
        ApiRequest("pods", "POST"): 7,
        ApiRequest("pods", "GET"): 2,
        ApiRequest("pods/binding", "POST"): 5,
        ApiRequest("resourceclaims/status", "PUT"): 7,
    }


def test_requests_to_the_extender_are_counted_by_their_outcome() -> None:
    before = count_calls()
    for outcome in (RequestOutcome.SCORED, RequestOutcome.SCORED, RequestOutcome.UNKNOWN_CLAIM):
        count_request(outcome)
    assert count_calls() - before == {RequestOutcome.SCORED: 2, RequestOutcome.UNKNOWN_CLAIM: 1}


@pytest.mark.parametrize("nodes", [Nodes(8, 1), Nodes(25, 4)])
@pytest.mark.parametrize("scarce", [False, True])
def test_whether_cpu_is_scarce_or_plentiful_the_scheduler_prefers_the_nodes_of_the_model(
    nodes: Nodes, *, scarce: bool
) -> None:
    """The sum of scores as kube-scheduler computes it, for a pod of one slice on any three nodes with room for it.

    Of equal fractions of CPU and memory the scores are those of CPU, and BalancedAllocation is the same on every node.
    """
    layout = Layout(nodes, scarce=scarce)
    cpus, slices = layout.variant.cpus_per_slice, CARD_SLICES * nodes.cards
    ranks = [NodeRank(1, 2), NodeRank(1, 4), NodeRank(3, 4)]
    states = [
        Candidate(0, held, rank, alternative, slices, given=1)
        for held in range(slices)
        for alternative, rank in enumerate(ranks)
    ]
    for chosen in itertools.combinations(states[:: nodes.cards], 3):
        candidates = [each._replace(number=number) for number, each in enumerate(chosen)]
        used = [100 * cpus * (each.held + 1) // NODE_CPUS for each in candidates]
        free = [100 * (NODE_CPUS - cpus * (each.held + 1)) // NODE_CPUS for each in candidates]
        steps = [10 - sorted({each.rank for each in candidates}).index(each.rank) for each in candidates]
        values = [8 - each.alternative for each in candidates]
        graded = [score + 2 * (100 * value // max(values)) for score, value in zip(free, values, strict=True)]
        extended = [score + 10 * 10 * step for score, step in zip(free, steps, strict=True)]
        for scores, find_best in (
            (free, with_least_held),
            (used, with_most_held),
            (graded, with_best_grade),
            (extended, with_best_rank),
        ):
            best = [each for each, score in zip(candidates, scores, strict=True) if score == max(scores)]
            assert best == list(find_best(candidates, layout.cpus_of_slice)), (candidates, scores)


def test_a_node_has_cpus_for_each_of_its_slices_as_pods_request_them() -> None:
    found = [[Layout(nodes, scarce).cpus_of_slice for scarce in (False, True)] for nodes in (Nodes(8, 1), Nodes(25, 4))]
    assert found == [[8, 1], [2, 1]]


def test_pods_request_all_cpus_of_a_node_only_where_they_are_scarce() -> None:
    assert [Layout(Nodes(8, 1), scarce).variant.cpus_per_slice for scarce in (False, True)] == [1, 8]
    assert [Layout(Nodes(25, 4), scarce).variant.cpus_per_slice for scarce in (False, True)] == [1, 2]
