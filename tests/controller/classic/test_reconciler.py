"""How decisions are carried out: the order of writes, and what a failed write leaves (C-4 to C-19, S-15 to S-17)."""

from typing import Any

import pytest

from kerf_dra.api.model.names import ObjectRef
from kerf_dra.api.resource.resource_handle import HandleTooLargeError
from kerf_dra.api.resource.v1alpha2 import KINDS
from kerf_dra.driver.controller.classic.reconcile_result import Requeue
from kerf_dra.driver.controller.classic.reconciler import (
    FENCE,
    ClaimChangedError,
    ClaimReconciler,
    NotLeadingError,
)
from kerf_dra.driver.kube.http.errors import ConflictError, NotFoundError, ServerError, UnreachableError
from tests.controller.classic.cluster_builder import FINALIZER, ClusterBuilder, claim, consumer, context, pod
from tests.controller.classic.hardware import gpu
from tests.controller.classic.server import Server, SteppedApi, run
from tests.controller.classic.test_claims import HELD

CLAIM = ObjectRef("ns", "claim")
POD = ObjectRef("ns", "pod")


class SteppedController:
    """One controller that leads, with one node and the class ``gpu``."""

    def __init__(self) -> None:
        self.server = Server(leader="x")
        self.builder = ClusterBuilder()
        self.builder.node("n1")
        self.builder.resource_class("gpu", {"maxPods": 2})
        self.reconciler = ClaimReconciler(SteppedApi(self.server, "x"), KINDS, self.builder.view)

    def claim(self, name: str = "claim", **fields: Any) -> None:
        self.server.put(claim(name, **fields))
        self.see()

    def see(self) -> None:
        """Bring the caches up to date."""
        for value in self.server.claims():
            self.builder.put_claim(value)

    def select(self, **fields: Any) -> None:
        """The scheduler selects n1 for the pod."""
        self.server.pods[POD] = pod(**fields)
        self.server.put_context(context(selected="n1", potential=("n1", "n9")))
        self.builder.stores.contexts.put(self.server.contexts[POD])

    def of_claim(self, cut: Any = None, calls: list[str] | None = None, end: Any = "cut") -> tuple[Any, list[str]]:
        return run(self.reconciler.reconcile_claim(CLAIM), cut, calls, end)

    def of_context(self, cut: Any = None) -> tuple[Any, list[str]]:
        return run(self.reconciler.reconcile_context(POD), cut)


@pytest.fixture
def stepped() -> SteppedController:
    return SteppedController()


READ, MARK, ALLOCATE = "get claim ns/claim", "patch claim ns/claim", "patch status ns/claim"


def test_the_finalizer_is_written_before_the_allocation(stepped: SteppedController) -> None:
    # C-18: and between the two the leader makes sure that it leads
    stepped.claim(immediate=True)
    ended, calls = stepped.of_claim()
    assert (ended.rule, calls) == ("C-18", [MARK, "get lease", ALLOCATE])
    held = stepped.server.claim("claim")
    assert held is not None
    assert FINALIZER in held.metadata.finalizers
    assert held.status.driver_name == "gpu.kerf.dev"


def test_a_finalizer_that_is_there_is_not_written_again(stepped: SteppedController) -> None:
    stepped.claim(immediate=True, finalizers=(FINALIZER,))
    assert stepped.of_claim()[1] == ["get lease", ALLOCATE]


def test_without_a_finalizer_nothing_is_allocated(stepped: SteppedController) -> None:
    # C-16
    stepped.claim(immediate=True)
    with pytest.raises(UnreachableError):
        stepped.of_claim((MARK, "before"))
    held = stepped.server.claim("claim")
    assert held is not None
    assert held.status.allocation is None
    assert stepped.of_claim()[0].rule == "C-18", "and the next pass begins anew"


def test_what_cannot_be_written_at_all_leaves_no_finalizer(stepped: SteppedController) -> None:
    # a handle holds 16 KiB, and a look at 300 cards takes more
    stepped.builder.node("n1", *(gpu("n1", index) for index in range(300)))
    stepped.builder.resource_class("gpu", {"monitor": True})
    stepped.claim(immediate=True)
    calls: list[str] = []
    with pytest.raises(HandleTooLargeError):
        stepped.of_claim(None, calls)
    assert calls == []
    assert not stepped.builder.view.usage.is_reserved("claim-claim")


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize(("end", "error"), [("cut", UnreachableError), ("fail", ServerError)])
def test_an_allocation_whose_answer_is_lost_is_neither_lost_nor_doubled(
    stepped: SteppedController, when: str, end: str, error: type[Exception]
) -> None:
    """C-19, T-E idempotence: until it is known what became of the write the device is taken.

    An answer of 500 does not tell: etcd may have written, and answered the API server too late.
    """
    stepped.claim(immediate=True)
    with pytest.raises(error):
        stepped.of_claim((ALLOCATE, when), end=end)
    assert stepped.builder.view.usage.is_reserved("claim-claim")
    stepped.of_claim()
    held = stepped.server.claim("claim")
    assert held is not None
    assert held.status.allocation is not None
    stepped.see()
    assert stepped.of_claim()[0].rule == "C-10"
    assert not stepped.builder.view.usage.is_reserved("claim-claim")


