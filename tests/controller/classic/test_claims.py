"""Claims without a pod: the table of KEP-3063 row by row, and what is allocated at once."""

import itertools

import pytest
from msgspec.structs import replace

from kerf_dra.api.model.allocations import DeviceAllocationResult, DeviceRequestAllocationResult
from kerf_dra.api.model.classic import ClassicAllocation, ClassicClaim
from kerf_dra.api.model.metadata import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm
from kerf_dra.driver.controller.classic.allocator import only_node
from kerf_dra.driver.controller.classic.claims import ClaimAction, ClaimFacts, ClaimPlan, plan_claim, table_row
from kerf_dra.driver.controller.classic.reconcile_result import EventSubject, Requeue, WarningEvent
from tests.controller.classic.cluster_builder import FINALIZER, ClusterBuilder, claim, consumer
from tests.controller.classic.hardware import DRIVER, gpu


def devices(*names: str, node: str = "n1") -> ClassicAllocation:
    results = tuple(
        DeviceRequestAllocationResult(request="claim", driver=DRIVER, pool=f"{node}/gpu", device=name) for name in names
    )
    return ClassicAllocation(
        devices=DeviceAllocationResult(results=results), node_selector=only_node(node), drivers=(DRIVER,)
    )


HELD = devices("gpu-0-1g-10gb-at-0")
STRUCTURED = ClassicAllocation()
"""By the scheduler of 1.30, of a class of ours with structured parameters."""


def plan(value: ClassicClaim | None) -> ClaimPlan:
    """In a cluster without any class, parameters or node."""
    return plan_claim(value, ClusterBuilder().view)


ROWS = [
    # id, claim, verdict; "-" of upstream's table is drawn in the test after the next
    ("C-2", {"reserved_for": (consumer(),), "allocation": HELD}, ClaimPlan(rule="C-2")),
    ("C-2", {"reserved_for": (consumer(),), "allocation": HELD, "deleted": True}, ClaimPlan(rule="C-2")),
    ("C-3", {"deleted": True, "allocation": HELD, "driver": "other.example"}, ClaimPlan(rule="C-3")),
    ("C-3", {"deallocate": True, "allocation": STRUCTURED}, ClaimPlan(rule="C-3")),
    ("C-3", {"deallocate": True, "finalizers": ("other",)}, ClaimPlan(rule="C-3")),
    (
        "C-4",
        {"deleted": True, "finalizers": (FINALIZER,), "allocation": HELD},
        ClaimPlan(rule="C-4", deallocate=True, remove_finalizer=True),
    ),
    (
        "C-4",
        {"deallocate": True, "finalizers": (FINALIZER, "other"), "allocation": HELD},
        ClaimPlan(rule="C-4", deallocate=True, remove_finalizer=True),
    ),
    # somebody has taken the finalizer off: without this the claim would wait for its deallocation for ever
    ("C-4", {"deallocate": True, "allocation": HELD}, ClaimPlan(rule="C-4", deallocate=True)),
    ("C-8", {"deleted": True, "finalizers": (FINALIZER,)}, ClaimPlan(rule="C-8", remove_finalizer=True)),
    (
        "C-8",
        {"deallocate": True, "finalizers": (FINALIZER,)},
        ClaimPlan(rule="C-8", deallocate=True, remove_finalizer=True),
    ),
    ("C-10", {"allocation": HELD, "finalizers": (FINALIZER,)}, ClaimPlan(rule="C-10")),
    ("C-11", {}, ClaimPlan(rule="C-11")),
    ("C-12", {"immediate": True}, ClaimPlan(rule="C-12")),
]


@pytest.mark.parametrize(("rule", "fields", "expected"), ROWS, ids=[row[0] for row in ROWS])
def test_the_table_of_claims(rule: str, fields: dict[str, object], expected: ClaimPlan) -> None:
    assert plan(claim(**fields)) == expected  # type: ignore[arg-type]
    assert expected.rule == rule


def test_a_claim_that_is_gone_is_forgotten() -> None:
    assert plan(None) == ClaimPlan(rule="C-1")


@pytest.mark.parametrize("facts", [ClaimFacts(*bits) for bits in itertools.product([False, True], repeat=4)], ids=str)
def test_every_combination_has_one_row(facts: ClaimFacts) -> None:
    """R-26: first R, then D or Q, then F, then A, in the order of upstream's checks."""
    rule, action = table_row(facts)
    if facts.reserved:
        assert (rule, action) == ("C-2", ClaimAction.NONE)
    elif facts.ending and not facts.ours:
        assert (rule, action) == ("C-3", ClaimAction.NONE)
    elif facts.ending:
        assert rule == ("C-4" if facts.allocated else "C-8")
    else:
        assert rule == ("C-10" if facts.allocated else "C-11")


