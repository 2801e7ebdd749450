"""What ``kerf top`` says of a cluster: a row for each claim, and for each pod that waits without one."""

import pytest

from kerf_dra.api.model.metadata import ObjectMeta
from kerf_dra.driver.diagnostics.cluster_index import ClusterIndex
from kerf_dra.driver.diagnostics.cluster_state import ClusterState
from kerf_dra.driver.diagnostics.explain.report import Subject
from kerf_dra.driver.diagnostics.explain.why import explain_claim
from kerf_dra.driver.diagnostics.frag import measure_fragmentation
from kerf_dra.driver.diagnostics.overview.claim_rows import (
    SORT_KEYS,
    ClaimRow,
    choose_explained,
    explain_row,
    matches,
    sort_rows,
)
from kerf_dra.driver.diagnostics.overview.cluster_overview import Scope, build_overview, list_pools, with_reports
from tests.diagnostics import vendor_slices
from tests.fakes.cluster_states import (
    allocate_claims,
    claim,
    gpu_cluster,
    placed_pod,
    pod,
    replace,
    state,
    templated_pod,
)
from tests.fakes.cluster_states import node as cluster_node

CREATED = "2026-11-21T07:30:00Z"  # half an hour before the snapshot


def two_nodes() -> ClusterState:
    """Two nodes with two cards each, on each node two claims, and two claims that wait for more than there is."""
    now = gpu_cluster(nodes=2, cards=2)
    now = allocate_claims(now, claim("web", "1g-10gb"), claim("train", "4g-40gb"), on="node-1")
    now = allocate_claims(now, claim("tune", "3g-40gb"), claim("batch", "7g-80gb"), on="node-2")
    running = [placed_pod(name, name, phase="Running") for name in ("web", "train")]
    running += [placed_pod(name, name, on="node-2", phase="Running") for name in ("tune", "batch")]
    waiting = [claim("big", "whole", "whole"), claim("bigger", "whole", "whole", "whole")]
    created = [replace(each, metadata=replace(each.metadata, creation_timestamp=CREATED)) for each in now.claims]
    return replace(
        now,
        claims=(*created, *waiting),
        pods=(
            *running,
            pod("p", "big"),
            pod("q", "bigger"),
            templated_pod("early", "gone"),
            templated_pod("late", "no"),
        ),
    )


def rows(now: ClusterState, scope: Scope | None = None) -> dict[str, ClaimRow]:
    found = build_overview(ClusterIndex(now), scope or Scope()).claims
    return {f"{row.subject.kind} {row.subject.name}": row for row in found}


def test_a_row_says_who_has_which_devices_of_which_node() -> None:
    train = rows(two_nodes())["ResourceClaim train"]
    assert (train.pods, train.nodes, train.state, train.waits) == (("train",), ("node-1",), "allocated", False)
    assert train.devices == ("gpu.kerf.dev/node-1/gpu/gpu-0-4g-40gb-at-0",)
    assert train.age_s == 1800


def test_a_claim_waits_until_it_is_allocated_and_its_pods_have_started() -> None:
    now = two_nodes()
    [not_started] = [each for each in now.pods if each.metadata.name == "web"]
    stuck = replace(not_started, status=replace(not_started.status, phase="Pending"))
    others = tuple(each for each in now.pods if each is not not_started)
    found = rows(replace(now, pods=(stuck, *others)))
    assert {name for name, row in found.items() if row.waits} == {
        "ResourceClaim big",
        "ResourceClaim bigger",
        "ResourceClaim web",
        "Pod early",
        "Pod late",
    }
    assert found["ResourceClaim web"].state == "allocated"
    assert found["ResourceClaim big"].pods == ("p",)


def test_a_claim_that_is_being_deleted_waits_for_its_end() -> None:
    now = two_nodes()
    ending = tuple(
        replace(each, metadata=replace(each.metadata, deletion_timestamp=CREATED))
        if each.metadata.name in ("tune", "big")
        else each
        for each in now.claims
    )
    found = rows(replace(now, claims=ending))
    assert [(found[name].state, found[name].waits) for name in ("ResourceClaim tune", "ResourceClaim big")] == [
        ("deleting", True),
        ("deleting", True),
    ]


def test_a_pod_that_waits_without_a_claim_has_a_row_of_its_own() -> None:
    now = two_nodes()
    early = rows(now)["Pod early"]
    assert (early.pods, early.state, early.devices, early.nodes) == (("early",), "pending", (), ())
    report = explain_row(ClusterIndex(now), early.subject)
    assert report.causes[0].code == "template-missing"


@pytest.mark.parametrize(
    ("created_at", "age_s"),
    [
        ("2026-11-21T07:59:30Z", 30),
        ("2026-11-21T08:00:00Z", 0),
        ("2026-11-21T09:00:00Z", 0),  # the clock of this machine was set back, or is behind
        ("2026-11-21T07:59:30", 30),
        (None, None),
        ("yesterday", None),
    ],
)
def test_an_age_is_never_negative(created_at: str | None, age_s: int | None) -> None:
    old = claim("old", "whole")
    old = replace(old, metadata=ObjectMeta(name="old", namespace="default", creation_timestamp=created_at))
    assert rows(replace(gpu_cluster(), claims=(old,)))["ResourceClaim old"].age_s == age_s