def test_the_allocation_is_cleared_before_the_finalizer_goes(stepped: SteppedController) -> None:
    # C-4: other finalizers stay, in their order
    stepped.claim(finalizers=("a/b", FINALIZER, "c/d"), allocation=HELD, deallocate=True)
    ended, calls = stepped.of_claim()
    assert (ended.rule, calls) == ("C-4", [READ, ALLOCATE, MARK])
    held = stepped.server.claim("claim")
    assert held is not None
    assert held.metadata.finalizers == ("a/b", "c/d")
    assert (held.status.allocation, held.status.driver_name, held.status.deallocation_requested) == (None, "", False)


@pytest.mark.parametrize(
    ("shown", "stored"),
    [
        ({"finalizers": (FINALIZER,), "deleted": True}, {"finalizers": (FINALIZER,), "allocation": HELD}),
        ({"finalizers": (FINALIZER,), "allocation": HELD, "deallocate": True}, {"allocation": HELD}),
        ({"allocation": HELD, "deallocate": True}, {"allocation": HELD, "reserved_for": (consumer(),)}),
    ],
    ids=["no status", "not to be deallocated", "in use"],
)
def test_an_end_that_only_the_watch_shows_takes_nothing(
    stepped: SteppedController, shown: dict[str, Any], stored: dict[str, Any]
) -> None:
    """A watch that lost the status of a claim in use would have had its finalizer removed."""
    stepped.claim(**shown)
    stepped.server.put(claim("claim", **stored))
    calls: list[str] = []
    with pytest.raises(ClaimChangedError, match="it has changed, or has not ended as the watch has shown"):
        stepped.of_claim(None, calls)
    assert calls == [READ]


def test_an_older_claim_than_the_watch_has_shown_takes_nothing(stepped: SteppedController) -> None:
    stepped.claim(finalizers=(FINALIZER,), allocation=HELD, deallocate=True)
    body = stepped.server.objects[ObjectRef("ns", "claim")]
    stepped.server.objects[ObjectRef("ns", "claim")] = {
        **body,
        "metadata": {**body["metadata"], "resourceVersion": "1"},
    }
    with pytest.raises(ClaimChangedError, match=r"a GET shows version 1, which is older than \d+, seen before"):
        stepped.of_claim()


def test_a_fence_that_is_answered_without_being_written_is_none(stepped: SteppedController) -> None:
    """A cache before the API server answered the write with the claim as it was: the former leader could go on."""
    stepped.claim(immediate=True, finalizers=(FINALIZER,))
    held = stepped.server.claim("claim")
    stepped.server.patch = lambda *_: held  # type: ignore[method-assign, assignment]
    with pytest.raises(ClaimChangedError, match="a write is answered by the version before it"):
        run(stepped.reconciler.take_over("second"))


def test_when_clearing_fails_nothing_is_changed(stepped: SteppedController) -> None:
    # C-6
    stepped.claim(finalizers=(FINALIZER,), allocation=HELD, deleted=True)
    with pytest.raises(UnreachableError):
        stepped.of_claim((ALLOCATE, "before"))
    assert stepped.of_claim()[0].rule == "C-4"
    assert stepped.server.claim("claim") is None


def test_when_only_the_finalizer_is_left_it_goes_in_the_next_pass(stepped: SteppedController) -> None:
    # C-7, C-8
    stepped.claim(finalizers=(FINALIZER,), allocation=HELD, deleted=True)
    with pytest.raises(UnreachableError):
        stepped.of_claim((MARK, "before"))
    assert stepped.of_claim()[0].rule == "C-8"
    assert stepped.server.claim("claim") is None


def test_a_claim_that_changed_meanwhile_is_not_written_over(stepped: SteppedController) -> None:
    # C-19, Q-11
    stepped.claim(immediate=True)
    stepped.server.change("claim", metadata={"labels": {"a": "b"}})
    with pytest.raises(ConflictError):
        stepped.of_claim()
    assert not stepped.builder.view.usage.is_reserved("claim-claim"), "it is certain that nothing was written"


def test_allocation_and_reservation_for_the_pod_are_one_write(stepped: SteppedController) -> None:
    # S-15, then S-17
    stepped.claim()
    stepped.select()
    ended, calls = stepped.of_context()
    assert (ended.rule, ended.requeue) == ("S-15", Requeue.PERIODIC)
    assert calls == ["get pod ns/pod", MARK, "get lease", ALLOCATE, "patch context ns/pod"]
    held = stepped.server.claim("claim")
    assert held is not None
    assert held.status.reserved_for == (consumer(),)
    assert stepped.server.contexts[POD].status.resource_claims[0].unsuitable_nodes == ("n9",)


