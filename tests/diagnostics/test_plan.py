"""Plans: where workloads would be placed, and how many more would fit."""

import re
from typing import Any

import pytest

from kerf_dra.api.core.v1 import Taint
from kerf_dra.api.errors import InvalidDocumentError
from kerf_dra.api.kerf.v1alpha1 import ResourceClassObject
from kerf_dra.driver.allocation import Budget
from kerf_dra.driver.diagnostics.cluster_index import ClusterIndex
from kerf_dra.driver.diagnostics.cluster_state import ClusterState
from kerf_dra.driver.diagnostics.errors import QueryError
from kerf_dra.driver.diagnostics.explain.report import Verdict
from kerf_dra.driver.diagnostics.plan import PlanReport, plan_workloads
from tests.fakes.cluster_states import (
    allocate_claims,
    claim,
    gpu_cluster,
    node,
    parse,
    placed_class,
    replace,
    slices,
    state,
)

Document = dict[str, Any]


def template(name: str, *classes: str, namespace: str | None = None) -> Document:
    requests = [{"name": f"r{index}", "exactly": {"deviceClassName": each}} for index, each in enumerate(classes)]
    metadata = {"name": name} | ({"namespace": namespace} if namespace else {})
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": metadata,
        "spec": {"spec": {"devices": {"requests": requests}}},
    }


def named(name: str, *classes: str) -> Document:
    body = template(name, *classes)
    return {**body, "kind": "ResourceClaim", "spec": body["spec"]["spec"]}


def pod(name: str, *claims: Document, **spec: Any) -> Document:
    entries = [{"name": f"c{index}", **each} for index, each in enumerate(claims)]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"resourceClaims": entries, **spec}}


def by_template(name: str) -> Document:
    return {"resourceClaimTemplateName": name}


def by_name(name: str) -> Document:
    return {"resourceClaimName": name}


def plan_documents(now: ClusterState, *documents: Document, copies: int = 1, namespace: str = "default") -> PlanReport:
    cluster = ClusterIndex(now)
    wanted = parse(cluster, *documents, namespace=namespace)
    return plan_workloads(
        cluster.with_classes(wanted.classes),
        wanted.workloads,
        copies=copies,
        placements=wanted.placements,
        passed_over=wanted.passed_over,
    )


def devices(answer: PlanReport) -> list[tuple[str, str]]:
    return [(each.node, device.device.rpartition("/")[2]) for each in answer.placed for device in each.devices]


def test_copies_are_placed_one_after_the_other_and_the_rest_is_counted() -> None:
    answer = plan_documents(gpu_cluster(2), template("t", "3g-40gb"), pod("p", by_template("t")), copies=3)
    assert answer.fits
    assert devices(answer) == [
        ("node-1", "gpu-0-3g-40gb-at-4"),
        ("node-1", "gpu-0-3g-40gb-at-0"),
        ("node-2", "gpu-0-3g-40gb-at-4"),
    ]
    assert [(each.copy, each.fitting_nodes) for each in answer.placed] == [(1, 2), (2, 0), (3, 0)]
    [more] = answer.more
    assert (more.demand, more.copies, more.is_bound) == ("Pod default/p", 1, False)


def test_sizes_are_told_before_and_after() -> None:
    answer = plan_documents(gpu_cluster(), template("t", "3g-40gb"), pod("p", by_template("t")))
    assert {each.size: (each.before, each.after) for each in answer.sizes}["3g.40gb"] == (2, 1)
    assert {each.size: (each.before, each.after) for each in answer.sizes}["whole"] == (1, 0)


def test_what_does_not_fit_is_told_with_the_reasons_after_the_plan() -> None:
    answer = plan_documents(gpu_cluster(), template("t", "3g-40gb"), pod("p", by_template("t")), copies=3)
    assert not answer.fits
    [unplaced] = answer.unplaced
    assert (unplaced.demand, unplaced.copies, unplaced.why.verdict) == ("Pod default/p", 1, Verdict.DOES_NOT_FIT)
    assert unplaced.why.groups[0].reasons[0].obstacle == "in-use"
    assert unplaced.why.remedies == (), "what is planned is not to end"
    assert answer.more == ()


def test_running_claims_may_make_room_for_a_plan() -> None:
    now = allocate_claims(gpu_cluster(), claim("old", "7g-80gb"))
    [unplaced] = plan_documents(now, template("t", "3g-40gb")).unplaced
    assert [each.claim for each in unplaced.why.remedies[0].claims] == ["default/old"]