@pytest.mark.parametrize("immediate", [False, True])
def test_deallocation_needs_neither_class_nor_parameters_nor_node(immediate: bool) -> None:
    # C-5, C-9, R-3: nothing in it but the writes can fail, because what is taken is what claims say
    value = claim(immediate=immediate, deleted=True, finalizers=(FINALIZER,), allocation=HELD, parameters="gone")
    assert plan(value) == ClaimPlan(rule="C-4", deallocate=True, remove_finalizer=True)


def test_an_allocation_that_another_driver_wrote_is_left_to_it() -> None:
    # R-4
    builder = ClusterBuilder()
    value = claim(deleted=True, finalizers=(FINALIZER,), allocation=HELD, driver="other.example")
    found = plan_claim(value, builder.view)
    assert (found.deallocate, found.remove_finalizer) == (False, False)
    assert "other.example, which has to deallocate it" in found.warnings[0].message


DOUBTFUL = {
    "its resource handle cannot be read: it is not JSON; no other claim gets devices of n1": (
        replace(HELD, unreadable={DRIVER: "it is not JSON"}),
        (),
    ),
    "it has gpu-0-9g-99gb-at-3, gpu-7, which no NodeInventory of n1 has: no other claim gets that card": (
        devices("gpu-0-9g-99gb-at-3", "gpu-0-1g-10gb-at-0", "gpu-7"),
        (),
    ),
    "2 pods use it, and its class lets 1 (maxPods): is deploy/classic applied?": (
        HELD,
        (consumer("a"), consumer("b")),
    ),
}


@pytest.mark.parametrize("message", DOUBTFUL)
def test_an_allocation_that_cannot_be_right_is_told_of_at_the_claim_and_left_as_it_is(message: str) -> None:
    allocation, users = DOUBTFUL[message]
    builder = immediate_scene()
    value = builder.claim(allocation=allocation, reserved_for=users, finalizers=(FINALIZER,))
    found = plan_claim(value, builder.view)
    rule = "C-2" if users else "C-10"
    assert found == ClaimPlan(rule=rule, warnings=(WarningEvent(EventSubject.CLAIM, message),))


def test_what_an_allocation_has_of_nodes_that_tell_nothing_is_believed() -> None:
    assert plan(claim(allocation=HELD)) == ClaimPlan(rule="C-10")


def immediate_scene() -> ClusterBuilder:
    builder = ClusterBuilder()
    builder.node("n1")
    builder.resource_class("gpu", {})
    return builder


def test_an_immediate_claim_is_allocated_without_a_pod() -> None:
    # C-18
    found = plan_claim(immediate_scene().claim(immediate=True), immediate_scene().view)
    assert found.rule == "C-18"
    assert found.allocation is not None
    assert found.allocation.pod is None
    assert [result.device for result in found.allocation.allocation.devices.results] == ["gpu-0-1g-10gb-at-6"]
    assert found.allocation.allocation.node_selector == only_node("n1")


def test_an_immediate_claim_of_another_drivers_class_is_left_alone() -> None:
    # C-13: the class may still become ours, and then it wakes the claim
    builder = immediate_scene()
    builder.resource_class("theirs", driver_name="other.example")
    assert plan_claim(builder.claim(class_name="theirs", immediate=True), builder.view) == ClaimPlan(rule="C-13")


def test_a_class_with_structured_parameters_is_the_schedulers() -> None:
    builder = immediate_scene()
    builder.resource_class("structured", structured=True)
    assert plan_claim(builder.claim(class_name="structured", immediate=True), builder.view).rule == "C-13"


def test_bad_class_parameters_are_told_of_at_the_class_and_at_the_claim() -> None:
    # C-14
    builder = immediate_scene()
    builder.resource_class("bad", {"profil": "1g.10gb"})
    found = plan_claim(builder.claim(class_name="bad", immediate=True), builder.view)
    assert found.rule == "C-14"
    assert [event.about for event in found.warnings] == [EventSubject.CLASS, EventSubject.CLAIM]
    assert 'spec.profil: unknown field; did you mean "profile"?' in found.warnings[0].message


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"profil": "1g.10gb"}, 'spec.profil: unknown field; did you mean "profile"?'),
        ({"profile": "1g.99gb", "models": ["h100-80gb-sxm"]}, '"1g.99gb" is not a profile of model h100-80gb-sxm'),
        (
            {"minimum": {"memory": "5000Gi"}},
            "spec.minimum.memory: 5000Gi is more than any known model has; the largest is ",
        ),
        (
            {"minimum": {"memory": 18}},
            "spec.minimum.memory: 18 counts bytes, and is less than 1Mi: write a unit, such as 18Gi; the smallest is",
        ),
        ({"models": ["h200-1tb"]}, "there is no GPU model 'h200-1tb'"),
        ({"cut": "Whole"}, "the class does not allow whole cards"),
    ],
)
def test_bad_claim_parameters_are_told_of_at_the_claim(spec: dict[str, object], message: str) -> None:
    # C-15
    builder = immediate_scene()
    builder.claim_parameters("p", spec)
    found = plan_claim(builder.claim(parameters="p", immediate=True), builder.view)
    assert found.rule == "C-15"
    assert found.allocation is None
    assert [event.about for event in found.warnings] == [EventSubject.CLAIM]
    assert message in found.warnings[0].message