def test_the_figures_of_hardware_are_those_of_frag() -> None:
    published = [*vendor_slices.nvidia_slices("node-1", 2), *vendor_slices.intel_slices("node-2")]
    other = state(cluster_node("node-1"), cluster_node("node-2"), published=published)
    for now in (two_nodes(), other):
        cluster = ClusterIndex(now)
        found, expected = build_overview(cluster), measure_fragmentation(cluster)
        for field in ("cards", "sizes", "unknown_cards", "counter_sets", "whole_devices"):
            assert getattr(found, field) == getattr(expected, field)
        assert found.cards or (found.counter_sets and found.whole_devices)


def test_a_scope_leaves_out_other_nodes_and_namespaces_but_not_what_waits_for_any_node() -> None:
    now = two_nodes()
    here = build_overview(ClusterIndex(now), Scope(nodes=frozenset({"node-2"})))
    assert {row.subject.name for row in here.claims} == {"tune", "batch", "big", "bigger", "early", "late"}
    assert [each.name for each in here.nodes] == ["node-2"]
    assert {each.node for each in here.cards} == {"node-2"}
    assert rows(now, Scope(namespace="other")) == {}


def test_reports_are_shown_of_claims_that_wait_only() -> None:
    now = two_nodes()
    cluster = ClusterIndex(now)
    overview = build_overview(cluster)
    report = explain_row(cluster, overview.waiting[0].subject)
    about = {row.subject: report for row in overview.claims}
    found = with_reports(overview, about)
    assert {row.subject.name for row in found.claims if row.why} == {row.subject.name for row in overview.waiting}
    assert all(row.cause is None for row in with_reports(overview, {}).claims)


def test_why_a_row_waits_is_what_kerf_why_says() -> None:
    cluster = ClusterIndex(two_nodes())
    [big] = [row for row in build_overview(cluster).claims if row.subject.name == "big"]
    [found] = [
        row
        for row in with_reports(build_overview(cluster), {big.subject: explain_row(cluster, big.subject)}).claims
        if row.why
    ]
    [expected] = [each for each in cluster.claims if each.name == "big"]
    assert found.why == explain_claim(cluster, expected)
    assert found.cause is not None
    assert found.cause.code == "combination"


def test_rows_without_a_report_are_explained_before_those_with_the_oldest() -> None:
    waiting = build_overview(ClusterIndex(two_nodes())).waiting
    first, second, third, fourth = (row.subject for row in waiting)
    known = {first: 5, second: 3, fourth: 4}
    assert [row.subject for row in choose_explained(waiting, known, 3)] == [third, second, fourth]
    assert choose_explained(build_overview(ClusterIndex(gpu_cluster())).claims, {}, 3) == []


def test_what_waits_is_first_and_each_column_sorts() -> None:
    found = build_overview(ClusterIndex(two_nodes())).claims
    names = [row.subject.name for row in found]
    assert names == ["big", "bigger", "early", "late", "batch", "train", "tune", "web"]
    assert [row.subject.name for row in sort_rows(found, "name")] == sorted(names)
    assert [row.subject.name for row in sort_rows(found, "node")][:4] == ["train", "web", "batch", "tune"]
    assert [row.age_s for row in sort_rows(found, "age", is_reverse=True)][:4] == [None] * 4
    assert {row.state for row in sort_rows(found, "state")[:4]} == {"allocated"}
    assert next(iter(SORT_KEYS)) == "waiting", "the order that is shown first"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", 8),
        ("NODE-2", 2),
        ("train", 1),
        ("4g-40gb", 1),
        ("pending", 4),
        ("default/b", 3),
        ("[", 0),
        ("nothing-like-it", 0),
    ],
)
def test_a_row_is_found_by_any_part_of_it(text: str, found: int) -> None:
    assert sum(matches(row, text) for row in build_overview(ClusterIndex(two_nodes())).claims) == found


def test_a_row_is_found_by_the_code_of_its_cause() -> None:
    cluster = ClusterIndex(two_nodes())
    overview = build_overview(cluster)
    reports = {row.subject: explain_row(cluster, row.subject) for row in overview.waiting}
    found = with_reports(overview, reports).claims
    assert {row.subject.name for row in found if matches(row, "template-missing")} == {"early", "late"}


def test_pools_are_listed_by_node_and_those_of_no_node_last() -> None:
    now = two_nodes()
    [first, *_] = now.slices
    shared = replace(
        first,
        metadata=ObjectMeta(name="shared"),
        spec=replace(first.spec, node_name=None, all_nodes=True, pool=replace(first.spec.pool, name="a-fabric")),
    )
    cluster = ClusterIndex(replace(now, slices=(shared, *now.slices)))
    driver = first.spec.driver
    assert list_pools(cluster) == [(driver, "node-1/gpu"), (driver, "node-2/gpu"), (driver, "a-fabric")]
    assert list_pools(cluster, {"node-2"}) == [(driver, "node-2/gpu"), (driver, "a-fabric")]


def test_a_subject_is_the_identity_of_a_row() -> None:
    subjects = [row.subject for row in build_overview(ClusterIndex(two_nodes())).claims]
    assert len({*subjects}) == len(subjects) == 8
    assert Subject(kind="Pod", namespace="default", name="early") in subjects