def test_a_shared_claim_is_allocated_once_and_keeps_its_pods_together() -> None:
    answer = plan_documents(gpu_cluster(2), named("s", "7g-80gb"), pod("p", by_name("s")), pod("q", by_name("s")))
    assert [(each.node, len(each.devices)) for each in answer.placed] == [("node-1", 1), ("node-1", 0)]
    assert answer.more == (), "more pods would take nothing more"


def test_more_pods_with_a_shared_claim_are_counted_where_it_can_be_used() -> None:
    documents = named("s", "3g-40gb"), template("t", "3g-40gb"), pod("p", by_name("s"), by_template("t"))
    assert plan_documents(gpu_cluster(2, 2), *documents).more[0].copies == 2, (
        "all on the node that has the shared claim"
    )


def test_claims_and_templates_of_the_cluster_can_be_named() -> None:
    now = allocate_claims(gpu_cluster(2), claim("old", "1g-10gb"), on="node-2")
    answer = plan_documents(now, template("t", "1g-10gb"), pod("p", by_name("old"), by_template("t")))
    assert [each.node for each in answer.placed] == ["node-2"]


def test_claims_and_templates_without_a_pod_are_placed_by_themselves() -> None:
    answer = plan_documents(gpu_cluster(), template("t", "1g-10gb"), named("n", "1g-20gb"))
    assert {each.demand for each in answer.placed} == {
        "ResourceClaim default/n",
        "ResourceClaimTemplate default/t",
    }


@pytest.mark.parametrize(
    ("kind", "version", "field", "replicas"),
    [
        ("Deployment", "apps/v1", "replicas", 3),
        ("StatefulSet", "apps/v1", "replicas", 2),
        ("ReplicaSet", "apps/v1", None, 1),
        ("Job", "batch/v1", "parallelism", 4),
    ],
)
def test_workloads_are_placed_replica_by_replica(kind: str, version: str, field: str | None, replicas: int) -> None:
    spec: Document = {"template": {"spec": pod("x", by_template("t"))["spec"]}} | ({field: replicas} if field else {})
    workload = {"apiVersion": version, "kind": kind, "metadata": {"name": "w"}, "spec": spec}
    answer = plan_documents(gpu_cluster(), template("t", "1g-10gb"), workload)
    assert [each.demand for each in answer.placed] == [f"{kind} default/w"] * replicas


def test_a_pods_claims_are_placed_together_in_their_order() -> None:
    both = pod("p", by_template("large"), by_template("small"))
    answer = plan_documents(gpu_cluster(), template("small", "1g-10gb"), template("large", "3g-40gb"), both)
    [placed_pod] = answer.placed
    assert [each.claim for each in placed_pod.devices] == ["c0", "c1"]
    assert "3g" in placed_pod.devices[0].device


def test_the_nodes_taints_and_selectors_count() -> None:
    now = state(
        node("node-1", taints=[Taint(key="maintenance", effect="NoSchedule")]),
        node("node-2", labels={"disk": "ssd"}),
        node("node-3", labels={"disk": "ssd"}),
        published=[*slices("node-1"), *slices("node-2"), *slices("node-3")],
    )
    [found] = plan_documents(
        now, template("t", "7g-80gb"), pod("p", by_template("t"), nodeSelector={"disk": "ssd"})
    ).placed
    assert (found.node, found.fitting_nodes) == ("node-2", 2)


def test_only_the_nodes_that_are_left_are_planned_on() -> None:
    cluster = ClusterIndex(gpu_cluster(3)).restricted_to({"node-3"})
    wanted = parse(cluster, template("t", "7g-80gb"))
    answer = plan_workloads(cluster, wanted.workloads, copies=2)
    assert [each.node for each in answer.placed] == ["node-3"]
    assert {each.size: each.before for each in answer.sizes}["whole"] == 1


def test_classes_of_the_documents_stand_beside_those_of_the_cluster() -> None:
    resource_class = {
        "apiVersion": "kerf.dev/v1alpha1",
        "kind": "ResourceClass",
        "metadata": {"name": "at-least-30gi"},
        "spec": {"device": "gpu", "minimum": {"memory": "30Gi"}},
    }
    answer = plan_documents(gpu_cluster(), resource_class, template("t", "at-least-30gi"))
    assert devices(answer) == [("node-1", "gpu-0-3g-40gb-at-4")]


def test_documents_without_devices_are_passed_over_by_name() -> None:
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}}
    assert plan_documents(gpu_cluster(), service, template("t", "1g-10gb")).passed_over == ("Service web",)


