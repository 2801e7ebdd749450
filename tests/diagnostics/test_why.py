"""Why a pod or a claim waits: each kind of obstacle, groups of nodes, and victims."""

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from kerf_dra.api.core.v1 import Affinity, NodeAffinity, PodSchedulingGate, Taint, Toleration
from kerf_dra.api.model.claims import (
    CapacityRequirements,
    DeviceConstraint,
    DeviceRequest,
    ResourceClaimTemplate,
    ResourceClaimTemplateSpec,
)
from kerf_dra.api.model.devices import (
    DeviceTaint,
    DeviceTaintRule,
    DeviceTaintRuleSpec,
    DeviceTaintSelector,
    ResourceSlice,
)
from kerf_dra.api.model.metadata import Condition, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, ObjectMeta
from kerf_dra.api.model.names import ObjectRef
from kerf_dra.api.model.quantity import Quantity
from kerf_dra.driver.allocation import Budget, Fits
from kerf_dra.driver.cli.cluster.why import render_report
from kerf_dra.driver.diagnostics.cluster_index import ClusterIndex
from kerf_dra.driver.diagnostics.cluster_state import ClusterState
from kerf_dra.driver.diagnostics.errors import QueryError
from kerf_dra.driver.diagnostics.explain.report import Verdict, WhyReport
from kerf_dra.driver.diagnostics.explain.why import explain_claim, explain_pod
from tests.conftest import COSTLY
from tests.fakes.cluster_states import (
    ATTRIBUTES,
    allocate_claims,
    allocated_claim,
    claim,
    gpu_cluster,
    node,
    pod,
    prepare_failure,
    profile_class,
    replace,
    request,
    slices,
    state,
    templated_pod,
)

ATTRIBUTE_OF_CARD = "gpu.kerf.dev/uuid"


def ref(name: str) -> ObjectRef:
    return ObjectRef("default", name)


def explain_requests(now: ClusterState, *wanted: object, **spec: object) -> WhyReport:
    """Return why the pod ``p`` waits, which has one claim ``wanted`` with these requests."""
    constraints = spec.pop("constraints", ())
    one = claim("wanted", *wanted, constraints=constraints)  # type: ignore[arg-type]
    now = replace(now, claims=(*now.claims, one), pods=(*now.pods, pod("p", "wanted", **spec)))  # type: ignore[arg-type]
    return explain_pod(ClusterIndex(now), ref("p"))


def full_cluster(nodes: int = 1, profile: str = "7g-80gb") -> ClusterState:
    return allocate_claims(gpu_cluster(nodes), *(claim(f"c{index}", profile) for index in range(1, nodes + 1)))


@dataclass(frozen=True)
class Case:
    now: ClusterState
    wanted: tuple[object, ...]
    obstacle: str
    message: str
    spec: dict[str, object] = field(default_factory=dict)


