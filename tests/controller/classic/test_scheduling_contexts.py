"""PodSchedulingContexts: the rules S-1 to S-18 of KEP-3063 and what upstream's library got wrong (Q-1 to Q-14)."""

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from kerf_dra.api.core.v1 import Pod
from kerf_dra.api.model.classic import MAX_NODES, PodSchedulingContext, UnsuitableNodes
from kerf_dra.api.model.devices import Attribute
from kerf_dra.driver.controller.classic.allocator import only_node
from kerf_dra.driver.controller.classic.reconcile_result import EventSubject, Requeue, WarningEvent
from kerf_dra.driver.controller.classic.scheduling_contexts import ContextPlan, has_nodes, plan_context
from tests.controller.classic.cluster_builder import (
    FINALIZER,
    ClusterBuilder,
    claim,
    consumer,
    context,
    owner_of,
    pod,
    pod_of_template,
)
from tests.controller.classic.hardware import DRIVER, gpu
from tests.controller.classic.test_claims import HELD, devices


def small_scene(*nodes: str) -> ClusterBuilder:
    """Build a cluster with one H100 on each node, a class ``gpu`` without limits and one pending claim."""
    builder = ClusterBuilder()
    for name in nodes or ("n1", "n2"):
        builder.node(name)
    builder.resource_class("gpu", {"allowWhole": True})
    builder.claim()
    return builder


def report(plan: ContextPlan) -> dict[str, tuple[str, ...]]:
    assert plan.resource_claims is not None
    return {entry.name: entry.unsuitable_nodes for entry in plan.resource_claims}


NOTHING = [
    ("S-1", None, pod()),
    ("S-2", context(potential=("n1",), deleted=True), pod()),
    ("S-3", context(), pod()),
    ("S-5", context(potential=("n1",)), pod(deleted=True)),
    ("S-6", context(potential=("n1",), owner_uid="pod-of-yesterday"), pod()),
]


@pytest.mark.parametrize(("rule", "value", "its_pod"), NOTHING, ids=[row[0] for row in NOTHING])
def test_contexts_that_ask_nothing_are_forgotten(rule: str, value: PodSchedulingContext | None, its_pod: Pod) -> None:
    assert plan_context(value, its_pod, small_scene().view) == ContextPlan(rule=rule)


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_pod_that_has_finished_gets_no_devices_again(phase: str) -> None:
    """A container of one command ended before its context was gone; its claim was deallocated, and allocated again."""
    # upstream's library asks for the deletion only
    found = plan_context(context(selected="n1", potential=("n1",)), pod(phase=phase), small_scene().view)
    assert found == ContextPlan(rule="S-5")


def test_a_pod_is_asked_for_only_where_a_context_asks_something() -> None:
    # S-1 to S-3 come before S-4
    assert not has_nodes(None)
    assert not has_nodes(context())
    assert not has_nodes(context(potential=("n1",), deleted=True))
    assert has_nodes(context(selected="n1"))


def test_claims_of_templates_are_found_by_the_pods_status() -> None:
    builder = small_scene()
    its_pod = pod_of_template(made={"gpu": "pod-gpu-x7k2p"})
    builder.claim("pod-gpu-x7k2p", owner=its_pod)
    found = plan_context(context(selected="n1"), its_pod, builder.view)
    assert [grant.claim.metadata.name for grant in found.allocations] == ["pod-gpu-x7k2p"]


def test_until_1_27_claims_of_templates_are_named_after_pod_and_entry() -> None:
    builder = ClusterBuilder(names_are_generated=False)
    builder.node("n1")
    builder.resource_class("gpu", {})
    its_pod = pod_of_template()
    builder.claim("pod-gpu", owner=its_pod)
    found = plan_context(context(selected="n1"), its_pod, builder.view)
    assert [grant.claim.metadata.name for grant in found.allocations] == ["pod-gpu"]


def test_a_claim_that_is_not_made_yet_is_waited_for() -> None:
    # S-7
    found = plan_context(context(potential=("n1",)), pod_of_template(), small_scene().view)
    assert (found.rule, found.requeue) == ("S-7", Requeue.BACKOFF)
    assert found.warnings[0].message == "pod claim gpu: the claim has not been created yet"