BAD: dict[str, tuple[Document, type[Exception], str]] = {
    "no such template": (
        pod("p", by_template("nope")),
        QueryError,
        (
            "Pod p: spec.resourceClaims[0].resourceClaimTemplateName: there is no ResourceClaimTemplate default/nope; "
            "add it to the documents"
        ),
    ),
    "no such claim": (
        pod("p", by_name("nope")),
        QueryError,
        (
            "Pod p: spec.resourceClaims[0].resourceClaimName: there is no ResourceClaim default/nope; "
            "add it to the documents"
        ),
    ),
    "a field of another type": (
        pod("p", resourceClaims=3),
        InvalidDocumentError,
        "Pod p: cannot read a Pod of v1",
    ),
    "a version that no later release converts": (
        {**template("t", "x"), "apiVersion": "resource.k8s.io/v1alpha3"},
        InvalidDocumentError,
        (
            'apiVersion: "resource.k8s.io/v1alpha3" is not a version that Kubernetes 1.32 and later convert (v1, '
            'v1beta2, v1beta1): write resource.k8s.io/v1, which has the fields of a request below "exactly"'
        ),
    ),
    "replicas that are no number": (
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "w"},
            "spec": {"replicas": "many", "template": {"spec": {}}},
        },
        InvalidDocumentError,
        "Deployment w: spec.replicas: is 'many', not a number of pods",
    ),
    "an unknown field of ours": (
        {
            "apiVersion": "kerf.dev/v1alpha1",
            "kind": "ResourceClass",
            "metadata": {"name": "c"},
            "spec": {"devise": "gpu"},
        },
        InvalidDocumentError,
        "spec.devise",
    ),
}


@pytest.mark.parametrize("case", BAD.values(), ids=BAD.keys())
def test_bad_documents_are_refused_with_their_names(case: tuple[Document, type[Exception], str]) -> None:
    document, error, message = case
    with pytest.raises(error, match=re.escape(message)):
        plan_documents(gpu_cluster(), document)


def test_a_search_that_is_given_up_places_nothing() -> None:
    cluster = ClusterIndex(gpu_cluster(), budget=Budget(0))
    [unplaced] = plan_workloads(cluster, parse(cluster, template("t", "1g-10gb")).workloads).unplaced
    assert unplaced.why.verdict is Verdict.UNDECIDED


def test_a_missing_class_is_told_for_the_demand() -> None:
    [unplaced] = plan_documents(gpu_cluster(), template("t", "nope")).unplaced
    assert unplaced.why.verdict is Verdict.INVALID


def test_counting_ends_somewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kerf_dra.driver.diagnostics.plan.MOST_COUNTED", 5)
    [more] = plan_documents(gpu_cluster(), template("t", "1g-10gb")).more
    assert (more.copies, more.is_bound) == (5, True)


def test_a_plan_changes_nothing() -> None:
    now = gpu_cluster()
    cluster = ClusterIndex(now)
    wanted = parse(cluster, template("t", "7g-80gb")).workloads
    assert plan_workloads(cluster, wanted) == plan_workloads(cluster, wanted)


def test_a_plan_is_what_placing_one_after_the_other_gives() -> None:
    answer = plan_documents(gpu_cluster(2, 2), template("t", "2g-20gb"), copies=9)
    now = gpu_cluster(2, 2)
    for index in range(9):
        now = allocate_claims(now, claim(f"c{index}", "2g-20gb"))
    results = [each.status.allocation for each in now.claims]
    assert devices(answer) == [
        (result.devices.results[0].pool.partition("/")[0], result.devices.results[0].device)
        for result in results
        if result is not None
    ]
    assert replace(now, claims=()) == gpu_cluster(2, 2)


def flat(body: Document) -> Document:
    """Return a template in the form of v1beta1."""
    requests = [{"name": each["name"], **each["exactly"]} for each in body["spec"]["spec"]["devices"]["requests"]]
    spec = {"spec": {"devices": {"requests": requests}}}
    return {**body, "apiVersion": "resource.k8s.io/v1beta1", "spec": spec}


def test_a_plan_is_the_same_in_every_version_that_the_api_server_converts() -> None:
    wanted = template("t", "3g-40gb", "1g-10gb")
    expected = devices(plan_documents(gpu_cluster(), wanted, pod("p", by_template("t"))))
    assert len(expected) == 2
    for body in (flat(wanted), {**wanted, "apiVersion": "resource.k8s.io/v1beta2"}):
        assert devices(plan_documents(gpu_cluster(), body, pod("p", by_template("t")))) == expected


def pod_group(name: str, *claims: Document) -> Document:
    entries = [{"name": f"c{index}", **each} for index, each in enumerate(claims)]
    return {
        "apiVersion": "scheduling.k8s.io/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": name},
        "spec": {"resourceClaims": entries},
    }