SICK = DeviceTaintRule(
    metadata=ObjectMeta(name="sick"),
    spec=DeviceTaintRuleSpec(
        device_selector=DeviceTaintSelector(driver="gpu.kerf.dev"),
        taint=DeviceTaint(key="ill", value="ecc", effect="NoSchedule"),
    ),
)
UPDATING = [
    replace(each, spec=replace(each.spec, pool=replace(each.spec.pool, resource_slice_count=9)))
    for each in slices("node-1")
]
CASES: dict[str, Case] = {
    "selector": Case(
        gpu_cluster(),
        (request("gpu", "1g-10gb", f"{ATTRIBUTES}.start == 9"),),
        "selector",
        f"none of the 7 devices of class 1g-10gb matches selector 0: {ATTRIBUTES}.start == 9",
    ),
    "class": Case(gpu_cluster(), ("5g-50gb",), "class", "none of the 26 devices for this node is of class 5g-50gb"),
    "counters": Case(
        full_cluster(profile="1g-10gb"), ("7g-80gb",), "counters", "1 device matches, but what it needs is taken"
    ),
    "in use": Case(full_cluster(), ("7g-80gb",), "in-use", "1 device matches, but is in use"),
    "too few": Case(
        gpu_cluster(),
        (request("gpu", "1g-10gb", count=8),),
        "too-few",
        "8 devices requested, but only 7 devices match; a card has at most 7",
    ),
    "constraint": Case(
        gpu_cluster(),
        (request("gpu", "1g-10gb", count=2),),
        "constraint",
        "distinctAttribute gpu.kerf.dev/uuid cannot hold over the devices that are free: 2 devices are to differ in "
        "it, and those that match have 1 different value",
        {"constraints": [DeviceConstraint(distinct_attribute=ATTRIBUTE_OF_CARD)]},
    ),
    "taint": Case(
        replace(gpu_cluster(), taint_rules=(SICK,)),
        ("7g-80gb",),
        "tainted",
        "1 device matches, but is tainted: ill=ecc:NoSchedule",
    ),
    "incomplete pool": Case(
        state(node("node-1"), published=UPDATING),
        ("7g-80gb",),
        "pool-incomplete",
        "pool gpu.kerf.dev/node-1/gpu is being updated: 2 of 9 slices are published",
    ),
    "nothing published": Case(
        state(node("node-1"), published=[]), ("7g-80gb",), "no-pool", "no driver publishes devices for this node"
    ),
    "the pod's node selector": Case(
        gpu_cluster(),
        ("7g-80gb",),
        "node-filter",
        "the node does not match Pod's node affinity/selector: the pod wants disk=ssd, it has no such label",
        {"node_selector": {"disk": "ssd"}},
    ),
    "the pod's node affinity": Case(
        gpu_cluster(),
        ("7g-80gb",),
        "node-filter",
        "the node does not match Pod's node affinity/selector",
        {
            "affinity": Affinity(
                node_affinity=NodeAffinity(
                    required_during_scheduling_ignored_during_execution=NodeSelector(
                        node_selector_terms=(
                            NodeSelectorTerm(
                                match_expressions=(NodeSelectorRequirement(key="zone", operator="In", values=("x",)),)
                            ),
                        )
                    )
                )
            )
        },
    ),
    "a taint of the node": Case(
        state(
            node("node-1", taints=[Taint(key="a", value="1", effect="NoSchedule"), Taint(key="b", effect="NoExecute")]),
            published=slices("node-1"),
        ),
        ("7g-80gb",),
        "node-filter",
        "the node has untolerated taint(s): a=1:NoSchedule",
        {"tolerations": (Toleration(key="b", operator="Exists"),)},
    ),
    "a cordoned node": Case(
        state(node("node-1", unschedulable=True), published=slices("node-1")),
        ("7g-80gb",),
        "node-filter",
        "the node is unschedulable",
    ),
}


def with_class(now: ClusterState, name: str) -> ClusterState:
    """Return ``now`` with a class of that name, for a profile that no card has."""
    return replace(now, classes=(*now.classes, profile_class(name)))


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_each_obstacle_is_told_for_the_nodes_that_have_it(case: Case) -> None:
    answer = explain_requests(with_class(case.now, "5g.50gb"), *case.wanted, **case.spec)
    assert (answer.verdict, answer.message) == (Verdict.DOES_NOT_FIT, "it does not fit on the only node")
    [group] = answer.groups
    assert group.nodes == ("node-1",)
    assert [(reason.obstacle, reason.message) for reason in group.reasons] == [(case.obstacle, case.message)]


def test_equal_nodes_are_told_together_though_their_claims_differ() -> None:
    now = full_cluster(3)
    now = replace(now, nodes=(*now.nodes, node("node-4", unschedulable=True)))
    answer = explain_requests(now, "7g-80gb")
    assert answer.message == "it fits on none of 4 nodes"
    assert [group.nodes for group in answer.groups] == [("node-1", "node-2", "node-3"), ("node-4",)]
    assert [(one.node, one.card, one.claims) for one in answer.groups[0].in_the_way] == [
        (f"node-{number}", "gpu-0", (f"default/c{number}",)) for number in (1, 2, 3)
    ]


def test_the_nearest_miss_names_the_attribute_that_differs() -> None:
    answer = explain_requests(with_class(gpu_cluster(), "5g.50gb"), "5g-50gb")
    nearest = answer.groups[0].reasons[0].near_misses[0]
    [unmet] = nearest.unmet
    assert (unmet.source, unmet.condition) == ("class 5g-50gb", f'{ATTRIBUTES}.profile == "5g.50gb"')
    assert unmet.has == {"profile": '"1g.10gb"'}, "the one that is spelled most alike and comes first"


def test_a_claim_that_waits_is_judged_with_its_pod() -> None:
    wanted = claim("wanted", "1g-10gb")
    now = replace(gpu_cluster(), claims=(wanted,), pods=(pod("p", "wanted", node_selector={"disk": "ssd"}),))
    assert explain_claim(ClusterIndex(now), wanted.ref).groups[0].reasons[0].obstacle == "node-filter"
    alone = replace(now, pods=())
    assert explain_claim(ClusterIndex(alone), wanted.ref).verdict is Verdict.FITS