def test_a_claim_that_was_made_for_another_pod_is_not_taken() -> None:
    # S-7, as the kubelet does (K-2)
    builder = small_scene()
    its_pod = pod_of_template(made={"gpu": "stolen"})
    builder.claim("stolen", owner=pod("another"))
    found = plan_context(context(selected="n1"), its_pod, builder.view)
    assert (found.rule, found.allocations) == ("S-7", ())
    assert "was not created for this pod" in found.warnings[0].message


SKIPPED = {
    "no claim is needed": (pod_of_template(made={"gpu": None}), None),
    "the claim is not there": (pod(claims={"gpu": "gone"}), None),
    "Immediate": (pod(), claim(immediate=True)),
    "allocated already": (pod(), claim(allocation=HELD)),
    "about to be deleted": (pod(), claim(deleted=True, finalizers=("other",))),
    "about to be deallocated": (pod(), claim(deallocate=True, finalizers=(FINALIZER,))),
    "of another driver's class": (pod(), claim(class_name="theirs")),
    "of a structured class": (pod(), claim(class_name="structured")),
}


@pytest.mark.parametrize("case", SKIPPED)
def test_entries_that_are_not_ours_to_serve_are_left_out(case: str) -> None:
    # S-8, S-11
    builder = small_scene()
    builder.resource_class("theirs", driver_name="other.example")
    builder.resource_class("structured", structured=True)
    its_pod, held = SKIPPED[case]
    if held is not None:
        builder.put_claim(held)
    found = plan_context(context(selected="n1", potential=("n1",)), its_pod, builder.view)
    assert found == ContextPlan(rule="S-11", requeue=Requeue.PERIODIC)


def test_a_missing_class_stops_the_whole_context_and_is_told_of() -> None:
    # S-9, Q-4
    builder = small_scene()
    builder.claim("other", class_name="missing")
    its_pod = pod(claims={"gpu": "claim", "more": "other"})
    found = plan_context(context(selected="n1"), its_pod, builder.view)
    assert (found.rule, found.allocations, found.resource_claims) == ("S-9", (), None)
    assert found.warnings[0].message == "pod claim more: class missing does not exist"


def test_bad_parameters_are_told_of_at_context_pod_and_claim() -> None:
    # S-10
    builder = small_scene()
    builder.claim_parameters("p", {"profil": "1g.10gb"})
    builder.claim(parameters="p")
    found = plan_context(context(potential=("n1",)), pod(), builder.view)
    assert (found.rule, found.resource_claims) == ("S-10", None)
    assert [event.about for event in found.warnings] == [EventSubject.CONTEXT, EventSubject.POD, EventSubject.CLAIM]
    assert all("spec.profil" in event.message for event in found.warnings)


def test_while_the_scheduler_only_asks_nothing_is_allocated() -> None:
    # S-12, S-17
    found = plan_context(context(potential=("n1", "n2")), pod(), small_scene().view)
    assert found.allocations == ()
    assert report(found) == {"gpu": ()}


def test_nodes_that_cannot_be_had_are_listed_in_order() -> None:
    # S-12, S-17, Q-7
    builder = small_scene()
    builder.claim("full", allocation=devices("gpu-0", node="n2"))
    found = plan_context(context(potential=("n9", "n2", "n1", "n3")), pod(), builder.view)
    assert report(found) == {"gpu": ("n2", "n3", "n9")}


def test_a_report_that_says_so_already_is_not_written_again() -> None:
    # S-17, Q-7
    value = context(potential=("n1", "n3"), reported={"gpu": ("n3",)})
    assert plan_context(value, pod(), small_scene().view).resource_claims is None


def test_the_reports_of_other_drivers_stay() -> None:
    value = context(potential=("n3",), reported={"nic": ("n1",), "gpu": ()})
    found = plan_context(value, pod(claims={"nic": "theirs", "gpu": "claim"}), small_scene().view)
    assert found.resource_claims == (
        UnsuitableNodes(name="nic", unsuitable_nodes=("n1",)),
        UnsuitableNodes(name="gpu", unsuitable_nodes=("n3",)),
    )