def test_claims_of_a_pod_are_all_marked_before_any_is_allocated(stepped: SteppedController) -> None:
    # S-15, S-16, Q-14: what is written stays, the rest follows, and only then the report
    stepped.claim()
    stepped.claim("other")
    stepped.select(claims={"a": "claim", "b": "other"})
    with pytest.raises(UnreachableError):
        stepped.of_context(("patch status ns/other", "before"))
    first, second = stepped.server.claim("claim"), stepped.server.claim("other")
    assert first is not None
    assert second is not None
    assert (first.status.allocation is not None, second.status.allocation) == (True, None)
    assert stepped.server.contexts[POD].status.resource_claims == ()
    stepped.of_context()
    second = stepped.server.claim("other")
    assert second is not None
    assert second.status.allocation is not None


def test_a_pod_that_is_gone_is_told_of_and_asked_for_again(stepped: SteppedController) -> None:
    # S-4
    stepped.claim()
    stepped.select()
    stepped.server.pods.clear()
    ended, calls = stepped.of_context()
    assert (ended.rule, ended.requeue, calls) == ("S-4", Requeue.BACKOFF, ["get pod ns/pod"])


def test_who_does_not_lead_any_more_writes_no_allocation(stepped: SteppedController) -> None:
    stepped.claim(immediate=True)
    stepped.server.leader = "y"
    with pytest.raises(NotLeadingError):
        stepped.of_claim()
    held = stepped.server.claim("claim")
    assert held is not None
    assert held.status.allocation is None


def test_a_new_leader_makes_the_writes_of_its_predecessor_fail(stepped: SteppedController) -> None:
    stepped.claim(immediate=True)
    writing = stepped.reconciler.reconcile_claim(CLAIM)
    while (stop := writing.send(None)).call != ALLOCATE:
        pass
    successor = ClaimReconciler(SteppedApi(stepped.server, "y"), KINDS, ClusterBuilder().view)
    stepped.server.leader = "y"
    _, calls = run(successor.take_over("second"))
    assert calls == ["list claims", MARK]
    held = stepped.server.claim("claim")
    assert held is not None
    assert held.metadata.annotations == {FENCE: "second"}
    assert stop.when == "before"
    with pytest.raises(ConflictError):
        writing.send(None)


def test_a_claim_that_only_a_new_leader_ever_saw_does_not_keep_its_pod_from_the_others(
    stepped: SteppedController,
) -> None:
    # found by test_schedules.py: the pass failed, because it wrote to a claim that was deleted while the watch was away
    stepped.claim("kept")
    stepped.server.put(claim("missed"))
    run(stepped.reconciler.take_over("2"))
    stepped.server.delete("missed")
    stepped.select(claims={"first": "kept", "second": "missed"})
    with pytest.raises(NotFoundError):
        stepped.of_context()
    stepped.builder.claims_version = stepped.server.version
    assert stepped.of_context()[0].rule == "S-15"
    kept = stepped.server.claim("kept")
    assert kept is not None
    assert kept.status.allocation is not None


def test_claims_that_nobody_has_begun_are_left_alone_by_a_new_leader(stepped: SteppedController) -> None:
    stepped.claim()
    stepped.claim("done", finalizers=(FINALIZER,), allocation=HELD)
    assert run(stepped.reconciler.take_over("second"))[1] == ["list claims"]


@pytest.mark.parametrize("immediate", [True, False])
@pytest.mark.parametrize("killed_at", range(12))
def test_killed_at_any_moment_a_successor_finishes_what_was_begun(killed_at: int, immediate: bool) -> None:
    # NE-01: every stop is before or after one call to the API server
    stepped = SteppedController()
    stepped.claim(immediate=immediate)
    stepped.select()
    begun = stepped.reconciler.reconcile_claim(CLAIM) if immediate else stepped.reconciler.reconcile_context(POD)
    try:
        for _ in range(killed_at + 1):
            begun.send(None)
    except StopIteration:
        pass
    begun.close()

    successor = SteppedController()
    successor.server = stepped.server
    successor.reconciler = ClaimReconciler(SteppedApi(stepped.server, "x"), KINDS, successor.builder.view)
    successor.see()
    successor.builder.stores.contexts.put(stepped.server.contexts[POD])
    run(successor.reconciler.take_over("second"))
    successor.see()
    successor.of_claim()
    successor.of_context()
    held = stepped.server.claim("claim")
    assert held is not None
    assert held.status.allocation is not None
    assert FINALIZER in held.metadata.finalizers
    assert [entry.uid for entry in held.status.reserved_for] == ([] if immediate else ["pod-pod"])