def test_what_fits_is_told_with_the_nodes() -> None:
    said = [Condition(type="PodScheduled", status="False", reason="Unschedulable", message="0/2 nodes: too little cpu")]
    wanted = claim("wanted", "1g-10gb")
    now = replace(gpu_cluster(2), claims=(wanted,), pods=(pod("p", "wanted", conditions=said),))
    answer = explain_pod(ClusterIndex(now), ref("p"))
    assert (answer.verdict, answer.fitting_nodes) == (Verdict.FITS, ("node-1", "node-2"))
    assert answer.message == (
        "devices for it are free on node-1 and 1 more; it waits for something else, or no longer waits"
    )
    assert answer.scheduler_says == "0/2 nodes: too little cpu"


def test_what_has_its_devices_is_told_with_them() -> None:
    now = allocate_claims(gpu_cluster(), claim("c", "7g-80gb"))
    answer = explain_claim(ClusterIndex(now), ref("c"))
    assert answer.verdict is Verdict.HAS_DEVICES
    assert answer.claims[0].devices == ("gpu.kerf.dev/node-1/gpu/gpu-0-7g-80gb-at-0",)


def test_an_allocated_claim_keeps_its_pod_on_its_node() -> None:
    now = allocate_claims(gpu_cluster(2), claim("c", "1g-10gb"), on="node-2")
    now = replace(now, claims=(*now.claims, claim("d", "1g-10gb")), pods=(pod("p", "c", "d"),))
    answer = explain_pod(ClusterIndex(now), ref("p"))
    assert answer.fitting_nodes == ("node-2",)
    assert answer.groups[0].reasons[0].message == (
        "claim default/c is allocated already, and cannot be used on this node"
    )


def test_binding_conditions_that_are_awaited_are_told() -> None:
    [held] = allocate_claims(gpu_cluster(), claim("c", "7g-80gb")).claims
    allocation = held.status.allocation
    assert allocation is not None
    results = tuple(replace(each, binding_conditions=("Prepared",)) for each in allocation.devices.results)
    waiting = allocated_claim(held, replace(allocation, devices=replace(allocation.devices, results=results)))
    answer = explain_claim(ClusterIndex(replace(gpu_cluster(), claims=(waiting,))), ref("c"))
    assert answer.claims[0].waits_for == ("Prepared of gpu.kerf.dev/node-1/gpu/gpu-0-7g-80gb-at-0",)


def creation_failure(message: str) -> ClusterState:
    """A pod whose claim kube-controller-manager cannot create."""
    template = ResourceClaimTemplate(
        metadata=ObjectMeta(name="t", namespace="default"),
        spec=ResourceClaimTemplateSpec(spec=claim("c", "1g-10gb").spec),
    )
    waiting = templated_pod("p", "t")
    [entry] = waiting.spec.resource_claims
    event = replace(
        prepare_failure("p", ""),
        reason="FailedResourceClaimCreation",
        message=f"PodResourceClaim {entry.name}: create ResourceClaim : {message}",
    )
    return replace(gpu_cluster(), pods=(waiting,), templates=(template,), events=(event,))


BLOCKED: dict[str, tuple[Callable[[], ClusterState], str]] = {
    "a gate": (
        lambda: replace(
            gpu_cluster(),
            claims=(claim("c", "1g-10gb"),),
            pods=(pod("p", "c", scheduling_gates=(PodSchedulingGate(name="quota"),)),),
        ),
        "scheduling gate quota",
    ),
    "a missing claim": (lambda: replace(gpu_cluster(), pods=(pod("p", "c"),)), "claim default/c does not exist"),
    "a missing template": (
        lambda: replace(gpu_cluster(), pods=(templated_pod("p", "t"),)),
        "ResourceClaimTemplate default/t does not exist",
    ),
    "a claim beyond a quota": (
        lambda: creation_failure("claims is forbidden: exceeded quota: team, requested: 1, used: 2, limited: 2"),
        "ResourceQuota default/team does not allow the claim of ResourceClaimTemplate default/t: requested: 1, used: 2",
    ),
    "a claim that the API server refuses": (lambda: creation_failure("spec: Invalid value"), "spec: Invalid value"),
    "a claim on its way out": (
        lambda: replace(
            gpu_cluster(),
            claims=(
                replace(
                    claim("c", "1g-10gb"),
                    metadata=ObjectMeta(name="c", namespace="default", deletion_timestamp="2026-11-21T08:00:00Z"),
                ),
            ),
            pods=(pod("p", "c"),),
        ),
        "claim c is being deleted",
    ),
}


