"""The cases of upstream's own controller_test.go (kubernetes/dynamic-resource-allocation, release-1.26 to 1.31): T-C.

By their names there. Where upstream's driver fails to allocate or deallocate, here a write to the API server does:
nothing else can fail. ``invalid-key`` has no counterpart, because keys are no text (C-0).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from kerf_dra.api.model.classic import MAX_NODES
from kerf_dra.driver.controller.classic.scheduling_contexts import plan_context
from kerf_dra.driver.kube.http.errors import UnreachableError
from tests.controller.classic.cluster_builder import FINALIZER, context, pod
from tests.controller.classic.test_claims import HELD
from tests.controller.classic.test_reconciler import ALLOCATE, MARK, POD, READ, SteppedController
from tests.controller.classic.test_scheduling_contexts import report, small_scene

LEASE = "get lease"
THEIRS = "else.example/mine"


@dataclass(frozen=True, kw_only=True)
class Case:
    """A claim, an event, and the claim's state afterwards."""

    before: dict[str, Any] | None
    """None: there is no claim."""
    calls: list[str]
    rule: str = ""
    """Empty: the pass ends with an error."""
    fails: str = ""
    """The call that does not reach the server."""
    after: tuple[bool, tuple[str, ...]] | None
    """Whether it is allocated, and its finalizers; None: it is gone."""


ENDING = {"finalizers": (FINALIZER,), "deleted": True}
FULL = {"allocation": HELD, "finalizers": (FINALIZER,)}
CLAIMS: dict[str, Case] = {
    "not-found": Case(before=None, rule="C-1", calls=[], after=None),
    "deleted-finalizer-removal": Case(before=ENDING, rule="C-8", calls=[READ, MARK], after=None),
    "deleted-finalizer-stop-failure": Case(before=ENDING, fails=MARK, calls=[READ, MARK], after=(False, (FINALIZER,))),
    "deleted-finalizer-no-removal": Case(
        before={"deleted": True, "finalizers": (THEIRS,)}, rule="C-3", calls=[], after=(False, (THEIRS,))
    ),
    "deleted-allocated": Case(before=FULL | ENDING, rule="C-4", calls=[READ, ALLOCATE, MARK], after=None),
    "deleted-deallocate-failure": Case(
        before=FULL | ENDING, fails=ALLOCATE, calls=[READ, ALLOCATE], after=(True, (FINALIZER,))
    ),
}
IMMEDIATE: dict[str, Case] = {
    "wrong-driver": Case(before={"class_name": "theirs"}, rule="C-13", calls=[], after=(False, ())),
    "do-allocation": Case(before={}, rule="C-18", calls=[MARK, LEASE, ALLOCATE], after=(True, (FINALIZER,))),
    "continue-allocation": Case(
        before={"finalizers": (FINALIZER,)}, rule="C-18", calls=[LEASE, ALLOCATE], after=(True, (FINALIZER,))
    ),
    "fail-allocation": Case(before={}, fails=ALLOCATE, calls=[MARK, LEASE, ALLOCATE], after=(False, (FINALIZER,))),
    "allocated-nop": Case(before=FULL, rule="C-10", calls=[], after=(True, (FINALIZER,))),
    "allocated-reallocate": Case(
        before=FULL | {"deallocate": True}, rule="C-4", calls=[READ, ALLOCATE, MARK], after=(False, ())
    ),
    "allocated-fail-deallocation-during-reallocate": Case(
        before=FULL | {"deallocate": True}, fails=ALLOCATE, calls=[READ, ALLOCATE], after=(True, (FINALIZER,))
    ),
}
DELAYED: dict[str, Case] = {"pending": Case(before={}, rule="C-11", calls=[], after=(False, ()))}
ALL = [
    pytest.param(immediate, case, id=f"{'immediate' if immediate else 'delayed'}-{name}")
    for immediate, cases in ((True, CLAIMS | IMMEDIATE), (False, CLAIMS | DELAYED))
    for name, case in cases.items()
]


@pytest.mark.parametrize(("immediate", "case"), ALL)
def test_a_claim_is_treated_as_upstream_does(immediate: bool, case: Case) -> None:
    # T-C
    stepped = SteppedController()
    stepped.builder.resource_class("theirs", driver_name="other.example")
    if case.before is not None:
        stepped.claim(immediate=immediate, **case.before)
    calls: list[str] = []
    if case.fails:
        with pytest.raises(UnreachableError):
            stepped.of_claim((case.fails, "before"), calls)
    else:
        ended, _ = stepped.of_claim(None, calls)
        assert ended.rule == case.rule
    held = stepped.server.claim("claim")
    assert calls == case.calls
    assert (None if held is None else (held.status.allocation is not None, held.metadata.finalizers)) == case.after


CONTEXTS: dict[str, tuple[Callable[[SteppedController], object], dict[str, Any], str, list[str], bool]] = {
    # what there is, the context, the rule, the calls after the pod's, whether the claim is allocated then
    "pod-nop": (
        lambda stepped: stepped.server.pods.update({POD: pod(claims={})}),
        {"selected": "n1"},
        "S-11",
        [],
        False,
    ),
    "pod-immediate": (lambda stepped: stepped.claim(immediate=True), {"selected": "n1"}, "S-11", [], False),
    "pod-delayed-info": (
        lambda stepped: stepped.claim(),
        {"potential": ("n1", "n9")},
        "S-17",
        ["patch context ns/pod"],
        False,
    ),
    "pod-delayed-missing-class": (
        lambda stepped: stepped.claim(class_name="nowhere"),
        {"selected": "n1"},
        "S-9",
        [],
        False,
    ),
    "pod-delayed-allocate": (
        lambda stepped: stepped.claim(),
        {"selected": "n1", "potential": ("n1", "n9")},
        "S-15",
        [MARK, LEASE, ALLOCATE, "patch context ns/pod"],
        True,
    ),
    "pod-selected-is-potential-node": (
        lambda stepped: stepped.claim(),
        {"selected": "n9", "potential": ("n1",)},
        "S-14",
        ["patch context ns/pod"],
        False,
    ),
}


@pytest.mark.parametrize("name", CONTEXTS)
def test_a_context_is_treated_as_upstream_does(name: str) -> None:
    # T-C
    prepare, fields, rule, calls, is_allocated = CONTEXTS[name]
    stepped = SteppedController()
    stepped.select()
    prepare(stepped)
    stepped.server.put_context(context(**fields))
    stepped.builder.stores.contexts.put(stepped.server.contexts[POD])
    ended, made = stepped.of_context()
    assert (ended.rule, made) == (rule, ["get pod ns/pod", *calls])
    held = stepped.server.claim("claim")
    assert is_allocated == (held is not None and held.status.allocation is not None)


def test_a_context_without_nodes_asks_nothing() -> None:
    # T-C pod-delayed-no-nodes
    stepped = SteppedController()
    stepped.claim()
    stepped.builder.stores.contexts.put(context())
    ended, made = stepped.of_context()
    assert (ended.rule, made) == ("S-3", [])


@pytest.mark.parametrize("at", [0, MAX_NODES], ids=["first", "last"])
def test_of_one_node_too_many_the_selected_one_is_kept(at: int) -> None:
    # T-C pod-selected-is-potential-node-truncate-first, -last: 129 nodes, of which none will do
    nodes = [f"x{number:03}" for number in range(MAX_NODES + 1)]
    selected = nodes.pop(at)
    found = report(plan_context(context(selected=selected, potential=tuple(nodes)), pod(), small_scene().view))
    assert len(found["gpu"]) == MAX_NODES
    assert selected in found["gpu"]
