"""What Kerf's plugins report of the cards of a Node is in the answer for a pod that finds too few devices there."""

import pytest

from kerf_dra.api.core.v1 import Event, ObjectReference, Taint
from kerf_dra.api.model.names import ObjectRef
from kerf_dra.driver.diagnostics.cluster_index import ClusterIndex
from kerf_dra.driver.diagnostics.cluster_state import NODE_REASONS, ClusterState
from kerf_dra.driver.diagnostics.explain.report import WhyReport
from kerf_dra.driver.diagnostics.explain.why import explain_pod
from tests.fakes.cluster_states import claim, device_class, node, pod, replace, slices, state

MESSAGES = {
    "InUseOutsideKerf": "card gpu-1 (GPU-1) is partly in use outside of Kerf: 3g.40gb at 0; the devices there get none",
    "CardInQuarantine": "card gpu-1 (GPU-1) gets no claims: two readings differ",
    "CardModeUnavailable": "card gpu-1 (GPU-1) is not available in partitions: MIG needs a reset",
    "CardsNotDiscovered": "backend nvidia cannot discover its cards: no driver is loaded",
    "PartitionGone": "card gpu-1 (GPU-1) has lost gpu-1-1g-10gb-at-0",
    "SharesNotPublished": "this Kubernetes has a fault with shared devices",
}


def event(reason: str, message: str, *, on: str = "node-1", minute: int = 30) -> Event:
    return Event(
        involved_object=ObjectReference(kind="Node", name=on, uid=on),
        reason=reason,
        message=message,
        last_timestamp=f"2026-11-21T07:{minute:02}:00Z",
    )


def waiting(*events: Event, class_name: str = "7g-80gb", count: int = 9) -> ClusterState:
    """Return a cluster of two nodes with one card each, where a pod wants more of a class than a node has."""
    names = ("node-1", "node-2")
    now = state(*map(node, names), published=[each for name in names for each in slices(name)])
    wanted = claim("p", *([class_name] * count))
    return replace(now, claims=(wanted,), pods=(pod("p", "p"),), events=events)


def explain(now: ClusterState) -> WhyReport:
    return explain_pod(ClusterIndex(now), ObjectRef("default", "p"))


def told(now: ClusterState) -> list[str]:
    return [cause.message for cause in explain(now).causes if "(event " in cause.message]


@pytest.mark.parametrize("reason", MESSAGES)
def test_a_card_that_a_plugin_withholds_is_named_with_what_to_do(reason: str) -> None:
    """A pod that found no device, because another program had cut the card, was told to add a node."""
    answer = explain(waiting(event(reason, MESSAGES[reason])))
    [cause] = [each for each in answer.causes if "(event " in each.message]
    assert cause.code == ("hardware-held" if reason == "InUseOutsideKerf" else "card-unavailable")
    assert cause.message == f"on node-1: {MESSAGES[reason]} (event {reason}, 30 min ago)"
    assert cause.next_step
    assert cause.objects == ("node node-1",)


def test_every_reason_that_is_read_is_a_problem_or_ends_one() -> None:
    assert {*MESSAGES, "CardFree", "CardsDiscovered"} == NODE_REASONS


def test_a_problem_that_has_ended_is_not_told() -> None:
    held, free = event("InUseOutsideKerf", MESSAGES["InUseOutsideKerf"]), "card GPU-1 is free for claims again"
    assert told(waiting(held, event("CardFree", free, minute=40))) == []
    assert told(waiting(held, event("CardFree", free, minute=20))) != []
    assert told(waiting(held, event("CardFree", free.replace("GPU-1", "GPU-2"), minute=40))) != []
    missing = event("CardsNotDiscovered", MESSAGES["CardsNotDiscovered"])
    found = event("CardsDiscovered", "backend nvidia has discovered its cards: 1", minute=40)
    assert told(waiting(missing, found)) == []


def test_the_newest_state_of_a_card_is_told_once_and_other_cards_beside_it() -> None:
    first = event("InUseOutsideKerf", MESSAGES["InUseOutsideKerf"], minute=10)
    later = event("InUseOutsideKerf", MESSAGES["InUseOutsideKerf"].replace("3g.40gb", "1g.10gb"), minute=20)
    other = event("InUseOutsideKerf", MESSAGES["InUseOutsideKerf"].replace("-1", "-0"), minute=5)
    found = told(waiting(later, first, other))
    assert len(found) == 2
    assert not any("GPU-1" in message and "3g.40gb" in message for message in found)


def test_cards_of_a_node_on_which_the_pod_may_not_run_are_no_cause() -> None:
    now = waiting(event("CardInQuarantine", MESSAGES["CardInQuarantine"], on="node-2"))
    assert told(now) != []
    closed = node("node-2", taints=[Taint(key="closed", effect="NoSchedule")])
    assert told(replace(now, nodes=(now.nodes[0], closed))) == []


def test_a_pod_for_devices_of_another_vendor_is_told_nothing_of_kerfs_cards() -> None:
    other = device_class("other", 'device.driver == "gpu.example.com"')
    now = waiting(event("CardInQuarantine", MESSAGES["CardInQuarantine"]), class_name="other")
    assert told(replace(now, classes=(*now.classes, other))) == []