def test_the_selected_node_is_looked_at_although_it_is_no_potential_one() -> None:
    # Q-1, T-C is-potential-node
    found = plan_context(context(selected="n3", potential=("n1",)), pod(), small_scene().view)
    assert (found.rule, found.allocations) == ("S-14", ())
    assert report(found) == {"gpu": ("n3",)}


def test_nodes_reported_before_are_looked_at_again() -> None:
    # n1 has room again, n3 still has not
    value = context(potential=("n2",), reported={"gpu": ("n1", "n3")})
    assert report(plan_context(value, pod(), small_scene().view)) == {"gpu": ("n3",)}


@pytest.mark.parametrize("selected", ["x000", "x199"])
def test_of_too_many_nodes_the_selected_one_stays(selected: str) -> None:
    # S-17, T-C truncate-first and truncate-last
    potential = tuple(f"p{number:03}" for number in range(MAX_NODES))
    reported = {"gpu": tuple(f"x{number:03}" for number in range(50))}
    value = context(selected=selected, potential=potential, reported=reported)
    nodes = report(plan_context(value, pod(), small_scene().view))["gpu"]
    assert len(nodes) == MAX_NODES
    assert selected in nodes
    assert list(nodes) == sorted(nodes)
    assert set(nodes) - {selected} < set(potential)


def test_on_the_selected_node_all_claims_of_the_pod_are_allocated_at_once() -> None:
    # S-15, S-18
    builder = small_scene()
    builder.claim("second")
    found = plan_context(
        context(selected="n1", potential=("n1", "n2")), pod(claims={"a": "claim", "b": "second"}), builder.view
    )
    assert (found.rule, found.requeue) == ("S-15", Requeue.PERIODIC)
    given = [result.device for grant in found.allocations for result in grant.allocation.devices.results]
    assert len(set(given)) == 2
    assert all(grant.allocation.node_selector == only_node("n1") for grant in found.allocations)
    assert report(found) == {"a": (), "b": ()}


def test_a_pod_may_name_one_claim_twice() -> None:
    its_pod = pod(claims={"first": "claim", "second": "claim"})
    found = plan_context(context(selected="n1", potential=("n1",)), its_pod, small_scene().view)
    assert [grant.claim.metadata.name for grant in found.allocations] == ["claim"]
    assert report(found) == {"first": (), "second": ()}


def test_a_node_that_can_serve_only_some_of_a_pods_claims_serves_none() -> None:
    # S-14, Q-14
    builder = small_scene("n1")
    builder.claim_parameters("whole", {"cut": "Whole"})
    builder.claim(parameters="whole")
    builder.claim("second", parameters="whole")
    its_pod = pod(claims={"a": "claim", "b": "second"})
    found = plan_context(context(selected="n1", potential=("n1",)), its_pod, builder.view)
    assert (found.rule, found.allocations) == ("S-14", ())
    assert report(found) == {"a": ("n1",), "b": ("n1",)}
    assert found.warnings[0].message == "node n1: too few devices are free"


def test_where_no_node_can_be_had_the_pod_is_told_why() -> None:
    builder = small_scene("n1")
    builder.node("n2", ready=False)
    builder.claim("full", allocation=devices("gpu-0"))
    found = plan_context(context(potential=("n1", "n2", "n3", "n4")), pod(), builder.view)
    (event,) = found.warnings
    assert event.about is EventSubject.POD
    assert event.message == (
        "none of 4 nodes is suitable: "
        "its kubelet plugin of gpu.kerf.dev is not running (1); the node does not exist (2); "
        "too few devices are free (1)"
    )


def test_without_potential_nodes_the_selected_one_is_allocated_on_all_the_same() -> None:
    # S-13: kube-controller-manager's way for pods that never met the scheduler
    found = plan_context(context(selected="n2"), pod(), small_scene().view)
    assert [grant.allocation.node_selector for grant in found.allocations] == [only_node("n2")]