IN_GROUP = {"schedulingGroup": {"podGroupName": "team"}}


def test_pods_of_a_group_share_its_claims() -> None:
    """Each pod of a PodGroup was once planned with a claim of its own, which is another number of devices."""
    documents = (
        template("t", "3g-40gb"),
        pod_group("team", by_template("t")),
        pod("p", by_template("t"), **IN_GROUP),
        pod("q", by_template("t"), **IN_GROUP),
        pod("alone", by_template("t")),
    )
    answer = plan_documents(gpu_cluster(), *documents)
    assert answer.fits
    of_pods = [(each.demand, [device.claim for device in each.devices]) for each in answer.placed]
    assert of_pods == [("Pod default/p", ["team/c0"]), ("Pod default/q", []), ("Pod default/alone", ["c0"])]


@pytest.mark.parametrize("entry", [{"name": "other", **by_template("t")}, {"name": "c0", **by_template("u")}])
def test_an_entry_that_its_group_has_not_is_the_pods_own(entry: Document) -> None:
    pods = [{**pod(name, **IN_GROUP), "spec": {**IN_GROUP, "resourceClaims": [entry]}} for name in "pq"]
    documents = template("t", "3g-40gb"), template("u", "3g-40gb"), pod_group("team", by_template("t")), *pods
    answer = plan_documents(gpu_cluster(), *documents)
    assert [len(each.devices) for each in answer.placed if each.demand.startswith("Pod ")] == [1, 1]


def test_a_plan_with_claims_of_groups_says_which_feature_gates_it_takes_for_granted() -> None:
    cluster = ClusterIndex(gpu_cluster())
    documents = pod_group("team", by_template("t"), by_name("n")), pod_group("idle")
    assert parse(cluster, *documents).warnings == (
        (
            "PodGroup default/team: its pods share its claims (c0, c1) only where the feature gates GenericWorkload "
            "and DRAWorkloadResourceClaims are on; elsewhere each pod gets a claim of its own"
        ),
    )


def test_a_pod_of_an_unknown_group_is_not_planned_with_a_claim_of_its_own() -> None:
    with pytest.raises(InvalidDocumentError, match="no PodGroup team is in the documents"):
        plan_documents(gpu_cluster(), template("t", "1g-10gb"), pod("p", by_template("t"), **IN_GROUP))
    assert plan_documents(gpu_cluster(), named("n", "1g-10gb"), pod("p", by_name("n"), **IN_GROUP)).fits


@pytest.mark.parametrize(("version", "kind"), [("apps/v1", "DaemonSet"), ("jobset.example.com/v1", "JobSet")])
def test_claims_of_a_kind_that_is_not_planned_are_named(version: str, kind: str) -> None:
    """They were passed over as documents without devices."""
    spec = {"template": {"spec": {"resourceClaims": [{"name": "c0", **by_template("t")}]}}}
    document = {"apiVersion": version, "kind": kind, "metadata": {"name": "d"}, "spec": spec}
    wanted = parse(ClusterIndex(gpu_cluster()), document)
    assert wanted.passed_over == (f"{kind} d",)
    assert wanted.warnings == (
        f"{kind} d: spec.template.spec.resourceClaims: no {kind} is planned, so its claims are not counted",
    )


def half_used(*classes: ResourceClassObject) -> ClusterState:
    """Three nodes with one H100 each, of which node-2 holds a 4g.40gb, with ResourceClasses."""
    now = allocate_claims(gpu_cluster(3), claim("old", "4g-40gb"), on="node-2")
    return replace(now, resource_classes=classes)


SMALL = template("t", "1g-10gb"), pod("p", by_template("t"))

# The classes, the nodes of three copies, and the placement by which they are chosen.
PREFERRED: list[tuple[list[ResourceClassObject], list[str], str]] = [
    ([], ["node-1", "node-1", "node-1"], ""),
    ([placed_class("1g-10gb", None, "")], ["node-1", "node-1", "node-1"], ""),
    ([placed_class("1g-10gb", "Packed")], ["node-2", "node-2", "node-2"], "Packed"),
    ([placed_class("1g-10gb", "Spread")], ["node-1", "node-3", "node-2"], "Spread"),
    ([placed_class("1g-10gb", "None", "True NoPreference")], ["node-1", "node-1", "node-1"], ""),
    ([placed_class("1g-10gb", "Packed", "True Graded")], ["node-2", "node-2", "node-2"], "Packed"),
    ([placed_class("1g-10gb", "Packed", "False ExtenderNotAsked")], ["node-1", "node-1", "node-1"], ""),
    ([placed_class("1g-10gb", "Spread", "Unknown ExtenderNotAskedLately")], ["node-1", "node-1", "node-1"], ""),
    # A scheduler that asks the extender asks for all pods, also those of classes that say nothing, or nothing yet.
    ([placed_class("other", None)], ["node-2", "node-2", "node-2"], "Packed"),
    ([placed_class("other", None), placed_class("1g-10gb", "Spread", "")], ["node-1", "node-3", "node-2"], "Spread"),
]