def test_a_model_may_be_written_as_people_write_it() -> None:
    builder = immediate_scene()
    builder.claim_parameters("p", {"models": ["H100-80GB-SXM"]})
    assert plan_claim(builder.claim(parameters="p", immediate=True), builder.view).allocation is not None


def test_parameters_that_are_missing_or_of_another_kind_are_told_of() -> None:
    builder = immediate_scene()
    missing = plan_claim(builder.claim(parameters="p", immediate=True), builder.view)
    assert "GpuClaimParameters p does not exist" in missing.warnings[0].message
    strange = plan_claim(builder.claim(parameters="p", parameters_kind="ConfigMap", immediate=True), builder.view)
    assert "ConfigMap p: the kind is not one of GpuClassParameters" in strange.warnings[0].message
    builder.claim_parameters("f", {"function": "fft"}, kind="FpgaClaimParameters")
    fpga = builder.claim(parameters="f", parameters_kind="FpgaClaimParameters", immediate=True)
    assert "does not fit a class of GPUs" in plan_claim(fpga, builder.view).warnings[0].message


def test_an_immediate_claim_that_fits_nowhere_waits_for_room_and_says_so() -> None:
    # C-17: nothing is held, so nothing is marked
    builder = ClusterBuilder()
    builder.resource_class("gpu", {})
    found = plan_claim(builder.claim(immediate=True), builder.view)
    assert (found.rule, found.allocation, found.requeue) == ("C-17", None, Requeue.PERIODIC)
    assert "no node has free devices for the claim" in found.warnings[0].message


def test_an_immediate_claim_goes_where_it_breaks_nothing_up() -> None:
    builder = immediate_scene()
    builder.node("n2", gpu("n2", 0))
    builder.claim("other", allocation=devices("gpu-0-1g-10gb-at-6", node="n2"))
    found = plan_claim(builder.claim(immediate=True), builder.view)
    assert found.allocation is not None
    assert found.allocation.allocation.node_selector == only_node("n2")


def test_an_immediate_claim_keeps_to_the_nodes_of_its_class() -> None:
    builder = immediate_scene()
    builder.node("n2", labels={"rack": "b"})
    requirement = NodeSelectorRequirement(key="rack", operator="In", values=("b",))
    term = NodeSelectorTerm(match_expressions=(requirement,))
    builder.resource_class("rack-b", {}, suitable_nodes=NodeSelector(node_selector_terms=(term,)))
    builder.resource_class("rack-b-too", {"nodes": {"matchLabels": {"rack": "b"}}})
    for name in ("rack-b", "rack-b-too"):
        found = plan_claim(builder.claim(class_name=name, immediate=True), builder.view)
        assert found.allocation is not None
        assert found.allocation.allocation.node_selector == only_node("n2")


def test_a_claim_that_another_pass_is_allocating_is_looked_at_again_soon() -> None:
    # Q-12
    builder = immediate_scene()
    value = builder.claim(immediate=True)
    first = plan_claim(value, builder.view)
    assert first.allocation is not None
    builder.view.usage.reserve(value.metadata.uid, first.allocation.usage)
    assert plan_claim(value, builder.view) == ClaimPlan(rule="C-18", requeue=Requeue.BACKOFF)


def test_after_deallocation_on_request_an_immediate_claim_is_allocated_again() -> None:
    builder = immediate_scene()
    value = builder.claim(immediate=True, finalizers=(FINALIZER,), allocation=HELD, deallocate=True)
    assert plan_claim(value, builder.view).deallocate
    assert plan_claim(builder.claim(immediate=True, version="3"), builder.view).rule == "C-18"


def test_a_minimum_that_no_card_has_is_told_of_where_the_class_allows_whole_cards_too() -> None:
    # C-15
    builder = immediate_scene()
    builder.resource_class("any", {"allowWhole": True})
    builder.claim_parameters("p", {"minimum": {"memory": "5000Gi"}})
    found = plan_claim(builder.claim(class_name="any", parameters="p", immediate=True), builder.view)
    assert found.rule == "C-15"
    assert "5000Gi is more than any known model has" in found.warnings[0].message