def test_two_contexts_that_share_a_claim_never_both_allocate_it() -> None:
    #
    builder = small_scene()
    first = plan_context(context("a", selected="n1"), pod("a"), builder.view)
    builder.view.usage.reserve(first.allocations[0].claim.metadata.uid, first.allocations[0].usage)
    second = plan_context(context("b", selected="n2"), pod("b"), builder.view)
    assert (second.allocations, second.requeue) == ((), Requeue.BACKOFF)


def test_who_only_looks_takes_nothing_and_sees_what_others_have() -> None:
    builder = small_scene("n1")
    builder.resource_class("monitor", {"monitor": True})
    builder.claim("look", class_name="monitor")
    (looking,) = plan_context(context(selected="n1"), pod(claims={"gpu": "look"}), builder.view).allocations
    assert [result.device for result in looking.allocation.devices.results] == ["gpu-0"]
    assert looking.usage == ()
    builder.claim("look", class_name="monitor", allocation=looking.allocation, version="2")
    builder.claim_parameters("whole", {"cut": "Whole"})
    builder.claim(parameters="whole")
    assert plan_context(context(selected="n1"), pod(), builder.view).allocations


def test_what_is_reserved_for_a_write_in_flight_is_given_to_nobody_else() -> None:
    # NE-18
    builder = small_scene("n1")
    builder.claim_parameters("whole", {"cut": "Whole"})
    for name in ("a", "b"):
        builder.claim(name, parameters="whole")
    first = plan_context(context("a", selected="n1"), pod("a", claims={"gpu": "a"}), builder.view)
    builder.view.usage.reserve(first.allocations[0].claim.metadata.uid, first.allocations[0].usage)
    second = plan_context(context("b", selected="n1", potential=("n1",)), pod("b", claims={"gpu": "b"}), builder.view)
    assert (second.allocations, report(second)) == ((), {"gpu": ("n1",)})
    builder.view.usage.unreserve("claim-a")
    assert plan_context(context("b", selected="n1"), pod("b", claims={"gpu": "b"}), builder.view).allocations


def test_asking_changes_nothing() -> None:
    # NE-19: it is asked about many nodes, and most are never chosen
    builder = small_scene()
    asking = context(selected="n1", potential=("n1", "n2"))
    first = plan_context(asking, pod(), builder.view)
    assert first.allocations
    assert plan_context(asking, pod(), builder.view) == first
    assert not any(builder.view.usage.on(node) for node in ("n1", "n2"))


OBSTACLES: dict[str, Callable[[ClusterBuilder], object]] = {
    "the node does not exist": lambda builder: builder.stores.nodes.remove(builder.stores.nodes.values()[0].ref),
    "its kubelet plugin of gpu.kerf.dev has not reported yet": lambda builder: builder.remove_inventory("n1"),
    "its kubelet plugin of gpu.kerf.dev is not running": lambda builder: builder.node("n1", ready=False),
    "its kubelet plugin of gpu.kerf.dev has been silent for 181 s": lambda builder: setattr(
        builder.clock, "now", builder.clock.now + 181
    ),
    "its NodeInventory of gpu.kerf.dev is wrong: GPU-n1-0 occurs twice": lambda builder: builder.node(
        "n1", gpu("n1", 0), gpu("n1", 0)
    ),
    "the class's parameters do not select it": lambda builder: builder.resource_class(
        "gpu", {"nodes": {"names": ["n2"]}}
    ),
    "too few devices are free": lambda builder: builder.claim("full", allocation=devices("gpu-0")),
    "too few devices are free; a claim has gpu-0-9g-99gb-at-3, which the node lacks": lambda builder: builder.claim(
        "strange", allocation=devices("gpu-0-9g-99gb-at-3")
    ),
    "too few devices are free; the devices of a claim cannot be read": lambda builder: builder.claim(
        "unreadable", allocation=replace(HELD, unreadable={DRIVER: "it is not JSON"})
    ),
}