@pytest.mark.parametrize(("classes", "nodes", "placement"), PREFERRED)
def test_nodes_are_chosen_by_the_rule_of_the_extender_where_it_is_in_effect(
    classes: list[ResourceClassObject], nodes: list[str], placement: str
) -> None:
    answer = plan_documents(half_used(*classes), *SMALL, copies=3)
    assert [each.node for each in answer.placed] == nodes
    assert {each.placement for each in answer.placed} == {placement}
    assert answer.placed[0].fitting_nodes == 3


def test_what_was_counted_beyond_a_plan_is_taken_back_from_what_classes_hold() -> None:
    """The number of further copies is found by placing them; the next workload is spread as if they were not there."""
    now = half_used(placed_class("1g-10gb", "Spread"))
    answer = plan_documents(now, *SMALL, template("u", "1g-10gb"), pod("q", by_template("u")))
    assert [each.node for each in answer.placed] == ["node-1", "node-3"]
    assert {each.demand: each.copies for each in answer.more}["Pod default/q"] == 15


def test_a_class_of_the_documents_is_planned_with_its_placement_instead_of_the_clusters() -> None:
    spec = {"device": "gpu", "profile": "1g.10gb", "placement": "Spread"}
    mine = {"apiVersion": "kerf.dev/v1alpha1", "kind": "ResourceClass", "metadata": {"name": "1g-10gb"}, "spec": spec}
    for held in ([placed_class("other", None)], [placed_class("1g-10gb", "Packed")]):
        answer = plan_documents(half_used(*held), mine, *SMALL)
        assert [(each.node, each.placement) for each in answer.placed] == [("node-1", "Spread")]


@pytest.mark.parametrize(
    "held", [placed_class("1g-10gb", "Packed", "True Graded"), placed_class("1g-10gb", "None", "True NoPreference")]
)
def test_what_puts_a_classs_placement_into_effect_says_nothing_of_another_one_that_is_planned(
    held: ResourceClassObject,
) -> None:
    """A plan that changed Packed to Spread showed claims spread over nodes by grades, which know packing only."""
    spec = {"device": "gpu", "profile": "1g.10gb", "placement": "Spread"}
    mine = {"apiVersion": "kerf.dev/v1alpha1", "kind": "ResourceClass", "metadata": {"name": "1g-10gb"}, "spec": spec}
    answer = plan_documents(half_used(held), mine, *SMALL, copies=3)
    assert [(each.node, each.placement) for each in answer.placed] == [("node-1", "")] * 3
    assert any("placement: Spread of 1g-10gb is not in effect: the controller has not" in note for note in answer.notes)


@pytest.mark.parametrize(
    ("classes", "said"),
    [
        (
            [placed_class("1g-10gb", "Packed", "False ExtenderNotAsked")],
            "Pod default/p: placement: Packed of 1g-10gb is not in effect: ExtenderNotAsked is why",
        ),
        (
            [placed_class("1g-10gb", "Spread", "")],
            (
                "Pod default/p: placement: Spread of 1g-10gb is not in effect: the controller has not said that "
                "anything puts it into effect"
            ),
        ),
        ([placed_class("1g-10gb", "None", "True NoPreference")], None),
        ([placed_class("1g-10gb", "Packed")], None),
        ([], None),
    ],
)
def test_a_placement_that_is_not_in_effect_is_noted(classes: list[ResourceClassObject], said: str | None) -> None:
    assert list(plan_documents(half_used(*classes), *SMALL).notes) == ([said] if said else [])


def test_classes_of_one_pod_that_contradict_each_other_are_noted() -> None:
    now = half_used(placed_class("1g-10gb", "Packed"), placed_class("2g-20gb", "Spread"))
    answer = plan_documents(now, template("t", "1g-10gb", "2g-20gb"), pod("p", by_template("t")))
    assert [(each.node, each.placement) for each in answer.placed] == [("node-1", "")]
    assert answer.notes[0] == (
        "Pod default/p: the classes 1g-10gb and 2g-20gb ask for different placements, so no node is preferred"
    )