@pytest.mark.parametrize("case", BLOCKED.values(), ids=BLOCKED.keys())
def test_what_has_to_happen_first_is_told(case: tuple[Callable[[], ClusterState], str]) -> None:
    now, message = case
    answer = explain_pod(ClusterIndex(now()), ref("p"))
    assert answer.verdict is Verdict.BLOCKED
    assert message in answer.message


def test_a_quota_that_is_exceeded_is_named_with_who_can_help() -> None:
    now = creation_failure("exceeded quota: team, requested: x=1, used: x=2, limited: x=2")
    [cause] = explain_pod(ClusterIndex(now), ref("p")).causes
    assert cause.code == "quota-exceeded"
    assert "kubectl describe resourcequota team -n default" in cause.next_step
    assert "resourcequota default/team" in cause.objects


def test_a_search_that_was_given_up_is_no_verdict() -> None:
    wanted = claim("wanted", request("gpu", "1g-10gb", count=3))
    answer = explain_claim(ClusterIndex(replace(gpu_cluster(), claims=(wanted,)), budget=Budget(1)), wanted.ref)
    assert answer.verdict is Verdict.UNDECIDED
    assert answer.groups[0].reasons[0].message == "no decision within 1 steps"


def test_a_claim_that_no_node_can_decide_is_told_as_invalid() -> None:
    answer = explain_requests(gpu_cluster(), "nope")
    assert answer.verdict is Verdict.INVALID
    assert "device class nope does not exist" in answer.message


def test_a_name_that_is_not_there_is_told_with_names_like_it() -> None:
    now = replace(gpu_cluster(), claims=(claim("train", "1g-10gb"),))
    with pytest.raises(QueryError, match="there is no ResourceClaim default/trian; there is default/train"):
        explain_claim(ClusterIndex(now), ref("trian"))
    with pytest.raises(QueryError, match="there is default/train"):
        explain_claim(ClusterIndex(now), ObjectRef("team", "train"))


def test_the_smallest_remedy_is_told_with_the_pods_that_would_lose_their_devices() -> None:
    now = allocate_claims(gpu_cluster(2), *(claim(f"a{index}", "1g-10gb") for index in range(7)), on="node-1")
    now = allocate_claims(now, claim("b0", "3g-40gb"), claim("b1", "3g-40gb"), on="node-2")
    answer = explain_requests(now, "3g-40gb")
    best = answer.remedies[0]
    assert best.node == "node-2"
    [ending] = best.claims
    assert (ending.claim, ending.pods) == ("default/b0", ("default/b0",))


def test_a_remedy_has_been_tried_and_nobody_in_it_could_stay() -> None:
    now = allocate_claims(gpu_cluster(1, 2), *(claim(f"a{index}", "1g-10gb") for index in range(14)))
    answer = explain_requests(now, "3g-40gb")
    cluster = ClusterIndex(replace(now, claims=(*now.claims, claim("wanted", "3g-40gb"))))
    wanted, place = [cluster.claims[ref("wanted")]], cluster.nodes[0]

    def fits(ended: set[str]) -> bool:
        return isinstance(
            cluster.attempt(wanted, place, [each for each in now.claims if str(each.ref) not in ended]), Fits
        )

    [remedy] = answer.remedies
    ended = {each.claim for each in remedy.claims}
    assert len(ended) == 3, "memory slices 4 to 7 of a full card have three partitions of one compute slice"
    assert fits(ended)
    assert not any(fits(ended - {each}) for each in ended)


def test_no_remedy_is_told_where_none_would_help() -> None:
    answer = explain_requests(full_cluster(), request("gpu", "1g-10gb", count=9))
    assert answer.remedies == ()


PROFILES = st.sampled_from(["1g-10gb", "1g-20gb", "2g-20gb", "3g-40gb", "4g-40gb", "7g-80gb"])