@pytest.mark.parametrize("reason", OBSTACLES)
def test_a_node_that_cannot_be_had_is_unsuitable_for_a_reason(reason: str) -> None:
    # a node without a plugin becomes suitable by itself once the plugin has reported
    builder = small_scene("n1")
    assert plan_context(context(selected="n1"), pod(), builder.view).allocations
    OBSTACLES[reason](builder)
    found = plan_context(context(selected="n1"), pod(), builder.view)
    assert found.allocations == ()
    assert report(found) == {"gpu": ("n1",)}
    assert found.warnings[0].message == f"node n1: {reason}"


@pytest.mark.parametrize(
    ("found", "wanted", "is_enough"),
    [
        ("550.54.15", "550.54", True),
        ("550.54.15", "550.54.15", True),
        ("550.54", "550.54.0", True),
        ("550.54.15", "550.90", False),
        ("535.104.05", "550", False),
        ("", "550", False),
        ("", None, True),
    ],
)
def test_a_node_whose_driver_is_too_old_is_unsuitable_for_that_reason(
    found: str, wanted: str | None, is_enough: bool
) -> None:
    #
    builder = small_scene("n1")
    builder.node("n1", gpu("n1", 0, driver_version=found))
    builder.resource_class("gpu", {} if wanted is None else {"minDriverVersion": wanted})
    plan = plan_context(context(selected="n1"), pod(), builder.view)
    assert bool(plan.allocations) == is_enough
    reason = f"node n1: the driver on the host is {found or 'not known'}, and the class requires {wanted}"
    assert [event.message for event in plan.warnings] == ([] if is_enough else [reason])


def test_each_driver_version_of_a_node_is_named_once() -> None:
    builder = small_scene("n1")
    versions = ("535.1", "", "520.2", "535.1")
    builder.node("n1", *(gpu("n1", index, driver_version=version) for index, version in enumerate(versions)))
    builder.resource_class("gpu", {"minDriverVersion": "550"})
    plan = plan_context(context(selected="n1"), pod(), builder.view)
    assert [event.message for event in plan.warnings] == [
        "node n1: the driver on the host is 520.2, 535.1, not known, and the class requires 550"
    ]


def test_while_one_claim_of_a_pod_is_being_written_none_of_them_is_allocated() -> None:
    builder = small_scene("n1")
    builder.node("n1", gpu("n1", 0), gpu("n1", 1))
    builder.claim("second")
    its_pod = pod(claims={"gpu": "claim", "other": "second"})
    grants = plan_context(context(selected="n1"), its_pod, builder.view).allocations
    assert len(grants) == 2
    for grant in grants:
        builder.view.usage.reserve(grant.claim.metadata.uid, grant.usage)
        plan = plan_context(context(selected="n1"), its_pod, builder.view)
        assert (plan.allocations, plan.requeue) == ((), Requeue.BACKOFF)
        builder.view.usage.unreserve(grant.claim.metadata.uid)


def test_a_handle_for_our_plugin_counts_whoever_allocated_the_claim() -> None:
    # a claim may have handles for several drivers (KEP-3063), and only one of these allocated it
    builder = small_scene("n1")
    builder.claim("theirs", allocation=replace(HELD, unreadable={DRIVER: "it is not JSON"}), driver="other.example")
    assert plan_context(context(selected="n1"), pod(), builder.view).allocations == ()


def test_nodes_that_differ_in_their_driver_alone_are_told_apart() -> None:
    #
    builder = small_scene("n1", "n2", "n3")
    builder.node("n2", gpu("n2", 0, driver_version="535.1"))
    for spec in ({"minDriverVersion": "550"}, {"minDriverVersion": "550", "monitor": True}):
        builder.resource_class("gpu", spec)
        found = plan_context(context(potential=("n1", "n2", "n3")), pod(), builder.view)
        assert report(found) == {"gpu": ("n2",)}


def test_of_cards_with_different_drivers_only_a_recent_one_is_given_away() -> None:
    #
    builder = small_scene("n1", "n2")
    for node, versions in (("n1", ("535.1", "550.1")), ("n2", ("550.1", "535.1"))):
        cards = (gpu(node, index, driver_version=version) for index, version in enumerate(versions))
        builder.node(node, *cards)
    builder.resource_class("gpu", {"minDriverVersion": "550"})
    for node, card in (("n1", "gpu-1-"), ("n2", "gpu-0-")):
        (grant,) = plan_context(context(selected=node), pod(), builder.view).allocations
        assert grant.allocation.devices.results[0].device.startswith(card)


