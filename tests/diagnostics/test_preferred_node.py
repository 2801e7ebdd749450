"""``kerf why`` says which node is preferred for a pod, and what would be lost on another one."""

import pytest

from kerf_dra.api.kerf.v1alpha1 import ResourceClassObject
from kerf_dra.api.model.claims import ResourceClaim
from kerf_dra.api.model.names import ObjectRef
from kerf_dra.driver.diagnostics.cluster_index import ClusterIndex
from kerf_dra.driver.diagnostics.cluster_state import ClusterState
from kerf_dra.driver.diagnostics.explain.report import WhyReport
from kerf_dra.driver.diagnostics.explain.why import explain_pod
from kerf_dra.driver.diagnostics.explain.workload_pods import explain_waiting_pods
from tests.fakes.cluster_states import (
    allocate_claims,
    allocated_claim,
    claim,
    gpu_cluster,
    placed_class,
    placed_pod,
    pod,
    replace,
)


def waiting(now: ClusterState, wanted: str, *classes: ResourceClassObject) -> ClusterState:
    """``now`` with the pod ``p`` that waits for a device of the class ``wanted``."""
    return replace(
        now, claims=(*now.claims, claim("p", wanted)), pods=(*now.pods, pod("p", "p")), resource_classes=classes
    )


def explain(now: ClusterState) -> WhyReport:
    return explain_pod(ClusterIndex(now), ObjectRef("default", "p"))


def held(*on: tuple[str, str]) -> ClusterState:
    """Three nodes with one H100 each; of each pair, a claim holds a device of the class on the node."""
    now = gpu_cluster(3)
    for number, (class_name, node) in enumerate(on):
        now = allocate_claims(now, claim(f"held-{number}", class_name), on=node)
    return now


PACKED, SPREAD = placed_class("1g-10gb", "Packed"), placed_class("1g-10gb", "Spread")

# What is in use, the class that is wanted, what ResourceClasses say, and the note.
NOTES: list[tuple[ClusterState, str, list[ResourceClassObject], str]] = [
    (
        held(("4g-40gb", "node-3")),
        "1g-10gb",
        [PACKED],
        "node-3 is preferred (placement: Packed): it breaks no free 7g.80gb, as node-1 would",
    ),
    (
        held(("3g-40gb", "node-2"), ("1g-10gb", "node-2"), ("3g-40gb", "node-3"), ("1g-20gb", "node-1")),
        "1g-10gb",
        [PACKED],
        "node-2 is preferred (placement: Packed): it breaks no free 4g.40gb, as node-3 would",
    ),
    (
        held(("4g-40gb", "node-1"), ("4g-40gb", "node-3")),
        "1g-10gb",
        [PACKED],
        "node-1 or node-3 is preferred (placement: Packed): it breaks no free 7g.80gb, as node-2 would",
    ),
    (
        held(),
        "1g-10gb",
        [PACKED],
        "all 3 nodes on which it fits are equally good (placement: Packed): the scheduler's own scores decide",
    ),
    (
        held(("1g-10gb", "node-1"), ("1g-10gb", "node-1"), ("1g-10gb", "node-2")),
        "1g-10gb",
        [SPREAD],
        "node-3 is preferred (placement: Spread): claims of 1g-10gb hold 0 devices there, and 1 or more elsewhere",
    ),
    (
        held(("2g-20gb", "node-1"), ("4g-40gb", "node-2")),
        "1g-10gb",
        [SPREAD],
        (
            "node-3 is preferred (placement: Spread): claims of 1g-10gb hold as few devices on node-1, where fewer "
            "units are free"
        ),
    ),
    (
        held(("4g-40gb", "node-3")),
        "1g-10gb",
        [placed_class("1g-10gb", "Packed", "True Graded")],
        "node-3 is preferred (placement: Packed, in three grades): it breaks no free 7g.80gb, as node-1 would",
    ),
    (
        held(("4g-40gb", "node-3")),
        "1g-10gb",
        [placed_class("1g-10gb", "Packed", "True Graded"), placed_class("other", None)],  # the extender ranks all pods
        "node-3 is preferred (placement: Packed): it breaks no free 7g.80gb, as node-1 would",
    ),
    (
        held(("4g-40gb", "node-3")),
        "1g-10gb",
        [placed_class("1g-10gb", "Packed", "False ExtenderNotAsked")],
        "placement: Packed of 1g-10gb is not in effect: ExtenderNotAsked is why",
    ),
]


@pytest.mark.parametrize(("now", "wanted", "classes", "note"), NOTES)
def test_a_pod_that_fits_learns_which_node_is_preferred_and_what_another_one_would_lose(
    now: ClusterState, wanted: str, classes: list[ResourceClassObject], note: str
) -> None:
    assert explain(waiting(now, wanted, *classes)).notes == (note,)


@pytest.mark.parametrize(
    ("now", "wanted", "classes"),
    [
        (held(("4g-40gb", "node-3")), "1g-10gb", []),
        (held(("4g-40gb", "node-3")), "1g-10gb", [placed_class("1g-10gb", None, "")]),
        (held(("4g-40gb", "node-3")), "1g-10gb", [placed_class("1g-10gb", "None", "True NoPreference")]),
        (held(("7g-80gb", "node-2"), ("7g-80gb", "node-3")), "1g-10gb", [PACKED]),  # one node is no choice
        (held(("7g-80gb", "node-1"), ("7g-80gb", "node-2"), ("7g-80gb", "node-3")), "1g-10gb", [PACKED]),
    ],
)
def test_where_nothing_is_preferred_or_there_is_no_choice_nothing_is_said(
    now: ClusterState, wanted: str, classes: list[ResourceClassObject]
) -> None:
    assert explain(waiting(now, wanted, *classes)).notes == ()


def running(now: ClusterState, on: str) -> ClusterState:
    """``now`` with the pod ``p``, which has a 1g.10gb on the node."""
    now = allocate_claims(now, claim("p", "1g-10gb"), on=on)
    return replace(now, pods=(*now.pods, placed_pod("p", "p", on=on)), resource_classes=(PACKED,))


def test_a_pod_with_its_devices_learns_why_its_node_was_preferred() -> None:
    report = explain(running(held(("4g-40gb", "node-3")), "node-3"))
    assert report.notes == ("node-3 was preferred (placement: Packed): it breaks no free 7g.80gb, as node-1 would",)


def test_a_pod_on_another_node_learns_which_one_would_be_preferred_now() -> None:
    report = explain(running(held(("4g-40gb", "node-3")), "node-1"))
    assert report.notes == (
        "node-3 would be preferred to node-1 now (placement: Packed): it breaks no free 7g.80gb, as node-1 would",
    )


def test_a_claim_that_other_pods_use_stays_where_it_is() -> None:
    now = running(held(("4g-40gb", "node-3")), "node-1")
    shared = next(each for each in now.claims if each.metadata.name == "p")
    assert shared.status.allocation is not None
    used = allocated_claim(shared, shared.status.allocation, "p", "other")
    claims: list[ResourceClaim] = [used if each.ref == shared.ref else each for each in now.claims]
    assert explain(replace(now, claims=tuple(claims))).notes == ()


def test_reports_on_many_pods_do_not_look_at_all_nodes_for_each() -> None:
    now = waiting(held(("4g-40gb", "node-3")), "1g-10gb", PACKED)
    [report] = explain_waiting_pods(ClusterIndex(now), "default").pods
    assert report.notes == ()