@COSTLY
@given(
    st.lists(st.tuples(PROFILES, st.sampled_from(["node-1", "node-2"])), max_size=10),
    st.lists(PROFILES, min_size=1, max_size=2),
)
def test_every_remedy_is_enough_and_where_there_is_none_nothing_would_be(
    running: list[tuple[str, str]], wanted: list[str]
) -> None:
    now = gpu_cluster(2, 1)
    for number, (profile, on) in enumerate(running):
        try:
            now = allocate_claims(now, claim(f"c{number}", profile), on=on)
        except StopIteration:
            continue
    asked_for = claim("wanted", *wanted)
    cluster = ClusterIndex(replace(now, claims=(*now.claims, asked_for)))
    answer = explain_claim(cluster, asked_for.ref)
    event(str(answer.verdict))
    nodes = {each.metadata.name: each for each in cluster.nodes}

    def fits(on: str, ended: set[str]) -> bool:
        staying = [each for each in now.claims if str(each.ref) not in ended]
        return isinstance(cluster.attempt([asked_for], nodes[on], staying), Fits)

    assert set(answer.fitting_nodes) == {name for name in nodes if fits(name, set())}
    if answer.verdict is not Verdict.DOES_NOT_FIT:
        return
    for remedy in answer.remedies:
        ended = {each.claim for each in remedy.claims}
        assert fits(remedy.node, ended)
        assert not any(fits(remedy.node, ended - {each}) for each in ended)
    if not answer.remedies:
        assert not any(fits(name, {str(each.ref) for each in now.claims}) for name in nodes)


HOPELESS: dict[str, Case] = {
    "three halves of one card": Case(
        gpu_cluster(),
        (request("gpu", "3g-40gb", count=3),),
        "too-few",
        "3 devices requested, but only 2 devices match; a card has at most 2",
    ),
    "three requests for halves of one card": Case(
        allocate_claims(gpu_cluster(), claim("c1", "1g-10gb")),
        ("3g-40gb", "3g-40gb", "3g-40gb"),
        "combination",
        "3 such devices are requested, and the node has at most 2; a card has at most 2",
    ),
    "two cards of one": Case(
        full_cluster(profile="1g-10gb"),
        (request("gpu", "1g-10gb", count=2),),
        "constraint",
        "those that match have 1 different value",
        {"constraints": [DeviceConstraint(distinct_attribute=ATTRIBUTE_OF_CARD)]},
    ),
    "more than a device has": Case(
        gpu_cluster(),
        (request("gpu", "whole", capacity=CapacityRequirements(requests={"memory": Quantity("1Ti")})),),
        "capacity",
        "1 device matches, but has too little free: memory",
    ),
}


@pytest.mark.parametrize("case", HOPELESS.values(), ids=HOPELESS.keys())
def test_nothing_is_waited_for_where_it_would_not_fit_either_if_claims_ended(case: Case) -> None:
    """Three 3g.40gb on one card were told to wait until a claim gives its devices back."""
    answer = explain_requests(case.now, *case.wanted, **case.spec)
    assert (answer.verdict, answer.remedies) == (Verdict.DOES_NOT_FIT, ())
    reason = answer.groups[0].reasons[0]
    assert reason.obstacle == case.obstacle
    assert case.message in reason.message
    for cause in answer.causes:
        assert "wait" not in cause.next_step
        assert "come back" not in cause.next_step


def test_where_ending_a_claim_helps_it_is_still_waited_for() -> None:
    answer = explain_requests(full_cluster(2), "7g-80gb")
    assert answer.remedies
    assert all("wait until" in cause.next_step for cause in answer.causes)


def test_nodes_that_differ_only_in_what_is_free_of_a_device_are_one_group() -> None:
    """A cluster of shared devices had a group for each node."""
    names = ("node-1", "node-2", "node-3")
    shared = [_share_cards(each) for name in names for each in slices(name)]
    now = state(*map(node, names), published=shared)
    for name, amount in zip(names, ("70Gi", "60Gi", "50Gi"), strict=True):
        now = allocate_claims(now, claim(name, _some_memory(amount)), on=name)
    answer = explain_requests(now, _some_memory("40Gi"))
    [group] = answer.groups
    assert group.nodes == names
    [miss] = group.reasons[0].near_misses
    assert {"memory >= 40Gi (as requested)", "clients >= 48 (no amount is requested: all of it)"} < {
        unmet.condition for unmet in miss.unmet
    }


def _some_memory(amount: str) -> DeviceRequest:
    return request("gpu", "whole", capacity=CapacityRequirements(requests={"memory": Quantity(amount)}))


def _share_cards(published: ResourceSlice) -> ResourceSlice:
    """Return the slice with devices that several claims may share."""
    devices = tuple(replace(each, allow_multiple_allocations=True) for each in published.spec.devices)
    return replace(published, spec=replace(published.spec, devices=devices))


def test_requests_with_one_obstacle_are_one_paragraph() -> None:
    report = explain_requests(gpu_cluster(), "3g-40gb", "3g-40gb", "3g-40gb")
    assert [reason.request for reason in report.groups[0].reasons] == ["r0", "r1", "r2"]
    text = " ".join("\n".join(render_report(report)).split())
    assert text.count("can be served alone") == 1
    assert "claim default/wanted, request r0, r1, r2: can be served alone" in text