def test_cards_that_cannot_do_what_the_parameters_say_are_not_given_away() -> None:
    builder = small_scene("n1", "n2")
    builder.resource_class("gpu", {"sharing": {"strategy": "Mps"}})
    plan = plan_context(context(potential=("n1", "n2")), pod(), builder.view)
    assert report(plan) == {"gpu": ("n1", "n2")}
    plan = plan_context(context(selected="n1"), pod(), builder.view)
    assert [event.message for event in plan.warnings] == [
        "node n1: no card can do what the parameters say: the attribute mps is not true"
    ]
    builder.node("n2", gpu("n2", 0), gpu("n2", 1, attributes={"mps": Attribute.of(True)}))
    (grant,) = plan_context(context(selected="n2"), pod(), builder.view).allocations
    assert grant.allocation.devices.results[0].device.startswith("gpu-1-")


def test_a_renewed_inventory_counts_from_when_it_was_seen() -> None:
    builder = small_scene("n1")
    builder.clock.now += 170
    builder.node("n1", renewed_at="2")
    builder.clock.now += 170
    assert plan_context(context(selected="n1"), pod(), builder.view).allocations


def test_a_claim_in_use_by_nobody_but_shared_is_reserved_for_the_pod_that_drives_it() -> None:
    builder = small_scene()
    builder.resource_class("gpu", {"maxPods": 4})
    found = plan_context(context(selected="n1"), pod(), builder.view)
    assert found.allocations[0].allocation.max_pods == 4
    assert found.allocations[0].pod == pod()


@pytest.mark.parametrize("count", [1, 4])
def test_for_a_pod_one_of_whose_claims_is_full_nothing_else_is_held(count: int) -> None:
    # it could not start anyway; once a pod has ended it can
    builder = small_scene("n1")
    its_pod = pod(claims={"mine": "claim", "ours": "shared"})
    asking = context(selected="n1", potential=("n1",))
    users = tuple(consumer(f"pod-{number}") for number in range(count))
    builder.claim("shared", allocation=replace(HELD, max_pods=count), reserved_for=users)
    found = plan_context(asking, its_pod, builder.view)
    assert (found.rule, found.allocations, report(found)) == ("S-14", (), {"mine": ("n1",)})
    message = f"pod claim ours: ResourceClaim shared is full: {count} pods use it"
    assert found.warnings[0].message == f"node n1: {message}"
    assert found.warnings[1] == WarningEvent(EventSubject.POD, f"none of 1 nodes is suitable: {message} (1)")
    for rest in (users[1:], (consumer(), *users[1:])):
        builder.claim("shared", allocation=replace(HELD, max_pods=count), reserved_for=rest, version="2")
        assert plan_context(asking, its_pod, builder.view).allocations


def test_a_number_of_pods_that_nobody_would_keep_to_is_refused() -> None:
    #
    builder = ClusterBuilder(pods_can_be_limited=False)
    builder.node("n1")
    builder.claim()
    builder.resource_class("gpu", {"maxPods": 4})
    found = plan_context(context(selected="n1"), pod(), builder.view)
    assert (found.rule, found.allocations) == ("S-10", ())
    assert "class parameters of gpu: spec.maxPods: 4 needs Kubernetes 1.30" in found.warnings[0].message
    for number in (1, 32):
        builder.resource_class("gpu", {"maxPods": number})
        assert plan_context(context(selected="n1"), pod(), builder.view).allocations[0].allocation.max_pods == number


def test_an_exclusive_claim_is_not_shareable() -> None:
    #
    assert not plan_context(context(selected="n1"), pod(), small_scene().view).allocations[0].allocation.shareable


def test_owners_and_consumers_of_the_scene_are_what_they_say() -> None:
    assert owner_of(pod()).uid == consumer().uid == "pod-pod"
